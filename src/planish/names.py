"""What errors of a call write for sizes that only its data tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Var
from planish.compiler.graph.ir import Graph
from planish.compiler.ops.sizes import Sizes


class Names:
    """The elements of values that the symbols of a graph, and of those in it, stand for."""

    def __init__(self, graph: Graph) -> None:
        self._elements: dict[Var, tuple[str, tuple[Var, ...]]] = {}
        self._shown: dict[Var, Expr] = {}
        for name, symbols in _elements(graph):
            self._elements.update(dict.fromkeys(symbols, (name, symbols)))
            # Of two symbols one is 0, and they are only ever read as a difference.
            above, *below = symbols
            self._shown[above] = Var(name)
            self._shown.update(dict.fromkeys(below, n.as_expr(0)))

    def shown(self, e: Expr) -> Expr:
        """An expression to print; it is not to be computed with."""
        return n.substitute(e, self._shown)

    def about(self, symbols: Iterable[Var]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """For a failure: names, and the symbols of which each is the value."""
        found = dict(self._elements.get(v, (v.name, (v,))) for v in symbols)
        return tuple((name, tuple(v.name for v in own)) for name, own in found.items())


def _elements(graph: Graph) -> Iterator[tuple[str, tuple[Var, ...]]]:
    for node in graph.nodes:
        if isinstance(node.op, Sizes):
            yield from node.op.elements(node.operands[0].type)
        for inner in node.op.graphs.values():
            yield from _elements(inner)


__all__ = ["Names"]
