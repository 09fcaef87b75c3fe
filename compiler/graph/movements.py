"""Canonical forms of operators that move elements: no idle ones, and one for two in a row.

Views come first, then slices, then transposes: a chain of them is brought into this order where it
can be, so that readers find a stored value behind one slice and one transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, divide, normal, volume
from planish.compiler.ops.base import is_one
from planish.compiler.ops.convolution import Conv
from planish.compiler.ops.indexing import Gather, GatherND, Slice
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.shape import Concat, Expand, Reshape, Split, Tile, Transpose

from .ir import Node, Replacement, Value
from .match import Rules, Site, same_shape

MOVEMENTS: Final = Rules("movements")

Shape = Sequence[Expr]


def part(s: Site, x: Value, axis: int, start: Expr, size: Expr) -> Value:
    """Consecutive slices of ``x`` along an axis."""
    rank = x.type.rank
    starts = tuple(start if k == axis else as_expr(0) for k in range(rank))
    shape = tuple(size if k == axis else d for k, d in enumerate(x.type.shape))
    return s.make(Slice(starts, (1,) * rank, shape), x)


# -------------------------------------------------------------------------- reshape, transpose


@MOVEMENTS.rule("reshape")
def reshape_to_own(s: Site, node: Node) -> Replacement:
    """reshape(x, its own shape) -> x"""
    x = node.inputs[0]
    assert x is not None
    return x if same_shape(x.type.shape, node.outputs[0].type.shape) else None


@MOVEMENTS.rule("reshape")
def reshape_again(s: Site, node: Node) -> Replacement:
    """reshape(reshape(x)) -> reshape(x)"""
    inner = s.maker(node.inputs[0], "reshape")
    return None if inner is None else s.make(node.op, inner.inputs[0])


@MOVEMENTS.rule("transpose")
def transpose_nothing(s: Site, node: Node) -> Replacement:
    """transpose(x, in order) -> x; a reshape, if only axes of extent 1 change places"""
    assert isinstance(node.op, Transpose)
    x = node.inputs[0]
    assert x is not None
    moved = [k for k in node.op.perm if not is_one(x.type.shape[k])]
    if moved != sorted(moved):
        return None
    shape = node.outputs[0].type.shape
    return x if same_shape(shape, x.type.shape) else s.make(Reshape(shape), x)


@MOVEMENTS.rule("transpose")
def transpose_again(s: Site, node: Node) -> Replacement:
    """transpose(transpose(x)) -> transpose(x)"""
    inner = s.maker(node.inputs[0], "transpose")
    if inner is None:
        return None
    assert isinstance(node.op, Transpose) and isinstance(inner.op, Transpose)
    return s.make(Transpose(tuple(inner.op.perm[k] for k in node.op.perm)), inner.inputs[0])


@MOVEMENTS.rule("reshape", "transpose", "slice", "expand", "tile")
def movement_of_one_number(s: Site, node: Node) -> Replacement:
    """slice(constant_of_shape) -> constant_of_shape, and so for other movements"""
    inner = s.maker(node.inputs[0], "constant_of_shape")
    if inner is None:
        return None
    return s.make(replace(inner.op, shape=node.outputs[0].type.shape))  # type: ignore[call-arg]


# ------------------------------------------------------------------------------ slices, splits


@MOVEMENTS.rule("split")
def split_to_slices(s: Site, node: Node) -> Replacement:
    """split(x) -> slices, each of which is read where it is needed"""
    assert isinstance(node.op, Split)
    x = node.inputs[0]
    assert x is not None
    axis = node.op.resolve_axis(node.op.axis, x.type.rank)
    outs = []
    start: Expr = as_expr(0)
    for size in node.op.sizes:
        outs.append(part(s, x, axis, start, size))
        start = normal(start + size)
    return tuple(outs)


@MOVEMENTS.rule("slice")
def slice_everything(s: Site, node: Node) -> Replacement:
    """slice(x, all of it) -> x"""
    assert isinstance(node.op, Slice)
    x = node.inputs[0]
    assert x is not None
    if any(step != 1 for step in node.op.steps):
        return None
    return x if same_shape(x.type.shape, node.outputs[0].type.shape) else None


@MOVEMENTS.rule("slice")
def slice_again(s: Site, node: Node) -> Replacement:
    """slice(slice(x)) -> slice(x)"""
    inner = s.maker(node.inputs[0], "slice")
    if inner is None:
        return None
    assert isinstance(node.op, Slice) and isinstance(inner.op, Slice)
    starts = tuple(
        normal(a + b * step)
        for a, step, b in zip(inner.op.starts, inner.op.steps, node.op.starts, strict=True)
    )
    steps = tuple(a * b for a, b in zip(inner.op.steps, node.op.steps, strict=True))
    return s.make(Slice(starts, steps, node.op.shape), inner.inputs[0])


@MOVEMENTS.rule("slice")
def slice_of_concat(s: Site, node: Node) -> Replacement:
    """slice(concat(x, y)) -> slice(y), if it lies in y"""
    inner = s.maker(node.inputs[0], "concat")
    if inner is None:
        return None
    assert isinstance(node.op, Slice) and isinstance(inner.op, Concat)
    axis = inner.op.axis_of(node.outputs[0].type.rank)
    start, size = node.op.starts[axis], node.op.shape[axis]
    if node.op.steps[axis] != 1:
        return None
    low: Expr = as_expr(0)
    for x in inner.operands:
        high = normal(low + x.type.shape[axis])
        if at_least(start, low) and at_least(high, start + size):
            starts = list(node.op.starts)
            starts[axis] = normal(start - low)
            return s.make(replace(node.op, starts=tuple(starts)), x)
        low = high
    return None


@MOVEMENTS.rule("reshape")
def reshape_of_slice(s: Site, node: Node) -> Replacement:
    """reshape(slice(x)) -> slice(reshape(x)), so that the view is one of memory"""
    inner = s.maker(node.inputs[0], "slice")
    if inner is None:
        return None
    assert isinstance(inner.op, Slice)
    x = inner.inputs[0]
    assert x is not None
    new = _sliced_view(inner.op, x.type.shape, node.outputs[0].type.shape)
    if new is None:
        return None
    shape, op = new
    return s.make(op, s.make(Reshape(shape), x))


def _sliced_view(op: Slice, whole: Shape, shape: Shape) -> tuple[tuple[Expr, ...], Slice] | None:
    """A view of the whole and a slice of it that are the slice seen as ``shape``.

    The cut axis must become one axis of the new shape, whole or as its outer part.
    """
    cut = [k for k, d in enumerate(whole) if not same_shape((d,), (op.shape[k],))]
    if len(cut) != 1 or any(step != 1 for step in op.steps):
        return None
    (axis,) = cut
    before, after = volume(op.shape[:axis]), volume(op.shape[axis + 1 :])
    at = _axis_behind(before, shape, is_one(op.shape[axis]))
    if at is None:
        return None
    inner = divide(volume(shape[at + 1 :]), after)
    if inner is None or not isinstance(inner, Const) or inner.value == 0:
        return None
    size, extent, start = (divide(d, inner) for d in (op.shape[axis], whole[axis], op.starts[axis]))
    if size is None or extent is None or start is None or not same_shape((size,), (shape[at],)):
        return None
    view = (*shape[:at], extent, *shape[at + 1 :])
    starts = tuple(start if k == at else as_expr(0) for k in range(len(shape)))
    return view, Slice(starts, (1,) * len(shape), tuple(shape))


def _axis_behind(before: Expr, shape: Shape, one: bool) -> int | None:
    """The first axis behind ``before`` elements that has extent 1, or that has not."""
    total: Expr = as_expr(1)
    for k, d in enumerate(shape):
        if is_one(d) == one and same_shape((total,), (before,)):
            return k
        total = normal(total * d)
    return None


@MOVEMENTS.rule("gather")
def gather_to_slice(s: Site, node: Node) -> Replacement:
    """gather(x, known consecutive places) -> slice(x), reshaped"""
    assert isinstance(node.op, Gather)
    x, where = node.inputs
    indices = s.array(where)
    if x is None or indices is None or not 0 < indices.size <= 4096:
        return None
    axis = node.op.resolve_axis(node.op.axis, x.type.rank)
    extent = x.type.shape[axis]
    places = indices.reshape(-1).astype(np.int64)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    if step == 0 or not (np.diff(places) == step).all():
        return None
    first, last = int(places[0]), int(places[-1])
    if (first < 0) != (last < 0):
        return None
    start = as_expr(first) if first >= 0 else normal(extent + first)
    if not at_least(extent, max(first, last) + 1 if first >= 0 else -min(first, last)):
        return None
    rank = x.type.rank
    op = Slice(
        tuple(start if k == axis else as_expr(0) for k in range(rank)),
        tuple(step if k == axis else 1 for k in range(rank)),
        tuple(as_expr(places.size) if k == axis else d for k, d in enumerate(x.type.shape)),
    )
    return s.make(Reshape(node.outputs[0].type.shape), s.make(op, x))


@MOVEMENTS.rule("gather_nd")
def gather_all(s: Site, node: Node) -> Replacement:
    """gather_nd(x, all places in order) -> reshape(x)"""
    assert isinstance(node.op, GatherND)
    x, where = node.inputs
    indices = s.array(where)
    if x is None or indices is None or node.op.batch_dims or indices.size == 0:
        return None
    length = indices.shape[-1]
    shape = x.type.shape[:length]
    if not all(isinstance(d, Const) for d in shape):
        return None
    sizes = [int(d.value) for d in shape if isinstance(d, Const)]
    if int(np.prod(sizes)) != indices.size // length:
        return None
    places = indices.reshape(-1, length).astype(np.int64)
    flat = np.zeros(len(places), np.int64)
    for k, size in enumerate(sizes):
        column = np.where(places[:, k] < 0, places[:, k] + size, places[:, k])
        flat = flat * size + column.clip(0, size - 1)
    if not (flat == np.arange(len(flat))).all():
        return None
    return s.make(Reshape(node.outputs[0].type.shape), x)


# ---------------------------------------------------------------- concat, pad, expand and tile


@MOVEMENTS.rule("concat")
def concat_one(s: Site, node: Node) -> Replacement:
    """concat(x) -> x; parts without elements go"""
    assert isinstance(node.op, Concat)
    axis = node.op.axis_of(node.outputs[0].type.rank)
    parts = [v for v in node.operands if not _is_empty(v, axis)]
    if len(parts) == 1:
        return parts[0]
    return None if len(parts) in (0, len(node.inputs)) else s.make(node.op, *parts)


def _is_empty(v: Value, axis: int) -> bool:
    d = v.type.shape[axis]
    return isinstance(d, Const) and d.value == 0


@MOVEMENTS.rule("concat")
def concat_of_concat(s: Site, node: Node) -> Replacement:
    """concat(concat(x, y), z) -> concat(x, y, z)"""
    assert isinstance(node.op, Concat)
    rank = node.outputs[0].type.rank
    axis = node.op.axis_of(rank)
    parts: list[Value] = []
    for v in node.operands:
        inner = s.maker(v, "concat")
        joined = inner is not None and isinstance(inner.op, Concat) and s.alone(v)
        if inner is not None and joined and inner.op.axis_of(rank) == axis:  # type: ignore[attr-defined]
            parts.extend(inner.operands)
        else:
            parts.append(v)
    return None if len(parts) == len(node.inputs) else s.make(node.op, *parts)


@MOVEMENTS.rule("concat")
def concat_of_parts(s: Site, node: Node) -> Replacement:
    """concat(all slices of x, in order) -> x"""
    assert isinstance(node.op, Concat)
    axis = node.op.axis_of(node.outputs[0].type.rank)
    source: Value | None = None
    at: Expr = as_expr(0)
    for v in node.operands:
        inner = s.maker(v, "slice")
        if inner is None or not isinstance(inner.op, Slice):
            return None
        x = inner.inputs[0]
        assert x is not None
        if source not in (None, x) or any(step != 1 for step in inner.op.steps):
            return None
        source = x
        for k, start in enumerate(inner.op.starts):
            if not same_shape((start,), (at if k == axis else as_expr(0),)):
                return None
        at = normal(at + inner.op.shape[axis])
    if source is None or not same_shape(source.type.shape, node.outputs[0].type.shape):
        return None
    return source


@MOVEMENTS.rule("pad")
def pad_nothing(s: Site, node: Node) -> Replacement:
    """pad(x, nothing) -> x"""
    assert isinstance(node.op, Pad)
    zero = as_expr(0)
    if all(same_shape((d,), (zero,)) for d in (*node.op.before, *node.op.after)):
        return node.inputs[0]
    return None


@MOVEMENTS.rule("conv")
def pad_in_front(s: Site, node: Node) -> Replacement:
    """conv(pad(x, zeros)) -> conv(x, with these pads)"""
    assert isinstance(node.op, Conv)
    inner = s.maker(node.inputs[0], "pad")
    if inner is None or not isinstance(inner.op, Pad) or inner.op.mode != "constant":
        return None
    given = inner.inputs[1] if len(inner.inputs) > 1 else None
    if (inner.op.fill if given is None else s.scalar(given)) != 0:
        return None
    rank = len(node.op.strides)
    first = 1 if node.op.channels_last else 2
    sides = list(zip(inner.op.before, inner.op.after, strict=True))
    spatial = sides[first : first + rank]
    others = [p for k, p in enumerate(sides) if not first <= k < first + rank]
    if not all(isinstance(d, Const) and d.value == 0 for p in others for d in p):
        return None
    if not all(isinstance(d, Const) and d.value >= 0 for p in spatial for d in p):
        return None
    begins = [_plus(p, b) for p, (b, _) in zip(node.op.pads[:rank], spatial, strict=True)]
    ends = [_plus(p, e) for p, (_, e) in zip(node.op.pads[rank:], spatial, strict=True)]
    return s.make(replace(node.op, pads=(*begins, *ends)), inner.inputs[0], *node.inputs[1:])


def _plus(a: int | Expr, b: Expr) -> int | Expr:
    total = normal(as_expr(a) + b)
    return int(total.value) if isinstance(total, Const) else total


@MOVEMENTS.rule("expand")
def expand_nothing(s: Site, node: Node) -> Replacement:
    """expand(x, its own shape) -> x; a reshape, if only axes of extent 1 come in front"""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    front = out.type.rank - x.type.rank
    if not all(map(is_one, out.type.shape[:front])):
        return None
    if not same_shape(out.type.shape[front:], x.type.shape):
        return None
    return s.make(Reshape(out.type.shape), x) if front else x


@MOVEMENTS.rule("expand")
def expand_again(s: Site, node: Node) -> Replacement:
    """expand(expand(x)) -> expand(x)"""
    inner = s.maker(node.inputs[0], "expand")
    return None if inner is None else s.make(Expand(node.outputs[0].type.shape), inner.inputs[0])


@MOVEMENTS.rule("tile")
def tile_to_expand(s: Site, node: Node) -> Replacement:
    """tile(x) -> expand(x), if only axes of extent 1 are repeated"""
    assert isinstance(node.op, Tile)
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    if all(is_one(d) or is_one(r) for d, r in zip(x.type.shape, node.op.repeats, strict=True)):
        return s.make(Expand(out.type.shape), x)
    return None
