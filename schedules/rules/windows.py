"""Reductions over windows, with vectors of neighbouring results.

Depthwise convolution, pooling, sums over leading axes. A tile of some positions by some vectors of
channels is kept in registers while the window passes over it; what two positions of the tile both
read is loaded once.
"""

from __future__ import annotations

from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import linear
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Loop, constant
from planish.compiler.machine import Machine
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .analysis import volume
from .contraction import inline_elementwise, loop_of, own_loops
from .elementwise import SERIAL_BELOW, flatten, stream, vector_innermost

MAX_UNROLLED = 320  # updates of one tile that are repeated in code
POSITIONS = 4


def fits(block: Block) -> bool:
    """Whether neighbouring results come from neighbouring elements.

    The last iterator walks through memory.
    """
    if not block.spatial or not block.reduce or constant(block.spatial[-1].extent) == 1:
        return False
    last = block.spatial[-1].var
    reduce = {i.var for i in block.reduce}
    walks = False
    for load in ir.reads(block):
        if not load.indices or n.loads(*load.indices):
            return False
        *outer, inner = load.indices
        if any(last in n.free_vars(i) for i in outer):
            return False
        if last not in n.free_vars(inner):
            continue
        form = linear(inner)
        if form.coefficient(last) != 1 or reduce & set(n.free_vars(inner)):
            return False
        walks = True
    return walks


def schedule_windows(func: Function, anchor: str, machine: Machine, threads: int) -> Schedule:
    """The default schedule of a function around the reduction ``anchor``."""
    s = inline_elementwise(Schedule(func), anchor)
    buffer = s.block(anchor).buffer
    readers = [
        b.name for b in ir.blocks(s.func.body) if any(x.buffer == buffer for x in ir.reads(b))
    ]
    if readers:
        out = readers[0]
    else:
        s = S.cache_write(s, anchor, "register")
        out, anchor = anchor, f"{anchor}_cache"
    before = [b.name for b in ir.blocks(s.func.body) if b.name not in (out, anchor)]
    rows = _rows_at_once(s, anchor, out, before, machine, threads)
    s = _scheduled(s, anchor, out, machine, threads, rows)
    for name in before:
        if rows:
            path = s.loops(out)[0].var.name
            s = S.compute_at(s, name, f"{out}.{path}", "local")
            s = vector_innermost(flatten(s, name, 1), name, machine, 1)
        else:
            s = stream(s, name, machine, threads)
    return s


