"""Moves on a block's own iterators."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval
from planish.compiler.expr.nodes import Expr, Var
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Iter, Loop, constant

from planish.schedules.schedule import Schedule, iterator_ranges, move, replace, show_loop


@move
def divide(s: Schedule, name: str, iterator: str, factor: int) -> Schedule:
    """Make two iterators of one, ``i`` being ``i_0 * factor + i_1``, and two loops of its loop.

    Unlike ``split``, which leaves the iterators alone, it lets what depends on ``i // factor`` only be told from what
    depends on ``i % factor``.

    Legal if: the factor divides the extent, and the iterator is bound to a loop of its own.

    Before: for i: block(i=spatial(32, i)): C[i] = x[i // 2] * w[i % 2]
    After: for i_0, for i_1: block(i_0=spatial(16, i_0), i_1=spatial(2, i_1)): C[i_0 * 2 + i_1] = x[i_0] * w[i_1]
    """
    loops, block = s.nest(name)
    found = [i for i in block.iters if i.var.name == iterator]
    if not found:
        raise ScheduleError(f"{name} has no iterator {iterator}", node=show_loop(block))
    (old,) = found
    loop = next((x for x in loops if x.var is old.binding), None)
    if loop is None or loop.kind != "serial" or len(list(ir.blocks(loop))) != 1:
        raise ScheduleError(f"{iterator} has no serial loop of its own", node=show_loop(block))
    known = {v: Interval(1, None) for v in s.func.symbols}
    if factor < 1 or constant(simplify(old.extent % factor, known)) != 0:
        raise ScheduleError(f"{factor} does not divide {old.extent}", node=show_loop(loop))
    count = simplify(old.extent // factor, known)
    outer, inner = Var(f"{iterator}_0"), Var(f"{iterator}_1")
    iters: list[Iter] = []
    for i in block.iters:
        if i is old:
            iters.append(Iter(outer, count, i.kind, outer))
            iters.append(Iter(inner, n.as_expr(factor), i.kind, inner))
        else:
            iters.append(i)
    known = iterator_ranges(s.func, block.with_(iters=tuple(iters)))
    values: dict[Var, Expr] = {old.var: outer * factor + inner}

    def change(e: Expr) -> Expr:
        return simplify(n.substitute(e, values), known)

    fresh = block.with_(
        iters=tuple(iters),
        indices=tuple(map(change, block.indices)),
        value=change(block.value),
    )
    body = replace(loop.body, block, fresh)
    new = Loop(outer, count, Loop(inner, n.as_expr(factor), body))
    return s.with_body(replace(s.func.body, loop, new))
