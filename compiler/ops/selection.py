"""Which elements there are: those that are not zero, and those that differ from all others.

How many they are depends on the data. So each result of that many elements has two operators: one
counts, and one makes the result, to which the count is an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function, Stmt, seq

from .base import Arrays, Op, Types, assume
from .heaps import Heap, Item, levels
from .indexing import wrapped
from .sampling import bools, f32, ints, special
from .steps import Cell, Routine, below, when

_TOGETHER = 16  # elements of a slice that are compared before it is asked whether they decide


def is_set(x: Expr) -> Expr:
    """Whether an element counts as true."""
    return x if x.dtype is BOOL else n.ne(x, n.const(0, x.dtype))


@dataclass(frozen=True)
class CountNonZero(Op):
    """How many elements are not zero; NaN is not.

    Shape: x [...] -> i64 [()].
    Errors: TypeCheckError for complex numbers.
    Source: numpy.count_nonzero.
    """

    name = "count_nonzero"

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind == "c":
            raise self.fail(f"the elements of {x} are complex")
        return TensorType(I64, ())

    def compute(self, x: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            return n.cast(is_set(x[i]), I64)

        if x.rank == 0:
            return te.compute((), element, self.name)
        return te.reduce("sum", (), x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        return np.asarray(np.count_nonzero(x), np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [ints(3, 50, low=-1, high=2)]
        yield cls(), [bools(7)]
        yield cls(), [special()]
        yield cls(), [np.array(2.5, np.float16)]


@dataclass(frozen=True)
class NonZero(Op):
    """The indices of the first ``count`` elements that are not zero, in order.

    Beyond the last such element, indices are 0.

    Shape: x [d0 ... dk] -> i64 [k + 1, count].
    Errors: TypeCheckError if the count is greater than the number of elements.
    Source: ONNX NonZero-13.
    """

    name = "nonzero"

    count: Expr

    def infer(self, x: TensorType) -> TensorType:
        if isinstance(self.count, Const) and not at_least(n.product(x.shape), self.count):
            if x.size is not None:
                raise self.fail(f"{self.count} elements of {x}")
            assume(n.le(self.count, n.product(x.shape)))
        return TensorType(I64, (as_expr(x.rank), self.count))

    def build(self, x: TensorType) -> Function:
        r = Routine(self.name, {"x": x}, self.count)
        source, out, place = r.inputs["x"], r.output("y", self.infer(x)), r.cell("place")

        def element(*i: Expr) -> Stmt:
            found = is_set(source[i]) & n.lt(place.now, self.count)
            stores = (out.put((as_expr(k), place.now), v) for k, v in enumerate(i))
            return when(found, *stores, place.be(place.now + 1))

        def rest(t: Expr) -> Stmt:
            at = n.minimum(place.now + t, self.count - 1)
            return seq(*(out.put((as_expr(k), at), as_expr(0)) for k in range(x.rank)))

        left = self.count - place.now
        if x.rank == 0:
            return r.function()
        return r.function(place.be(0), r.loops(x.shape, element), r.loop(left, rest))

    def reference(self, x: Array) -> Array:
        (count,) = numbers((self.count,))
        out = np.zeros((x.ndim, count), np.int64)
        if x.ndim:
            found = np.array(np.nonzero(x), np.int64)[:, :count]
            out[:, : found.shape[1]] = found
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x = ints(4, 5, low=-1, high=2)
        yield cls(as_expr(int(np.count_nonzero(x)))), [x]
        yield cls(as_expr(3)), [bools(2, 3, 4)]
        yield cls(as_expr(12)), [special()]
        yield cls(as_expr(6)), [np.eye(4, dtype=np.float32)]
        yield cls(as_expr(0)), [f32(3)]
        yield cls(as_expr(1)), [np.array(True)]


@dataclass(frozen=True)
class Unique(Op):
    """Which slices of x along ``axis`` are equal, and how many different ones there are.

    They are numbered in ascending order, or with ``sorted`` false in the order in which they first
    occur. Slices are compared element by element; NaN is above all numbers and equal to NaN.

    Shape: x [a..., n, b...] -> the number of each slice, i64 [n], and the count, i64 [()].
    Errors: TypeCheckError if the axis is out of range, or numbers are complex.
    Source: ONNX Unique-28.
    """

    name = "unique"

    axis: int = 0
    sorted: bool = True

    def infer(self, x: TensorType) -> Types:
        if x.rank == 0:
            raise self.fail("a scalar has no slices")
        if x.dtype.kind == "c":
            raise self.fail(f"the elements of {x} are complex: they have no order")
        axis = self.resolve_axis(self.axis, x.rank)
        return TensorType(I64, (x.shape[axis],)), TensorType(I64, ())

    def build(self, x: TensorType) -> Function:
        """Sort the slices' indices, number them in that order, and then anew if that is asked."""
        axis = self.axis % x.rank
        extent = x.shape[axis]
        r = Routine(self.name, {"x": x})
        inverse = r.output("inverse", TensorType(I64, (extent,)))
        count = r.output("count", TensorType(I64, ()))
        order, group, sign = r.scratch("order", I64, (extent,)), r.cell("group"), r.cell("sign")

        def compare(before: Cell, first: Item, second: Item) -> Stmt:
            (i,), (j,) = first, second
            equal = n.eq(sign.now, 0) & n.lt(i, j)
            return seq(self.signed(r, x, sign, i, j), before.be(n.lt(sign.now, 0) | equal))

        depth, most = levels(r, extent)
        heap = Heap.of(r, (order,), lambda place: (place,), compare, most)

        def number(t: Expr) -> Stmt:
            here, last = order[(t,)], order[(n.maximum(t - 1, 0),)]
            return seq(
                self.signed(r, x, sign, last, here),
                group.be(group.now + 1, n.eq(t, 0) | n.ne(sign.now, 0)),
                inverse.put((here,), group.now),
            )

        steps = [order.fill(lambda i: i), depth, heap.build(extent), heap.sort(extent)]
        steps += [group.be(-1), r.loop(extent, number), count.put((), group.now + 1)]
        if not self.sorted:
            numbers_, found = r.scratch("numbers", I64, (extent,)), r.cell("found")

            def again(t: Expr) -> Stmt:
                here = inverse[(t,)]
                fresh = when(
                    n.lt(numbers_[(here,)], 0),
                    numbers_.put((here,), found.now),
                    found.be(found.now + 1),
                )
                return seq(fresh, inverse.put((t,), numbers_[(here,)]))

            steps += [numbers_.fill(lambda _: as_expr(-1)), found.be(0), r.loop(extent, again)]
        return r.function(*steps)

    def signed(self, r: Routine, x: TensorType, sign: Cell, i: Expr, j: Expr) -> Stmt:
        """Whether slice i comes before slice j (-1), after it (1), or neither (0).

        Once it is known, loops that begin have nothing to do.
        """
        axis = self.axis % x.rank
        others = [*x.shape[:axis], *x.shape[axis + 1 :]]
        source = r.inputs["x"]
        open_ = n.eq(sign.now, 0)

        def element(*at: Expr) -> Stmt:
            a, b = (source[(*at[:axis], k, *at[axis:])] for k in (i, j))
            less = n.select(below(a, b), as_expr(-1), n.select(below(b, a), as_expr(1), as_expr(0)))
            return sign.be(less, open_ if others else n.TRUE)

        def nest(at: tuple[Expr, ...]) -> Stmt:
            if len(at) == len(others):
                return element(*at)
            extent = others[len(at)]
            if len(at) < len(others) - 1:
                return r.loop(n.select(open_, extent, as_expr(0)), lambda k: nest((*at, k)))
            parts = (extent + (_TOGETHER - 1)) // _TOGETHER

            def part(p: Expr) -> Stmt:
                size = n.minimum(extent - p * _TOGETHER, _TOGETHER)
                size = n.select(open_, size, as_expr(0))
                return r.loop(size, lambda k: nest((*at, p * _TOGETHER + k)))

            return r.loop(parts, part)

        return seq(sign.be(0), nest(())) if others else nest(())

    def reference(self, x: Array) -> Arrays:
        rows = np.moveaxis(x, self.axis, 0)
        slices = rows.reshape(rows.shape[0], int(np.prod(rows.shape[1:])))
        wide = slices.astype(np.float64) if slices.dtype.kind in "fV" else slices
        keys = [tuple((v != v, 0 if v != v else v) for v in row.tolist()) for row in wide]
        first = sorted(set(keys)) if self.sorted else list(dict.fromkeys(keys))
        place = {key: k for k, key in enumerate(first)}
        inverse = np.array([place[key] for key in keys], np.int64)
        return inverse, np.array(len(first), np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [ints(30, low=-4, high=5)]
        yield cls(sorted=False), [ints(40, low=0, high=9, dtype="uint8")]
        yield cls(), [np.tile(special(), 2)]
        yield cls(0, sorted=False), [ints(12, 2, low=0, high=2)]
        yield cls(1), [ints(2, 9, 20, low=0, high=2, dtype="int32")[:, :, [0] * 18 + [1]]]
        yield cls(-1), [bools(2, 2, 7)]
        yield cls(0), [ints(9, low=0, high=3).astype(np.float16)]


@dataclass(frozen=True)
class UniquePlaces(Op):
    """Where each of ``count`` numbers first stands, and how often.

    A number that is out of range counts as the nearest one; for one that is nowhere both are 0.

    Shape: numbers i64 [n] -> places i64 [count], counts i64 [count].
    Source: ONNX Unique-28, its indices and counts.
    """

    name = "unique_places"

    count: Expr

    def infer(self, inverse: TensorType) -> Types:
        if inverse.dtype is not I64 or inverse.rank != 1:
            raise self.fail(f"numbers are i64[n], not {inverse}")
        out = TensorType(I64, (self.count,))
        return out, out

    def build(self, inverse: TensorType) -> Function:
        (extent,) = inverse.shape
        r = Routine(self.name, {"inverse": inverse}, self.count)
        out = TensorType(I64, (self.count,))
        places, counts, at = r.output("places", out), r.output("counts", out), r.cell("at")

        def step(k: Expr) -> Stmt:  # from the last to the first, which stays
            i = extent - 1 - k
            return seq(
                at.be(wrapped(r.inputs["inverse"][(i,)], self.count)),
                places.put((at.now,), i),
                counts.put((at.now,), counts[(at.now,)] + 1),
            )

        zeros = [b.fill(lambda _: as_expr(0)) for b in (places, counts)]
        return r.function(*zeros, when(n.lt(0, self.count), r.loop(extent, step)))

    def reference(self, inverse: Array) -> Arrays:
        (count,) = numbers((self.count,))
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found = np.clip(np.where(inverse < 0, inverse + count, inverse), 0, count - 1)
        places = [int(np.argmax(found == k)) if (found == k).any() else 0 for k in range(count)]
        return np.array(places, np.int64), np.bincount(found, minlength=count).astype(np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(4)), [ints(30, low=0, high=4)]
        yield cls(as_expr(9)), [ints(5, low=-12, high=20)]
        yield cls(as_expr(0)), [ints(5)]


__all__ = ["CountNonZero", "NonZero", "Unique", "UniquePlaces"]
