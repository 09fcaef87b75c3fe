"""Which sums are never negative, for all values that the facts allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .intervals import Facts
from .linear import Linear, factors, linear, monomial, ratio
from .nodes import Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Select

STEPS: Final = 12
"""How many sums are looked at before the search gives up; more where conditions are given."""


def not_negative(x: Linear, known: Facts) -> bool:
    """Whether x >= 0 certainly holds.

    Either its interval says so, or it does with an atom replaced by something that makes x less: y
    % d by 0 or d - 1, y // c by (y - c + 1) / c or y / c, min and max by an operand, or what is
    given.
    """
    lo, hi = known.sum_bounds(x)
    if lo is not None and lo >= 0:
        return True
    if hi is not None and hi < 0:
        return False
    if not known.given and not _RELAXED.intersection(map(type, x.terms)):
        return False
    steps = [4 * STEPS if known.given else STEPS]
    # Short proofs first: a long way down the wrong branch would use up the steps.
    return any(_search(x, known, depth, steps) for depth in (1, 2, 4))


def _search(x: Linear, known: Facts, depth: int, steps: list[int]) -> bool:
    lo, hi = known.sum_bounds(x)
    if lo is not None and lo >= 0:
        return True
    steps[0] -= 1
    if depth == 0 or steps[0] < 0 or (hi is not None and hi < 0):
        return False
    if any(_search(y, known, depth - 1, steps) for y in _given(x, known)):
        return True
    for atom, c in x.terms.items():
        for one_is_enough, choices in _relaxed(x, atom, c, known):
            test = (_search(y, known, depth - 1, steps) for y in choices)
            if any(test) if one_is_enough else all(test):
                return True
            if steps[0] < 0:
                return False
    return False


def _given(x: Linear, known: Facts) -> Iterator[Linear]:
    """x less a multiple of something given not to be negative, where that removes an atom."""
    if not known.given:
        return
    # What is subtracted is what keeps x from being positive.
    for mine, k in sorted(x.terms.items(), key=lambda t: t[1] > 0):
        for fact in known.given:
            for atom, c in fact.terms.items():
                if k * c > 0 and k % c == 0 and (times := ratio(mine, atom)) is not None:
                    if isinstance(times, int):
                        yield x.plus(fact, -(k // c))
                    elif _nonnegative_atom(times, known):
                        yield x - fact.times(Linear({times: k // c}))


def _nonnegative_atom(atom: Expr, known: Facts) -> bool:
    lo = known.bounds(atom).lo
    return lo is not None and lo >= 0


_RELAXED: Final = {Min, Max, Select, FloorMod, FloorDiv, Mul}


def _relaxed(
    x: Linear, atom: Expr, c: int, known: Facts
) -> Iterator[tuple[bool, tuple[Linear, ...]]]:
    """Sums of which (True: one, False: all) must not be negative, so that x is not."""
    match atom:
        case Min(a, b) | Max(a, b) | Select(_, a, b):
            # One will do for what bounds the atom from the right side.
            one = (isinstance(atom, Min) and c < 0) or (isinstance(atom, Max) and c > 0)
            if known.tame(linear(a)) and known.tame(linear(b)):
                yield one, (x.replace(atom, linear(a)), x.replace(atom, linear(b)))
        case FloorMod(_, d) if not isinstance(d, Const) and known.positive(d):
            low = Linear({}) if c > 0 else linear(d).plus_constant(-1)
            yield True, (x.replace(atom, low),)
        case FloorDiv(y, Const(n)) if int(n) > 0 and known.tame(linear(y)):
            low = linear(y).plus_constant(1 - int(n)) if c > 0 else linear(y)
            rest = Linear({a: k for a, k in x.terms.items() if a is not atom}, x.constant)
            yield True, (rest.scaled(int(n)).plus(low, c),)
        case _:
            yield from _product(x, atom, c, known)


def _product(
    x: Linear, atom: Expr, c: int, known: Facts
) -> Iterator[tuple[bool, tuple[Linear, ...]]]:
    """A product with a remainder by a symbol among its factors: n * (y % d) <= n * (d - 1)."""
    parts = factors(atom)
    if len(parts) < 2:
        return
    for i, f in enumerate(parts):
        if isinstance(f, FloorMod) and not isinstance(f.rhs, Const) and known.positive(f.rhs):
            others = monomial(parts[:i] + parts[i + 1 :])
            assert others is not None
            if _nonnegative_atom(others, known):
                low = Linear({}) if c > 0 else linear(f.rhs).plus_constant(-1)
                yield True, (x.replace(atom, low.times(Linear({others: 1}))),)
