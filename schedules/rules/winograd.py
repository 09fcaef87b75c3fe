"""Convolutions of 3 x 3 taps by Winograd's tiles, in blocks of tiles that stay in the caches.

For each block of tiles, its data is transformed (V), and then for each panel of channels there are
products of V and the transformed weights, small matrices, one for each place in a tile (M), and
the results of these with what comes behind the convolution.
"""

from __future__ import annotations

from typing import Final

from planish.compiler.errors import ScheduleError
from planish.compiler.expr.nodes import Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, constant
from planish.compiler.machine import Machine
from planish.compiler.winograd import SIZES
from planish.schedules.choices import Setting
from planish.schedules.moves import constants as K
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.moves.winograd import Convolution, as_convolution, winograd
from planish.schedules.schedule import Schedule

from .contraction import SERIAL_PRODUCTS, inline_chains, inline_elementwise, inline_permutations
from .elementwise import share_loops, stream
from .tile import Tile, least_cost, pick_tile

SMALLEST: Final = min(SIZES)
TILES: Final = (4, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28)  # of a block, beside all of them
STEPS: Final = (1, 2, 4, 8)  # of a sum that are repeated in code
# What is counted on, in cycles: of an element that is transformed, by the results along a side of
# its tile, for data and for results; of a byte from memory; of one that the second cache does not
# have, which is waited for, or is of weights, which are read in order.
TRANSFORMED: Final = {2: (1.25, 1.0), 4: (3.5, 2.75)}
FAR_BYTE: Final = 1 / 8
OUTER_BYTE: Final = 1 / 16
NEAR_BYTE: Final = 1 / 64
REST: Final = 1.05  # what a rest of tiles, rows or columns counts: code is made for it as well
PANEL: Final = 3  # vectors of channels, where it is not decided yet
MARGIN: Final = 1.1  # by which tiles must be estimated to be faster
MIN_INPUTS: Final = 8  # channels; there is little to multiply otherwise
MOST_WEIGHTS: Final = 24 << 20  # bytes of transformed weights of one convolution


def fits(block: Block, setting: Setting) -> Convolution | None:
    """The convolution that a block is, if the rule can do something with it."""
    conv = as_convolution(block) if setting.machine.fma and not setting.strict else None
    if conv is None or conv.weights.buffer not in setting.constants:
        return None
    channels = (constant(conv.channels.extent) or 1, _extent(conv, 3))
    return conv if min(channels) > 1 and _count(conv, SMALLEST) > 1 else None


def pays(conv: Convolution, setting: Setting) -> bool:
    """Whether tiles are estimated to be faster than the plain sums."""
    inputs, rows, width = constant(conv.channels.extent) or 1, _results(conv), _extent(conv, 3)
    if inputs < MIN_INPUTS:
        return False
    machine, size = setting.machine, _least(conv, setting)
    plain = 9 * inputs * least_cost(rows, width, 32, machine) / min(setting.threads, rows)
    plain = max(plain, _far(4 * 9 * inputs * width, machine))
    return MARGIN * _cost(conv, size, setting) < plain


def _sizes(conv: Convolution) -> tuple[int, ...]:
    """The sizes of tiles that may be used; there must be several tiles."""
    return tuple(m for m in SIZES if m == SMALLEST or _count(conv, m) > 1)


def _least(conv: Convolution, setting: Setting) -> int:
    """The size of tiles that is estimated to be the fastest."""
    fit = [m for m in _sizes(conv) if m == SMALLEST or _weight_bytes(conv, m) <= MOST_WEIGHTS]
    return min(fit, key=lambda m: _cost(conv, m, setting))


def _extent(conv: Convolution, axis: int) -> int:
    return constant(conv.spatial[axis].extent) or 1


def _results(conv: Convolution) -> int:
    return _extent(conv, 0) * _extent(conv, 1) * _extent(conv, 2)


