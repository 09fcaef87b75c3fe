"""Targets: what a program is compiled for, named by a line of text.

``llvm`` is this CPU; ``llvm -mcpu=znver4`` another of its kind; ``llvm -mcpu=cortex-a76
-mtriple=aarch64-linux-gnu`` another kind. ``interpreter`` runs loops in Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from planish.compiler.errors import InternalError, ParseError
from planish.compiler.machine import Machine, machine_with

if TYPE_CHECKING:
    from planish.compiler.program import Program

    Progress = Callable[[str], None]


class Runnable(Protocol):
    """A program in memory: what a module calls.

    ``run`` takes the address of the slots that ``planish.compiler.calling`` describes; ``profile``
    also that of a word for each step, and writes how many nanoseconds it took. ``worker`` is where
    the function of the pool's threads is, None if no thread can help.
    """

    @property
    def worker(self) -> int | None: ...
    @property
    def run(self) -> Callable[[int], int]: ...
    @property
    def profile(self) -> Callable[[int, int], int]: ...


class Code(Protocol):
    """What a target makes of a program; ``bytes`` are those of machine code."""

    @property
    def target(self) -> Target: ...
    @property
    def bytes(self) -> int: ...
    def load(self) -> Runnable:
        """The code, ready to be called in this process."""


@dataclass(frozen=True)
class Target:
    """Base of targets; hashable, a part of every cache key. ``str`` of one parses back to it."""

    name: ClassVar[str] = ""

    @property
    def machine(self) -> Machine:
        """What schedules have to fit into."""
        raise NotImplementedError

    @property
    def scheduled(self) -> bool:
        """Whether loops are made to fit the machine, or left as they are."""
        return True

    @property
    def missing(self) -> tuple[str, ...]:
        """What the machine at hand lacks to run code for this target; empty if it can."""
        return ()

    def code(self, program: Program, say: Progress = lambda _: None) -> Code:
        """A program for this target.

        Errors: CodegenError for what cannot be compiled.
        """
        raise InternalError("makes no code", op=self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Interpreter(Target):
    """Runs loop IR in Python, checking every access."""

    name: ClassVar[str] = "interpreter"

    @property
    def scheduled(self) -> bool:
        return False  # plain loops are the fastest here

    def code(self, program: Program, say: Progress = lambda _: None) -> Code:
        from .interpreter import Interpreted

        return Interpreted(program, self)

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
