"""ONNX operators on strings."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from planish.compiler.dtypes import I64, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import as_expr
from planish.compiler.expr.sizes import at_least
from planish.compiler.graph.ir import Value, assume
from planish.compiler.ops.elementwise import Max
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.reduction import ReduceMax
from planish.compiler.ops.selection import NonZero
from planish.compiler.ops.shape import Concat, Reshape
from planish.compiler.ops.strings import (
    RegexFullMatch,
    StringCase,
    StringConcat,
    StringSplit,
    StringSplitCounts,
)
from planish.compiler.ops.trees import Lookup
from planish.compiler.texts import array_of

from .elementwise import step
from .reader import NodeReader, handles
from .selection import count_of, flat

_CASES: Final = {"NONE": "", "LOWER": "lower", "UPPER": "upper"}
_OWN_CASES: Final = ("tr", "az", "lt")  # languages whose letters have other capitals


@handles("StringConcat", 20)
def string_concat(r: NodeReader) -> Value:
    """With broadcasting."""
    return r.one(StringConcat(), r.input(0), r.input(1))


@handles("RegexFullMatch", 20)
def regex_full_match(r: NodeReader) -> Value:
    """A pattern for all."""
    return r.one(RegexFullMatch(str(r.attribute("pattern", ""))), r.input(0))


@handles("StringSplit", 20)
def string_split(r: NodeReader) -> tuple[Value, ...]:
    """As many columns as the string of the most parts has."""
    x = r.input(0)
    delimiter, most = str(r.attribute("delimiter", "")), max(-1, int(r.attribute("maxsplit", -1)))
    counts = step(r, StringSplitCounts(delimiter, most), x)
    widest = step(r, ReduceMax((0,), False), flat(r, counts))
    widest = step(r, Max(), widest, r.constant(np.array(0), "none"))
    count = r.symbol(widest, "the number of substrings")
    names = [*r.output_names, "", ""]
    split = StringSplit(count, delimiter, most)
    return r.builder.one(split, x, name=names[0], origin=r.label), counts


@handles("StringNormalizer", 10)
def string_normalizer(r: NodeReader) -> Value:
    """Stop words are whole elements, and go before the case is changed."""
    x = r.input(0)
    if x.type.dtype is not STRING or x.type.rank not in (1, 2):
        raise r.fail(f"{x!r} is no row of strings")
    row = x
    if x.type.rank == 2:
        assume(n.eq(x.type.shape[0], 1))
        row = step(r, Reshape(x.type.shape[1:]), x)
    case = r.attribute("case_change_action", "NONE")
    if case not in _CASES:
        raise r.fail(f"there is no case_change_action {case}", hint="one of " + " ".join(_CASES))
    _check_locale(r)
    found = _without_stop_words(r, row)
    (size,) = found.type.shape
    if not at_least(size, 1):  # of nothing an empty string is left
        one = r.constant(np.array([""], object), "empty")
        size = n.maximum(size, 1)
        found = step(r, Slice((as_expr(0),), (1,), (size,)), step(r, Concat(0), found, one))
    if _CASES[case]:
        found = step(r, StringCase(_CASES[case]), found)
    return r.one(Reshape((size,) if x.type.rank == 1 else (as_expr(1), size)), found)


def _without_stop_words(r: NodeReader, row: Value) -> Value:
    words = r.strings("stopwords")
    exact = bool(r.attribute("is_case_sensitive", 0))
    if not words:
        return row
    key = row if exact else step(r, StringCase("lower"), row)
    stop = array_of((w if exact else w.lower() for w in words), (len(words),))
    zeros = r.constant(np.zeros(len(words), np.int64), "zeros")
    kept = step(r, Lookup(n.const(1, I64)), key, r.constant(stop, "stopwords"), zeros)
    count = count_of(r, kept)
    places = step(r, Reshape((count,)), step(r, NonZero(count), kept))
    return step(r, Gather(0), row, places)


def _check_locale(r: NodeReader) -> None:
    """Letters have the capitals that Unicode gives them, which most languages agree with."""
    language = re.split(r"[-_.@]", str(r.attribute("locale", "")))[0].lower()
    if language in _OWN_CASES:
        raise r.fail(f"the capitals of the locale {language!r} are not supported")
