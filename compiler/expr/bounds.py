"""Where values lie: as intervals of numbers, and as expressions in the variables that stay fixed.

``bounds`` and ``divides`` are of numbers (see ``intervals``). ``extremes`` lets some variables run
over their domain and gives the least and the greatest value as expressions in the others: which
part of a buffer do these loops touch, seen from the loops around them?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd
from typing import TypeAlias

from planish.compiler.dtypes import I64
from planish.compiler.remembering import remembered

from .index import spellings
from .intervals import Facts, Interval, Ranges, bounds, divides, facts
from .linear import Linear, factors, linear
from .nodes import (
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Select,
    Var,
    const,
    free_vars,
    maximum,
    minimum,
    product,
    select,
)
from .signs import not_negative
from .simplify import SIMPLIFY, simplify

__all__ = ["Domain", "Ends", "Interval", "Ranges", "bounds", "divides", "extremes"]

Ends: TypeAlias = tuple[Expr, Expr]
Domain: TypeAlias = Mapping[Var, Ends]


def extremes(e: Expr, domain: Domain, ranges: Ranges | None = None) -> Ends | None:
    """The least and the greatest value of an ``i64`` while the variables of ``domain`` run.

    They run over [lo, hi], both ends included, which may be expressions in other variables, those
    of ``domain`` too as long as there is no circle. The results hold the remaining variables, of
    which ``ranges`` may say where they lie. No value is outside; the ends are taken on for sums,
    and for quotients and remainders of what moves without a jump. None if nothing can be said.
    """
    return _extremes(e, tuple(domain.items()), frozenset((ranges or {}).items()))


@remembered(1 << 14)
def _extremes(
    e: Expr, pairs: tuple[tuple[Var, Ends], ...], ranges: frozenset[tuple[Var, Interval]]
) -> Ends | None:
    domain, inside = dict(pairs), dict(ranges)
    rounds = _rounds(domain)
    for group in reversed(rounds):
        for v in group:
            lo, hi = domain[v]
            inside[v] = Interval(bounds(lo, inside).lo, bounds(hi, inside).hi)
    lo = hi = simplify(e, inside)
    for group in rounds:
        ends = {v: domain[v] for v in group}
        for v in group:
            del inside[v]
        known = facts(inside)
        low = _Hull(ends, known).ends(lo)
        high = low if hi is lo else _Hull(ends, known).ends(hi)
        if low is None or high is None:
            return None
        lo, hi = simplify(low[0], inside), simplify(high[1], inside)
    return lo, hi


def _rounds(domain: Domain) -> list[list[Var]]:
    """The variables in the order they are eliminated: before those that their ends depend on."""
    needs = {v: [u for u in free_vars(*ends) if u in domain] for v, ends in domain.items()}
    rounds: list[list[Var]] = []
    left = list(domain)
    while left:
        blocked = {u for v in left for u in needs[v]}
        ready = [v for v in left if v not in blocked] or left
        rounds.append(ready)
        left = [v for v in left if v not in ready]
    return rounds


class _Hull:
    """The ends of expressions over one domain, where every variable's ends stand still."""

    def __init__(self, domain: Domain, known: Facts) -> None:
        self.domain = domain
        self.known = known
        inside = {**known.ranges}
        for v, (lo, hi) in domain.items():
            inside[v] = Interval(known.bounds(lo).lo, known.bounds(hi).hi)
        self.moving = facts(inside)
        self.memo: dict[Expr, Ends | None] = {}

    def ends(self, e: Expr) -> Ends | None:
        if e not in self.memo:
            self.memo[e] = self._ends(e)
        return self.memo[e]

    def fixed(self, e: Expr) -> bool:
        return not any(v in self.domain for v in free_vars(e))

    def simplify(self, e: Expr) -> Expr:
        return SIMPLIFY.apply(e, self.known, self.known.simplified)

    def _ends(self, e: Expr) -> Ends | None:
        if isinstance(e, Var):
            return self.domain.get(e, (e, e))
        if self.fixed(e):
            return e, e
        if e.dtype is not I64:
            return None
        total = linear(e)
        if e not in total.terms:
            return self._sum(self._together(total))
        match e:
            case FloorDiv(x, d):
                return self._quotient(x, d)
            case FloorMod(x, d):
                return self._remainder(x, d)
            case Min(x, y) | Max(x, y):
                make = minimum if isinstance(e, Min) else maximum
                return self._both(x, y, lambda a, b: (make(a[0], b[0]), make(a[1], b[1])))
            case Select(c, x, y):
                if self.fixed(c):
                    return self._both(
                        x, y, lambda a, b: (select(c, a[0], b[0]), select(c, a[1], b[1]))
                    )
                return self._both(x, y, _hull)
            case _:
                parts = factors(e)
                return self._product(parts) if len(parts) > 1 else self._interval(e)

    def _both(self, x: Expr, y: Expr, join: Callable[[Ends, Ends], Ends]) -> Ends | None:
        a, b = self.ends(x), self.ends(y)
        if a is None or b is None:
            return None
        return join(a, b)

    def _interval(self, e: Expr) -> Ends | None:
        lo, hi = self.moving.bounds(e)
        if lo is None or hi is None or hi - lo >= 1 << 32:
            return None  # any element of a wide type: nothing worth saying
        return const(lo, I64), const(hi, I64)

    def _sum(self, total: Linear) -> Ends | None:
        lo = hi = Linear({}, total.constant)
        for atom, c in total.terms.items():
            ends = self.ends(atom)
            if ends is None:
                return None
            a, b = linear(ends[0]), linear(ends[1])
            lo, hi = lo.plus(a if c > 0 else b, c), hi.plus(b if c > 0 else a, c)
        return lo.expr(), hi.expr()

    def _together(self, total: Linear) -> Linear:
        """b * y + (a - b * d) * (y // d) for a * (y // d) + b * (y % d).

        Both parts of that move the same way, so its ends are taken on.
        """
        while (out := self._joined(total)) is not None:
            total = out
        return total

    def _joined(self, total: Linear) -> Linear | None:
        jumps = [a for a in total.terms if isinstance(a, FloorDiv)]
        if not jumps:
            return None
        for atom, b in total.terms.items():
            match atom:
                case FloorMod(y, Const(d)) if int(d) > 0 and not self.fixed(y):
                    if not self.moving.tame(linear(y)):
                        continue
                    for spelled in spellings(atom, jumps, self.moving):
                        out = total.replace(atom, spelled)
                        new = [a for a in spelled.terms if isinstance(a, FloorDiv)]
                        if all(a in jumps and out.coefficient(a) * b >= 0 for a in new):
                            return out
        return None

    def _product(self, parts: tuple[Expr, ...]) -> Ends | None:
        still = product(f for f in parts if self.fixed(f))
        out: Ends = still, still
        for f in parts:
            if self.fixed(f):
                continue
            ends = self.ends(f)
            if ends is None:
                return None
            out = self._times(out, ends)
        return out

    def _times(self, a: Ends, b: Ends) -> Ends:
        for x, y in ((a, b), (b, a)):
            sign = self._sign(x)
            if sign and x[0] is x[1]:
                return (x[0] * y[0], x[0] * y[1]) if sign > 0 else (x[0] * y[1], x[0] * y[0])
        if self._sign(a) > 0 and self._sign(b) > 0:
            return a[0] * b[0], a[1] * b[1]
        corners = list(dict.fromkeys(p * q for p in a for q in b))
        return reduce(minimum, corners), reduce(maximum, corners)

    def _sign(self, a: Ends) -> int:
        """1 for what is not negative, -1 for what is not positive, 0 if it may be either."""
        if not_negative(linear(a[0]), self.known):
            return 1
        return -1 if not_negative(linear(a[1]).scaled(-1), self.known) else 0

    def _quotient(self, x: Expr, d: Expr) -> Ends | None:
        a, b = self.ends(x), self.ends(d)
        if a is None or b is None or not self.moving.positive(d):
            return None
        if b[0] is b[1]:
            return a[0] // d, a[1] // d
        if self._sign(a) > 0 and self.known.positive(b[0]):
            return a[0] // b[1], a[1] // b[0]
        return None

    def _remainder(self, x: Expr, d: Expr) -> Ends | None:
        a, b = self.ends(x), self.ends(d)
        if a is None or b is None or not self.moving.positive(d):
            return None
        if b[0] is not b[1]:
            return const(0, I64), b[1] - 1
        lo, hi = self.simplify(a[0]), self.simplify(a[1])
        if self.simplify(lo // d) is self.simplify(hi // d):
            return lo % d, hi % d
        start, length = self.simplify(lo % d), self.simplify(hi - lo)
        if not_negative(linear(d) - linear(start) - linear(length).plus_constant(1), self.known):
            return start, start + length
        return self._strided(x, d)

    def _strided(self, x: Expr, d: Expr) -> Ends:
        """All of 0 ... d - 1 in steps of what divides the part that moves."""
        if isinstance(d, Const):
            still, moves = linear(x).split(lambda a, _: self.fixed(a))
            g = gcd(self.moving.sum_divisor(Linear(moves.terms)), int(d.value))
            if g > 1:
                start = still.plus_constant(moves.constant).expr() % g
                return start, start + (int(d.value) - g)
        return const(0, I64), d - 1


def _hull(a: Ends, b: Ends) -> Ends:
    return minimum(a[0], b[0]), maximum(a[1], b[1])
