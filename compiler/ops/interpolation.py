"""Where an element of a resized axis comes from: coordinates, nearest elements, weights.

All is for one axis, as expressions in the output's index. Coordinates are computed in float32, in
the order of operations of the ONNX specification; where the scale or its inverse is an integer they
are integer expressions without rounding, so that loads stay affine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, F64, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, Like
from planish.compiler.graph.ir import Array

COORDINATES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
NEAREST: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
_CHECKED: Final = 4096  # output elements that an integer form is compared at when sizes are symbols
_MOST: Final = 1 << 16  # of the scales whose coordinates are worked out in integers


def f32(value: Like) -> Expr:
    """A number or an integer expression in float32."""
    return n.cast(value, F32) if isinstance(value, Expr) else n.const(value, F32)


@dataclass(frozen=True)
class Axis:
    """One resized axis: its sizes, its scale (out / in, f32), and which coordinates are meant."""

    size: Expr
    out: Expr
    scale: Expr
    coordinate: str
    roi: tuple[Expr, Expr]

    def place(self, i: Expr) -> Expr:
        """The coordinate in the input, in float32, of output element ``i``."""
        x, size, out = f32(i), f32(self.size), f32(self.out)
        last = n.sub(size, f32(1))
        half = n.sub(n.div(n.add(x, f32(0.5)), self.scale), f32(0.5))
        match self.coordinate:
            case "half_pixel":
                return half
            case "half_pixel_symmetric":
                adjustment = n.div(out, n.mul(self.scale, size))
                centre = n.div(size, f32(2))
                offset = n.mul(centre, n.sub(f32(1), adjustment))
                # Beyond float32, since ties of the nearest element hang on the last place.
                x, scale, offset = (n.cast(e, F64) for e in (x, self.scale, offset))
                whole = n.div(n.add(x, 0.5), scale)
                return n.cast(n.sub(n.add(offset, whole), 0.5), F32)
            case "pytorch_half_pixel":
                return n.select(n.lt(1, self.out), half, f32(0))
            case "align_corners":
                place = n.div(n.mul(x, last), n.sub(out, f32(1)))
                return n.select(n.eq(self.out, 1), f32(0), place)
            case "asymmetric":
                return n.div(x, self.scale)
            case "tf_half_pixel_for_nn":
                shifted = n.div(n.add(x, f32(0.5)), self.scale)
                return n.select(n.eq(self.scale, f32(1.0)), x, shifted)
            case _:
                start, end = self.roi
                along = n.div(n.mul(n.mul(x, n.sub(end, start)), last), n.sub(out, f32(1)))
                middle = n.mul(n.mul(f32(0.5), n.add(start, end)), last)
                return n.select(n.lt(1, self.out), n.add(n.mul(start, last), along), middle)

    @property
    def ratio(self) -> tuple[int, int] | None:
        """The scale as (k, 1) or (1, k), if it is that and coordinates depend on nothing else."""
        if not isinstance(self.scale, Const):
            return None
        if self.coordinate in ("align_corners", "tf_crop_and_resize", "half_pixel_symmetric"):
            return None
        if self.coordinate == "pytorch_half_pixel" and n.lt(1, self.out) is not n.TRUE:
            return None
        scale = np.float32(self.scale.value)
        if 1 <= scale < _MOST and scale == np.round(scale):
            return int(scale), 1
        if 1 / _MOST < scale < 1:
            k = int(np.round(1 / scale))
            if np.float32(1) / np.float32(k) == scale:
                return 1, k
        return None

    def clamp(self, index: Expr, least: int | None = None, most: int | None = None) -> Expr:
        """``index`` moved into the axis; it is known to be from ``least`` to ``size + most``."""
        if most is None or most >= 0:
            index = n.minimum(index, n.sub(self.size, 1))
        return n.maximum(index, 0) if least is None or least < 0 else index

    # ---------------------------------------------------------------------------- nearest

    def nearest(self, i: Expr, rounding: str) -> Expr:
        """The element nearest to the coordinate of ``i``."""
        found = self._nearest_exactly(i, rounding)
        if found is not None:
            return found
        return self.clamp(n.cast(_round(self.place(i), rounding, self.scale), I64))

    def _nearest_exactly(self, i: Expr, rounding: str) -> Expr | None:
        """The same as an integer expression, if there is one."""
        ratio = self.ratio
        if ratio is None:
            return None
        known = isinstance(self.out, Const) and isinstance(self.size, Const)
        count = int(self.out.value) if known and isinstance(self.out, Const) else _CHECKED
        table = self._table(count, rounding, np.float32(ratio[0]) / np.float32(ratio[1]))
        up, down = ratio
        at = np.arange(count)
        for shift in range(-up - down, up + down + 1):
            guess = (at * down + shift) // up
            if not np.array_equal(guess, table):
                continue
            index = n.floordiv(n.add(n.mul(i, down), shift), up)
            inside = shift == 0 and down == 1 and self.out is n.mul(self.size, up)
            if known and isinstance(self.size, Const) and count:
                inside = bool(table.min() >= 0 and table.max() < int(self.size.value))
            return index if inside else self.clamp(index)
        return None

    def _table(self, count: int, rounding: str, scale: np.float32) -> Array:
        """The elements nearest to the first output elements, not moved into the axis."""
        x = np.arange(count, dtype=np.float32)
        match self.coordinate:
            case "asymmetric":
                place = x / scale
            case "tf_half_pixel_for_nn":
                place = (x + np.float32(0.5)) / scale if scale != 1 else x
            case _:
                place = (x + np.float32(0.5)) / scale - np.float32(0.5)
        below = np.floor(place)
        part = place - below
        match rounding:
            case "round_prefer_floor":
                place = below + (part > 0.5)
            case "round_prefer_ceil":
                place = below + (part >= 0.5)
            case "floor":
                place = below
            case "ceil":
                place = np.ceil(place)
            case _:
                place = np.ceil(place) if scale < 1 else np.trunc(place)
        return np.asarray(place.astype(np.int64))

    # ----------------------------------------------------------------------- between elements

    def between(self, i: Expr) -> tuple[Expr, Expr, tuple[int | None, int | None]]:
        """The element at or before the coordinate of ``i``, and how far (f32) that is beyond it.

        The element may lie outside the axis: its bounds, as for ``clamp``, come third.
        """
        ratio = self.ratio
        if ratio is not None and self.coordinate != "tf_half_pixel_for_nn":
            up, down = ratio
            offset = 0 if self.coordinate == "asymmetric" else down - up
            step, whole = 2 * down, 2 * up
            bounds = offset // whole, self._most(step, whole, offset)
            if step % whole == 0:
                index = n.add(n.mul(i, step // whole), offset // whole)
                return index, f32(offset % whole / whole), bounds
            numerator = n.add(n.mul(i, step), offset)
            part = n.div(f32(n.floormod(numerator, whole)), f32(whole))
            return n.floordiv(numerator, whole), part, bounds
        place = self.place(i)
        below = Call("floor", (place,), F32)
        return n.cast(below, I64), n.sub(place, below), (None, None)

    def at_element(self, part: Expr) -> Expr:
        """Whether a coordinate is that of an element, so that none of its neighbours matters.

        ``part`` is what ``between`` gives; of most integer scales no coordinate is one.
        """
        ratio = self.ratio
        if ratio is not None and self.coordinate not in ("asymmetric", "tf_half_pixel_for_nn"):
            up, down = ratio
            if (down - up) % math.gcd(2 * down, 2 * up):
                return n.FALSE
        return n.eq(part, f32(0))

    def _most(self, step: int, whole: int, offset: int) -> int | None:
        """What ``(i * step + offset) // whole`` is at most, less the axis' size."""
        if isinstance(self.out, Const) and isinstance(self.size, Const):
            last = int(self.out.value) - 1
            return (last * step + offset) // whole - int(self.size.value)
        up, down = whole // 2, step // 2
        if self.out is n.mul(self.size, up) or self.out is n.floordiv(self.size, down):
            return (offset - step) // whole
        return None


