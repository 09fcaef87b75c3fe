"""Group the nodes of a graph into the functions that are compiled.

What can be fused follows from the tensor expressions. A node is *injective* (each element of the
result comes from elements of the inputs, without a reduction), a *contraction* (a sum of products),
another *reduction*, a *view* (the same elements in the same order: no code at all) or *opaque*
(loops of its own). Groups grow around what is expensive:

- what follows a contraction or a reduction element by element is its epilogue: computed while the
  result is in registers or in the nearest cache;
- what only moves elements in front of a contraction is read through: the operand is read where it
  is, by every contraction that wants it;
- chains of injective nodes are one pass; what is cheap is computed by each of several readers
  rather than stored.

A group has one result. Any other value is inside only if all its readers are: then no cycle can
arise and nothing is stored that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Mul
from planish.compiler.loop import te
from planish.compiler.ops.base import is_one

from .ir import Graph, Node, Value
from .match import is_elementwise

Kind: TypeAlias = Literal["injective", "contraction", "reduction", "view", "opaque"]
# How an operand is read: each element for its own, along a permutation that keeps the last axis,
# each element for a whole row behind it, or otherwise.
Read: TypeAlias = tuple[Literal["same", "permuted", "prefix", "other"], tuple[int, ...]]

VIEWS: Final = frozenset({"reshape"})
MOVES: Final = frozenset({"transpose", "slice", "expand"})
WINDOWS: Final = frozenset({"max_pool", "average_pool", "lp_pool"})
CHEAP_CALLS: Final = frozenset(
    {"abs", "neg", "sqrt", "floor", "ceil", "trunc", "round_even", "is_nan", "fma"}
)
MAX_COPIED: Final = 3  # nodes of a chain that each reader computes for itself
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
    """A group while it grows; its last node makes its result."""

    nodes: list[Node]
    kind: Kind
    heavy: Value | None = None  # the result of its contraction or reduction

    @property
    def results(self) -> tuple[Value, ...]:
        return self.nodes[-1].outputs


# --------------------------------------------------------------------------------- what nodes are


def tensors(node: Node) -> tuple[te.Tensor, ...]:
    """The node's outputs as tensor expressions over placeholders for its inputs."""
    return _tensors(node)[1]


def _tensors(node: Node) -> tuple[list[te.Tensor | None], tuple[te.Tensor, ...]]:
    inputs = [
        None if v is None else te.placeholder(v.type.shape, v.type.dtype.storage)
        for v in node.inputs
    ]
    out = node.op.compute(*inputs)
    return inputs, out if isinstance(out, tuple) else (out,)


@dataclass(frozen=True)
class Facts:
    """What fusion asks about a node."""

    kind: Kind
    reads: tuple[Read, ...] = ()  # of an injective node: how each operand is read
    moves: bool = (
        False  # whether it only gives its operand's elements, at places found without division
    )
    costly: bool = False  # whether it calls functions that take many operations


class Kinds:
    """What nodes are, found once for an operator on inputs of some types."""

    def __init__(self) -> None:
        self._known: dict[object, Facts] = {}

    def __call__(self, node: Node) -> Kind:
        return self.facts(node).kind

    def facts(self, node: Node) -> Facts:
        key = (node.op, tuple(None if v is None else v.type for v in node.inputs))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(node)
        return found

    @staticmethod
    def _find(node: Node) -> Facts:
        if not node.op.is_expression:
            return Facts("opaque")
        inputs, outputs = _tensors(node)
        stages = [t for t in te.stages(*outputs) if t.body is not None]
        view = node.op.name in VIEWS
        kind: Kind = "view" if view else "injective"
        for t in stages:
            if t.combiner is not None and t.body is not None:
                if t.combiner == "sum" and _is_product(t.body):
                    return Facts("contraction")
                kind = "reduction"
        if kind == "reduction":
            return Facts(kind)
        single = len(outputs) == 1 and len(stages) == 1
        reads = tuple(_read(outputs[0], x) if single else ("other", ()) for x in inputs)
        moves = single and (view or node.op.name in MOVES) and _is_affine(outputs[0])
        calls = (e for t in stages if t.body is not None for e in n.walk(t.body))
        costly = any(isinstance(e, n.Call) and e.name not in CHEAP_CALLS for e in calls)
        return Facts(kind, reads, moves, costly)


