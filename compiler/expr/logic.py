"""Comparisons and bools.

Canonical comparisons of ``i64``: everything is moved to the side where its coefficient is positive,
divided by what divides all of it, and parts too small to matter are dropped; ``<=`` is used where
that needs no constant. A condition that the ranges decide is True or False.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from planish.compiler.dtypes import BOOL, I64

from .intervals import Facts
from .linear import Linear, linear
from .nodes import (
    FALSE,
    TRUE,
    And,
    Const,
    Eq,
    Expr,
    FloorDiv,
    Le,
    Lt,
    Ne,
    Not,
    Or,
    all_of,
    any_of,
    const,
    eq,
    le,
    lt,
    ne,
    not_,
)
from .rewrite import RuleSet
from .signs import not_negative

LOGIC: Final[RuleSet[Facts]] = RuleSet("logic")


# --------------------------------------------------------------------------------- comparisons


@LOGIC.given(Lt, Le)
def compare(e: Expr, known: Facts) -> Expr | None:
    """x < y by the sign of x - y."""
    match e:
        case Lt(a, b) | Le(a, b) if a.dtype is I64:
            below = _sum_below(e, known)
            if below is None:
                return None
            whole = known.whole(below)
            if whole:
                below = _tightened(below, known)
            if not_negative(below, known):
                return FALSE
            if not_negative(below.scaled(-1).plus_constant(-1), known):
                return TRUE
            # An element of a tensor must stay alone on its side: nothing may be added to it.
            return _negative(below) if whole else None
        case Lt(a, b) | Le(a, b) if a.dtype.is_int:
            return _by_interval(e, a, b, known)
        case _:
            return None


@LOGIC.given(Eq, Ne)
def equal(e: Expr, known: Facts) -> Expr | None:
    """x == y by the value of x - y."""
    match e:
        case Eq(a, b) | Ne(a, b) if a.dtype is I64:
            apart = linear(a) - linear(b)
            if apart.is_constant:
                return const((apart.constant == 0) is isinstance(e, Eq), BOOL)
            if not (known.tame(linear(a)) and known.tame(linear(b))):
                return None
            return _equal(apart, type(e), known)
        case Eq(a, b) | Ne(a, b) if a.dtype.is_int:
            return _by_interval(e, a, b, known)
        case _:
            return None


def _by_interval(e: Expr, a: Expr, b: Expr, known: Facts) -> Expr | None:
    x, y = known.bounds(a), known.bounds(b)
    if not (x.finite and y.finite):
        return None
    assert x.lo is not None and x.hi is not None and y.lo is not None and y.hi is not None
    match e:
        case Lt():
            return TRUE if x.hi < y.lo else FALSE if x.lo >= y.hi else None
        case Le():
            return TRUE if x.hi <= y.lo else FALSE if x.lo > y.hi else None
        case _:
            apart = x.hi < y.lo or y.hi < x.lo
            return const(isinstance(e, Ne), BOOL) if apart else None


def _difference(a: Expr, b: Expr, known: Facts) -> Linear | None:
    x, y = linear(a), linear(b)
    return x - y if known.tame(x) and known.tame(y) else None


def _tightened(x: Linear, known: Facts) -> Linear:
    """A sum that is negative exactly where x is, with smaller coefficients or fewer terms."""
    while x.terms:
        smaller = _coarser(x, known)
        smaller = smaller if smaller is not None else _unfloored(x, known)
        if smaller is None:
            break
        x = smaller
    return x


def _coarser(x: Linear, known: Facts) -> Linear | None:
    """a for a * g + b with 0 <= b < g."""
    for g in sorted({abs(k) for k in x.terms.values()} - {1}, reverse=True):
        coarse, fine = x.split(lambda _, k, g=g: k % g == 0)  # type: ignore[misc]
        inside = known.sum_bounds(Linear(fine.terms, x.constant % g))
        if inside.lo is not None and inside.hi is not None and inside.lo // g == inside.hi // g:
            return coarse.over(g).plus_constant(x.constant // g + inside.lo // g)
    g = x.gcd()
    return Linear(x.terms, x.constant).over(g) if g > 1 else None


def _unfloored(x: Linear, known: Facts) -> Linear | None:
    """y + rest * c for y // c + rest, and (rest + 1) * c - y - 1 for rest - y // c."""
    floors = [(a, k) for a, k in x.terms.items() if isinstance(a, FloorDiv)]
    if len(floors) != 1:
        return None
    ((atom, k),) = floors
    match atom:
        case FloorDiv(y, Const(c)) if abs(k) == 1 and int(c) > 0 and known.whole(linear(y)):
            rest = Linear({a: m for a, m in x.terms.items() if a is not atom}, x.constant)
            if k == 1:
                return linear(y) + rest.scaled(int(c))
            return rest.plus_constant(1).scaled(int(c)).plus_constant(-1) - linear(y)
        case _:
            return None


