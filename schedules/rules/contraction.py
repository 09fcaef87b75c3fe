"""Contractions (matmul, convolution as implicit GEMM ...) as a register-blocked micro-kernel.

The result is tiled by ``rows`` x ``vectors`` registers; the tile's sum stays in registers through
the whole reduction and passes through the epilogue into memory. The right operand is kept in panels
of the tile's width, so that the inner loop reads it in order; the left one is read in place, one
broadcast for each row.
"""

from __future__ import annotations

from dataclasses import replace

from planish.compiler.calling import CHUNKS_PER_THREAD
from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function, Iter, constant
from planish.compiler.machine import Machine
from planish.schedules.choices import Setting
from planish.schedules.moves import iterators as I
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .analysis import Contraction, as_contraction, grouped, paired_step, volume
from .elementwise import share_loops, stream
from .tile import Tile, pick_tile

STEPS = 4  # of the reduction that are repeated in code
MAX_STEPS = 28  # the same, where that is all of a short run
MAX_UPDATES = 256  # of registers that those make
PACK_ROWS = 24  # rows for which packing the right operand pays
IN_PLACE_WIDTH = 768  # columns up to which a right operand is read in place
SERIAL_PRODUCTS = 250_000  # products for which starting a parallel loop does not pay
SERIAL_SINGLE = 60_000  # the same where there is one row: it is as slow as reading the weights
FAR_STEP = 256  # elements between rows from which many rows on the left make packing pay


def schedule_contraction(func: Function, setting: Setting, anchor: str) -> Schedule:
    """The schedule of a function around the contraction ``anchor``."""
    s = inline_permutations(setting.begin(func), anchor)
    s = inline_elementwise(s, anchor)
    s = inline_chains(s, anchor)
    for b in list(ir.blocks(s.func.body)):
        if b.name == anchor:
            break
        s = stream(s, b.name, setting.about("before"))
    out = _consumer(s, anchor)
    if out is None:
        s = S.cache_write(s, anchor, "register")
        out, anchor = anchor, f"{anchor}_cache"
    s, c = _divide_phases(s, _still(s, anchor), out)
    s, c = _merge_rows(s, c, out)
    if not c.n:
        raise ScheduleError("what is left has no columns", node=anchor)
    rows, cols = (c.m[-1] if c.m else None), c.n[-1]
    return _scheduled(s, c, out, rows, cols, setting)


def _still(s: Schedule, anchor: str) -> Contraction:
    """The contraction that a block is after other moves.

    Errors: ScheduleError if it is none any more; then another rule fits.
    """
    c = as_contraction(s.block(anchor))
    if c is None:
        raise ScheduleError("what is left is no contraction", node=anchor)
    return c


def schedule_alone(s: Schedule, c: Contraction, setting: Setting) -> Schedule:
    """Schedule a contraction among other blocks: in the loops that it has for itself."""
    out = c.block.name
    s = S.cache_write(s, out, "register")
    found = _still(s, f"{out}_cache")
    shared = {x.var for x in s.loops(out)} - {x.var for x in own_loops(s, out)}
    rows = [i for i in found.m if not shared & set(n.free_vars(i.binding))]
    row, cols = (rows[-1] if rows else None), found.n[-1]
    return _scheduled(s, found, out, row, cols, setting)


def _scheduled(
    s: Schedule, c: Contraction, out: str, rows: Iter | None, cols: Iter, setting: Setting
) -> Schedule:
    m = 1 if rows is None else constant(rows.extent)
    width = constant(cols.extent)
    tile = pick_tile(m, width, _bits(c), setting)
    pack = ""
    at = _column(c, cols)
    right = c.right.buffer
    if right in setting.constants and at is not None:
        if setting.machine.pairs and (step := paired_step(c)) is not None:
            s = _panels(s, right, at, tile, step)
            s = I.group(s, c.block.name, c.k[-1].var.name, 2)
        else:
            s = _panels(s, right, at, tile)
    elif at is not None and m != 1 and s.func.buffers[right].scope != "register":
        pack = _pick_packing(s, c, at, m, width, setting)
    if pack:
        s = S.cache_read(s, right, c.block.name, "local")
    share = 0
    if not pack and rows is not None:
        share = _pick_rows(s, c, m, width, tile, setting)
    return _tile(s, c, out, rows, cols, tile, setting, pack, at or 0, share=share)


