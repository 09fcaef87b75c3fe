"""Pooling over regions of an image, as detectors do it: each region becomes a grid of bins.

How many elements or samples a bin has depends on the regions. ``roi_samples`` and ``roi_bins`` give
the most of them along an axis; the pooling operators take that as an attribute and leave out what a
region has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, tensor, unify
from planish.compiler.loop import te

from .base import Op
from .grids import floor, near, some_elements
from .indexing import wrapped
from .sampling import f32
from .shape import sizes
from .windows import narrowed, number, wide, wide_array

# Samples of a bin along an axis that are taken at most: a region that asks for more is no region.
MOST_SAMPLES: Final = 1 << 12
_FAR: Final = 1 << 30


def _check_rois(op: Op, x: TensorType, rois: TensorType, columns: int) -> None:
    if x.rank != 4 or not x.dtype.is_float:
        raise op.fail(f"x {x} must be float [n, c, h, w]")
    _check_columns(op, rois, columns)
    if rois.dtype is not x.dtype:
        raise op.fail(f"x is {x.dtype}, the regions are {rois.dtype}", hint="cast one")


def _check_columns(op: Op, rois: TensorType, columns: int) -> None:
    if rois.rank != 2 or not rois.dtype.is_float:
        raise op.fail(f"the regions {rois} must be float [r, {columns}]")
    unify(rois.shape[1], as_expr(columns), "a region has the wrong number of columns")


# ---------------------------------------------------------------------------------- roi_align


@dataclass(frozen=True)
class RoiGrid:
    """Where samples of the bins of regions [x1, y1, x2, y2] are along an axis (0: y, 1: x)."""

    axis: int
    bins: int
    scale: float
    ratio: int
    half_pixel: bool

    def start_and_size(self, rois: te.Tensor, r: Expr) -> tuple[Expr, Expr]:
        """Where a region begins and how long it is, in elements."""
        acc = wide(rois.dtype)

        def edge(column: int) -> Expr:
            found = n.mul(n.cast(rois[r, column], acc), n.const(self.scale, acc))
            return n.sub(found, n.const(0.5, acc)) if self.half_pixel else found

        begin, end = edge(1 - self.axis), edge(3 - self.axis)
        size = n.sub(end, begin)
        return begin, size if self.half_pixel else n.maximum(size, n.const(1, acc))

    def count(self, rois: te.Tensor, r: Expr) -> Expr:
        """The samples of a bin."""
        if self.ratio > 0:
            return as_expr(self.ratio)
        _, size = self.start_and_size(rois, r)
        bin_size = n.div(size, n.const(self.bins, size.dtype))
        count = n.cast(near(Call("ceil", (bin_size,), size.dtype)), I64)
        return n.minimum(n.maximum(count, 0), MOST_SAMPLES)

    def place(self, rois: te.Tensor, r: Expr, bin: Expr, sample: Expr) -> Expr:
        """The coordinate of a sample."""
        begin, size = self.start_and_size(rois, r)
        acc = size.dtype
        bin_size = n.div(size, n.const(self.bins, acc))
        inside = n.mul(n.add(n.cast(sample, acc), n.const(0.5, acc)), bin_size)
        inside = n.div(inside, n.cast(n.maximum(self.count(rois, r), 1), acc))
        return n.add(n.add(begin, n.mul(n.cast(bin, acc), bin_size)), inside)

    def array(self, rois: Array) -> tuple[Array, Array, Array]:
        """By numpy: beginnings, bin sizes and counts."""
        columns = rois[:, [1 - self.axis, 3 - self.axis]].astype(_kind(rois))
        edges = columns * columns.dtype.type(self.scale) - (0.5 if self.half_pixel else 0)
        size = edges[:, 1] - edges[:, 0]
        bin_size = (size if self.half_pixel else np.maximum(size, 1)) / self.bins
        counts = np.full(len(rois), self.ratio)
        if not self.ratio:
            wanted = np.where(np.abs(bin_size) < _FAR, np.ceil(bin_size), 0)
            counts = np.clip(wanted, 0, MOST_SAMPLES).astype(np.int64)
        return edges[:, 0], bin_size, counts


def _kind(x: Array) -> type[Any]:
    return np.float64 if x.dtype == np.float64 else np.float32


@dataclass(frozen=True)
class RoiSamples(Op):
    """The most samples that a bin of ``roi_align`` has along ``axis`` (0: y, 1: x).

    Shape: rois float [r, 4] -> i64 [].
    Errors: TypeCheckError if the regions have not four columns.
    Source: ONNX RoiAlign-22, adaptive sampling.
    """

    name = "roi_samples"

    axis: int
    bins: int
    scale: float = 1.0
    half_pixel: bool = True

    def infer(self, rois: TensorType) -> TensorType:
        _check_columns(self, rois, 4)
        return tensor(I64)

    @property
    def grid(self) -> RoiGrid:
        return RoiGrid(self.axis, self.bins, self.scale, 0, self.half_pixel)

    def compute(self, rois: te.Tensor) -> te.Tensor:
        most = te.reduce("max", (), rois.shape[:1], lambda r: self.grid.count(rois, r), self.name)
        return te.compute((), lambda: n.maximum(most[()], 0), self.name)

    def reference(self, rois: Array) -> Array:
        return np.array(self.grid.array(rois)[2].max(initial=0), np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        rois = f32(5, 4, low=0, high=20)
        yield cls(0, 2), [rois]
        yield cls(1, 3, 0.5, False), [rois]
        strange = np.array([[0, 0, np.inf, np.nan], [0, 0, 1e30, -5]], np.float32)
        yield cls(0, 2), [strange]
        yield cls(1, 2), [strange]


@dataclass(frozen=True)
class RoiAlign(Op):
    """The mean, or the greatest, of samples of each bin of each region, interpolated linearly.

    ``bins`` is their number along y and x. A bin has ``ratio`` by ``ratio`` samples, or with ratio
    0 as many as it has elements along each axis, which are at most ``most``. ``scale`` takes
    regions [x1, y1, x2, y2] to elements; ``half_pixel`` says that these are counted from the
    image's edge rather than from its first element's centre. Samples more than one element outside
    are 0. With mode max a sample is the greatest of its four weighted neighbours. A batch out of
    range is the nearest one.

    Shape: x [n, c, h, w] float, rois [r, 4], batches integer [r] -> [r, c, *bins].
    Errors: TypeCheckError if shapes do not fit, or for a mode that does not exist.
    Source: ONNX RoiAlign-22.
    """

    name = "roi_align"

    bins: tuple[int, int]
    most: tuple[Expr, ...]
    ratio: int = 0
    scale: float = 1.0
    mode: str = "avg"
    half_pixel: bool = True

    def infer(self, x: TensorType, rois: TensorType, batches: TensorType) -> TensorType:
        _check_rois(self, x, rois, 4)
        if batches.rank != 1 or not batches.dtype.is_int:
            raise self.fail(f"the batches {batches} must be integer [r]")
        if self.mode not in ("avg", "max"):
            raise self.fail(f"there is no mode {self.mode}", hint="modes are avg and max")
        if min(self.bins) < 1 or self.ratio < 0:
            raise self.fail(f"{self.bins} bins with {self.ratio} samples along an axis")
        count = unify(rois.shape[0], batches.shape[0], "regions and batches differ in number")
        out = (count, x.shape[1], *map(as_expr, self.bins))
        some_elements(self, (x.shape[0], *x.shape[2:]), out)
        return x.with_shape(out)

    def grid(self, axis: int) -> RoiGrid:
        return RoiGrid(axis, self.bins[axis], self.scale, self.ratio, self.half_pixel)

    def compute(self, x: te.Tensor, rois: te.Tensor, batches: te.Tensor) -> te.Tensor:
        acc = wide(x.dtype)
        (iy, wy, ny), (ix, wx, nx) = (self._along(rois, k, x.shape[2 + k], acc) for k in (0, 1))
        zero, nothing = n.const(0, acc), n.const(0 if self.mode == "avg" else acc.lowest, acc)

        def term(*i: Expr) -> Expr:
            r, c, p, q, s, t, y, z = i
            row, column = iy[r, p, s, y], ix[r, q, t, z]
            batch = wrapped(batches[r], x.shape[0])
            value = x[batch, c, n.maximum(row, 0), n.maximum(column, 0)]
            weight = n.mul(wy[r, p, s, y], wx[r, q, t, z])
            value = n.mul(weight, n.cast(value, acc))
            value = n.select(n.all_of(n.le(0, row), n.le(0, column)), value, zero)
            return n.select(n.all_of(n.lt(s, ny[r]), n.lt(t, nx[r])), value, nothing)

        shape = (rois.shape[0], x.shape[1], *map(as_expr, self.bins))
        combiner = "sum" if self.mode == "avg" else "max"
        found = te.reduce(combiner, shape, (*self.most, 2, 2), term, self.name)

        def finished(r: Expr, *i: Expr) -> Expr:
            count = n.mul(ny[r], nx[r])
            value = found[(r, *i)]
            if self.mode == "avg":
                return n.div(value, n.cast(n.maximum(count, 1), acc))
            return n.select(n.lt(0, count), value, zero)

        return narrowed(te.compute(shape, finished, self.name), x.dtype)

    def _along(
        self, rois: te.Tensor, axis: int, size: Expr, acc: DType
    ) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        """The neighbours of samples along an axis (-1: none), their weights, and bins' samples."""
        grid = self.grid(axis)
        count = te.compute(rois.shape[:1], lambda r: grid.count(rois, r), "count")
        one, last = n.const(1, acc), n.cast(n.sub(size, 1), acc)
        shape = (rois.shape[0], self.bins[axis], self.most[axis])
        place = te.compute(shape, lambda r, p, s: near(grid.place(rois, r, p, s)), "place")

        def index(r: Expr, p: Expr, s: Expr, tap: Expr) -> Expr:
            at = place[r, p, s]
            low = n.cast(floor(n.maximum(at, n.const(0, acc))), I64)
            inside = n.all_of(n.le(n.neg(one), at), n.le(at, n.cast(size, acc)))
            return n.select(inside, n.minimum(n.add(low, tap), n.sub(size, 1)), -1)

        def weight(r: Expr, p: Expr, s: Expr, tap: Expr) -> Expr:
            at = n.minimum(n.maximum(place[r, p, s], n.const(0, acc)), last)
            part = n.sub(at, floor(at))
            return n.select(n.eq(tap, 0), n.sub(one, part), part)

        taps = (*shape, 2)
        return te.compute(taps, index, "index"), te.compute(taps, weight, "weight"), count

    def reference(self, x: Array, rois: Array, batches: Array) -> Array:
        height, width = x.shape[2:]
        (ys, hs, my), (xs, ws, mx) = (self.grid(k).array(rois) for k in (0, 1))
        out = np.zeros((len(rois), x.shape[1], *self.bins))
        image = wide_array(x)
        for r, p, q in np.ndindex(len(rois), *self.bins):
            batch = batches[r] + (len(x) if batches[r] < 0 else 0)
            picture = image[np.clip(batch, 0, len(x) - 1)]
            values = []
            for s, t in np.ndindex(my[r], mx[r]):
                y = ys[r] + p * hs[r] + (s + x.dtype.type(0.5)) * hs[r] / my[r]
                z = xs[r] + q * ws[r] + (t + x.dtype.type(0.5)) * ws[r] / mx[r]
                if not (-1 <= y <= height and -1 <= z <= width):
                    values.append(np.zeros((4, x.shape[1])))
                    continue
                y, z = min(max(y, 0), height - 1), min(max(z, 0), width - 1)
                top, left = int(y), int(z)
                below, right = min(top + 1, height - 1), min(left + 1, width - 1)
                dy, dz = y - top, z - left
                values.append(
                    np.stack([
                        (1 - dy) * (1 - dz) * picture[:, top, left],
                        (1 - dy) * dz * picture[:, top, right],
                        dy * (1 - dz) * picture[:, below, left],
                        dy * dz * picture[:, below, right],
                    ])
                )  # fmt: skip
            if values:
                four = np.stack(values)
                mean = self.mode == "avg"
                out[r, :, p, q] = four.sum((0, 1)) / len(four) if mean else four.max((0, 1))
        return out.astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        image, rois = f32(2, 3, 6, 8), f32(4, 4, low=0, high=9)
        rois[:, 2:] += rois[:, :2] / 2
        batches = np.array([1, 0, 0, 1])
        wide_enough = sizes(8, 8)
        for mode in ("avg", "max"):
            for pixel in (False, True):
                yield cls((2, 3), sizes(2, 2), 2, 0.5, mode, pixel), [image, rois, batches]
                yield cls((3, 2), wide_enough, 0, 1.0, mode, pixel), [image, rois, batches]
        beyond = np.array([[-9, -9, -1, 2], [3, 3, 30, 5], [2, 2, 1, 1], [0, 0, 8, 6]], np.float32)
        for mode in ("avg", "max"):
            yield (
                cls((2, 2), sizes(16, 16), 0, 1.0, mode),
                [image, beyond, np.array([5, -9, -1, 0])],
            )
        half = [a.astype(np.float16) for a in (image, rois)]
        yield cls((1, 1), sizes(3, 3), 3), [*half, batches]
        yield (
            cls((2, 2), sizes(1, 1), 1),
            [image.astype(np.float64), rois.astype(np.float64), batches],
        )