def _count(conv: Convolution, m: int) -> int:
    """How many tiles there are."""
    return _extent(conv, 0) * -(-_extent(conv, 1) // m) * -(-_extent(conv, 2) // m)


def _weight_bytes(conv: Convolution, m: int) -> int:
    return 4 * (m + 2) ** 2 * (constant(conv.channels.extent) or 1) * _extent(conv, 3)


def _cost(conv: Convolution, m: int, setting: Setting) -> float:
    """Cycles that all takes with tiles of ``m`` x ``m`` results."""
    tiles = _count(conv, m)
    return min(_cost_in_blocks(conv, m, k, setting) for k in _options(tiles))


def _options(tiles: int) -> list[int]:
    return [*(k for k in TILES if k < tiles), tiles]


def _cost_in_blocks(conv: Convolution, m: int, count: int, setting: Setting) -> float:
    """The same, ``count`` tiles at a time."""
    machine = setting.machine
    inputs, outputs, places = constant(conv.channels.extent) or 1, _extent(conv, 3), (m + 2) ** 2
    tiles = _count(conv, m)
    step = least_cost(count, outputs, 32, machine, REST) * (REST if tiles % count else 1.0)
    data, results = TRANSFORMED[m]
    moved = count * places * (data * inputs + results * outputs) / machine.lanes(4)
    weights, kept = _weight_bytes(conv, m), 4 * places * count * inputs
    near = weights * NEAR_BYTE
    apart, rounds = _shared(conv, m, count, setting)
    if kept * (tiles / count if apart else 1) > machine.l2_bytes * 3 // 4:
        near += kept * (1 + outputs / 64) * OUTER_BYTE  # it is read for each panel
    return max(rounds * (places * inputs * step + moved + near), _far(weights, machine))


def _far(weights: int, machine: Machine) -> float:
    """Cycles until weights have come, if the caches do not have them."""
    return weights * FAR_BYTE if weights > machine.l3_bytes // 2 else 0.0


def _shared(conv: Convolution, m: int, count: int, setting: Setting) -> tuple[bool, float]:
    """Whether threads had better share panels of channels too, and how many blocks one gets.

    Then the data of all tiles is transformed before.
    """
    tiles, threads = _count(conv, m), setting.threads
    if threads == 1:
        return False, tiles / count
    blocks = -(-tiles // count)
    if blocks >= 2 * threads or blocks == threads:
        return False, -(-blocks // threads)
    panels = -(-_extent(conv, 3) // (PANEL * setting.machine.lanes(4)))
    return True, -(-blocks * panels // threads) / panels


def schedule_winograd(func: Function, setting: Setting, anchor: str) -> Schedule:
    """The schedule of a function around the convolution ``anchor``."""
    s = inline_permutations(setting.begin(func), anchor)
    s = inline_elementwise(s, anchor)
    s = inline_chains(s, anchor)
    conv = as_convolution(s.block(anchor))
    if conv is None:
        raise ScheduleError("what is left is no convolution", node=anchor)
    m = setting.pick("size", _sizes(conv), _least(conv, setting))
    s = winograd(s, anchor, m)
    s = K.precompute(s, f"{anchor}_u")
    s, out, axes = _results_into(s, anchor)
    s = _data(s, anchor, setting)
    return _blocks(s, conv, anchor, out, axes, m, setting)


def _results_into(s: Schedule, anchor: str) -> tuple[Schedule, str, list[str]]:
    """Compute the convolution's results where they are read: that block, and its loops."""
    block = s.block(anchor)
    found = [
        b for b in ir.blocks(s.func.body) if any(x.buffer == block.buffer for x in ir.reads(b))
    ]
    if not found:
        return s, anchor, [x.var.name for x in s.loops(anchor)]
    out = found[0]
    (load,) = {x for x in ir.reads(out) if x.buffer == block.buffer}
    loops = {i.var: i.binding for i in out.iters}
    axes = []
    for k, index in enumerate(load.indices):
        at = out.iters[k].binding if constant(index) == 0 and k < len(out.iters) else None
        binding = loops.get(index, at) if isinstance(index, Var) else at
        if not isinstance(binding, Var):
            raise ScheduleError(f"{out.name} does not read {anchor} element by element")
        axes.append(binding.name)
    if len(found) != 1 or sorted(axes) != sorted(x.var.name for x in s.loops(out.name)):
        raise ScheduleError(f"{out.name} does not read {anchor} once, element by element")
    return S.inline(s, anchor), out.name, axes


def _data(s: Schedule, anchor: str, setting: Setting) -> Schedule:
    """Make the padded data, in one pass."""
    names = [b.name for b in ir.blocks(s.func.body)]
    before = names[: names.index(f"{anchor}_t")]
    if before and before[-1] == f"{anchor}_d":
        for name in before[:-1]:
            if s.block(name).combiner is None:
                s = S.inline(s, name)
                before.remove(name)
    for name in before:
        s = stream(s, name, setting.about("before"))
    return s


def _blocks(
    s: Schedule,
    conv: Convolution,
    anchor: str,
    out: str,
    axes: list[str],
    m: int,
    setting: Setting,
) -> Schedule:
    count = _pick_tiles(conv, m, setting)
    tile = pick_tile(count, _extent(conv, 3), 32, setting, REST)
    apart = _pick_share(conv, m, count, setting) == "panels"
    batch, row, col, channel = axes
    s = L.split(s, f"{out}.{row}", m)
    s = L.split(s, f"{out}.{col}", m)
    s = L.split(s, f"{out}.{channel}", tile.width)
    s = L.split(s, f"{out}.{channel}_1", tile.lanes)
    inside = [f"{row}_1", f"{col}_1", f"{channel}_1_1"]
    s = L.reorder(
        s, out,
        (batch, f"{row}_0", f"{col}_0", f"{channel}_0", f"{channel}_1_0", *inside),
    )  # fmt: skip
    s = L.fuse(s, f"{out}.{batch}", f"{row}_0")
    s = L.fuse(s, f"{out}.{batch}_{row}_0", f"{col}_0")
    each = f"{batch}_{row}_0_{col}_0"
    s = L.split(s, f"{out}.{each}", count)
    panel = f"{channel}_0"
    s = L.reorder(s, out, (f"{each}_0", panel, f"{each}_1", f"{channel}_1_0", *inside))
    s = _sums(s, f"{anchor}_s", f"{out}.{channel}_1_0")
    s = _products(s, f"{anchor}_m", f"{out}.{panel}", tile, setting)
    s = _weights(s, conv.weights.buffer, tile)
    s = _transformed(s, conv, m, "" if apart else f"{out}.{each}_0", setting)
    for name in (f"{row}_1", f"{col}_1"):
        s = L.unroll(s, f"{out}.{name}")
    s = L.vectorize(s, f"{out}.{channel}_1_1")
    if setting.threads > 1:
        outer = [f"{each}_0", panel] if apart else [f"{each}_0"]
        s = share_loops(s, out, outer, len(outer) if _is_long(conv, m) else 0, setting)
    return s


def _pick_share(conv: Convolution, m: int, count: int, setting: Setting) -> str:
    """What threads share: blocks of tiles, or panels too, all data being transformed before."""
    if setting.threads == 1:
        return "tiles"
    apart, _ = _shared(conv, m, count, setting)
    return setting.pick("share", ("tiles", "panels"), "panels" if apart else "tiles")


def _pick_tiles(conv: Convolution, m: int, setting: Setting) -> int:
    """How many tiles are done at a time."""
    options = _options(_count(conv, m))
    told = min(options, key=lambda k: _cost_in_blocks(conv, m, k, setting))
    return setting.pick("tiles", options, told)


def _sums(s: Schedule, name: str, path: str) -> Schedule:
    """A^T times the products, one tile's one vector of channels at a time."""
    s = S.compute_at(s, name, path, "register")
    own = [x.var.name for x in s.loops(name) if x.var.name.startswith(f"{name}_")]
    row, col, out = (f"{name}_{k}" for k in ("row", "col", "out"))
    s = L.reorder(s, name, tuple(k for k in (col, row, out) if k in own))
    for k in (row, col):
        s = L.unroll(s, f"{name}.{k}")
    return L.vectorize(s, f"{name}.{out}") if out in own else s


def _products(s: Schedule, name: str, path: str, tile: Tile, setting: Setting) -> Schedule:
    """The products of a block of tiles and a panel of channels, in register tiles."""
    s = S.cache_write(s, name, "register")
    s = S.compute_at(s, name, path, "local")
    cache = f"{name}_cache"
    row, col, each, out = (f"{name}_{k}" for k in ("row", "col", "tile", "out"))
    s = L.split(s, f"{name}.{each}", tile.rows)
    s = L.split(s, f"{name}.{out}", tile.lanes)
    s = L.reorder(s, name, (row, col, f"{each}_0", f"{each}_1", f"{out}_0", f"{out}_1"))
    s = S.compute_at(s, cache, f"{name}.{each}_0", "register")
    step, each_, out_ = (f"{cache}_{k}" for k in ("channel", "tile", "out"))
    own = [x.var.name for x in s.loops(cache)]
    s = L.split(s, f"{cache}.{out_}", tile.lanes)
    inner = [k for k in (each_,) if k in own]
    some = setting.pick("steps", STEPS, 4)
    steps = [step]
    if some > 1:
        s = L.split(s, f"{cache}.{step}", some)
        steps = [f"{step}_0", f"{step}_1"]
    s = L.reorder(s, cache, (*steps, *inner, f"{out_}_0", f"{out_}_1"))
    for k in (*steps[1:], *inner, f"{out_}_0"):
        s = L.unroll(s, f"{cache}.{k}")
    s = L.vectorize(s, f"{cache}.{out_}_1")
    for k in (f"{each}_1", f"{out}_0"):
        s = L.unroll(s, f"{name}.{k}")
    return L.vectorize(s, f"{name}.{out}_1")


def _weights(s: Schedule, name: str, tile: Tile) -> Schedule:
    """The weights in the order in which they are read."""
    rows, cols, inputs, outputs = (constant(d) or 1 for d in s.func.buffers[name].shape)
    width = tile.width
    dims = (f"d3 // {width}", "d0", "d1", "d2", f"d3 % {width}")
    return S.layout(s, name, dims, (-(-outputs // width), rows, cols, inputs, width))


def _transformed(s: Schedule, conv: Convolution, m: int, path: str, setting: Setting) -> Schedule:
    """B^T times the data, one tile's one vector of channels at a time."""
    name, half = f"{conv.block.name}_v", f"{conv.block.name}_t"
    lanes = setting.machine.lanes(4)
    before = "" if not path else f"{name}_"
    if path:
        s = S.compute_at(s, name, path, "local")
    row, col, tile, channel = (f"{before}{k}" for k in ("row", "col", "tile", "channel"))
    s = L.split(s, f"{name}.{channel}", lanes)
    s = L.reorder(s, name, (tile, f"{channel}_0", row, col, f"{channel}_1"))
    s = S.compute_at(s, half, f"{name}.{channel}_0", "register")
    row_, col_, channel_ = (f"{half}_{k}" for k in ("row", "col", "channel"))
    s = L.reorder(s, half, (col_, row_, channel_))
    for k in (col_, row_):
        s = L.unroll(s, f"{half}.{k}")
    s = L.vectorize(s, f"{half}.{channel_}")
    for k in (row, col):
        s = L.unroll(s, f"{name}.{k}")
    s = L.vectorize(s, f"{name}.{channel}_1")
    if path or setting.threads == 1:
        return s
    return share_loops(s, name, [tile], int(_is_long(conv, m)), setting)


def _is_long(conv: Convolution, m: int) -> bool:
    """Whether there is enough to multiply for starting a parallel loop to pay."""
    inputs, outputs = constant(conv.channels.extent) or 1, _extent(conv, 3)
    return (m + 2) ** 2 * _count(conv, m) * inputs * outputs >= SERIAL_PRODUCTS
