"""Attention: weights from a softmax over scores, and the sum of values under them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BF16, BOOL, F16, F32, F64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices
from .elementwise import call
from .sampling import f32
from .windows import narrowed, type_of, wide, wide_array


@dataclass(frozen=True)
class Attention(Op):
    """softmax(scores) @ v, along the last axis of the scores, which are q @ k * scale.

    Masks change the scores in their order: one of numbers is added, where a bool one is false the
    score is ``masked`` instead. With ``empty_is_zero`` a weight that is not a number (of a row that
    is masked altogether) is 0.

    Sums are divided by the sum of the exponentials at the end, so they overflow earlier than sums
    under weights: by the number of keys at the most.

    Shape: q [..., m, d], k [..., d, n], v [..., n, e], masks [..., m, n] -> [..., m, e]; leading
    axes broadcast, and masks do to the scores. All but masks are of one float dtype.
    Errors: TypeCheckError if the operands do not multiply, differ in dtype, or are no floats; if a
    mask has more axes than the scores.
    Source: Vaswani et al., Attention Is All You Need, 2017, section 3.2.1.
    """

    name = "attention"

    scale: float = 1.0
    masked: float = -np.inf
    empty_is_zero: bool = False

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *masks: TensorType) -> TensorType:
        for t in (q, k, v):
            if t.dtype is not q.dtype or t.dtype not in (F16, BF16, F32, F64):
                raise self.fail(f"is not defined for {q.dtype}, {k.dtype} and {v.dtype}")
        for t in masks:
            if t.dtype is not BOOL and not t.dtype.is_float:
                raise self.fail(f"a mask is {t.dtype}", hint="floats or bool")
        if min(q.rank, k.rank, v.rank) < 2:
            raise self.fail(f"operands {q}, {k} and {v} must have at least two axes")
        for a, b in ((q.shape[-1], k.shape[-2]), (k.shape[-1], v.shape[-2])):
            fits = n.eq(a, b)
            if fits is n.FALSE:
                raise self.fail(f"{q}, {k} and {v} do not multiply: {a} is not {b}")
            assume(fits)
        batch = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        scores = (*batch, q.shape[-2], k.shape[-1])
        for t in masks:
            if len(broadcast(scores, t.shape)) != len(scores):
                raise self.fail(f"the mask {t} has more axes than the scores")
        return q.with_shape((*batch, q.shape[-2], v.shape[-1]))

    def compute(self, q: te.Tensor, k: te.Tensor, v: te.Tensor, *masks: te.Tensor) -> te.Tensor:
        out = self.infer(type_of(q), type_of(k), type_of(v)).shape
        scores, rows = (*out[:-1], k.shape[-1]), out[:-1]
        acc = wide(q.dtype)

        def product(*i: Expr) -> Expr:
            *batch, row, column, r = i
            qi = broadcast_indices(tuple(batch), q.shape[:-2])
            ki = broadcast_indices(tuple(batch), k.shape[:-2])
            return n.mul(n.cast(q[(*qi, row, r)], acc), n.cast(k[(*ki, r, column)], acc))

        s = te.reduce("sum", scores, (q.shape[-1],), product, "scores")
        if masks or self.scale != 1:
            plain = s
            s = te.compute(scores, lambda *i: self._masked(plain[i], masks, i), "masked")
        peak = te.reduce("max", rows, (scores[-1],), lambda *i: s[i], "peak")

        def term(*i: Expr) -> Expr:
            e = call("exp_nonpositive", n.sub(s[i], peak[i[:-1]]))
            if not self.empty_is_zero:
                return e
            return n.select(Call("is_nan", (e,), BOOL), n.const(0, acc), e)

        terms = te.compute(scores, term, "exponential")
        total = te.reduce("sum", rows, (scores[-1],), lambda *i: terms[i], "total")

        def factor(*i: Expr) -> Expr:  # the total is 0 where there are no keys, or none that count
            zero = n.const(0, acc)
            return n.select(n.eq(total[i], zero), zero, n.div(1.0, total[i]))

        factors = te.compute(rows, factor, "scale")

        def value(*i: Expr) -> Expr:
            *batch, row, column, r = i
            vi = broadcast_indices(tuple(batch), v.shape[:-2])
            return n.mul(terms[(*batch, row, r)], n.cast(v[(*vi, r, column)], acc))

        sums = te.reduce("sum", out, (scores[-1],), value, "values")
        whole = te.compute(out, lambda *i: n.mul(factors[i[:-1]], sums[i]), self.name)
        return narrowed(whole, q.dtype)

    def _masked(self, score: Expr, masks: tuple[te.Tensor, ...], i: tuple[Expr, ...]) -> Expr:
        if self.scale != 1:
            score = n.mul(score, n.const(self.scale, score.dtype))
        for t in masks:
            m = t[broadcast_indices(i, t.shape)]
            if t.dtype is BOOL:
                score = n.select(m, score, n.const(self.masked, score.dtype))
            else:
                score = n.add(score, n.cast(m, score.dtype))
        return score

    def reference(self, q: Array, k: Array, v: Array, *masks: Array) -> Array:
        s = np.matmul(q.astype(np.float64), k.astype(np.float64)) * self.scale
        for m in masks:
            s = np.where(m, s, self.masked) if m.dtype == bool else s + wide_array(m)
        with np.errstate(invalid="ignore"):
            e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
            w = e / e.sum(axis=-1, keepdims=True)
        if self.empty_is_zero:
            w = np.where(np.isnan(w), 0, w)
        return np.asarray(np.matmul(w, v.astype(np.float64))).astype(q.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        empty = f32(9, 6)
        empty[1] = -np.inf
        keep = f32(2, 1, 5, 6) > 0.5
        keep[0, 0, 3] = False
        yield cls(), [f32(5, 4), f32(4, 7), f32(7, 3)]
        yield cls(0.5), [f32(2, 3, 9, 4), f32(2, 3, 4, 9), f32(2, 3, 9, 4, seed=1), f32(2, 1, 1, 9)]
        yield cls(), [f32(2, 3, 70, 8), f32(2, 1, 8, 50), f32(2, 1, 50, 16), f32(70, 50)]
        yield cls(2.0, empty_is_zero=True), [f32(9, 8), f32(8, 6), f32(6, 8), empty]
        yield cls(), [f32(9, 8), f32(8, 6), f32(6, 8), empty]
        heads = f32(2, 2, 3, 5, 4), f32(2, 2, 1, 4, 6), f32(2, 2, 1, 6, 8)
        yield cls(0.5), [*heads]
        yield cls(masked=-50.0), [f32(2, 3, 5, 4), f32(2, 3, 4, 6), f32(2, 3, 6, 4), keep, f32(6)]
        yield cls(empty_is_zero=True), [f32(2, 3, 5, 4), f32(4, 6), f32(6, 4), f32(5, 6), keep]
        yield cls(0.5), [x.astype(np.float16) for x in (f32(3, 20, 8), f32(3, 8, 9), f32(3, 9, 8))]
