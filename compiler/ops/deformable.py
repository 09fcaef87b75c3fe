"""Convolution whose taps are moved by offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume, unify
from planish.compiler.loop import te

from .base import Op
from .grids import floor, near
from .sampling import f32
from .windows import check_geometry, extent, narrowed, pairs, wide, wide_array


@dataclass(frozen=True)
class DeformConv(Op):
    """A convolution whose taps read x where ``offset`` moves them, interpolated, times ``mask``.

    ``groups`` as for ``conv``; ``offset_groups`` of input channels share their offsets. Offsets of
    a tap are one for each axis. What is outside of x is 0.

    Shape: x [n, c, *s] float, w [m, c / groups, *k], offset [n, offset_groups * k... * d, *t] for
    d axes s; optional: bias [m], mask [n, offset_groups * k..., *t] -> [n, m, *t].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX DeformConv-22.
    """

    name = "deform_conv"

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # begins, then ends
    groups: int = 1
    offset_groups: int = 1

    def infer(
        self,
        x: TensorType,
        w: TensorType,
        offset: TensorType,
        bias: TensorType | None = None,
        mask: TensorType | None = None,
    ) -> TensorType:
        rank = x.rank - 2
        if not x.dtype.is_float or rank < 1 or w.rank != x.rank or offset.rank != x.rank:
            raise self.fail(f"x {x}, w {w} and offset {offset} do not fit together")
        for other in (w, offset, bias, mask):
            if other is not None and other.dtype is not x.dtype:
                raise self.fail(f"operands are {x.dtype} and {other.dtype}", hint="cast one")
        check_geometry(
            self, rank, strides=self.strides, dilations=self.dilations, pads=self.pads
        )  # fmt: skip
        if min(self.groups, self.offset_groups) < 1:
            raise self.fail(f"{self.groups} groups, {self.offset_groups} of offsets")
        channels, taps = x.shape[1], n.product(w.shape[2:])
        unify(channels, n.mul(w.shape[1], self.groups), "x's channels differ from w's")
        for what, size, parts in (
            ("w's channels", w.shape[0], self.groups),
            ("x's channels", channels, self.offset_groups),
        ):
            if n.eq(n.floormod(size, parts), 0) is n.FALSE:
                raise self.fail(f"{what} {size} are not a multiple of {parts} groups")
            assume(n.eq(n.floormod(size, parts), 0))
        moved = n.mul(n.mul(taps, self.offset_groups), rank)
        unify(offset.shape[1], moved, "the offset has not one number for each tap and axis")
        batch = unify(x.shape[0], offset.shape[0], "the batches differ")
        out = []
        for k, pair in enumerate(pairs(self.pads)):
            count = extent(
                self, x.shape[2 + k], w.shape[2 + k], self.strides[k], self.dilations[k], pair
            )
            out.append(unify(count, offset.shape[2 + k], f"the offset's axis {2 + k} does not fit"))
        if bias is not None:
            if bias.rank != 1:
                raise self.fail(f"the bias {bias} must have one axis")
            unify(bias.shape[0], w.shape[0], "the bias has not a number for each channel")
        if mask is not None:
            if mask.rank != x.rank:
                raise self.fail(f"the mask {mask} must have {x.rank} axes")
            wanted = (batch, n.mul(taps, self.offset_groups), *out)
            for d, e in zip(mask.shape, wanted, strict=True):
                unify(d, e, "the mask's shape does not fit")
        return x.with_shape((batch, w.shape[0], *out))

    def compute(
        self,
        x: te.Tensor,
        w: te.Tensor,
        offset: te.Tensor,
        bias: te.Tensor | None = None,
        mask: te.Tensor | None = None,
    ) -> te.Tensor:
        rank, acc = x.rank - 2, wide(x.dtype)
        kernel, out = w.shape[2:], offset.shape[2:]
        shared = n.floordiv(x.shape[1], self.offset_groups)  # channels that have the same offsets
        begins = [begin for begin, _ in pairs(self.pads)]

        def tap(group: Expr, taps: tuple[Expr, ...]) -> Expr:
            """The number of a tap among those of all groups of offsets."""
            index = group
            for t, size in zip(taps, kernel, strict=True):
                index = n.add(n.mul(index, size), t)
            return index

        # [n, group, *k, *t] along each axis.
        table = (x.shape[0], as_expr(self.offset_groups), *kernel, *out)

        def place(axis: int, *i: Expr) -> Expr:
            batch, group, taps, at = i[0], i[1], i[2 : 2 + rank], i[2 + rank :]
            row = n.add(n.mul(tap(group, taps), rank), axis)
            fixed = n.mul(at[axis], self.strides[axis])
            fixed = n.add(fixed, n.mul(taps[axis], self.dilations[axis]))
            fixed = n.sub(fixed, as_expr(begins[axis]))
            return near(n.add(n.cast(fixed, acc), n.cast(offset[(batch, row, *at)], acc)))

        places = [te.compute(table, partial(place, axis), "place") for axis in range(rank)]

        def sample(*i: Expr) -> Expr:
            batch, channel, taps, at = i[0], i[1], i[2 : 2 + rank], i[2 + rank :]
            group = n.floordiv(channel, shared)
            here = [p[(batch, group, *taps, *at)] for p in places]
            total: Expr = n.const(0, acc)
            for corner in itertools.product((0, 1), repeat=rank):
                total = n.add(total, _corner(x, batch, channel, here, corner))
            if mask is not None:
                total = n.mul(total, n.cast(mask[(batch, tap(group, taps), *at)], acc))
            return total

        samples = te.compute((*x.shape[:2], *kernel, *out), sample, "sample")
        inner = w.shape[1]
        per_group = n.floordiv(w.shape[0], self.groups)

        def product(*i: Expr) -> Expr:
            batch, m, at = i[0], i[1], i[2 : 2 + rank]
            c, taps = i[2 + rank], i[3 + rank :]
            channel = c
            if self.groups > 1:
                channel = n.add(n.mul(n.floordiv(m, per_group), inner), c)
            value = samples[(batch, channel, *taps, *at)]
            return n.mul(n.cast(w[(m, c, *taps)], acc), value)

        shape = (x.shape[0], w.shape[0], *out)
        total = te.reduce("sum", shape, (inner, *kernel), product, self.name)
        if bias is None:
            return narrowed(total, x.dtype)
        return te.compute(
            shape,
            lambda *i: n.cast(n.add(total[i], n.cast(bias[i[1]], acc)), x.dtype),
            "biased",
        )

    def reference(
        self,
        x: Array,
        w: Array,
        offset: Array,
        bias: Array | None = None,
        mask: Array | None = None,
    ) -> Array:
        rank, kernel, out = x.ndim - 2, w.shape[2:], offset.shape[2:]
        taps = int(np.prod(kernel))
        moves = offset.reshape(len(x), self.offset_groups, taps, rank, *out)
        samples = np.zeros((*x.shape[:2], taps, *out))
        image = wide_array(x)
        batch = np.arange(len(x)).reshape(-1, *[1] * rank)
        for c, t in np.ndindex(x.shape[1], taps):
            group = c * self.offset_groups // x.shape[1]
            at = np.unravel_index(t, kernel)
            real = np.float64 if x.dtype == np.float64 else np.float32
            axes = []
            for k in range(rank):
                steps = np.arange(out[k]) * self.strides[k] - self.pads[k]
                steps = (steps + at[k] * self.dilations[k]).reshape([-1] + [1] * (rank - 1 - k))
                moved = steps.astype(real) + moves[:, group, t, k].astype(real)
                axes.append(np.where(np.abs(moved) < 1 << 30, moved, -(1 << 30)))
            for corner in itertools.product((0, 1), repeat=rank):
                weight, inside, index = np.ones(()), np.ones((), bool), []
                for k, (p, side) in enumerate(zip(axes, corner, strict=True)):
                    low = np.floor(p)
                    place = low.astype(np.int64) + side
                    weight = weight * (p - low if side else 1 - (p - low))
                    inside = inside & (place >= 0) & (place < x.shape[2 + k])
                    index.append(np.clip(place, 0, x.shape[2 + k] - 1))
                samples[:, c, t] += np.where(inside, weight * image[(batch, c, *index)], 0)
        if mask is not None:
            scale = mask.reshape(len(x), self.offset_groups, taps, *out)
            samples *= np.repeat(scale, x.shape[1] // self.offset_groups, 1)
        parts = []
        for g in range(self.groups):
            columns = samples[:, g * w.shape[1] : (g + 1) * w.shape[1]]
            rows = w[g * len(w) // self.groups : (g + 1) * len(w) // self.groups]
            rows = wide_array(rows).reshape(len(rows), w.shape[1], taps)
            parts.append(np.einsum("mct,nct...->nm...", rows, columns))
        found = np.concatenate(parts, 1)
        if bias is not None:
            found = found + wide_array(bias).reshape(-1, *[1] * rank)
        return np.asarray(found.astype(x.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x, w = f32(2, 4, 5, 6), f32(6, 4, 2, 3)
        plain = cls((1, 1), (1, 1), (0,) * 4)
        yield plain, [x, w, f32(2, 12, 4, 4), None, None]
        yield plain, [x, w, f32(2, 12, 4, 4), f32(6), f32(2, 6, 4, 4)]
        strided = cls((2, 1), (1, 2), (1, 0, 1, 2), 2, 2)
        yield strided, [x, f32(6, 2, 2, 3), f32(2, 24, 3, 4), None, f32(2, 12, 3, 4)]
        volume = cls((1, 1, 2), (1, 1, 1), (0, 0, 1, 0, 0, 1))
        yield volume, [f32(1, 2, 3, 2, 4), f32(1, 2, 2, 1, 2), f32(1, 12, 2, 2, 3), f32(1), None]
        line = cls((1,), (1,), (1, 1), 1, 2)
        half = [a.astype(np.float16) for a in (f32(1, 2, 5), f32(3, 2, 3), f32(1, 6, 5))]
        yield line, [*half, None, None]


def _corner(
    x: te.Tensor, batch: Expr, channel: Expr, places: list[Expr], corner: tuple[int, ...]
) -> Expr:
    """The element of x at a corner around a place, by its weight; 0 outside."""
    index, inside = [], []
    weight: Expr | None = None
    for p, side, size in zip(places, corner, x.shape[2:], strict=True):
        low = floor(p)
        at, part = n.add(n.cast(low, I64), side), n.sub(p, low)
        part = part if side else n.sub(n.const(1, p.dtype), part)
        weight = part if weight is None else n.mul(weight, part)
        inside += [n.le(0, at), n.lt(at, size)]
        index.append(at)
    value = n.cast(x[(batch, channel, *index)], places[0].dtype)
    zero = n.const(0, places[0].dtype)
    return n.select(n.all_of(*inside), value if weight is None else n.mul(weight, value), zero)
