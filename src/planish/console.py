"""What all commands have in common: their files and options, and how they print."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from planish.compiler.errors import ParseError, TypeCheckError

_MANIFEST = b"manifest.json"


def is_onnx(path: Path) -> bool:
    """Whether it is not a module file; those are zips that begin with a manifest."""
    try:
        with path.open("rb") as file:
            head = file.read(30 + len(_MANIFEST))
            return not (head.startswith(b"PK\3\4") and head.endswith(_MANIFEST))
    except OSError as error:
        raise ParseError(f"{path} cannot be read: {error.strerror or error}") from error


def refuse_module(path: Path) -> None:
    """An error if a path is not to a model but to a module.

    Errors: TypeCheckError.
    """
    if not is_onnx(path):
        raise TypeCheckError(f"{path} is already compiled", hint="give the .onnx file")


def given_dims(args: Namespace) -> dict[str, int]:
    """The sizes given.

    Errors: TypeCheckError for one that is given twice.
    """
    dims: dict[str, int] = {}
    for name, size in args.dim:
        if dims.setdefault(name, size) != size:
            raise TypeCheckError(f"--dim gives {name!r} two sizes: {dims[name]} and {size}")
    return dims


def check_writable(path: Path, *read: Path) -> None:
    """Whether a file can be written there, as far as that can be told before it is.

    It must be none of those that are read, by whatever name.
    """
    if path.is_dir():
        raise ParseError(f"{path} cannot be written: Is a directory")
    if not path.parent.is_dir():
        raise ParseError(f"{path} cannot be written: No such file or directory")
    for other in read:
        if path.exists() and other.exists() and path.samefile(other):
            raise ParseError(
                f"{path} cannot be written: it is what is read", hint="give -o another name"
            )


def counted(number: int, what: str) -> str:
    """A number of things: 1 step, 2 steps."""
    return f"{number} {what}{'s' * (number != 1)}"


def in_bytes(size: float) -> str:
    """A size with a unit that suits it."""
    unit = "kB" if size < 1e6 else "MB"
    return f"{size / (1e3 if unit == 'kB' else 1e6):.1f} {unit}"


def wrapped(words: Iterable[str]) -> str:
    """Words as lines of a page, indented."""
    from textwrap import fill

    return fill(" ".join(words), 96, initial_indent="    ", subsequent_indent="    ")


def write(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


def write_json(value: Mapping[str, Any]) -> None:
    """Print JSON; what it has no number for is null."""
    write(json.dumps(_finite(value), indent=1, default=_plain, allow_nan=False))


def _finite(value: Any) -> Any:
    """The same without what JSON has no number for: None instead."""
    match value:
        case Mapping():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case np.generic():
            return _finite(value.item())
        case float() if not isfinite(value):
            return None
    return value


def _plain(value: Any) -> Any:
    return str(value)
