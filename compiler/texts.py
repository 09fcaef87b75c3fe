"""Strings as numbers: what a tensor of strings holds where code is compiled.

A table gives each string a number, equal strings the same one, so what moves strings or asks
whether they are equal does so with numbers. The table of a module holds the strings of the model;
that of a call stands on it, and holds those that come with the inputs and that are made. It goes
with the call, so memory stays bounded and calls don't meet. The empty string is number 0: what pads
with zeros pads with empty strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InternalError, TypeCheckError

Array = npt.NDArray[Any]


class Texts:
    """A table, empty but for the empty string, or on top of another one that stays as it is."""

    def __init__(self, texts: Iterable[str] = ("",), below: Texts | None = None) -> None:
        self._below = below
        self._least = 0 if below is None else len(below)  # the first number that is its own
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        for text in texts if below is None else ():
            self.number(text)

    def __len__(self) -> int:
        return self._least + len(self._texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The strings in the order of their numbers, those of the table below first."""
        return (*(() if self._below is None else self._below.texts), *self._texts)

    def number(self, text: str) -> int:
        """The number of a string, which is new if it was not there."""
        if self._below is not None and (found := self._below._numbers.get(text)) is not None:
            return found
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self)
            self._texts.append(text)
        return found

    def numbers(self, strings: Array) -> Array:
        """The numbers of an array of strings."""
        number = self.number
        found = [number(text) for text in strings.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(strings.shape)

    def strings(self, numbers: Array) -> Array:
        """The strings of an array of numbers.

        Errors: InternalError if one is no string's.
        """
        least, most = numbers.min(initial=0), numbers.max(initial=0)
        if least < 0 or most >= len(self):
            raise InternalError(f"there is no string {least if least < 0 else most}", op="strings")
        below, first = [] if self._below is None else self._below._texts, self._least
        own = self._texts
        flat = numbers.reshape(-1).tolist()
        return array_of([own[k - first] if k >= first else below[k] for k in flat], numbers.shape)


def array_of(strings: Iterable[str], shape: tuple[int, ...]) -> Array:
    """Strings as an array: one of objects."""
    found = list(strings)
    out = np.empty(len(found), object)
    out[:] = found
    return out.reshape(shape)


def holds_strings(array: Array) -> bool:
    """Whether an array may hold strings: text of numpy's own, or objects."""
    return array.dtype.kind in "OUST"


def as_strings(array: Array) -> Array:
    """An array of strings, bytes (which are read as UTF-8) or text of numpy's own as one of str.

    Errors: TypeCheckError naming the element that is no string.
    """
    try:
        flat = array.astype(object).reshape(-1).tolist()
    except ValueError as error:  # of numpy's own text
        raise TypeCheckError(f"there is an element that is no text: {error}") from error
    if not all(type(x) is str for x in flat):
        flat = [_string(x, array.shape, k) for k, x in enumerate(flat)]
    whole = "".join(flat)
    if not whole.isascii():
        try:
            whole.encode()
        except UnicodeEncodeError:  # half a character
            for k, text in enumerate(flat):
                _encoded(text, array.shape, k)
    return array_of(flat, array.shape)


def _string(x: Any, shape: tuple[int, ...], k: int) -> str:
    if isinstance(x, str):
        return str(x)
    if not isinstance(x, bytes):
        kind = f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
        raise TypeCheckError(f"element {_place(shape, k)} is {str(x)[:40]} ({kind}), not a string")
    try:
        return x.decode()
    except UnicodeDecodeError as error:
        place = _place(shape, k)
        raise TypeCheckError(f"element {place} is {x[:40]!r}, which is not UTF-8") from error


def _encoded(text: str, shape: tuple[int, ...], k: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TypeCheckError(
            f"element {_place(shape, k)} is {text[:40]!r}, which is no text: "
            f"character {error.start} is a half of one"
        ) from error


def _place(shape: tuple[int, ...], k: int) -> list[int]:
    return [int(i) for i in np.unravel_index(k, shape)]


__all__ = ["Texts", "array_of", "as_strings", "holds_strings"]
