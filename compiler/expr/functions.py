"""The named scalar functions that ``Call`` nodes may name.

A *primitive* has no expansion: every target implements it. Every other function is an expression of
primitives, so that it has the same value on all targets: ``expand`` gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import BF16, F16, F32
from . import expansions as e
from .nodes import Call, Expr, cast, transform

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Function:
    """A named scalar function: its meaning, and how to compute it."""

    name: str
    arity: int
    reference: Callable[..., Array]
    expansion: Callable[..., Expr] | None
    ulp: float
    doc: str


FUNCTIONS: dict[str, Function] = {}


def _wide(f: Callable[..., Any]) -> Callable[..., Array]:
    """``f`` evaluated in float64 and rounded to the dtype of the first argument."""

    def reference(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            out = f(*(np.asarray(a).astype(np.float64) for a in args))
            return np.asarray(out).astype(np.asarray(args[0]).dtype)

    return reference


def _own(f: Callable[..., Any]) -> Callable[..., Array]:
    def reference(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(f(*args))

    return reference


def _low(f: Callable[..., Expr]) -> Callable[..., Expr]:
    """The expansion for all float dtypes: f16 and bf16 are computed in f32 and rounded."""

    def expansion(*args: Expr) -> Expr:
        t = args[0].dtype
        if t is F16 or t is BF16:
            return cast(f(*(cast(a, F32) for a in args)), t)
        return f(*args)

    return expansion


def _fma(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    wide = a.astype(np.float64) * b + c
    return np.asarray(wide.astype(a.dtype))


def _add(name: str, arity: int, reference: Callable[..., Array], doc: str, expansion: Callable[..., Expr] | None = None, ulp: float = 0.5) -> None:
    FUNCTIONS[name] = Function(name, arity, reference, _low(expansion) if expansion else None, ulp, doc)


_erf = np.frompyfunc(math.erf, 1, 1)
_add("neg", 1, _own(np.negative), "-x, the sign bit turned.")
_add("abs", 1, _own(np.abs), "|x|.")
_add("sqrt", 1, _own(np.sqrt), "Square root.")
_add("floor", 1, _own(np.floor), "")
_add("ceil", 1, _own(np.ceil), "")
_add("trunc", 1, _own(np.trunc), "")
_add("round_even", 1, _own(np.rint), "")
_add("fma", 3, _own(_fma), "a * b + c, rounded once.")
_add("copysign", 2, _own(np.copysign), "")
_add("is_nan", 1, _own(np.isnan), "")
_add("is_inf", 1, _own(np.isinf), "")
_add("bitcast", 1, _own(lambda x: x), "The same bits in the Call's dtype.")
_add("shift_left", 2, _own(np.left_shift), "")
_add("shift_right", 2, _own(np.right_shift), "")
_add("bit_and", 2, _own(np.bitwise_and), "")
_add("bit_or", 2, _own(np.bitwise_or), "")
_add("bit_xor", 2, _own(np.bitwise_xor), "")
_add("bit_not", 1, _own(np.invert), "")
_add("max_second", 2, _own(lambda a, b: np.where(a > b, a, b)), "a > b ? a : b")
_add("min_second", 2, _own(lambda a, b: np.where(a < b, a, b)), "a < b ? a : b")
_N = {"exp": np.exp, "exp_nonpositive": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x), "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "erf": lambda x: _erf(x).astype(np.float64),
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan}
for _k, _f in _N.items():
    _add(_k, 1, _wide(_f), "", getattr(e, _k))
_add("pow", 2, _wide(np.power), "", e.pow)


def expand(call: Call) -> Expr:
    """The call as an expression of primitives; a primitive is its own."""
    function = FUNCTIONS[call.name]
    return call if function.expansion is None else function.expansion(*call.args)


def expand_all(root: Expr) -> Expr:
    """The expression with every call expanded."""
    return transform(root, lambda x: expand(x) if isinstance(x, Call) else None)
