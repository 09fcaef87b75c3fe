"""Operators that act element by element, with numpy's broadcasting; arithmetic among them.

Elements of f16, bf16 and the floats of fewer bits are computed in f32 and rounded once, integers of
fewer than 8 bits in 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BF16, BOOL, F32, F64, DType, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr
from planish.compiler.graph.ir import Array, Content, TensorType
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices, is_one
from .content import elementwise, nonnegative
from .sampling import bools, extremes, f32, ints, special


def wide(dtype: DType) -> DType:
    """The dtype to compute in."""
    return dtype.computed


def widen(x: Expr) -> Expr:
    """An element in the dtype to compute in."""
    return n.cast(x, wide(x.dtype))


def widened(x: Array) -> Array:
    """An array for the references to compute on: floats below f32 as f32."""
    return x.astype(from_numpy(x.dtype).computed.numpy)


def broadcasts_to(shape: tuple[Expr, ...], target: tuple[Expr, ...]) -> bool:
    """Whether a tensor of ``shape`` broadcasts to ``target`` without changing that."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return not any(is_one(t) and not is_one(d) for d, t in zip(shape, tail, strict=True))


def call(name: str, *args: Expr) -> Expr:
    """A named scalar function of the dtype of its arguments."""
    return Call(name, args, args[0].dtype)


@dataclass(frozen=True)
class Unary(Op):
    """An operator of one tensor, element by element."""

    kinds: ClassVar[str] = "f"  # of dtype that it takes: f float, i signed, u unsigned, b bool

    def element(self, x: Expr) -> Expr:
        """The output's element for the input's."""
        raise NotImplementedError

    def values(self, x: Array) -> Array:
        """The same by numpy."""
        raise NotImplementedError

    def result(self, dtype: DType) -> DType:
        return dtype

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in self.kinds:
            raise self.fail(f"is not defined for {x.dtype}")
        return x.with_dtype(self.result(x.dtype))

    def compute(self, x: te.Tensor) -> te.Tensor:
        out = self.result(x.dtype)
        return te.compute(x.shape, lambda *i: n.cast(self.element(widen(x[i])), out), self.name)

    def reference(self, x: Array) -> Array:
        out = x.dtype if (result := self._result(x)) is None else result
        return converted(self.values(widened(x)), from_numpy(np.dtype(out)))

    def _result(self, x: Array) -> Any:
        return np.bool_ if self.result(F32) is BOOL else None

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        if outputs[0].dtype.is_float:
            return (None,)
        return (elementwise(self.element, inputs, outputs[0]),)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        """Operators to take samples of."""
        yield cls()

    @classmethod
    def arrays(cls) -> Iterator[Array]:
        """Inputs for the samples."""
        yield f32(3, 5)
        if "f" in cls.kinds:
            yield special("float32")
            yield f32(7).astype(np.float16)
            yield f32(2, 3).astype(BF16.numpy)
            yield f32(2, 2, 1, 3).astype(np.float64)
            yield f32(0, 3)
            yield f32()
        for kind, dtypes in (("i", ("int8", "int32", "int64")), ("u", ("uint8", "uint64"))):
            if kind in cls.kinds:
                yield from (extremes(d) for d in dtypes)
        if "b" in cls.kinds:
            yield bools(3, 4)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        arrays = [a for a in cls.arrays() if _kind(a) in cls.kinds]
        for k, op in enumerate(cls.instances()):
            for a in arrays if k == 0 else arrays[:2]:
                yield op, [a]


def _kind(a: Array) -> str:
    return a.dtype.kind if a.dtype.kind in "iub" else "f"


@dataclass(frozen=True)
class Binary(Op):
    """An operator of two tensors of one dtype that broadcast."""

    kinds: ClassVar[str] = "fiu"

    def element(self, x: Expr, y: Expr) -> Expr:
        """The output's element for the inputs'."""
        raise NotImplementedError

    def values(self, x: Array, y: Array) -> Array:
        """The same by numpy."""
        raise NotImplementedError

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        """The element of known contents: ``i64`` or bool expressions over dimensions."""
        return self.element(x, y)

    def result(self, dtype: DType) -> DType:
        return dtype

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not y.dtype:
            raise self.fail(f"operands are {x.dtype} and {y.dtype}", hint="cast one of them")
        if x.dtype.kind not in self.kinds:
            raise self.fail(f"is not defined for {x.dtype}")
        return TensorType(self.result(x.dtype), broadcast(x.shape, y.shape))

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        out = self.result(x.dtype)

        def element(*i: Expr) -> Expr:
            a, b = x[broadcast_indices(i, x.shape)], y[broadcast_indices(i, y.shape)]
            return n.cast(self.element(widen(a), widen(b)), out)

        return te.compute(broadcast(x.shape, y.shape), element, self.name)

    def reference(self, x: Array, y: Array) -> Array:
        out = np.bool_ if self.result(F32) is BOOL else x.dtype
        return np.asarray(self.values(widened(x), widened(y))).astype(out)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        if outputs[0].dtype.is_float:
            return (None,)
        return (elementwise(self.content_element, inputs, outputs[0]),)

    @classmethod
    def instances(cls) -> Iterator[Binary]:
        """Operators to take samples of."""
        yield cls()

    @classmethod
    def arrays(cls) -> Iterator[list[Array]]:
        """Inputs for the samples."""
        if "f" in cls.kinds:
            yield [f32(3, 5), f32(5)]
            yield [f32(2, 1, 4), f32(3, 1)]
            yield [special("float32")[:, None], special("float32")]
            yield [f32(6).astype(np.float16), f32().astype(np.float16)]
            yield [f32(2, 3).astype(BF16.numpy), f32(2, 1).astype(BF16.numpy)]
            yield [f32(4).astype(np.float64), f32(4, low=-2.0).astype(np.float64)]
            yield [f32(0, 3), f32(1, 3)]
        for kind, dtypes in (("i", ("int8", "int32", "int64")), ("u", ("uint8", "uint64"))):
            if kind in cls.kinds:
                yield from ([extremes(d)[:, None], extremes(d)] for d in dtypes)
        if "b" in cls.kinds:
            yield [bools(3, 4), bools(4)]

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        for op in cls.instances():
            for arrays in cls.arrays():
                yield op, list(arrays)


