"""Whether two accesses are of different elements, by arithmetic alone.

Take two instances that touch one element: their indices are equal. If an index is ``8 * i + j``
with j < 8, then both have the same i, and the same j. What is found to be equal so, one digit after
the other, tells more: ``f // 4`` and ``f % 4`` together are ``f``. If in the end a loop must be in
the same iteration in both instances, instances in different iterations of it touch different
elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars, loads

from .ir import Loop, constant
from .sites import Access, Site, complete, extremes


def apart(s: Site, a: Access, t: Site, b: Access, depth: int, chain: tuple[Var, ...]) -> bool:
    """Whether the elements are surely different if any of the loops in ``chain`` differs.

    The first ``depth`` loops are the same and in the same iteration. False is "not known".
    """
    shared = depth
    while shared < min(len(s.loops), len(t.loops)) and s.steps[shared] == t.steps[shared]:
        shared += 1
    common = {x.var: x for x in s.loops[depth:shared]}
    if not all(v in common for v in chain):
        return False
    ours = {x.var: x for x in s.loops[shared:]}
    theirs = {x.var: x for x in t.loops[shared:]}
    known = _Equalities(common)
    for i, j in zip(a.indices, b.indices, strict=False):
        left, right = _form(i, common, ours), _form(j, common, theirs)
        if left and right and left.digits == right.digits and left.still == right.still:
            slack = max(left.high - right.low, right.high - left.low)
            known.forms.append((left.digits, slack))
    return known.prove(set(chain))


@dataclass(slots=True)
class _Form:
    """An index: multiples of terms in the common loops, terms that stand still, and a rest."""

    digits: dict[Expr, int] = field(default_factory=dict)
    still: dict[Expr, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0


def _form(e: Expr, common: Mapping[Var, Loop], inner: Mapping[Var, Loop]) -> _Form | None:
    if e.dtype is not I64:
        return None
    form = linear(e)
    out = _Form(low=form.constant, high=form.constant)
    free: dict[Var, int] = {}
    for x, c in form.terms.items():
        used = set(free_vars(x))
        if loads(x):
            return None
        if isinstance(x, Var) and x in inner:
            free[x] = c
        elif not used.isdisjoint(inner):
            return None
        elif used.isdisjoint(common):
            out.still[x] = c
        else:
            out.digits[x] = c
    span = extremes(free, inner)
    if span is None:
        return None
    out.low, out.high = out.low + span[0], out.high + span[1]
    return out


class _Equalities:
    """What is equal in two instances."""

    def __init__(self, common: Mapping[Var, Loop]) -> None:
        self.common = common
        self.equal: set[Expr] = set()
        self.forms: list[tuple[dict[Expr, int], int]] = []  # equal, but for a slack
        self.joined: set[Expr] = set()

    def prove(self, goal: set[Var]) -> bool:
        """Whether all of ``goal`` are equal."""
        progress = True
        while progress and not goal <= self.equal:
            progress = any([self.compare(*form) for form in self.forms]) | self.join()
        return goal <= self.equal

    def compare(self, digits: dict[Expr, int], slack: int) -> bool:
        """Find terms that differ by more than all others can make up for, if they differ."""
        unknown = [x for x in digits if not self.is_equal(x)]
        found = False
        for x in unknown:
            others = [(digits[y], self.spread(y)) for y in unknown if y is not x]
            if any(top is None for _, top in others):
                continue
            if abs(digits[x]) > slack + sum(abs(c) * (top or 0) for c, top in others):
                self.equal.add(x)
                found = True
        return found

    def is_equal(self, x: Expr) -> bool:
        if x in self.equal:
            return True
        return all(v in self.equal for v in free_vars(x) if v in self.common)

    def spread(self, x: Expr) -> int | None:
        """By how much a term may differ."""
        match x:
            case Var():
                extent = constant(self.common[x].extent)
                return None if extent is None else extent - 1
            case n.FloorMod(_, Const(c)):
                return int(c) - 1
            case n.FloorDiv(Var() as v, Const(c)) if v in self.common:
                top = self.spread(v)
                return None if top is None else top // int(c)
            case _:
                return None

    def join(self) -> bool:
        """From equal quotients and remainders to what was divided."""
        found = False
        terms = [x for x in self.equal if isinstance(x, n.FloorDiv | n.FloorMod)]
        for r in terms:
            if not isinstance(r, n.FloorMod) or r.lhs in self.joined:
                continue
            if any(isinstance(q, n.FloorDiv) and complete(q, r) for q in terms):
                self.joined.add(r.lhs)
                form = _form(r.lhs, self.common, {})
                if form is not None:
                    self.forms.append((form.digits, 0))
                    found = True
        return found
