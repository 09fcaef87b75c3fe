"""Resize and Upsample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Like, Mul, as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.resize import Resize, ResizedSize
from planish.compiler.ops.windows import Dim, plain

from .nn import step
from .reader import NodeReader, handles

# The greatest numerator and denominator of a scale that is taken as the fraction that it is.
_SIMPLE: Final = 1 << 10
_MOST: Final = 1 << 62  # elements of an axis


@handles("Upsample", 1, 7, 9, 10)
def upsample(r: NodeReader) -> Value:
    """Scales are two attributes in version 1, one in 7, an input since 9."""
    x = r.input(0)
    if r.version == 1:
        if x.type.rank != 4:
            raise r.fail(f"{x!r} must have four axes")
        height, width = (float(r.required(f"{side}_scale")) for side in ("height", "width"))
        return _simple(r, [1.0, 1.0, height, width])
    if r.version < 9:
        return _simple(r, [float(s) for s in r.required("scales")])
    return _simple(r, _floats(r, 1))


@handles("Resize", 10, 11, 13, 18, 19)
def resize(r: NodeReader) -> Value:
    """Coordinates and sizes since version 11; axes, antialias and the policy since 18."""
    x = r.input(0)
    if r.version == 10:
        return _simple(r, _floats(r, 1))
    rank = x.type.rank
    axes = tuple(range(rank))
    policy, antialias = "stretch", False
    if r.version >= 18:
        axes = tuple(int(a) for a in r.attribute("axes") or axes)
        if not all(-rank <= a < rank for a in axes):
            raise r.fail(f"axes {list(axes)} are out of range for {x!r}")
        axes = tuple(a % rank for a in axes)
        policy = r.attribute("keep_aspect_ratio_policy", "stretch")
        antialias = bool(r.attribute("antialias", 0))
    coordinate = r.attribute("coordinate_transformation_mode", "half_pixel")
    crop = coordinate == "tf_crop_and_resize"
    given = _given(r, 1)
    if crop and not given:
        raise r.fail("tf_crop_and_resize needs a roi")
    roi = _floats(r, 1) if crop else []
    if crop and _count(roi) != 2 * len(axes):
        raise r.fail(f"roi {roi} must have {2 * len(axes)} numbers")
    old = [x.type.shape[a] for a in axes]
    sizes, scales = _targets(r, old, policy)
    new = tuple(sizes)
    known_scales = () if isinstance(scales, Value) else tuple(scales)
    known_roi = () if isinstance(roi, Value) else tuple(roi)
    if not isinstance(roi, Value) and not isinstance(scales, Value):
        axes, new, known_scales, known_roi = _changing(axes, old, sizes, scales, roi)
    op = Resize(
        axes,
        new,
        known_scales,
        mode=r.attribute("mode", "nearest"),
        coordinate=coordinate,
        rounding=r.attribute("nearest_mode", "round_prefer_floor"),
        cubic_a=float(r.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=bool(r.attribute("exclude_outside", 0)),
        antialias=antialias,
        roi=known_roi,
        extrapolation=float(r.attribute("extrapolation_value", 0.0)),
    )
    op.check_names()  # even if nothing changes
    return r.one(op, x, *_inputs(scales, roi)) if op.axes else x


def _simple(r: NodeReader, scales: list[float] | Value) -> Value:
    """The forms before Resize-11: coordinates are divided by the scale."""
    x = r.input(0)
    if _count(scales) != x.type.rank:
        raise r.fail(f"scales {scales} must have {x.type.rank} numbers")
    mode = r.attribute("mode", "nearest")
    if mode not in ("nearest", "bilinear" if r.version == 1 else "linear"):
        raise r.fail(f"mode {mode} does not exist")
    mode = "linear" if mode == "bilinear" else mode
    old, axes = list(x.type.shape), tuple(range(x.type.rank))
    if isinstance(scales, Value):
        new = _by_scales(r, old, scales)
        op = Resize(axes, new, (), mode=mode, coordinate="asymmetric", rounding="simple")
        return r.one(op, x, scales)
    sizes = [_scaled(r, d, s) for d, s in zip(old, scales, strict=True)]
    fields = _changing(axes, old, sizes, scales, [])
    op = Resize(*fields[:3], mode=mode, coordinate="asymmetric", rounding="simple")
    return r.one(op, x) if op.axes else x


def _inputs(scales: Sequence[float | Expr] | Value, roi: list[float] | Value) -> list[Value | None]:
    """What the operator takes beside x: numbers that are not known."""
    found = [v if isinstance(v, Value) else None for v in (scales, roi)]
    while found and found[-1] is None:
        found.pop()
    return found


def _count(numbers: list[float] | Value) -> int | None:
    return numbers.type.size if isinstance(numbers, Value) else len(numbers)


def _given(r: NodeReader, index: int) -> bool:
    """Whether an input is there; an empty tensor stands for one that is left out."""
    value = r.optional(index)
    return value is not None and value.type.size != 0


def _floats(r: NodeReader, index: int) -> list[float] | Value:
    """An input's numbers if they are known, else the input in float32."""
    array, value = r.array(index), r.input(index)
    if array is not None:
        return [float(v) for v in np.asarray(array, np.float32).ravel()]
    return value if value.type.dtype is F32 else step(r, Cast(F32), value)


