"""Two contractions with a softmax between them: attention, a block of rows at a time.

Everything up to the result is computed for some rows of one head while their scores are in the
nearest caches: the full matrix of scores is never written to memory.
"""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function, constant
from planish.compiler.machine import Machine
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .analysis import Contraction, as_contraction
from .contraction import (
    inline_elementwise,
    inline_permutations,
    loop_of,
    own_loops,
    schedule_inside,
)
from .elementwise import vector_innermost
from .rows import reduce_row

BLOCK_ROWS = 48  # at the most: a multiple of every register tile's rows
SCORE_BUFFERS = 3  # arrays of the block's scores that are alive together


def contractions(func: Function) -> list[Contraction]:
    """The contractions of a function whose last axis is a column."""
    found = [as_contraction(b) for b in ir.blocks(func.body)]
    return [c for c in found if c is not None and c.n]


def schedule_attention(func: Function, machine: Machine, threads: int) -> Schedule:
    """The default schedule of scores, a softmax along their rows, and the sum of values.

    Errors: ScheduleError where a function is not of that form.
    """
    first, second = (c.block.name for c in contractions(func))
    s = inline_permutations(Schedule(func), first)
    s = inline_permutations(s, second)
    s = inline_elementwise(s, second)
    out = [b.name for b in ir.blocks(s.func.body)][-1]
    if out == second:
        s, second = _apart(s, second)
    masked = _reader(s, first)
    if masked is None:
        masked = first
        s, first = _apart(s, first)
    blocks = [b.name for b in ir.blocks(s.func.body)]
    values = as_contraction(s.block(second))
    scores = as_contraction(s.block(first))
    if values is None or scores is None or not values.m or not scores.m:
        raise ScheduleError("a contraction has no rows", node=out)
    row = loop_of(s, out, second, values.m[-1])
    columns = constant(scores.n[-1].extent)
    if columns is None:
        raise ScheduleError("the number of keys is not known", node=out)
    s = L.split(s, f"{out}.{row}", _block_rows(columns, machine))
    batch = [x.var.name for x in s.loops(out) if x.var.name not in (f"{row}_0", f"{row}_1")][:-1]
    column = s.loops(out)[-1].var.name
    s = L.reorder(s, out, (*batch, f"{row}_0", f"{row}_1", column))
    path = f"{out}.{row}_0"
    s = schedule_inside(s, values, out, machine)
    between = [x for x in blocks if x not in (first, second, out)]
    for name in reversed(between):
        s = S.compute_at(s, name, path, "local")
    pack = f"{out}.{batch[-1]}" if batch else ""
    s = schedule_inside(s, scores, masked, machine, pack)
    for name in between:
        if name == masked:
            continue
        if s.block(name).combiner is not None:
            s = reduce_row(s, name, machine)
        else:
            s = vector_innermost(s, name, machine, len(s.loops(name)) - len(own_loops(s, name)))
    return _share(s, out, batch, row, threads)


def _apart(s: Schedule, name: str) -> tuple[Schedule, str]:
    """A contraction in registers, and a block under its name that stores it."""
    return S.cache_write(s, name, "register"), f"{name}_cache"


def _reader(s: Schedule, name: str) -> str | None:
    """The one elementwise block that reads a contraction, if there is one."""
    buffer = s.block(name).buffer
    found = [b for b in ir.blocks(s.func.body) if any(x.buffer == buffer for x in ir.reads(b))]
    return found[0].name if len(found) == 1 and found[0].combiner is None else None


def _block_rows(columns: int, machine: Machine) -> int:
    """Rows whose scores fit into half of the second cache."""
    fit = machine.l2_bytes // 2 // (4 * SCORE_BUFFERS * columns)
    return max(8, min(BLOCK_ROWS, fit // 8 * 8))


def _share(s: Schedule, out: str, batch: list[str], row: str, threads: int) -> Schedule:
    """Share heads among threads."""
    if threads == 1 or not batch:
        return s
    name = batch[0]
    for inner in batch[1:]:
        s = L.fuse(s, f"{out}.{name}", inner)
        name = f"{name}_{inner}"
    return L.parallel(s, f"{out}.{name}")
