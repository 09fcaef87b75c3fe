"""The named scalar functions that ``Call`` nodes may name.

A *primitive* has no expansion: every target implements it. Every other function is an expression of
primitives (``expand``), and has that expression's value, on every target and in a folded constant.
Its ``reference`` is the mathematical function rounded once, which the expansion meets within
``ulp`` and ``ulp_f64`` units in the last place (where a result is flushed to 0, the doc says so).

Floats below f32 are computed in f32 and rounded. Operations are counted on f32; a clamp that keeps
NaN (``max_second``) is one, a ``bitcast`` none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.conversion import converted, to_odd
from planish.compiler.dtypes import from_numpy
from planish.compiler.errors import TypeCheckError

from . import expansions as e
from . import trigonometry as t
from .nodes import Call, Expr, cast, transform

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Function:
    """A named scalar function: its meaning, and how to compute it."""

    name: str
    arity: int
    reference: Callable[..., Array]  # on numpy arrays of one dtype
    expansion: Callable[..., Expr] | None  # of arguments of one float dtype; None for a primitive
    ulp: float  # greatest error for f32
    ulp_f64: float
    operations: int  # of the f32 expansion
    doc: str


# --------------------------------------------------------------------------------------- reference


def _plain(f: Callable[..., Any]) -> Callable[..., Array]:
    """``f`` in the dtype of the arguments."""

    def reference(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*args))

    return reference


def _wide(f: Callable[..., Any]) -> Callable[..., Array]:
    """``f`` in float64, or long double for float64, rounded to the dtype of the arguments."""

    def reference(*args: Array) -> Array:
        dtype = np.asarray(args[0]).dtype
        wide = np.longdouble if dtype == np.float64 else np.float64
        with np.errstate(all="ignore"):
            out = np.asarray(f(*(np.asarray(a).astype(wide) for a in args)))
            return out.astype(dtype) if dtype.itemsize == 8 else converted(out, from_numpy(dtype))

    return reference


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


def _power(x: Array, y: Array) -> Array:
    """In long double: of doubles, numpy takes x^0.5 for a root, which is wrong for -0 and -inf."""
    out: Array = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    return out.astype(x.dtype)


def _bitcast(x: Array, dtype: Any) -> Array:
    bits: Array = np.ascontiguousarray(x).view(dtype)
    return bits.reshape(np.shape(x))


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, for every float dtype."""
    a, b, c = np.broadcast_arrays(a, b, c)
    dtype = a.dtype
    if dtype == np.float64:
        return _fma_double(a.ravel(), b.ravel(), c.ravel()).reshape(a.shape)
    out = to_odd(*_two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)))
    if dtype.itemsize < 4:
        single = out.astype(np.float32)
        out = to_odd(single, out - single)
    return np.asarray(out.astype(dtype))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, and what rounding lost of it."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    """By error-free sums and products; by fractions where those may under- or overflow.

    Source: S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, 2008.
    """
    split = 134217729.0  # 2^27 + 1
    parts = []
    for x in (a, b):
        high = x * split - (x * split - x)
        parts.append((high, x - high))
    (a1, a2), (b1, b2) = parts
    p = a * b
    q = a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)
    high, low = _two_sum(c, q)
    total, lost = _two_sum(p, high)
    out = np.asarray(total + to_odd(*_two_sum(low, lost)))
    simple = (a == 0) | (b == 0) | ~np.isfinite(a * b + c)
    out = np.where(simple, p + c, out)
    large = np.maximum(np.maximum(abs(a), abs(b)), np.maximum(abs(p), abs(c))) > 1e290
    small = (np.minimum(abs(p), abs(out)) < 1e-260) & ~((a == 0) | (b == 0))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for at in np.flatnonzero((large | small) & finite):
        out[at] = _fma_exact(float(a[at]), float(b[at]), float(c[at]))
    return out


def _fma_exact(a: float, b: float, c: float) -> float:
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:
        return a * b + c
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# --------------------------------------------------------------------------------------- registry


def _primitive(name: str, arity: int, reference: Callable[..., Array], doc: str) -> Function:
    return Function(name, arity, reference, None, 0.5, 0.5, 1, doc)


def _expanded(
    name: str,
    arity: int,
    expansion: Callable[..., Expr],
    reference: Callable[..., Any],
    ulp: tuple[float, float],
    operations: int,
    doc: str,
) -> Function:
    def typed(*args: Expr) -> Expr:
        dtype = args[0].dtype
        if len(args) != arity or any(a.dtype is not dtype for a in args) or not dtype.is_float:
            given = ", ".join(str(a.dtype) for a in args)
            raise TypeCheckError(f"{name} takes {arity} of one float dtype, not {given}")
        wide = dtype.computed
        return cast(expansion(*(cast(a, wide) for a in args)), dtype)

    return Function(name, arity, _wide(reference), typed, *ulp, operations, doc)


_PRIMITIVES: Final = (
    _primitive("neg", 1, _plain(np.negative), "-x: the sign turned, of zero and NaN too."),
    _primitive("abs", 1, _plain(np.abs), "|x|; of a float the sign cleared."),
    _primitive("sqrt", 1, _plain(np.sqrt), "Square root, correctly rounded."),
    _primitive("floor", 1, _plain(np.floor), "The greatest integer <= x."),
    _primitive("ceil", 1, _plain(np.ceil), "The least integer >= x."),
    _primitive("trunc", 1, _plain(np.trunc), "The integer part."),
    _primitive("round_even", 1, _plain(np.rint), "The nearest integer, the even one of two."),
    _primitive("fma", 3, _plain(_fma), "a * b + c, rounded once."),
    _primitive("copysign", 2, _plain(np.copysign), "|x| with the sign of y."),
    _primitive("is_nan", 1, _plain(np.isnan), "Whether x is NaN; a bool."),
    _primitive("is_inf", 1, _plain(np.isinf), "Whether x is an infinity; a bool."),
    _primitive("bitcast", 1, _bitcast, "The bits of x in the Call's dtype, of the same width."),
    _primitive("shift_left", 2, _plain(np.left_shift), "x << n, 0 <= n < width; bits are lost."),
    _primitive("shift_right", 2, _plain(np.right_shift), "x >> n, with the sign of a signed x."),
    _primitive("bit_and", 2, _plain(np.bitwise_and), "Of two integers, or bools."),
    _primitive("bit_or", 2, _plain(np.bitwise_or), "Of two integers, or bools."),
    _primitive("bit_xor", 2, _plain(np.bitwise_xor), "Of two integers, or bools."),
    _primitive("bit_not", 1, _plain(np.invert), "Of an integer, or bool."),
    _primitive("max_second", 2, _plain(lambda a, b: np.where(a > b, a, b)), "a if a > b, else b."),
    _primitive("min_second", 2, _plain(lambda a, b: np.where(a < b, a, b)), "a if a < b, else b."),
)

_EXPANDED: Final = (
    _expanded("exp", 1, e.exp, np.exp, (1.0, 1.0), 18, "e^x."),
    _expanded(
        "exp_nonpositive", 1, e.exp_nonpositive, np.exp, (1.0, 1.0), 13,
        "e^x for x <= 0 (right up to 88): 0 where it is below 2^-126.5 (f64: 2^-1022.5).",
    ),
    _expanded("exp2", 1, e.exp2, np.exp2, (1.0, 1.0), 17, "2^x, exact for integers."),
    _expanded("expm1", 1, e.expm1, np.expm1, (2.0, 2.0), 17, "e^x - 1."),
    _expanded(
        "sigmoid", 1, e.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (2.5, 2.5), 16,
        "1 / (1 + e^-x): 0 where it is below 2^-127.5 (f64: 2^-1023.5).",
    ),
    _expanded(
        "softplus", 1, e.softplus, lambda x: np.logaddexp(0, x), (2.0, 2.0), 36,
        "log(1 + e^x): 0 where it is below 2^-126.5 (f64: 2^-1022.5).",
    ),
    _expanded("tanh", 1, e.tanh, np.tanh, (3.0, 3.0), 14, "Hyperbolic tangent; never beyond 1."),
    _expanded("sinh", 1, e.sinh, np.sinh, (2.5, 2.5), 20, "Hyperbolic sine."),
    _expanded("cosh", 1, e.cosh, np.cosh, (2.0, 2.0), 16, "Hyperbolic cosine."),
    _expanded("erf", 1, e.erf, _erf, (2.0, 1.5), 25, "Error function; never beyond 1."),
    _expanded("log", 1, e.log, np.log, (1.0, 1.0), 27, "Natural logarithm."),
    _expanded("log2", 1, e.log2, np.log2, (2.0, 2.0), 28, "Exact for powers of two."),
    _expanded("log1p", 1, e.log1p, np.log1p, (2.0, 2.0), 27, "log(1 + x)."),
    _expanded("asinh", 1, e.asinh, np.arcsinh, (2.0, 2.0), 34, "Inverse of sinh."),
    _expanded("acosh", 1, e.acosh, np.arccosh, (2.5, 2.5), 32, "Inverse of cosh."),
    _expanded("atanh", 1, e.atanh, np.arctanh, (2.5, 2.5), 30, "Inverse of tanh."),
    _expanded(
        "rsqrt", 1, e.rsqrt, lambda x: 1 / np.sqrt(x), (1.5, 1.5), 2,
        "1 / sqrt(x), by a root and a quotient.",
    ),
    _expanded(
        "pow", 2, e.pow, _power, (2.5, 2.0), 90,
        "x^y with all cases of IEEE 754; a few constant y become products or a root.",
    ),
    _expanded(
        "sin", 1, t.sin, np.sin, (2.0, 2.0), 41,
        "For all x.",
    ),
    _expanded("cos", 1, t.cos, np.cos, (2.0, 2.0), 42, "As sin."),
    _expanded(
        "tan", 1, t.tan, np.tan, (4.0, 4.0), 41,
        "For all x.",
    ),
    _expanded("asin", 1, t.asin, np.arcsin, (2.5, 2.5), 17, "Inverse of sin."),
    _expanded("acos", 1, t.acos, np.arccos, (1.5, 1.5), 23, "Inverse of cos."),
    _expanded("atan", 1, t.atan, np.arctan, (1.5, 1.5), 20, "Inverse of tan."),
)  # fmt: skip

FUNCTIONS: Final[dict[str, Function]] = {f.name: f for f in (*_PRIMITIVES, *_EXPANDED)}


def expand(call: Call) -> Expr:
    """The call as an expression of primitives; a primitive is its own.

    Errors: TypeCheckError for a name that is no function, or arguments that it does not take.
    """
    function = FUNCTIONS.get(call.name)
    if function is None:
        raise TypeCheckError(f"there is no function {call.name}", node=str(call))
    return call if function.expansion is None else function.expansion(*call.args)


def expand_all(root: Expr) -> Expr:
    """The expression with every call expanded."""
    return transform(root, lambda x: expand(x) if isinstance(x, Call) else None)
