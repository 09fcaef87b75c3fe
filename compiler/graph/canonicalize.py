"""(being written)"""

from __future__ import annotations

from .ir import Graph


def canonicalize(graph: Graph) -> Graph:
    """The graph."""
    return graph
