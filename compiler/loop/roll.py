"""Roll up steps of reductions that were to be repeated in code.

Repeating the steps of a register tile's sum saves what a loop costs for each; where the tile itself
is repeated in code for each form that it can have, that is not worth its size. Then only so many
steps stay repeated as make ``MOST_UPDATES``, and a loop that was split for the others becomes one
loop again.
"""

from __future__ import annotations

from math import prod
from typing import Final

from planish.compiler.expr.nodes import Expr, Var, free_vars, substitute
from planish.compiler.expr.simplify import simplify

from .ir import (
    Block,
    If,
    Loop,
    Stmt,
    children,
    constant,
    loaded,
    map_expressions,
    nests,
    with_children,
)

MOST_UPDATES: Final = 24  # of elements or vectors: about a register tile, so one step of its sum


def roll(s: Stmt, registers: frozenset[str]) -> Stmt:
    """The statement with long runs of repeated steps as loops.

    ``registers`` are buffers whose elements have to be known when code is made: loops over them
    stay as they are.
    """
    new = with_children(s, tuple(roll(c, registers) for c in children(s)))
    if not isinstance(new, Loop):
        return new
    if new.kind == "unrolled" and _updates(new) > MOST_UPDATES and _steps(new, registers):
        return new.with_(kind="serial")
    rolled = new.body is not s.body if isinstance(s, Loop) else False
    return _joined(new) if rolled and new.kind == "serial" else new


def _updates(s: Stmt) -> int:
    """How many of a block are made in code, at most."""
    most = 0
    for loops, _ in nests(s):
        most = max(most, prod(constant(x.extent) or 1 for x in loops if x.kind == "unrolled"))
    return most


def _steps(loop: Loop, registers: frozenset[str]) -> bool:
    """Whether the iterations update the same elements, and choose no registers."""
    for _, b in nests(loop.body):
        if b.combiner is None or b.init is not None or loop.var in free_vars(*b.indices):
            return False
        for x in loaded(b):
            if x.buffer in registers and loop.var in free_vars(*x.indices):
                return False
    return True


def _joined(outer: Loop) -> Loop:
    """Two loops as one, if they were made of one: only ``outer * extent + inner`` occurs."""
    inner = outer.body
    if not isinstance(inner, Loop) or inner.kind != "serial" or outer.hint or inner.hint:
        return outer
    size = constant(inner.extent)
    if size is None:
        return outer
    value = inner.var - outer.var * size
    body = map_expressions(inner.body, lambda e: _put(e, inner.var, value))
    if _speaks_of(body, outer.var):
        return outer
    return inner.with_(extent=simplify(outer.extent * size), body=body)


def _put(e: Expr, var: Var, value: Expr) -> Expr:
    return simplify(substitute(e, {var: value})) if var in free_vars(e) else e


def _speaks_of(s: Stmt, var: Var) -> bool:
    match s:
        case Block():
            return var in free_vars(*s.indices, s.value, s.where)
        case Loop(extent=e) | If(condition=e) if var in free_vars(e):
            return True
        case _:
            return any(_speaks_of(c, var) for c in children(s))
