"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.graph.ir import Array, Content, TensorType

from .content import nonnegative
from .elementwise import Binary, Unary, call
from .sampling import extremes


@dataclass(frozen=True)
class _Compare(Binary):
    kinds = "fiu"

    def result(self, dtype: DType) -> DType:
        return BOOL


@dataclass(frozen=True)
class Equal(_Compare):
    """x == y; false for NaN.

    Shape: x [...], y [...] -> their broadcast, bool.
    Source: ONNX Equal-19.
    """

    name = "equal"
    takes_strings: ClassVar[bool] = True
    kinds = "fiubs"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.eq(x, y)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        if x.dtype is I64:
            for a, b in ((x, y), (y, x)):
                if isinstance(a, Const) and a.value < 0 and nonnegative(b):
                    return n.FALSE
        return n.eq(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.equal(x, y)


@dataclass(frozen=True)
class Greater(_Compare):
    """x > y; false for NaN.

    Shape: x [...], y [...] -> their broadcast, bool.
    Source: ONNX Greater-13.
    """

    name = "greater"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.lt(y, x)

    def values(self, x: Array, y: Array) -> Array:
        return np.greater(x, y)


@dataclass(frozen=True)
class Less(_Compare):
    """x < y; false for NaN.

    Shape: x [...], y [...] -> their broadcast, bool.
    Source: ONNX Less-13.
    """

    name = "less"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.lt(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.less(x, y)


@dataclass(frozen=True)
class GreaterOrEqual(_Compare):
    """x >= y; false for NaN.

    Shape: x [...], y [...] -> their broadcast, bool.
    Source: ONNX GreaterOrEqual-16.
    """

    name = "greater_or_equal"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.le(y, x)

    def values(self, x: Array, y: Array) -> Array:
        return np.greater_equal(x, y)


@dataclass(frozen=True)
class LessOrEqual(_Compare):
    """x <= y; false for NaN.

    Shape: x [...], y [...] -> their broadcast, bool.
    Source: ONNX LessOrEqual-16.
    """

    name = "less_or_equal"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.le(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.less_equal(x, y)


@dataclass(frozen=True)
class And(Binary):
    """Both of two bools.

    Shape: x [...], y [...] bool -> their broadcast.
    Source: ONNX And-7.
    """

    name = "logical_and"
    kinds = "b"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.all_of(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.logical_and(x, y)


@dataclass(frozen=True)
class Or(Binary):
    """Either of two bools.

    Shape: x [...], y [...] bool -> their broadcast.
    Source: ONNX Or-7.
    """

    name = "logical_or"
    kinds = "b"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.any_of(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.logical_or(x, y)


@dataclass(frozen=True)
class Xor(Binary):
    """One of two bools, not both.

    Shape: x [...], y [...] bool -> their broadcast.
    Source: ONNX Xor-7.
    """

    name = "logical_xor"
    kinds = "b"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.ne(x, y)

    def values(self, x: Array, y: Array) -> Array:
        return np.logical_xor(x, y)


@dataclass(frozen=True)
class Not(Unary):
    """The other bool.

    Shape: x [...] bool -> the same.
    Source: ONNX Not-1.
    """

    name = "logical_not"
    kinds = "b"

    def element(self, x: Expr) -> Expr:
        return n.not_(x)

    def values(self, x: Array) -> Array:
        return np.logical_not(x)


@dataclass(frozen=True)
class BitwiseAnd(Binary):
    """The bits that both integers have.

    Shape: x [...], y [...] integers -> their broadcast.
    Source: ONNX BitwiseAnd-18.
    """

    name = "bitwise_and"
    kinds = "iu"

    def element(self, x: Expr, y: Expr) -> Expr:
        return call("bit_and", x, y)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        return None

    def values(self, x: Array, y: Array) -> Array:
        return np.bitwise_and(x, y)


@dataclass(frozen=True)
class BitwiseOr(Binary):
    """The bits that either integer has.

    Shape: x [...], y [...] integers -> their broadcast.
    Source: ONNX BitwiseOr-18.
    """

    name = "bitwise_or"
    kinds = "iu"

    def element(self, x: Expr, y: Expr) -> Expr:
        return call("bit_or", x, y)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        return None

    def values(self, x: Array, y: Array) -> Array:
        return np.bitwise_or(x, y)


@dataclass(frozen=True)
class BitwiseXor(Binary):
    """The bits in which two integers differ.

    Shape: x [...], y [...] integers -> their broadcast.
    Source: ONNX BitwiseXor-18.
    """

    name = "bitwise_xor"
    kinds = "iu"

    def element(self, x: Expr, y: Expr) -> Expr:
        return call("bit_xor", x, y)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        return None

    def values(self, x: Array, y: Array) -> Array:
        return np.bitwise_xor(x, y)


@dataclass(frozen=True)
class BitwiseNot(Unary):
    """Every bit of an integer turned.

    Shape: x [...] integers -> the same.
    Source: ONNX BitwiseNot-18.
    """

    name = "bitwise_not"
    kinds = "iu"

    def element(self, x: Expr) -> Expr:
        return call("bit_not", x)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        return (None,)

    def values(self, x: Array) -> Array:
        return np.invert(x)


@dataclass(frozen=True)
class BitShift(Binary):
    """x with its bits moved by y places; right shifts of signed integers keep the sign.

    A y that is negative or at least the width shifts all bits out.

    Shape: x [...], y [...] integers -> their broadcast.
    Source: ONNX BitShift-28.
    """

    name = "bit_shift"
    kinds = "iu"

    left: bool = True

    def element(self, x: Expr, y: Expr) -> Expr:
        t = x.dtype
        inside = n.lt(y, t.bits)
        if t.kind == "i":
            inside = n.all_of(n.le(0, y), inside)
        places = call("bit_and", y, n.const(t.bits - 1, t))
        if self.left:
            return n.select(inside, call("shift_left", x, places), 0)
        out: Expr = n.const(0, t)
        if t.kind == "i":
            out = n.select(n.lt(x, 0), n.const(-1, t), out)
        return n.select(inside, call("shift_right", x, places), out)

    def content_element(self, x: Expr, y: Expr) -> Expr | None:
        return None

    def values(self, x: Array, y: Array) -> Array:
        return np.left_shift(x, y) if self.left else np.right_shift(x, y)

    @classmethod
    def instances(cls) -> Iterator[Binary]:
        yield cls()
        yield cls(left=False)

    @classmethod
    def arrays(cls) -> Iterator[list[Array]]:
        for dtype in ("uint8", "uint16", "uint32", "uint64", "int8", "int32", "int64"):
            bits = 8 * np.dtype(dtype).itemsize
            low = -1 if dtype[0] == "i" else 0
            yield [extremes(dtype)[:, None], np.arange(low, bits + 2).astype(dtype)]


@dataclass(frozen=True)
class IsNaN(Unary):
    """Whether x is NaN.

    Shape: x [...] float -> the same, bool.
    Source: ONNX IsNaN-20.
    """

    name = "is_nan"

    def result(self, dtype: DType) -> DType:
        return BOOL

    def element(self, x: Expr) -> Expr:
        return n.Call("is_nan", (x,), BOOL)

    def values(self, x: Array) -> Array:
        return np.isnan(x)


@dataclass(frozen=True)
class IsInf(Unary):
    """Whether x is infinite, of the signs asked for.

    Shape: x [...] float -> the same, bool.
    Source: ONNX IsInf-20.
    """

    name = "is_inf"

    positive: bool = True
    negative: bool = True

    def result(self, dtype: DType) -> DType:
        return BOOL

    def element(self, x: Expr) -> Expr:
        infinity = float("inf")
        return n.any_of(
            n.eq(x, infinity) if self.positive else n.FALSE,
            n.eq(x, -infinity) if self.negative else n.FALSE,
        )

    def values(self, x: Array) -> Array:
        return (np.isposinf(x) & self.positive) | (np.isneginf(x) & self.negative)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(positive=False)
        yield cls(negative=False)
        yield cls(False, False)
