"""What the user gives for paths, numbers and truths: taken as what it is, or refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from pathlib import Path

from .errors import ParseError, TypeCheckError


def as_path(given: object, op: str) -> Path:
    """The path that is given.

    Errors: TypeCheckError for what is none, ParseError for a text that names no file.
    """
    name = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(name, str):
        raise TypeCheckError(
            f"what is of type {type(given).__name__} is no path", op=op, hint="give a str or a Path"
        )
    if not name:
        raise ParseError("the path is empty", op=op)
    if "\0" in name:
        raise ParseError(f"{name!r} names no file: it has a null character", op=op)
    return Path(name)


def as_number(given: object, what: str, op: str, least: int = 0) -> int:
    """The whole number that is given, be it Python's or another's, such as numpy's.

    Errors: TypeCheckError for another thing, or a number that is less than ``least``.
    """
    try:
        number = None if isinstance(given, bool) else index(given)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise TypeCheckError(
            f"{what} is {given!r}, and must be a whole number of at least {least}", op=op
        )
    return number


def as_sizes(given: object, what: str, op: str) -> dict[str, int]:
    """The sizes that are given, by the names of dimensions.

    Errors: TypeCheckError.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeCheckError(
            f"{what} is of type {type(given).__name__}, not a dictionary of sizes by name", op=op
        )
    return {name: as_number(size, f"the size {name}", op) for name, size in given.items()}


def as_truth(given: object, what: str, op: str) -> bool:
    """The truth that is given; a text is none, since any would count as true.

    Errors: TypeCheckError.
    """
    if type(given).__name__ not in ("bool", "bool_"):  # numpy's has either name
        raise TypeCheckError(f"{what} is {given!r}, and must be True or False", op=op)
    return bool(given)
