"""What is known about values: intervals, divisors, and inequalities that follow from them.

``Facts`` holds what is given, a range for some variables and conditions that are true, and
remembers every conclusion. ``facts(ranges, given)`` gives the same object for the same knowledge,
so what was found out for one expression serves the next.

Index arithmetic does not overflow (see ``nodes``), but an ``i64`` computed from the elements of
tensors may: ``tame`` says of a sum whether laws of whole numbers, not just of the ring modulo 2^64,
hold for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import gcd
from typing import Final, NamedTuple, TypeAlias

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.remembering import table, when_forgetting

from .linear import Linear, factors, linear
from .nodes import (
    Add,
    And,
    Binary,
    Call,
    Cast,
    Const,
    Div,
    Eq,
    Expr,
    FloorDiv,
    FloorMod,
    Le,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
)


class Interval(NamedTuple):
    """All integers from ``lo`` to ``hi``, both included; None is unbounded."""

    lo: int | None = None
    hi: int | None = None

    @property
    def finite(self) -> bool:
        return self.lo is not None and self.hi is not None

    def holds(self, value: int) -> bool:
        """Whether the value is inside."""
        return (self.lo is None or self.lo <= value) and (self.hi is None or value <= self.hi)

    def within(self, lo: int, hi: int) -> bool:
        """Whether all values lie in [lo, hi]."""
        return self.lo is not None and self.hi is not None and lo <= self.lo and self.hi <= hi

    def plus(self, other: Interval) -> Interval:
        return Interval(_add(self.lo, other.lo), _add(self.hi, other.hi))

    def scaled(self, k: int) -> Interval:
        lo = None if self.lo is None else self.lo * k
        hi = None if self.hi is None else self.hi * k
        return Interval(lo, hi) if k > 0 else Interval(hi, lo) if k < 0 else Interval(0, 0)

    def times(self, other: Interval) -> Interval:
        if self.lo is not None and self.lo == self.hi:
            return other.scaled(self.lo)
        if other.lo is not None and other.lo == other.hi:
            return self.scaled(other.lo)
        if not (self.finite and other.finite):
            return _half_product(self, other)
        ends = [a * b for a in self for b in other]  # type: ignore[operator]
        return Interval(min(ends), max(ends))

    def hull(self, other: Interval) -> Interval:
        return Interval(_least(self.lo, other.lo), _most(self.hi, other.hi))

    def meet(self, other: Interval) -> Interval:
        lo = max((x for x in (self.lo, other.lo) if x is not None), default=None)
        hi = min((x for x in (self.hi, other.hi) if x is not None), default=None)
        return Interval(lo, hi)


Ranges: TypeAlias = Mapping[Var, Interval]

ALL: Final = Interval()
BIT: Final = Interval(0, 1)


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _most(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def _half_product(a: Interval, b: Interval) -> Interval:
    """The product where an end is open: of numbers of known sign."""
    sign = 1
    if a.hi is not None and a.hi <= 0:
        a, sign = a.scaled(-1), -sign
    if b.hi is not None and b.hi <= 0:
        b, sign = b.scaled(-1), -sign
    if a.lo is None or b.lo is None or a.lo < 0 or b.lo < 0:
        return ALL
    hi = None if a.hi is None or b.hi is None else a.hi * b.hi
    return Interval(a.lo * b.lo, hi).scaled(sign)


def of_dtype(dtype: DType) -> Interval:
    """All values of an integer type; ``i64`` is as good as unbounded."""
    if dtype is BOOL:
        return BIT
    return ALL if dtype is I64 or dtype.is_float else Interval(dtype.min, dtype.max)


def _any(dtype: DType) -> Interval:
    """All values that an element of a tensor may have."""
    return Interval(dtype.min, dtype.max) if dtype.is_int else of_dtype(dtype)


def quotient(x: Interval, d: Interval) -> Interval:
    """Where x // d lies, for d >= 1."""
    least = max(d.lo or 1, 1)
    lo, hi = x
    if lo is not None:
        lo = lo // least if lo < 0 else 0 if d.hi is None else lo // d.hi
    if hi is not None:
        hi = hi // least if hi >= 0 else -1 if d.hi is None else hi // d.hi
    return Interval(lo, hi)


