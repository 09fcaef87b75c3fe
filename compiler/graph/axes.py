"""What operators do when the axes of what they read are named differently.

An operand that is ``transpose(source, perm)`` has its axis k from axis ``perm[k]`` of the source.
For an operator on such operands, ``renamed`` gives the operator that does the same to the sources,
and the permutation that is left behind it: ``op(transpose(x, perm)) == transpose(new(x), behind)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from planish.compiler.expr.nodes import Expr
from planish.compiler.ops.base import Op, is_one
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.shape import split_groups
from planish.compiler.remembering import remembered

from .match import is_elementwise

Perm: TypeAlias = tuple[int, ...]
Shape: TypeAlias = Sequence[Expr]
Renamed: TypeAlias = tuple[Op, Perm] | None


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes another."""
    return tuple(perm.index(k) for k in range(len(perm)))


def after(outer: Perm, inner: Perm) -> Perm:
    """One permutation for ``transpose(transpose(x, inner), outer)``."""
    return tuple(inner[k] for k in outer)


def is_identity(perm: Perm) -> bool:
    """Whether nothing moves."""
    return perm == tuple(range(len(perm)))


def only_ones_move(perm: Perm, shape: Shape) -> bool:
    """Whether a transpose leaves all elements of a tensor of this shape where they are."""
    moved = [k for k in perm if not is_one(shape[k])]
    return moved == sorted(moved)


def renamed(op: Op, perm: Perm, out_rank: int) -> Renamed:
    """The operator on the sources of operands transposed by ``perm``, and what is left behind."""
    if is_elementwise(op):
        front = out_rank - len(perm)
        return (op, (*range(front), *(p + front for p in perm))) if front >= 0 else None
    if isinstance(op, Gather):
        return _gather(op, perm, out_rank)
    change = _CHANGES.get(op.name)
    return None if change is None else change(op, perm)


def _gather(op: Gather, perm: Perm, out_rank: int) -> Renamed:
    """The axis that is gathered along gives way to those of the indices."""
    rank = len(perm)
    axis, behind = op.axis % rank, perm[op.axis]
    indices = [rank + k for k in range(out_rank - rank + 1)]  # names of these axes
    order = [*perm[:axis], *indices, *perm[axis + 1 :]]
    own = [*range(behind), *indices, *range(behind + 1, rank)]
    return replace(op, axis=behind), tuple(own.index(k) for k in order)


def _same_axes(change: Callable[[Any, Perm], Op | None]) -> Callable[[Any, Perm], Renamed]:
    """For operators whose results have the operands' axes."""

    def full(op: Any, perm: Perm) -> Renamed:
        new = change(op, perm)
        return None if new is None else (new, perm)

    return full


@_same_axes
def _axis(op: Any, perm: Perm) -> Op:
    return replace(op, axis=perm[op.axis])  # type: ignore[no-any-return]


@_same_axes
def _axes(op: Any, perm: Perm) -> Op:
    return replace(op, axes=tuple(perm[a] for a in op.axes))  # type: ignore[no-any-return]


@_same_axes
def _one_axis(op: Any, perm: Perm) -> Op | None:
    """Axes that are taken together in order: that of one axis cannot change."""
    if len(op.axes) != 1:
        return None
    return replace(op, axes=(perm[op.axes[0]],))  # type: ignore[no-any-return]


def _per_axis(*names: str) -> Callable[[Any, Perm], Renamed]:
    """Attributes that have an item for each axis."""

    @_same_axes
    def change(op: Any, perm: Perm) -> Op | None:
        back = inverse(perm)
        found = {n: getattr(op, n) for n in names}
        if any(len(v) != len(perm) for v in found.values()):
            return None
        return replace(op, **{n: tuple(v[k] for k in back) for n, v in found.items()})  # type: ignore[no-any-return]

    return change


@_same_axes
def _trailing(op: Any, perm: Perm) -> Op | None:
    """Normalisation over the last axes, which must stay where they are."""
    first = op.axis % len(perm)
    return op if perm[first:] == tuple(range(first, len(perm))) else None


@_same_axes
def _channels(op: Any, perm: Perm) -> Op | None:
    """The channels are axis 1, or the last one."""
    rank = len(perm)
    if not op.spatial or rank < 3:
        return None
    channel = perm[rank - 1 if op.channels_last else 1]
    if channel not in (1, rank - 1):
        return None
    return replace(op, channels_last=channel == rank - 1)  # type: ignore[no-any-return]


@_same_axes
def _scaled(op: Any, perm: Perm) -> Op | None:
    """Scales along an axis, or one for all; those of blocks have the operand's axes themselves."""
    if op.block:
        return None
    rank = len(perm)
    return replace(op, axis=perm[op.axis]) if -rank <= op.axis < rank else op  # type: ignore[no-any-return]


def _whole(op: Any, perm: Perm) -> Renamed:
    """What is found in all elements, in any order."""
    return op, ()


