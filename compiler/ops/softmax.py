"""Softmax and its kin: exponentials in proportion, along one axis or several taken together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BF16, BOOL, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op
from .elementwise import call, widen
from .reduction import reduce_over
from .sampling import f32, special


@dataclass(frozen=True)
class _Softmax(Op):
    axes: tuple[int, ...] = (-1,)

    def over(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted({self.resolve_axis(k, rank) for k in self.axes}))

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_float:
            raise self.fail(f"is not defined for {x.dtype}")
        if len(self.over(x.rank)) != len(self.axes):
            raise self.fail(f"axes {self.axes} name one twice")
        return x

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5)]
        yield cls((0,)), [f32(4, 2, 3)]
        yield cls((1, 2)), [f32(2, 3, 4)]
        yield cls(()), [f32(3)]
        yield cls(), [f32(2, 33).astype(np.float16)]
        yield cls(), [f32(2, 33).astype(BF16.numpy)]
        yield cls(), [f32(2, 3).astype(np.float64)]
        yield cls(), [f32(3, 4, low=-1000.0, high=1000.0)]
        yield cls((1,)), [special()[:, None] + np.array([0, 1, 2], np.float32)]
        yield cls(), [np.array([[np.inf, 1, -np.inf], [-np.inf, 0, 1], [-np.inf] * 3], "f4")]
        yield cls(), [f32(0, 3)]
        yield cls(), [f32(3, 0)]


def at_zero(index: tuple[Expr, ...], axes: tuple[int, ...]) -> tuple[Expr, ...]:
    """The index into a tensor that has extent 1 along ``axes``."""
    return tuple(Const(0, I64) if k in axes else i for k, i in enumerate(index))


def _shifted(x: te.Tensor, axes: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    """The greatest along the axes, and the sum of exp(x - greatest)."""
    peak = reduce_over("max", axes, x.shape, lambda *i: widen(x[i]), name="peak")
    return peak, te.compute(
        x.shape,
        lambda *i: call("exp_nonpositive", widen(x[i]) - peak[at_zero(i, axes)]),
        "exponential",
    )


@dataclass(frozen=True)
class Softmax(_Softmax):
    """exp(x) / sum(exp(x)) along ``axes``, taken together; NaN for a row that holds NaN.

    Shape: x [...] float -> the same.
    Errors: TypeCheckError if an axis is out of range.
    Source: ONNX Softmax-13; several axes are Softmax-11's.
    """

    name = "softmax"

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        _, terms = _shifted(x, axes)
        total = reduce_over("sum", axes, x.shape, lambda *i: terms[i], name="total")
        scale = te.compute(total.shape, lambda *i: n.div(1.0, total[i]), "scale")
        return te.compute(
            x.shape,
            lambda *i: n.cast(terms[i] * scale[at_zero(i, axes)], x.dtype),
            self.name,
        )

    def reference(self, x: Array) -> Array:
        axes, wide = self.over(x.ndim), x.astype(np.float64)
        e = np.exp(wide - np.max(wide, axis=axes, keepdims=True, initial=-np.inf))
        return np.asarray(e / np.sum(e, axis=axes, keepdims=True)).astype(x.dtype)


@dataclass(frozen=True)
class LogSoftmax(_Softmax):
    """x - log(sum(exp(x))) along ``axes``, taken together; NaN for a row that holds NaN.

    Shape: x [...] float -> the same.
    Errors: TypeCheckError if an axis is out of range.
    Source: ONNX LogSoftmax-13; several axes are LogSoftmax-11's.
    """

    name = "log_softmax"

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        peak, terms = _shifted(x, axes)
        total = reduce_over("sum", axes, x.shape, lambda *i: terms[i], name="total")
        logarithm = te.compute(total.shape, lambda *i: call("log", total[i]), "logarithm")

        def element(*i: Expr) -> Expr:
            j = at_zero(i, axes)
            return n.cast(widen(x[i]) - peak[j] - logarithm[j], x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        axes, wide = self.over(x.ndim), x.astype(np.float64)
        shifted = wide - np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
        total = np.sum(np.exp(shifted), axis=axes, keepdims=True)
        return np.asarray(shifted - np.log(total)).astype(x.dtype)


@dataclass(frozen=True)
class Hardmax(_Softmax):
    """1 at the first greatest element along ``axes``, taken together, else 0.

    NaN counts as the greatest.

    Shape: x [...] float -> the same.
    Errors: TypeCheckError if an axis is out of range.
    Source: ONNX Hardmax-13; several axes are Hardmax-11's.
    """

    name = "hardmax"

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        peak = reduce_over("max", axes, x.shape, lambda *i: widen(x[i]), name="peak")

        def place(*i: Expr) -> Expr:
            at: Expr = Const(0, I64)
            for k in axes:
                at = at * x.shape[k] + i[k]
            return at

        def found(*i: Expr) -> Expr:
            value = widen(x[i])
            is_peak = n.any_of(
                n.eq(value, peak[at_zero(i, axes)]), n.Call("is_nan", (value,), BOOL)
            )
            return n.select(is_peak, place(*i), n.product(x.shape[k] for k in axes))

        first = reduce_over("min", axes, x.shape, found, name="first")

        def element(*i: Expr) -> Expr:
            hit = n.eq(place(*i), first[at_zero(i, axes)])
            return n.select(hit, n.const(1, x.dtype), n.const(0, x.dtype))

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        axes = self.over(x.ndim)
        kept = [k for k in range(x.ndim) if k not in axes]
        order = (*kept, *axes)
        front = x.transpose(order)
        rows = int(np.prod(front.shape[: len(kept)], dtype=np.int64))
        columns = int(np.prod(front.shape[len(kept) :], dtype=np.int64))
        out = np.zeros((rows, columns), x.dtype)
        if x.size:
            flat = front.reshape(rows, columns).astype(np.float64)
            out[np.arange(rows), np.argmax(flat, axis=1)] = 1
        return out.reshape(front.shape).transpose(np.argsort(order))
