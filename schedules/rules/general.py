"""Functions of any form: loops of their own that an operator built, reductions of several shapes.

Each block is scheduled by itself in the loops it has alone; loops that blocks share stay serial, as
they may carry what one iteration leaves for the next. Where plain statements go on step by step
(see ``loop.ir``), the rows that they do so in are shared among threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from planish.compiler.errors import ScheduleError
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function, Loop, constant
from planish.schedules.choices import Setting
from planish.schedules.moves import loops as L
from planish.schedules.schedule import Schedule

from . import windows
from .analysis import as_contraction, has_steps, is_stages
from .contraction import own_loops, schedule_alone
from .elementwise import SERIAL_BELOW, inline_all, stream, vector_innermost, work
from .rows import reduce_row

ENOUGH_ROWS = 64  # iterations of a parallel loop that keep all threads busy to the end


def schedule_general(func: Function, setting: Setting) -> Schedule:
    """The schedule of a function of which only the blocks are known."""
    s = inline_all(setting.begin(func), setting) if is_stages(func) else setting.begin(func)
    for b in list(ir.blocks(s.func.body)):
        s = _attempt(s, b.name, setting.about(b.name))
    return _share_rows(s) if setting.threads > 1 else s


def _attempt(s: Schedule, name: str, setting: Setting) -> Schedule:
    block = s.block(name)
    loops = own_loops(s, name)
    if not loops:
        return s
    shared = len(s.loops(name)) - len(loops)
    try:
        if not block.iters:
            return vector_innermost(s, name, setting.machine, shared)
        if block.combiner is None and not shared:
            return stream(s, name, setting)
        if block.combiner is None:
            return vector_innermost(s, name, setting.machine, shared)
        c = as_contraction(block)
        if c is not None and c.n:
            return schedule_alone(s, c, setting)
        if windows.fits(block):
            return windows.schedule_alone(s, name, setting)
        return reduce_row(s, name, setting)
    except ScheduleError:  # no move fits: the plain loops are right
        return s


def _share_rows(s: Schedule) -> Schedule:
    """Make the outermost loops around plain statements parallel, where rows are independent."""
    for part in _outermost(s.func.body):
        if part.kind != "serial" or not has_steps(part):
            continue
        first = next(ir.blocks(part)).name
        if sum(work(s, b.name) for b in ir.blocks(part)) >= SERIAL_BELOW:
            s = _parallel(s, first)
    return s


def _outermost(root: ir.Stmt) -> Iterator[Loop]:
    """The loops that no other is around."""
    if isinstance(root, Loop):
        yield root
        return
    for part in ir.children(root):
        yield from _outermost(part)


def _parallel(s: Schedule, name: str) -> Schedule:
    """The outermost loop around a block parallel, together with the next one if it is short."""
    rows = [x for x in s.loops(name) if constant(x.extent) != 1]
    if not rows:
        return s
    outer, *inner = rows
    path = f"{name}.{outer.var.name}"
    try:
        alone = L.parallel(s, path)
    except ScheduleError:
        return s
    count = constant(outer.extent)
    if not inner or count is None or count >= ENOUGH_ROWS:
        return alone
    try:
        both = L.fuse(s, path, inner[0].var.name)
        return L.parallel(both, f"{path}_{inner[0].var.name}")
    except ScheduleError:
        return alone
