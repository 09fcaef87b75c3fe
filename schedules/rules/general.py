"""Functions of any form: loops of their own that an operator built, reductions of several shapes.

Each block is scheduled by itself in the loops it has alone; loops that blocks share stay serial, as
they may carry what one iteration leaves for the next.
"""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function
from planish.compiler.machine import Machine
from planish.schedules.schedule import Schedule

from . import windows
from .analysis import as_contraction, is_stages
from .contraction import own_loops, schedule_alone
from .elementwise import inline_all, stream, vector_innermost
from .rows import reduce_row


def schedule_general(
    func: Function, machine: Machine, threads: int, constants: frozenset[str]
) -> Schedule:
    """The default schedule of a function of which only the blocks are known."""
    s = inline_all(Schedule(func)) if is_stages(func) else Schedule(func)
    for b in list(ir.blocks(s.func.body)):
        s = _attempt(s, b.name, machine, threads, constants)
    return s


def _attempt(
    s: Schedule, name: str, machine: Machine, threads: int, constants: frozenset[str]
) -> Schedule:
    block = s.block(name)
    loops = own_loops(s, name)
    if not loops:
        return s
    shared = len(s.loops(name)) - len(loops)
    try:
        if block.combiner is None and not shared:
            return stream(s, name, machine, threads)
        if block.combiner is None:
            return vector_innermost(s, name, machine, shared)
        c = as_contraction(block)
        if c is not None and c.n:
            return schedule_alone(s, c, machine, threads, constants)
        if windows.fits(block):
            return windows.schedule_alone(s, name, machine, threads)
        return reduce_row(s, name, machine)
    except ScheduleError:  # no move fits: the plain loops are right
        return s
