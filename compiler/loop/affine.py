"""Index arithmetic in isl's notation.

What isl can say: sums, multiples by constants, ``//`` and ``%`` by positive constants, ``min`` and
``max``, and conditions on these. An expression of symbols alone that is none of these (``n * m``)
becomes a parameter of its own. The rest is left out of conjunctions: the sets that come of it are
too large, never too small.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import islpy as isl

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars, loads
from planish.compiler.expr.text import show
from planish.compiler.remembering import remembered

Names: TypeAlias = Mapping[Var, str]

_local: Final = threading.local()


def context() -> Any:
    """This thread's isl context."""
    if not hasattr(_local, "context"):
        _local.context = isl.Context()
    return _local.context


class Formula:
    """A conjunction over integer variables and parameters, as isl's text.

    ``exact`` says whether nothing was left out so far.
    """

    def __init__(self) -> None:
        self.parameters: dict[Expr, str] = {}
        self.clauses: list[str] = []
        self.exact = True

    def set(self, variables: Iterable[str], name: str = "") -> Any:
        """The isl set of the values of ``variables`` that satisfy the clauses."""
        return isl.Set.read_from_str(context(), self.text(f"{name}[{', '.join(variables)}]"))

    def map(self, left: str, right: str) -> Any:
        """The isl map between two tuples of terms under the clauses."""
        return isl.Map.read_from_str(context(), self.text(f"{left} -> {right}"))

    def text(self, subject: str) -> str:
        condition = f" : {' and '.join(self.clauses)}" if self.clauses else ""
        return f"[{', '.join(self.parameters.values())}] -> {{ {subject}{condition} }}"

    def add(self, clause: str | None) -> None:
        if clause is None:
            self.exact = False
        else:
            self.clauses.append(clause)

    def between(self, name: str, extent: Expr, names: Names) -> None:
        """0 <= name < extent."""
        self.clauses.append(f"{name} >= 0")
        end = self.term(extent, names)
        self.add(None if end is None else f"{name} < {end}")

    def holds(self, condition: Expr, names: Names, positive: bool = True) -> None:
        """The condition, or its opposite."""
        self.add(self.condition(condition, names, positive))

    def term(self, e: Expr, names: Names) -> str | None:
        """The expression as text; None if isl cannot say it."""
        out = self._term(e, names)
        if out is None and not any(v in names for v in free_vars(e)) and not loads(e):
            self.exact = False  # what the symbols in it say of it is not known
            return self.parameters.setdefault(e, parameter(e))
        return out

    def _term(self, e: Expr, names: Names) -> str | None:
        match e:
            case Const(value):
                return str(int(value))
            case Var():
                found = names.get(e)
                return found or self.parameters.setdefault(e, parameter(e))
            case n.Mul(Const(c), x) | n.Mul(x, Const(c)):
                inner = self.term(x, names)
                return None if inner is None else f"({int(c)} * {inner})"
            case n.FloorDiv(x, Const(c)) if c > 0:
                inner = self.term(x, names)
                return None if inner is None else f"floor({inner} / {int(c)})"
            case n.FloorMod(x, Const(c)) if c > 0:
                inner = self.term(x, names)
                return None if inner is None else f"({inner} mod {int(c)})"
            case n.Cast(x, dtype) if dtype.is_int and x.dtype.is_int:
                return self.term(x, names)
            case n.Add() | n.Sub() | n.Min() | n.Max():
                a, b = self.term(e.lhs, names), self.term(e.rhs, names)
                if a is None or b is None:
                    return None
                if isinstance(e, n.Min | n.Max):
                    return f"{e.symbol}({a}, {b})"
                return f"({a} {e.symbol} {b})"
            case _:
                return None

    def condition(self, e: Expr, names: Names, positive: bool = True) -> str | None:
        """The condition as text; None if nothing of it can be said."""
        match e:
            case Const(value):
                return "0 = 0" if bool(value) is positive else "1 = 0"
            case n.Not(x):
                return self.condition(x, names, not positive)
            case n.And(x, y) | n.Or(x, y):
                a, b = self.condition(x, names, positive), self.condition(y, names, positive)
                if isinstance(e, n.And) is positive:  # a conjunction: what is known of it
                    self.exact &= a is not None and b is not None
                    return f"{a} and {b}" if a and b else a or b
                return f"({a} or {b})" if a and b else None
            case n.Lt() | n.Le() | n.Eq() | n.Ne() if e.lhs.dtype.is_int:
                a, b = self.term(e.lhs, names), self.term(e.rhs, names)
                if a is None or b is None:
                    return None
                symbol, opposite = _RELATIONS[type(e)]
                return f"{a} {symbol if positive else opposite} {b}"
            case _:
                return None


@remembered(4096)
def parameter(e: Expr) -> str:
    """The parameter that stands for an expression, the same in all formulas."""
    if isinstance(e, Var) and e.name.isascii():
        return f"{e.name}_"  # no keyword of isl, and no variable, ends like this
    return f"p_{blake2b(show(e).encode(), digest_size=8).hexdigest()}_"


_RELATIONS: Final[dict[type[Expr], tuple[str, str]]] = {
    n.Lt: ("<", ">="),
    n.Le: ("<=", ">"),
    n.Eq: ("=", "!="),
    n.Ne: ("!=", "="),
}
