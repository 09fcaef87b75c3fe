"""Compute once what is computed twice, and keep equal constants once."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from .ir import Array, Graph, GraphBuilder, Node, Replacement, Value, rewrite

SAMPLES: Final = (
    64  # elements by which constants are told apart before they are compared as a whole
)


def eliminate_common(graph: Graph) -> Graph:
    """The graph with equal nodes on equal inputs merged, and equal constants too."""
    same = _equal_constants(graph)
    seen: dict[object, Node] = {}

    def visit(_: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        values = tuple(None if v is None else same.get(v, v) for v in inputs)
        first = seen.setdefault((node.op, values), node)
        if first is node or repr(first.op) != repr(node.op):  # 0.0 and -0.0 are equal, 1 and True
            return None
        return first.outputs

    new = rewrite(graph, visit)
    return _reading(new, same) if same else new


def _equal_constants(graph: Graph) -> dict[Value, Value]:
    """For constants that are equal to earlier ones, to the last bit: those."""
    alike: dict[object, list[Value]] = {}
    same: dict[Value, Value] = {}
    for v, array in graph.constants.items():
        group = alike.setdefault((v.type, _sample(array)), [])
        first = next((u for u in group if _equal(graph.constants[u], array)), None)
        if first is None:
            group.append(v)
        else:
            same[v] = first
    return same


def _sample(array: Array) -> bytes:
    """A few of the elements, spread over the array."""
    if array.dtype.hasobject:
        return repr(array.reshape(-1)[:SAMPLES].tolist()).encode()
    if array.size <= SAMPLES:
        return array.tobytes()
    places = np.linspace(0, array.size - 1, SAMPLES, dtype=np.int64)
    return bytes(array[np.unravel_index(places, array.shape)].tobytes())


def _equal(a: Array, b: Array) -> bool:
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    if a is b or (a.ctypes.data == b.ctypes.data and a.strides == b.strides):
        return True
    if not a.ndim or a.dtype.itemsize > 8:
        return a.tobytes() == b.tobytes()
    kind = f"u{a.dtype.itemsize}"
    return bool(np.array_equal(a.view(kind), b.view(kind)))


def _reading(graph: Graph, same: dict[Value, Value]) -> Graph:
    """The graph with values replaced by equal ones wherever they are read."""

    def now(v: Value) -> Value:
        return same.get(v, v)

    nodes = tuple(
        node
        if not any(v in same for v in node.operands)
        else replace(node, inputs=tuple(None if v is None else now(v) for v in node.inputs))
        for node in graph.nodes
    )
    constants = {v: a for v, a in graph.constants.items() if v not in same}
    return graph.with_(nodes=nodes, constants=constants, outputs=tuple(map(now, graph.outputs)))
