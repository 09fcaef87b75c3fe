"""Tasks: the functions of a model that are tuned, each once however often it is called.

A task is a function up to names, with what is known of its parameters, and the target and number
of threads it is compiled for. Its key is a digest of that, so that every model that has the same
function has the same task, and a record of one serves all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from planish.compiler.errors import ParseError
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse, show
from planish.compiler.machine import Machine
from planish.schedules.rules import Rule
from planish.schedules.space import Space
from planish.targets.target import Target, parse_target

SIZE = 64  # of a symbol, where nobody says for which size to tune


@dataclass(frozen=True, eq=False)
class Task:
    """A canonical function to tune.

    ``constants`` are the names of parameters that are known when the model is compiled; ``sizes``
    are those of the symbols, in order, at which candidates are measured; ``calls`` is how often the
    model calls the function. ``measured_on``: the machine that measures it, if that is another one.
    ``rules``: those that are tried beside ours, by name.
    """

    func: Function
    constants: frozenset[str]
    target: Target
    threads: int
    sizes: tuple[int, ...] = ()
    calls: int = 1
    label: str = ""
    measured_on: Machine | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """What the task is, as text."""
        return f"# constants: {' '.join(sorted(self.constants))}\n{show(self.func)}"

    @cached_property
    def key(self) -> str:
        """The digest of the text; the target and the threads are not part of it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]

    @property
    def machine(self) -> Machine:
        """What is known of the machine that it is tuned for."""
        return self.measured_on or self.target.machine

    @cached_property
    def space(self) -> Space:
        """The schedules that the rules can make."""
        return Space(self.func, self.machine, self.threads, self.constants, own=self.rules)

    @cached_property
    def target_key(self) -> str:
        """A short name for the target, with a digest of its text."""
        return target_key(self.target)

    def to_json(self) -> dict[str, Any]:
        """The task as lists, numbers and strings."""
        return {
            "text": self.text,
            "target": str(self.target),
            "threads": self.threads,
            "sizes": list(self.sizes),
            "calls": self.calls,
            "label": self.label,
        }

    @classmethod
    def from_json(cls, data: Any) -> Task:
        """The task that ``to_json`` gave.

        Errors: ParseError for anything else.
        """
        match data:
            case {"text": str(text), "target": str(target), "threads": int(threads),
                  "sizes": [*sizes], "calls": int(calls), "label": str(label)}:  # fmt: skip
                func, constants = parse_text(text)
                if all(isinstance(s, int) for s in sizes) and len(sizes) == len(func.symbols):
                    return cls(
                        func, constants, parse_target(target), threads, tuple(sizes), calls, label
                    )
        raise ParseError("not a task", node=repr(data)[:200])


def folder_of(target: Target) -> str:
    """The folder of ``tuning_logs`` for a target."""
    cpu = getattr(target, "cpu", "")
    return "-".join(filter(None, (target.name, cpu, target.machine.isa)))


def target_key(target: Target) -> str:
    """A short name for a target: where a record of one applies, all their features are the same."""
    return f"{folder_of(target)}-{hashlib.sha256(str(target).encode()).hexdigest()[:8]}"


def parse_text(text: str) -> tuple[Function, frozenset[str]]:
    """The function and the constants of a task's text.

    Errors: ParseError if it is none.
    """
    head, _, body = text.partition("\n")
    if not head.startswith("# constants:"):
        raise ParseError("not a task's text", node=text[:200])
    return canonical(parse(body)), frozenset(head.removeprefix("# constants:").split())
