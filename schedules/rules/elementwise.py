"""Functions without reductions.

One pass over the result, vectors innermost, rows shared among threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import linear
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Loop, constant
from planish.compiler.machine import Machine
from planish.schedules.choices import Setting
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.moves import stores as W
from planish.schedules.schedule import Schedule, ranges

from .analysis import operations

MAX_INLINED = (
    64  # operations that are recomputed rather than stored, where a stage has several readers
)
AT_ONCE = 4  # vectors
MIN_STREAMED = 1 << 20  # bytes of a result that may be written past the caches
SERIAL_BELOW = 40_000  # operations for which starting a parallel loop does not pay


def schedule_elementwise(func: Function, setting: Setting) -> Schedule:
    """The schedule of a function of elementwise stages."""
    s = inline_all(setting.begin(func), setting)
    for b in list(ir.blocks(s.func.body)):
        s = stream(s, b.name, setting)
    return s


def inline_all(s: Schedule, setting: Setting) -> Schedule:
    """Inline every temporary elementwise stage, unless that repeats much work."""
    for b in list(ir.blocks(s.func.body)):
        if b.combiner is not None or s.func.buffers[b.buffer].scope == "param":
            continue
        reads = sum(
            sum(1 for x in ir.reads(r) if x.buffer == b.buffer) for r in ir.blocks(s.func.body)
        )
        cheap = reads <= 1 or operations(s.block(b.name).value) * reads <= MAX_INLINED
        if setting.pick("inline", (0, 1), int(cheap)):
            s = S.inline(s, b.name)
    return s


def stream(s: Schedule, name: str, setting: Setting, below: int = 0) -> Schedule:
    """Schedule one elementwise block, whose loops from the ``below``-th on are its own."""
    s = flatten(s, name, below)
    loops = s.loops(name)[below:]
    if not loops:
        return s
    registers = at_once(s, name, setting) if below == 0 else 1
    s = vector_innermost(s, name, setting.machine, below, registers)
    if below == 0:
        s = past_caches(s, name, setting)
    outer = [x for x in s.loops(name)[below:] if x.kind == "serial"]
    if setting.threads == 1 or below or not outer:
        return s
    depth = 2 if len(outer) > 1 and outer[0].body is outer[1] else 1
    names = [x.var.name for x in outer[:depth]]
    return share_loops(s, name, names, depth if work(s, name) >= SERIAL_BELOW else 0, setting)


def share_loops(
    s: Schedule, name: str, outer: Sequence[str], told: int, setting: Setting
) -> Schedule:
    """Make one parallel loop of some of a block's outer loops: estimated, so many as are told.

    Where those together are not known to be independent, fewer.
    """
    while told > 1 and _shared(s, name, outer[:told]) is None:
        told -= 1
    depth = setting.pick("parallel", range(len(outer) + 1), told)
    if not depth:
        return s
    shared = _shared(s, name, outer[:depth])
    if shared is None:
        raise ScheduleError(f"the outer loops of {name} depend on each other", op="parallel")
    return shared


def _shared(s: Schedule, name: str, outer: Sequence[str]) -> Schedule | None:
    """These loops as a parallel one, if that is legal."""
    loop, *more = outer
    try:
        for inner in more:
            s = L.fuse(s, f"{name}.{loop}", inner)
            loop = f"{loop}_{inner}"
        return L.parallel(s, f"{name}.{loop}")
    except ScheduleError:
        return None


def past_caches(s: Schedule, name: str, setting: Setting) -> Schedule:
    """Write a result past the caches if it is larger than what they would keep of it."""
    if _result_bytes(s, name) < MIN_STREAMED:
        return s
    large = _is_large(s, name, setting.machine)
    return W.nontemporal(s, name) if setting.pick("past caches", (0, 1), int(large)) else s


def at_once(s: Schedule, name: str, setting: Setting) -> int:
    """How many vectors a block had better read before it writes one.

    Several, if it reads from memory and writes to it. A store holds up the loads behind it whose
    addresses end in the same 12 bits.
    """
    told = 1
    if _is_large(s, name, setting.machine):
        params = {p.name for p in s.func.params}
        result = s.func.buffers[s.block(name).buffer]
        read = {x.buffer for x in ir.reads(s.block(name))} & params
        if any(s.func.buffers[p].shape == result.shape for p in read):
            told = AT_ONCE
    return setting.pick("vectors", (1, 2, AT_ONCE, 8), told)


def _is_large(s: Schedule, name: str, machine: Machine) -> bool:
    return _result_bytes(s, name) >= max(machine.l3_bytes // 2, MIN_STREAMED)


def _result_bytes(s: Schedule, name: str) -> int:
    """How much a block writes, if that is known."""
    return constant(s.func.buffers[s.block(name).buffer].bytes) or 0


def vector_innermost(
    s: Schedule, name: str, machine: Machine, below: int = 0, registers: int = 1
) -> Schedule:
    """Vectorize the innermost loop of a block where its elements are neighbours."""
    loops = s.loops(name)[below:]
    if not loops:
        return s
    last = loops[-1]
    lanes = lanes_for(s, name, machine) * registers
    extent = constant(last.extent)
    if extent is not None and extent < lanes:
        lanes = 1 << (max(extent, 1).bit_length() - 1)
    if lanes < 2 or last.kind != "serial":
        return s
    s = L.split(s, f"{name}.{last.var.name}", lanes)
    return L.vectorize(s, f"{name}.{last.var.name}_1")


def lanes_for(s: Schedule, name: str, machine: Machine) -> int:
    """Lanes that fit the block's common dtypes: the widest it computes with."""
    block = s.block(name)
    widths = [block.value.dtype.bits, *(x.type.bits for x in ir.reads(block))]
    bits = max([b for b in widths if b >= 8] or [8])
    return machine.vector_bytes * 8 // max(bits, 32)


