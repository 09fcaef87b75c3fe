"""Scalar expressions: interned, immutable, typed.

Meaning
-------
An expression has a dtype and, given values of its variables and buffers, one value.

- Integers wrap around at their width, but for ``i64`` in dimensions, indices and conditions, which
  are taken not to overflow (sizes are far below 2^63); rewrites may use that.
- ``//`` (FloorDiv) and ``%`` (FloorMod) round towards minus infinity, as in Python, and are
  defined for a positive constant or symbolic divisor in index arithmetic; ``div`` truncates
  integers towards zero and divides floats. Integers divided by zero give zero, quotient and rest.
- Floats follow IEEE 754, never contracted or reassociated by a rewrite; ``min`` and ``max`` give
  NaN if either operand is NaN, and either zero for two zeros.
- Comparisons with NaN are false, ``!=`` is true. ``select`` evaluates both sides in the abstract: a
  load on the side not chosen is not performed.
- ``cast`` is what ``conversion`` says: rounded once to floats, towards zero to integers, which are
  the nearest for values out of range and 0 for NaN. ``cast`` to bool is ``x != 0``. Complex numbers
  are not cast, and constants of theirs are real.
- What ``DType.computed`` names another dtype for is computed there and converted back, operation by
  operation: f16 and the smaller floats in f32, integers of fewer than 8 bits in 8.
- Operands have no evaluation order, since nothing has an effect.

Identity is structure: compare with ``is``. ``==`` is never overloaded; use ``eq(a, b)``. The
operators ``+ - * // % < <= > >= & | ~`` build nodes through the functions of this module, which
fold constants and drop neutral elements, so that trivial nodes do not arise; what needs to know
ranges is the simplifier's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import ALL, BOOL, F32, F64, I64, DType
from planish.compiler.errors import TypeCheckError

from .interned import Interned

Scalar: TypeAlias = int | float | bool
T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[T]) -> type[T]:
    """The decorator of expression classes."""
    return dataclass(frozen=True, eq=False, repr=False, slots=True)(cls)


class Expr(metaclass=Interned):
    """A scalar expression."""

    __slots__ = ("__weakref__", "_dtype", "_loads", "_vars")
    _dtype: DType
    _vars: tuple[Var, ...]  # what is below it; kept on first use
    _loads: tuple[Load, ...]

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children, folded where that is trivial."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in self.__dataclass_fields__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        from .text import show

        return show(self)

    def __add__(self, other: Like) -> Expr:
        return add(self, other)

    def __radd__(self, other: Like) -> Expr:
        return add(other, self)

    def __sub__(self, other: Like) -> Expr:
        return sub(self, other)

    def __rsub__(self, other: Like) -> Expr:
        return sub(other, self)

    def __mul__(self, other: Like) -> Expr:
        return mul(self, other)

    def __rmul__(self, other: Like) -> Expr:
        return mul(other, self)

    def __truediv__(self, other: Like) -> Expr:
        return div(self, other)

    def __rtruediv__(self, other: Like) -> Expr:
        return div(other, self)

    def __floordiv__(self, other: Like) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Like) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: Like) -> Expr:
        return floormod(self, other)

    def __rmod__(self, other: Like) -> Expr:
        return floormod(other, self)

    def __neg__(self) -> Expr:
        return neg(self)

    def __lt__(self, other: Like) -> Expr:
        return lt(self, other)

    def __le__(self, other: Like) -> Expr:
        return le(self, other)

    def __gt__(self, other: Like) -> Expr:
        return lt(other, self)

    def __ge__(self, other: Like) -> Expr:
        return le(other, self)

    def __and__(self, other: Like) -> Expr:
        return all_of(self, other)

    def __or__(self, other: Like) -> Expr:
        return any_of(self, other)

    def __invert__(self) -> Expr:
        return not_(self)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        raise TypeCheckError(
            "the truth of an expression is not known at compile time",
            node=str(self),
            hint="use select, all_of or any_of; compare nodes with `is`",
        )


Like: TypeAlias = Expr | int | float | bool


@node
class Const(Expr):
    """A value; a Python int, float or bool as its dtype demands."""

    value: Scalar
    type: DType = I64

    dtype = property(lambda self: self.type)


@node
class Var(Expr):
    """A variable: a symbolic dimension, an iterator, a loop's index. Equal names are the same."""

    name: str
    type: DType = I64

    dtype = property(lambda self: self.type)


