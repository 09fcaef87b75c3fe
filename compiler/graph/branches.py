"""Branches that are known, and what goes into those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planish.compiler.expr.nodes import Const
from planish.compiler.ops.control import If

from .ir import Array, Graph, Node, Replacement, Value
from .match import Rules, Site
from .subgraphs import inlined

BRANCHES: Final = Rules("branches")


@BRANCHES.rule("if")
def known_condition(s: Site, node: Node) -> Replacement:
    """The branch that a known condition chooses stands in the node's place."""
    condition, *inputs = node.operands
    if not isinstance(node.op, If) or condition.content is None:
        return None
    (chosen,) = condition.content
    if not isinstance(chosen, Const) or node.op.symbols:
        return None  # dimensions that have symbols keep them
    graph = node.op.then if chosen.value else node.op.other
    return inlined(s.builder, graph, [s.builder.now(v) for v in inputs])


@BRANCHES.rule("if")
def needless_inputs(s: Site, node: Node) -> Replacement:
    """Inputs that no branch reads are dropped; constants become those of the branches."""
    condition, *inputs = node.operands
    if not isinstance(node.op, If):
        return None
    arrays = [s.array(v) for v in inputs]
    kept = [
        k
        for k, array in enumerate(arrays)
        if array is None and any(_reads(g, g.inputs[k]) for g in node.op.branches)
    ]
    if len(kept) == len(inputs):
        return None
    then, other = (_taking(g, kept, arrays) for g in node.op.branches)
    return s.all_of(replace(node.op, then=then, other=other), condition, *(inputs[k] for k in kept))


def _reads(graph: Graph, v: Value) -> bool:
    return v in graph.outputs or any(v in node.operands for node in graph.nodes)


def _taking(graph: Graph, kept: Sequence[int], arrays: Sequence[Array | None]) -> Graph:
    """The graph that takes these of its inputs; others that it reads are constants."""
    constants = {
        v: array
        for v, array in zip(graph.inputs, arrays, strict=True)
        if array is not None and _reads(graph, v)
    }
    return graph.with_(
        inputs=tuple(graph.inputs[k] for k in kept),
        input_names=tuple(graph.input_names[k] for k in kept),
        constants={**constants, **graph.constants},
    )
