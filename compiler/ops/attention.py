"""Attention: weights from a softmax over scores, and the sum of values under them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BOOL, F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices
from .sampling import f32
from .windows import type_of


@dataclass(frozen=True)
class Attention(Op):
    """softmax(q @ k + mask) @ v, along the last axis of the scores.

    With ``empty_is_zero`` a weight that is not a number (a row that is masked altogether) is 0.

    Shape: q [..., m, d], k [..., d, n], v [..., n, e], mask [..., m, n] or none -> [..., m, e]; the
    leading axes broadcast. All are float32.
    Errors: TypeCheckError if the operands do not multiply, or are no float32.
    Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.1.
    """

    name = "attention"

    empty_is_zero: bool = False

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None
    ) -> TensorType:
        for t in (q, k, v) if mask is None else (q, k, v, mask):
            if t.dtype is not F32:
                raise self.fail(f"is defined for f32, not {t.dtype}")
        if min(q.rank, k.rank, v.rank) < 2:
            raise self.fail(f"operands {q}, {k} and {v} must have at least two axes")
        for a, b in ((q.shape[-1], k.shape[-2]), (k.shape[-1], v.shape[-2])):
            fits = n.eq(a, b)
            if fits is n.FALSE:
                raise self.fail(f"{q}, {k} and {v} do not multiply: {a} is not {b}")
            assume(fits)
        batch = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        if mask is not None:
            scores = (*batch, q.shape[-2], k.shape[-1])
            if len(broadcast(scores, mask.shape)) != len(scores):
                raise self.fail(f"the mask {mask} has more axes than the scores")
        return q.with_shape((*batch, q.shape[-2], v.shape[-1]))

    def compute(
        self, q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None = None
    ) -> te.Tensor:
        out = self.infer(type_of(q), type_of(k), type_of(v)).shape
        scores = (*out[:-1], k.shape[-1])
        rows = out[:-1]

        def product(*i: Expr) -> Expr:
            *batch, row, column, r = i
            qi = broadcast_indices(tuple(batch), q.shape[:-2])
            ki = broadcast_indices(tuple(batch), k.shape[:-2])
            return n.mul(q[(*qi, row, r)], k[(*ki, r, column)])

        s = te.reduce("sum", scores, (q.shape[-1],), product, "scores")
        if mask is not None:
            plain = s
            s = te.compute(
                scores,
                lambda *i: n.add(plain[i], mask[broadcast_indices(i, mask.shape)]),
                "masked",
            )
        peak = te.reduce("max", rows, (scores[-1],), lambda *i: s[i], "peak")
        terms = te.compute(
            scores,
            lambda *i: Call("exp_nonpositive", (n.sub(s[i], peak[i[:-1]]),), s.dtype),
            "exponential",
        )
        total = te.reduce("sum", rows, (scores[-1],), lambda *i: terms[i], "total")
        scale = te.compute(rows, lambda *i: n.div(1.0, total[i]), "scale")

        def weight(*i: Expr) -> Expr:
            w = n.mul(terms[i], scale[i[:-1]])
            if not self.empty_is_zero:
                return w
            return n.select(Call("is_nan", (w,), BOOL), n.const(0.0, w.dtype), w)

        weights = te.compute(scores, weight, "weights")

        def value(*i: Expr) -> Expr:
            *batch, row, column, r = i
            vi = broadcast_indices(tuple(batch), v.shape[:-2])
            return n.mul(weights[(*batch, row, r)], v[(*vi, r, column)])

        return te.reduce("sum", out, (scores[-1],), value, self.name)

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        s = np.matmul(q.astype(np.float64), k.astype(np.float64))
        if mask is not None:
            s = s + mask
        with np.errstate(invalid="ignore"):
            e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
            w = e / e.sum(axis=-1, keepdims=True)
        if self.empty_is_zero:
            w = np.where(np.isnan(w), 0, w)
        return np.asarray(np.matmul(w, v.astype(np.float64))).astype(q.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(5, 4), f32(4, 7), f32(7, 3)]
        yield cls(), [f32(2, 3, 9, 4), f32(2, 3, 4, 9), f32(2, 3, 9, 4), f32(2, 1, 1, 9)]
        yield cls(), [f32(2, 3, 70, 8), f32(2, 1, 8, 50), f32(2, 1, 50, 16), f32(70, 50)]
        empty = f32(4, 6)
        empty[1] = -np.inf
        yield cls(True), [f32(4, 8), f32(8, 6), f32(6, 8), empty]
