"""Channels last inside: convolutions and the like on data whose channels are neighbours in memory.

Every such operator gets a transpose in front and one behind. Transposes then travel down through
whatever has axes that can be renamed, until they meet their inverses; the rest end at the graph's
edges. A value that is there transposed is kept as its source and a permutation: the transpose
itself is made once, for the readers that cannot do without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.ops.shape import Reshape, Transpose

from .axes import (
    Perm,
    after,
    inverse,
    is_identity,
    only_ones_move,
    renamed,
    reshape_of_transpose,
    transpose_of_reshape,
)
from .dce import eliminate_dead
from .ir import Graph, GraphBuilder, Node, Replacement, Value, rewrite
from .match import Surroundings, is_elementwise, same_shape
from .moments import normalized_by_channel

SPATIAL: Final = frozenset({
    "conv", "conv_transpose", "max_pool", "average_pool", "lp_pool",
    "global_average_pool", "global_max_pool", "global_lp_pool",
})  # fmt: skip
CONTRACTIONS: Final = frozenset({"conv", "conv_transpose", "matmul", "einsum", "attention"})
SYMBOL: Final = 64  # what a dimension counts that is not known


def to_last(rank: int) -> Perm:
    """The permutation that moves axis 1 to the end."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> Perm:
    """Its inverse."""
    return (0, rank - 1, *range(1, rank - 1))


def transposed(b: GraphBuilder, v: Value, perm: Perm, name: str = "", origin: str = "") -> Value:
    """The transposed value: a constant at once, a reshape where only axes of one element move."""
    if is_identity(perm):
        return v
    if v in b.constants:
        return b.constant(b.constants[v].transpose(perm), v.name)
    shape = v.type.shape
    if only_ones_move(perm, shape):
        op: Any = Reshape(tuple(shape[k] for k in perm))
    else:
        op = Transpose(perm)
    return b.one(op, v, name=name or v.name, origin=origin)


def channels_last(graph: Graph) -> Graph:
    """The graph with spatial operators on channels-last data."""

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        op: Any = node.op
        x = inputs[0] if inputs else None
        if op.name not in SPATIAL or op.channels_last or x is None or x.type.rank < 3:
            return None
        rank = x.type.rank
        rest = list(inputs[1:])
        if op.name in ("conv", "conv_transpose") and rest[0] is not None:
            channels = (1, 0) if op.name == "conv" else (0, 1)
            rest[0] = transposed(b, rest[0], (*range(2, rank), *channels))
        x = transposed(b, x, to_last(rank), origin=node.origin)
        name = node.outputs[0].name
        y = b.one(replace(op, channels_last=True), x, *rest, name=name, origin=node.origin)
        return transposed(b, y, to_first(rank), name, node.origin)

    return rewrite(graph, visit)


# --------------------------------------------------------------------------------------- cost


def cost(graph: Graph) -> int:
    """The elements that transposes move, but for those that contractions read or store through."""
    s = Surroundings(graph)
    total = 0
    for node in graph.nodes:
        if not isinstance(node.op, Transpose):
            continue
        (x,), (y,) = node.inputs, node.outputs
        assert x is not None
        perm = node.op.perm
        if only_ones_move(perm, x.type.shape):
            continue
        if y not in s.outputs and all(r.op.name in CONTRACTIONS for r in s.readers.get(y, ())):
            continue
        maker = s.maker(x)
        stored = maker is not None and maker.op.name in CONTRACTIONS and perm[-1] == len(perm) - 1
        if stored and s.alone(x):
            continue
        total += volume_of(x)
    return total


def transposes(graph: Graph) -> int:
    """The number of transposes."""
    return sum(isinstance(node.op, Transpose) for node in graph.nodes)


def volume_of(v: Value) -> int:
    """The number of elements, symbols counted as ``SYMBOL``."""
    out = 1
    for d in v.type.shape:
        out *= int(d.value) if isinstance(d, Const) else SYMBOL
    return out


# ------------------------------------------------------------------------------------- sinking


