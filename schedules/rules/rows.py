"""Reductions along rows and what follows from them: softmax, normalisations, sums.

A task is a row: everything up to the result is computed for it while it is in the nearest cache.
Reductions go through vectors of partial results in registers.
"""

from __future__ import annotations

from planish.compiler.expr import nodes as n
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Loop, constant
from planish.schedules.choices import Setting
from planish.schedules.moves import loops as L
from planish.schedules.moves import reductions as R
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .analysis import operations, reductions, volume
from .elementwise import (
    MAX_INLINED,
    SERIAL_BELOW,
    at_once,
    flatten,
    lanes_for,
    past_caches,
    share_loops,
    vector_innermost,
    walks_on,
)

CHAINS = 4  # independent vectors of partial results: enough to hide the latency of one addition


def row_axes(func: Function) -> int:
    """How many leading axes every stage shares: those of the rows."""
    blocks = list(ir.blocks(func.body))
    reducing = reductions(func)
    count = min(len(b.spatial) for b in blocks)
    for b in reducing:
        count = min(count, _rank_before_reduction(b))
    return count


def _rank_before_reduction(b: Block) -> int:
    """How many dimensions of what the block reads come before the first reduced one."""
    reduce = {i.var for i in b.reduce}
    best = len(b.spatial)
    for load in ir.reads(b):
        for k, index in enumerate(load.indices):
            if reduce & set(n.free_vars(index)):
                best = min(best, k)
                break
    return best


def schedule_rows(func: Function, setting: Setting) -> Schedule:
    """The schedule of a function whose reductions run along rows."""
    s = _inline_cheap(setting.begin(func), setting)
    axes = row_axes(s.func)
    out = list(ir.blocks(s.func.body))[-1].name
    row = ""
    if axes:
        names = [x.var.name for x in s.loops(out)][:axes]
        row = names[0]
        for inner in names[1:]:
            s = L.fuse(s, f"{out}.{row}", inner)
            row = f"{row}_{inner}"
        for b in reversed(list(ir.blocks(s.func.body))):
            if b.name == out:
                continue
            s = S.compute_at(s, b.name, f"{out}.{row}", _scope(s, b.name, axes))
    below = 1 if axes else 0
    for b in list(ir.blocks(s.func.body)):
        if b.combiner is not None:
            s = reduce_row(s, b.name, setting)
        else:
            s = flatten(s, b.name, below)
            registers = at_once(s, out, setting) if b.name == out else 1
            s = vector_innermost(s, b.name, setting.machine, below, registers)
    if s.block(out).combiner is None:
        s = past_caches(s, out, setting)
    if axes and setting.threads > 1:
        s = share_loops(s, out, [row], int(_work(func) >= SERIAL_BELOW), setting)
    return s


def _work(func: Function) -> float:
    """Roughly how many operations a call takes; large if sizes are not known."""
    total = 0.0
    for b in ir.blocks(func.body):
        points = volume(b.iters)
        if points is None:
            return 1e12
        total += points * (1 + operations(b.value))
    return total


def _inline_cheap(s: Schedule, setting: Setting) -> Schedule:
    """Inline elementwise stages with one reader, or cheaper to repeat than to keep.

    A stage that has fewer elements than its reader is kept: it would be repeated for each of the
    reader's.
    """
    for b in list(ir.blocks(s.func.body)):
        if b.combiner is not None or s.func.buffers[b.buffer].scope == "param":
            continue
        block = s.block(b.name)
        readers = [
            r for r in ir.blocks(s.func.body) if any(x.buffer == b.buffer for x in ir.reads(r))
        ]
        cost = operations(block.value)
        if cost and any(_is_smaller(block, r) for r in readers):
            continue
        cheap = len(readers) == 1 or cost * len(readers) <= MAX_INLINED // 8
        if setting.pick("inline", (0, 1), int(cheap)):
            s = S.inline(s, b.name)
    return s


def _is_smaller(block: Block, reader: Block) -> bool:
    """Whether the reader has an axis that the block has only one element of."""
    ones = sum(constant(i.extent) == 1 for i in reader.iters)
    wide = len(reader.iters) - ones
    return sum(constant(i.extent) != 1 for i in block.iters) < wide


def _scope(s: Schedule, name: str, axes: int) -> str:
    """Registers for what is one element a row, else the chunk's scratch.

    Results stay where they are.
    """
    if s.func.buffers[s.block(name).buffer].scope == "param":
        return ""
    shape = s.func.buffers[s.block(name).buffer].shape
    return "register" if all(constant(d) == 1 for d in shape[axes:]) else "local"


def reduce_row(s: Schedule, name: str, setting: Setting) -> Schedule:
    """Reduce with vectors of partial results, if the reduction walks through memory in order."""
    block = s.block(name)
    used = {v for i in block.reduce for v in n.free_vars(i.binding)}
    s, own = _runs(s, name, [x.var.name for x in s.loops(name) if x.var in used])
    if not own or s.loops(name)[-1] is not own[-1]:
        return s
    last = own[-1]
    lanes = lanes_for(s, name, setting.machine)
    extent = constant(last.extent)
    if extent is not None and extent < 2 * lanes:
        return s
    var = last.var.name
    told = CHAINS if extent is None or extent >= CHAINS * lanes else 1
    options = [0, *(k for k in (1, 2, CHAINS, 8) if extent is None or k * lanes <= extent)]
    chains = setting.pick("chains", options, told)
    if not chains:
        return s
    s = L.split(s, f"{name}.{var}", chains * lanes)
    s = R.rfactor(s, f"{name}.{var}_1", "register")
    rf = f"{name}_rf"
    for target in (rf, name):
        s = L.split(s, f"{target}.{var}_1", lanes)
        s = L.unroll(s, f"{target}.{var}_1_0")
        s = L.vectorize(s, f"{target}.{var}_1_1")
    return s


def _runs(s: Schedule, name: str, loops: list[str]) -> tuple[Schedule, list[Loop]]:
    """The reducing loops, the innermost made one as long as every access walks on through memory.

    Loops of one iteration are a part of any other.
    """
    while len(loops) > 1:
        a, b = (s.loop(f"{name}.{x}") for x in loops[-2:])
        single = constant(a.extent) == 1 or constant(b.extent) == 1
        if a.body is not b or not (single or walks_on(s, s.block(name), a, b)):
            break
        s = L.fuse(s, f"{name}.{loops[-2]}", loops[-1])
        loops = [*loops[:-2], f"{loops[-2]}_{loops[-1]}"]
    return s, [s.loop(f"{name}.{x}") for x in loops]
