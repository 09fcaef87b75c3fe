"""(being written)"""

from __future__ import annotations

from .ir import Graph


def compose(graph: Graph) -> Graph:
    """The graph."""
    return graph
