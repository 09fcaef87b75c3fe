"""Moves on reductions."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, conjuncts, free_vars
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Iter, Loop, Stmt
from planish.compiler.loop.te import COMBINERS
from planish.schedules.edit import replace
from planish.schedules.legality import (
    check_concurrent,
    check_new,
    check_scope,
    only_symbols,
    plain,
)
from planish.schedules.schedule import Schedule, move, show_loop


@move
def rfactor(s: Schedule, path: str, scope: str = "local") -> Schedule:
    """Give each iteration of a reducing loop a result of its own, and reduce those afterwards.

    ``C`` becomes ``C_rf``, with one more dimension for the loop, and a block ``C`` that combines
    along it.

    Legal if: the loops from the reduction's outermost on are a perfect nest of serial loops around
    the block, all of which reduce and none of which depends on another. Sums are made in another
    order.

    Before:
        def f(x: f32[4, 32], *, C: f32[4]):
            for i in serial(4):
                for k_0 in serial(4):
                    for k_1 in serial(8):
                        with block("C", i0=spatial(4, i), r0=reduce(32, k_0 * 8 + k_1),
                                   init=f32(0.0)):
                            C[i0] += x[i0, r0]
    Move:
        rfactor("C.k_1")
    After:
        def f(x: f32[4, 32], *, C: f32[4]):
            C_rf = buffer(f32[4, 8], "local")
            for i in serial(4):
                for k_0 in serial(4):
                    for k_1 in serial(8):
                        with block("C_rf", i0=spatial(4, i), rf=spatial(8, k_1),
                                   r_k_0=reduce(4, k_0), init=f32(0.0)):
                            C_rf[i0, rf] += x[i0, r_k_0 * 8 + rf]
                for k_1 in serial(8):
                    with block("C", i0=spatial(4, i), rf=reduce(8, k_1), init=f32(0.0)):
                        C[i0] += C_rf[i0, rf]
    """
    name = path.partition(".")[0]
    loops, block = s.nest(name)
    loop = s.loop(path)
    used = {v for i in block.reduce for v in free_vars(i.binding)}
    if loop.var not in used:
        raise ScheduleError(f"{loop.var.name} does not reduce", node=show_loop(loop))
    inner = loops[next(k for k, x in enumerate(loops) if x.var in used) :]
    _check_nest(s, block, inner, used)
    assert block.combiner is not None
    rf = _unused(block, "rf")
    factored, rest = _factored(block, loop, inner, rf)
    target = s.func.buffers[block.buffer]
    shape = (*target.shape, loop.extent)
    cache = Buffer(f"{target.name}_rf", target.dtype, shape, check_scope(scope))
    check_new(s, f"{name}_rf", cache.name)
    first: Stmt = factored.with_(
        name=f"{name}_rf",
        buffer=cache.name,
        indices=(*block.indices, rf),
        init=COMBINERS[block.combiner](target.dtype),
    )
    for x in reversed(inner):
        first = x.with_(body=first)
    again = block.with_(
        iters=(*block.spatial, Iter(rf, loop.extent, "reduce", loop.var)),
        value=Load(cache.name, (*block.indices, rf), target.dtype),
        where=rest,
    )
    both = ir.seq(first, Loop(loop.var, loop.extent, again))
    func = s.func.with_(body=replace(s.func.body, inner[0], both)).with_buffer(cache)
    check_concurrent(func)
    return s.with_func(func)


def _check_nest(s: Schedule, block: Block, inner: tuple[Loop, ...], used: set[Var]) -> None:
    spatial = {v for i in block.spatial for v in free_vars(i.binding)}
    for k, x in enumerate(inner):
        plain(s, x)
        if x.var in spatial or x.var not in used:
            raise ScheduleError(
                f"{x.var.name} stands inside the reduction and does not only reduce",
                node=show_loop(inner[0]),
                hint="reorder it first",
            )
        if not only_symbols(s.func, x.extent):
            raise ScheduleError(
                f"the extent of {x.var.name} depends on another loop", node=show_loop(inner[0])
            )
        if x.body is not (inner[k + 1] if k + 1 < len(inner) else block):
            raise ScheduleError("the loops are not perfectly nested", node=show_loop(inner[0]))
    outer = {x.var for x in s.loops(block.name)} - {x.var for x in inner}
    if not outer.isdisjoint(v for i in block.reduce for v in free_vars(i.binding)):
        raise ScheduleError("the reduction depends on another loop", node=show_loop(inner[0]))
    if any(x.buffer == block.buffer for x in ir.loaded(block)):
        raise ScheduleError(f"{block.name} reads what it writes", node=show_loop(inner[0]))


def _unused(block: Block, name: str) -> Var:
    """A variable that is no iterator of the block."""
    taken, k = {i.var.name for i in block.iters}, 0
    while (name if not k else f"{name}_{k}") in taken:
        k += 1
    return Var(f"{name}_{k}" if k else name)


def _factored(block: Block, loop: Loop, inner: tuple[Loop, ...], rf: Var) -> tuple[Block, Expr]:
    """The block with the loops themselves as iterators; the condition of what combines."""
    fresh: dict[Var, Var] = {}
    for x in inner:
        fresh[x.var] = rf if x is loop else _unused(block, f"r_{x.var.name}")
    iters = [*block.spatial, Iter(rf, loop.extent, "spatial", loop.var)]
    iters += [Iter(fresh[x.var], x.extent, "reduce", x.var) for x in inner if x is not loop]
    ours: dict[Var, Expr] = dict(fresh)
    values = {i.var: n.substitute(i.binding, ours) for i in block.reduce}
    gone = {x.var for x in inner if x is not loop}
    kept = [c for c in conjuncts(block.where) if gone.isdisjoint(free_vars(c))]
    fact = block.with_(iters=tuple(iters), value=n.substitute(block.value, values))
    return fact, n.all_of(*kept)
