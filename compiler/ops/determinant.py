"""Determinants, by elimination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F64, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop.ir import Buffer, Function, seq

from .base import Op
from .elementwise import call
from .nests import reduce, store, within
from .sampling import f32


@dataclass(frozen=True)
class Det(Op):
    """The determinants of square matrices, computed in f64.

    Shape: x [..., m, m] float -> [...].
    Errors: TypeCheckError if the matrices are not square.
    Source: ONNX Det-22; Gaussian elimination with the largest pivot of a column.
    """

    name = "det"

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_float:
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank < 2:
            raise self.fail(f"{x} is no matrix")
        unify(x.shape[-2], x.shape[-1], "matrices are not square")
        return x.with_shape(x.shape[:-2])

    def build(self, x: TensorType) -> Function:
        m = x.shape[-1]
        shape = x.shape[:-2]
        outer = [(Var(f"i{k}"), d) for k, d in enumerate(shape)]
        batch = tuple(v for v, _ in outer)
        rank = len(batch)
        k, i, j = (Var(f"i{rank + p}") for p in range(3))
        r = Var("r0")
        source = Buffer("x", x.dtype, x.shape)
        result = Buffer("det", x.dtype, shape)
        # What is left of the matrix before each step, its pivots, and their rows.
        left = Buffer("left", F64, (*shape, n.add(m, 1), m, m), "local")
        largest = Buffer("largest", F64, (*shape, m), "local")
        pivot = Buffer("pivot", I64, (*shape, m), "local")
        row = Buffer("row", F64, (*shape, m, m), "local")
        product = Buffer("product", F64, shape, "local")

        def load(buffer: Buffer, *at: Expr) -> Expr:
            return Load(buffer.name, (*batch, *at), buffer.dtype)

        def size(at: Expr) -> Expr:
            return call("abs", load(left, k, at, k))

        zero = n.const(0.0, F64)
        below = n.le(k, r)
        found = load(pivot, k)
        chosen = n.select(n.lt(found, m), found, k)  # none is found in a column with NaN
        head = load(row, k, k)
        at = n.select(n.eq(i, chosen), k, i)
        ratio = n.select(n.eq(head, zero), zero, load(left, k, at, k) / head)
        rest = load(left, k, at, j) - ratio * load(row, k, j)
        last, kept = load(row, r, r), load(pivot, r)
        sign = n.select(n.any_of(n.eq(kept, r), n.eq(kept, m)), last, n.neg(last))
        step = (*outer, (k, m))
        where = n.select(n.all_of(below, n.eq(size(r), load(largest, k))), r, m)
        steps = seq(
            reduce(
                "size", largest, (*batch, k), n.select(below, size(r), zero), step, [(r, m)],
                "max", zero,
            ),
            reduce("place", pivot, (*batch, k), where, step, [(r, m)], "min", m),
            store("row", row, (*batch, k, j), load(left, k, chosen, j), step, [(j, m)]),
            store(
                "left", left, (*batch, n.add(k, 1), i, j), n.select(n.lt(k, i), rest, zero), step,
                [(i, m), (j, m)],
            ),
        )  # fmt: skip
        whole = n.cast(Load("x", (*batch, i, j), x.dtype), F64)
        body = seq(
            store("first", left, (*batch, as_expr(0), i, j), whole, outer, [(i, m), (j, m)]),
            within([(k, m)], steps),
            reduce("product", product, batch, sign, outer, [(r, m)], "prod", n.const(1.0, F64)),
            store("det", result, batch, n.cast(load(product), x.dtype), outer),
        )
        temps = (left, largest, pivot, row, product)
        symbols = free_vars(*x.shape)
        return Function(self.name, (source, result), 1, symbols, temps, within(outer, body))

    def reference(self, x: Array) -> Array:
        return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 4, 4)]
        yield cls(), [f32(5, 5)]
        yield cls(), [f32(2, 3, 2, 2).astype(np.float64)]
        yield cls(), [f32(1, 1)]
        yield cls(), [np.array([[0, 2, 1], [0, 0, 3], [4, 1, 0]], np.float32)]
        yield cls(), [np.array([[1, 2, 3], [2, 4, 6], [1, 1, 1]], np.float32)]
        yield cls(), [f32(2, 3, 3).astype(np.float16)]