def _reduce(op: Any, perm: Perm) -> Renamed:
    rank = len(perm)
    gone = tuple(sorted(perm[a] for a in op.over(rank)))
    new = replace(op, axes=gone)
    return new, perm if op.keepdims else _without(perm, gone)


def _arg(op: Any, perm: Perm) -> Renamed:
    gone = perm[op.axis]
    return replace(op, axis=gone), perm if op.keepdims else _without(perm, (gone,))


def _without(perm: Perm, gone: Sequence[int]) -> Perm:
    """The order of the axes that are left when some axes of the source are not there."""
    kept = [p for p in perm if p not in gone]
    place = {p: k for k, p in enumerate(sorted(kept))}
    return tuple(place[p] for p in kept)


_CHANGES: Final[dict[str, Callable[[Any, Perm], Renamed]]] = {
    **dict.fromkeys(("concat", "split", "cumsum", "cumprod", "lp_normalization"), _axis),
    **dict.fromkeys(("softmax", "log_softmax", "mean_variance_normalization", "resize"), _axes),
    "hardmax": _one_axis,
    "pad": _per_axis("before", "after"),
    "slice": _per_axis("starts", "steps", "shape"),
    "tile": _per_axis("repeats"),
    "expand": _per_axis("shape"),
    **dict.fromkeys(("layer_norm", "rms_norm"), _trailing),
    "batch_norm": _channels,
    **dict.fromkeys(
        (
            *(f"reduce_{k}" for k in ("sum", "mean", "max", "min", "prod", "l1", "l2")),
            *(f"reduce_{k}" for k in ("sum_square", "log_sum", "log_sum_exp")),
        ),
        _reduce,
    ),
    **dict.fromkeys(("quantize", "dequantize"), _scaled),
    "quantization_range": _whole,
    "argmax": _arg,
    "argmin": _arg,
}


# ------------------------------------------------------------------------------------ reshapes

Block: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


def blocks(before: Shape, after: Shape) -> list[Block]:
    """Which axes of a shape become which axes of another with the same elements, block by block.

    Axes of extent 1 are in no block.
    """
    return list(_blocks(tuple(before), tuple(after)))


@remembered(4096)
def _blocks(before: Shape, after: Shape) -> list[Block]:
    left = [k for k, d in enumerate(before) if not is_one(d)]
    right = [k for k, d in enumerate(after) if not is_one(d)]
    if len(left) == len(right) and all(
        before[i] is after[j] for i, j in zip(left, right, strict=True)
    ):
        return [((i,), (j,)) for i, j in zip(left, right, strict=True)]
    found = split_groups([before[k] for k in left], [after[k] for k in right])
    return [(tuple(left[a:b]), tuple(right[c:d])) for (a, b), (c, d) in found]


def reshape_of_transpose(
    source: Shape, perm: Perm, shape: Shape
) -> tuple[tuple[Expr, ...], Perm] | None:
    """``reshape(transpose(x, perm), shape)`` as ``transpose(reshape(x, new), behind)``.

    Each block of axes that the reshape joins or splits must be one in the source already.
    """
    transposed = [source[k] for k in perm]
    found = blocks(transposed, shape)
    origin: list[tuple[int, Block]] = []
    for ins, outs in found:
        places = [perm[k] for k in ins]
        span = (
            [k for k in range(min(places), max(places) + 1) if not is_one(source[k])]
            if places
            else []
        )
        if places != span or not places:
            return None
        origin.append((places[0], (ins, outs)))
    # In the source's order, each with the axes of extent 1 that follow it in the result.
    order = [outs for _, (_, outs) in sorted(origin)]
    placed = [k for outs in order for k in _with_ones(outs, shape)]
    lead = [k for k in range(len(shape)) if k not in placed]
    placed = [*lead, *placed]
    behind = tuple(placed.index(k) for k in range(len(shape)))
    return tuple(shape[k] for k in placed), behind


def _with_ones(outs: tuple[int, ...], shape: Shape) -> list[int]:
    """The axes of a block with those of extent 1 between and behind them."""
    end = outs[-1] + 1
    while end < len(shape) and is_one(shape[end]):
        end += 1
    return list(range(outs[0], end))


def transpose_of_reshape(
    source: Shape, shape: Shape, perm: Perm
) -> tuple[Perm, tuple[Expr, ...]] | None:
    """``transpose(reshape(x, shape), perm)`` as ``reshape(transpose(x, first), new)``.

    The axes of each block of the reshape must stay together, in order.
    """
    found = blocks(source, shape)
    place = {axis: k for k, axis in enumerate(perm)}
    moved: list[tuple[int, tuple[int, ...]]] = []
    for ins, outs in found:
        if not outs or not ins:
            return None
        places = [place[k] for k in outs]
        between = [k for k in range(min(places), max(places) + 1) if not is_one(shape[perm[k]])]
        if places != between:
            return None
        moved.append((places[0], ins))
    order = [k for _, ins in sorted(moved) for k in ins]
    ones = [k for k in range(len(source)) if k not in order]
    return (*ones, *order), tuple(shape[k] for k in perm)