def _is_product(e: Expr) -> bool:
    """Whether this is the product of two elements that differ: squares are summed as any."""

    def bare(x: Expr) -> Expr:
        while isinstance(x, n.Cast):
            x = x.operand
        return x

    if not isinstance(e, Mul) or e.lhs is e.rhs:
        return False
    return isinstance(bare(e.lhs), Load) and isinstance(bare(e.rhs), Load)


def _is_affine(t: te.Tensor) -> bool:
    """Whether a stage only moves elements, without divisions."""
    if not isinstance(t.body, Load):
        return False
    return not any(
        isinstance(e, n.FloorDiv | n.FloorMod) for i in t.body.indices for e in n.walk(i)
    )


def _read(t: te.Tensor, x: te.Tensor | None) -> Read:
    """How a stage reads a tensor; axes of extent 1 do not count."""
    if x is None or t.body is None:
        return "same", ()
    axes = [a for a, d in zip(t.axes, t.shape, strict=True) if not is_one(d)]
    found: set[Read] = set()
    for load in n.loads(t.body):
        if load.buffer == x.name:
            found.add(_load(load, x, axes))
    return found.pop() if len(found) == 1 else ("same", ()) if not found else ("other", ())


def _load(load: Load, x: te.Tensor, axes: list[n.Var]) -> Read:
    used = [i for i, d in zip(load.indices, x.shape, strict=True) if not is_one(d)]
    if any(i not in axes for i in used) or len(set(used)) != len(used):
        return "other", ()
    if used == axes:
        return "same", ()
    if used == axes[: len(used)]:
        return "prefix", ()
    if len(used) == len(axes) and used[-1] is axes[-1]:
        return "permuted", tuple(used.index(a) for a in axes)
    return "other", ()


def _elementwise(node: Node) -> bool:
    """Without changes of order: cheap to compute wherever it is read."""
    return node.op.name not in _DISORDERLY


_DISORDERLY: Final = frozenset({
    "transpose", "gather", "gather_elements", "gather_nd",
    "concat", "slice", "pad", "resize", "tile",
})  # fmt: skip


