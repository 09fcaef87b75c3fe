"""Channels last inside: convolutions and their like on data whose channels are neighbours in memory.

Every such operator gets a transpose in front and one behind. A transpose then travels down through whatever treats
elements alike, or has axes that can be renamed, until it meets its inverse; the rest end at the graph's edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from planish.compiler.expr.nodes import Const, as_expr
from planish.compiler.ops.base import Op
from planish.compiler.ops.shape import Reshape, Transpose

from .ir import Graph, GraphBuilder, Node, Replacement, TensorType, Value, rewrite

SPATIAL: Final = frozenset({
    "conv", "conv_transpose", "max_pool", "average_pool", "lp_pool", "global_average_pool", "global_max_pool",
    "global_lp_pool", "instance_norm", "batch_norm", "group_norm",
})  # fmt: skip


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that moves axis 1 to the end."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Its inverse."""
    return (0, rank - 1, *range(1, rank - 1))


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(perm.index(k) for k in range(len(perm)))


def transposed(b: GraphBuilder, v: Value, perm: Sequence[int], origin: str = "") -> Value:
    """The transposed value: a constant at once, a reshape where only axes of one element move."""
    perm = tuple(perm)
    if perm == tuple(range(len(perm))):
        return v
    if v in b.constants:
        return b.constant(b.constants[v].transpose(perm).copy(), f"{v.name}_t")
    moved = [k for k in perm if not _one(v.type, k)]
    if moved == sorted(moved):
        return b.one(Reshape(tuple(v.type.shape[k] for k in perm)), v, name=v.name, origin=origin)
    return b.one(Transpose(perm), v, name=v.name, origin=origin)


def _one(t: TensorType, k: int) -> bool:
    d = t.shape[k]
    return isinstance(d, Const) and d.value == 1


def channels_last(graph: Graph) -> Graph:
    """The graph with spatial operators on channels-last data."""

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        op: Any = node.op
        x = inputs[0] if inputs else None
        if op.name not in SPATIAL or x is None or x.type.rank < 3:
            return None
        if getattr(op, "channels_last", True) or len(node.outputs) != 1:
            return None
        last, first = to_last(x.type.rank), to_first(x.type.rank)
        rest = list(inputs[1:])
        if op.name in ("conv", "conv_transpose") and rest[0] is not None:
            rank = rest[0].type.rank
            rest[0] = transposed(b, rest[0], (*range(2, rank), *_weight_axes(op)))
        u = transposed(b, x, last, node.origin)
        y = b.one(replace(op, channels_last=True), u, *rest, name=node.outputs[0].name, origin=node.origin)
        return transposed(b, y, first, node.origin)

    return rewrite(graph, visit)


def _weight_axes(op: Op) -> tuple[int, int]:
    """Which axes of channels-first weights become the last two: input channels, then output channels."""
    return (1, 0) if op.name == "conv" else (0, 1)


# ------------------------------------------------------------------------------------- sinking


def sink_transposes(graph: Graph) -> Graph:
    """The graph with transposes moved down and cancelled."""
    behind: dict[Value, tuple[Value, tuple[int, ...]]] = {}

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        op: Any = node.op
        if op.name == "transpose" and inputs[0] is not None:
            source, perm = behind.get(inputs[0], (inputs[0], tuple(range(len(op.perm)))))
            both = tuple(perm[k] for k in op.perm)
            if both == tuple(range(len(both))):
                return source
            out = b.one(Transpose(both), source, name=node.outputs[0].name, origin=node.origin)
            behind[out] = source, both
            return out
        found = [v for v in inputs if v is not None and v in behind]
        if not found or len(node.outputs) != 1 or node.outputs[0].type.rank < 2:
            return None
        perm = behind[found[0]][1]
        moved = _moved(b, node, inputs, perm, behind)
        if moved is None:
            return None
        out = b.one(Transpose(perm), moved, name=node.outputs[0].name, origin=node.origin)
        behind[out] = moved, perm
        return out

    return rewrite(graph, visit)


def _moved(
    b: GraphBuilder,
    node: Node,
    inputs: tuple[Value | None, ...],
    perm: tuple[int, ...],
    behind: dict[Value, tuple[Value, tuple[int, ...]]],
) -> Value | None:
    """The node applied before the transpose ``perm`` of its inputs, or None if it cannot be."""
    op: Any = node.op
    rank = len(perm)
    new_op: Op | None
    if _is_elementwise(op):
        new_op = op
    elif (change := _AXES.get(op.name)) is not None and node.outputs[0].type.rank == rank:
        new_op = change(op, perm)
    else:
        return None
    if new_op is None:
        return None
    data = []
    for v in inputs:
        if v is None:
            data.append(None)
        elif v in behind and behind[v][1] == perm:
            data.append(behind[v][0])
        elif v.type.size == 1 and v.type.rank <= rank:
            data.append(v)
        elif v in b.constants and _is_elementwise(op) and v.type.rank <= rank:
            wide = b.constants[v].reshape((1,) * (rank - v.type.rank) + b.constants[v].shape)
            data.append(b.constant(wide.transpose(inverse(perm)).copy(), f"{v.name}_t"))
        elif op.name in _DATA_FIRST and data:
            data.append(v)
        elif _free_to_move(v, rank):
            shape = [as_expr(1)] * (rank - v.type.rank) + list(v.type.shape)
            data.append(b.one(Reshape(tuple(shape[k] for k in inverse(perm))), v, name=v.name))
        else:
            return None
    return b.one(new_op, *data, name=node.outputs[0].name, origin=node.origin)


def _free_to_move(v: Value, rank: int) -> bool:
    """Whether at most one axis of the value has more than one element."""
    wide = [k for k in range(v.type.rank) if not _one(v.type, k)]
    return v.type.rank <= rank and len(wide) <= 1


def _is_elementwise(op: Op) -> bool:
    from planish.compiler.ops.elementwise import Binary, Unary

    return isinstance(op, Unary | Binary) or op.name in ("where", "cast", "prelu", "clip")


def _axes(op: Any, perm: tuple[int, ...]) -> Op:
    """A reduction that keeps its dimensions: its axes renamed."""
    return replace(op, axes=tuple(sorted(perm[a] for a in op.axes)))  # type: ignore[no-any-return]


def _reduce(op: Any, perm: tuple[int, ...]) -> Op | None:
    return _axes(op, perm) if getattr(op, "keepdims", False) else None


def _axis(op: Any, perm: tuple[int, ...]) -> Op:
    return replace(op, axis=perm[op.axis])  # type: ignore[no-any-return]


def _per_axis(*names: str) -> Callable[[Any, tuple[int, ...]], Op]:
    def change(op: Any, perm: tuple[int, ...]) -> Op:
        back = inverse(perm)
        return replace(op, **{n: tuple(getattr(op, n)[k] for k in back) for n in names})  # type: ignore[no-any-return]

    return change


def _resize(op: Any, perm: tuple[int, ...]) -> Op:
    return replace(op, axes=tuple(perm[a] for a in op.axes))  # type: ignore[no-any-return]


_DATA_FIRST: Final = frozenset({"pad"})
_AXES: Final[dict[str, Callable[[Any, tuple[int, ...]], Op | None]]] = {
    "concat": _axis,
    "pad": _per_axis("before", "after"),
    "slice": _per_axis("starts", "steps", "shape"),
    "resize": _resize,
    **{f"reduce_{k}": _reduce for k in ("sum", "mean", "max", "min", "prod", "l1", "l2")},
}