class Binary(Expr):
    """Two operands of one dtype, the result of the same."""

    __slots__ = ()
    symbol: ClassVar[str]
    lhs: Expr
    rhs: Expr

    if TYPE_CHECKING:  # every subclass has this one, made by dataclass

        def __init__(self, lhs: Expr, rhs: Expr) -> None: ...

    @property
    def dtype(self) -> DType:
        try:
            return self._dtype
        except AttributeError:
            return _inherit_dtype(self)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.lhs, self.rhs)

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return _MAKE[type(self)](*children)


def _inherit_dtype(e: Expr) -> DType:
    """The dtype of an operand, kept in the node; a loop, because trees may be 50,000 deep."""
    chain: list[Expr] = []
    while isinstance(e, (Binary, Select)) and not isinstance(e, Compare):
        if hasattr(e, "_dtype"):
            break
        chain.append(e)
        e = e.then if isinstance(e, Select) else e.lhs
    found = e.dtype
    for e in chain:
        object.__setattr__(e, "_dtype", found)
    return found


class Compare(Binary):
    """Two operands of one dtype, a bool."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        return BOOL


@node
class Add(Binary):
    """Sum."""

    lhs: Expr
    rhs: Expr
    symbol = "+"


@node
class Sub(Binary):
    """Difference."""

    lhs: Expr
    rhs: Expr
    symbol = "-"


@node
class Mul(Binary):
    """Product."""

    lhs: Expr
    rhs: Expr
    symbol = "*"


@node
class Div(Binary):
    """Quotient: exact for floats, truncated towards zero for integers."""

    lhs: Expr
    rhs: Expr
    symbol = "/"


@node
class FloorDiv(Binary):
    """Integer quotient rounded towards minus infinity."""

    lhs: Expr
    rhs: Expr
    symbol = "//"


@node
class FloorMod(Binary):
    """Remainder of FloorDiv: of the divisor's sign."""

    lhs: Expr
    rhs: Expr
    symbol = "%"


@node
class Min(Binary):
    """The lesser; NaN if either is NaN."""

    lhs: Expr
    rhs: Expr
    symbol = "min"


@node
class Max(Binary):
    """The greater; NaN if either is NaN."""

    lhs: Expr
    rhs: Expr
    symbol = "max"


@node
class Eq(Compare):
    """Equality of values."""

    lhs: Expr
    rhs: Expr
    symbol = "=="


@node
class Ne(Compare):
    """Inequality; true for NaN."""

    lhs: Expr
    rhs: Expr
    symbol = "!="


@node
class Lt(Compare):
    """Less than."""

    lhs: Expr
    rhs: Expr
    symbol = "<"


@node
class Le(Compare):
    """Less than or equal."""

    lhs: Expr
    rhs: Expr
    symbol = "<="


@node
class And(Binary):
    """Both of two bools."""

    lhs: Expr
    rhs: Expr
    symbol = "and"


@node
class Or(Binary):
    """Either of two bools."""

    lhs: Expr
    rhs: Expr
    symbol = "or"


@node
class Not(Expr):
    """The other bool."""

    operand: Expr

    dtype = property(lambda self: BOOL)
    children = property(lambda self: (self.operand,))

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return not_(*children)


@node
class Select(Expr):
    """``then`` where ``condition`` holds, else ``other``."""

    condition: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:
        try:
            return self._dtype
        except AttributeError:
            return _inherit_dtype(self)

    children = property(lambda self: (self.condition, self.then, self.other))

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return select(*children)


@node
class Cast(Expr):
    """A value converted to another dtype."""

    operand: Expr
    type: DType

    dtype = property(lambda self: self.type)
    children = property(lambda self: (self.operand,))

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return cast(children[0], self.type)


