"""The simplifier: expressions in a canonical, cheap form, given the ranges of their variables.

``simplify(e, ranges)`` has the value of ``e`` for all values of the variables in their ranges.
Variables that are not in ``ranges`` are unbounded. ``given`` are conditions that are true as well,
such as ``j < w``.
"""

from __future__ import annotations

from typing import Final

from .choice import CHOICE
from .floats import FLOATS
from .index import INDEX
from .intervals import Facts, Ranges, facts
from .logic import LOGIC
from .nodes import TRUE, Expr
from .rewrite import RuleSet

SIMPLIFY: Final[RuleSet[Facts]] = RuleSet("simplify", (FLOATS, INDEX, LOGIC, CHOICE))


def simplify(e: Expr, ranges: Ranges | None = None, given: tuple[Expr, ...] = ()) -> Expr:
    """An expression of the same value, canonical where the rules know how."""
    known = facts(ranges, given)
    return SIMPLIFY.apply(e, known, known.simplified)


def prove(condition: Expr, ranges: Ranges | None = None, given: tuple[Expr, ...] = ()) -> bool:
    """Whether the condition certainly holds."""
    return simplify(condition, ranges, given) is TRUE