# ------------------------------------------------------------------------------- max_roi_pool


@dataclass(frozen=True)
class BinEdges:
    """Which elements the bins of regions [batch, x1, y1, x2, y2] have along an axis (0: y, 1: x).

    Regions are rounded to elements and include their ends.
    """

    axis: int
    bins: int
    scale: float
    size: Expr

    def edges(self, rois: te.Tensor, r: Expr, bin: Expr) -> tuple[Expr, Expr]:
        """The first element of a bin, and the one behind its last; none if they are equal."""
        acc = wide(rois.dtype)

        def corner(column: int) -> Expr:
            place = n.mul(n.cast(rois[r, column], acc), n.const(self.scale, acc))
            away = n.add(Call("abs", (place,), acc), n.const(0.5, acc))
            rounded = n.select(n.lt(place, n.const(0, acc)), n.neg(floor(away)), floor(away))
            return n.cast(near(rounded), I64)

        begin, end = corner(2 - self.axis), corner(4 - self.axis)
        extent = n.maximum(n.add(n.sub(end, begin), 1), 1)
        bin_size = n.div(n.cast(extent, acc), n.const(self.bins, acc))
        low = floor(n.mul(n.cast(bin, acc), bin_size))
        high = n.mul(n.cast(n.add(bin, 1), acc), bin_size)
        high = Call("ceil", (high,), acc)
        first, behind = (n.add(n.cast(e, I64), begin) for e in (low, high))
        first = n.minimum(n.maximum(first, 0), self.size)
        return first, n.maximum(n.minimum(n.maximum(behind, 0), self.size), first)

    def array(self, rois: Array, size: int) -> tuple[Array, Array]:
        """By numpy: the edges as [r, bins]."""
        columns = rois[:, [2 - self.axis, 4 - self.axis]].astype(_kind(rois))
        place = columns * columns.dtype.type(self.scale)
        rounded = np.where(place < 0, np.ceil(place - 0.5), np.floor(place + 0.5))
        rounded = np.where(np.abs(rounded) < _FAR, rounded, -_FAR).astype(np.int64)
        begin = rounded[:, :1]
        bin_size = np.maximum(rounded[:, 1:] - begin + 1, 1).astype(_kind(rois)) / self.bins
        bins = np.arange(self.bins).astype(_kind(rois))
        first = np.floor(bins * bin_size).astype(np.int64) + begin
        behind = np.ceil((bins + 1) * bin_size).astype(np.int64) + begin
        first, behind = np.clip(first, 0, size), np.clip(behind, 0, size)
        return first, np.maximum(first, behind)


