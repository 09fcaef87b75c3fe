"""Reductions over windows, with vectors of neighbouring results.

Depthwise convolution, pooling, sums over leading axes. A tile of some positions by some vectors of
channels is kept in registers while the window passes over it; what two positions of the tile both
read is loaded once.
"""

from __future__ import annotations

from planish.compiler.calling import CHUNKS_PER_THREAD
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import linear
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Iter, Loop, constant
from planish.schedules.choices import Setting
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .analysis import volume
from .contraction import inline_elementwise, loop_of, own_loops
from .elementwise import SERIAL_BELOW, flatten, share_loops, stream, vector_innermost

MAX_UNROLLED = 320  # updates of one tile that are repeated in code
POSITIONS = 4
MANY = 64  # positions that are counted on where their number is not known


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


def schedule_windows(func: Function, setting: Setting, anchor: str) -> Schedule:
    """The schedule of a function around the reduction ``anchor``."""
    s = inline_elementwise(setting.begin(func), anchor)
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
    rows = _rows_at_once(s, anchor, before, setting)
    s = _scheduled(s, anchor, out, setting, rows)
    for name in before:
        if rows:
            path = s.loops(out)[0].var.name
            s = S.compute_at(s, name, f"{out}.{path}", "local")
            s = vector_innermost(flatten(s, name, 1), name, setting.machine, 1)
        else:
            s = stream(s, name, setting.about("before"))
    return s


def _rows_at_once(s: Schedule, anchor: str, before: list[str], setting: Setting) -> int:
    """How many rows of windows are done at a time, each with what it reads; 0: all of them.

    What is in front of the windows, mostly padding, is then computed for these rows, into the
    nearest cache; rows at the seams are computed twice.
    """
    block = s.block(anchor)
    if len(before) != 1 or len(block.spatial) < 4:
        return 0
    made = s.func.buffers[s.block(before[0]).buffer]
    size, rows = constant(made.bytes), constant(block.spatial[-3].extent)
    if size is None or rows is None:
        return 0
    around = [constant(i.extent) for i in block.spatial[:-3]]
    lengths = [constant(d) for d in made.shape[-3:]]
    if any(e != 1 for e in around) or None in lengths or lengths[0] is None:
        return 0
    step = max(1, (lengths[0] - 1) // rows)
    fit = setting.machine.l2_bytes // 4 * lengths[0] // max(1, size) // step
    many = rows // (4 * setting.threads if setting.threads > 1 else 1)
    told = max(2, min(fit, many)) if size > setting.machine.l2_bytes // 2 else 0
    options = [0, *(k for k in (2, 4, 8, 16, 32) if k < rows)]
    return setting.pick("rows", options, told)


def schedule_alone(s: Schedule, name: str, setting: Setting) -> Schedule:
    """Schedule one reduction over windows among other blocks."""
    s = S.cache_write(s, name, "register")
    return _scheduled(s, f"{name}_cache", name, setting)


def _scheduled(s: Schedule, anchor: str, out: str, setting: Setting, rows: int = 0) -> Schedule:
    block = s.block(anchor)
    lanes, vectors, positions = _pick_tile(block, setting)
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
    s = _window(s, block, anchor, lanes, vectors * positions, setting)
    for name in inner[:-1]:
        s = L.unroll(s, f"{out}.{name}")
    s = L.vectorize(s, f"{out}.{inner[-1]}")
    if rows:
        line = rest.pop()
        s = L.split(s, f"{out}.{line}", rows)
        for other in reversed(rest):
            s = L.fuse(s, f"{out}.{other}", f"{line}_0")
            line = f"{other}_{line}"
        if setting.threads > 1:
            told = int(_updates(block) >= SERIAL_BELOW)
            s = share_loops(s, out, [f"{line}_0"], told, setting)
        return s
    first = s.loops(out)[0].var.name
    if first not in (*rest, *outer):  # loops that others share are around it
        return s
    return _share(s, out, [*rest, *outer], _updates(block), setting)


def _pick_tile(block: Block, setting: Setting) -> tuple[int, int, int]:
    """Lanes of a vector, vectors and positions of a tile."""
    bits = max(32, *(x.type.bits for x in ir.reads(block)))
    full = lanes = setting.machine.vector_bytes * 8 // bits
    extent = constant(block.spatial[-1].extent)
    while extent is not None and lanes > 4 and extent % lanes and extent < 2 * lanes:
        lanes //= 2
    along = block.spatial[-2] if len(block.spatial) > 1 else None
    width = None if along is None else constant(along.extent)
    positions, vectors = 1, 1
    if along is not None and width != 1:
        positions = min(POSITIONS, width or MANY)
    else:
        vectors = 4 if extent is None else max(1, min(4, extent // lanes))
    options = [
        (k, v, p)
        for k in dict.fromkeys((min(full, 4), full // 2, full, lanes))
        for v in (1, 2, 4)
        for p in (1, 2, POSITIONS, 6, 8)
        if k > 1 and v * p <= setting.machine.vector_registers // 2
        if (v == 1 or extent is None or (v - 1) * k < extent) and _has(along, p)
    ]
    lanes, vectors, positions = setting.pick("tile", options, (lanes, vectors, positions))
    return lanes, vectors, positions


def _has(along: Iter | None, positions: int) -> bool:
    """Whether there may be so many positions."""
    if along is None:
        return positions == 1
    width = constant(along.extent)
    return width is None or positions <= width


def _updates(block: Block) -> float:
    total = volume(block.iters)
    return 1e12 if total is None else float(total)


def _window(
    s: Schedule, block: Block, anchor: str, lanes: int, registers: int, setting: Setting
) -> Schedule:
    """The anchor's loops: the window around the tile, repeated in code as far as it is short."""
    own = [x.var.name for x in s.loops(anchor) if x.var.name.startswith(f"{anchor}_")]
    reduce = [f"{anchor}_{i.var.name}" for i in block.reduce]
    reduce = [x for x in reduce if x in own]
    spatial = [x for x in own if x not in reduce]
    s = L.split(s, f"{anchor}.{spatial[-1]}", lanes)
    tile = [*spatial[:-1], f"{spatial[-1]}_0", f"{spatial[-1]}_1"]
    s = L.reorder(s, anchor, (*reduce, *tile))
    size, told = registers, 0
    for name in reversed(reduce):
        extent = constant(s.loop(f"{anchor}.{name}").extent)
        if extent is None or size * extent > MAX_UNROLLED:
            break
        size, told = size * extent, told + 1
    whole = setting.pick("whole", range(told + 1), told)
    for name in reversed(reduce[len(reduce) - whole :]):
        s = L.unroll(s, f"{anchor}.{name}")
    for name in tile[:-1]:
        s = L.unroll(s, f"{anchor}.{name}")
    return L.vectorize(s, f"{anchor}.{tile[-1]}")


def _share(s: Schedule, out: str, outer: list[str], updates: float, setting: Setting) -> Schedule:
    """Share the outer loops among threads: as many fused as it takes to have enough chunks."""
    if setting.threads == 1:
        return s
    loop = s.loop(f"{out}.{outer[0]}")
    depth, count, told = 1, constant(loop.extent) or 1, 1
    while depth < len(outer) and isinstance(loop.body, Loop) and loop.body.kind == "serial":
        loop, depth = loop.body, depth + 1
        if count < CHUNKS_PER_THREAD * setting.threads:
            told, count = depth, count * (constant(loop.extent) or 1)
    return share_loops(s, out, outer[:depth], told if updates >= SERIAL_BELOW else 0, setting)
