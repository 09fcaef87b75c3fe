"""The largest or smallest elements along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop.ir import Function, Stmt, seq

from .base import Arrays, Op, Types, assume
from .heaps import Heap, Item, levels
from .sampling import bools, f32, ints, special
from .steps import Cell, Routine, below, when


@dataclass(frozen=True)
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis`` in order, and where they are.

    Of equal elements, the one with the lower index comes first. NaN is larger than all numbers.

    Shape: x [a..., n, b...] -> values of x's dtype and indices i64, both [a..., k, b...].
    Errors: TypeCheckError if the axis is out of range, or k is negative or greater than n.
    Source: ONNX TopK-24.
    """

    name = "top_k"

    k: Expr
    axis: int = -1
    largest: bool = True

    def infer(self, x: TensorType) -> Types:
        if x.rank == 0:
            raise self.fail("a scalar has no axis")
        axis = self.resolve_axis(self.axis, x.rank)
        extent = x.shape[axis]
        if isinstance(self.k, Const) and self.k.value < 0:
            raise self.fail(f"k is {self.k}")
        if isinstance(self.k, Const) and isinstance(extent, Const) and extent.value < self.k.value:
            raise self.fail(f"{self.k} elements of {extent}")
        if not at_least(extent, self.k):
            assume(n.le(self.k, extent))
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return x.with_shape(shape), TensorType(I64, shape)

    def build(self, x: TensorType) -> Function:
        """For each row, a heap of the best k so far, in the results' own memory."""
        axis, k = self.axis % x.rank, self.k
        out = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
        r = Routine(self.name, {"x": x}, k)
        source = r.inputs["x"]
        values = r.output("values", out)
        indices = r.output("indices", TensorType(I64, out.shape))
        depth, count = levels(r, k)

        def row(*around: Expr) -> Stmt:
            def at(place: Expr) -> Item:
                return (*around[:axis], place, *around[axis:])

            heap = Heap.of(r, (values, indices), at, self.compare, count)

            def start(i: Expr) -> Stmt:
                return heap.put(i, (source[at(i)], i))

            def offer(i: Expr) -> Stmt:
                new = source[at(k + i)]
                worst, _ = heap.item(as_expr(0))
                return when(
                    self.better(new, worst),  # of equal ones, those before stay
                    heap.hold((new, k + i)),
                    heap.sink(0, k),
                )

            return seq(
                r.loop(k, start),
                heap.build(k),
                r.loop(x.shape[axis] - k, offer),
                heap.sort(k),
            )

        rows = r.loops((*x.shape[:axis], *x.shape[axis + 1 :]), row)
        return r.function(depth, when(n.lt(0, k), rows))

    def better(self, x: Expr, y: Expr) -> Expr:
        """Whether a value comes before another."""
        return below(y, x) if self.largest else below(x, y)

    def compare(self, before: Cell, first: Item, second: Item) -> Stmt:
        """Whether an item, a value and its index, comes before another."""
        (x, i), (y, j) = first, second
        return before.be(self.better(x, y) | (~self.better(y, x) & n.lt(i, j)))

    def reference(self, x: Array) -> Arrays:
        (k,) = numbers((self.k,))
        rows = np.moveaxis(x, self.axis, -1)
        wide = rows.astype(np.float32) if rows.dtype.itemsize == 2 else rows
        if self.largest:  # stable and descending: ascending from the end, and then turned
            order = np.argsort(wide[..., ::-1], -1, kind="stable")[..., ::-1]
            order = rows.shape[-1] - 1 - order
        else:
            order = np.argsort(wide, -1, kind="stable")
        order = order[..., :k].astype(np.int64)
        values = np.take_along_axis(rows, order, -1)
        return tuple(np.ascontiguousarray(np.moveaxis(a, -1, self.axis)) for a in (values, order))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(3)), [f32(4, 7)]
        yield cls(as_expr(5), 0, largest=False), [ints(12, 3)]
        yield cls(as_expr(4), 1), [ints(2, 9, 3, low=0, high=4, dtype="uint8")]
        yield cls(as_expr(15)), [np.tile(special(), 2)]
        yield cls(as_expr(15), largest=False), [special()]
        yield cls(as_expr(1)), [f32(3, 40).astype(np.float16)]
        yield cls(as_expr(0)), [f32(3, 4)]
        yield cls(as_expr(3)), [bools(2, 6)]
        yield cls(as_expr(33)), [ints(100, low=-3, high=3)]


__all__ = ["TopK"]
