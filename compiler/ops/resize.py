"""Resizing by interpolation along axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F32, F64, DType
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from . import sampling
from .base import Op, assume, some_to_read
from .interpolation import COORDINATES, NEAREST, Axis, cubic_weight, f32, is_inside, linear_weight
from .windows import Dim, number, plus


@dataclass(frozen=True)
class Resize(Op):
    """``axes`` resampled to ``sizes``; coordinates follow from ``scales`` (new size / old size).

    ``mode`` is nearest, linear or cubic; ``coordinate`` and ``rounding`` are ONNX's names of the
    coordinate transformation and of the rounding to the nearest element ("simple": that of
    Resize-10). ``antialias`` widens the filters where an axis shrinks. ``roi`` (starts, then ends)
    and ``extrapolation`` are for tf_crop_and_resize.

    Shape: x [..., s, ...] -> [..., t, ...].
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

    def infer(self, x: TensorType) -> TensorType:
        count = len(self.axes)
        if len(self.sizes) != count or len(self.scales) != count:
            raise self.fail(f"{count} axes, {len(self.sizes)} sizes and {len(self.scales)} scales")
        if self.mode not in ("nearest", "linear", "cubic"):
            raise self.fail(f"there is no mode {self.mode}")
        if self.coordinate not in COORDINATES:
            raise self.fail(f"there is no coordinate transformation {self.coordinate}")
        if self.mode == "nearest" and self.rounding not in NEAREST:
            raise self.fail(f"there is no rounding {self.rounding}")
        if self.mode != "nearest" and x.dtype.kind not in "fiu":
            raise self.fail(f"mode {self.mode} is not defined for {x.dtype}")
        if self.mode == "cubic" and not x.dtype.is_float:
            raise self.fail(f"mode cubic is not defined for {x.dtype}")
        if self.coordinate == "tf_crop_and_resize" and len(self.roi) != 2 * count:
            raise self.fail(f"roi {self.roi} must have {2 * count} numbers")
        if self.antialias and not all(isinstance(_const(s), Const) for s in self.scales):
            raise self.fail("antialias needs scales that are known at compile time")
        shape = list(x.shape)
        for axis, size, scale in zip(self.axes, self.sizes, self.scales, strict=True):
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

    def resized(self, shape: te.Shape) -> dict[int, Axis]:
        """The axes that change, by number."""
        out = {}
        for k, (axis, size, scale) in enumerate(
            zip(self.axes, self.sizes, self.scales, strict=True)
        ):
            roi = (self.roi[k], self.roi[k + len(self.axes)]) if self.roi else (0.0, 1.0)
            axis %= len(shape)
            out[axis] = Axis(shape[axis], as_expr(size), _const(scale), self.coordinate, roi)
        return out

    # -------------------------------------------------------------------------------- compute

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.resized(x.shape)
        if self.mode == "nearest":
            out = self._nearest(x, axes)
        else:
            out, wider = x, F64 if x.dtype is F64 else F32
            for k, axis in axes.items():
                out = self._along(out, k, axis, wider)
            out = _rounded(out, x)
        if self.coordinate != "tf_crop_and_resize":
            return out

        def element(*i: Expr) -> Expr:
            inside = (is_inside(axis.place(i[k]), axis.size) for k, axis in axes.items())
            return n.select(n.all_of(*inside), out[i], n.const(self.extrapolation, out.dtype))

        return te.compute(out.shape, element, "cropped")

    def _nearest(self, x: te.Tensor, axes: dict[int, Axis]) -> te.Tensor:
        shape = tuple(axes[k].out if k in axes else d for k, d in enumerate(x.shape))

        def element(*i: Expr) -> Expr:
            index = (
                axes[k].nearest(i[k], self.rounding) if k in axes else i[k] for k in range(x.rank)
            )
            return x[tuple(index)]

        return te.compute(shape, element, self.name)

    def _along(self, x: te.Tensor, k: int, axis: Axis, wider: DType) -> te.Tensor:
        """``x`` with axis ``k`` interpolated."""
        shape = (*x.shape[:k], axis.out, *x.shape[k + 1 :])
        if self.antialias:
            return self._antialiased(x, k, axis, shape, wider)

        def at(i: tuple[Expr, ...], shift: int) -> Expr:
            low, _, (least, most) = axis.between(i[k])
            index = axis.clamp(
                plus(low, shift),
                None if least is None else least + shift,
                None if most is None else most + shift,
            )
            return n.cast(x[(*i[:k], index, *i[k + 1 :])], wider)

        def linear(*i: Expr) -> Expr:
            _, part, _ = axis.between(i[k])
            if isinstance(part, Const) and part.value == 0:
                return at(i, 0)
            before = n.mul(n.cast(n.sub(f32(1), part), wider), at(i, 0))
            return n.add(before, n.mul(n.cast(part, wider), at(i, 1)))

        def cubic(*i: Expr) -> Expr:
            low, part, _ = axis.between(i[k])
            distances = (n.add(part, f32(1)), part, n.sub(f32(1), part), n.sub(f32(2), part))
            weights = [cubic_weight(d, self.cubic_a) for d in distances]
            if self.exclude_outside:
                places = [plus(low, shift) for shift in range(-1, 3)]
                weights = _normalised(weights, places, axis.size)
            total: Expr | None = None
            for shift, weight in enumerate(weights, -1):
                term = n.mul(n.cast(weight, wider), at(i, shift))
                total = term if total is None else n.add(total, term)
            return as_expr(0) if total is None else total

        return te.compute(shape, linear if self.mode == "linear" else cubic, self.name)

    def _antialiased(
        self, x: te.Tensor, k: int, axis: Axis, shape: te.Shape, wider: DType
    ) -> te.Tensor:
        """Axis ``k`` by a filter as wide as the scale demands, from a table of weights."""
        start, taps, shrink = self._filter(_value(axis.scale))

        def first(i: Expr) -> Expr:
            return n.add(axis.between(i)[0], start)

        def weight(i: Expr, r: Expr) -> Expr:
            part = axis.between(i)[1]
            distance = n.mul(n.sub(f32(n.add(r, start)), part), f32(shrink))
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

        raw = te.compute((axis.out, taps), weight, "weights")
        sums = te.reduce("sum", (axis.out,), (taps,), lambda i, r: raw[i, r], "weight_sum")
        table = te.compute(
            raw.shape, lambda i, r: n.cast(n.div(raw[i, r], sums[i]), wider), "weights"
        )

        def element(*i: Expr) -> Expr:
            *out, r = i
            index = axis.clamp(n.add(first(out[k]), r))
            return n.mul(n.cast(x[(*out[:k], index, *out[k + 1 :])], wider), table[out[k], r])

        return te.reduce("sum", shape, (taps,), element, self.name)

    def _filter(self, scale: float) -> tuple[int, int, float]:
        """The first tap (0: just before the coordinate), how many, and a factor of distances."""
        shrink = min(scale, 1.0)
        reach = (1 if self.mode == "linear" else 2) / shrink
        start = math.floor(-reach) + 1
        return start, 2 - 2 * start, shrink

    # ------------------------------------------------------------------------------ reference

    def reference(self, x: Array) -> Array:
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
                matrix = self._matrix(place, size, factor)
                out = np.moveaxis(np.tensordot(matrix, out, (1, axis)), 0, axis)
            if self.coordinate == "tf_crop_and_resize":
                beyond = (place < 0) | (place > size - 1)
                outside = outside | beyond.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
        if self.roi:
            out = np.where(outside, self.extrapolation, out)
        return out.astype(x.dtype)

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

    def _matrix(self, place: Array, size: int, scale: np.float32) -> Array:
        """The weights of the input's elements in each of the output's."""
        shrink = min(float(scale), 1.0) if self.antialias else 1.0
        reach = math.ceil((1 if self.mode == "linear" else 2) / shrink) + 1
        matrix = np.zeros((len(place), size))
        for row, p in enumerate(place.astype(np.float64)):
            for at in range(math.floor(p) - reach, math.floor(p) + reach + 1):
                s = abs(at - p) * shrink
                if self.mode == "linear":
                    weight = max(0.0, 1 - s)
                elif s <= 1:
                    weight = (self.cubic_a + 2) * s**3 - (self.cubic_a + 3) * s**2 + 1
                else:
                    weight = self.cubic_a * (s**3 - 5 * s**2 + 8 * s - 4) if s < 2 else 0.0
                excluding = self.exclude_outside and (self.antialias or self.mode == "cubic")
                if excluding and not 0 <= at < size:
                    continue
                matrix[row, min(max(at, 0), size - 1)] += weight
        with np.errstate(invalid="ignore"):  # a row of no elements is outside of all
            return np.asarray(matrix / matrix.sum(1, keepdims=True))

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
    return np.asarray(np.clip(whole.astype(np.int64), 0, size - 1))
