"""Rules: from a function and a machine to a schedule, or to all that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.ir import Block, Function
from planish.compiler.machine import Machine
from planish.schedules.choices import Choices, Setting
from planish.schedules.schedule import Schedule

from . import windows, winograd
from .analysis import as_contraction, is_stages, is_tileable, reductions
from .attention import contractions, schedule_attention
from .contraction import schedule_contraction
from .elementwise import schedule_elementwise
from .general import schedule_general
from .rows import schedule_rows

Rule: TypeAlias = Callable[[Function, Setting], Schedule]
NAMES: Final = (
    "elementwise", "attention", "contraction", "winograd", "windows", "rows", "general",
)  # fmt: skip


def default_schedule(
    func: Function,
    machine: Machine,
    threads: int,
    constants: frozenset[str] = frozenset(),
    strict: bool = False,
) -> Schedule:
    """The schedule of a function that was never tuned: every question answered by an estimate.

    ``constants`` are parameters that are known at compile time and may be laid out at will.
    ``strict``: sums are plain sums.
    """
    return schedule(func, machine, threads, constants, Choices(), strict=strict)


def schedule(
    func: Function,
    machine: Machine,
    threads: int,
    constants: frozenset[str],
    choices: Choices,
    origin: Schedule | None = None,
    own: Mapping[str, Rule] | None = None,
    strict: bool = False,
) -> Schedule:
    """The schedule that answers make; afterwards ``choices`` tells what was asked.

    The first question is by which rule: estimated, the first of those that fit which works.
    ``own`` are rules beside those here, by name; none of them is ever estimated to be the best.

    Errors: ScheduleError if the given answers make none.
    """
    setting = Setting(machine, threads, constants, choices, "", origin, strict)
    fitting = {**dict(rules(func, setting)), **(own or {})}
    given = choices.given.get("rule")
    if given is None and choices.drawn is not None:
        given = choices.drawn.choice(list(fitting))
    names = [given] if isinstance(given, str) and given in fitting else list(fitting)
    for name in names:
        choices.begin("rule", tuple(fitting), name)
        try:
            return fitting[name](func, setting)
        except ScheduleError:
            if name == names[-1]:
                raise
    raise AssertionError("there is always the general rule")


def rules(func: Function, setting: Setting) -> Iterator[tuple[str, Rule]]:
    """The rules that may fit a function, by name, what is estimated to be best first."""
    if is_stages(func):
        yield from _of_stages(func, setting)
    yield "general", schedule_general


def _of_stages(func: Function, setting: Setting) -> Iterator[tuple[str, Rule]]:
    reducing = reductions(func)
    if not reducing:
        yield "elementwise", schedule_elementwise
        return
    if len(contractions(func)) == 2:
        yield "attention", schedule_attention
        return
    for b in reducing:
        c = as_contraction(b)
        if c is not None and is_tileable(c, setting.constants):
            yield from _of_contraction(b, setting)
            return
    if len(reducing) == 1 and windows.fits(reducing[0]):
        yield "windows", partial(windows.schedule_windows, anchor=reducing[0].name)
        return
    if not all(map(windows.fits, reducing)):
        yield "rows", schedule_rows


def _of_contraction(block: Block, setting: Setting) -> Iterator[tuple[str, Rule]]:
    plain: tuple[str, Rule] = "contraction", partial(schedule_contraction, anchor=block.name)
    conv = winograd.fits(block, setting)
    if conv is None:
        yield plain
        return
    tiled: tuple[str, Rule] = "winograd", partial(winograd.schedule_winograd, anchor=block.name)
    first = not setting.choices.plain and winograd.pays(conv, setting)
    yield from (tiled, plain) if first else (plain, tiled)


__all__ = ["NAMES", "Rule", "default_schedule", "rules", "schedule"]