# --------------------------------------------------------------------------------------- grouping


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
        self.makers = graph.producers()
        self.readers = {v: list(dict.fromkeys(r)) for v, r in graph.uses().items()}
        self.kept = set(graph.outputs)
        self.owner: dict[Value, _Open] = {}
        self.groups: list[_Open] = []
        self.order = {x: k for k, x in enumerate(graph.nodes)}
        self.through = self._read_through() | self._copied()

    def run(self) -> tuple[Group, ...]:
        for node in self.graph.nodes:
            if node in self.through:
                continue
            kind = self.kinds(node)
            mine = _Open([node], kind)
            self._take_through(mine)
            self.groups.append(mine)
            for v in node.outputs:
                self.owner[v] = mine
            if kind == "injective" and len(node.outputs) == 1:
                self._follow(mine)
            elif kind == "contraction":
                mine.heavy = node.outputs[0]
            elif kind == "reduction":
                mine.heavy = node.outputs[0]
                if node.op.name not in WINDOWS and len(node.outputs) == 1:
                    self._take_light(mine, _elementwise)
        done = [self._close(g) for g in self.groups]
        return tuple(sorted(done, key=lambda g: self.order[g.nodes[-1]]))

    # ------------------------------------------------------------------------ operands in place

    def _read_through(self) -> set[Node]:
        """The nodes that all their readers read through."""
        out: set[Node] = set()
        for node in reversed(self.graph.nodes):
            facts = self.kinds.facts(node)
            if not facts.moves or any(v in self.kept for v in node.outputs):
                continue
            (source,) = node.operands
            maker = self.makers.get(source)
            if facts.kind == "view" and (maker is None or maker.op.name not in MOVES):
                continue  # a view of what is stored
            readers = self.readers.get(node.outputs[0], ())
            if readers and all(r in out or self._reads_anywhere(r, node) for r in readers):
                out.add(node)
        return out

    def _reads_anywhere(self, reader: Node, node: Node) -> bool:
        """Whether a contraction can read an operand that is moved like this."""
        if self.kinds(reader) != "contraction":
            return False
        if getattr(reader.op, "groups", 1) == 1:
            return True
        return node.op.name == "slice" and getattr(node.op, "steps", (1,))[-1] == 1

    def _copied(self) -> set[Node]:
        """Light nodes that each of several readers had better compute for itself.

        What they read is no more than what they would store.
        """
        out: set[Node] = set()
        depth: dict[Node, int] = {}  # of the chains of copied nodes that begin here
        for node in reversed(self.graph.nodes):
            facts = self.kinds.facts(node)
            if facts.kind != "injective" or facts.costly or not is_elementwise(node.op):
                continue
            v = node.outputs[0]
            readers = self.readers.get(v, ())
            depth[node] = 1 + max((depth[r] for r in readers if r in out), default=0)
            if v in self.kept or len(readers) < 2 or depth[node] > MAX_COPIED:
                continue
            whole = [x for x in node.operands if not _larger(v, x)]
            stored = all(self.makers.get(x) is None or len(self.readers[x]) > 1 for x in whole)
            if (
                len(whole) == 1
                and stored
                and all(r in out or self._computes(r, v) for r in readers)
            ):
                out.add(node)
        return out

    def _computes(self, reader: Node, v: Value) -> bool:
        """Whether a reader can compute an operand element by element, each of them once or so."""
        facts = self.kinds.facts(reader)
        if facts.kind == "injective":
            return is_elementwise(reader.op) and not _larger(reader.outputs[0], v)
        return facts.kind == "reduction" and reader.op.name.startswith("reduce_")

    def _take_through(self, mine: _Open) -> None:
        """Put the nodes into a group that it computes for itself rather than read."""
        todo = [v for x in mine.nodes for v in x.operands]
        while todo:
            maker = self.makers.get(todo.pop())
            if maker in self.through and maker not in mine.nodes:
                mine.nodes.append(maker)
                todo.extend(maker.operands)
        mine.nodes.sort(key=self.order.__getitem__)

    # ------------------------------------------------------------------------------------- growth

    def _follow(self, mine: _Open) -> None:
        """Let an injective node join what it follows from: one heavy group, or many light ones."""
        before = list(mine.nodes)
        taken = self._gather(mine, _elementwise)
        heavy = [
            g for g in self._closed(mine) if g.heavy is not None and self._is_epilogue(mine, g)
        ]
        if heavy:
            target = max(heavy, key=lambda g: self.order[g.nodes[-1]])
            mine.kind, mine.heavy = target.kind, target.heavy
            self._remove([*taken, target])
            self._add(mine, target.nodes)
            self._take_light(mine, _elementwise)
            return
        mine.nodes[:] = before
        for v in before[-1].outputs:
            self.owner[v] = mine
        self._restore(taken)
        self._take_light(mine, lambda _: True)

    def _take_light(self, mine: _Open, fits: Callable[[Node], bool]) -> None:
        self._remove(self._gather(mine, fits))

    def _gather(self, mine: _Open, fits: Callable[[Node], bool]) -> list[_Open]:
        """Add the nodes of light groups that only this group reads; gives the groups."""
        taken: list[_Open] = []
        while True:
            more = [
                g
                for g in self._closed(mine)
                if g.kind == "injective"
                and all(map(fits, g.nodes))
                and not self._repeats(g, mine)
                and not self._feeds_contraction(g)
                and len(g.nodes) + len(mine.nodes) <= MAX_NODES
            ]
            if not more:
                return taken
            self._add(mine, more[0].nodes)
            taken.append(more[0])

    def _closed(self, mine: _Open) -> Iterator[_Open]:
        """Other groups of one result, all of whose readers are in this group."""
        inside = set(mine.nodes)
        seen: set[_Open] = set()
        for v in self._inputs(mine):
            g = self.owner.get(v)
            if g is None or g is mine or g in seen or g.kind in ("view", "opaque"):
                continue
            seen.add(g)
            if len(g.results) == 1 and v not in self.kept and self._final(v) <= inside:
                yield g

    def _final(self, v: Value) -> set[Node]:
        """The nodes that read a value, themselves or through others."""
        out: set[Node] = set()
        for r in self.readers.get(v, ()):
            out |= self._final(r.outputs[0]) if r in self.through else {r}
        return out

    def _feeds_contraction(self, source: _Open) -> bool:
        """Whether a group makes an operand of a contraction.

        That has to be in memory, since it is read again and again; a function of its own makes it
        in one pass, where each stage of the contraction's function would be a pass.
        """
        (v,) = source.results
        return any(self.kinds(r) == "contraction" for r in self._final(v))

    def _repeats(self, source: _Open, mine: _Open) -> bool:
        """Whether reading a group in place would compute much several times."""
        (v,) = source.results
        if not any(self.kinds.facts(x).costly for x in source.nodes):
            return False
        return all(_larger(r.outputs[0], v) for r in self.readers[v])

    def _is_epilogue(self, mine: _Open, target: _Open) -> bool:
        """Whether the group's nodes read the target's result element by element, in one order.

        Behind a reduction they may also spread it along further axes at the end: those of the rows.
        """
        (result,) = target.results
        identity: tuple[int, ...] = ()
        order: dict[Value, tuple[int, ...]] = {result: identity}
        for node in mine.nodes:
            found = set()
            reads = self.kinds.facts(node).reads
            for v, (how, perm) in zip(node.inputs, reads, strict=True):
                if v is None or v not in order:
                    continue
                if how == "other" or (how == "prefix") > (target.kind == "reduction"):
                    return False
                if how == "permuted" and target.kind == "reduction":
                    return False
                before = order[v]
                found.add(
                    before if not perm else tuple(before[k] for k in perm) if before else perm
                )
            if len(found) > 1:
                return False
            if found:
                order[node.outputs[0]] = found.pop()
        return True

    # --------------------------------------------------------------------------------- bookkeeping

    def _inputs(self, mine: _Open) -> tuple[Value, ...]:
        made = {v for x in mine.nodes for v in x.outputs}
        return _distinct(v for x in mine.nodes for v in x.operands if v not in made)

    def _add(self, mine: _Open, nodes: Iterable[Node]) -> None:
        mine.nodes.extend(x for x in nodes if x not in mine.nodes)
        mine.nodes.sort(key=self.order.__getitem__)
        for x in mine.nodes:
            for v in x.outputs:
                if x not in self.through:
                    self.owner[v] = mine

    def _remove(self, groups: Iterable[_Open]) -> None:
        for g in groups:
            self.groups.remove(g)

    def _restore(self, groups: Iterable[_Open]) -> None:
        for g in groups:
            for x in g.nodes:
                for v in x.outputs:
                    self.owner[v] = g

    def _close(self, group: _Open) -> Group:
        nodes = tuple(group.nodes)
        return Group(nodes, self._inputs(group), group.results, group.kind)


def _larger(a: Value, b: Value) -> bool:
    """Whether a value has certainly several times the elements of another."""
    return sum(not is_one(d) for d in a.type.shape) > sum(not is_one(d) for d in b.type.shape)


def _distinct(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(values))
