"""Integer expressions as sums: coefficient * atom + ... + constant.

Meaning
-------
``linear(e)`` of an ``i64`` expression has the value of ``e``: exactly while nothing overflows, and
modulo 2^64 always, because sums and products of integers are the same ring either way.

An *atom* is anything that is no sum: a variable, ``x // y``, ``min(x, y)``, a load ..., or a
product of such, ``m * n``, with its factors in a fixed order. Two sums that are equal by the laws
of a ring have the same atoms with the same coefficients, unless they are very large: beyond
``TERMS`` terms a sub-expression is an atom of its own, which keeps the cost per node bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import gcd
from typing import Final

from planish.compiler.dtypes import I64
from planish.compiler.errors import TypeCheckError
from planish.compiler.remembering import remembered, table

from .nodes import Add, Binary, Call, Cast, Const, Expr, Load, Mul, Sub, Var, const

TERMS: Final = 64
_CACHED: Final = 1 << 18
_LABEL: Final = 96
_LARGE: Final = 1 << 62


_linear: Final[dict[Expr, Linear]] = table()


class Linear:
    """A sum of coefficient * atom, and a constant; no coefficient is zero. Do not change it."""

    __slots__ = ("_expr", "constant", "terms")
    _expr: Expr | None

    def __init__(self, terms: Mapping[Expr, int], constant: int = 0) -> None:
        self.terms: Mapping[Expr, int] = terms
        self.constant = constant
        self._expr = None

    def __repr__(self) -> str:
        return f"Linear({self.expr()!r})"

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def same(self, other: Linear) -> bool:
        """Equal as a sum."""
        return self.constant == other.constant and self.terms == other.terms

    def coefficient(self, atom: Expr) -> int:
        """What ``atom`` is multiplied by; 0 if it does not occur."""
        return self.terms.get(atom, 0)

    def gcd(self) -> int:
        """The greatest common divisor of the coefficients, the constant aside; 0 without terms."""
        return gcd(*self.terms.values())

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def plus(self, other: Linear, times: int) -> Linear:
        """``self + times * other``."""
        if not other.terms or not times:
            return Linear(self.terms, self.constant + times * other.constant)
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            total = terms.get(atom, 0) + times * c
            if total:
                terms[atom] = total
            else:
                del terms[atom]
        return Linear(terms, self.constant + times * other.constant)

    def plus_constant(self, value: int) -> Linear:
        return Linear(self.terms, self.constant + value)

    def scaled(self, factor: int) -> Linear:
        """Every coefficient and the constant times ``factor``."""
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Linear({a: c * factor for a, c in self.terms.items()}, self.constant * factor)

    def over(self, divisor: int) -> Linear:
        """The exact quotient by a divisor of all coefficients; the constant is rounded down."""
        return Linear({a: c // divisor for a, c in self.terms.items()}, self.constant // divisor)

    def times(self, other: Linear) -> Linear:
        """The product, multiplied out."""
        if not other.terms:
            return self.scaled(other.constant)
        if not self.terms:
            return other.scaled(self.constant)
        out: dict[Expr, int] = {}
        for a, c in self._items():
            for b, d in other._items():
                atom = b if a is None else a if b is None else monomial((*factors(a), *factors(b)))
                if atom is not None:
                    out[atom] = out.get(atom, 0) + c * d
        return Linear({a: c for a, c in out.items() if c}, self.constant * other.constant)

    def _items(self) -> Iterable[tuple[Expr | None, int]]:
        yield from self.terms.items()
        if self.constant:
            yield None, self.constant

    def split(self, choose: Callable[[Expr, int], bool]) -> tuple[Linear, Linear]:
        """The chosen terms, and the others with the constant."""
        chosen: dict[Expr, int] = {}
        others: dict[Expr, int] = {}
        for atom, c in self.terms.items():
            (chosen if choose(atom, c) else others)[atom] = c
        return Linear(chosen), Linear(others, self.constant)

    def replace(self, atom: Expr, by: Linear) -> Linear:
        """The sum with ``by`` for ``atom``."""
        c = self.terms.get(atom)
        if c is None:
            return self
        rest = Linear({a: d for a, d in self.terms.items() if a is not atom}, self.constant)
        return rest.plus(by, c)

    def ordered(self) -> list[tuple[Expr, int]]:
        """The terms as they are written: products of many symbols and large strides first."""
        terms = self.terms
        if len(terms) < 2:
            return list(terms.items())
        return sorted(terms.items(), key=lambda t: (-degree(t[0]), -abs(t[1]), order(t[0])))

    def expr(self) -> Expr:
        """The sum as an expression, the same one for every order of the terms."""
        if self._expr is None:
            self._expr = self._build()
        return self._expr

    def _build(self) -> Expr:
        terms, constant = self.ordered(), self.constant
        lead = next((i for i, t in enumerate(terms) if t[1] > 0), 0)
        if terms:
            terms.insert(0, terms.pop(lead))
        if not terms or (constant > 0 and terms[0][1] < 0):  # 5 - i
            out: Expr = _constant(constant)
            for atom, c in terms:
                out = Sub(out, _scaled(atom, -c))
        else:
            out = _scaled(*terms[0])
            for atom, c in terms[1:]:
                out = Add(out, _scaled(atom, c)) if c > 0 else Sub(out, _scaled(atom, -c))
            if constant:
                out = (Add if constant > 0 else Sub)(out, _constant(abs(constant)))
        if len(terms) <= TERMS and all(abs(c) < _LARGE for c in (constant, *self.terms.values())):
            # In the order of the text, which is what `linear` would find.
            found = _linear.setdefault(out, Linear(dict(terms), constant))
            found._expr = out
        return out


def _scaled(atom: Expr, coefficient: int) -> Expr:
    return atom if coefficient == 1 else Mul(atom, _constant(coefficient))


def _constant(value: int) -> Const:
    return Const(value) if -_LARGE < value < _LARGE else const(value, I64)


ZERO: Final = Linear({})


def linear(e: Expr) -> Linear:
    """The ``i64`` expression as a sum.

    Errors: TypeCheckError for another dtype.
    """
    found = _linear.get(e)
    return found if found is not None else _fill(e)


def _fill(root: Expr) -> Linear:
    if root.dtype is not I64:
        raise TypeCheckError(f"index arithmetic is on i64, not {root.dtype}", node=str(root))
    if len(_linear) > _CACHED:
        _linear.clear()
    # Another thread may clear the cache at any time, so what is needed here is also kept here.
    mine: dict[Expr, Linear] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in mine:
            stack.pop()
            continue
        found = _linear.get(e)
        if found is None and isinstance(e, (Add, Sub, Mul)):
            a, b = mine.get(e.lhs), mine.get(e.rhs)
            if a is None or b is None:
                stack += (e.rhs, e.lhs)
                continue
            found = _combine(e, a, b)
        elif found is None:
            found = Linear({}, int(e.value)) if isinstance(e, Const) else Linear({e: 1})
        mine[e] = _linear[e] = found
        stack.pop()
    return mine[root]


def _combine(e: Binary, a: Linear, b: Linear) -> Linear:
    if isinstance(e, Mul):
        if len(a.terms) * len(b.terms) <= TERMS:
            out = a.times(b)
        else:
            return Linear({e: 1})
    else:
        out = a.plus(b, 1 if isinstance(e, Add) else -1)
    return out if len(out.terms) <= TERMS else Linear({e: 1})


@remembered(1 << 14)
def factors(atom: Expr) -> tuple[Expr, ...]:
    """The factors of an atom, in order."""
    out: list[Expr] = []
    e = atom
    while isinstance(e, Mul):
        out.append(e.rhs)
        e = e.lhs
    out.append(e)
    if len(out) > 1 and any(isinstance(f, (Add, Sub, Const)) for f in out):
        return (atom,)  # a product too large to be multiplied out
    return tuple(reversed(out))


@remembered(1 << 14)
def degree(atom: Expr) -> int:
    """The number of factors."""
    return len(factors(atom))


def monomial(parts: Iterable[Expr]) -> Expr | None:
    """The atom that is the product of these, which are no products themselves; None of none."""
    out: Expr | None = None
    for f in sorted(parts, key=order):
        out = f if out is None else Mul(out, f)
    return out


def ratio(atom: Expr, divisor: Expr) -> Expr | int | None:
    """``atom`` without the factors of ``divisor``: 1 if none are left, None if some are missing."""
    if atom is divisor:
        return 1
    left = list(factors(atom))
    for f in factors(divisor):
        if f not in left:
            return None
        left.remove(f)
    return monomial(left) if left else 1


_labels: Final[dict[Expr, str]] = table()


@remembered(1 << 14)
def order(e: Expr) -> tuple[int, str]:
    """A sort key of an expression that depends on its structure alone: variables by name first."""
    return (0, e.name) if isinstance(e, Var) else (1, _label(e))


def _label(root: Expr) -> str:
    """A short text that tells expressions apart: prefix notation, hashed where it gets long."""
    if len(_labels) > _CACHED:
        _labels.clear()
    mine: dict[Expr, str] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in mine:
            stack.pop()
            continue
        found = _labels.get(e)
        if found is None:
            todo = [c for c in e.children if c not in mine]
            if todo:
                stack.extend(todo)
                continue
            text = f"{_head(e)}({','.join(mine[c] for c in e.children)})"
            found = text if len(text) <= _LABEL else _digest(text)
        mine[e] = _labels[e] = found
        stack.pop()
    return mine[root]


def _head(e: Expr) -> str:
    match e:
        case Const(value, dtype):
            return f"{value}{dtype}"
        case Var(name, dtype):
            return f"{name}:{dtype}"
        case Load(name, _, dtype) | Call(name, _, dtype):
            return f"{type(e).__name__}.{name}:{dtype}"
        case Cast(_, dtype):
            return f"Cast:{dtype}"
        case _:
            return type(e).__name__


def _digest(text: str) -> str:
    return "#" + blake2b(text.encode(), digest_size=12).hexdigest()
