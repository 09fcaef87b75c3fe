"""Running sums and products: each element takes one step, whatever comes before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.expr.sizes import numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop.ir import Function, Stmt, seq

from .base import Op
from .indexing import wrapped
from .sampling import f32, ints
from .steps import Elements, Routine
from .windows import wide, wide_array


def combined(kind: str, x: Expr, y: Expr) -> Expr:
    """One step of a sum or a product."""
    return n.add(x, y) if kind == "sum" else n.mul(x, y)


def neutral(kind: str, dtype: DType) -> Expr:
    """What a sum or a product begins with."""
    return n.const(0 if kind == "sum" else 1, dtype)


def scanned(kind: str, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """The scan by numpy."""
    y = np.moveaxis(x, axis, 0)
    y = wide_array(y[::-1] if reverse else y)
    with np.errstate(all="ignore"):
        out = (np.cumsum if kind == "sum" else np.cumprod)(y, 0, dtype=y.dtype).astype(x.dtype)
    if exclusive:
        start = np.full_like(out[:1], 0 if kind == "sum" else 1)
        out = np.concatenate([start, out[:-1]])
    return np.ascontiguousarray(np.moveaxis(out[::-1] if reverse else out, 0, axis))


@dataclass(frozen=True)
class _Scan(Op):
    """What running sums and products share."""

    kind: ClassVar[str]

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is BOOL or x.rank == 0:
            raise self.fail(f"is not defined for {x}")
        self.resolve_axis(self.axis, x.rank)
        return x

    def build(self, x: TensorType) -> Function:
        """The dimensions behind the axis go together, each with what it has come to so far."""
        r = Routine(self.name, {"x": x})
        axis = self.axis % x.rank
        inner, acc = x.shape[axis + 1 :], wide(x.dtype)
        out = r.output("y", x)
        total = r.scratch("total", acc, inner, "local" if inner else "register")

        def row(*i: Expr) -> Stmt:
            def step(k: Expr) -> Stmt:
                at = x.shape[axis] - 1 - k if self.reverse else k

                def add(*j: Expr) -> Stmt:
                    item = n.cast(r.inputs["x"][(*i, at, *j)], acc)
                    return total.put(j, combined(self.kind, total[j], item))

                def store(*j: Expr) -> Stmt:
                    return out.put((*i, at, *j), n.cast(total[j], x.dtype))

                both = [r.loops(inner, add), r.loops(inner, store)]
                return seq(*(reversed(both) if self.exclusive else both))

            start = r.loops(inner, lambda *j: total.put(j, neutral(self.kind, acc)))
            return seq(start, r.loop(x.shape[axis], step))

        return r.function(r.loops(x.shape[:axis], row))

    def reference(self, x: Array) -> Array:
        return scanned(self.kind, x, self.axis, self.exclusive, self.reverse)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(5, 3)]
        yield cls(-1, exclusive=True), [ints(2, 6)]
        yield cls(1, reverse=True), [f32(2, 6)]
        yield cls(1, exclusive=True, reverse=True), [ints(2, 6, dtype="int32")]
        yield cls(), [f32(6).astype(np.float16)]
        yield cls(1), [f32(3, 9, 21)]
        yield cls(0, exclusive=True), [ints(4, 70, dtype="uint8")]


@dataclass(frozen=True)
class CumSum(_Scan):
    """The sum of all elements up to this one along ``axis``.

    ``exclusive`` leaves this one out; ``reverse`` sums from the end.

    Shape: x [...] number -> the same.
    Errors: TypeCheckError if the axis is out of range, or for bool.
    Source: ONNX CumSum-14.
    """

    name = "cumsum"
    kind = "sum"


@dataclass(frozen=True)
class CumProd(_Scan):
    """The product of all elements up to this one along ``axis``.

    ``exclusive`` leaves this one out; ``reverse`` multiplies from the end.

    Shape: x [...] number -> the same.
    Errors: TypeCheckError if the axis is out of range, or for bool.
    Source: ONNX CumProd-26.
    """

    name = "cumprod"
    kind = "prod"


@dataclass(frozen=True)
class ScanAlong(Op):
    """A running sum (or with ``product`` a product) along an axis that the call says.

    ``exclusive`` leaves each element itself out; ``reverse`` goes from the end. A negative axis
    counts from the end; one out of range is the nearest.

    Shape: x [...] number -> the same.
    Errors: TypeCheckError for a scalar or bool.
    Source: ONNX CumSum-14, CumProd-26.
    """

    name = "scan_along"

    axis: Expr
    product: bool = False
    exclusive: bool = False
    reverse: bool = False

    @property
    def kind(self) -> str:
        return "prod" if self.product else "sum"

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is BOOL or x.rank == 0:
            raise self.fail(f"is not defined for {x}")
        return x

    def build(self, x: TensorType) -> Function:
        """Element by element; what the one before came to is one step back along the axis."""
        r = Routine(self.name, {"x": x}, self.axis)
        source, out = r.inputs["x"], r.output("y", x)
        acc = wide(x.dtype)
        totals = r.scratch("totals", acc, x.shape)
        axis = wrapped(self.axis, as_expr(x.rank))

        def before(i: tuple[Expr, ...], elements: Elements) -> Expr:
            """The total one step before; the neutral element at the start."""
            here, back = as_expr(0), []
            for k, v in enumerate(i):
                along = n.eq(axis, k)
                here = n.select(along, v, here)
                back.append(v - n.select(along, as_expr(1), as_expr(0)))
            if self.reverse:
                end, back = as_expr(0), []
                for k, (v, d) in enumerate(zip(i, x.shape, strict=True)):
                    along = n.eq(axis, k)
                    end = n.select(along, d - 1 - v, end)
                    back.append(v + n.select(along, as_expr(1), as_expr(0)))
                here = end
            return n.select(n.eq(here, 0), neutral(self.kind, acc), elements[back])

        def step(*i: Expr) -> Stmt:
            at = i
            if self.reverse:
                at = tuple(d - 1 - v for d, v in zip(x.shape, i, strict=True))
            item = n.cast(source[at], acc)
            return totals.put(at, combined(self.kind, before(at, totals), item))

        def result(*i: Expr) -> Expr:
            return n.cast(before(i, totals) if self.exclusive else totals[i], x.dtype)

        return r.function(r.loops(x.shape, step), out.fill(result))

    def reference(self, x: Array) -> Array:
        (axis,) = numbers((self.axis,))
        axis = max(0, min(axis + x.ndim if axis < 0 else axis, x.ndim - 1))
        return scanned(self.kind, x, axis, self.exclusive, self.reverse)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(0)), [f32(5, 3)]
        yield cls(as_expr(1), exclusive=True), [ints(2, 6)]
        yield cls(as_expr(-1), True, reverse=True), [f32(2, 3, 4)]
        yield cls(as_expr(-2), exclusive=True, reverse=True), [f32(3, 20).astype(np.float16)]
        yield cls(as_expr(7), True, True), [ints(9, dtype="int32")]


__all__ = ["CumProd", "CumSum", "ScanAlong"]
