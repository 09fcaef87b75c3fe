"""Moves that give a block a copy of a buffer to work on."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, conjuncts, free_vars
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Iter, Loop, Stmt
from planish.compiler.loop.sites import Site
from planish.schedules.edit import map_loads, replace
from planish.schedules.legality import (
    check_complete,
    check_concurrent,
    check_loops,
    check_new,
    check_scope,
    check_stage,
    is_whole,
    own_variables,
    root_of,
    site_of,
)
from planish.schedules.schedule import Schedule, move, show_loop


@move
def cache_write(s: Schedule, name: str, scope: str) -> Schedule:
    """Let a block write into a buffer of its own, which a new block copies to the old one.

    The new block is called as the old one, which becomes ``name_cache``.

    Legal if: the block computes all of its buffer at its iterators, to which its own loops give all
    values; and of the loops that it shares with others, none reduces or is bound to an iterator
    together with loops of its own.

    Before:
        def f(x: f32[4, 8], *, C: f32[4]):
            for i in serial(4):
                for k in serial(8):
                    with block("C", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C[i0] += x[i0, r0]
    Move:
        cache_write("C", "register")
    After:
        def f(x: f32[4, 8], *, C: f32[4]):
            C_cache = buffer(f32[4], "register")
            for i in serial(4):
                for k in serial(8):
                    with block("C_cache", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C_cache[i0] += x[i0, r0]
            for i0 in serial(4):
                with block("C", i0=spatial(4, i0)):
                    C[i0] = C_cache[i0]
    """
    root, source = root_of(s, name)
    block = source.block
    check_stage(s, source)
    target = s.func.buffers[block.buffer]
    cache = Buffer(f"{target.name}_cache", target.dtype, target.shape, check_scope(scope))
    check_new(s, f"{name}_cache", cache.name)
    own = own_variables(root)
    iters, loops = [], []
    for i in block.iters:
        used = set(free_vars(i.binding)) - set(s.func.symbols)
        if used - own and (used & own or i.kind == "reduce"):
            raise ScheduleError(
                f"{i.var.name} is bound to a loop that {name} shares with others",
                node=show_loop(source.loops[0]),
            )
        if i.kind == "reduce":
            continue
        inside = bool(used & own)  # else a loop that other blocks share
        iters.append(Iter(i.var, i.extent, "spatial", i.var if inside else i.binding))
        if inside:
            loops.append(i)
    check_complete(s, source, own)
    axes = tuple(i.var for i in iters)
    value = Load(cache.name, axes, target.dtype)
    where = n.all_of(*(c for c in conjuncts(block.where) if own.isdisjoint(free_vars(c))))
    copy: Stmt = block.with_(
        iters=tuple(iters), indices=axes, value=value, combiner=None, init=None, where=where
    )
    shared = tuple(x for x in source.loops if x.var not in own)
    check_loops(s, [i.var.name for i in loops], shared, copy)
    for i in reversed(loops):
        copy = Loop(i.var, i.extent, copy)
    moved = block.with_(name=f"{name}_cache", buffer=cache.name, nontemporal=False)
    body = replace(s.func.body, root, ir.seq(replace(root, block, moved), copy))
    func = s.func.with_(body=body).with_buffer(cache)
    check_concurrent(func)
    return s.with_func(func)


@move
def cache_read(s: Schedule, buffer: str, reader: str, scope: str) -> Schedule:
    """Let a block read a copy of a buffer; the copying block is called ``buffer_cache``.

    The copy is made in front of the outermost loop around the reader: ``compute_at`` moves it
    inside.

    Legal if: the block reads the buffer, which is not written in the outermost loop around it, and
    all of which has been written before.

    Before:
        def f(x: f32[8], *, C: f32[8]):
            for i in serial(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = x[i0] + f32(1.0)
    Move:
        cache_read("x", "C", "local")
    After:
        def f(x: f32[8], *, C: f32[8]):
            x_cache = buffer(f32[8], "local")
            for i0 in serial(8):
                with block("x_cache", i0=spatial(8, i0)):
                    x_cache[i0] = x[i0]
            for i in serial(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = x_cache[i0] + f32(1.0)
    """
    loops, block = s.nest(reader)
    source = s.func.buffers.get(buffer)
    if source is None or not any(x.buffer == buffer for x in ir.loaded(block)):
        raise ScheduleError(
            f"{reader} does not read {buffer}", node=show_loop(loops[0] if loops else block)
        )
    cache = Buffer(f"{buffer}_cache", source.dtype, source.shape, check_scope(scope))
    check_new(s, cache.name, cache.name)
    top = s.func.body.body if isinstance(s.func.body, ir.Seq) else (s.func.body,)
    first = next(x for x in top if any(b is block for b in ir.blocks(x)))
    _check_written(s, source, site_of(s.func, block), first)
    axes = tuple(Var(f"i{k}") for k in range(len(source.shape)))
    iters = tuple(Iter(v, d, "spatial", v) for v, d in zip(axes, source.shape, strict=True))
    copy: Stmt = Block(cache.name, iters, cache.name, axes, Load(buffer, axes, source.dtype))
    check_loops(s, [v.name for v in axes], (), copy)
    for i in reversed(iters):
        copy = Loop(i.var, i.extent, copy)

    def cached(load: Load, _: Block | None) -> Expr:
        return Load(cache.name, load.indices, load.type)

    moved = map_loads(block, buffer, cached)
    body = replace(s.func.body, first, ir.seq(copy, replace(first, block, moved)))
    func = s.func.with_(body=body).with_buffer(cache)
    check_concurrent(func)
    return s.with_func(func)


def _check_written(s: Schedule, buffer: Buffer, reader: Site, first: Stmt) -> None:
    """Raise unless a buffer is whole before a statement, which leaves it as it is."""
    for b in ir.blocks(first):
        if b.buffer == buffer.name:
            raise ScheduleError(
                f"{b.name} writes {buffer.name} in the same loop", node=show_loop(first)
            )
    if not is_whole(s.func, buffer.name, reader):
        raise ScheduleError(
            f"not all of {buffer.name} is written before {reader.block.name}",
            node=show_loop(first),
        )
