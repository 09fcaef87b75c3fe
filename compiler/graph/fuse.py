"""Group the nodes of a graph into the functions that are compiled.

What can be fused follows from the tensor expressions. A node is *injective* (each element of the result comes from elements of the
inputs, without a reduction), a *contraction* (a sum of products), another *reduction*, a *view* (the same elements in
the same order: no code at all) or *opaque* (loops of its own). Groups grow around what is expensive:

- what follows a contraction or a reduction element by element is its epilogue: computed while the result is in
  registers or in the nearest cache;
- permutations in front of a contraction are read through: the operand is read where it is;
- chains of injective nodes are one pass.

A value is absorbed into its reader only if nobody else reads it: then no cycle can arise and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Load, Mul
from planish.compiler.loop import te

from .ir import Graph, Node, Value

Kind: TypeAlias = Literal["injective", "contraction", "reduction", "view", "opaque"]

VIEWS: Final = frozenset({"reshape", "identity"})
MAX_NODES: Final = 24  # of a group: longer chains are cut


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes that become one function, in order, with the values that go in and come out."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kind: Kind


@dataclass(eq=False)
class _Open:
    """A group while it grows; ``live`` are the values made in it that somebody outside reads."""

    nodes: list[Node]
    kind: Kind
    live: set[Value]


def tensors(node: Node) -> tuple[te.Tensor, ...]:
    """The node's outputs as tensor expressions over placeholders for its inputs."""
    inputs = [None if v is None else te.placeholder(v.type.shape, v.type.dtype) for v in node.inputs]
    out = node.op.compute(*inputs)
    return out if isinstance(out, tuple) else (out,)


class Kinds:
    """What nodes are, found once for an operator on inputs of some types."""

    def __init__(self) -> None:
        self._known: dict[object, Kind] = {}

    def __call__(self, node: Node) -> Kind:
        if node.op.name in VIEWS:
            return "view"
        if not node.op.is_expression:
            return "opaque"
        key = (node.op, tuple(None if v is None else v.type for v in node.inputs))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(node)
        return found

    @staticmethod
    def _find(node: Node) -> Kind:
        kind: Kind = "injective"
        for t in te.stages(*tensors(node)):
            if t.combiner is not None:
                if t.combiner == "sum" and t.body is not None and _is_product(t.body):
                    return "contraction"
                kind = "reduction"
        return kind


def _is_product(e: Expr) -> bool:
    def bare(x: Expr) -> Expr:
        while isinstance(x, n.Cast):
            x = x.operand
        return x

    return isinstance(e, Mul) and isinstance(bare(e.lhs), Load) and isinstance(bare(e.rhs), Load)


def singletons(graph: Graph) -> tuple[Group, ...]:
    """Every node its own group."""
    kinds = Kinds()
    return tuple(Group((x,), _distinct(x.operands), x.outputs, kinds(x)) for x in graph.nodes)


