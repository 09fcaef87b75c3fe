"""Drop what nobody reads."""

from __future__ import annotations

from planish.compiler.expr.nodes import Var, free_vars

from .ir import Graph, Node, Value
from .subgraphs import expressions


def eliminate_dead(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output depends on.

    A node that binds symbols stays if one of them is a size of what stays, or in a condition; one
    that refuses what a model does not allow stays in any case.
    """
    live: set[Value] = set(graph.outputs)
    binds = any(node.op.binds for node in graph.nodes)
    symbols: set[Var] = set()
    if binds:
        symbols.update(free_vars(*(d for v in graph.outputs for d in v.type.shape)))
        symbols.update(free_vars(*graph.constraints))
    nodes = []
    for node in reversed(graph.nodes):
        if (
            any(v in live for v in node.outputs)
            or (node.op.refuses and not _is_known(graph, node))
            or not symbols.isdisjoint(node.op.binds)
        ):
            live.update(node.operands)
            if binds:
                symbols.update(_symbols(node))
            nodes.append(node)
    constants = {v: a for v, a in graph.constants.items() if v in live}
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.with_(nodes=tuple(reversed(nodes)), constants=constants)


def _is_known(graph: Graph, node: Node) -> bool:
    """Whether it reads constants only: what they refuse was found before."""
    return all(v in graph.constants for v in node.operands)


def _symbols(node: Node) -> tuple[Var, ...]:
    """All that a node mentions."""
    values = (
        e for v in (*node.operands, *node.outputs) for e in (*v.type.shape, *(v.content or ()))
    )
    return free_vars(*values, *expressions(node.op))
