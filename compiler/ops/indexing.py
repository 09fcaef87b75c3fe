"""Operators that read elements at chosen places: slices, gathers, padding and the like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BOOL, I64, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval
from planish.compiler.expr.nodes import Const, Expr, as_expr, free_vars
from planish.compiler.expr.simplify import prove
from planish.compiler.expr.sizes import at_least, normal, numbers
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop import te

from .base import Op, assume, fixing, some_to_read
from .sampling import bools, f32, ints
from .shape import Movement, sizes


@dataclass(frozen=True)
class Slice(Movement):
    """Along each dimension k the ``shape[k]`` elements ``starts[k]``, ``starts[k] + steps[k]`` ...

    Shape: x [...] -> [*shape].
    Errors: TypeCheckError if an element lies outside; where symbols decide, a call checks that.
    Source: ONNX Slice-13, its clamping done.
    """

    name = "slice"

    starts: tuple[Expr, ...]
    steps: tuple[int, ...]
    shape: tuple[Expr, ...]

    def infer(self, x: TensorType) -> TensorType:
        if not x.rank == len(self.starts) == len(self.steps) == len(self.shape):
            raise self.fail(f"{x} has rank {x.rank}, the slice {len(self.shape)}")
        for d, start, step, size in zip(x.shape, self.starts, self.steps, self.shape, strict=True):
            if all(isinstance(e, Const) for e in (d, start, size)):
                extent, first, count = numbers((d, start, size))
                last = first + step * (count - 1)
                if (
                    count < 0
                    or step == 0
                    or (count and (min(first, last) < 0 or max(first, last) >= extent))
                ):
                    raise self.fail(f"{count} elements from {first} by {step} of {extent}")
            else:
                assume(within(start, step, size, d))
        return x.with_shape(self.shape)

    def compute(self, x: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            index = zip(i, self.starts, self.steps, strict=True)
            return x[tuple(start + k * step for k, start, step in index)]

        return te.compute(self.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        starts, counts = numbers(self.starts), numbers(self.shape)
        for axis, (start, step, count) in enumerate(zip(starts, self.steps, counts, strict=True)):
            x = np.take(x, start + step * np.arange(count), axis)
        return x

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(1, 0), (1, 2), sizes(2, 3)), [f32(3, 5)]
        yield cls(sizes(2, 4), (-1, -2), sizes(3, 2)), [f32(3, 5)]
        yield cls(sizes(3, 0), (1, 1), sizes(0, 5)), [f32(3, 5)]


def within(start: Expr, step: int, count: Expr, extent: Expr) -> Expr:
    """The condition for ``count`` elements of a dimension to be there, none being always right."""
    some = _of_some(normal(count))
    last = start + (some - 1) * step
    least, most = (start, last) if step > 0 else (last, start)
    known = {v: Interval(0, None) for v in free_vars(start, count, extent)}
    needed = [n.le(0, least), n.lt(most, extent)]
    missing = [c for c in needed if not prove(c, known, (n.le(1, some),))]
    return n.any_of(n.le(count, 0), n.all_of(*missing))


def _of_some(count: Expr) -> Expr:
    """What a count is where it is not 0."""
    match count:
        case n.Max(Const(0), e) | n.Max(e, Const(0)):
            return _of_some(e)
        case n.Min(a, b):
            return normal(n.minimum(_of_some(a), _of_some(b)))
        case _:
            return count


def wrapped(index: Expr, extent: Expr) -> Expr:
    """An index that may count from the end, held inside: no access leaves the tensor."""
    i = n.cast(index, I64)
    return n.maximum(0, n.minimum(n.select(i < 0, i + extent, i), extent - 1))


class _Gathering(Movement):
    """Checks that gathers share."""

    data_inputs: ClassVar[int | None] = 1

    def check_indices(self, x: TensorType, indices: TensorType) -> None:
        if not indices.dtype.is_int:
            raise self.fail(f"indices are {indices.dtype}, not integers")

    def check_extent(self, extent: Expr, out: TensorType) -> None:
        """There must be something to read if the output has elements."""
        some = some_to_read(extent, *out.shape)
        if some is n.FALSE:
            raise self.fail("elements of a dimension of size 0 are asked for")
        assume(some)


@dataclass(frozen=True)
class Gather(_Gathering):
    """The slices of x along ``axis`` that ``indices`` names.

    Negative indices count from the end; one out of range reads the nearest element.

    Shape: x [a..., n, b...], indices integer [i...] -> [a..., i..., b...].
    Errors: TypeCheckError if the axis is out of range.
    Source: ONNX Gather-13.
    """

    name = "gather"

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        self.check_indices(x, indices)
        axis = self.resolve_axis(self.axis, x.rank)
        if x.rank == 0:
            raise self.fail("a scalar has no dimension to gather along")
        out = x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
        self.check_extent(x.shape[axis], out)
        return out

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        axis, rank = self.axis % x.rank, indices.rank

        def element(*i: Expr) -> Expr:
            k = wrapped(indices[i[axis : axis + rank]], x.shape[axis])
            return x[(*i[:axis], k, *i[axis + rank :])]

        return te.compute(
            (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), element, self.name
        )

    def reference(self, x: Array, indices: Array) -> Array:
        return np.take(x, indices.astype(np.int64), self.axis)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(6, 3), ints(2, 4, low=-6, high=6)]
        yield cls(1), [f32(2, 5, 3), ints(4, low=0, high=5, dtype="int32")]
        yield cls(-1), [f32(2, 5), np.array(-2)]


@dataclass(frozen=True)
class GatherElements(_Gathering):
    """The element at the same place as the index, but for ``axis``, where the index says which.

    Negative indices count from the end; one out of range reads the nearest element.

    Shape: x [...], indices integer [...] of the same rank -> the indices'.
    Errors: TypeCheckError if ranks differ or the axis is out of range.
    Source: ONNX GatherElements-13.
    """

    name = "gather_elements"

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        self.check_indices(x, indices)
        axis = self.resolve_axis(self.axis, x.rank)
        if x.rank != indices.rank or x.rank == 0:
            raise self.fail(f"{x} and indices {indices} differ in rank, or are scalars")
        for k, (d, e) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if k != axis and isinstance(d, Const) and isinstance(e, Const) and e.value > d.value:
                raise self.fail(f"indices {indices} are larger than {x} along dimension {k}")
            if k != axis and not at_least(d, e):
                assume(n.le(e, d))
        out = x.with_shape(indices.shape)
        self.check_extent(x.shape[axis], out)
        return out

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        axis = self.axis % x.rank

        def element(*i: Expr) -> Expr:
            return x[(*i[:axis], wrapped(indices[i], x.shape[axis]), *i[axis + 1 :])]

        return te.compute(indices.shape, element, self.name)

    def reference(self, x: Array, indices: Array) -> Array:
        axis = self.axis % x.ndim
        keep = tuple(slice(None) if k == axis else slice(d) for k, d in enumerate(indices.shape))
        extent = x.shape[axis]
        k = np.where(indices < 0, indices + extent, indices).astype(np.int64)
        return np.take_along_axis(x[keep], k, axis)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 3), ints(2, 3, low=-4, high=4)]
        yield cls(-1), [f32(4, 3), ints(3, 5, low=0, high=3, dtype="int32")]


@dataclass(frozen=True)
class GatherND(_Gathering):
    """The slices of x that the index tuples in the last dimension of ``indices`` name.

    The first ``batch_dims`` dimensions go together. Negative indices count from the end; one out of
    range reads the nearest element.

    Shape: x [b..., n0 ... nk, d...], indices integer [b..., i..., k + 1] -> [b..., i..., d...].
    Errors: TypeCheckError if the tuples' length is not known or too great.
    Source: ONNX GatherND-13.
    """

    name = "gather_nd"

    batch_dims: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        self.check_indices(x, indices)
        b = self.batch_dims
        if indices.rank < 1 or not 0 <= b < min(x.rank, indices.rank) + (x.rank == 0):
            raise self.fail(f"{b} batch dimensions of {x} and indices {indices}")
        length = indices.shape[-1]
        if not isinstance(length, Const):
            raise self.fail(
                f"the length {length} of the index tuples is not known", hint=fixing(length)
            )
        if not 1 <= length.value <= x.rank - b:
            raise self.fail(f"index tuples of {length} for {x} and {b} batch dimensions")
        batch = [
            unify(d, e, f"batch dimension {k} differs")
            for k, (d, e) in enumerate(zip(x.shape[:b], indices.shape[:b], strict=True))
        ]
        rest = x.shape[b + int(length.value) :]
        out = x.with_shape((*batch, *indices.shape[b:-1], *rest))
        for d in x.shape[b : b + int(length.value)]:
            self.check_extent(d, out)
        return out

    def compute(self, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        b = self.batch_dims
        (length,) = numbers(indices.shape[-1:])
        outer = indices.rank - 1

        def element(*i: Expr) -> Expr:
            where = (
                wrapped(indices[(*i[:outer], as_expr(k))], x.shape[b + k]) for k in range(length)
            )
            return x[(*i[:b], *where, *i[outer:])]

        shape = (*x.shape[:b], *indices.shape[b:-1], *x.shape[b + length :])
        return te.compute(shape, element, self.name)

    def reference(self, x: Array, indices: Array) -> Array:
        b, length = self.batch_dims, indices.shape[-1]
        flat = (
            x.reshape(-1, *x.shape[b:])
            if x.size
            else x.reshape(int(np.prod(x.shape[:b])), *x.shape[b:])
        )
        tuples = indices.reshape(flat.shape[0], -1, length).astype(np.int64)
        outs = [part[tuple(t.T)] for part, t in zip(flat, tuples, strict=True)]
        shape = (*indices.shape[:-1], *x.shape[b + length :])
        return np.array(outs, x.dtype).reshape(shape)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 5, 2), ints(3, 2, low=-4, high=4)]
        yield cls(), [f32(4, 5), ints(2, 3, 1, low=0, high=4)]
        yield cls(1), [f32(3, 4, 5), ints(3, 2, 1, low=-4, high=4)]
        yield cls(2), [f32(2, 3, 4), ints(2, 3, 1, low=0, high=4)]


@dataclass(frozen=True)
class Trilu(Movement):
    """The upper (or lower) triangle of matrices, else 0. ``k`` moves the diagonal to the right.

    Shape: x [..., m, n] -> the same.
    Errors: TypeCheckError for a rank below 2.
    Source: ONNX Trilu-14.
    """

    name = "trilu"
    takes_strings: ClassVar[bool] = False

    upper: bool = True
    k: Expr = Const(0, I64)

    def infer(self, x: TensorType) -> TensorType:
        if x.rank < 2:
            raise self.fail(f"{x} is no matrix")
        return x

    def compute(self, x: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            *_, row, column = i
            keep = row + self.k <= column if self.upper else column <= row + self.k
            return n.select(keep, x[i], n.const(0, x.dtype))

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        (k,) = numbers((self.k,))
        k = max(min(k, x.shape[-1] + 1), -x.shape[-2] - 1)
        out = np.triu(x, k) if self.upper else np.tril(x, k)
        return out.astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 5)]
        yield cls(False, as_expr(-1)), [f32(2, 4, 3)]
        yield cls(True, as_expr(10)), [f32(3, 3)]
        yield cls(False), [bools(3, 3)]


@dataclass(frozen=True)
class OneHot(Op):
    """The second of two values where the index names the place along ``axis``, else the first.

    Negative indices count from the end; one out of range is nowhere.

    Shape: indices [a..., b...], values [2] -> values' dtype [a..., depth, b...], depth at ``axis``.
    Errors: TypeCheckError if the axis is out of range or there are not two values.
    Source: ONNX OneHot-28.
    """

    name = "one_hot"
    takes_strings: ClassVar[bool] = True

    depth: Expr
    axis: int = -1

    def infer(self, indices: TensorType, values: TensorType) -> TensorType:
        axis = self.resolve_axis(self.axis, indices.rank + 1)
        if values.rank != 1 or values.size != 2:
            raise self.fail(f"the values are {values}, not two")
        if indices.dtype in (BOOL, STRING):
            raise self.fail(f"indices are {indices.dtype}")
        if isinstance(self.depth, Const) and self.depth.value < 0:
            raise self.fail(f"the depth is {self.depth}")
        return values.with_shape((*indices.shape[:axis], self.depth, *indices.shape[axis:]))

    def compute(self, indices: te.Tensor, values: te.Tensor) -> te.Tensor:
        axis = self.axis % (indices.rank + 1)

        def element(*i: Expr) -> Expr:
            k = n.cast(indices[i[:axis] + i[axis + 1 :]], I64)
            on = n.eq(n.select(k < 0, k + self.depth, k), i[axis])
            return n.select(on, values[1], values[0])

        shape = (*indices.shape[:axis], self.depth, *indices.shape[axis:])
        return te.compute(shape, element, self.name)

    def reference(self, indices: Array, values: Array) -> Array:
        (depth,) = numbers((self.depth,))
        k = np.expand_dims(converted(indices, I64), self.axis)
        k = np.where(k < 0, k + depth, k)
        shape = [1] * k.ndim
        shape[self.axis] = depth
        on = k == np.arange(depth).reshape(shape)
        return np.asarray(np.where(on, values[1], values[0]).astype(values.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(4)), [ints(2, 3, low=-5, high=5), np.array([0, 1], np.float32)]
        yield cls(as_expr(3), 0), [f32(5, low=0, high=3), np.array([2, -1])]


__all__ = [
    "Gather", "GatherElements", "GatherND", "OneHot", "Slice", "Trilu",
]  # fmt: skip
