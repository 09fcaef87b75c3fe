"""Graphs that are attributes of operators: the branches of ``If``, the body of ``Loop``.

A subgraph is a graph of its own: what it reads from around it are inputs, which the node's inputs
give it in order. Only symbols are common: a subgraph may use those of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from planish.compiler.expr.nodes import Expr, Var, free_vars, substitute
from planish.compiler.ops.base import Op

from .ir import Content, Graph, GraphBuilder, Node, TensorType, Value


def everywhere(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph after ``change``, with its subgraphs changed before, the innermost first.

    ``change`` keeps a graph's inputs, and number and types of its outputs. Conditions that it adds
    to a loop's body hold around it too; those of a branch are checked when it runs.
    """
    nodes = [_changed(node, change) for node in graph.nodes]
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return change(graph)
    found = {
        c: g.reasons.get(c, "")
        for node in nodes
        if not node.op.chooses
        for g in node.op.graphs.values()
        for c in g.constraints
        if node.op.inside.isdisjoint(free_vars(c))
    }
    constraints = tuple(dict.fromkeys((*graph.constraints, *found)))
    reasons = {**found, **graph.reasons}
    return change(graph.with_(nodes=tuple(nodes), constraints=constraints, reasons=reasons))


def _changed(node: Node, change: Callable[[Graph], Graph]) -> Node:
    graphs = node.op.graphs
    if not graphs:
        return node
    new: dict[str, Any] = {name: everywhere(g, change) for name, g in graphs.items()}
    if all(new[name] is g for name, g in graphs.items()):
        return node
    return replace(node, op=replace(node.op, **new))


def bound_in(graph: Graph) -> tuple[Var, ...]:
    """The symbols that nodes of a graph bind, not those of its subgraphs."""
    return tuple(v for node in graph.nodes for v in node.op.binds)


def inlined(b: GraphBuilder, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of a subgraph whose nodes are made anew by the builder, on these inputs."""
    now: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    for v, array in graph.constants.items():
        now[v] = b.constant(array, v.name)
    for node in graph.nodes:
        operands = [None if v is None else now[v] for v in node.inputs]
        names = [v.name for v in node.outputs]
        outputs = b.apply(node.op, *operands, names=names, origin=node.origin)
        now.update(zip(node.outputs, outputs, strict=True))
    return tuple(now[v] for v in graph.outputs)


def substituted(graph: Graph, symbols: Mapping[Var, Expr]) -> Graph:
    """The graph with symbols replaced everywhere."""
    values = dict(symbols)
    now: dict[Value, Value] = {}

    def exprs(items: Iterable[Expr]) -> Content:
        return tuple(substitute(e, values) for e in items)

    def make(v: Value) -> Value:
        content = None if v.content is None else exprs(v.content)
        now[v] = Value(v.name, TensorType(v.type.dtype, exprs(v.type.shape)), content)
        return now[v]

    return graph.with_(
        inputs=tuple(map(make, graph.inputs)),
        constants={make(v): a for v, a in graph.constants.items()},
        nodes=tuple(
            Node(
                node.op.with_symbols(symbols),
                tuple(None if v is None else now[v] for v in node.inputs),
                tuple(map(make, node.outputs)),
                node.origin,
            )
            for node in graph.nodes
        ),
        outputs=tuple(now[v] for v in graph.outputs),
        constraints=exprs(graph.constraints),
        reasons={substitute(c, values): why for c, why in graph.reasons.items()},
    )


def symbols_of(graph: Graph) -> tuple[Var, ...]:
    """All symbols that a graph mentions, in its subgraphs too."""
    return free_vars(*expressions(graph))


def expressions(value: Any) -> Iterator[Expr]:
    """All expressions of a graph, of an operator's attributes, or of an attribute."""
    match value:
        case Expr():
            yield value
        case tuple():
            for item in value:
                yield from expressions(item)
        case Graph():
            for v in value.values():
                yield from (*v.type.shape, *(v.content or ()))
            for node in value.nodes:
                yield from expressions(node.op)
        case Op():
            for f in fields(value):
                yield from expressions(getattr(value, f.name))
