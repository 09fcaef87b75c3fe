"""Two contractions with a softmax between them: attention, a block of rows at a time.

Everything up to the result is computed for some rows of one head while their scores are in the
nearest caches: the full matrix of scores is never written to memory.
"""

from __future__ import annotations

from math import prod

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function, constant
from planish.schedules.choices import Setting
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
from .elementwise import share_loops, stream, vector_innermost
from .rows import reduce_row

BLOCK_ROWS = 48  # at the most: a multiple of every register tile's rows
SCORE_BUFFERS = 2  # arrays of the block's scores that are alive together
SOME_COLUMNS = 512  # keys that are counted on where their number is not known


def contractions(func: Function) -> list[Contraction]:
    """The contractions of a function whose last axis is a column."""
    found = [as_contraction(b) for b in ir.blocks(func.body)]
    return [c for c in found if c is not None and c.n]


def schedule_attention(func: Function, setting: Setting) -> Schedule:
    """The schedule of scores, a softmax along their rows, and the sum of values.

    Errors: ScheduleError where a function is not of that form.
    """
    first, second = (c.block.name for c in contractions(func))
    s = inline_permutations(setting.begin(func), first)
    s = inline_permutations(s, second)
    s = inline_elementwise(s, second)
    s = _stream_operands(s, first, setting)
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
    keys = _loops_of_keys(s, out, scores, values)
    s = L.split(s, f"{out}.{row}", _block_rows(scores, setting))
    batch = [x.var.name for x in s.loops(out) if x.var.name not in (f"{row}_0", f"{row}_1")][:-1]
    column = s.loops(out)[-1].var.name
    s = L.reorder(s, out, (*batch, f"{row}_0", f"{row}_1", column))
    path = f"{out}.{row}_0"
    s = schedule_inside(s, values, out, setting.about("values"))
    between = [x for x in blocks[blocks.index(first) :] if x not in (first, second, out)]
    for name in reversed(between):
        s = _inside(s, name, path)
    shared = _outermost(s, out, batch, keys, setting.threads)
    pack = f"{out}.{shared[-1]}" if shared else ""
    s = schedule_inside(s, scores, masked, setting.about("scores"), pack)
    for name in between:
        if s.block(name).combiner is not None:
            s = reduce_row(s, name, setting)
        elif name != masked:
            s = vector_innermost(
                s, name, setting.machine, len(s.loops(name)) - len(own_loops(s, name))
            )
    if setting.threads == 1 or not shared:
        return s
    return share_loops(s, out, shared, len(shared), setting)


def _stream_operands(s: Schedule, first: str, setting: Setting) -> Schedule:
    """Compute what the scores are made of beforehand, a pass for each stage."""
    names = [b.name for b in ir.blocks(s.func.body)]
    for name in names[: names.index(first)]:
        s = stream(s, name, setting.about("before"))
    return s


def _loops_of_keys(
    s: Schedule, out: str, scores: Contraction, values: Contraction
) -> frozenset[str]:
    """The loops of the result in which the keys are others each time."""
    used = set(n.free_vars(*scores.right.indices))
    heads = zip(scores.block.spatial[:-2], values.block.spatial[:-2], strict=True)
    return frozenset(loop_of(s, out, values.block.name, own) for i, own in heads if i.var in used)


def _outermost(
    s: Schedule, out: str, batch: list[str], keys: frozenset[str], threads: int
) -> list[str]:
    """The outer loops up to the last one of the keys: what is inside shares them.

    All of the loops, if those may be too few for the threads.
    """
    last = max((k for k, name in enumerate(batch, 1) if name in keys), default=0)
    extents = [constant(s.loop(f"{out}.{name}").extent) for name in batch]
    chunks = prod(x or 1 for x in extents[:last])
    return batch[:last] if chunks >= threads else batch


def _inside(s: Schedule, name: str, path: str) -> Schedule:
    """Compute a stage of the softmax for a block of rows; a reduction for the row that reads it."""
    block = s.block(name)
    if block.combiner is None:
        return S.compute_at(s, name, path, "local")
    reader = next(b.name for b in ir.blocks(s.func.body) if _reads(b, block.buffer))
    row = own_loops(s, reader)[0].var.name
    return S.compute_at(s, name, f"{reader}.{row}", "register")


def _apart(s: Schedule, name: str) -> tuple[Schedule, str]:
    """A contraction in registers, and a block under its name that stores it."""
    return S.cache_write(s, name, "register"), f"{name}_cache"


def _reader(s: Schedule, name: str) -> str | None:
    """The one elementwise block that reads a contraction, if there is one."""
    buffer = s.block(name).buffer
    found = [b for b in ir.blocks(s.func.body) if _reads(b, buffer)]
    return found[0].name if len(found) == 1 and found[0].combiner is None else None


def _reads(block: ir.Block, buffer: str) -> bool:
    return any(x.buffer == buffer for x in ir.reads(block))


def _block_rows(scores: Contraction, setting: Setting) -> int:
    """Rows of a block: estimated, those whose scores fit into half of the second cache."""
    rows, columns = constant(scores.m[-1].extent), constant(scores.n[-1].extent)
    fit = setting.machine.l2_bytes // 2 // (4 * SCORE_BUFFERS * max(1, columns or SOME_COLUMNS))
    block = max(8, min(BLOCK_ROWS, fit // 8 * 8))
    told = rows if rows is not None and 0 < rows <= block else block
    options = [k for k in (8, 16, 24, BLOCK_ROWS, 2 * BLOCK_ROWS) if rows is None or k < rows]
    return setting.pick("block", options, told)