class Facts:
    """Ranges of variables and true conditions, with all that was concluded from them."""

    def __init__(self, ranges: Ranges, given: tuple[Expr, ...] = ()) -> None:
        self.ranges = ranges
        self.simplified: dict[Expr, Expr] = {}
        self.quotients: dict[tuple[Expr, Expr], Linear] = {}
        self._bounds: dict[Expr, Interval] = {}
        self._measured: dict[Expr, bool] = {}
        self._divisors: dict[Expr, int] = {}
        self.given: tuple[Linear, ...] = tuple(d for c in given for d in inequalities(c))

    def crop(self) -> None:
        """Forget all conclusions if there are very many."""
        if len(self.simplified) + len(self._bounds) >= _REMEMBERED:
            self.forget()

    def forget(self) -> None:
        """Forget all conclusions."""
        self.simplified.clear()
        self.quotients.clear()
        self._bounds.clear()
        self._measured.clear()
        self._divisors.clear()

    # ------------------------------------------------------------------------------- intervals

    def bounds(self, root: Expr) -> Interval:
        """An interval that contains every value of an integer expression."""
        memo = self._bounds
        found = memo.get(root)
        if found is not None:
            return found
        mine: dict[Expr, Interval] = {}
        stack = [root]
        while stack:
            e = stack[-1]
            if e in mine:
                stack.pop()
                continue
            found = memo.get(e)
            if found is None:
                todo = [c for c in _operands(e) if c not in mine]
                if todo:
                    stack.extend(todo)
                    continue
                found = self._interval(e)
            mine[e] = memo[e] = found
            stack.pop()
        return mine[root]

    def _interval(self, e: Expr) -> Interval:
        """The bounds of a node whose operands' are known."""
        dtype = e.dtype
        if not dtype.is_int:
            return of_dtype(dtype)
        match e:
            case Const(value):
                return Interval(int(value), int(value))
            case Var():
                return self.ranges.get(e, of_dtype(dtype))
            case Add() | Sub() | Mul():
                return self._sum_node(e)
            case FloorDiv(x, d):
                return _fit(self._quotient(x, d), dtype)
            case FloorMod(x, d):
                return _fit(self._remainder(x, d), dtype)
            case Min(x, y):
                a, b = self.bounds(x), self.bounds(y)
                return Interval(_least(a.lo, b.lo), a.meet(b).hi)
            case Max(x, y):
                a, b = self.bounds(x), self.bounds(y)
                return Interval(a.meet(b).lo, _most(a.hi, b.hi))
            case Select(_, x, y):
                return self.bounds(x).hull(self.bounds(y))
            case Cast(x) if x.dtype.is_float:
                return of_dtype(dtype)
            case Cast(x):
                known = x.dtype.is_int or x.dtype is BOOL
                return _fit(self.bounds(x), dtype) if known else _any(dtype)
            case _:
                return _any(dtype)

    def _sum_node(self, e: Expr) -> Interval:
        assert isinstance(e, Binary)
        total = linear(e) if e.dtype is I64 else None
        if total is not None and e not in total.terms:
            out = self.sum_bounds(total)
        elif isinstance(e, Mul):
            out = self.bounds(e.lhs).times(self.bounds(e.rhs))
        else:
            y = self.bounds(e.rhs)
            out = self.bounds(e.lhs).plus(y if isinstance(e, Add) else y.scaled(-1))
        if out.within(e.dtype.min, e.dtype.max):
            return out
        return out if e.dtype is I64 and not self.measured(e) else _any(e.dtype)

    def sum_bounds(self, total: Linear) -> Interval:
        """An interval that contains every value of a sum."""
        terms = total.terms
        pairs = _opposed(terms) if len(terms) > 1 else None
        if pairs:
            terms = dict(terms)
        out = Interval(total.constant, total.constant)
        for a, b in pairs or ():
            k = terms.pop(a)  # type: ignore[attr-defined]
            terms.pop(b)  # type: ignore[attr-defined]
            out = out.plus(self._difference(a, b).scaled(k))
        for atom, c in terms.items():
            out = out.plus(self.bounds(atom).scaled(c))
        return out

    def _difference(self, a: FloorDiv, b: FloorDiv) -> Interval:
        """Where x // c - y // c lies: (y % c + (x - y)) // c."""
        c = self.bounds(a.rhs)
        x, y = linear(a.lhs), linear(b.lhs)
        apart = x - y
        if c.lo is None or c.lo < 1 or not (self.tame(x) and self.tame(y)):
            return self.bounds(a).plus(self.bounds(b).scaled(-1))
        shift = self.sum_bounds(apart)
        rest = self._remainder(b.lhs, b.rhs)
        near = quotient(rest.plus(shift), c)
        return near.meet(self.bounds(a).plus(self.bounds(b).scaled(-1)))

    def _quotient(self, x: Expr, d: Expr) -> Interval:
        return quotient(self.bounds(x), self.bounds(d)) if self.positive(d) else _any(d.dtype)

    def _remainder(self, x: Expr, d: Expr) -> Interval:
        if not self.positive(d):
            return _any(d.dtype)
        c, inside = self.bounds(d), self.bounds(x)
        top = None if c.hi is None else c.hi - 1
        if c.lo is not None and c.lo == c.hi and x.dtype is I64:
            total = linear(x)
            if inside.lo is not None and inside.hi is not None:
                start = inside.lo // c.lo * c.lo
                if inside.hi < start + c.lo:
                    return Interval(inside.lo - start, inside.hi - start)
            g = self.sum_divisor(Linear(total.terms))
            g = gcd(g, c.lo) if self.tame(total) else gcd(g, c.lo, 1 << 63)  # still modulo 2^64
            return Interval(total.constant % g, c.lo - g + total.constant % g)
        if inside.lo is not None and inside.lo >= 0:
            top = inside.hi if top is None else top if inside.hi is None else min(top, inside.hi)
        return Interval(0, top)

    # ------------------------------------------------------------------------------- data

    def measured(self, root: Expr) -> bool:
        """Whether a value is made of elements of tensors, or of what else may have any bits."""
        memo = self._measured
        found = memo.get(root)
        if found is not None:
            return found
        mine: dict[Expr, bool] = {}
        stack = [root]
        while stack:
            e = stack[-1]
            if e in mine:
                stack.pop()
                continue
            found = memo.get(e)
            if found is None:
                parts = _operands(e)
                todo = [c for c in parts if c not in mine]
                if todo:
                    stack.extend(todo)
                    continue
                leaf = isinstance(e, (Load, Call, Cast, Div)) or _is_huge(e)
                found = leaf or any(mine[c] for c in parts)
            mine[e] = memo[e] = found
            stack.pop()
        return mine[root]

    def tame(self, total: Linear) -> bool:
        """Whether the sum certainly does not overflow, or is one atom and nothing is added."""
        terms = total.terms
        if len(terms) == 1 and total.constant == 0 and 1 in terms.values():
            return True
        return self.whole(total)

    def whole(self, total: Linear) -> bool:
        """Whether the sum certainly does not overflow, and nor does a sum of it and indices."""
        huge = abs(total.constant) >= _HUGE  # no index, whatever it is added to
        data = {a: c for a, c in total.terms.items() if huge or self.measured(a)}
        return not data or self.sum_bounds(Linear(data, total.constant)).within(-_HUGE, _HUGE)

    def positive(self, d: Expr) -> bool:
        """Whether a divisor is positive; symbolic ones are by definition."""
        if isinstance(d, Const):
            return d.value > 0
        lo = self.bounds(d).lo
        return (lo is not None and lo > 0) or (d.dtype is I64 and not self.measured(d))

    # ------------------------------------------------------------------------------- divisors

    def divisor(self, root: Expr) -> int:
        """A number that divides every value of an ``i64``, the largest that is seen; 0 for zero."""
        found = self._divisors.get(root)
        if found is None:
            found = self._divisors[root] = self.sum_divisor(linear(root))
        return found

    def sum_divisor(self, total: Linear) -> int:
        """A number that divides every value of a sum; 0 for zero."""
        g = abs(total.constant)
        for atom, c in total.terms.items():
            if g == 1:
                break
            g = gcd(g, c * self._atom_divisor(atom))
        return g

    def _atom_divisor(self, atom: Expr) -> int:
        out = 1
        for f in factors(atom):
            match f:
                case FloorMod(x, d) if self.positive(d):
                    out *= gcd(self.divisor(x), self.divisor(d))
                case Min(x, y) | Max(x, y) | Select(_, x, y):
                    out *= gcd(self.divisor(x), self.divisor(y))
                case Var() if f in self.ranges:
                    lo, hi = self.ranges[f]
                    out *= abs(lo) if lo is not None and lo == hi else 1
        return out