def flatten(s: Schedule, name: str, below: int = 0) -> Schedule:
    """Fuse inner loops as long as every access stays a plain walk through memory."""
    while True:
        loops = s.loops(name)[below:]
        if len(loops) < 2:
            return s
        a, b = loops[-2], loops[-1]
        if a.body is not b or a.kind != "serial" or b.kind != "serial":
            return s
        if not walks_on(s, s.block(name), a, b):
            return s
        s = L.fuse(s, f"{name}.{a.var.name}", b.var.name)


def walks_on(s: Schedule, block: Block, a: Loop, b: Loop) -> bool:
    """Whether stepping ``a`` moves every access as far as running through all of ``b`` does."""
    known = ranges(s.func, s.loops(block.name))
    values = block.bindings
    buffers = s.func.buffers
    accesses = [(block.buffer, block.indices), *((x.buffer, x.indices) for x in ir.reads(block))]
    used = set(n.free_vars(block.value))
    iters = {i.var for i in block.iters if {a.var, b.var} & set(n.free_vars(i.binding))}
    outside = n.transform(
        block.value, lambda e: n.const(0, e.dtype) if isinstance(e, n.Load) else None
    )
    if iters & set(n.free_vars(outside)) & used:
        return False
    for name, indices in accesses:
        flat: n.Expr = n.as_expr(0)
        for i, stride in zip(indices, buffers[name].strides, strict=True):
            flat = flat + n.substitute(i, values) * stride
        flat = simplify(flat, known)
        if n.loads(flat):
            return False
        form = linear(flat)
        if any({a.var, b.var} & set(n.free_vars(t)) for t in form.terms if t not in (a.var, b.var)):
            inside = [t for t in form.terms if t not in (a.var, b.var)]
            moved = simplify(n.substitute(flat, {a.var: a.var + 1}) - flat, known)
            step = simplify(n.substitute(flat, {b.var: b.var + 1}) - flat, known)
            mixed = any({a.var, b.var} & set(n.free_vars(t)) for t in inside)
            if mixed and constant(simplify(moved - step * b.extent, known)) != 0:
                return False
            continue
        steps = form.coefficient(a.var), form.coefficient(b.var)
        extent = constant(b.extent)
        if steps == (0, 0):
            continue
        if extent is None or steps[0] != steps[1] * extent:
            return False
    return True


def work(s: Schedule, name: str) -> float:
    """Roughly how many operations the block takes; large if sizes are not known."""
    total: float = max(1, operations(s.block(name).value)) + 1
    for loop in s.loops(name):
        extent = constant(loop.extent)
        if extent is None:
            return 1e12
        total *= extent
    return total
