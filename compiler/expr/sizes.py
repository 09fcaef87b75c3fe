"""Sizes in a normal form: sums of products of symbols, each symbol at least 0.

What shape rules need to know of dimensions: whether two are the same, which is larger, whether one
divides another. An expression is a polynomial over *atoms* (variables and whatever is no sum or
product); ``normal`` writes it in one way. Nothing here is complete: "not known" is an answer.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import TypeCheckError

from . import nodes as n
from .nodes import Const, Expr, Like, as_expr, const

Monomial: TypeAlias = tuple[Expr, ...]
Polynomial: TypeAlias = dict[Monomial, int]
Bound: TypeAlias = "int | None"  # None: not known

_MOST_TERMS: Final = 64
_HUGE: Final = 1 << 62
_normal: WeakKeyDictionary[Expr, weakref.ref[Expr]] = WeakKeyDictionary()
_keys: WeakKeyDictionary[Expr, str] = WeakKeyDictionary()


def _key(e: Expr) -> str:
    found = _keys.get(e)
    if found is None:
        found = _keys[e] = repr(e)
    return found


def _monomial(factors: Iterable[Expr]) -> Monomial:
    return tuple(sorted(factors, key=_key))


def _polynomial(e: Expr) -> Polynomial:
    """The terms of an expression whose operands are normal."""
    match e:
        case Const(value):
            # What is no size, as the ends of a slice may be, is kept out of sums: they overflow.
            return {(e,): 1} if abs(int(value)) >= _HUGE else _number(int(value))
        case n.Add(x, y):
            return _sum(_polynomial(x), _polynomial(y), 1)
        case n.Sub(x, y):
            return _sum(_polynomial(x), _polynomial(y), -1)
        case n.Mul(x, y):
            a, b = _polynomial(x), _polynomial(y)
            if len(a) * len(b) > _MOST_TERMS or _most(a) * _most(b) >= _HUGE:
                return {(e,): 1}
            out: Polynomial = {}
            for p, c in a.items():
                for q, d in b.items():
                    out = _sum(out, {_monomial(p + q): c * d}, 1)
            return out
        case _:
            return {(e,): 1}


def _most(p: Polynomial) -> int:
    """The largest number in it."""
    return max(map(abs, p.values()), default=0)


def _sum(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    out = dict(a)
    for m, c in b.items():
        if total := out.get(m, 0) + sign * c:
            out[m] = total
        else:
            out.pop(m, None)
    return out


def _expression(p: Polynomial) -> Expr:
    """Positive terms first, then those of higher degree, then by name; numbers last of a sign."""
    out: Expr | None = None
    terms = sorted(p.items(), key=lambda t: (t[1] < 0, -len(t[0]), [_key(f) for f in t[0]]))
    for m, c in terms:
        term = n.product(m)
        size = term if abs(c) == 1 and m else n.mul(term, abs(c)) if m else const(abs(c), I64)
        if out is None:
            out = size if c > 0 else n.mul(term, c) if m else const(c, I64)
        else:
            out = n.add(out, size) if c > 0 else n.sub(out, size)
    return const(0, I64) if out is None else out


def normal(size: Like) -> Expr:
    """The one form in which a size or a condition on sizes is written."""
    root = as_expr(size)
    if (found := _known(root)) is not None:
        return found
    done: dict[Expr, Expr] = {}
    for e in n.walk(root):
        found = _known(e)
        if found is None:
            found = _step(e.rebuild(tuple(done[c] for c in e.children)))
            _normal[e] = _normal[found] = weakref.ref(found)
        done[e] = found
    return done[root]


def _known(e: Expr) -> Expr | None:
    ref = _normal.get(e)
    return None if ref is None else ref()


def _step(e: Expr) -> Expr:
    if e.dtype is BOOL:
        return _condition(e)
    if e.dtype is not I64:
        return e
    match e:
        case n.FloorDiv(x, y):
            return _floordiv(x, y)
        case n.FloorMod(x, y):
            return _floormod(x, y)
        case n.Div(x, y) if _bounds(x)[0] is not None and at_least(x, 0) and at_least(y, 1):
            return _floordiv(x, y)
        case n.Min(x, y):
            return x if at_least(y, x) else y if at_least(x, y) else n.minimum(*_sorted(x, y))
        case n.Max(x, y):
            return x if at_least(x, y) else y if at_least(y, x) else n.maximum(*_sorted(x, y))
        case n.Add() | n.Sub() | n.Mul():
            return _expression(_polynomial(e))
        case _:
            return e


def _sorted(x: Expr, y: Expr) -> tuple[Expr, Expr]:
    return (x, y) if (_key(x), 0) <= (_key(y), 1) else (y, x)


def _condition(e: Expr) -> Expr:
    match e:
        case n.Eq(x, y) | n.Ne(x, y) if x.dtype is I64:
            equal = isinstance(e, n.Eq)
            difference = _sum(_polynomial(x), _polynomial(y), -1)
            if not difference:
                return Const(equal, BOOL)
            if equal and (order := _chosen(x, y)) is not None:
                return _condition(order)
            low, high = _range(difference)
            if (low is not None and low > 0) or (high is not None and high < 0):
                return Const(not equal, BOOL)
            factor = math.gcd(*difference.values())
            sides = _sides({m: c // factor for m, c in difference.items()})
            return (n.eq if equal else n.ne)(*_oriented(*sides))
        case n.Lt(x, y) if x.dtype is I64:
            return _order(_sum(_sum(_polynomial(y), _polynomial(x), -1), {(): 1}, -1))
        case n.Le(x, y) if x.dtype is I64:
            return _order(_sum(_polynomial(y), _polynomial(x), -1))
        case _:
            return e


def _oriented(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two sides of an equation in one order, a number last."""
    swap = isinstance(a, Const) or (not isinstance(b, Const) and _key(a) < _key(b))
    return (b, a) if swap else (a, b)