_HUGE: Final = 1 << 62
_REMEMBERED: Final = 1 << 16
_CONTEXTS: Final = 256
_contexts: Final[dict[object, Facts]] = table()
_lock: Final = threading.Lock()
_NOTHING: Final = Facts({})
when_forgetting(_NOTHING.forget)


def facts(ranges: Ranges | None = None, given: tuple[Expr, ...] = ()) -> Facts:
    """What is known, with what was concluded before."""
    if not ranges and not given:
        out = _NOTHING
    else:
        key = (frozenset(ranges.items()) if ranges else None, given)
        found = _contexts.get(key)
        if found is None:
            with _lock:
                if len(_contexts) >= _CONTEXTS:
                    _contexts.clear()
                found = _contexts.setdefault(key, Facts(dict(ranges or {}), given))
        out = found
    out.crop()
    return out


def bounds(e: Expr, ranges: Ranges | None = None) -> Interval:
    """An interval that contains every value of an integer expression."""
    return facts(ranges).bounds(e)


def divides(e: Expr, n: int, ranges: Ranges | None = None) -> bool:
    """Whether ``n`` certainly divides every value of an ``i64`` expression."""
    return facts(ranges).divisor(e) % n == 0


def inequalities(condition: Expr) -> tuple[Linear, ...]:
    """Sums that are not negative if the ``i64`` condition holds."""
    match condition:
        case And(a, b):
            return (*inequalities(a), *inequalities(b))
        case Lt(a, b) if a.dtype is I64:
            return ((linear(b) - linear(a)).plus_constant(-1),)
        case Le(a, b) if a.dtype is I64:
            return (linear(b) - linear(a),)
        case Eq(a, b) if a.dtype is I64:
            return (linear(b) - linear(a), linear(a) - linear(b))
        case _:
            return ()


