"""Sizes that what a model assumes leaves no choice of, put in as numbers.

A model that was exported for any batch, but reshapes as if there was one, holds for one only: its
sizes then look unequal where they are equal.
"""

from __future__ import annotations

from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.expr.sizes import normal

from .ir import Graph
from .subgraphs import substituted
from .verify import verify


def settle_sizes(graph: Graph) -> Graph:
    """The graph with a number for each size of an input that can have only one."""
    given = {d for v in graph.inputs for d in v.type.shape}
    positive = {c.rhs for c in graph.constraints if isinstance(c, n.Le) and _is_positive(c.lhs)}
    found: dict[Var, Expr] = {}
    for c in graph.constraints:
        size = _only(c, positive) if isinstance(c, n.Eq) else None
        if size is not None and size[0] in given and size[0] not in found:
            found[size[0]] = size[1]
    if not found:
        return graph
    new = substituted(graph, found)
    try:
        verify(new)
    except InternalError:  # an operator refuses them: each call will be refused, and is told why
        return graph
    return new.with_(
        constraints=tuple(c for c in map(normal, new.constraints) if c is not n.TRUE),
        reasons={normal(c): why for c, why in new.reasons.items()},
    )


def _is_positive(e: Expr) -> bool:
    return isinstance(e, Const) and bool(e.value >= 1)


def _only(c: n.Eq, positive: set[Expr]) -> tuple[Var, Const] | None:
    """The size and its number in ``s == 2``, or in ``x == s * x`` for an x that is not 0."""
    for a, b in ((c.lhs, c.rhs), (c.rhs, c.lhs)):
        match a, b:
            case Var(), Const():
                return a, b
            case x, n.Mul(y, z) if x in positive and x in (y, z):
                size = z if x is y else y
                if isinstance(size, Var):
                    return size, n.const(1, size.dtype)
            case _:
                pass
    return None
