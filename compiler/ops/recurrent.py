"""Recurrent layers in one direction, on inputs that were projected for all time steps at once.

The importer makes one matrix product of the input with its weights, adds the biases, and applies
these operators, which carry the state from step to step; they are no tensor expressions but build
their loops (``recurrent_loops``). Batches may be shorter than the whole: then the state stays and
outputs are 0 from ``lens[b]`` on. ``reverse`` runs from the last step (of each batch) to the first;
outputs stand at the step that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import I32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop.ir import Function

from .base import Arrays, Op, Types
from .gates import Activation, activate
from .recurrent_loops import gru_loops, lstm_loops, rnn_loops
from .sampling import f32
from .windows import wide_array

SIGMOID: Activation = ("Sigmoid", 0.0, 0.0)
TANH: Activation = ("Tanh", 0.0, 0.0)


@dataclass(frozen=True)
class Recurrent(Op):
    """What recurrent layers have in common; ``gates`` blocks of columns in the projected input."""

    gates: ClassVar[int] = 1

    reverse: bool = False
    activations: tuple[Activation, ...] = ()
    clip: float = 0.0  # of what goes into the activations of gates; 0: none

    def types(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None,
        **states: tuple[TensorType | None, tuple[n.Expr, ...]],
    ) -> tuple[TensorType, TensorType]:
        """The types of the outputs at all steps and of a state; checks the inputs."""
        if not x.dtype.is_float or x.rank != 3 or r.rank != 2:
            raise self.fail(f"x {x} must be [t, b, {self.gates} h] float, and r {r} matrix")
        steps, batch, columns = x.shape
        hidden = r.shape[0]
        self.equal("columns of r", r.shape[1], n.mul(hidden, self.gates))
        self.equal("columns of x", columns, n.mul(hidden, self.gates))
        if lens is not None:
            if lens.dtype is not I32 or lens.rank != 1:
                raise self.fail(f"lens {lens} must be i32[b]")
            self.equal("lens", lens.shape[0], batch)
        for what, (state, shape) in states.items():
            if state is None:
                continue
            if state.rank != len(shape):
                raise self.fail(f"{what} {state} must have rank {len(shape)}")
            for d, e in zip(state.shape, shape, strict=True):
                self.equal(what, d, e)
        for other in (r, *(s for s, _ in states.values() if s is not None)):
            if other.dtype is not x.dtype:
                raise self.fail(f"operands are {x.dtype} and {other.dtype}", hint="cast one")
        return x.with_shape((steps, batch, hidden)), x.with_shape((batch, hidden))

    def equal(self, what: str, a: n.Expr, b: n.Expr) -> None:
        same = n.eq(a, b)
        if isinstance(same, Const) and not same.value:
            raise self.fail(f"{what}: {a} should be {b}")
        assume(same)

    def clipped(self, x: Array) -> Array:
        return np.clip(x, -self.clip, self.clip) if self.clip else x

    def act(self, which: int, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return activate(self.activations[which], self.clipped(x))

    def order(self, steps: int) -> range:
        return range(steps - 1, -1, -1) if self.reverse else range(steps)


def _start(state: Array | None, x: Array, hidden: int) -> Array:
    return np.zeros((x.shape[1], hidden)) if state is None else wide_array(state)


def _active(lens: Array | None, t: int, batch: int) -> Array:
    """Which batches have a step ``t``, as [b, 1]."""
    return np.ones((batch, 1), bool) if lens is None else (t < lens)[:, None]


def _sample_activations() -> tuple[Activation, ...]:
    return (("HardSigmoid", 0.3, 0.4), ("LeakyRelu", 0.1, 0.0), ("ScaledTanh", 1.5, 0.5))


@dataclass(frozen=True)
class Lstm(Recurrent):
    """A long short-term memory: gates i, o, f, c; activations f, g, h; peepholes p for i, o, f.

    ``input_forget``: the forget gate is 1 - i.

    Shape: x [t, b, 4h], r [h, 4h]; optional: lens i32 [b], initial_h [b, h], initial_c [b, h],
    p [3h] -> y [t, b, h], y_h [b, h], y_c [b, h].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX LSTM-22.
    """

    name = "lstm"
    gates = 4

    input_forget: bool = False

    def infer(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
        initial_c: TensorType | None = None,
        p: TensorType | None = None,
    ) -> Types:
        state = (x.shape[1], r.shape[0]) if x.rank == 3 and r.rank == 2 else ()
        y, h = self.types(
            x,
            r,
            lens,
            initial_h=(initial_h, state),
            initial_c=(initial_c, state),
            p=(p, (n.mul(r.shape[0], 3),)),
        )
        return y, h, h

    def build(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
        initial_c: TensorType | None = None,
        p: TensorType | None = None,
    ) -> Function:
        return lstm_loops(self, x, r, lens, initial_h, initial_c, p)

    def reference(
        self,
        x: Array,
        r: Array,
        lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        p: Array | None = None,
    ) -> Arrays:
        hidden, dtype = r.shape[0], x.dtype
        h, c = _start(initial_h, x, hidden), _start(initial_c, x, hidden)
        pi, po, pf = np.split(np.zeros(3 * hidden) if p is None else wide_array(p), 3)
        y = np.zeros((*x.shape[:2], hidden))
        for t in self.order(len(x)):
            i, o, f, g = np.split(wide_array(x[t]) + h @ wide_array(r), 4, axis=1)
            i = self.act(0, i + pi * c)
            f = 1 - i if self.input_forget else self.act(0, f + pf * c)
            new_c = f * c + i * self.act(1, g)
            o = self.act(0, o + po * new_c)
            new_h = o * activate(self.activations[2], new_c)
            active = _active(lens, t, x.shape[1])
            h, c = np.where(active, new_h, h), np.where(active, new_c, c)
            y[t] = np.where(active, h, 0)
        return y.astype(dtype), h.astype(dtype), c.astype(dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        plain = (SIGMOID, TANH, TANH)
        x, r, h, c, p = f32(4, 2, 12), f32(3, 12), f32(2, 3), f32(2, 3, low=-1), f32(9)
        lens = np.array([2, 4], np.int32)
        yield cls(activations=plain), [x, r, None, None, None, None]
        yield cls(activations=plain), [x[:0], r, None, h, c, None]
        yield cls(True, plain), [x, r, lens, h, c, None]
        yield cls(False, plain, 0.7), [x, r, lens, h, c, p]
        yield cls(True, _sample_activations(), 0.0, True), [x, r, None, h, None, p]


@dataclass(frozen=True)
class Gru(Recurrent):
    """A gated recurrent unit: gates z, r, h; activations f, g.

    ``linear_before_reset``: the reset gate acts on the product with the state (plus ``rb``), not on
    the state.

    Shape: x [t, b, 3h], r [h, 3h], lens i32 [b], initial_h [b, h], rb [h], the last three optional
    -> y [t, b, h], y_h [b, h].
    Errors: TypeCheckError if shapes do not fit, or there is ``rb`` without ``linear_before_reset``.
    Source: ONNX GRU-22.
    """

    name = "gru"
    gates = 3

    linear_before_reset: bool = False

    def infer(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
        rb: TensorType | None = None,
    ) -> Types:
        if rb is not None and not self.linear_before_reset:
            raise self.fail("rb is part of x unless linear_before_reset is set")
        state = (x.shape[1], r.shape[0]) if x.rank == 3 and r.rank == 2 else ()
        return self.types(x, r, lens, initial_h=(initial_h, state), rb=(rb, (r.shape[0],)))

    def build(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
        rb: TensorType | None = None,
    ) -> Function:
        return gru_loops(self, x, r, lens, initial_h, rb)

    def reference(
        self,
        x: Array,
        r: Array,
        lens: Array | None = None,
        initial_h: Array | None = None,
        rb: Array | None = None,
    ) -> Arrays:
        hidden, dtype = r.shape[0], x.dtype
        h = _start(initial_h, x, hidden)
        bias = 0.0 if rb is None else wide_array(rb)
        rz, rr, rh = np.split(wide_array(r), 3, axis=1)
        y = np.zeros((*x.shape[:2], hidden))
        for t in self.order(len(x)):
            xz, xr, xh = np.split(wide_array(x[t]), 3, axis=1)
            z, reset = self.act(0, xz + h @ rz), self.act(0, xr + h @ rr)
            if self.linear_before_reset:
                new = self.act(1, xh + reset * (h @ rh + bias))
            else:
                new = self.act(1, xh + (reset * h) @ rh)
            active = _active(lens, t, x.shape[1])
            h = np.where(active, (1 - z) * new + z * h, h)
            y[t] = np.where(active, h, 0)
        return y.astype(dtype), h.astype(dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        plain = (SIGMOID, TANH)
        x, r, h, rb = f32(4, 2, 9), f32(3, 9), f32(2, 3), f32(3)
        lens = np.array([4, 1], np.int32)
        yield cls(activations=plain), [x, r, None, None, None]
        yield cls(activations=plain), [x[:0], r, None, h, None]
        yield cls(True, plain), [x, r, lens, h, None]
        yield cls(False, plain, 0.7, True), [x, r, lens, h, rb]
        yield cls(True, _sample_activations()[1:], 0.0, True), [x, r, None, None, rb]


@dataclass(frozen=True)
class Rnn(Recurrent):
    """A simple recurrent layer: h = f(x + h r).

    Shape: x [t, b, h], r [h, h], lens i32 [b], initial_h [b, h], the last two optional
    -> y [t, b, h], y_h [b, h].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX RNN-22.
    """

    name = "rnn"

    def infer(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
    ) -> Types:
        state = (x.shape[1], r.shape[0]) if x.rank == 3 and r.rank == 2 else ()
        return self.types(x, r, lens, initial_h=(initial_h, state))

    def build(
        self,
        x: TensorType,
        r: TensorType,
        lens: TensorType | None = None,
        initial_h: TensorType | None = None,
    ) -> Function:
        return rnn_loops(self, x, r, lens, initial_h)

    def reference(
        self, x: Array, r: Array, lens: Array | None = None, initial_h: Array | None = None
    ) -> Arrays:
        hidden, dtype = r.shape[0], x.dtype
        h = _start(initial_h, x, hidden)
        y = np.zeros((*x.shape[:2], hidden))
        for t in self.order(len(x)):
            active = _active(lens, t, x.shape[1])
            h = np.where(active, self.act(0, wide_array(x[t]) + h @ wide_array(r)), h)
            y[t] = np.where(active, h, 0)
        return y.astype(dtype), h.astype(dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x, r, h = f32(4, 2, 3), f32(3, 3), f32(2, 3)
        yield cls(activations=(TANH,)), [x, r, None, None]
        yield cls(activations=(TANH,)), [x[:0], r, None, h]
        yield cls(True, (("Relu", 0.0, 0.0),), 1.0), [x, r, np.array([3, 0], np.int32), h]
