"""Moves on reductions."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Iter, Loop, Stmt

from planish.schedules.schedule import Schedule, move, replace, show_loop


@move
def rfactor(s: Schedule, path: str, scope: str = "local") -> Schedule:
    """Give each iteration of a reducing loop a result of its own, and reduce those afterwards.

    ``C`` becomes ``C_rf``, with one more dimension for the loop, and a block ``C`` that combines along it.

    Legal if: the loop reduces, its extent does not depend on other loops, and no spatial loop stands inside a reducing
    one. Sums are made in another order.

    Before: for k_0: for k_1 in serial(8): C[i] += x[i, k_0 * 8 + k_1]
    After: for k_0: for k_1: C_rf[i, k_1] += x[i, k_0 * 8 + k_1]; for k_1: C[i] += C_rf[i, k_1]
    """
    name = path.partition(".")[0]
    loops, block = s.nest(name)
    loop = s.loop(path)
    used = {v for i in block.reduce for v in free_vars(i.binding)}
    if loop.var not in used:
        raise ScheduleError(f"{loop.var.name} does not reduce", node=show_loop(loop))
    first = next(k for k, x in enumerate(loops) if x.var in used)
    outside = {x.var for x in loops[:first]}
    inner = loops[first:]
    spatial = {v for i in block.spatial for v in free_vars(i.binding)}
    if any(x.var in spatial for x in inner):
        raise ScheduleError("a spatial loop stands inside a reducing one", node=show_loop(inner[0]))
    if len(list(ir.blocks(inner[0]))) != 1:
        raise ScheduleError("there is more than one block inside", node=show_loop(inner[0]))
    if set(free_vars(loop.extent)) - set(s.func.symbols):
        raise ScheduleError("the extent depends on other loops", node=show_loop(loop))
    del outside
    factored, rest = _factored(block, loop, inner)
    target = s.func.buffers[block.buffer]
    cache = Buffer(
        f"{target.name}_rf", target.dtype, (*target.shape, loop.extent), scope  # type: ignore[arg-type]
    )
    first_nest: Stmt = factored.with_(
        name=f"{name}_rf", buffer=cache.name, indices=(*block.indices, _RF)
    )
    for x in reversed(inner):
        first_nest = x.with_(body=first_nest)
    again: Stmt = block.with_(
        iters=(*block.spatial, Iter(_RF, loop.extent, "reduce", loop.var)),
        value=Load(cache.name, (*block.indices, _RF), target.dtype),
        where=rest,
    )
    again = Loop(loop.var, loop.extent, again)
    body = replace(s.func.body, inner[0], ir.seq(first_nest, again))
    return Schedule(s.func.with_(body=body).with_buffer(cache), s.trace)


_RF = Var("rf")


def _factored(block: Block, loop: Loop, inner: tuple[Loop, ...]) -> tuple[Block, Expr]:
    """The block with iterators that are the loops themselves; the condition that speaks of no inner loop."""
    others = [x for x in inner if x.var is not loop.var]
    fresh = {x.var: Var(f"r_{x.var.name}") for x in others}
    fresh[loop.var] = _RF
    iters: list[Iter] = list(block.spatial)
    iters.append(Iter(_RF, loop.extent, "spatial", loop.var))
    iters += [Iter(fresh[x.var], x.extent, "reduce", x.var) for x in others]
    values: dict[Var, Expr] = {
        i.var: n.substitute(i.binding, dict(fresh)) for i in block.reduce
    }
    gone = {x.var for x in inner}
    kept = [c for c in _conjuncts(block.where) if not gone & set(free_vars(c))]
    fact = block.with_(iters=tuple(iters), value=n.substitute(block.value, values))
    return fact, n.all_of(*kept)


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, n.And):
        return _conjuncts(e.lhs) + _conjuncts(e.rhs)
    return [] if e is n.TRUE else [e]