def _round(place: Expr, rounding: str, scale: Expr) -> Expr:
    below = Call("floor", (place,), F32)
    part = n.sub(place, below)
    above = n.add(below, f32(1))
    match rounding:
        case "round_prefer_floor":
            return n.select(n.lt(f32(0.5), part), above, below)
        case "round_prefer_ceil":
            return n.select(n.le(f32(0.5), part), above, below)
        case "floor":
            return below
        case "ceil":
            return Call("ceil", (place,), F32)
        case _:
            down = n.lt(scale, f32(1))
            return n.select(down, Call("ceil", (place,), F32), Call("trunc", (place,), F32))


def cubic_weight(distance: Expr, a: float) -> Expr:
    """The weight of an element at a distance >= 0: Keys's cubic with parameter ``a``."""
    s = distance

    def c(value: float) -> Expr:
        return n.const(value, s.dtype)

    near = n.add(n.mul(n.mul(n.sub(n.mul(c(a + 2), s), c(a + 3)), s), s), c(1))
    far = n.mul(c(a), s)
    far = n.mul(n.sub(far, c(5 * a)), s)
    far = n.sub(n.mul(n.add(far, c(8 * a)), s), c(4 * a))
    return n.select(n.le(s, c(1)), near, n.select(n.lt(s, c(2)), far, c(0)))


def linear_weight(distance: Expr) -> Expr:
    """The weight of an element at a distance >= 0 from the coordinate; 0 from 1 on."""
    return n.maximum(n.sub(n.const(1, distance.dtype), distance), n.const(0, distance.dtype))


def is_inside(place: Expr, size: Expr) -> Expr:
    """Whether a coordinate lies between the axis' first and last elements."""
    return n.all_of(n.le(f32(0), place), n.le(place, n.sub(f32(size), f32(1))))


__all__ = [
    "COORDINATES", "NEAREST", "Axis", "cubic_weight", "f32", "is_inside", "linear_weight",
]  # fmt: skip