@node
class Call(Expr):
    """A named scalar function (see ``functions.FUNCTIONS``) of ``args``."""

    name: str
    args: tuple[Expr, ...]
    type: DType

    dtype = property(lambda self: self.type)
    children = property(lambda self: self.args)

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.name, children, self.type)


@node
class Load(Expr):
    """An element of the buffer (or tensor) called ``buffer``."""

    buffer: str
    indices: tuple[Expr, ...]
    type: DType

    dtype = property(lambda self: self.type)
    children = property(lambda self: self.indices)

    def rebuild(self, children: tuple[Expr, ...]) -> Expr:
        return Load(self.buffer, children, self.type)


# --------------------------------------------------------------------------------- constructors


def const(value: Scalar, dtype: DType) -> Const:
    """The constant ``value`` in ``dtype``: wrapped for integers, rounded for floats."""
    if dtype is BOOL:
        return Const(bool(value), dtype)
    if dtype.is_float:
        return Const(float(value if dtype is F64 else converted(float(value), dtype)), dtype)
    if dtype.kind == "c":
        return Const(float(value), dtype)
    return Const(wrap(int(value), dtype), dtype)


def wrap(value: int, dtype: DType) -> int:
    """An integer reduced to the range of ``dtype``."""
    if dtype.min <= value <= dtype.max:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.max else value


TRUE: Final = Const(True, BOOL)
FALSE: Final = Const(False, BOOL)


def as_expr(value: Like, dtype: DType | None = None) -> Expr:
    """A Python number as a constant (bool, ``i64`` or ``f32`` if no dtype is given)."""
    if isinstance(value, Expr):
        return value
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else F32 if isinstance(value, float) else I64
    return const(value, dtype)


def _pair(a: Like, b: Like, op: str) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    b = as_expr(b, a.dtype)
    if a.dtype is not b.dtype:
        raise TypeCheckError(
            f"operands of {op} are {a.dtype} and {b.dtype}", node=f"{a!r}  and  {b!r}"
        )
    return a, b


def _is(e: Expr, value: int) -> bool:
    """An integer constant of that value (floats keep -0.0 and NaN: no identities there)."""
    return isinstance(e, Const) and not e.type.is_float and e.value == value


def _arith(cls: type[Binary], fold: Callable[[Any, Any], Any]) -> Callable[[Like, Like], Expr]:
    """A constructor that folds two constants with ``fold``, floats in their own width."""

    def make(a: Like, b: Like) -> Expr:
        x, y = _pair(a, b, cls.symbol)
        if x.dtype is BOOL or x.dtype.kind == "c":
            raise TypeCheckError(f"{cls.symbol} is not defined for {x.dtype}", node=f"{x!r}")
        if isinstance(x, Const) and isinstance(y, Const):
            if x.type.is_float:
                t = x.type.computed.numpy.type
                with np.errstate(all="ignore"):
                    return const(float(fold(t(x.value), t(y.value))), x.type)
            if not (cls in (Div, FloorDiv, FloorMod) and y.value == 0):
                return const(fold(x.value, y.value), x.type)
        return cls(x, y)

    return make


