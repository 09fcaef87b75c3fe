"""Looking around in a graph: who makes a value, who reads it, what a constant is.

Rules match on a graph as it is and build the next one: ``Rules`` runs them over all nodes, round by
round, until none fits any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Expr
from planish.compiler.expr.sizes import numbers, same
from planish.compiler.ops.base import Op
from planish.compiler.ops.elementwise import Binary, Unary
from planish.compiler.ops.shape import Reshape

from .dce import eliminate_dead
from .ir import Array, Graph, GraphBuilder, Node, Replacement, TensorType, Value, rewrite

ELEMENTWISE: Final = "elementwise"  # stands for the names of all such operators
_PLAIN: Final = ("where", "cast", "pow", "requantize")
ROUNDS: Final = 500  # before rules count as not settling


class Surroundings:
    """A graph with the makers and readers of its values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.producers()
        self.readers = graph.uses()
        self.outputs = frozenset(graph.outputs)

    def maker(self, value: Value | None, *names: str) -> Node | None:
        """The node that makes a value, if its operator is one of these (any, if none is named)."""
        node = None if value is None else self.makers.get(value)
        return node if node is not None and (not names or node.op.name in names) else None

    def alone(self, value: Value) -> bool:
        """Whether the value is read once, and by nobody outside of the graph."""
        return value not in self.outputs and len(self.readers.get(value, ())) == 1

    def array(self, value: Value | None) -> Array | None:
        """The array of a constant."""
        return None if value is None else self.graph.constants.get(value)

    def scalar(self, value: Value | None) -> float | None:
        """The number of a constant of one element."""
        array = self.array(value)
        return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


class Site(Surroundings):
    """Where rules look and build: the surroundings in the old graph, the builder of the new one."""

    builder: GraphBuilder
    node: Node

    def make(self, op: Op, *inputs: Value | None) -> Value:
        """The only result of ``op`` on values of the old graph or the new one."""
        return self.all_of(op, *inputs)[0]

    def all_of(self, op: Op, *inputs: Value | None) -> tuple[Value, ...]:
        """The results of ``op``, with the names and the origin of the node that they are for."""
        now = [None if v is None else self.builder.now(v) for v in inputs]
        array = self.builder.constants.get(now[0]) if len(now) == 1 and now[0] else None
        if isinstance(op, Reshape) and array is not None and now[0] is not None:
            return (self.constant(array.reshape(numbers(op.shape)), now[0].name),)
        own = op.name == self.node.op.name
        names = [v.name if own else f"{v.name}_{op.name}" for v in self.node.outputs]
        return self.builder.apply(op, *now, names=names, origin=self.node.origin)

    def constant(self, array: Array, name: str) -> Value:
        """A new constant."""
        return self.builder.constant(array, name)


Rule: TypeAlias = Callable[[Site, Node], Replacement]


class Rules:
    """Rules by the names of the operators that they look at, tried in order."""

    def __init__(self, name: str, *parts: Rules) -> None:
        self.name = name
        self.rules: dict[str, list[Rule]] = {}
        for part in parts:
            for key, rules in part.rules.items():
                self.rules.setdefault(key, []).extend(rules)

    def rule(self, *names: str) -> Callable[[Rule], Rule]:
        """Register a function for nodes of these operators."""

        def register(rule: Rule) -> Rule:
            for name in names:
                self.rules.setdefault(name, []).append(rule)
            return rule

        return register

    def run(self, graph: Graph) -> Graph:
        """The graph after all that the rules can do.

        Errors: InternalError if they do not settle.
        """
        for _ in range(ROUNDS):
            new = self.once(graph)
            if new is graph:
                return graph
            graph = eliminate_dead(new)
        raise InternalError("rules do not settle", op=self.name)

    def once(self, graph: Graph) -> Graph:
        """The graph with every node replaced for which a rule fits now."""
        site = Site(graph)
        common = self.rules.get(ELEMENTWISE, [])

        def visit(b: GraphBuilder, node: Node, _: tuple[Value | None, ...]) -> Replacement:
            rules = self.rules.get(node.op.name, [])
            if is_elementwise(node.op):
                rules = rules + common
            site.builder, site.node = b, node
            for rule in rules:
                out = rule(site, node)
                if out is not None:
                    many = out if isinstance(out, tuple) else (out,)
                    return tuple(map(b.now, many))
            return None

        return rewrite(graph, visit)


def is_elementwise(op: Op) -> bool:
    """Whether elements of the result come from the elements at the same places, broadcast."""
    return isinstance(op, Unary | Binary) or op.name in _PLAIN


def same_shape(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(x is y or same(x, y) for x, y in zip(a, b, strict=True))


def same_type(a: TensorType, b: TensorType) -> bool:
    """Whether two types are known to be equal."""
    return a.dtype is b.dtype and same_shape(a.shape, b.shape)