def _is_huge(e: Expr) -> bool:
    """Whether this is a number that is no index: a sum with it may overflow."""
    return isinstance(e, Const) and e.dtype.is_int and abs(int(e.value)) >= _HUGE


def _operands(e: Expr) -> tuple[Expr, ...]:
    """The integers that a value is made of directly; not what a function or a buffer is given."""
    if isinstance(e, (Load, Call)) or not e.dtype.is_int:
        return ()
    if isinstance(e, (Select, Cast)):
        return tuple(c for c in e.children if c.dtype.is_int)
    return e.children


def _fit(x: Interval, dtype: DType) -> Interval:
    """The interval, or all of the type where it is too narrow for that."""
    if dtype is I64 and (x.lo is None or dtype.min <= x.lo) and (x.hi is None or x.hi <= dtype.max):
        return x
    return x if x.within(dtype.min, dtype.max) else _any(dtype)


def _opposed(terms: Mapping[Expr, int]) -> list[tuple[FloorDiv, FloorDiv]]:
    """Pairs of quotients by the same divisor that are subtracted from each other."""
    out: list[tuple[FloorDiv, FloorDiv]] = []
    waiting: dict[tuple[Expr, int], list[FloorDiv]] = {}
    for atom, c in terms.items():
        if isinstance(atom, FloorDiv) and isinstance(atom.rhs, Const):
            partners = waiting.get((atom.rhs, -c))
            if partners:
                out.append((atom, partners.pop()))
            else:
                waiting.setdefault((atom.rhs, c), []).append(atom)
    return out
