"""Functions of one number: signs, powers, rounding, logarithms, trigonometry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array

from .content import nonnegative
from .elementwise import Unary, call
from .sampling import f32, special


@dataclass(frozen=True)
class Neg(Unary):
    """-x; the least integer is its own negative.

    Shape: x [...] -> the same.
    Source: ONNX Neg-13.
    """

    name = "neg"
    kinds = "fi"

    def element(self, x: Expr) -> Expr:
        return n.neg(x)

    def values(self, x: Array) -> Array:
        return np.negative(x)


@dataclass(frozen=True)
class Abs(Unary):
    """|x|; that of the least integer is itself.

    Shape: x [...] -> the same.
    Source: ONNX Abs-13.
    """

    name = "abs"
    kinds = "fiu"

    def element(self, x: Expr) -> Expr:
        return absolute(x)

    def values(self, x: Array) -> Array:
        return np.abs(x)


def absolute(x: Expr) -> Expr:
    """|x| of any number."""
    if x.dtype.is_float:
        return call("abs", x)
    if x.dtype.kind == "u" or nonnegative(x):
        return x
    return n.select(n.lt(x, 0), n.neg(x), x)


@dataclass(frozen=True)
class Sign(Unary):
    """-1, 0 or 1; NaN and zeros stay.

    Shape: x [...] -> the same.
    Source: ONNX Sign-13.
    """

    name = "sign"
    kinds = "fiu"

    def element(self, x: Expr) -> Expr:
        one = n.const(1, x.dtype)
        positive = n.select(n.lt(n.const(0, x.dtype), x), one, x)
        return positive if x.dtype.kind == "u" else n.select(n.lt(x, 0), n.neg(one), positive)

    def values(self, x: Array) -> Array:
        return np.where(x == 0, x, np.sign(x))


@dataclass(frozen=True)
class Reciprocal(Unary):
    """1 / x.

    Shape: x [...] -> the same.
    Source: ONNX Reciprocal-13.
    """

    name = "reciprocal"

    def element(self, x: Expr) -> Expr:
        return n.div(n.const(1.0, x.dtype), x)

    def values(self, x: Array) -> Array:
        return np.asarray(np.divide(x.dtype.type(1), x))


@dataclass(frozen=True)
class _Function(Unary):
    """A named scalar function."""

    function: ClassVar[str] = ""
    numpy: ClassVar[Any] = None

    def element(self, x: Expr) -> Expr:
        return call(self.function or self.name, x)

    def values(self, x: Array) -> Array:
        # In float64: numpy's float32 functions are good to a few units in the last place only.
        return np.asarray(type(self).numpy(x.astype(np.float64)))


erf: Final = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Exp(_Function):
    """e to the x.

    Shape: x [...] -> the same.
    Source: ONNX Exp-13.
    """

    name = "exp"
    numpy = np.exp


@dataclass(frozen=True)
class Log(_Function):
    """The natural logarithm; NaN below 0.

    Shape: x [...] -> the same.
    Source: ONNX Log-13.
    """

    name = "log"
    numpy = np.log


@dataclass(frozen=True)
class Sqrt(_Function):
    """The square root; NaN below 0.

    Shape: x [...] -> the same.
    Source: ONNX Sqrt-13.
    """

    name = "sqrt"
    numpy = np.sqrt


@dataclass(frozen=True)
class Floor(_Function):
    """The greatest whole number not above x.

    Shape: x [...] -> the same.
    Source: ONNX Floor-13.
    """

    name = "floor"
    numpy = np.floor


@dataclass(frozen=True)
class Ceil(_Function):
    """The least whole number not below x.

    Shape: x [...] -> the same.
    Source: ONNX Ceil-13.
    """

    name = "ceil"
    numpy = np.ceil


@dataclass(frozen=True)
class Round(_Function):
    """The nearest whole number, halves to the even one.

    Shape: x [...] -> the same.
    Source: ONNX Round-22.
    """

    name = "round"
    function = "round_even"
    numpy = np.rint


@dataclass(frozen=True)
class Sin(_Function):
    """The sine of x radians.

    Shape: x [...] -> the same.
    Source: ONNX Sin-22.
    """

    name = "sin"
    numpy = np.sin


@dataclass(frozen=True)
class Cos(_Function):
    """The cosine of x radians.

    Shape: x [...] -> the same.
    Source: ONNX Cos-22.
    """

    name = "cos"
    numpy = np.cos


@dataclass(frozen=True)
class Tan(_Function):
    """The tangent of x radians.

    Shape: x [...] -> the same.
    Source: ONNX Tan-22.
    """

    name = "tan"
    numpy = np.tan


@dataclass(frozen=True)
class Asin(_Function):
    """The angle in radians whose sine is x; NaN outside [-1, 1].

    Shape: x [...] -> the same.
    Source: ONNX Asin-22.
    """

    name = "asin"
    numpy = np.arcsin


@dataclass(frozen=True)
class Acos(_Function):
    """The angle in radians whose cosine is x; NaN outside [-1, 1].

    Shape: x [...] -> the same.
    Source: ONNX Acos-22.
    """

    name = "acos"
    numpy = np.arccos


@dataclass(frozen=True)
class Atan(_Function):
    """The angle in radians whose tangent is x.

    Shape: x [...] -> the same.
    Source: ONNX Atan-22.
    """

    name = "atan"
    numpy = np.arctan


@dataclass(frozen=True)
class Sinh(_Function):
    """The hyperbolic sine.

    Shape: x [...] -> the same.
    Source: ONNX Sinh-22.
    """

    name = "sinh"
    numpy = np.sinh


@dataclass(frozen=True)
class Cosh(_Function):
    """The hyperbolic cosine.

    Shape: x [...] -> the same.
    Source: ONNX Cosh-22.
    """

    name = "cosh"
    numpy = np.cosh


@dataclass(frozen=True)
class Asinh(_Function):
    """The inverse of sinh.

    Shape: x [...] -> the same.
    Source: ONNX Asinh-22.
    """

    name = "asinh"
    numpy = np.arcsinh


@dataclass(frozen=True)
class Acosh(_Function):
    """The inverse of cosh; NaN below 1.

    Shape: x [...] -> the same.
    Source: ONNX Acosh-22.
    """

    name = "acosh"
    numpy = np.arccosh


@dataclass(frozen=True)
class Atanh(_Function):
    """The inverse of tanh; NaN outside [-1, 1].

    Shape: x [...] -> the same.
    Source: ONNX Atanh-22.
    """

    name = "atanh"
    numpy = np.arctanh


@dataclass(frozen=True)
class Erf(_Function):
    """The error function.

    Shape: x [...] -> the same.
    Source: ONNX Erf-13.
    """

    name = "erf"
    numpy = staticmethod(erf)


_A: Final = 0.147  # of the approximation


@dataclass(frozen=True)
class Probit(Unary):
    """The number below which a standard normal one is with probability x, within 0.002 of it.

    NaN outside of [0, 1], infinite at its ends but for 1/2.

    Shape: x [...] -> the same.
    Source: ONNX ai.onnx.ml's post_transform PROBIT; S. Winitzki, "A handy approximation for the
        error function and its inverse", 2008.
    """

    name = "probit"

    def element(self, x: Expr) -> Expr:
        t = x.dtype
        y = x * n.const(2.0, t) - n.const(1.0, t)
        log = call("log", (n.const(1.0, t) - y) * (n.const(1.0, t) + y))
        v = n.const(2.0 / (math.pi * _A), t) + log * n.const(0.5, t)
        square = call("sqrt", v * v - log * n.const(1.0 / _A, t)) - v
        size = call("sqrt", n.maximum(square, n.const(0.0, t)))
        return n.const(math.sqrt(2.0), t) * call("copysign", size, y)

    def values(self, x: Array) -> Array:
        y = 2 * x - 1
        log = np.log((1 - y) * (1 + y))
        v = x.dtype.type(2 / (np.pi * _A)) + log / 2
        square = np.sqrt(v * v - log / x.dtype.type(_A)) - v
        size = np.copysign(np.sqrt(np.maximum(square, 0)), y)
        return np.asarray(x.dtype.type(np.sqrt(2)) * size)

    @classmethod
    def arrays(cls) -> Iterator[Array]:
        yield np.array([0.1, 0.2, 0.45, 0.5, 0.6, 0.99, 0.001], np.float32)
        yield f32(3, 4, low=0.0, high=1.0).astype(np.float64)
        yield special("float32")
