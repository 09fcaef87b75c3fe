"""What all commands have in common: their files and options, and how they print."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from planish.compiler.errors import ParseError, TypeCheckError
from planish.compiler.files import hindrance
from planish.model_file import ModelFile


def refuse_module(model: ModelFile) -> None:
    """An error if it is not a model but a module.

    Errors: TypeCheckError.
    """
    if not model.is_onnx:
        raise TypeCheckError(f"{model} is already compiled", hint="give the .onnx file")


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
    if reason := hindrance(path):
        raise ParseError(f"{path} cannot be written: {reason}")
    check_apart(path, *read)


def check_apart(path: Path, *read: Path) -> None:
    """Whether a file is none of those that are read, by whatever name.

    Errors: ParseError.
    """
    for other in read:
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise ParseError(
                f"{path} cannot be written: it is what is read", hint="give it another name"
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


def note(text: str) -> None:
    """Say something beside the output, if there is a place for it."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(f"planish: {text}\n")


def write_json(value: Mapping[str, Any]) -> None:
    """Print JSON; what it has no number for is null."""
    write(json.dumps(_finite(value), indent=1, default=_plain, allow_nan=False))


def error_json(error: Exception) -> str:
    """An error as JSON: its class, its parts and the whole text."""
    parts = ("message", "op", "node", "span", "hint")
    facts = {"class": type(error).__name__, **{p: getattr(error, p, None) for p in parts}}
    facts["message"] = facts["message"] or str(error)
    return json.dumps({"error": {**facts, "text": str(error)}}, indent=1)


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
