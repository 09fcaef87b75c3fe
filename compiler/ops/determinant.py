"""Determinants and inverses of matrices, by elimination."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F64, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop.ir import Buffer, Function, Stmt, seq

from .base import Op
from .elementwise import call
from .nests import reduce, store, within
from .sampling import f32
from .steps import Routine, when


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


@dataclass(frozen=True)
class Inverse(Op):
    """The inverses of square matrices, computed in f64; of one that has none, no finite numbers.

    Shape: x [..., m, m] float -> x's.
    Errors: TypeCheckError if the matrices are not square.
    Source: com.microsoft Inverse-1; Gauss-Jordan elimination with the largest pivot of a column.
    """

    name = "inverse"

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_float:
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank < 2:
            raise self.fail(f"{x} is no matrix")
        unify(x.shape[-2], x.shape[-1], "matrices are not square")
        return x

    def build(self, x: TensorType) -> Function:
        r = Routine(self.name, {"x": x})
        (source,), out, m = r.inputs.values(), r.output("y", x), x.shape[-1]
        # What elimination leaves of the matrix, and what the same steps make of the identity.
        left, right = (r.scratch(name, F64, (m, m)) for name in ("left", "right"))
        pivot, largest = r.cell("pivot"), r.cell("largest", F64)
        head, ratio, kept = (r.cell(name, F64) for name in ("head", "ratio", "kept"))
        zero, one = n.const(0.0, F64), n.const(1.0, F64)

        def find(k: Expr) -> Stmt:
            def look(i: Expr) -> Stmt:
                size = call("abs", left[i, k])
                return when(n.all_of(n.lt(k, i), n.lt(largest.now, size)),
                            pivot.be(i), largest.be(size))  # fmt: skip

            return seq(pivot.be(k), largest.be(call("abs", left[k, k])), r.loop(m, look))

        def step(k: Expr) -> Stmt:
            row = n.maximum(0, n.minimum(pivot.now, m - 1))

            def swap(j: Expr) -> Stmt:
                return seq(*(
                    seq(
                        kept.be(side[k, j]),
                        side.put((k, j), side[row, j] / head.now),
                        side.put((row, j), kept.now, n.ne(row, k)),
                    )
                    for side in (left, right)
                ))  # fmt: skip

            def clear(i: Expr) -> Stmt:
                def element(j: Expr) -> Stmt:
                    sides = (left, right)
                    return seq(*(s.put((i, j), s[i, j] - ratio.now * s[k, j]) for s in sides))

                return when(n.ne(i, k), ratio.be(left[i, k]), r.loop(m, element))

            return seq(find(k), head.be(left[row, k]), r.loop(m, swap), r.loop(m, clear))

        def matrix(*batch: Expr) -> Stmt:
            def first(i: Expr, j: Expr) -> Stmt:
                return seq(
                    left.put((i, j), n.cast(source[(*batch, i, j)], F64)),
                    right.put((i, j), n.select(n.eq(i, j), one, zero)),
                )

            def last(i: Expr, j: Expr) -> Stmt:
                return out.put((*batch, i, j), n.cast(right[i, j], x.dtype))

            return seq(r.loops((m, m), first), r.loop(m, step), r.loops((m, m), last))

        return r.function(r.loops(x.shape[:-2], matrix))

    def reference(self, x: Array) -> Array:
        out = np.full(x.shape, np.nan)
        for at in np.ndindex(x.shape[:-2]):
            with contextlib.suppress(np.linalg.LinAlgError):
                out[at] = np.linalg.inv(x[at].astype(np.float64))
        return out.astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 4, 4)]
        yield cls(), [f32(5, 5)]
        yield cls(), [f32(2, 3, 2, 2).astype(np.float64)]
        yield cls(), [f32(1, 1)]
        yield cls(), [np.array([[0, 2, 1], [0, 0, 3], [4, 1, 0]], np.float32)]
        yield cls(), [f32(2, 3, 3).astype(np.float16)]