def _order(p: Polynomial) -> Expr:
    """``p >= 0``, written as a number that is at most the rest where there is one."""
    low, high = _range(p)
    if low is not None and low >= 0:
        return n.TRUE
    if high is not None and high < 0:
        return n.FALSE
    least = -p.get((), 0)
    rest = {m: c for m, c in p.items() if m}
    if len(rest) == 1:  # least <= c * m
        ((m, c),) = rest.items()
        if c > 0:
            least = -(-least // c)
            match m:
                case (n.FloorDiv(x, Const(d)),) if d > 0:
                    return _order(_sum(_polynomial(x), _number(least * int(d)), -1))
            return n.le(const(least, I64), n.product(m))
        return n.le(n.product(m), const(-least // -c, I64))
    if all(c > 0 for c in rest.values()):
        return n.le(const(least, I64), _expression(rest))
    if all(c < 0 for c in rest.values()):
        return n.le(_expression({m: -c for m, c in rest.items()}), const(-least, I64))
    return n.le(*_sides({m: -c for m, c in p.items()}))


def _sides(p: Polynomial) -> tuple[Expr, Expr]:
    """The two sides of a comparison whose difference is ``p``."""
    return (
        _expression({m: c for m, c in p.items() if c > 0}),
        _expression({m: -c for m, c in p.items() if c < 0}),
    )


def _chosen(x: Expr, y: Expr) -> Expr | None:
    """min(a, b) == a -> a <= b, and the same for max and for sides swapped."""
    for one, two in ((x, y), (y, x)):
        match one:
            case n.Min(a, b) if two is a or two is b:
                return n.le(two, b if two is a else a)
            case n.Max(a, b) if two is a or two is b:
                return n.le(b if two is a else a, two)
            case _:
                pass
    return None


def _floordiv(x: Expr, y: Expr) -> Expr:
    if (exact := divide(x, y)) is not None:
        return exact
    if isinstance(y, Const) and (c := int(y.value)) > 0:
        whole, rest = _split(x, c)
        low, high = _range(rest)
        if low is not None and high is not None and low // c == high // c:
            return _expression(_sum(whole, _number(low // c), 1))
        inner = _expression(rest)
        number = rest.get((), 0)
        match tuple((m, k) for m, k in rest.items() if m):
            case (((n.FloorDiv(z, Const(d)),), 1),) if d > 0:  # (z // d + k) // c
                inner = _floordiv(
                    _expression(_sum(_polynomial(z), _number(number * int(d)), 1)),
                    const(c * int(d), I64),
                )
                return _expression(_sum(whole, _polynomial(inner), 1))
        return _expression(_sum(whole, {(n.floordiv(inner, c),): 1}, 1))
    return n.floordiv(x, y)


def _floormod(x: Expr, y: Expr) -> Expr:
    if isinstance(y, Const) and (c := int(y.value)) > 0:
        _, rest = _split(x, c)
        low, high = _range(rest)
        if low is not None and high is not None and low >= 0 and high < c:
            return _expression(rest)
        rest = {m: k % c for m, k in rest.items()}
        return n.floormod(_expression(rest), c)
    return const(0, I64) if divide(x, y) is not None else n.floormod(x, y)


def _number(value: int) -> Polynomial:
    return {(): value} if value else {}


def _split(x: Expr, c: int) -> tuple[Polynomial, Polynomial]:
    """``x = c * whole + rest`` with only whole coefficients in ``whole``."""
    whole: Polynomial = {}
    rest: Polynomial = {}
    for m, k in _polynomial(x).items():
        if k % c == 0:
            whole[m] = k // c
        elif m:
            rest[m] = k
        else:
            if k // c:
                whole[m] = k // c
            rest[m] = k % c
    return whole, rest


# ----------------------------------------------------------------------------------- questions


def same(a: Like, b: Like) -> bool:
    """Whether two sizes are known to be equal for all values of their symbols."""
    x, y = normal(a), normal(b)
    return x is y or not _sum(_polynomial(x), _polynomial(y), -1)


def at_least(a: Like, b: Like) -> bool:
    """Whether ``a >= b`` is known."""
    x, y = as_expr(a), as_expr(b)
    if x is y:
        return True
    low, _ = _range(_sum(_polynomial(x), _polynomial(y), -1))
    return low is not None and low >= 0


def bounds(size: Like) -> tuple[Bound, Bound]:
    """The least and the greatest value that a size can have, where known."""
    return _bounds(normal(size))


def divide(a: Like, b: Like) -> Expr | None:
    """``a / b`` if that is a polynomial; ``b`` is taken not to be 0."""
    p, q = _polynomial(as_expr(a)), _polynomial(as_expr(b))
    if not q:
        return None
    if p == q:
        return const(1, I64)
    if len(q) != 1:
        return _common(p, q)
    ((m, c),) = q.items()
    out: Polynomial = {}
    for factors, k in p.items():
        left = list(factors)
        for f in m:
            if f not in left:
                return None
            left.remove(f)
        if k % c:
            return None
        out[tuple(left)] = k // c
    return _expression(out)


def _common(p: Polynomial, q: Polynomial) -> Expr | None:
    """p / q for a p that is q times one term."""
    lead_q = max(q, key=lambda m: (len(m), [_key(f) for f in m]))
    for m, c in p.items():
        left = list(m)
        for f in lead_q:
            if f not in left:
                break
            left.remove(f)
        else:
            if c % q[lead_q]:
                continue
            factor, k = tuple(left), c // q[lead_q]
            if p == {_monomial(t + factor): d * k for t, d in q.items()}:
                return _expression({factor: k})
    return None


def _range(p: Polynomial) -> tuple[Bound, Bound]:
    low: Bound = 0
    high: Bound = 0
    for m, c in p.items():
        lo, hi = 1, 1  # type: Bound, Bound
        for f in m:
            lo, hi = _times((lo, hi), _bounds(f))
        if c < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + c * lo
        high = None if high is None or hi is None else high + c * hi
    return low, high


def _times(a: tuple[Bound, Bound], b: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    (p, q), (r, s) = a, b
    if a == (1, 1):
        return b
    if p is not None and r is not None and p >= 0 and r >= 0:
        return p * r, None if q is None or s is None else q * s
    if p is None or q is None or r is None or s is None:
        return None, None
    corners = (p * r, p * s, q * r, q * s)
    return min(corners), max(corners)


def _both(choose: Callable[[int, int], int], a: Bound, b: Bound) -> Bound:
    return None if a is None or b is None else choose(a, b)


def _either(choose: Callable[[int, int], int], a: Bound, b: Bound) -> Bound:
    return b if a is None else a if b is None else choose(a, b)


def _bounds(e: Expr) -> tuple[Bound, Bound]:
    match e:
        case Const(value):
            return int(value), int(value)
        case n.Var():
            return 0, None
        case n.FloorDiv(x, Const(c)) if c > 0:
            lo, hi = _bounds(x)
            return (None if lo is None else lo // int(c)), (None if hi is None else hi // int(c))
        case n.FloorDiv(x, y) | n.Div(x, y):  # what divides is taken not to be 0
            (low, high), (least, _) = _bounds(x), _bounds(y)
            positive = low is not None and low >= 0 and least is not None and least >= 0
            return (0, high) if positive else (None, None)
        case n.FloorMod(_, Const(c)) if c > 0:
            return 0, int(c) - 1
        case n.Min(x, y):
            (low, high), (least, most) = _bounds(x), _bounds(y)
            return _both(min, low, least), _either(min, high, most)
        case n.Max(x, y):
            (low, high), (least, most) = _bounds(x), _bounds(y)
            return _either(max, low, least), _both(max, high, most)
        case n.Select(_, x, y):
            (low, high), (least, most) = _bounds(x), _bounds(y)
            return _both(min, low, least), _both(max, high, most)
        case n.Add() | n.Sub() | n.Mul():
            return _range(_polynomial(e))
        case _:
            return None, None


def ceildiv(a: Like, b: int) -> Expr:
    """``a / b`` rounded up, for a positive number ``b``."""
    return normal(n.floordiv(n.add(a, b - 1), b))


def number(size: Expr) -> int | None:
    """The value of a size that is known."""
    found = normal(size)
    return int(found.value) if isinstance(found, Const) else None


def evaluate(e: Expr, values: dict[n.Var, Expr]) -> int | bool | None:
    """The value of an expression over symbols, or None if that takes more than their values."""
    out = n.substitute(e, values)
    if isinstance(out, Const) and not isinstance(out.value, float):
        return out.value
    return None


def numbers(sizes: Iterable[Like]) -> tuple[int, ...]:
    """The values of sizes that are all known.

    Errors: ValueError naming one that is not.
    """
    out = []
    for size in sizes:
        if (value := number(as_expr(size))) is None:
            raise ValueError(f"{size} is not a number")
        out.append(value)
    return tuple(out)


def volume(sizes: Iterable[Like]) -> Expr:
    """The product of sizes, in normal form.

    Errors: TypeCheckError if it is beyond 2^62.
    """
    known = 1
    rest: list[Expr] = []
    for size in sizes:
        e = normal(size)
        if isinstance(e, Const):
            known *= int(e.value)
        else:
            rest.append(e)
    if abs(known) >= 1 << 62:
        raise TypeCheckError(f"a tensor of {known} elements is too large")
    return normal(n.mul(n.product(rest), known))