def _by_scales(r: NodeReader, old: Sequence[Expr], scales: Value) -> tuple[Dim, ...]:
    """The sizes that scales which are data give."""
    return tuple(
        r.symbol(step(r, ResizedSize(d, k), scales), f"new size {k}") for k, d in enumerate(old)
    )


def _targets(
    r: NodeReader, old: list[Expr], policy: str
) -> tuple[list[Dim], list[float | Expr] | Value]:
    """The new size of each axis and its scale.

    Which part of x a roi cuts out does not change the size: so do other runtimes, and ONNX's own
    inference of shapes, though its text multiplies by the part.
    """
    if _given(r, 2) == _given(r, 3):
        raise r.fail("needs either scales or sizes")
    if not _given(r, 3):
        given = _floats(r, 2)
        if _count(given) != len(old):
            raise r.fail(f"scales {given} must have {len(old)} numbers")
        if isinstance(given, Value):
            return list(_by_scales(r, old, given)), given
        return [_scaled(r, d, s) for d, s in zip(old, given, strict=True)], list(given)
    wanted = r.content(3, "sizes")
    if len(wanted) != len(old):
        raise r.fail(f"sizes {wanted} must have {len(old)} numbers")
    ratios = [_ratio(size, d) for size, d in zip(wanted, old, strict=True)]
    if policy == "stretch":
        return [plain(size) for size in wanted], ratios
    if policy not in ("not_larger", "not_smaller"):
        raise r.fail(f"keep_aspect_ratio_policy {policy} does not exist")
    pick = n.minimum if policy == "not_larger" else n.maximum
    if any(n.eq(d, 0) is n.TRUE for d in old):
        raise r.fail(f"{r.input(0)!r} has an axis of no elements, whose aspect cannot be kept")
    common: Expr | float = ratios[0]
    for ratio in ratios[1:]:
        common = _number(pick(_expr(common), _expr(ratio)))
    return [_rounded(d, wanted, old, pick) for d in old], [common] * len(old)


def _expr(scale: float | Expr) -> Expr:
    return scale if isinstance(scale, Expr) else n.const(scale, F32)


def _number(e: Expr) -> float | Expr:
    return float(e.value) if isinstance(e, Const) else e


def _ratio(size: Expr, old: Expr) -> float | Expr:
    """The scale from an old to a new size."""
    if size is old:
        return 1.0
    match size:
        case Mul(factor, Const(k)) if factor is old:
            return float(k)
        case Mul(Const(k), factor) if factor is old:
            return float(k)
    if isinstance(old, Const) and old.value == 0:
        return 1.0  # refused by the operator, unless the new size is 0 too
    return _number(n.div(n.cast(size, F32), n.cast(old, F32)))


def _scaled(r: NodeReader, old: Expr, scale: float) -> Dim:
    """``floor(old * scale)``, as float32 gives it (nearly, if ``old`` is a symbol)."""
    if not (scale > 0 and math.isfinite(scale)):
        raise r.fail(f"scale {scale} must be positive")
    if scale >= _MOST or (isinstance(old, Const) and old.value * scale >= _MOST):
        raise r.fail(f"an axis of {old} elements, by the scale {scale}, is larger than any memory")
    if isinstance(old, Const):
        return int(np.floor(np.float32(old.value) * np.float32(scale)))
    exact = Fraction(scale)
    if scale < 1:
        inverse = Fraction(1, round(1 / scale))
        exact = inverse if np.float32(float(inverse)) == np.float32(scale) else exact
    if max(exact.numerator, exact.denominator) > _SIMPLE:
        # A product rounds up to an integer if it lacks half a unit in the last place: so does this,
        # but for some products that lack a little more. Sizes are integer expressions.
        exact += Fraction(float(np.spacing(np.float32(scale)))) / 2
    return n.floordiv(n.mul(old, exact.numerator), exact.denominator)


def _rounded(
    old: Expr, sizes: Sequence[Expr], olds: Sequence[Expr], pick: Callable[[Like, Like], Expr]
) -> Dim:
    """``old`` by the ratio of size to old size that ``pick`` chooses, to the nearest, halves up."""
    out: Expr | None = None
    for size, d in zip(sizes, olds, strict=True):
        doubled = n.add(n.mul(n.mul(size, old), 2), d)
        scaled = n.floordiv(doubled, n.mul(d, 2))
        out = scaled if out is None else pick(out, scaled)
    return plain(old if out is None else out)


def _changing(
    axes: tuple[int, ...],
    old: list[Expr],
    sizes: list[Dim],
    scales: list[float] | list[float | Expr],
    roi: list[float],
) -> tuple[tuple[int, ...], tuple[Dim, ...], tuple[float | Expr, ...], tuple[float, ...]]:
    """The axes that do not stay as they are, with their sizes, scales and roi."""
    kept = [
        k
        for k, (d, size, scale) in enumerate(zip(old, sizes, scales, strict=True))
        if as_expr(size) is not d
        or scale != 1.0
        or (roi and (roi[k], roi[k + len(axes)]) != (0.0, 1.0))
    ]
    return (
        tuple(axes[k] for k in kept),
        tuple(sizes[k] for k in kept),
        tuple(scales[k] for k in kept),
        tuple(roi[k + half] for half in (0, len(axes)) for k in kept) if roi else (),
    )
