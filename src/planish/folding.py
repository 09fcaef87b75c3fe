"""Constants that need our own kernels: what is computed from constants alone, computed once.

Exponentials, sines, products of matrices and the like are not the same to the last bit in numpy.
The part of the graph that depends on constants alone is compiled for this machine as any graph is,
run once, and replaced by its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planish.compiler.errors import RuntimeFault
from planish.compiler.graph.dce import eliminate_dead
from planish.compiler.graph.fold import MAX_GROWTH, SOURCES, growth, is_closed
from planish.compiler.graph.ir import Array, Graph, GraphBuilder, Node, Replacement, Value, rewrite
from planish.compiler.graph.match import Surroundings

if TYPE_CHECKING:
    from planish.targets.target import Target


def fold_by_kernels(graph: Graph, target: Target) -> Graph:
    """The graph without nodes that depend on constants alone.

    The target's own code works them out; for one that this machine cannot run, nothing is folded,
    nor where working them out ends with an error.
    """
    nodes = constant_nodes(graph)
    if not nodes or target.missing:
        return graph
    part = constant_part(graph, nodes)
    try:
        arrays = dict(zip(part.outputs, run_once(part, target), strict=True))
    except RuntimeFault:  # it is for the call to say, if it ever comes there
        return graph

    def visit(b: GraphBuilder, node: Node, _: tuple[Value | None, ...]) -> Replacement:
        if not any(v in arrays for v in node.outputs):
            return None
        return tuple(b.constant(arrays[v], v.name) if v in arrays else v for v in node.outputs)

    return eliminate_dead(rewrite(graph, visit))


def constant_nodes(graph: Graph) -> list[Node]:
    """The nodes that depend on constants alone, and whose results are not too large to keep."""
    known: dict[Value, int] = {v: a.nbytes for v, a in graph.constants.items()}
    found: list[Node] = []
    for node in graph.nodes:
        if not node.operands and node.op.name not in SOURCES:
            continue
        if not all(v in known for v in node.operands) or not is_closed(node):
            continue
        size = growth(node.outputs, ())
        if size <= MAX_GROWTH + sum(known[v] for v in dict.fromkeys(node.operands)):
            found.append(node)
            known.update((v, v.type.size * v.type.dtype.bytes) for v in node.outputs)  # type: ignore[operator]
    return [] if all(node.op.name in SOURCES for node in found) else found


def constant_part(graph: Graph, nodes: list[Node]) -> Graph:
    """The nodes as a graph of their own; its outputs are what the others read."""
    s = Surroundings(graph)
    inside = set(nodes)
    outputs = tuple(
        v
        for node in nodes
        for v in node.outputs
        if v in s.outputs or any(r not in inside for r in s.readers.get(v, ()))
    )
    part = Graph("constants", (), outputs, tuple(nodes), graph.constants)
    part = part.with_(output_names=tuple(v.name for v in outputs))
    return eliminate_dead(part)


def run_once(graph: Graph, target: Target) -> tuple[Array, ...]:
    """The results of a graph that has no inputs, by the target's code on this machine."""
    from planish.assembly import compile_graph
    from planish.build import assemble, with_work

    program = with_work(compile_graph(graph, target.machine, 1, scheduled=target.scheduled))
    results = assemble(program, target.code(program), 1)()
    return tuple(results)