def sink_transposes(graph: Graph) -> Graph:
    """The graph with transposes moved down and cancelled; as it was, if that would cost more."""
    if not any(isinstance(node.op, Transpose) for node in graph.nodes):
        return graph
    new = eliminate_dead(rewrite(graph, _Sinking(graph).visit))
    if alike(new, graph):
        return graph
    return new if (cost(new), transposes(new)) <= (cost(graph), transposes(graph)) else graph


def alike(a: Graph, b: Graph) -> bool:
    """Whether two graphs over the same constants have equal nodes in the same order."""
    if len(a.nodes) != len(b.nodes):
        return False
    same: dict[Value, Value] = {}
    for x, y in zip(a.nodes, b.nodes, strict=True):
        inputs = tuple(None if v is None else same.get(v, v) for v in x.inputs)
        if x.op != y.op or inputs != y.inputs:
            return False
        same.update(zip(x.outputs, y.outputs, strict=True))
    return tuple(same.get(v, v) for v in a.outputs) == b.outputs


class _Sinking:
    def __init__(self, graph: Graph) -> None:
        self.around = Surroundings(graph)
        self.wanted = _wanted(self.around)
        self.behind: dict[Value, tuple[Value, Perm]] = {}
        self.done: dict[tuple[Value, Perm], Value] = {}
        self.views: dict[Value, Value] = {}  # results of reshapes, with what they are views of

    def visit(self, b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        op: Any = node.op
        if op.name == "transpose":
            assert inputs[0] is not None
            return self.transpose(b, node, inputs[0], op.perm)
        if op.name == "reshape":
            assert inputs[0] is not None
            return self.reshape(b, node, inputs[0])
        perms = [
            (v.type.rank, self.behind[v][1]) for v in inputs if v is not None and v in self.behind
        ]
        if not perms:
            return None
        if op.name in _DATA_FIRST and inputs[0] not in self.behind:
            return None
        perm = max(perms, key=lambda p: p[0])[1]
        return self.move(b, node, inputs, perm)

    def source(self, v: Value) -> tuple[Value, Perm]:
        return self.behind.get(v, (v, tuple(range(v.type.rank))))

    def put(self, b: GraphBuilder, node: Node, v: Value, perm: Perm, name: str = "") -> Value:
        """``v`` transposed, known as that."""
        v, perm = self.source(v)[0], after(perm, self.source(v)[1])
        if is_identity(perm):
            return v
        found = self.done.get((v, perm))
        if found is None:
            out = transposed(b, v, perm, name, node.origin)
            found = self.done[v, perm] = out
            if v not in b.constants:
                self.behind[out] = v, perm
        return found

    # ------------------------------------------------------------------------------- movements

    def transpose(self, b: GraphBuilder, node: Node, x: Value, perm: Perm) -> Replacement:
        (out,) = node.outputs
        if x not in self.behind and (x, perm) not in self.done and x not in self.views:
            self.behind[out] = x, perm
            self.done[x, perm] = out
            return None
        name = out.name
        if x not in self.behind and x in self.views:
            inner = self.views[x]
            if inner in self.behind or self.is_stored(node):
                found = transpose_of_reshape(inner.type.shape, x.type.shape, perm)
                if found is not None:
                    first, shape = found
                    y = self.put(b, node, inner, first, name)
                    return self.viewed(b, node, y, shape)
        return self.put(b, node, x, perm, name)

    def is_stored(self, node: Node) -> bool:
        """Whether a contraction could store its result in the order of this transpose of a view."""
        out, view = node.outputs[0], self.around.maker(node.inputs[0], "reshape")
        if view is None or all(r.op.name in CONTRACTIONS for r in self.around.readers.get(out, ())):
            return False
        maker = self.around.maker(view.inputs[0])
        return maker is not None and maker.op.name in CONTRACTIONS

    def reshape(self, b: GraphBuilder, node: Node, x: Value) -> Replacement:
        out = node.outputs[0]
        if x in self.behind:
            source, perm = self.behind[x]
            found = reshape_of_transpose(source.type.shape, perm, out.type.shape)
            if found is not None:
                shape, left = found
                return self.put(b, node, self.viewed(b, node, source, shape), left, out.name)
        self.views[out] = x
        return None

    def viewed(self, b: GraphBuilder, node: Node, x: Value, shape: tuple[Expr, ...]) -> Value:
        if same_shape(x.type.shape, shape):
            return x
        y = b.one(Reshape(shape), x, name=node.outputs[0].name, origin=node.origin)
        self.views[y] = x
        return y

    # ---------------------------------------------------------------------------- other operators

    def move(
        self, b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...], perm: Perm
    ) -> Replacement:
        """The node in front of the transpose of its inputs, if it can be there."""
        if node.op.name in ("instance_norm", "group_norm"):
            x = inputs[0]
            if x is None or x not in self.behind:
                return None
            y = normalized_by_channel(b, node, inputs, *self.behind[x])
            return None if y is None else self.put(b, node, y, perm, node.outputs[0].name)
        change = renamed(node.op, perm, node.outputs[0].type.rank)
        if change is None:
            return None
        op, left = change
        plan = [self.operand(b, node, k, v, perm) for k, v in enumerate(inputs)]
        if None in plan:
            return None
        data = [
            None if v is None else self.bring(b, node, v, perm, how)
            for v, how in zip(inputs, plan, strict=True)
        ]
        names = [v.name for v in node.outputs]
        outs = b.apply(op, *data, names=names, origin=node.origin)
        for y, v in zip(outs, node.outputs, strict=True):
            if not same_shape([y.type.shape[k] for k in left], v.type.shape):
                return None  # equal by what is assumed only; what was made is not read
        return tuple(
            self.put(b, node, y, left, v.name) for y, v in zip(outs, node.outputs, strict=True)
        )

    def operand(
        self, b: GraphBuilder, node: Node, k: int, v: Value | None, perm: Perm
    ) -> str | None:
        """How an operand is brought into the source's order; None if that is not worth it."""
        if v is None or (k > 0 and node.op.name in _DATA_FIRST):
            return "as it is"
        if v in self.behind and self.behind[v][1] == perm:
            return "source"
        full = v.type.rank == len(perm)
        if is_elementwise(node.op) and v.type.rank < len(perm) or full:
            if v.type.size == 1 and not full:
                return "as it is"
            if v in b.constants or only_ones_move(inverse(perm), _wide(v, len(perm))):
                return "reordered"
        wanted = self.wanted.get(node.outputs[0]) == inverse(perm)
        return "reordered" if full and wanted else None

    def bring(self, b: GraphBuilder, node: Node, v: Value, perm: Perm, how: str | None) -> Value:
        if how == "as it is":
            return v
        if how == "source":
            return self.behind[v][0]
        wide = _wide(v, len(perm))
        if v in b.constants:
            array = b.constants[v].reshape((1,) * (len(perm) - v.type.rank) + b.constants[v].shape)
            return b.constant(array.transpose(inverse(perm)), v.name)
        return self.put(b, node, self.viewed(b, node, v, wide), inverse(perm), v.name)