def _pick_packing(
    s: Schedule, c: Contraction, at: int, m: int | None, width: int | None, setting: Setting
) -> str:
    """The name of the copy of the right operand in panels; "" if it is read where it is."""
    told = _must_pack(s, c, at, m, width)
    packed = setting.pick("right", ("in place", "packed"), "packed" if told else "in place")
    return f"{c.right.buffer}_cache" if packed == "packed" else ""


def _pick_rows(
    s: Schedule, c: Contraction, m: int | None, width: int | None, tile: Tile, setting: Setting
) -> int:
    """How many tiles of rows are done at a time with all columns; 0: columns go before rows."""
    told = _rows_at_once(s, c, m, width, tile, setting.machine, setting.threads)
    told = told if setting.threads > 1 else 0
    tiles = 1 << 6 if m is None else -(-m // tile.rows)
    options = [0, *(k for k in (1, 2, 4, 8, 16, 32, 64) if k < tiles)]
    if width is not None and width <= tile.width:
        options = [0]
    return setting.pick("rows", options, told)


def _rows_at_once(
    s: Schedule,
    c: Contraction,
    m: int | None,
    width: int | None,
    tile: Tile,
    machine: Machine,
    threads: int,
) -> int:
    """How many tiles of rows a thread had better do at a time, with all columns; 0: it had not.

    What follows goes by rows too, as did what was before: then a core finds in its own cache what
    it has made. But each such part reads the whole right operand.
    """
    if m is None or width is None or width <= tile.width:
        return 0
    left, right = (constant(s.func.buffers[x.buffer].bytes) for x in (c.left, c.right))
    tiles, parts = -(-m // tile.rows), CHUNKS_PER_THREAD * threads
    if tiles < 2 * threads or left is None or right is None:
        return 0
    panels = -(-width // tile.width)
    if right > machine.l2_bytes // 2 and min(parts, tiles) * right > panels * left:
        return 0
    return -(-tiles // parts)


def schedule_inside(
    s: Schedule, c: Contraction, out: str, setting: Setting, pack_at: str = ""
) -> Schedule:
    """Tile a contraction in those loops of the block that stores it which no other block shares.

    A right operand whose columns are not neighbours is packed at the loop ``pack_at``, if given.
    """
    row = loop_of(s, out, c.block.name, c.m[-1])
    m, width = constant(s.loop(f"{out}.{row}").extent), constant(c.n[-1].extent)
    tile = pick_tile(m, width, _bits(c), setting)
    pack, at = "", _column(c, c.n[-1])
    if pack_at and at is not None and at != len(c.right.indices) - 1:
        s = S.cache_read(s, c.right.buffer, c.block.name, "local")
        pack = f"{c.right.buffer}_cache"
    alone = replace(setting, threads=1)
    return _tile(s, c, out, c.m[-1], c.n[-1], tile, alone, pack, at or 0, pack_at)


def _bits(c: Contraction) -> int:
    """The width of the sums' dtype."""
    return max(32, c.block.value.dtype.bits)


def _column(c: Contraction, cols: Iter) -> int | None:
    """The dimension of the right operand that runs along the columns, if one does by itself."""
    at = [k for k, i in enumerate(c.right.indices) if cols.var in n.free_vars(i)]
    return at[0] if len(at) == 1 and c.right.indices[at[0]] is cols.var else None


def _must_pack(s: Schedule, c: Contraction, at: int, m: int | None, width: int | None) -> bool:
    """Whether the right operand is better copied into panels than read where it is."""
    if at != len(c.right.indices) - 1:
        return True  # its columns are not neighbours in memory
    stride = constant(s.func.buffers[c.right.buffer].strides[_step(c, at)])
    far = stride is not None and stride > FAR_STEP and m is not None and m >= 16 * PACK_ROWS
    return far or ((m is None or m >= PACK_ROWS) and (width is None or width > IN_PLACE_WIDTH))


def _step(c: Contraction, at: int) -> int:
    """The dimension of the right operand along which the reduction's last iterator steps."""
    last = c.k[-1].var
    found = [k for k, i in enumerate(c.right.indices) if k != at and last in n.free_vars(i)]
    return found[-1] if found else at


def inline_permutations(s: Schedule, anchor: str) -> Schedule:
    """Read through stages in front of the anchor that only put elements elsewhere."""
    for b in list(ir.blocks(s.func.body)):
        if b.name == anchor:
            break
        moves = isinstance(b.value, n.Load) and b.combiner is None
        if moves and s.func.buffers[b.buffer].scope != "param":
            s = S.inline(s, b.name)
    return s


def inline_chains(s: Schedule, anchor: str) -> Schedule:
    """Compute each operand in one pass: what only another stage reads, once, is a part of that."""
    for b in list(ir.blocks(s.func.body)):
        if b.name == anchor:
            break
        if b.combiner is not None or s.func.buffers[b.buffer].scope == "param":
            continue
        readers = [
            r.name for r in ir.blocks(s.func.body) for x in ir.reads(r) if x.buffer == b.buffer
        ]
        if len(readers) == 1 and readers[0] != anchor and s.block(readers[0]).combiner is None:
            s = S.inline(s, b.name)
    return s


def inline_elementwise(s: Schedule, anchor: str) -> Schedule:
    """Inline every elementwise stage behind the anchor, but the one that stores the result."""
    seen = False
    for b in list(ir.blocks(s.func.body)):
        if b.name == anchor:
            seen = True
        elif seen and b.combiner is None and s.func.buffers[b.buffer].scope != "param":
            s = S.inline(s, b.name)
    return s


def _consumer(s: Schedule, anchor: str) -> str | None:
    """The block that reads the anchor's result."""
    buffer = s.block(anchor).buffer
    found = [b.name for b in ir.blocks(s.func.body) if any(x.buffer == buffer for x in ir.reads(b))]
    return found[0] if found else None


def _divide_phases(s: Schedule, c: Contraction, out: str) -> tuple[Schedule, Contraction]:
    """Part an iterator of which one operand reads the remainder or the quotient only.

    These are the phases of a transposed convolution, whose quotient becomes rows, and the groups of
    a grouped one, whose remainder becomes columns.
    """
    anchor = c.block.name
    for i in c.batch:
        factor = _phases(c, i) or grouped(c, i)
        if factor is None:
            continue
        at = [x.var for x in s.block(anchor).spatial].index(i.var)
        there = _reading(s, out, anchor, i)
        s = I.divide(s, anchor, i.var.name, factor)
        s = I.divide(s, out, there.name, factor)
        buffer = s.func.buffers[s.block(anchor).buffer]
        dims = [f"d{k}" for k in range(len(buffer.shape))]
        dims[at : at + 1] = [f"d{at} // {factor}", f"d{at} % {factor}"]
        shape: list[object] = [_number(d) for d in buffer.shape]
        shape[at : at + 1] = [_number(simplify(buffer.shape[at] // factor)), factor]
        s = S.layout(s, buffer.name, tuple(dims), tuple(shape))
        c = _still(s, anchor)
    return s, c


def _phases(c: Contraction, i: Iter) -> int | None:
    """The constant by which the right operand takes the remainder along an iterator."""
    for e in n.walk(*c.right.indices):
        match e:
            case n.FloorMod(x, n.Const(factor)) if i.var in n.free_vars(x):
                if constant(simplify(i.extent % int(factor))) == 0:
                    return int(factor)
    return None


def _merge_rows(s: Schedule, c: Contraction, out: str) -> tuple[Schedule, Contraction]:
    """Make one iterator of all row iterators, in the anchor and in the block that stores."""
    anchor = c.block.name
    while len(c.m) > 1:
        a, b = c.m[-2], c.m[-1]
        names = [i.var.name for i in s.block(anchor).spatial]
        at = names.index(a.var.name)
        if names.index(b.var.name) != at + 1:
            break
        pair = _reading(s, out, anchor, a), _reading(s, out, anchor, b)
        order = [i.var for i in s.block(out).spatial]
        if order.index(pair[1]) != order.index(pair[0]) + 1:
            break
        s = S.merge(s, anchor, a.var.name, b.var.name)
        s = S.merge(s, out, pair[0].name, pair[1].name)
        buffer = s.func.buffers[s.block(anchor).buffer]
        dims = [f"d{k}" for k in range(len(buffer.shape))]
        dims[at : at + 2] = [f"d{at} * ({b.extent}) + d{at + 1}"]
        shape: list[object] = [_number(d) for d in buffer.shape]
        shape[at : at + 2] = [_number(a.extent * b.extent)]
        s = S.layout(s, buffer.name, tuple(dims), tuple(shape))
        c = _still(s, anchor)
    return s, c


def own_loops(s: Schedule, name: str) -> tuple[ir.Loop, ...]:
    """The loops around a block that hold no other block."""
    loops = s.loops(name)
    shared = [k for k, x in enumerate(loops) if len(list(ir.blocks(x))) > 1]
    return loops[shared[-1] + 1 :] if shared else loops


def _number(e: n.Expr) -> object:
    known = constant(e)
    return str(e) if known is None else known


def _panels(s: Schedule, buffer: str, at: int, tile: Tile, pairs: int | None = None) -> Schedule:
    """Keep an operand in panels as wide as the tile: [columns / width, ..., width].

    With neighbours along the dimension ``pairs`` side by side: [columns / width, ..., width, 2].
    """
    old, width = s.func.buffers[buffer], tile.width
    others = [k for k in range(len(old.shape)) if k != at]
    outer = [f"d{k} // 2" if k == pairs else f"d{k}" for k in others]
    dims = [f"d{at} // {width}", *outer, f"d{at} % {width}"]
    count = simplify((old.shape[at] + (width - 1)) // width)
    sizes = [simplify(old.shape[k] // 2) if k == pairs else old.shape[k] for k in others]
    shape = [_number(count), *map(_number, sizes), width]
    if pairs is not None:
        dims, shape = [*dims, f"d{pairs} % 2"], [*shape, 2]
    return S.layout(s, buffer, tuple(dims), tuple(shape))


def _tile(
    s: Schedule,
    c: Contraction,
    out: str,
    rows: Iter | None,
    cols: Iter,
    tile: Tile,
    setting: Setting,
    pack: str,
    at: int,
    pack_at: str = "",
    share: int = 0,
) -> Schedule:
    """Tile the storing block, compute the anchor inside the tile, and put the loops in order.

    ``share``: so many tiles of rows, with all their columns, are one thread's at a time; 0: columns
    go before rows.
    """
    anchor = c.block.name
    col = loop_of(s, out, anchor, cols)
    s = L.split(s, f"{out}.{col}", tile.width)
    s = L.split(s, f"{out}.{col}_1", tile.lanes)
    inner = [f"{col}_1_0", f"{col}_1_1"]
    outer = [f"{col}_0"]
    if rows is not None:
        row = loop_of(s, out, anchor, rows)
        s = L.split(s, f"{out}.{row}", tile.rows)
        inner.insert(0, f"{row}_1")
        if share:
            s = L.split(s, f"{out}.{row}_0", share)
            outer = [f"{row}_0_0", *outer, f"{row}_0_1"]
        else:
            outer.append(f"{row}_0")
    batch = [x.var.name for x in own_loops(s, out) if x.var.name not in {*inner, *outer}]
    s = L.reorder(s, out, (*batch, *outer, *inner))
    s = S.compute_at(s, anchor, f"{out}.{outer[-1]}", "register")
    s = _micro_kernel(s, c, anchor, tile, setting)
    if pack:
        s = _packing(s, pack, pack_at or f"{out}.{outer[0]}", at, tile)
    if rows is not None:
        s = L.unroll(s, f"{out}.{inner[0]}")
    s = L.unroll(s, f"{out}.{col}_1_0")
    s = L.vectorize(s, f"{out}.{col}_1_1")
    return _parallel(s, c, out, [*batch, *(outer[:1] if pack or share else outer)], setting)


def _packing(s: Schedule, pack: str, path: str, at: int, tile: Tile) -> Schedule:
    """Copy the operand's panel when its column loop comes to it."""
    s = S.compute_at(s, pack, path, "local")
    block = s.block(pack)
    own = [x.var.name for x in s.loops(pack) if x.var.name.startswith(f"{pack}_")]
    last = block.spatial[-1].binding
    s = _panels(s, pack, at, tile)
    inner = own[-1]
    if inner not in {v.name for v in n.free_vars(last)}:
        return s
    extent = constant(s.loop(f"{pack}.{inner}").extent)
    if extent is None or extent >= tile.lanes:
        s = L.split(s, f"{pack}.{inner}", tile.lanes)
        s = L.vectorize(s, f"{pack}.{inner}_1")
    return s


def loop_of(s: Schedule, out: str, anchor: str, i: Iter) -> str:
    """The loop of the storing block that runs along an iterator of the anchor."""
    index = _reading(s, out, anchor, i)
    used = set(n.free_vars(s.block(out).bindings[index]))
    return [x.var.name for x in s.loops(out) if x.var in used][-1]


def _reading(s: Schedule, out: str, anchor: str, i: Iter) -> n.Var:
    """The iterator of the storing block with which it reads along an iterator of the anchor."""
    block = s.block(anchor)
    at = [x.var for x in block.spatial].index(i.var)
    (load,) = {x for x in ir.reads(s.block(out)) if x.buffer == block.buffer}
    index = load.indices[at]
    if not isinstance(index, n.Var):
        raise ScheduleError(f"{out} does not read {anchor} element by element", node=str(load))
    return index


def _micro_kernel(
    s: Schedule, c: Contraction, anchor: str, tile: Tile, setting: Setting
) -> Schedule:
    """The anchor's loops: the reduction outside, the register tile inside."""
    own = [x.var.name for x in s.loops(anchor) if x.var.name.startswith(f"{anchor}_")]
    reduce = [f"{anchor}_{i.var.name}" for i in c.k if f"{anchor}_{i.var.name}" in own]
    spatial = [x for x in own if x not in reduce]
    col = spatial[-1]
    s = L.split(s, f"{anchor}.{col}", tile.lanes)
    tile_loops = [*spatial[:-1], f"{col}_0", f"{col}_1"]
    steps: list[str] = []
    room = min(MAX_STEPS, max(STEPS, MAX_UPDATES // (tile.rows * tile.vectors)))
    room = setting.pick("whole", (1, 4, 9, 16, MAX_STEPS), room)
    while reduce:
        last = reduce.pop()
        extent = constant(s.loop(f"{anchor}.{last}").extent)
        if extent is not None and extent <= room:  # a short run: all of it
            steps.insert(0, last)
            room //= extent
            continue
        if not steps:
            some = setting.pick("steps", (1, 2, STEPS, 8, 16), STEPS)
            if some > 1:
                s = L.split(s, f"{anchor}.{last}", some)
                steps.insert(0, f"{last}_1")
                last = f"{last}_0"
        reduce.append(last)
        break
    s = L.reorder(s, anchor, (*reduce, *steps, *tile_loops))
    for name in (*steps, *tile_loops[:-1]):
        s = L.unroll(s, f"{anchor}.{name}")
    return L.vectorize(s, f"{anchor}.{col}_1")


def _parallel(
    s: Schedule, c: Contraction, out: str, outer: list[str], setting: Setting
) -> Schedule:
    """Share the outer loops among threads, if there is enough to do in one run of them."""
    loops = s.loops(out)
    around = loops[: [x.var.name for x in loops].index(outer[0])]
    if setting.threads == 1 or any(x.kind != "serial" for x in around):
        return s
    shared = {x.var for x in around}
    own = [i for i in c.block.iters if not shared & set(n.free_vars(i.binding))]
    products = volume(tuple(own))
    single = volume(tuple(i for i in c.m if i in own)) == 1
    few = products is not None and products < (SERIAL_SINGLE if single else SERIAL_PRODUCTS)
    depth = 1
    loop = s.loop(f"{out}.{outer[0]}")
    while depth < len(outer) and isinstance(loop.body, ir.Loop):
        loop, depth = loop.body, depth + 1
    return share_loops(s, out, outer[:depth], 0 if few else depth, setting)
