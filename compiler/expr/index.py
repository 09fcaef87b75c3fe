"""Floor division, modulo and sums of ``i64``: the arithmetic of fused, split and flattened loops.

Canonical forms: sums are as ``linear`` writes them; a quotient or remainder holds no term that its
divisor divides and no part that is too small to matter; ``(x // a) // b`` is ``x // (a * b)``, ``x
% (a * b) // a`` is ``x // a % b``; ``x // c * c + x % c`` is ``x``. Divisors are positive (see
``nodes``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import gcd
from typing import Final

from planish.compiler.dtypes import I64

from .intervals import Facts
from .linear import ZERO, Linear, factors, linear, ratio
from .nodes import Add, Const, Expr, FloorDiv, FloorMod, Mul, Sub, const
from .rewrite import RuleSet
from .signs import not_negative

INDEX: Final[RuleSet[Facts]] = RuleSet("index")


@INDEX.given(FloorDiv)
def divide(e: Expr, known: Facts) -> Expr | None:
    """(i * 8 + j) // 8 -> i while 0 <= j < 8, and the other laws of quotients."""
    match e:
        case FloorDiv(x, d) if e.dtype is I64 and known.positive(d) and known.tame(linear(x)):
            return quotient(x, d, known).expr()
        case _:
            return None


@INDEX.given(FloorMod)
def remain(e: Expr, known: Facts) -> Expr | None:
    """(i * 8 + j) % 8 -> j while 0 <= j < 8, and the other laws of remainders."""
    match e:
        case FloorMod(x, d) if e.dtype is I64 and known.positive(d) and known.tame(linear(x)):
            return _remainder(linear(x), linear(d), known).expr()
        case _:
            return None


@INDEX.given(Add, Sub, Mul)
def collect(e: Expr, known: Facts) -> Expr | None:
    """The canonical sum, with x // c * c + x % c -> x."""
    if e.dtype is not I64:
        return None
    out = recombine(linear(e), known).expr()
    _settle(out, known)
    return out


def _settle(total: Expr, known: Facts) -> None:
    """The parts of a canonical sum are canonical: without this, sums would cost their square."""
    done = known.simplified
    e = total
    while isinstance(e, (Add, Sub)):
        done[e] = e
        part = e.rhs
        while isinstance(part, Mul) and part not in done:
            done[part] = part
            part = part.lhs
        e = e.lhs


def quotient(x: Expr, d: Expr, known: Facts) -> Linear:
    """x // d as a sum, for d > 0."""
    key = (x, d)
    found = known.quotients.get(key)
    if found is None:
        found = known.quotients[key] = _quotient(linear(x), linear(d), known)
    return found


def _quotient(x: Linear, d: Linear, known: Facts) -> Linear:
    return _quotient_by(x, d.constant, known) if d.is_constant else _symbolic(x, d, known)[0]


def _remainder(x: Linear, d: Linear, known: Facts) -> Linear:
    return _remainder_by(x, d.constant, known) if d.is_constant else _symbolic(x, d, known)[1]


# --------------------------------------------------------------------------- by a constant


