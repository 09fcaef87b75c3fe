"""Decisions: what a rule may choose, each by a name, with the options there are.

A rule is a program that asks. Answered by its own estimates it makes the default schedule; answered
otherwise, another point of the same space. What was asked, with its options, is remembered in
order; a question may depend on earlier answers, so that every point is made by the rule itself and
no option is ever offered that makes no sense with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from random import Random
from typing import TypeAlias, TypeVar

from planish.compiler.loop.ir import Function
from planish.compiler.machine import Machine

from .schedule import Schedule

Option: TypeAlias = "int | str | tuple[int, ...]"
T = TypeVar("T", bound="int | str | tuple[int, ...]")
Decisions: TypeAlias = Mapping[str, Option]


@dataclass
class Choices:
    """Answers to a rule's questions.

    ``given`` are answers by name: of one that is no option of its question, the most similar option
    is taken. Other questions get the rule's estimate, or an option that ``drawn`` picks, or, if
    ``plain``, the first one, which is always that which does the least.
    """

    given: Decisions = field(default_factory=dict)
    plain: bool = False
    drawn: Random | None = None
    made: dict[str, Option] = field(default_factory=dict)
    options: dict[str, tuple[Option, ...]] = field(default_factory=dict)

    def begin(self, name: str, options: tuple[str, ...], answer: str) -> None:
        """Forget what was asked; a first question, and its answer."""
        self.made, self.options = {name: answer}, {name: options}

    def pick(self, name: str, options: Sequence[T], estimate: T) -> T:
        """The answer to a question; the estimate is an option, listed or not."""
        every = tuple(options) if estimate in options else (*options, estimate)
        asked, count = name, 1
        while asked in self.options:  # the same question about another part
            count += 1
            asked = f"{name}.{count}"
        answer = every[0] if self.plain else estimate
        if self.drawn is not None:
            answer = self.drawn.choice(every)
        if asked in self.given:
            answer = _nearest(self.given[asked], every, answer)
        self.options[asked], self.made[asked] = tuple(every), answer
        return answer


def _nearest(wanted: Option, options: Sequence[T], otherwise: T) -> T:
    """The option that is most like an answer: of numbers, the one with the nearest ratios."""
    for option in options:
        if option == wanted:
            return option
    at = _numbers(wanted)
    alike = [o for o in options if len(_numbers(o)) == len(at)] if at else []
    if not alike:
        return otherwise
    return min(
        alike, key=lambda o: sum(abs(log2(a / b)) for a, b in zip(_numbers(o), at, strict=True))
    )


def _numbers(option: Option) -> tuple[float, ...]:
    """What an option says in numbers, moved away from 0; nothing if it is a word."""
    if isinstance(option, str):
        return ()
    every = option if isinstance(option, tuple) else (option,)
    return tuple(max(float(k), 0.5) for k in every)


@dataclass(frozen=True)
class Setting:
    """What a rule is told beside the function.

    ``constants`` are parameters that are known at compile time and may be laid out at will;
    ``part`` is put before the names of questions, where a function has several parts alike.
    ``origin`` is the schedule of no moves, if it is kept for many points. ``strict``: sums are
    plain sums.
    """

    machine: Machine
    threads: int = 1
    constants: frozenset[str] = frozenset()
    choices: Choices = field(default_factory=Choices)
    part: str = ""
    origin: Schedule | None = None
    strict: bool = False

    def begin(self, func: Function) -> Schedule:
        """The schedule of no moves."""
        return Schedule(func) if self.origin is None else self.origin

    def pick(self, name: str, options: Sequence[T], estimate: T) -> T:
        """The answer to a question; ``options`` begin with the one that does the least."""
        return self.choices.pick(f"{self.part}.{name}" if self.part else name, options, estimate)

    def about(self, part: str) -> Setting:
        """The same for a part of the function."""
        return replace(self, part=f"{self.part}.{part}" if self.part else part)
