"""The space of a function's schedules: every point is what its rules make of some answers.

A point is known by its decisions, and stored as its trace: that replays without the rule, also when
the rule has changed. Search goes from point to point by other answers to single questions, and by
answers of two points together; what follows from them the rule works out anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.ir import Function
from planish.compiler.machine import Machine

from .choices import Choices, Decisions, Option, Setting
from .rules import Rule, schedule
from .schedule import Schedule

OTHER_RULE = 0.1  # the part of random points that are of a rule that is drawn too
OWN_RULE = 0.4  # the same where someone has brought rules of their own for the function
TRIES = 16  # answers that are tried before a point counts as having no other beside it


@dataclass(frozen=True, eq=False)
class Point:
    """A schedule with the decisions that made it, and what else could have been decided."""

    schedule: Schedule
    decisions: Decisions
    options: dict[str, tuple[Option, ...]]

    def open(self) -> list[str]:
        """The questions that have more than one answer."""
        return [name for name, options in self.options.items() if len(options) > 1]


@dataclass(frozen=True, eq=False)
class Space:
    """The schedules of a function on a machine, for so many threads.

    ``constants`` are parameters that are known at compile time and may be laid out at will.
    Questions that nobody has answered get the rules' estimates, or without ``estimates`` the
    answer that does the least.
    ``own`` are rules beside those that planish has, by name: what they make is in the space where
    they fit the function, that is where their estimates make a schedule.
    """

    func: Function
    machine: Machine
    threads: int = 1
    constants: frozenset[str] = frozenset()
    estimates: bool = True
    own: Mapping[str, Rule] = field(default_factory=dict)

    def start(self) -> Point:
        """The point that nobody has decided anything about."""
        return self.default() if self.estimates else self.plain()

    def default(self) -> Point:
        """The point of all estimates."""
        return self._default

    @cached_property
    def _default(self) -> Point:
        return self._point(Choices())

    def plain(self) -> Point:
        """The point of all first options: nothing but what the rule does in any case."""
        return self._plain

    @cached_property
    def _plain(self) -> Point:
        return self._point(Choices(plain=True))

    def point(self, decisions: Decisions) -> Point:
        """The point of given decisions, or of the options that are most like them.

        Errors: ScheduleError if there is none.
        """
        return self._point(Choices(decisions, plain=not self.estimates))

    def rules(self) -> list[str]:
        """The rules that may make a schedule of the function, that of ``start`` first."""
        every = self.start().options["rule"]
        first = self.start().decisions["rule"]
        return [str(name) for name in (first, *(name for name in every if name != first))]

    def random(self, pick: Random, rule: str | None = None) -> Point:
        """A point all of whose decisions are drawn, of a given rule; ``start`` if none was found.

        Unless given, it is mostly the rule that is estimated to be the right one.
        """
        start = self.start()
        for _ in range(TRIES):
            drawn = pick.random() < (OWN_RULE if self._fitting else OTHER_RULE)
            chosen = rule or (None if drawn else start.decisions["rule"])
            try:
                return self._point(Choices({"rule": chosen} if chosen else {}, drawn=pick))
            except ScheduleError:
                continue
        return start

    def mutated(self, point: Point, pick: Random) -> Point | None:
        """A point with another answer to one question; None if none was found."""
        for _ in range(TRIES):
            names = point.open()
            if not names:
                return None
            if (found := self._redecided(point, pick.choice(names), pick)) is not None:
                return found
        return None

    def crossed(self, a: Point, b: Point, pick: Random) -> Point | None:
        """A point whose answers are each from one of two others; None if that is none."""
        names = dict.fromkeys((*a.decisions, *b.decisions))
        given = {}
        for name in names:
            first, second = (a, b) if pick.random() < 0.5 else (b, a)
            source = first if name in first.decisions else second
            given[name] = source.decisions[name]
        return self._attempt(given)

    def _redecided(self, point: Point, name: str, pick: Random) -> Point | None:
        others = [o for o in point.options.get(name, ()) if o != point.decisions[name]]
        if not others:
            return None
        found = self._attempt({**point.decisions, name: pick.choice(others)})
        if found is None or found.schedule.trace == point.schedule.trace:
            return None
        return found

    def _attempt(self, decisions: Decisions) -> Point | None:
        try:
            return self.point(decisions)
        except ScheduleError:
            return None

    @cached_property
    def _fitting(self) -> dict[str, Rule]:
        """The own rules that fit the function."""
        out = {}
        for name, rule in self.own.items():
            with suppress(ScheduleError):
                rule(self.func, Setting(self.machine, self.threads, self.constants))
                out[name] = rule
        return out

    @cached_property
    def _origin(self) -> Schedule:
        """The schedule of no moves, with what was made of it: many points begin alike."""
        return Schedule(self.func, made={})

    def forget(self) -> None:
        """Give back the memory of what points have in common."""
        if (made := self._origin.made) is not None:
            made.clear()

    def _point(self, choices: Choices) -> Point:
        s = schedule(
            self.func, self.machine, self.threads, self.constants, choices, self._origin,
            self._fitting,
        )  # fmt: skip
        return Point(s, choices.made, choices.options)