@dataclass(frozen=True)
class RoiBins(Op):
    """The most elements that a bin of ``max_roi_pool`` has along ``axis`` (0: y, 1: x).

    ``size`` is that of the image along the axis.

    Shape: rois float [r, 5] -> i64 [].
    Errors: TypeCheckError if the regions have not five columns.
    Source: ONNX MaxRoiPool-22.
    """

    name = "roi_bins"

    axis: int
    bins: int
    size: Expr
    scale: float = 1.0

    def infer(self, rois: TensorType) -> TensorType:
        _check_columns(self, rois, 5)
        return tensor(I64)

    @property
    def places(self) -> BinEdges:
        return BinEdges(self.axis, self.bins, self.scale, self.size)

    def compute(self, rois: te.Tensor) -> te.Tensor:
        def extent(r: Expr, bin: Expr) -> Expr:
            first, behind = self.places.edges(rois, r, bin)
            return n.sub(behind, first)

        most = te.reduce("max", (), (rois.shape[0], self.bins), extent, self.name)
        return te.compute((), lambda: n.maximum(most[()], 0), self.name)

    def reference(self, rois: Array) -> Array:
        first, behind = self.places.array(rois, number(self.size))
        return np.array((behind - first).max(initial=0), np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        rois = f32(5, 5, low=-4, high=20)
        yield cls(0, 2, as_expr(9)), [rois]
        yield cls(1, 3, as_expr(9), 0.5), [rois]
        yield cls(0, 2, as_expr(5)), [np.array([[0, np.nan, -1e30, np.inf, 1e30]], np.float32)]


@dataclass(frozen=True)
class MaxRoiPool(Op):
    """The greatest element of each bin of each region [batch, x1, y1, x2, y2]; 0 for an empty bin.

    ``bins`` is their number along y and x, ``most`` how many elements one has at most along these;
    ``scale`` takes regions to elements. A batch out of range is the nearest one.

    Shape: x [n, c, h, w] float, rois [r, 5] -> [r, c, *bins].
    Errors: TypeCheckError if shapes do not fit.
    Source: ONNX MaxRoiPool-22.
    """

    name = "max_roi_pool"

    bins: tuple[int, int]
    most: tuple[Expr, ...]
    scale: float = 1.0

    def infer(self, x: TensorType, rois: TensorType) -> TensorType:
        _check_rois(self, x, rois, 5)
        if min(self.bins) < 1:
            raise self.fail(f"{self.bins} bins")
        out = (rois.shape[0], x.shape[1], *map(as_expr, self.bins))
        some_elements(self, (x.shape[0], *x.shape[2:]), out)
        return x.with_shape(out)

    def places(self, axis: int, size: Expr) -> BinEdges:
        return BinEdges(axis, self.bins[axis], self.scale, size)

    def compute(self, x: te.Tensor, rois: te.Tensor) -> te.Tensor:
        edges = []
        for axis, bins in enumerate(self.bins):
            places = self.places(axis, x.shape[2 + axis])
            for k in (0, 1):
                edges.append(
                    te.compute(
                        (rois.shape[0], bins),
                        lambda r, bin, p=places, k=k: p.edges(rois, r, bin)[k],
                        "edge",
                    )
                )
        top, bottom, left, right = edges
        low = n.const(x.dtype.lowest, x.dtype)

        def term(r: Expr, c: Expr, p: Expr, q: Expr, s: Expr, t: Expr) -> Expr:
            row, column = n.add(top[r, p], s), n.add(left[r, q], t)
            batch = wrapped(near(floor(rois[r, 0])), x.shape[0])
            inside = n.all_of(n.lt(row, bottom[r, p]), n.lt(column, right[r, q]))
            return n.select(inside, x[batch, c, row, column], low)

        shape = (rois.shape[0], x.shape[1], *map(as_expr, self.bins))
        found = te.reduce("max", shape, self.most, term, self.name)

        def finished(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
            some = n.all_of(n.lt(top[r, p], bottom[r, p]), n.lt(left[r, q], right[r, q]))
            return n.select(some, found[r, c, p, q], n.const(0, x.dtype))

        return te.compute(shape, finished, self.name)

    def reference(self, x: Array, rois: Array) -> Array:
        out = np.zeros((len(rois), x.shape[1], *self.bins), x.dtype)
        (top, bottom), (left, right) = (
            self.places(k, as_expr(x.shape[2 + k])).array(rois, x.shape[2 + k]) for k in (0, 1)
        )
        for r, p, q in np.ndindex(len(rois), *self.bins):
            batch = int(np.clip(rois[r, 0], -len(x), len(x) - 1))
            part = x[batch, :, top[r, p] : bottom[r, p], left[r, q] : right[r, q]]
            if part.size:
                out[r, :, p, q] = part.max((1, 2))
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        image, rois = f32(2, 3, 6, 8), f32(4, 5, low=-2, high=9)
        rois[:, 0], rois[:, 3:] = [1, 0, 0, 1], rois[:, 3:] + 4
        yield cls((2, 3), sizes(6, 8)), [image, rois]
        yield cls((1, 2), sizes(6, 8), 0.5), [image, rois]
        beyond = np.array([[0, -9, -9, -4, 2], [1, 7, 5, 30, 9], [7, 3, 3, 1, 1]], np.float32)
        yield cls((2, 2), sizes(6, 8)), [image, beyond]
        yield cls((4, 4), sizes(6, 8)), [image.astype(np.float16), rois.astype(np.float16)]