def fuse(graph: Graph) -> tuple[Group, ...]:
    """The groups of a graph, in an order in which they can run."""
    return _Fusion(graph).run()


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kinds = Kinds()
        self.readers = {v: list(dict.fromkeys(r)) for v, r in graph.uses().items()}
        self.kept = set(graph.outputs)
        self.owner: dict[Value, _Open] = {}
        self.groups: list[_Open] = []
        self.order = {x: k for k, x in enumerate(graph.nodes)}

    def run(self) -> tuple[Group, ...]:
        for node in self.graph.nodes:
            kind = self.kinds(node)
            mine = _Open([node], kind, set(node.outputs))
            self.groups.append(mine)
            if kind == "injective" and len(node.outputs) == 1:
                self._follow(node, mine)
            elif kind == "contraction":
                self._absorb(node, mine, lambda g: len(g.nodes) == 1 and _permutes(g.nodes[0]))
            elif kind == "reduction":
                self._absorb(node, mine, lambda g: all(map(_elementwise, g.nodes)))
            for v in node.outputs:
                self.owner.setdefault(v, mine)
        done = [self._close(g) for g in self.groups]
        return tuple(sorted(done, key=lambda g: self.order[g.nodes[-1]]))

    def _sources(self, node: Node) -> list[tuple[Value, _Open]]:
        """Groups whose one result only this node reads."""
        out = []
        for v in dict.fromkeys(node.operands):
            group = self.owner.get(v)
            if group is not None and v not in self.kept and group.live == {v}:
                if self.readers[v] == [node]:
                    out.append((v, group))
        return out

    def _merge(self, source: _Open, target: _Open, node: Node) -> None:
        """Move a group's nodes into another, of whose one result ``node`` was the reader."""
        target.nodes.extend(source.nodes)
        target.nodes.sort(key=self.order.__getitem__)
        target.live = set(node.outputs)
        for x in source.nodes:
            for v in x.outputs:
                self.owner[v] = target
        self.groups.remove(source)

    def _follow(self, node: Node, mine: _Open) -> None:
        """Let an injective node join the groups whose results only it reads: one heavy, any number of light."""
        sources = self._sources(node)
        heavy = [
            (v, g)
            for v, g in sources
            if g.kind in ("contraction", "reduction") and _is_epilogue(node, v, g.kind)
        ]
        target = mine
        if heavy:
            _, target = max(heavy, key=lambda c: self.order[c[1].nodes[-1]])
            self._merge(mine, target, node)
        for _, group in sources:
            light = group.kind == "injective" and len(group.nodes) + len(target.nodes) <= MAX_NODES
            if light and (target is mine or all(map(_elementwise, group.nodes))):
                self._merge(group, target, node)
        self.owner[node.outputs[0]] = target

    def _absorb(self, node: Node, mine: _Open, fits: Callable[[_Open], bool]) -> None:
        """Take light groups that only this node reads into its own."""
        for _, group in self._sources(node):
            if group.kind == "injective" and fits(group):
                self._merge(group, mine, node)

    def _close(self, group: _Open) -> Group:
        made = {v for x in group.nodes for v in x.outputs}
        inputs = _distinct(v for x in group.nodes for v in x.operands if v not in made)
        inside = set(group.nodes)
        outputs = tuple(
            v
            for x in group.nodes
            for v in x.outputs
            if v in self.kept or any(r not in inside for r in self.readers.get(v, ()))
        )
        if group.kind == "opaque":  # its loops store every result
            outputs = group.nodes[-1].outputs
        # Nobody reads any: keep what the last node makes.
        return Group(tuple(group.nodes), inputs, outputs or group.nodes[-1].outputs, group.kind)


def _is_epilogue(node: Node, v: Value, kind: Kind) -> bool:
    """Whether the node reads ``v`` element by element: permuted at the most, with its last axis still last.

    Behind a reduction it may also spread ``v`` along further axes at the end: those of the rows.
    """
    inputs = [None if x is None else te.placeholder(x.type.shape, x.type.dtype) for x in node.inputs]
    found = node.op.compute(*inputs)
    out = found if not isinstance(found, tuple) else found[0]
    stages = [t for t in te.stages(out) if t.body is not None]
    if len(stages) != 1:
        return False
    axes = [a for a, d in zip(stages[0].axes, stages[0].shape, strict=True) if not _one(d)]
    assert stages[0].body is not None
    names = {t.name for t, x in zip(inputs, node.inputs, strict=True) if t is not None and x is v}
    for load in n.loads(stages[0].body):
        if load.buffer not in names:
            continue
        used = [i for i, d in zip(load.indices, v.type.shape, strict=True) if not _one(d)]
        if any(i not in axes for i in used) or len(set(used)) != len(used):
            return False
        if kind == "reduction":
            if used != axes[: len(used)]:
                return False
        elif len(used) != len(axes) or (used and used[-1] is not axes[-1]):
            return False
    return True


def _one(d: Expr) -> bool:
    return isinstance(d, Const) and d.value == 1


def _permutes(node: Node) -> bool:
    return node.op.name == "transpose"


def _elementwise(node: Node) -> bool:
    """Without changes of order: cheap to compute wherever it is read."""
    return node.op.name not in ("transpose", "gather", "concat", "slice", "pad", "resize")


def _distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(values))
