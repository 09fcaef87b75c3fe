"""Select, min and max, casts, and what has only one value."""

from __future__ import annotations

from typing import Final

from planish.compiler.dtypes import I64, exact

from .intervals import Facts, of_dtype
from .linear import linear, order
from .nodes import (
    FALSE,
    TRUE,
    Cast,
    Const,
    Expr,
    Load,
    Max,
    Min,
    Not,
    Select,
    Var,
    all_of,
    any_of,
    cast,
    const,
    maximum,
    minimum,
    not_,
    select,
    walk,
)
from .rewrite import RuleSet
from .signs import not_negative

CHOICE: Final[RuleSet[Facts]] = RuleSet("choice")

_PARTS: Final = 32


@CHOICE.given(Var)
def only_value(e: Expr, known: Facts) -> Expr | None:
    """i -> 3 while 3 <= i <= 3."""
    if not isinstance(e, Var) or e not in known.ranges:
        return None
    lo, hi = known.ranges[e]
    return const(lo, e.type) if lo is not None and lo == hi else None


# --------------------------------------------------------------------------------- select


@CHOICE.rule(Select)
def select_not(e: Expr) -> Expr | None:
    """select(not p, a, b) -> select(p, b, a)"""
    match e:
        case Select(Not(p), x, y):
            return select(p, y, x)
        case _:
            return None


@CHOICE.rule(Select)
def select_inside_then(e: Expr) -> Expr | None:
    """select(p, select(p, a, b), c) -> select(p, a, c)"""
    match e:
        case Select(p, Select(q, x, _), z) if p is q:
            return select(p, x, z)
        case _:
            return None


@CHOICE.rule(Select)
def select_inside_other(e: Expr) -> Expr | None:
    """select(p, a, select(p, b, c)) -> select(p, a, c)"""
    match e:
        case Select(p, x, Select(q, _, z)) if p is q:
            return select(p, x, z)
        case _:
            return None


@CHOICE.rule(Select)
def select_both(e: Expr) -> Expr | None:
    """select(p, select(q, a, b), b) -> select(p and q, a, b)"""
    match e:
        case Select(p, Select(q, x, y), z) if y is z and not _reads(q):
            return select(all_of(p, q), x, y)
        case _:
            return None


@CHOICE.rule(Select)
def select_either(e: Expr) -> Expr | None:
    """select(p, a, select(q, a, b)) -> select(p or q, a, b)"""
    match e:
        case Select(p, x, Select(q, y, z)) if x is y and not _reads(q):
            return select(any_of(p, q), x, z)
        case _:
            return None


@CHOICE.rule(Select)
def select_true(e: Expr) -> Expr | None:
    """select(p, True, q) -> p or q"""
    match e:
        case Select(p, x, y) if x is TRUE and not _reads(y):
            return any_of(p, y)
        case Select(p, x, y) if x is FALSE and not _reads(y):
            return all_of(not_(p), y)
        case _:
            return None


@CHOICE.rule(Select)
def select_false(e: Expr) -> Expr | None:
    """select(p, q, False) -> p and q"""
    match e:
        case Select(p, x, y) if y is FALSE and not _reads(x):
            return all_of(p, x)
        case Select(p, x, y) if y is TRUE and not _reads(x):
            return any_of(not_(p), x)
        case _:
            return None


def _reads(e: Expr) -> bool:
    """Whether there are loads: those must stay under the condition that guards them."""
    if not e.children:
        return False
    return any(isinstance(x, Load) for x in walk(e))


# --------------------------------------------------------------------------------- min and max


@CHOICE.given(Min, Max)
def extreme(e: Expr, known: Facts) -> Expr | None:
    """min(x, x + 1) -> x: operands that another one beats go, the others get an order."""
    assert isinstance(e, (Min, Max))
    if not e.dtype.is_int:
        return None
    make = minimum if isinstance(e, Min) else maximum
    parts = _flat(e, type(e))
    if parts is None:
        return None
    kept: list[Expr] = []
    for p in parts:
        if not any(_beats(k, p, type(e), known) for k in kept):
            kept = [k for k in kept if not _beats(p, k, type(e), known)] + [p]
    kept.sort(key=lambda p: (isinstance(p, Const), order(p)))
    out = kept[0]
    for p in kept[1:]:
        out = make(out, p)
    return out


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


def _beats(a: Expr, b: Expr, cls: type[Expr], known: Facts) -> bool:
    """Whether a <= b (for min) or a >= b (for max) always."""
    if cls is Max:
        a, b = b, a
    x, y = known.bounds(a), known.bounds(b)
    if x.hi is not None and y.lo is not None and x.hi <= y.lo:
        return True
    if a.dtype is not I64 or not known.tame(linear(a)) or not known.tame(linear(b)):
        return False
    return not_negative(linear(b) - linear(a), known)


@CHOICE.rule(Min)
def min_again(e: Expr) -> Expr | None:
    """min(min(a, b), b) -> min(a, b)"""
    match e:
        case Min(Min(x, y), z) if z is y or z is x:
            return minimum(x, y)
        case Min(z, Min(x, y)) if z is y or z is x:
            return minimum(x, y)
        case _:
            return None


@CHOICE.rule(Max)
def max_again(e: Expr) -> Expr | None:
    """max(max(a, b), b) -> max(a, b)"""
    match e:
        case Max(Max(x, y), z) if z is y or z is x:
            return maximum(x, y)
        case Max(z, Max(x, y)) if z is y or z is x:
            return maximum(x, y)
        case _:
            return None


# --------------------------------------------------------------------------------- casts


@CHOICE.rule(Cast)
def cast_of_wider(e: Expr) -> Expr | None:
    """cast(cast(u, f64), i64) -> cast(u, i64)"""
    match e:
        case Cast(Cast(x, between), target) if exact(x.dtype, between):
            return cast(x, target)
        case _:
            return None


@CHOICE.given(Cast)
def cast_of_small(e: Expr, known: Facts) -> Expr | None:
    """cast(cast(i, i32), i64) -> i while i fits."""
    match e:
        case Cast(Cast(x, between), target) if x.dtype.is_int and between.is_int:
            if known.bounds(x).within(between.min, between.max):
                return cast(x, target)
        case Cast(x, target) if target.is_int and x.dtype.is_int:
            lo, hi = known.bounds(x).meet(of_dtype(target))
            if lo is not None and lo == hi and known.bounds(x).within(target.min, target.max):
                return const(lo, target)
    return None