def _quotient_by(x: Linear, c: int, known: Facts) -> Linear:
    """x // c: what c divides comes out, what is too small for a difference goes."""
    whole, rest = x.split(lambda _, k: k % c == 0)
    whole = whole.over(c).plus_constant(rest.constant // c)
    rest = Linear(rest.terms, rest.constant % c)
    inside = known.sum_bounds(rest)
    if inside.lo is not None and inside.hi is not None and inside.lo // c == inside.hi // c:
        return whole.plus_constant(inside.lo // c)
    for coarse, _, g in _splits(rest, c, known):
        return whole + _quotient_by(coarse, c // g, known)
    return whole + _nested(rest, c, known)


def _splits(x: Linear, c: int, known: Facts) -> Iterator[tuple[Linear, Linear, int]]:
    """(a, b, g) where x is a * g + b, g divides c and 0 <= b < g: so x // c is a // (c // g)."""
    for g in sorted({gcd(k, c) for k in x.terms.values()} - {1}, reverse=True):
        coarse, fine = x.split(lambda _, k, g=g: k % g == 0)  # type: ignore[misc]
        fine = Linear(fine.terms, x.constant % g)
        inside = known.sum_bounds(fine)
        if inside.lo is None or inside.hi is None:
            continue
        m = inside.lo // g
        if inside.hi // g == m:
            coarse = coarse.over(g).plus_constant(x.constant // g + m)
            yield coarse, fine.plus_constant(-m * g), g


def _nested(x: Linear, c: int, known: Facts) -> Linear:
    """x // c, where x may be one quotient or remainder."""
    if len(x.terms) == 1:
        ((atom, k),) = x.terms.items()
        match atom:
            case FloorDiv(y, Const(a)) if k == 1 and int(a) > 0 and known.tame(linear(y)):
                total = linear(y).plus_constant(x.constant * int(a))
                if known.tame(total):
                    return _quotient_by(total, int(a) * c, known)
            case FloorMod(y, Const(m)) if (
                k == 1 and not x.constant and int(m) % c == 0 and known.tame(linear(y))
            ):
                inner = _quotient_by(linear(y), c, known)
                return _remainder_by(inner, int(m) // c, known)
    return Linear({FloorDiv(x.expr(), const(c, I64)): 1})


def _remainder_by(x: Linear, c: int, known: Facts) -> Linear:
    """x % c: what c divides goes, what is too small to be touched comes out."""
    x = _reduced(x, c, known)
    inside = known.sum_bounds(x)
    if inside.lo is not None and inside.hi is not None:
        m = inside.lo // c
        if inside.hi // c == m:
            return x.plus_constant(-m * c)
    for coarse, fine, g in _splits(x, c, known):
        return fine + _remainder_by(coarse, c // g, known).scaled(g)
    return Linear({FloorMod(x.expr(), const(c, I64)): 1})


def _reduced(x: Linear, c: int, known: Facts) -> Linear:
    """The sum modulo c: small coefficients, and y for y % m where that changes a multiple of c."""
    while True:
        terms = {}
        for a, k in x.terms.items():
            k = k % c if k > 0 else -(-k % c)
            if k:
                terms[a] = k
        x = Linear(terms, x.constant % c)
        for a, k in terms.items():
            match a:
                case FloorMod(y, Const(m)) if (
                    int(m) > 0 and k * int(m) % c == 0 and known.whole(linear(y))
                ):
                    x = x.replace(a, linear(y))
                    break
        else:
            return x


# --------------------------------------------------------------------------- by a symbol


def _symbolic(x: Linear, d: Linear, known: Facts) -> tuple[Linear, Linear]:
    """x // d and x % d for a symbolic d > 0."""
    by = d.expr()
    whole, rest = long_division(x, d)
    if rest.is_constant and rest.constant == 0:
        return whole, ZERO
    if not_negative(rest, known) and not_negative((d - rest).plus_constant(-1), known):
        return whole, rest
    inner = FloorDiv(rest.expr(), by)
    inside = known.bounds(inner)
    if inside.lo is not None and inside.lo == inside.hi:
        return whole.plus_constant(inside.lo), rest.plus(d, -inside.lo)
    peeled = rest
    for a in rest.terms:
        match a:
            case FloorMod(y, m) if _divides(d, by, m) and known.whole(linear(y)):
                peeled = peeled.replace(a, linear(y))
    if peeled is not rest:
        _, left = _symbolic(peeled, d, known)
    else:
        left = Linear({FloorMod(rest.expr(), by): 1})
    return whole + _nested_symbolic(rest, d, known), left


def _divides(d: Linear, by: Expr, m: Expr) -> bool:
    """Whether a divisor, also given as an expression, divides another one."""
    return m is by or long_division(linear(m), d)[1].same(ZERO)


def _nested_symbolic(x: Linear, d: Linear, known: Facts) -> Linear:
    if len(x.terms) == 1 and not x.constant:
        ((atom, k),) = x.terms.items()
        match atom:
            case FloorDiv(y, m) if k == 1 and known.positive(m) and known.tame(linear(y)):
                return _quotient(linear(y), linear(m).times(d), known)
            case FloorMod(y, m) if k == 1 and known.positive(m) and known.tame(linear(y)):
                times, left = long_division(linear(m), d)
                if left.same(ZERO):
                    return _remainder(_quotient(linear(y), d, known), times, known)
    return Linear({FloorDiv(x.expr(), d.expr()): 1})


def long_division(x: Linear, d: Linear) -> tuple[Linear, Linear]:
    """(q, r) where x is q * d + r as polynomials; q is 0 where that gains nothing."""
    if d.is_constant:
        return _constant_division(x, d.constant)
    lead, k = d.ordered()[0]
    q = ZERO
    for atom, c in x.terms.items():
        if c % k == 0:
            left = ratio(atom, lead)
            if left is not None:
                q = q + (Linear({left: c // k}) if isinstance(left, Expr) else Linear({}, c // k))
    r = x - q.times(d)
    if len(d.terms) == 1 and d.constant == 0 or len(r.terms) < len(x.terms):
        return q, r
    return ZERO, x


def _constant_division(x: Linear, c: int) -> tuple[Linear, Linear]:
    if c == 0:
        return ZERO, x
    whole, rest = x.split(lambda _, k: k % c == 0)
    whole = whole.over(c).plus_constant(rest.constant // c)
    return whole, Linear(rest.terms, rest.constant % c)


# --------------------------------------------------------------------------- sums


def recombine(x: Linear, known: Facts) -> Linear:
    """The sum with x // c * c + x % c -> x and x - x // c * c -> x % c."""
    while True:
        out = _recombined(x, known)
        if out is None:
            return x
        x = out


def _recombined(x: Linear, known: Facts) -> Linear | None:
    if len(x.terms) < 2:
        return None
    found = [
        (atom, c, f)
        for atom, c in x.terms.items()
        for f in factors(atom)
        if isinstance(f, (FloorDiv, FloorMod))
    ]
    present = [f for _, _, f in found if isinstance(f, FloorDiv)]
    if not present:
        return None
    for atom, c, f in found:
        if not known.positive(f.rhs) or not known.tame(linear(f.lhs)):
            continue
        rest = ratio(atom, f)
        k = Linear({rest: c}) if isinstance(rest, Expr) else Linear({}, c)
        if isinstance(f, FloorDiv):
            out = _part(x, f, k, known)
            if out is not None:
                return out
            continue
        for spelled in spellings(f, present, known):
            out = x - k.times(Linear({f: 1})) + k.times(spelled)
            # As many terms, of which some are divided as before, have bounds that are less sharp.
            if len(out.terms) < len(x.terms) or not any(a in x.terms for a in _divided(out)):
                return out
    return None


def spellings(f: FloorMod, present: Collection[FloorDiv], known: Facts) -> Iterator[Linear]:
    """y % d as x - d * (x // d), with quotients that are at hand."""
    d, y = linear(f.rhs), linear(f.lhs)
    whole = quotient(f.lhs, f.rhs, known)
    if any(q in present for atom in whole.terms for q in factors(atom)):
        yield y - d.times(whole)
    if d.is_constant:
        for q in present:
            if q.rhs is f.rhs and q.lhs is not f.lhs and known.tame(linear(q.lhs)):
                apart = linear(q.lhs) - y
                if _reduced(apart, d.constant, known).same(ZERO):
                    yield linear(q.lhs).plus(Linear({q: 1}), -d.constant)


def _part(x: Linear, f: FloorDiv, k: Linear, known: Facts) -> Linear | None:
    """x with k * (y % d) for k * y - k * d * (y // d), if it has both."""
    times, left = long_division(k.scaled(-1), linear(f.rhs))
    if not left.same(ZERO):
        return None
    whole = times.times(linear(f.lhs))
    if not whole.terms or any(x.terms.get(a) != c for a, c in whole.terms.items()):
        return None
    small = _remainder(linear(f.lhs), linear(f.rhs), known)
    out = x - k.times(Linear({f: 1})) - whole + times.times(small)
    return out if _weight(out) < _weight(x) else None


def _weight(x: Linear) -> tuple[int, int]:
    """How many terms a sum has, and in how many of them something is divided."""
    return len(x.terms), len(_divided(x))


def _divided(x: Linear) -> list[Expr]:
    """The terms of a sum in which something is divided."""
    return [a for a in x.terms if any(isinstance(f, (FloorDiv, FloorMod)) for f in factors(a))]