def _negative(x: Linear) -> Expr:
    """x < 0, written without negative coefficients."""
    left, right = x.split(lambda _, k: k > 0)
    right, k = Linear(right.terms).scaled(-1), x.constant
    if left.is_constant:
        return le(const(k + 1, I64), right.expr())
    if k == -1 and right.terms:
        return le(left.expr(), right.expr())
    return lt(left.plus_constant(max(k, 0)).expr(), right.plus_constant(max(-k, 0)).expr())


def _equal(x: Linear, cls: type[Expr], known: Facts) -> Expr:
    """x == 0 or x != 0."""
    g = x.gcd()
    inside = known.sum_bounds(x)
    if x.constant % g or not inside.holds(0) or _nonzero(x, known):
        return const(cls is Ne, BOOL)
    x = x.over(g)
    if x.ordered()[0][1] < 0:
        x = x.scaled(-1)
    left, right = x.split(lambda _, k: k > 0)
    right, k = Linear(right.terms).scaled(-1), x.constant
    make = eq if cls is Eq else ne
    return make(left.plus_constant(max(k, 0)).expr(), right.plus_constant(max(-k, 0)).expr())


def _nonzero(x: Linear, known: Facts) -> bool:
    return not_negative(x.plus_constant(-1), known) or not_negative(
        x.scaled(-1).plus_constant(-1), known
    )


# --------------------------------------------------------------------------------- bools


@LOGIC.rule(Not)
def not_and(e: Expr) -> Expr | None:
    """not (p and q) -> not p or not q"""
    match e:
        case Not(And(p, q)):
            return any_of(not_(p), not_(q))
        case _:
            return None


@LOGIC.rule(Not)
def not_or(e: Expr) -> Expr | None:
    """not (p or q) -> not p and not q"""
    match e:
        case Not(Or(p, q)):
            return all_of(not_(p), not_(q))
        case _:
            return None


@LOGIC.rule(Not)
def not_equal(e: Expr) -> Expr | None:
    """not a == b -> a != b"""
    match e:
        case Not(Eq(a, b)):
            return ne(a, b)
        case Not(Ne(a, b)):
            return eq(a, b)
        case _:
            return None


@LOGIC.given(And, Or)
def chain(e: Expr, known: Facts) -> Expr | None:
    """p and p -> p; of two conditions the one that implies the other; False if both cannot be."""
    cls = And if isinstance(e, And) else Or
    parts = _flat(e, cls)
    if parts is None:
        return None
    kept: list[_Part] = []
    for p in parts:
        out = _joined(kept, _Part(p, _sum_below(p, known)), cls, known)
        if out is None:
            return FALSE if cls is And else TRUE
        kept = out
    conditions = [k.condition for k in kept]
    return all_of(*conditions) if cls is And else any_of(*conditions)


class _Part(NamedTuple):
    """A condition, with the sum that is negative where it holds if it is such a one."""

    condition: Expr
    below: Linear | None


_PARTS: Final = 32


def _flat(e: Expr, cls: type[Expr]) -> list[Expr] | None:
    """The different operands of a chain, in order; None if there are very many."""
    out: list[Expr] = []
    stack = [e]
    for _ in range(2 * _PARTS):
        e = stack.pop()
        if isinstance(e, cls):
            stack += reversed(e.children)
        elif e not in out:
            out.append(e)
        if not stack:
            return out
    return None


def _joined(kept: list[_Part], new: _Part, cls: type[Expr], known: Facts) -> list[_Part] | None:
    """The conditions with one more; None if the whole is decided."""
    opposite = not_(new.condition)
    if any(k.condition is opposite for k in kept):
        return None
    x = new.below
    if x is None:
        return [*kept, new]
    out = []
    for old in kept:
        y = old.below
        if y is None or not any(a in y.terms for a in x.terms):
            out.append(old)
            continue
        apart, both = known.sum_bounds(x - y), known.sum_bounds(x + y)
        if cls is And and both.lo is not None and both.lo > -2:
            return None  # not both of x < 0 and y < 0
        if cls is Or and both.hi is not None and both.hi < 0:
            return None  # never neither of them
        new_implies_old = apart.lo is not None and apart.lo >= 0
        old_implies_new = apart.hi is not None and apart.hi <= 0
        if old_implies_new if cls is And else new_implies_old:
            return kept
        if not (new_implies_old if cls is And else old_implies_new):
            out.append(old)
    return [*out, new]


def _sum_below(p: Expr, known: Facts) -> Linear | None:
    """x, if the condition is x < 0."""
    match p:
        case Lt(a, b) if a.dtype is I64:
            return _difference(a, b, known)
        case Le(a, b) if a.dtype is I64:
            x = _difference(a, b, known)
            return x.plus_constant(-1) if x is not None else None
        case _:
            return None