# Operators of which only the first operand has the axes of the result.
_DATA_FIRST: Final = frozenset({
    "pad", "layer_norm", "rms_norm", "batch_norm", "gather", "resize", "quantize", "dequantize",
})  # fmt: skip


def _wide(v: Value, rank: int) -> tuple[Expr, ...]:
    return (*[as_expr(1)] * (rank - v.type.rank), *v.type.shape)


def _wanted(s: Surroundings) -> dict[Value, Perm]:
    """The transposes that all readers of a value want, behind operators that keep axes too."""
    out: dict[Value, Perm] = {}
    for node in reversed(s.graph.nodes):
        for v in node.outputs:
            if v in s.outputs or v not in s.readers:
                continue
            found = {_asked(r, v, out) for r in s.readers[v]}
            if len(found) == 1 and (perm := found.pop()) is not None:
                out[v] = perm
    return out


def _asked(reader: Node, v: Value, wanted: dict[Value, Perm]) -> Perm | None:
    if isinstance(reader.op, Transpose):
        return reader.op.perm
    if reader.op.name not in _KEEPS and not is_elementwise(reader.op):
        return None
    found = wanted.get(reader.outputs[0])
    return found if found is not None and len(found) == v.type.rank else None


_KEEPS: Final = frozenset(
    {"concat", "slice", "pad", "resize", "softmax", "log_softmax", "cumsum", "cumprod"}
)