@dataclass(frozen=True)
class Add(Binary):
    """x + y; integers wrap around.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Add-14.
    """

    name = "add"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.add(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.add(x, y)


@dataclass(frozen=True)
class Sub(Binary):
    """x - y; integers wrap around.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Sub-14.
    """

    name = "sub"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.sub(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.subtract(x, y)


@dataclass(frozen=True)
class Mul(Binary):
    """x * y; integers wrap around.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Mul-14.
    """

    name = "mul"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.mul(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.multiply(x, y)


def truncated(x: Array, y: Array) -> Array:
    """The quotient of integers as ``div`` means it, by numpy."""
    floor = np.floor_divide(x, y)
    inexact = (floor * y != x) & (y != 0)
    return np.asarray(floor + (inexact & ((x < 0) != (y < 0))))


@dataclass(frozen=True)
class Div(Binary):
    """x / y; integers truncate towards zero, and give 0 for a divisor of 0.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Div-14.
    """

    name = "div"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.div(x, y)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        if not (isinstance(y, n.Const) and y.value):
            return None if isinstance(y, n.Const) or not nonnegative(x) else n.div(x, y)
        if nonnegative(x) and y.value > 0:
            return n.floordiv(x, y)
        return n.div(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.divide(x, y) if x.dtype.kind == "f" else truncated(x, y)


@dataclass(frozen=True)
class Mod(Binary):
    """The remainder of x / y: of y's sign, or of x's if ``fmod`` is set (as C's ``fmod``).

    Integers give 0 for a divisor of 0. The remainder of floats is exact for quotients below 2^260.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Mod-28.
    """

    name = "mod"

    fmod: bool = False

    def element(self, x: Expr, y: Expr) -> Expr:
        if x.dtype.is_float:
            r = n.cast(_float_remainder(n.cast(x, F64), n.cast(y, F64)), x.dtype)
            if self.fmod:
                return r
            other = n.ne(n.lt(r, 0), n.lt(y, 0))
            return n.select(n.eq(r, 0), call("copysign", r, y), n.select(other, r + y, r))
        r = n.select(n.eq(y, 0), 0, x - n.div(x, y) * y)
        if self.fmod or x.dtype.kind == "u":
            return r
        other = n.all_of(n.ne(r, 0), n.ne(n.lt(r, 0), n.lt(y, 0)))
        return n.select(other, r + y, r)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        if not (isinstance(y, n.Const) and y.value > 0) or (self.fmod and not nonnegative(x)):
            return None
        return n.floormod(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.fmod(x, y) if self.fmod else np.mod(x, y)

    @classmethod
    def instances(cls) -> Iterator[Binary]:
        yield cls()
        yield cls(fmod=True)


def _float_remainder(x: Expr, y: Expr) -> Expr:
    """C's ``fmod``: each step takes 52 bits off the quotient, exactly, by a fused multiply-add."""
    r = x
    for _ in range(5):
        r = call("fma", n.neg(call("trunc", r / y)), y, r)
    size = call("abs", y)
    # The quotient was rounded, so the remainder may be one divisor off, to the other side of zero.
    r = n.select(n.all_of(n.lt(r, 0), n.lt(0.0, x)), r + size, r)
    r = n.select(n.all_of(n.lt(0.0, r), n.lt(x, 0)), r - size, r)
    r = n.select(n.eq(r, 0), call("copysign", n.const(0.0, x.dtype), x), r)
    whole = n.all_of(n.eq(size, float("inf")), n.lt(call("abs", x), float("inf")))
    return n.select(whole, x, r)


@dataclass(frozen=True)
class Min(Binary):
    """The lesser of x and y; NaN if either is NaN.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Min-13.
    """

    name = "min"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.minimum(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.minimum(x, y)


@dataclass(frozen=True)
class Max(Binary):
    """The greater of x and y; NaN if either is NaN.

    Shape: x [...], y [...] -> their broadcast.
    Source: ONNX Max-13.
    """

    name = "max"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.maximum(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.maximum(x, y)


@dataclass(frozen=True)
class FullLike(Unary):
    """A tensor of x's shape, of one value everywhere.

    Shape: x [...] -> the same, of ``dtype``.
    Source: numpy.full_like.
    """

    name = "full_like"
    kinds = "fiub"

    value: float | int | bool = True
    dtype: DType = BOOL

    def result(self, dtype: DType) -> DType:
        return self.dtype

    def compute(self, x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: n.const(self.value, self.dtype), self.name)

    def reference(self, x: Array) -> Array:
        return np.full(x.shape, self.value, self.dtype.numpy)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        return (None,)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5)]
        yield cls(1.0, F32), [ints(2, 3)]
