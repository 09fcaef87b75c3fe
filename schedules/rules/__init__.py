"""Rules: from a function and a machine to a schedule."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.ir import Function
from planish.compiler.machine import Machine
from planish.schedules.schedule import Schedule

from . import windows
from .analysis import as_contraction, is_stages, reads_along_rows, reductions
from .attention import contractions, schedule_attention
from .contraction import schedule_contraction
from .elementwise import schedule_elementwise
from .general import schedule_general
from .rows import schedule_rows


def default_schedule(
    func: Function, machine: Machine, threads: int, constants: frozenset[str] = frozenset()
) -> Schedule:
    """The schedule of a function that was never tuned: chosen by what kind of function it is.

    ``constants`` are parameters that are known at compile time and may be laid out at will. Where
    the rule for the kind does not fit after all, the general one does.
    """
    try:
        return _by_kind(func, machine, threads, constants)
    except ScheduleError:
        return schedule_general(func, machine, threads, constants)


def _by_kind(func: Function, machine: Machine, threads: int, constants: frozenset[str]) -> Schedule:
    if not is_stages(func):
        return schedule_general(func, machine, threads, constants)
    reducing = reductions(func)
    if not reducing:
        return schedule_elementwise(func, machine, threads)
    if len(contractions(func)) == 2:
        return schedule_attention(func, machine, threads)
    for b in reducing:
        c = as_contraction(b)
        if c is not None and c.n and not reads_along_rows(c, constants):
            return schedule_contraction(func, b.name, machine, threads, constants)
    if len(reducing) == 1 and windows.fits(reducing[0]):
        return windows.schedule_windows(func, reducing[0].name, machine, threads)
    if all(map(windows.fits, reducing)):
        return schedule_general(func, machine, threads, constants)
    return schedule_rows(func, machine, threads)


__all__ = ["default_schedule"]
