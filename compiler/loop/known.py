"""What is known of symbols and of the loops around, where a statement stands.

A symbol is 0 or more: it may be an empty dimension, or a number that the data tells. Inside of a
loop the extent is 1 or more, and so are the symbols without which it would not be.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.nodes import Expr, Var, free_vars
from planish.compiler.expr.simplify import simplify

from .ir import Function, Iter, Loop

Known: TypeAlias = dict[Var, Interval]


def of_symbols(func: Function) -> Known:
    """What is known outside of all loops."""
    return {s: Interval(0, None) for s in func.symbols}


def within(known: Known, *runs: Loop | Iter) -> Known:
    """What is known in loops, or within the extents of iterators."""
    out = dict(known)
    for x in runs:
        top = bounds(x.extent, out).hi
        out[x.var] = Interval(0, None if top is None else max(0, top - 1))
        out = not_empty(out, (x.extent,))
    return out


def not_empty(known: Known, extents: Iterable[Expr]) -> Known:
    """What is known where extents are 1 or more, as those of a buffer that has elements."""
    out = dict(known)
    for v in (v for e in extents for v in needed(e)):
        found = out.get(v)
        if found is not None and found.lo == 0:
            out[v] = Interval(1, found.hi)
    return out


@lru_cache(maxsize=4096)
def needed(extent: Expr) -> tuple[Var, ...]:
    """The variables that must be 1 or more for the extent to be, all being 0 or more."""
    if isinstance(extent, Var):
        return (extent,)
    if n.loads(extent) or extent.dtype is not I64:
        return ()
    variables = free_vars(extent)
    known = {v: Interval(0, None) for v in variables}

    def empty(v: Var) -> bool:
        top = bounds(simplify(n.substitute(extent, {v: n.as_expr(0)}), known), known).hi
        return top is not None and top <= 0

    return tuple(v for v in variables if empty(v))
