"""The functions on strings that compiled code calls; see ``planish.compiler.ops.strings``."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import ALL, BOOL, DType
from planish.compiler.errors import RuntimeFault, TypeCheckError
from planish.compiler.texts import array_of

from .host import Made, host_function
from .interface import Array

_NUMBER: Final = re.compile(r"[ \t\n\r\f\v]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
                            r"[ \t\n\r\f\v]*", re.ASCII)  # fmt: skip
_SPECIAL: Final = {
    f"{sign}{word}": float(f"{sign}{word}") for word in ("nan", "inf") for sign in ("", "+", "-")
}
_SPELLED: Final = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
_MOST_SHOWN: Final = 40  # characters of a string in a message
_MOST_DIGITS: Final = 4096  # of a text that is a number; reading more takes too long


def _each(function: Callable[[str], Any], x: Array, dtype: Any) -> tuple[Array, ...]:
    """A function of each string, which is called once for equal ones."""
    texts = x.reshape(-1).tolist()
    known = {text: function(text) for text in dict.fromkeys(texts)}
    found = [known[text] for text in texts]
    if np.dtype(dtype) == object:
        return (array_of(found, x.shape),)
    return (np.array(found, dtype).reshape(x.shape),)


@host_function("string_concat")
def concatenating() -> Made:
    """Strings behind each other, broadcast."""

    def run(x: Array, y: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        pairs = zip(*(np.broadcast_to(a, shape).reshape(-1).tolist() for a in (x, y)), strict=True)
        return (array_of((a + b for a, b in pairs), shape),)

    return run


@host_function("string_case")
def changing_case(case: str) -> Made:
    """Small letters, or capitals."""
    change = {"lower": str.lower, "upper": str.upper}[case]
    return lambda x, _: _each(change, x, object)


@host_function("regex_full_match")
def matching(pattern: str) -> Made:
    """Whether a string matches; RE2 takes time in proportion to its length, whatever is in it.

    Errors: TypeCheckError for what is no pattern, or if the package is missing.
    """
    try:
        import re2
    except ImportError as error:
        raise TypeCheckError(
            "regular expressions need the package google-re2",
            hint="pip install google-re2",
        ) from error
    options = re2.Options()
    options.log_errors = False
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise TypeCheckError(f"{pattern!r} is no pattern of RE2: {said}") from error
    return lambda x, _: _each(lambda text: found.fullmatch(text) is not None, x, np.bool_)


def _splitting(delimiter: str, most: int) -> Callable[[str], list[str]]:
    return lambda text: text.split(delimiter or None, max(most, -1))


@host_function("string_split_counts")
def counting_parts(delimiter: str, most: int) -> Made:
    """How many parts a string has."""
    split = _splitting(delimiter, most)
    return lambda x, _: _each(lambda text: len(split(text)), x, np.int64)


@host_function("string_split")
def splitting(delimiter: str, most: int) -> Made:
    """The parts of each string."""
    split = _splitting(delimiter, most)

    def run(x: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        count = shape[-1]
        out: list[str] = []
        for text in x.reshape(-1).tolist():
            parts = split(text)[:count]
            out += parts
            out += [""] * (count - len(parts))
        return (array_of(out, shape),)

    return run


@host_function("to_string")
def showing() -> Made:
    """Numbers as text."""

    def run(x: Array, _: tuple[int, ...]) -> tuple[Array, ...]:
        # ``tolist`` would make floats of 64 bits, with more digits.
        texts = [str(k) for k in (x.reshape(-1).tolist() if x.dtype.kind in "iub" else x.flat)]
        return (array_of((_SPELLED.get(t, t) for t in texts) if _is_float(x) else texts, x.shape),)

    return run


def _is_float(x: Array) -> bool:
    return x.dtype.kind in "fV"


@host_function("from_string")
def reading(dtype: str) -> Made:
    """Text as numbers."""
    kind = ALL[dtype]
    if kind.is_int:
        return lambda x, _: (_each(lambda t: _integer(t, kind), x, object)[0].astype(kind.numpy),)
    if kind is BOOL:
        return lambda x, _: _each(_truth, x, np.bool_)

    def run(x: Array, _: tuple[int, ...]) -> tuple[Array, ...]:
        (wide,) = _each(lambda t: _float(t, kind), x, np.float64)
        return (converted(wide, kind),)

    return run


def _digits(text: str) -> str | None:
    """What of a text is a number, or None."""
    found = _NUMBER.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    return None if found is None else found[1]


def _no_number(text: str, kind: str) -> RuntimeFault:
    shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
    return RuntimeFault(f"{shown!r} is no number of {kind}")


def _float(text: str, kind: DType) -> float:
    """The number, so that converting it to a narrower dtype rounds only once."""
    digits = _digits(text)
    if digits is None:
        special = _SPECIAL.get(text.strip().lower())
        if special is None:
            raise _no_number(text, kind.name)
        return special
    near = float(digits)
    if kind.bits == 64 or near == 0 or not np.isfinite(near):
        return near
    exact, found = Decimal(digits), Decimal(near)
    if exact == found or np.float64(near).view(np.int64) & 1:
        return near
    # Of the two neighbours the odd one: its last place tells that there is more.
    return float(np.nextafter(near, np.inf if exact > found else -np.inf))


def _integer(text: str, kind: DType) -> int:
    digits = _digits(text)
    if digits is None:
        raise _no_number(text, kind.name)
    plain = digits.lstrip("+-").isdigit()
    near = float(digits)
    # An integer out of range is told before its digits are worked out: there may be very many.
    if abs(near) > 2.0**65:
        raise RuntimeFault(f"{digits[:_MOST_SHOWN]} is out of the range of {kind.name}")
    found = int(digits) if plain else int(Decimal(digits)) if near else 0
    if not kind.min <= found <= kind.max:
        raise RuntimeFault(f"{digits[:_MOST_SHOWN]} is out of the range of {kind.name}")
    return found


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    return _float(text, BOOL) != 0


@host_function("string_ranks")
def ranking() -> Made:
    """The order of strings."""

    def run(x: Array, _: tuple[int, ...]) -> tuple[Array, ...]:
        ranks = {text: k for k, text in enumerate(sorted(set(x.reshape(-1).tolist())))}
        return _each(ranks.__getitem__, x, np.int64)

    return run


__all__ = ["matching", "reading"]
