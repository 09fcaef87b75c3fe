"""Steps of optimisers: ai.onnx.preview.training.

The inputs are the learning rate, the number of steps done, then of each kind (parameters, gradients
and what the optimiser keeps) a tensor for each parameter; the outputs are the same without the
gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import DType
from planish.compiler.graph.ir import Value
from planish.compiler.ops.compare import Greater
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, Mul, Sub
from planish.compiler.ops.power import Pow
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.unary import Sqrt

from .elementwise import step
from .reader import NodeReader, handles

DOMAIN: Final = "ai.onnx.preview.training"
Number: TypeAlias = "Value | float"


@dataclass(frozen=True)
class _Arithmetic:
    """Sums and products of values and numbers, in one dtype."""

    r: NodeReader
    dtype: DType

    def value(self, x: Number) -> Value:
        if isinstance(x, Value):
            return x if x.type.dtype is self.dtype else step(self.r, Cast(self.dtype), x)
        return self.r.constant(np.array(x, self.dtype.numpy))

    def add(self, x: Number, y: Number) -> Value:
        return step(self.r, Add(), self.value(x), self.value(y))

    def sub(self, x: Number, y: Number) -> Value:
        return step(self.r, Sub(), self.value(x), self.value(y))

    def mul(self, x: Number, y: Number) -> Value:
        return step(self.r, Mul(), self.value(x), self.value(y))

    def div(self, x: Number, y: Number) -> Value:
        return step(self.r, Div(), self.value(x), self.value(y))

    def power(self, x: Number, y: Number) -> Value:
        return step(self.r, Pow(), self.value(x), self.value(y))

    def root(self, x: Value) -> Value:
        return step(self.r, Sqrt(), x)

    def after_first(self, count: Value, then: Number, other: Number) -> Value:
        """``then`` if steps were done before, else ``other``."""
        some = step(self.r, Greater(), self.value(count), self.value(0.0))
        return step(self.r, Where(), some, self.value(then), self.value(other))


@dataclass(frozen=True)
class _Step:
    """The inputs of a node."""

    r: NodeReader
    kinds: int  # of tensors: parameters, gradients ...

    def scalar(self, index: int) -> Value:
        value = self.r.input(index)
        if value.type.size != 1:
            raise self.r.fail(f"input {index}, {value!r}, is not one number")
        return value if value.type.rank == 0 else step(self.r, Reshape(()), value)

    def groups(self) -> list[tuple[Value, ...]]:
        """Of each parameter its tensor of every kind."""
        values = self.r.inputs()[2:]
        if not values or len(values) % self.kinds:
            raise self.r.fail(f"{len(values)} tensors are not {self.kinds} for each parameter")
        count = len(values) // self.kinds
        groups = [tuple(values[k::count]) for k in range(count)]
        for group in groups:
            if len({v.type.dtype for v in group}) > 1:
                raise self.r.fail(f"the tensors {list(group)} differ in dtype")
        return groups

    def regularized(self, a: _Arithmetic, x: Value, g: Value) -> Value:
        """The gradient, with that of the parameters' squares."""
        weight = float(self.r.attribute("norm_coefficient", 0.0))
        return a.add(a.mul(weight, x), g) if weight else g


def _by_kind(results: Sequence[tuple[Value, ...]]) -> list[Value]:
    return [v for kind in zip(*results, strict=True) for v in kind]


@handles("Adagrad", 1, domain=DOMAIN)
def adagrad(r: NodeReader) -> list[Value]:
    """The squares of gradients add up, and make steps smaller."""
    s = _Step(r, 3)
    rate, count = s.scalar(0), s.scalar(1)
    decay, epsilon = float(r.attribute("decay_factor", 0.0)), float(r.attribute("epsilon", 1e-6))
    out = []
    for x, g, h in s.groups():
        a = _Arithmetic(r, x.type.dtype)
        g = s.regularized(a, x, g)
        now = a.div(rate, a.add(1.0, a.mul(count, decay)))
        squares = a.add(h, a.mul(g, g))
        moved = a.div(a.mul(now, g), a.add(a.root(squares), epsilon))
        out.append((a.sub(x, moved), squares))
    return _by_kind(out)


@handles("Adam", 1, domain=DOMAIN)
def adam(r: NodeReader) -> list[Value]:
    """Running means of gradients and of their squares."""
    s = _Step(r, 4)
    rate, count = s.scalar(0), s.scalar(1)
    alpha, beta = float(r.attribute("alpha", 0.9)), float(r.attribute("beta", 0.999))
    epsilon = float(r.attribute("epsilon", 1e-6))
    after = float(r.attribute("norm_coefficient_post", 0.0))
    out = []
    for x, g, v, h in s.groups():
        a = _Arithmetic(r, x.type.dtype)
        g = s.regularized(a, x, g)
        mean = a.add(a.mul(alpha, v), a.mul(1 - alpha, g))
        squares = a.add(a.mul(beta, h), a.mul(1 - beta, a.mul(g, g)))
        spread = a.root(a.sub(1.0, a.power(beta, count)))
        adjusted = a.div(a.mul(rate, spread), a.sub(1.0, a.power(alpha, count)))
        now = a.after_first(count, adjusted, rate)
        moved = a.div(a.mul(now, mean), a.add(a.root(squares), epsilon))
        new = a.sub(x, moved)
        out.append((a.mul(1 - after, new) if after else new, mean, squares))
    return _by_kind(out)


@handles("Momentum", 1, domain=DOMAIN)
def momentum(r: NodeReader) -> list[Value]:
    """A step goes on in the direction of those before."""
    s = _Step(r, 3)
    rate, count = s.scalar(0), s.scalar(1)
    alpha, beta = float(r.required("alpha")), float(r.required("beta"))
    mode = r.required("mode")
    if mode not in ("standard", "nesterov"):
        raise r.fail(f"there is no mode {mode}", hint="one of standard nesterov")
    out = []
    for x, g, v in s.groups():
        a = _Arithmetic(r, x.type.dtype)
        g = s.regularized(a, x, g)
        new = a.add(a.mul(alpha, v), a.mul(a.after_first(count, beta, 1.0), g))
        direction = a.add(g, a.mul(alpha, new)) if mode == "nesterov" else new
        out.append((a.sub(x, a.mul(rate, direction)), new))
    return _by_kind(out)
