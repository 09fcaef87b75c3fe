"""Windows that slide over the spatial axes of a tensor: for convolutions and pooling.

Along an axis of ``size`` elements, padded by ``begin`` and ``end``, window ``o`` covers elements
``o * stride - begin + k * dilation`` for ``k < kernel``. Pads may be expressions over symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import DType
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Like, Scalar, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op

Dim: TypeAlias = int | Expr
MOST: Final = (1 << 31) - 1  # of an attribute: products of two, and a few sums, fit in 64 bits


def type_of(x: te.Tensor) -> TensorType:
    """The dtype and shape of a tensor."""
    return TensorType(x.dtype, x.shape)


def number(dim: Dim) -> int:
    """A dimension that must be known by now."""
    e = as_expr(dim)
    if not isinstance(e, Const):
        raise InternalError("a symbol has no value here", node=str(e))
    return int(e.value)


def is_zero(dim: Dim) -> bool:
    """Whether a dimension is certainly 0."""
    e = as_expr(dim)
    return isinstance(e, Const) and e.value == 0


def wide(dtype: DType) -> DType:
    """The dtype to accumulate in."""
    return dtype.computed if dtype.is_float else dtype


def plus(dim: Expr, amount: Like) -> Expr:
    """``dim + amount`` with the constants of a sum collected."""
    if isinstance(dim, n.Add) and isinstance(dim.rhs, Const) and isinstance(as_expr(amount), Const):
        return n.add(dim.lhs, n.add(dim.rhs, amount))
    return n.add(dim, amount)


def reach(kernel: Dim, dilation: int) -> Expr:
    """Elements from a window's first to its last, both counted."""
    return plus(n.mul(n.sub(as_expr(kernel), 1), dilation), 1)


def ceildiv(a: Expr, b: int) -> Expr:
    """``a / b`` rounded up."""
    return n.floordiv(plus(a, b - 1), b)


def extent(
    op: Op,
    size: Expr,
    kernel: Dim,
    stride: int,
    dilation: int,
    pads: tuple[Dim, Dim],
    ceil_mode: bool = False,
) -> Expr:
    """How many windows there are along an axis.

    With ``ceil_mode`` a window may hang over the end, if it begins before it.
    Errors: TypeCheckError if there is no room for one; a condition is assumed where symbols decide.
    """
    begin, end = map(as_expr, pads)
    padded = plus(size, n.add(begin, end))
    span = reach(kernel, dilation)
    fits = n.le(span, padded)
    if ceil_mode:
        fits = n.all_of(n.le(1, plus(size, begin)), n.lt(plus(span, -stride), padded))
    if isinstance(fits, Const) and not fits.value:
        raise op.fail(
            f"a window of {span} does not fit into {size} elements padded by {begin} and {end}"
        )
    assume(fits)
    room = plus(padded, n.sub(0, span)) if isinstance(span, Const) else n.sub(padded, span)
    if not ceil_mode:
        return n.floordiv(plus(room, stride), stride)
    return n.minimum(ceildiv(plus(room, stride), stride), ceildiv(plus(size, begin), stride))


def same_pads(
    size: Expr, kernel: Dim, stride: int, dilation: int, upper: bool, cuts: bool = False
) -> tuple[Dim, Dim]:
    """The pads for ``ceil(size / stride)`` windows; an odd one is at the end if ``upper``.

    If windows leave gaps, pads are 0, or negative (elements are cut off) with ``cuts``.
    """
    span = reach(kernel, dilation)
    if stride == 1:
        total = n.sub(span, 1)
    else:
        last = n.mul(n.sub(ceildiv(size, stride), 1), stride)
        total = n.sub(n.add(last, span), size)
        if not cuts:
            total = n.maximum(total, 0)
    half = n.div if cuts else n.floordiv
    begin = half(total if upper else n.add(total, 1), as_expr(2))
    return plain(begin), plain(n.sub(total, begin))


def plain(e: Expr) -> Dim:
    """A constant as a number."""
    return int(e.value) if isinstance(e, Const) else e


def pad(x: te.Tensor, first: int, pads: Sequence[tuple[Dim, Dim]], fill: Scalar) -> te.Tensor:
    """``x`` with its axes from ``first`` on padded (cut, where pads are negative)."""
    if all(is_zero(p) for pair in pads for p in pair):
        return x
    shape = list(x.shape)
    for k, (begin, end) in enumerate(pads, first):
        shape[k] = plus(shape[k], n.add(as_expr(begin), as_expr(end)))

    def element(*axes: Expr) -> Expr:
        index, inside = list(axes), []
        for k, (begin, end) in enumerate(pads, first):
            index[k] = n.sub(axes[k], as_expr(begin))
            if not _cuts(begin):
                inside.append(n.le(as_expr(begin), axes[k]))
            if not _cuts(end):
                inside.append(n.lt(axes[k], n.add(as_expr(begin), x.shape[k])))
        return n.select(n.all_of(*inside), x[tuple(index)], n.const(fill, x.dtype))

    return te.compute(shape, element, "padded")


def _cuts(p: Dim) -> bool:
    """Whether a pad certainly adds nothing."""
    return isinstance(p, int) and p <= 0 or is_zero(p)


def pairs(pads: tuple[Dim, ...]) -> list[tuple[Dim, Dim]]:
    """Pads in ONNX's order (begins, then ends) as one pair for each axis."""
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


def check_geometry(op: Op, rank: int, **attributes: Sequence[Dim]) -> None:
    """Check that per-axis attributes have the right length and values.

    Errors: TypeCheckError naming the attribute.
    """
    for what, values in attributes.items():
        expected = 2 * rank if what == "pads" else rank
        if len(values) != expected:
            raise op.fail(f"{what} {tuple(values)} has {len(values)} numbers, not {expected}")
        check_most(op, what, values)
        if what in ("pads", "output_padding"):
            continue
        for v in values:
            if isinstance(v, int) and v < 1:
                raise op.fail(f"{what} {tuple(values)} must be at least 1")


def check_most(op: Op, what: str, values: Sequence[Dim]) -> None:
    """Check that numbers of elements are none that arithmetic on places cannot hold.

    Errors: TypeCheckError naming the attribute.
    """
    for v in map(as_expr, values):
        if isinstance(v, Const) and not -MOST <= v.value <= MOST:
            raise op.fail(f"{what}: {v} is beyond {MOST}")


def narrowed(x: te.Tensor, dtype: DType) -> te.Tensor:
    """``x`` rounded to ``dtype``; ``x`` itself if it is that."""
    if x.dtype is dtype:
        return x
    return te.compute(x.shape, lambda *i: n.cast(x[i], dtype), "rounded")


def padded_array(x: Array, first: int, pads: Sequence[tuple[Dim, Dim]], fill: Scalar) -> Array:
    """``pad`` by numpy."""
    for k, (begin, end) in enumerate(pads, first):
        begin, end = number(begin), number(end)
        widths = [(0, 0)] * x.ndim
        widths[k] = max(begin, 0), max(end, 0)
        x = np.pad(x, widths, constant_values=np.asarray(fill).astype(x.dtype))
        x = np.moveaxis(np.moveaxis(x, k, 0)[max(-begin, 0) : x.shape[k] - max(-end, 0)], 0, k)
    return x


def trailing(x: Array, index: Sequence[Any]) -> Array:
    """``x[..., *index]``, as a view where numpy gives one."""
    return np.asarray(x[(Ellipsis, *index)])


def wide_array(x: Array) -> Array:
    """Floats in float64, integers as they are: for references."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)
