"""Environment variables: each one typed, read when it is asked for, with its help text.

``Config`` lists them; ``CONFIG.threads`` reads one. A value that does not parse is an error that
names the variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload

from .errors import ParseError

T = TypeVar("T")


class Variable(Generic[T]):
    """One environment variable, as an attribute: its value at the time of reading, or ``default``.

    A variable that is set but empty counts as not set.
    """

    def __init__(self, name: str, parse: Callable[[str], T], default: T, help: str) -> None:
        self.name, self.parse, self.default, self.help = name, parse, default, help

    @overload
    def __get__(self, owner: None, kind: type) -> Variable[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> Variable[T] | T:
        return self if owner is None else self.read()

    @property
    def text(self) -> str:
        """What the environment says; empty if nothing."""
        return os.environ.get(self.name, "").strip()

    def read(self) -> T:
        """The value now.

        Errors: ParseError naming the variable.
        """
        text = self.text
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise ParseError(
                f"{self.name} is {text!r}: {error}", hint=f"unset it, or correct it: {self.help}"
            ) from error


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("1", "yes", "on", "true"):
        return True
    if lowered in ("0", "no", "off", "false"):
        return False
    raise ValueError("neither 1 nor 0")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part)


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        raise ValueError("not a number") from None
    if count < 1:
        raise ValueError("less than 1")
    return count


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "planish"


class Config:
    """What the environment decides."""

    dump = Variable[tuple[str, ...]](
        "PLANISH_DUMP",
        _names,
        (),
        "print the program after these passes (names by commas), or `all`",
    )
    check = Variable("PLANISH_CHECK", _flag, False, "verify the program after every pass (1 or 0)")
    time = Variable(
        "PLANISH_TIME", _flag, False, "print how long each phase of compiling took (1 or 0)"
    )
    threads = Variable[int | None](
        "PLANISH_THREADS", _count, None, "how many threads a call may use, if nothing else says so"
    )
    target = Variable("PLANISH_TARGET", str, "llvm", "what to compile for, if nothing else says so")
    logs = Variable[tuple[Path, ...]](
        "PLANISH_LOGS",
        _paths,
        (),
        f"tuning logs besides the shipped ones (by {os.pathsep!r})",
    )
    cache = Variable[Path | None](
        "PLANISH_CACHE",
        _path,
        None,
        "the folder for what is kept between runs: now what the demo downloads",
    )

    @property
    def cache_folder(self) -> Path:
        """``PLANISH_CACHE``, or planish's folder in the user's cache."""
        return self.cache or _cache_folder()

    def __iter__(self) -> Iterator[Variable[Any]]:
        return (v for v in vars(Config).values() if isinstance(v, Variable))


CONFIG: Final = Config()