def _truncated(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return np.divide(a, b)


_add = _arith(Add, lambda a, b: a + b)
_sub = _arith(Sub, lambda a, b: a - b)
_mul = _arith(Mul, lambda a, b: a * b)
div = _arith(Div, _truncated)
_floordiv = _arith(FloorDiv, lambda a, b: a // b)
_floormod = _arith(FloorMod, lambda a, b: a % b)
_min = _arith(Min, lambda a, b: np.minimum(a, b) if isinstance(a, np.generic) else min(a, b))
_max = _arith(Max, lambda a, b: np.maximum(a, b) if isinstance(a, np.generic) else max(a, b))


def add(a: Like, b: Like) -> Expr:
    """The sum."""
    x, y = _pair(a, b, "+")
    return y if _is(x, 0) else x if _is(y, 0) else _add(x, y)


def sub(a: Like, b: Like) -> Expr:
    """The difference."""
    x, y = _pair(a, b, "-")
    if x is y and x.dtype.is_int:
        return const(0, x.dtype)
    return x if _is(y, 0) else _sub(x, y)


def mul(a: Like, b: Like) -> Expr:
    """The product."""
    x, y = _pair(a, b, "*")
    if _is(x, 0) or _is(y, 0):
        return const(0, x.dtype)
    return y if _is(x, 1) else x if _is(y, 1) else _mul(x, y)


def floordiv(a: Like, b: Like) -> Expr:
    """The quotient of integers, rounded towards minus infinity."""
    x, y = _pair(a, b, "//")
    return x if _is(y, 1) else _floordiv(x, y)


def floormod(a: Like, b: Like) -> Expr:
    """The remainder of ``floordiv``."""
    x, y = _pair(a, b, "%")
    return const(0, x.dtype) if _is(y, 1) else _floormod(x, y)


def neg(a: Like) -> Expr:
    """The negative; exact for floats (the sign of zero and NaN included)."""
    x = as_expr(a)
    return mul(x, -1) if not x.dtype.is_float else Call("neg", (x,), x.dtype)


def minimum(a: Like, b: Like) -> Expr:
    """The lesser; NaN if either is."""
    x, y = _pair(a, b, "min")
    return x if x is y else _min(x, y)


def maximum(a: Like, b: Like) -> Expr:
    """The greater; NaN if either is."""
    x, y = _pair(a, b, "max")
    return x if x is y else _max(x, y)


def _compare(cls: type[Compare], fold: Callable[[Any, Any], bool]) -> Callable[[Like, Like], Expr]:
    same = cls in (Eq, Le)

    def make(a: Like, b: Like) -> Expr:
        x, y = _pair(a, b, cls.symbol)
        if isinstance(x, Const) and isinstance(y, Const):
            return Const(fold(x.value, y.value), BOOL)
        if x is y and not x.dtype.is_float:
            return Const(same, BOOL)
        return cls(x, y)

    return make


eq = _compare(Eq, lambda a, b: a == b)
ne = _compare(Ne, lambda a, b: a != b)
lt = _compare(Lt, lambda a, b: a < b)
le = _compare(Le, lambda a, b: a <= b)


def all_of(*conditions: Like) -> Expr:
    """The conjunction; true if there are none."""
    out: Expr = TRUE
    for c in conditions:
        y = as_expr(c)
        if out is FALSE or y is FALSE:
            return FALSE
        out = y if out is TRUE else out if y is TRUE or y is out else And(out, y)
    return out


def conjuncts(e: Expr) -> tuple[Expr, ...]:
    """The conditions that ``and`` joins, in order; none for true."""
    out: list[Expr] = []
    todo = [e]
    while todo:
        match todo.pop():
            case And(x, y):
                todo += [y, x]
            case c if c is not TRUE:
                out.append(c)
            case _:
                pass
    return tuple(out)


def any_of(*conditions: Like) -> Expr:
    """The disjunction; false if there are none."""
    out: Expr = FALSE
    for c in conditions:
        y = as_expr(c)
        if out is TRUE or y is TRUE:
            return TRUE
        out = y if out is FALSE else out if y is FALSE or y is out else Or(out, y)
    return out


def not_(a: Like) -> Expr:
    """The negation of a bool."""
    x = as_expr(a)
    match x:
        case Const(value):
            return Const(not value, BOOL)
        case Not(inner):
            return inner
        case Lt(p, q) if not p.dtype.is_float:
            return le(q, p)
        case Le(p, q) if not p.dtype.is_float:
            return lt(q, p)
        case _:
            return Not(x)


def select(condition: Like, then: Like, other: Like) -> Expr:
    """``then`` where the condition holds, else ``other``."""
    x, y = _pair(then, other, "select")
    c = as_expr(condition)
    if isinstance(c, Const):
        return x if c.value else y
    return x if x is y else Select(c, x, y)


def cast(a: Like, dtype: DType) -> Expr:
    """The value converted to ``dtype``."""
    x = as_expr(a)
    if x.dtype is dtype:
        return x
    if "c" in (x.dtype.kind, dtype.kind):
        raise TypeCheckError(f"{x.dtype} is not converted to {dtype}", node=str(x))
    if not isinstance(x, Const):
        return Cast(x, dtype)
    if dtype.is_discrete or x.type.is_discrete:
        value = converted(np.asarray(x.value, x.type.computed.numpy), dtype)
        return Const(value.astype(dtype.computed.numpy).item(), dtype)
    return const(x.value, dtype)


_MAKE: Final[dict[type[Expr], Callable[..., Expr]]] = {
    Add: add, Sub: sub, Mul: mul, Div: div, FloorDiv: floordiv, FloorMod: floormod,
    Min: minimum, Max: maximum, Eq: eq, Ne: ne, Lt: lt, Le: le, And: all_of, Or: any_of,
}  # fmt: skip


# ----------------------------------------------------------------------------------- traversals


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node below the roots, children first, in a fixed order."""
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        e = stack[-1]
        if e in seen:
            stack.pop()
            continue
        todo = [c for c in e.children if c not in seen]
        if todo:
            stack.extend(reversed(todo))
        else:
            seen.add(stack.pop())
            yield e


def free_vars(*roots: Expr) -> tuple[Var, ...]:
    """The variables of the roots, in order of first use."""
    return _distinct([_vars(e) for e in roots])


def loads(*roots: Expr) -> tuple[Load, ...]:
    """The loads in the roots, inner ones first."""
    return _distinct([_loads(e) for e in roots])


def _vars(e: Expr) -> tuple[Var, ...]:
    if isinstance(e, Var):
        return (e,)
    if not hasattr(e, "_vars"):
        _note_leaves(e)
    return e._vars


def _loads(e: Expr) -> tuple[Load, ...]:
    if not hasattr(e, "_loads"):
        _note_leaves(e)
    return (*e._loads, e) if isinstance(e, Load) else e._loads


def _note_leaves(root: Expr) -> None:
    """Keep in a node, and in all below it, what is below; a loop, because trees may be deep."""
    stack = [root]
    while stack:
        e = stack[-1]
        if todo := [c for c in e.children if not hasattr(c, "_loads")]:
            stack.extend(reversed(todo))
            continue
        stack.pop()
        object.__setattr__(e, "_vars", _distinct([_vars(c) for c in e.children]))
        object.__setattr__(e, "_loads", _distinct([_loads(c) for c in e.children]))


def _distinct(parts: list[tuple[T, ...]]) -> tuple[T, ...]:
    """The elements of all, each once, in order; a part itself if it is the only one."""
    parts = [p for p in parts if p]
    if len(parts) < 2:
        return parts[0] if parts else ()
    first = parts[0]
    out = tuple(dict.fromkeys(x for p in parts for x in p))
    return first if len(out) == len(first) else out


def transform(root: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up; ``replace`` sees each node over its new children and may give another."""
    done: dict[Expr, Expr] = {}
    for e in walk(root):
        children = e.children
        fresh = tuple(done[c] for c in children)
        new = e if all(a is b for a, b in zip(children, fresh, strict=True)) else e.rebuild(fresh)
        out = replace(new)
        done[e] = new if out is None else out
    return done[root]


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """The expression with variables replaced, all at once."""
    done: dict[Expr, Expr] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in done:
            stack.pop()
        elif isinstance(e, Var):
            done[e] = values.get(e, e)
        elif values.keys().isdisjoint(_vars(e)):
            done[e] = e
        elif todo := [c for c in e.children if c not in done]:
            stack.extend(reversed(todo))
        else:
            done[e] = e.rebuild(tuple([done[c] for c in e.children]))
    return done[root]


def product(factors: Iterable[Like]) -> Expr:
    """The product of integers; 1 of none."""
    out: Expr = Const(1, I64)
    for f in factors:
        out = mul(out, f)
    return out


def dtype_named(name: str) -> DType:
    """The dtype of a short name.

    Errors: TypeCheckError for an unknown name.
    """
    if name not in ALL:
        raise TypeCheckError(f"there is no dtype {name}", hint="one of " + " ".join(ALL))
    return ALL[name]
