"""Compute once what is computed twice."""

from __future__ import annotations

import hashlib

from .ir import Graph, GraphBuilder, Node, Replacement, Value, rewrite

SMALL_BYTES = 4096  # constants up to this size are compared by content


def eliminate_common(graph: Graph) -> Graph:
    """The graph with equal nodes on equal inputs merged, and small equal constants too."""
    first: dict[object, Value] = {}
    same: dict[Value, Value] = {}
    for v, array in graph.constants.items():
        if array.nbytes <= SMALL_BYTES:
            key = (v.type, hashlib.sha256(array.tobytes()).digest())
            same[v] = first.setdefault(key, v)
    seen: dict[object, tuple[Value, ...]] = {}

    def visit(_: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        values = tuple(None if v is None else same.get(v, v) for v in inputs)
        key = (node.op, values)
        found = seen.get(key)
        if found is not None:
            return found
        seen[key] = node.outputs
        return None

    return rewrite(graph, visit)
