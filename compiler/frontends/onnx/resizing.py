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
from planish.compiler.ops.resize import Resize
from planish.compiler.ops.windows import Dim, plain

from .reader import NodeReader, handles

# The greatest numerator and denominator of a scale that is taken as the fraction that it is.
_SIMPLE: Final = 1 << 10


@handles("Upsample", 7, 9, 10)
def upsample(r: NodeReader) -> Value:
    """Scales are an attribute in version 7, an input since 9."""
    if r.version < 9:
        r.input(0)
        scales = [float(s) for s in r.required("scales")]
    else:
        scales = _floats(r, 1, "scales")
    return _simple(r, scales)


@handles("Resize", 10, 11, 13, 18, 19)
def resize(r: NodeReader) -> Value:
    """Coordinates and sizes since version 11; axes, antialias and the policy since 18."""
    if r.version == 10:
        return _simple(r, _floats(r, 1, "scales"))
    x = r.input(0)
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
    roi = _floats(r, 1, "roi") if _given(r, 1) and crop else []
    if crop and len(roi) != 2 * len(axes):
        raise r.fail(f"roi {roi} must have {2 * len(axes)} numbers")
    old = [x.type.shape[a] for a in axes]
    sizes, scales = _targets(r, old, roi, policy)
    fields = _changing(axes, old, sizes, scales, roi)
    op = Resize(
        *fields[:3],
        mode=r.attribute("mode", "nearest"),
        coordinate=coordinate,
        rounding=r.attribute("nearest_mode", "round_prefer_floor"),
        cubic_a=float(r.attribute("cubic_coeff_a", -0.75)),
        exclude_outside=bool(r.attribute("exclude_outside", 0)),
        antialias=antialias,
        roi=fields[3],
        extrapolation=float(r.attribute("extrapolation_value", 0.0)),
    )
    return r.one(op, x) if fields[0] else x


def _simple(r: NodeReader, scales: list[float]) -> Value:
    """The forms before Resize-11: coordinates are divided by the scale."""
    x = r.input(0)
    if len(scales) != x.type.rank:
        raise r.fail(f"scales {scales} must have {x.type.rank} numbers")
    mode = r.attribute("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise r.fail(f"mode {mode} does not exist")
    old = list(x.type.shape)
    sizes = [_scaled(r, d, s) for d, s in zip(old, scales, strict=True)]
    fields = _changing(tuple(range(x.type.rank)), old, sizes, scales, [])
    op = Resize(*fields[:3], mode=mode, coordinate="asymmetric", rounding="simple")
    return r.one(op, x) if fields[0] else x


def _given(r: NodeReader, index: int) -> bool:
    """Whether an input is there; an empty tensor stands for one that is left out."""
    value = r.optional(index)
    return value is not None and value.type.size != 0


def _floats(r: NodeReader, index: int, what: str) -> list[float]:
    array = r.array(index)
    if array is None:
        raise r.fail(
            f"{what} (input {index}, {r.input(index)!r}) must be constant",
            hint="give sizes, which may follow from shapes",
        )
    return [float(v) for v in np.asarray(array, np.float32).ravel()]


def _targets(
    r: NodeReader, old: list[Expr], roi: list[float], policy: str
) -> tuple[list[Dim], list[float | Expr]]:
    """The new size of each axis and its scale."""
    if _given(r, 2) == _given(r, 3):
        raise r.fail("needs either scales or sizes")
    if not _given(r, 3):
        given = _floats(r, 2, "scales")
        if len(given) != len(old):
            raise r.fail(f"scales {given} must have {len(old)} numbers")
        kept = [roi[k + len(old)] - roi[k] for k in range(len(old))] if roi else [1.0] * len(old)
        sizes = [
            _scaled(r, d, s if part == 1 else float(np.float32(s) * np.float32(part)))
            for d, s, part in zip(old, given, kept, strict=True)
        ]
        return sizes, list(given)
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
