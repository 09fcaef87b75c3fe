"""What is known of symbols and of loops' variables where a statement stands.

A symbol is a size: it may be 0. Inside of a loop there is an iteration, so there the loop's extent
is at least 1, and so are the symbols that must be for that.
"""

from __future__ import annotations

from collections.abc import Iterable

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.intervals import facts
from planish.compiler.expr.linear import Linear, factors, linear
from planish.compiler.expr.nodes import Const, Expr, Var

from .ir import Function, Iter, Loop


class Known(dict[Var, Interval]):
    """Where variables lie; ``symbols`` are those that no loop moves."""

    def __init__(self, ranges: dict[Var, Interval], symbols: frozenset[Var]) -> None:
        super().__init__(ranges)
        self.symbols = symbols


def anywhere(func: Function) -> Known:
    """What is known everywhere in a function."""
    return Known({s: Interval(0, None) for s in func.symbols}, frozenset(func.symbols))


def entered(known: Known, loops: Iterable[Loop | Iter]) -> Known:
    """What is known in loops, or of a block's iterators; the outermost first."""
    out = Known(known, known.symbols)
    for x in loops:
        _reaches(x.extent, 1, out)
        top = bounds(x.extent, out).hi
        out[x.var] = Interval(0, None if top is None else max(0, top - 1))
    return out


def _reaches(e: Expr, least: int, known: Known) -> None:
    """Have symbols be as large as they must be for an expression to be at least ``least``."""
    if e.dtype is not I64 or n.loads(e):
        return
    total = linear(e)
    for atom, c in total.terms.items():
        if c > 0:
            rest = Linear({a: k for a, k in total.terms.items() if a is not atom}, total.constant)
            most = facts(known).sum_bounds(rest).hi
            if most is not None:
                _raise(atom, -((most - least) // c), known)


def _raise(atom: Expr, least: int, known: Known) -> None:
    """As ``_reaches``, for what is no sum."""
    match atom:
        case Var() if atom in known.symbols:
            old = known[atom]
            known[atom] = Interval(max(old.lo or 0, least), old.hi)
        case n.FloorDiv(x, Const(d)) if d > 0:
            _reaches(x, least * int(d), known)
        case n.Min(x, y):
            _reaches(x, least, known)
            _reaches(y, least, known)
        case n.Mul() if least > 0:
            parts = factors(atom)
            lows = [bounds(f, known).lo for f in parts]
            if all(lo is not None and lo >= 0 for lo in lows):
                for f in parts:
                    _reaches(f, 1, known)
        case _:
            pass
