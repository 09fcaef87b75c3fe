"""Drop what nobody reads."""

from __future__ import annotations

from .ir import Graph, Value


def eliminate_dead(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output depends on."""
    live: set[Value] = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if any(v in live for v in node.outputs):
            live.update(node.operands)
            nodes.append(node)
    constants = {v: a for v, a in graph.constants.items() if v in live}
    if len(nodes) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.with_(nodes=tuple(reversed(nodes)), constants=constants)
