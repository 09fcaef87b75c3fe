"""Targets: what a program is compiled for, named by a line of text.

``llvm`` is this CPU; ``llvm -mcpu=znver4`` another of its kind; ``llvm -mcpu=cortex-a76
-mtriple=aarch64-linux-gnu`` another kind. ``interpreter`` runs loops in Python.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar

from planish.compiler.errors import ParseError
from planish.compiler.machine import Machine, machine_with


@dataclass(frozen=True)
class Target:
    """Base of targets; hashable, a part of every cache key. ``str`` of one parses back to it."""

    name: ClassVar[str] = ""

    @property
    def machine(self) -> Machine:
        """What schedules have to fit into."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Interpreter(Target):
    """Runs loop IR in Python, checking every access."""

    name: ClassVar[str] = "interpreter"

    @property
    def machine(self) -> Machine:
        return machine_with("generic", frozenset())


def parse_target(text: str) -> Target:
    """The target that a line of text names.

    Errors: ParseError saying what is not understood.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ParseError(f"{text!r} is no target: {error}") from error
    kind, options = (words[0], words[1:]) if words else ("", [])
    match kind:
        case "llvm":
            from .llvm.target import parse_llvm  # needs LLVM

            return parse_llvm(text, options)
        case "interpreter" if not options:
            return Interpreter()
        case "cuda":
            raise ParseError(
                "the cuda target is not built yet", op="target", hint="use --target llvm"
            )
        case _:
            raise ParseError(
                f"there is no target {text!r}",
                op="target",
                hint="llvm [-mcpu=CPU] [-mtriple=TRIPLE] [-mattr=+FEATURE,...], or interpreter",
            )
