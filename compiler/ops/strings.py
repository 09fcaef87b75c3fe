"""Operators that look into strings, or make them: computed by the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    STRING,
    U8,
    U64,
    DType,
)
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.texts import array_of

from .base import Op, broadcast
from .host import HostOp
from .sampling import special

CASES: Final = ("lower", "upper")
_ODD: Final = ("", "a", "Äpfel", "a\0b", "\U0001f600!", "e\u0301", "ǅ", "  x  y ")


def _strings(*texts: str) -> Array:
    return array_of(texts, (len(texts),))


def _each(function: Callable[[Any], Any], x: Array, dtype: Any) -> Array:
    """A function of each element."""
    out = np.empty(x.shape, dtype)
    for index in np.ndindex(x.shape):
        out[index] = function(x[index])
    return out


class _OfStrings(HostOp):
    """An operator whose first input is strings."""

    def check(self, *inputs: TensorType) -> None:
        for x in inputs:
            if x.dtype is not STRING:
                raise self.fail(f"is defined for strings, not {x}")


@dataclass(frozen=True)
class StringConcat(_OfStrings):
    """The string of x with that of y behind it.

    Shape: x string [...], y string [...] -> their broadcast, string.
    Source: ONNX StringConcat-20.
    """

    name = "string_concat"

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        self.check(x, y)
        return TensorType(STRING, broadcast(x.shape, y.shape))

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(np.add(x, y), object)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [_strings("a", "", "ü"), _strings("b", "", "\0")]
        yield cls(), [_strings(*_ODD).reshape(2, 1, 4), _strings("x", "y").reshape(2, 1)]
        yield cls(), [np.array("a", object), np.array("b", object)]


@dataclass(frozen=True)
class StringCase(_OfStrings):
    """The string in small letters (``lower``) or capitals (``upper``), in no language's own way.

    Shape: x string [...] -> the same.
    Errors: TypeCheckError for another case.
    Source: ONNX StringNormalizer-10; Unicode 3.13, toLowercase and toUppercase.
    """

    name = "string_case"

    case: str

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        if self.case not in CASES:
            raise self.fail(f"there is no case {self.case}", hint="one of " + " ".join(CASES))
        return x

    def reference(self, x: Array) -> Array:
        return _each(str.lower if self.case == "lower" else str.upper, x, object)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls("lower"), [_strings(*_ODD, "İSTANBUL", "ΣΑΣ")]
        yield cls("upper"), [_strings(*_ODD, "straße", "ﬁ").reshape(2, 5)]


@dataclass(frozen=True)
class RegexFullMatch(_OfStrings):
    """Whether the whole string matches a pattern in the syntax of RE2.

    Shape: x string [...] -> bool [...].
    Errors: TypeCheckError if x is no strings; a pattern that is none is found when it is compiled.
    Source: ONNX RegexFullMatch-20.
    """

    name = "regex_full_match"

    pattern: str

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        return x.with_dtype(BOOL)

    def reference(self, x: Array) -> Array:
        import re  # the syntax is that of RE2 but for what the samples do not have

        return _each(lambda s: re.fullmatch(self.pattern, s) is not None, x, np.bool_)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(r"a.*"), [_strings("a", "ba", "ab", "", "a\0b", "a\nb")]
        yield cls(r"[\w.]+@\w+\.com|."), [_strings("a@b.com", "a@b.de", "é", "ab").reshape(2, 2)]


@dataclass(frozen=True)
class StringSplitCounts(_OfStrings):
    """Into how many substrings each string is split: ``StringSplit`` says how.

    Shape: x string [...] -> i64 [...].
    Source: ONNX StringSplit-20, its second output.
    """

    name = "string_split_counts"

    delimiter: str = ""
    most: int = -1

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        return x.with_dtype(I64)

    def reference(self, x: Array) -> Array:
        return _each(lambda s: len(pieces(s, self.delimiter, self.most)), x, np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        for op, arrays in StringSplit.samples():
            assert isinstance(op, StringSplit)
            yield cls(op.delimiter, op.most), arrays


@dataclass(frozen=True)
class StringSplit(_OfStrings):
    """The substrings between delimiters, ``count`` of them: empty ones stand behind fewer.

    An empty delimiter is any white space, none of which is left at either end. After ``most``
    splits the rest stays whole; a negative number is no limit.

    Shape: x string [...] -> string [..., count].
    Source: ONNX StringSplit-20.
    """

    name = "string_split"

    count: Expr
    delimiter: str = ""
    most: int = -1

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        if isinstance(self.count, Const) and self.count.value < 0:
            raise self.fail(f"there are {self.count} substrings")
        return x.with_shape((*x.shape, self.count))

    def reference(self, x: Array) -> Array:
        (count,) = numbers((self.count,))
        out = np.full((*x.shape, count), "", object)
        for index in np.ndindex(x.shape):
            for k, part in enumerate(pieces(str(x[index]), self.delimiter, self.most)[:count]):
                out[(*index, k)] = part
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(4)), [_strings(*_ODD, " a b  c\td ")]
        yield cls(as_expr(5), ","), [_strings("a,b,,c", ",", "").reshape(3, 1)]
        yield cls(as_expr(2), "aa", 1), [_strings("aaaa", "aaa", "b")]
        yield cls(as_expr(1), " ", 0), [np.array("a b", object)]
        yield cls(as_expr(0)), [_strings("", " ")]


def pieces(text: str, delimiter: str, most: int) -> list[str]:
    """The substrings of one string, found place by place."""
    if not delimiter:
        return text.split(None, most)
    out: list[str] = []
    start = 0
    while most < 0 or len(out) < most:
        end = text.find(delimiter, start)
        if end < 0:
            break
        out.append(text[start:end])
        start = end + len(delimiter)
    return [*out, text[start:]]


@dataclass(frozen=True)
class ToString(HostOp):
    """Numbers as text: the shortest that is read back as the same number.

    What is no number is ``NaN``, ``INF`` or ``-INF``; bools are ``True`` and ``False``.

    Shape: x [...] of any dtype but complex ones -> string [...].
    Source: ONNX Cast-28.
    """

    name = "to_string"

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind == "c":
            raise self.fail(f"is not defined for {x.dtype}")
        return x.with_dtype(STRING)

    def reference(self, x: Array) -> Array:
        def text(value: Any) -> str:
            plain = str(value)
            return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(plain, plain)

        return _each(text, x, object)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [special("float32")]
        yield cls(), [np.array([[0.1, 1e20], [1e-7, 1 / 3]], np.float64)]
        yield cls(), [np.array([0.1, 65504], np.float16)]
        yield cls(), [np.array([-(2**63), 2**63 - 1])]
        yield cls(), [np.array(2**64 - 1, np.uint64)]
        yield cls(), [np.array([True, False])]
        yield cls(), [converted(np.array([0.5, 3e38]), BF16)]
        yield cls(), [_strings(*_ODD)]


@dataclass(frozen=True)
class FromString(_OfStrings):
    """The number that a text is, as a decimal fraction with or without an exponent.

    Spaces around it are left out; ``nan`` and ``inf`` with or without a sign, in letters of any
    size, are what is no number. A float is the nearest; an integer is cut off towards zero. A bool
    is a number that is not 0, or ``true`` or ``false``. Any other text ends the call with an error,
    and so does a number that is out of the range of integers.

    Shape: x string [...] -> dtype [...].
    Errors: TypeCheckError for a complex dtype.
    Source: ONNX Cast-28.
    """

    name = "from_string"

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        if self.dtype.kind in "cs":
            raise self.fail(f"is not defined for {self.dtype}")
        return x.with_dtype(self.dtype)

    def reference(self, x: Array) -> Array:
        def number(text: str) -> Any:
            text = text.strip().lower()
            if self.dtype is BOOL and text in ("true", "false"):
                return text == "true"
            if self.dtype.is_int and text.lstrip("+-").isdigit():
                return int(text)
            return float(text)

        if self.dtype.is_int:
            return _each(lambda s: int(number(s)), x, object).astype(self.dtype.numpy)
        return converted(_each(number, x, np.float64), self.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        texts = _strings("1", "-2.5", " 1e3 ", "+.5", "7.", "-0")
        for dtype in (F32, F64, F16, BF16):
            yield cls(dtype), [_strings(*texts, "nan", "INF", "-inf", "+Inf", "1e-50", "1e400")]
        yield cls(F32), [_strings("0.1", "16777217", "3.4028235e38").reshape(1, 3)]
        for dtype in (I8, I32, I64):
            yield cls(dtype), [_strings("1", "-2.9", "1e2", "-128")]
        yield cls(I64), [_strings("9223372036854775807", "-9223372036854775808")]
        yield cls(U64), [np.array("18446744073709551615", object)]
        yield cls(U8), [_strings("255", "0.9")]
        yield cls(BOOL), [_strings("0", "1", "0.0", "-3", "true", "False")]


@dataclass(frozen=True)
class StringRanks(_OfStrings):
    """The place of each string among the different ones there are, in the order of code points.

    Shape: x string [...] -> i64 [...].
    Source: ONNX Unique-28, of strings.
    """

    name = "string_ranks"

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        return x.with_dtype(I64)

    def reference(self, x: Array) -> Array:
        order = sorted(set(x.reshape(-1).tolist()), key=lambda s: [ord(c) for c in s])
        return _each(order.index, x, np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [_strings(*_ODD, "", "a", "\uffff").reshape(11, 1)]


__all__ = [
    "CASES", "FromString", "RegexFullMatch", "StringCase", "StringConcat", "StringRanks",
    "StringSplit", "StringSplitCounts", "ToString",
]  # fmt: skip
