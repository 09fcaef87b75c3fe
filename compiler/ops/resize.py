"""Resizing by interpolation along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import F32, F64, I64, DType, from_numpy
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, tensor
from planish.compiler.loop import te

from . import sampling
from .base import Op, assume, some_to_read
from .interpolation import COORDINATES, NEAREST, Axis, cubic_weight, f32, is_inside, linear_weight
from .windows import Dim, number, plus

_LARGEST: Final = float((1 << 31) - 128)  # a float32


@dataclass(frozen=True)
class Resize(Op):
    """``axes`` resampled to ``sizes``; coordinates follow from ``scales`` (new size / old size).

    ``mode`` is nearest, linear or cubic; ``coordinate`` and ``rounding`` are ONNX's names of the
    coordinate transformation and of the rounding to the nearest element ("simple": that of
    Resize-10). ``antialias`` widens the filters where an axis shrinks. ``roi`` (starts, then ends)
    and ``extrapolation`` are for tf_crop_and_resize. Without the attributes, scales and roi are
    inputs; sizes are known before all the same (``resized_size``).

    Shape: x [..., s, ...], scales f32 [k] or none, roi f32 [2 k] or none for k axes ->
    [..., t, ...].
    Errors: TypeCheckError for modes that do not exist or do not fit, or an axis of no elements.
    Source: ONNX Resize-19.
    """

    name = "resize"

    axes: tuple[int, ...]
    sizes: tuple[Dim, ...]
    scales: tuple[float | Expr, ...]
    mode: str = "nearest"
    coordinate: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, ...] = ()
    extrapolation: float = 0.0

    def check_names(self) -> None:
        """Check the words among the attributes.

        Errors: TypeCheckError naming one that does not exist.
        """
        if self.mode not in ("nearest", "linear", "cubic"):
            raise self.fail(f"there is no mode {self.mode}")
        if self.coordinate not in COORDINATES:
            raise self.fail(f"there is no coordinate transformation {self.coordinate}")
        if self.mode == "nearest" and self.rounding not in NEAREST:
            raise self.fail(f"there is no rounding {self.rounding}")

    def infer(
        self, x: TensorType, scales: TensorType | None = None, roi: TensorType | None = None
    ) -> TensorType:
        count = len(self.axes)
        given = len(self.scales) if scales is None else self.length(scales, "scales")
        if len(self.sizes) != count or given != count:
            raise self.fail(f"{count} axes, {len(self.sizes)} sizes and {given} scales")
        self.check_names()
        if self.mode != "nearest" and x.dtype.kind not in "fiu":
            raise self.fail(f"mode {self.mode} is not defined for {x.dtype}")
        if self.mode == "cubic" and not x.dtype.is_float:
            raise self.fail(f"mode cubic is not defined for {x.dtype}")
        if self.coordinate == "tf_crop_and_resize":
            bounds = len(self.roi) if roi is None else self.length(roi, "roi")
            if bounds != 2 * count:
                raise self.fail(f"roi has {bounds} numbers, not {2 * count}")
        shape = list(x.shape)
        known = self.scales if scales is None else (1.0,) * count
        for axis, size, scale in zip(self.axes, self.sizes, known, strict=True):
            k = self.resolve_axis(axis, x.rank)
            if isinstance(size, int) and size < 0:
                raise self.fail(f"axis {axis} cannot have {size} elements")
            if isinstance(scale, float) and not (scale > 0 and math.isfinite(scale)):
                raise self.fail(f"axis {axis} cannot be scaled by {scale}")
            some = some_to_read(shape[k], as_expr(size))
            if some is n.FALSE:
                raise self.fail(f"axis {axis} has no elements to make {size} of")
            assume(some)
            shape[k] = as_expr(size)
        return x.with_shape(shape)

    def length(self, given: TensorType, what: str) -> int:
        """How many numbers an input has."""
        if given.dtype is not F32 or given.rank != 1 or given.size is None:
            raise self.fail(f"{what} {given} must be f32 with one axis of known size")
        return given.size

    def resized(
        self, shape: te.Shape, scales: te.Tensor | None, roi: te.Tensor | None
    ) -> dict[int, Axis]:
        """The axes that change, by number."""
        out, count = {}, len(self.axes)
        for k, (axis, size) in enumerate(zip(self.axes, self.sizes, strict=True)):
            scale = _const(self.scales[k]) if scales is None else scales[k]
            ends: tuple[Expr, Expr] = f32(0.0), f32(1.0)
            if roi is not None:
                ends = (roi[k], roi[k + count])
            elif self.roi:
                ends = f32(self.roi[k]), f32(self.roi[k + count])
            axis %= len(shape)
            out[axis] = Axis(shape[axis], as_expr(size), scale, self.coordinate, ends)
        return out

    # -------------------------------------------------------------------------------- compute

    def compute(
        self, x: te.Tensor, scales: te.Tensor | None = None, roi: te.Tensor | None = None
    ) -> te.Tensor:
        def axes() -> dict[int, Axis]:
            """To be called in an element, so that what it loads is seen."""
            return self.resized(x.shape, scales, roi)

        if self.mode == "nearest":
            out = self._nearest(x, axes)
        else:
            out, wider = x, F64 if x.dtype is F64 else F32
            for k in axes():
                out = self._along(out, k, partial(lambda k: axes()[k], k), wider)
            out = _rounded(out, x)
        if self.coordinate != "tf_crop_and_resize":
            return out

        def element(*i: Expr) -> Expr:
            inside = (is_inside(axis.place(i[k]), axis.size) for k, axis in axes().items())
            return n.select(n.all_of(*inside), out[i], n.const(self.extrapolation, out.dtype))

        return te.compute(out.shape, element, "cropped")

    def _nearest(self, x: te.Tensor, axes: Callable[[], dict[int, Axis]]) -> te.Tensor:
        sizes = {k: axis.out for k, axis in axes().items()}
        shape = tuple(sizes.get(k, d) for k, d in enumerate(x.shape))

        def element(*i: Expr) -> Expr:
            new = axes()
            index = (
                new[k].nearest(i[k], self.rounding) if k in new else i[k] for k in range(x.rank)
            )
            return x[tuple(index)]

        return te.compute(shape, element, self.name)

    def _along(self, x: te.Tensor, k: int, new: Callable[[], Axis], wider: DType) -> te.Tensor:
        """``x`` with axis ``k`` interpolated."""
        shape = (*x.shape[:k], new().out, *x.shape[k + 1 :])
        if self.antialias:
            return self._antialiased(x, k, new, shape, wider)

        def at(i: tuple[Expr, ...], shift: int) -> Expr:
            axis = new()
            low, _, (least, most) = axis.between(i[k])
            index = axis.clamp(
                plus(low, shift),
                None if least is None else least + shift,
                None if most is None else most + shift,
            )
            return n.cast(x[(*i[:k], index, *i[k + 1 :])], wider)

        def linear(*i: Expr) -> Expr:
            _, part, _ = new().between(i[k])
            if isinstance(part, Const) and part.value == 0:
                return at(i, 0)
            before = n.mul(n.cast(n.sub(f32(1), part), wider), at(i, 0))
            found = n.add(before, n.mul(n.cast(part, wider), at(i, 1)))
            # At an element, also where an axis stays as it is, an infinite neighbour is not seen.
            return n.select(new().at_element(part), at(i, 0), found)

        def cubic(*i: Expr) -> Expr:
            axis = new()
            low, part, _ = axis.between(i[k])
            distances = (n.add(part, f32(1)), part, n.sub(f32(1), part), n.sub(f32(2), part))
            weights = [cubic_weight(d, self.cubic_a) for d in distances]
            if self.exclude_outside:
                places = [plus(low, shift) for shift in range(-1, 3)]
                weights = _normalised(weights, places, axis.size)
            terms = (n.mul(n.cast(w, wider), at(i, k)) for k, w in enumerate(weights, -1))
            total = reduce(n.add, terms)
            whole = axis.at_element(part)
            if self.exclude_outside:
                whole = n.all_of(whole, n.le(0, low), n.lt(low, axis.size))
            return n.select(whole, at(i, 0), total)

        return te.compute(shape, linear if self.mode == "linear" else cubic, self.name)

    def _antialiased(
        self, x: te.Tensor, k: int, new: Callable[[], Axis], shape: te.Shape, wider: DType
    ) -> te.Tensor:
        """Axis ``k`` by a filter as wide as the scale demands, from a table of weights."""
        out = new().out
        reach = self._reach(new())
        start, taps = n.sub(1, reach), n.mul(reach, 2)

        def first(i: Expr) -> Expr:
            return n.add(new().between(i)[0], start)

        def weight(i: Expr, r: Expr) -> Expr:
            axis = new()
            part = axis.between(i)[1]
            shrink = n.minimum(axis.scale, f32(1))
            distance = n.mul(n.sub(f32(n.add(r, start)), part), shrink)
            distance = Call("abs", (distance,), F32)
            value = (
                linear_weight(distance)
                if self.mode == "linear"
                else cubic_weight(distance, self.cubic_a)
            )
            if not self.exclude_outside:
                return value
            place = n.add(first(i), r)
            return n.select(n.all_of(n.le(0, place), n.lt(place, axis.size)), value, f32(0))

        raw = te.compute((out, taps), weight, "weights")
        sums = te.reduce("sum", (out,), (taps,), lambda i, r: raw[i, r], "weight_sum")
        table = te.compute(
            raw.shape, lambda i, r: n.cast(n.div(raw[i, r], sums[i]), wider), "weights"
        )

        def element(*i: Expr) -> Expr:
            *at, r = i
            index, share = new().clamp(n.add(first(at[k]), r)), table[at[k], r]
            term = n.mul(n.cast(x[(*at[:k], index, *at[k + 1 :])], wider), share)
            return n.select(n.eq(share, n.const(0, wider)), n.const(0, wider), term)

        return te.reduce("sum", shape, (taps,), element, self.name)

    def _reach(self, axis: Axis) -> Expr:
        """How many elements on each side of a coordinate the filter can have a weight at."""
        half = 1 if self.mode == "linear" else 2
        if isinstance(axis.scale, Const):
            return as_expr(-math.floor(-half / min(float(axis.scale.value), 1.0)))
        # A scale is more than half of the ratio of the sizes, as the new one was rounded from it.
        ratio = n.floordiv(n.sub(n.add(axis.size, axis.out), 1), n.maximum(axis.out, 1))
        return n.mul(n.maximum(ratio, 1), 2 * half)

    # ------------------------------------------------------------------------------ reference

    def reference(self, x: Array, scales: Array | None = None, roi: Array | None = None) -> Array:
        if scales is not None or roi is not None:
            known = self.scales if scales is None else tuple(map(float, scales))
            bounds = self.roi if roi is None else tuple(map(float, roi))
            return replace(self, scales=known, roi=bounds).reference(x)
        out = x if self.mode == "nearest" else x.astype(np.float64)
        outside = np.zeros([1] * x.ndim, bool)
        for j, axis in enumerate(self.axes):
            axis %= x.ndim
            scale = self.scales[j]
            factor = np.float32(_value(_const(scale)))
            size, new = x.shape[axis], number(self.sizes[j])
            place = self._places(j, size, new, factor)
            if self.mode == "nearest":
                out = np.take(out, _nearest_elements(place, self.rounding, factor, size), axis)
            else:
                rows = self._rows(place, size, factor)
                taps = [np.tensordot(row, np.take(out, at, axis), (0, axis)) for at, row in rows]
                out = np.stack(taps, axis) if taps else np.take(out, [], axis)
            if self.coordinate == "tf_crop_and_resize":
                beyond = (place < 0) | (place > size - 1)
                outside = outside | beyond.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        if self.coordinate == "tf_crop_and_resize":
            out = np.where(outside, self.extrapolation, out)
        return converted(out, from_numpy(x.dtype))

    def _places(self, j: int, size: int, new: int, scale: np.float32) -> Array:
        x, half = np.arange(new, dtype=np.float32), np.float32(0.5)
        match self.coordinate:
            case "align_corners":
                return x * np.float32(size - 1) / np.float32(new - 1) if new > 1 else 0 * x
            case "asymmetric":
                return np.asarray(x / scale)
            case "tf_half_pixel_for_nn":
                return np.asarray((x + half) / scale) if scale != 1 else x
            case "tf_crop_and_resize":
                start, end = (np.float32(self.roi[j + k]) for k in (0, len(self.axes)))
                if new == 1:
                    return np.asarray([half * (start + end) * np.float32(size - 1)])
                along = x * (end - start) * np.float32(size - 1) / np.float32(new - 1)
                return np.asarray(start * np.float32(size - 1) + along)
            case "pytorch_half_pixel" if new == 1:
                return 0 * x
            case "half_pixel_symmetric":
                adjustment = np.float32(new) / (scale * np.float32(size))
                centre = np.float32(size / 2)
                exact = x.astype(np.float64) + 0.5
                found = centre * (1 - adjustment) + exact / float(scale) - 0.5
                return np.asarray(found.astype(np.float32))
            case _:
                return np.asarray((x + half) / scale - half)

    def _rows(self, place: Array, size: int, scale: np.float32) -> list[tuple[list[int], Array]]:
        """For each element of the output, those of the input that it sees, and their weights."""
        shrink = min(float(scale), 1.0) if self.antialias else 1.0
        half = 1 if self.mode == "linear" else 2
        rows = []
        for p in place.astype(np.float64):
            low = math.floor(p)
            reach = math.ceil(half / shrink) + 1 if self.antialias else half
            taps = range(low + 1 - reach, low + 1 + reach)
            weights = {at: self._weight(abs(at - p) * shrink) for at in taps}
            if self.exclude_outside and (self.antialias or self.mode == "cubic"):
                weights = {at: w for at, w in weights.items() if 0 <= at < size}
            if self.antialias or (p == low and low in weights):
                weights = {at: w for at, w in weights.items() if w != 0}
            row = np.array(list(weights.values()))
            with np.errstate(invalid="ignore"):  # a row of no elements is outside of all
                row = row / row.sum() if weights else np.array([np.nan])
            rows.append(([min(max(at, 0), size - 1) for at in weights or (low,)], row))
        return rows

    def _weight(self, s: float) -> float:
        """The weight of an element at a distance >= 0."""
        if self.mode == "linear":
            return max(0.0, 1 - s)
        if s <= 1:
            return (self.cubic_a + 2) * s**3 - (self.cubic_a + 3) * s**2 + 1
        return self.cubic_a * (s**3 - 5 * s**2 + 8 * s - 4) if s < 2 else 0.0

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        image = sampling.f32(1, 2, 4, 5)
        third = float(np.float32(7) / np.float32(5))
        for rounding in NEAREST:
            yield cls((2, 3), (8, 10), (2.0, 2.0), rounding=rounding), [image]
            yield cls((2,), (2,), (0.5,), "nearest", "asymmetric", rounding), [image]
            yield cls((3,), (7,), (third,), "nearest", "asymmetric", rounding), [image]
        yield cls((1, 2), (8, 15), (2.0, 3.0)), [sampling.ints(2, 4, 5, 3, dtype="uint8")]
        for coordinate in COORDINATES[:-1]:
            yield cls((2, 3), (8, 7), (2.0, third), "linear", coordinate), [image]
            yield cls((2, 3), (8, 7), (2.0, third), "cubic", coordinate), [image]
        yield cls((-2, -1), (2, 1), (0.5, 0.2), "linear", "pytorch_half_pixel"), [image]
        yield cls((3,), (7,), (third,), "cubic", exclude_outside=True, cubic_a=-0.5), [image]
        for mode in ("nearest", "linear", "cubic"):
            yield (
                cls((2, 3), (3, 4), (0.75, 0.8), mode, "tf_crop_and_resize",
                    roi=(0.25, -0.5, 1.0, 0.75), extrapolation=9.0),
                [image],
            )  # fmt: skip
        for mode in ("linear", "cubic"):
            yield cls((2, 3), (2, 2), (0.5, 0.4), mode, antialias=True), [image]
            yield (
                cls((2, 3), (2, 7), (0.5, third), mode, antialias=True, exclude_outside=True),
                [image],
            )
        yield cls((2,), (8,), (2.0,), "linear"), [image.astype(np.float16)]
        yield from cls._samples_of_inputs()

    @classmethod
    def _samples_of_inputs(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        image = sampling.f32(1, 2, 4, 5)
        scales, ends = np.array([1, 1, 1.75, 0.8], np.float32), np.array([0.2, 0, 1, 0.7])
        whole = (0, 1, 2, 3), (1, 2, 7, 4), ()
        for mode in ("nearest", "linear", "cubic"):
            for coordinate in ("half_pixel", "align_corners", "half_pixel_symmetric"):
                yield cls(*whole, mode, coordinate), [image, scales]
            yield (
                cls((2, 3), (3, 4), (), mode, "tf_crop_and_resize", extrapolation=9.0),
                [image, scales[2:], ends.astype(np.float32)],
            )
        yield (
            cls((2, 3), (3, 4), (0.75, 0.8), "linear", "tf_crop_and_resize"),
            [image, None, ends.astype(np.float32)],
        )
        for mode in ("linear", "cubic"):
            yield cls(*whole, mode, antialias=True), [image, scales]
            small = np.array([0.55, 0.21], np.float32)
            yield cls((2, 3), (2, 1), (), mode, antialias=True), [image, small]
        yield cls((0, 1), (2, 5), (), rounding="simple"), [image[0, 0], scales[:2] * 0.6]


@dataclass(frozen=True)
class ResizedSize(Op):
    """The size of an axis of ``size`` elements, scaled: rounded down, and at most 2^31 - 128.

    ``axis`` says which of the scales is its own.

    Shape: scales f32 [k] -> i64 [].
    Errors: TypeCheckError if there are not so many scales.
    Source: ONNX Resize-19.
    """

    name = "resized_size"

    size: Expr
    axis: int

    def infer(self, scales: TensorType) -> TensorType:
        if scales.dtype is not F32 or scales.rank != 1:
            raise self.fail(f"scales {scales} must be f32 with one axis")
        if scales.size is None or not 0 <= self.axis < scales.size:
            raise self.fail(f"scales {scales} have none for axis {self.axis}")
        return tensor(I64)

    def compute(self, scales: te.Tensor) -> te.Tensor:
        def element() -> Expr:
            size = Call("floor", (n.mul(f32(self.size), scales[self.axis]),), F32)
            inside = n.all_of(n.le(f32(0), size), n.eq(size, size))
            return n.select(inside, n.cast(n.minimum(size, f32(_LARGEST)), I64), 0)

        return te.compute((), element, self.name)

    def reference(self, scales: Array) -> Array:
        size = np.floor(np.float32(number(self.size)) * scales[self.axis])
        return np.array(np.clip(np.nan_to_num(size), 0, _LARGEST), np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        scales = np.array([2, 0.6, -1, 1e30, np.nan], np.float32)
        for axis in range(5):
            yield cls(as_expr(7), axis), [scales]


def _const(scale: float | Expr) -> Expr:
    return scale if isinstance(scale, Expr) else n.const(scale, F32)


def _rounded(out: te.Tensor, x: te.Tensor) -> te.Tensor:
    if out.dtype is x.dtype:
        return out
    return te.compute(out.shape, lambda *i: n.cast(out[i], x.dtype), "rounded")


def _value(e: Expr) -> float:
    if not isinstance(e, Const):
        raise InternalError("a symbol has no value here", node=str(e))
    return float(e.value)


def _normalised(weights: list[Expr], places: list[Expr], size: Expr) -> list[Expr]:
    """The weights of the places inside the axis, made to sum to 1."""
    kept = [
        n.select(n.all_of(n.le(0, p), n.lt(p, size)), w, f32(0))
        for w, p in zip(weights, places, strict=True)
    ]
    total = n.add(n.add(kept[0], kept[1]), n.add(kept[2], kept[3]))
    return [n.div(w, total) for w in kept]


def _nearest_elements(place: Array, rounding: str, scale: np.float32, size: int) -> Array:
    match rounding:
        case "round_prefer_floor":
            whole = np.ceil(place.astype(np.float64) - 0.5)
        case "round_prefer_ceil":
            whole = np.floor(place.astype(np.float64) + 0.5)
        case "floor":
            whole = np.floor(place)
        case "ceil":
            whole = np.ceil(place)
        case _:
            whole = np.ceil(place) if scale < 1 else np.trunc(place)
    return np.asarray(np.clip(converted(whole, I64), 0, size - 1))