def _rows_at_once(
    s: Schedule, anchor: str, out: str, before: list[str], machine: Machine, threads: int
) -> int:
    """How many rows of windows are done at a time, each with what it reads; 0: all of them.

    What is in front of the windows, mostly padding, is then computed for these rows, into the
    nearest cache; rows at the seams are computed twice.
    """
    block = s.block(anchor)
    if len(before) != 1 or len(block.spatial) < 4:
        return 0
    made = s.func.buffers[s.block(before[0]).buffer]
    size, rows = constant(made.bytes), constant(block.spatial[-3].extent)
    if size is None or rows is None or size <= machine.l2_bytes // 2:
        return 0
    around = [constant(i.extent) for i in block.spatial[:-3]]
    lengths = [constant(d) for d in made.shape[-3:]]
    if any(e != 1 for e in around) or None in lengths or lengths[0] is None:
        return 0
    step = max(1, (lengths[0] - 1) // rows)
    fit = machine.l2_bytes // 4 * lengths[0] // size // step
    return max(2, min(fit, rows // (4 * threads if threads > 1 else 1)))


def schedule_alone(s: Schedule, name: str, machine: Machine, threads: int) -> Schedule:
    """Schedule one reduction over windows among other blocks."""
    s = S.cache_write(s, name, "register")
    return _scheduled(s, f"{name}_cache", name, machine, threads)


def _scheduled(
    s: Schedule, anchor: str, out: str, machine: Machine, threads: int, rows: int = 0
) -> Schedule:
    block = s.block(anchor)
    lanes, vectors, positions = _tile(block, machine)
    channel = block.spatial[-1]
    col = loop_of(s, out, anchor, channel)
    s = L.split(s, f"{out}.{col}", lanes * vectors)
    s = L.split(s, f"{out}.{col}_1", lanes)
    inner = [f"{col}_1_0", f"{col}_1_1"]
    outer = [f"{col}_0"]
    if positions > 1:
        row = loop_of(s, out, anchor, block.spatial[-2])
        s = L.split(s, f"{out}.{row}", positions)
        inner.insert(0, f"{row}_1")
        outer.insert(0, f"{row}_0")
    rest = [x.var.name for x in own_loops(s, out) if x.var.name not in {*inner, *outer}]
    s = L.reorder(s, out, (*rest, *outer, *inner))
    s = S.compute_at(s, anchor, f"{out}.{outer[-1]}", "register")
    s = _window(s, block, anchor, lanes, vectors * positions)
    for name in inner[:-1]:
        s = L.unroll(s, f"{out}.{name}")
    s = L.vectorize(s, f"{out}.{inner[-1]}")
    if rows:
        line = rest.pop()
        s = L.split(s, f"{out}.{line}", rows)
        for other in reversed(rest):
            s = L.fuse(s, f"{out}.{other}", f"{line}_0")
            line = f"{other}_{line}"
        if threads > 1 and _updates(block) >= SERIAL_BELOW:
            s = L.parallel(s, f"{out}.{line}_0")
        return s
    first = s.loops(out)[0].var.name
    if first not in (*rest, *outer):  # loops that others share are around it
        return s
    return _share(s, out, [*rest, *outer], threads, _updates(block))


def _tile(block: Block, machine: Machine) -> tuple[int, int, int]:
    """Lanes of a vector, vectors and positions of a tile."""
    bits = max(32, *(x.type.bits for x in ir.reads(block)))
    lanes = machine.vector_bytes * 8 // bits
    extent = constant(block.spatial[-1].extent)
    while extent is not None and lanes > 4 and extent % lanes and extent < 2 * lanes:
        lanes //= 2
    along = block.spatial[-2] if len(block.spatial) > 1 else None
    if along is not None and constant(along.extent) != 1:
        width = constant(along.extent) or 64
        positions = min(POSITIONS, width)
        return lanes, 1, positions
    vectors = 4 if extent is None else max(1, min(4, extent // lanes))
    return lanes, vectors, 1


def _updates(block: Block) -> float:
    total = volume(block.iters)
    return 1e12 if total is None else float(total)


def _window(s: Schedule, block: Block, anchor: str, lanes: int, registers: int) -> Schedule:
    """The anchor's loops: the window around the tile, repeated in code as far as it is short."""
    own = [x.var.name for x in s.loops(anchor) if x.var.name.startswith(f"{anchor}_")]
    reduce = [f"{anchor}_{i.var.name}" for i in block.reduce]
    reduce = [x for x in reduce if x in own]
    spatial = [x for x in own if x not in reduce]
    s = L.split(s, f"{anchor}.{spatial[-1]}", lanes)
    tile = [*spatial[:-1], f"{spatial[-1]}_0", f"{spatial[-1]}_1"]
    s = L.reorder(s, anchor, (*reduce, *tile))
    size = registers
    for name in reversed(reduce):
        extent = constant(s.loop(f"{anchor}.{name}").extent)
        if extent is None or size * extent > MAX_UNROLLED:
            break
        size *= extent
        s = L.unroll(s, f"{anchor}.{name}")
    for name in tile[:-1]:
        s = L.unroll(s, f"{anchor}.{name}")
    return L.vectorize(s, f"{anchor}.{tile[-1]}")


def _share(s: Schedule, out: str, outer: list[str], threads: int, updates: float) -> Schedule:
    """Share the outer loops among threads: as many fused as it takes to have enough chunks."""
    if threads == 1 or updates < SERIAL_BELOW:
        return s
    name, *more = outer
    count = constant(s.loop(f"{out}.{name}").extent) or 1
    for inner in more:
        if count >= 8 * threads:
            break
        loop = s.loop(f"{out}.{name}")
        if not isinstance(loop.body, Loop) or loop.body.kind != "serial":
            break
        s = L.fuse(s, f"{out}.{name}", inner)
        name = f"{name}_{inner}"
        count = constant(s.loop(f"{out}.{name}").extent) or count
    return L.parallel(s, f"{out}.{name}")
