"""Sequences of their own length, or at their own place, in each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function, Stmt, seq

from .base import Op, assume
from .sampling import f32, ints
from .steps import Routine


@dataclass(frozen=True)
class ReverseSequence(Op):
    """The first ``lens[b]`` elements along the time axis turned around in each batch b.

    A length that is out of range is the nearest one: nothing, or all.

    Shape: x [...] with rank 2 or more, lens integer [b] -> x's.
    Errors: TypeCheckError if the axes are the same or out of range, or lens is not [b].
    Source: ONNX ReverseSequence-28.
    """

    name = "reverse_sequence"
    takes_strings: ClassVar[bool] = True

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, x: TensorType, lens: TensorType) -> TensorType:
        if x.rank < 2:
            raise self.fail(f"{x} has no two axes")
        batch, time = (self.resolve_axis(a, x.rank) for a in (self.batch_axis, self.time_axis))
        if batch == time:
            raise self.fail(f"the time axis is the batch axis {batch}")
        if not lens.dtype.is_int or lens.rank != 1:
            raise self.fail(f"the lengths are {lens}, not integers [b]")
        unify(x.shape[batch], lens.shape[0], "there must be one length for each batch")
        return x

    def compute(self, x: te.Tensor, lens: te.Tensor) -> te.Tensor:
        batch, time = self.batch_axis % x.rank, self.time_axis % x.rank

        def element(*i: Expr) -> Expr:
            size = n.minimum(n.maximum(n.cast(lens[i[batch]], I64), 0), x.shape[time])
            at = n.select(i[time] < size, size - 1 - i[time], i[time])
            return x[(*i[:time], at, *i[time + 1 :])]

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, lens: Array) -> Array:
        y = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1)).copy()
        for row, size in zip(y, lens.tolist(), strict=True):
            size = max(size, 0)
            row[:size] = row[:size][::-1].copy()
        back = np.moveaxis(y, (0, 1), (self.batch_axis, self.time_axis))
        return np.ascontiguousarray(back)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(5, 4), np.array([5, 0, 1, 3])]
        yield cls(0, 1), [ints(3, 6, 2), np.array([4, 9, -2], np.int32)]
        yield cls(-1, -3), [f32(2, 3, 2, 4), np.array([1, 2, 0, 2])]


@dataclass(frozen=True)
class TensorScatter(Op):
    """A cache with an update written along ``axis`` from ``where[b]`` on in each batch b.

    What would lie outside is left out, or with ``circular`` goes on from the other end.

    Shape: cache [b, ..., n, ...], update of the same shape but for the axis, optional where
    integer [b] -> the cache's.
    Errors: TypeCheckError if shapes or dtypes don't fit, or the axis is that of the batch.
    Source: ONNX TensorScatter-24.
    """

    name = "tensor_scatter"
    takes_strings: ClassVar[bool] = True

    axis: int = -2
    circular: bool = False

    def infer(
        self, cache: TensorType, update: TensorType, where: TensorType | None = None
    ) -> TensorType:
        axis = self.resolve_axis(self.axis, cache.rank)
        if axis == 0 or update.rank != cache.rank or update.dtype is not cache.dtype:
            raise self.fail(f"the cache {cache} and the update {update} do not fit at axis {axis}")
        for k, (d, e) in enumerate(zip(cache.shape, update.shape, strict=True)):
            if k != axis:
                unify(d, e, f"dimension {k} of cache and update differs")
        size, extent = update.shape[axis], cache.shape[axis]
        if isinstance(size, Const) and isinstance(extent, Const) and size.value > extent.value:
            raise self.fail(f"an update of {size} for a cache of {extent}")
        if not at_least(extent, size):
            assume(n.le(size, extent))
        if where is not None:
            if not where.dtype.is_int or where.rank != 1:
                raise self.fail(f"the indices are {where}, not integers [b]")
            unify(cache.shape[0], where.shape[0], "there must be one index for each batch")
        return cache

    def build(
        self, cache: TensorType, update: TensorType, where: TensorType | None = None
    ) -> Function:
        given = {"cache": cache, "update": update, "where": where}
        r = Routine(self.name, {k: t for k, t in given.items() if t is not None})
        old, new, *places = r.inputs.values()
        out, first = r.output("y", cache), r.cell("first")
        axis = self.axis % cache.rank
        extent = cache.shape[axis]

        def batch(b: Expr) -> Stmt:
            def step(*i: Expr) -> Stmt:
                wanted = first.now + i[axis - 1]
                if self.circular:
                    at = n.floormod(wanted, extent)
                    return out.put((b, *i[: axis - 1], at, *i[axis:]), new[(b, *i)])
                at = n.maximum(0, n.minimum(wanted, extent - 1))
                index = (b, *i[: axis - 1], at, *i[axis:])
                return out.put(index, new[(b, *i)], n.eq(at, wanted))

            start = n.cast(places[0][(b,)], I64) if places else as_expr(0)
            return seq(first.be(start), r.loops(update.shape[1:], step))

        return r.function(out.fill(lambda *i: old[i]), r.loop(update.shape[0], batch))

    def reference(self, cache: Array, update: Array, where: Array | None = None) -> Array:
        out = cache.copy()
        places, source = np.moveaxis(out, self.axis, 1), np.moveaxis(update, self.axis, 1)
        extent, size = places.shape[1], source.shape[1]
        for b in range(len(cache)):
            at = np.arange(size) + (0 if where is None else int(where[b]))
            at = at % max(extent, 1) if self.circular else at
            kept = (at >= 0) & (at < extent)
            places[b, at[kept]] = source[b, kept]
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(2, 3, 8, 4), f32(2, 3, 2, 4), np.array([5, 0])]
        yield cls(), [f32(3, 6, 5), f32(3, 4, 5), np.array([-2, 1, 4], np.int32)]
        yield cls(1, True), [ints(3, 6, 5), ints(3, 4, 5), np.array([4, -1, 15])]
        yield cls(2), [f32(2, 3, 8), f32(2, 3, 8, seed=1), None]


__all__ = ["ReverseSequence", "TensorScatter"]
