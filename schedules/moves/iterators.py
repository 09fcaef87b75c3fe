"""Moves on a block's own iterators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replace_fields

from planish.compiler.dtypes import I64
from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Var, free_vars
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Iter, Loop, Stmt
from planish.schedules.edit import rebind, replace
from planish.schedules.legality import check_loops, plain
from planish.schedules.schedule import Schedule, iterator_ranges, move, ranges, show_loop


@move
def divide(s: Schedule, name: str, iterator: str, factor: int) -> Schedule:
    """Make two iterators of one, ``i`` being ``i_0 * factor + i_1``, and two loops of its loop.

    Unlike ``split``, which leaves the iterators alone, it lets what depends on ``i // factor`` only
    be told from what depends on ``i % factor``.

    Legal if: the factor divides the extent, and the iterator is bound to a serial loop of the
    block's own that runs through it.

    Before:
        def f(x: f32[16], w: f32[2], *, C: f32[32]):
            for i in serial(32):
                with block("C", i=spatial(32, i)):
                    C[i] = x[i // 2] * w[i % 2]
    Move:
        divide("C", "i", 2)
    After:
        def f(x: f32[16], w: f32[2], *, C: f32[32]):
            for i_0 in serial(16):
                for i_1 in serial(2):
                    with block("C", i_0=spatial(16, i_0), i_1=spatial(2, i_1)):
                        C[i_0 * 2 + i_1] = x[i_0] * w[i_1]
    """
    loops, block = s.nest(name)
    old = _iterator(block, iterator)
    loop = _own_loop(s, loops, block, old)
    known = ranges(s.func, ())
    if factor < 1 or simplify(old.extent % factor, known) is not n.const(0, I64):
        raise ScheduleError(f"{factor} does not divide {old.extent}", node=show_loop(loop))
    count = simplify(old.extent // factor, known)
    outer, inner = Var(f"{iterator}_0"), Var(f"{iterator}_1")
    _check_iterators(block, outer, inner)
    check_loops(s, (outer.name, inner.name), _around(loops, loop), loop)
    parts = (Iter(outer, count, old.kind, outer), Iter(inner, n.as_expr(factor), old.kind, inner))
    value = outer * factor + inner
    body = rebind(loop.body, {loop.var: value})
    moved = next(ir.blocks(body))
    iters = tuple(x for i in moved.iters for x in (parts if i.var is old.var else (i,)))
    known = iterator_ranges(s.func, moved.with_(iters=iters))

    def change(e: Expr) -> Expr:
        return simplify(n.substitute(e, {old.var: value}), known)

    body = replace(body, moved, _updated(moved, iters, change))
    new = Loop(outer, count, Loop(inner, n.as_expr(factor), body))
    return s.with_body(replace(s.func.body, loop, new))


@move
def merge(s: Schedule, name: str, first: str, second: str) -> Schedule:
    """Make one iterator of two, and one loop of their loops.

    Unlike ``fuse``, which leaves the iterators alone, it makes tiles possible that cross the end
    of a row.

    Legal if: both are of one kind and bound to serial loops of the block's own that run through
    them, the second's directly inside the first's.

    Before:
        def f(x: f32[4, 8], *, C: f32[4, 8]):
            for i in serial(4):
                for j in serial(8):
                    with block("C", i=spatial(4, i), j=spatial(8, j)):
                        C[i, j] = x[i, j]
    Move:
        merge("C", "i", "j")
    After:
        def f(x: f32[4, 8], *, C: f32[4, 8]):
            for i_j in serial(32):
                with block("C", i_j=spatial(32, i_j)):
                    C[i_j // 8, i_j % 8] = x[i_j // 8, i_j % 8]
    """
    loops, block = s.nest(name)
    a, b = _iterator(block, first), _iterator(block, second)
    if a.kind != b.kind or a is b:
        raise ScheduleError("two iterators of one kind are merged", node=show_loop(block))
    outer, inner = (_own_loop(s, loops, block, i) for i in (a, b))
    if outer.body is not inner:
        raise ScheduleError("their loops are not directly nested", node=show_loop(outer))
    var = Var(f"{first}_{second}")
    _check_iterators(block, var)
    check_loops(s, (var.name,), _around(loops, outer), outer)
    extent = a.extent * b.extent
    body = rebind(inner.body, {outer.var: var // b.extent, inner.var: var % b.extent})
    moved = next(ir.blocks(body))
    values: dict[Var, Expr] = {a.var: var // b.extent, b.var: var % b.extent}
    whole = Iter(var, extent, a.kind, var)
    iters = tuple(whole if i.var is a.var else i for i in moved.iters if i.var is not b.var)
    body = replace(body, moved, _updated(moved, iters, lambda e: n.substitute(e, values)))
    return s.with_body(replace(s.func.body, outer, Loop(var, extent, body)))


@move
def group(s: Schedule, name: str, iterator: str, count: int) -> Schedule:
    """Make one iteration of ``count`` of a reduction's, which adds up so many values first.

    Instructions that add up several products at once do that.

    Legal if: the block sums integers, whose sums are the same in any order, the count divides the
    extent, and the iterator is bound to a serial loop of the block's own that runs through it.

    Before:
        def f(x: i16[8], w: i16[8], *, C: i32[4]):
            for i in serial(4):
                for k in serial(8):
                    with block("C", i=spatial(4, i), k=reduce(8, k), init=i32(0)):
                        C[i] += cast(x[k], i32) * cast(w[k], i32)
    Move:
        group("C", "k", 2)
    After:
        def f(x: i16[8], w: i16[8], *, C: i32[4]):
            for i in serial(4):
                for k in serial(4):
                    with block("C", i=spatial(4, i), k=reduce(4, k), init=i32(0)):
                        C[i] += (cast(x[k * 2], i32) * cast(w[k * 2], i32)
                                 + cast(x[k * 2 + 1], i32) * cast(w[k * 2 + 1], i32))
    """
    loops, block = s.nest(name)
    old = _iterator(block, iterator)
    loop = _own_loop(s, loops, block, old)
    if block.combiner != "sum" or not block.value.dtype.is_int or old.kind != "reduce":
        raise ScheduleError(f"{iterator} does not sum integers", node=show_loop(loop))
    if loop.var in free_vars(block.where):
        raise ScheduleError(f"a condition depends on {loop.var.name}", node=show_loop(loop))
    known = ranges(s.func, ())
    if count < 1 or simplify(old.extent % count, known) is not n.const(0, I64):
        raise ScheduleError(f"{count} does not divide {old.extent}", node=show_loop(loop))
    extent = simplify(old.extent // count, known)
    short = replace_fields(old, extent=extent)
    iters = tuple(short if i is old else i for i in block.iters)
    known = iterator_ranges(s.func, block.with_(iters=iters))
    value: Expr | None = None
    for k in range(count):
        place = {old.var: simplify(old.var * count + k, known)}
        term = simplify(n.substitute(block.value, place), known)
        value = term if value is None else value + term
    assert value is not None
    body = replace(loop.body, block, block.with_(iters=iters, value=value))
    return s.with_body(replace(s.func.body, loop, loop.with_(extent=extent, body=body)))


def _iterator(block: Block, name: str) -> Iter:
    for i in block.iters:
        if i.var.name == name:
            return i
    have = ", ".join(i.var.name for i in block.iters) or "none"
    raise ScheduleError(
        f"{block.name} has no iterator {name}", node=show_loop(block), hint=f"there are {have}"
    )


def _own_loop(s: Schedule, loops: tuple[Loop, ...], block: Block, i: Iter) -> Loop:
    """The loop that runs through an iterator, and holds the block alone."""
    loop = next((x for x in loops if x.var is i.binding), None)
    if loop is None or sum(1 for _ in ir.blocks(loop)) != 1 or loop.extent is not i.extent:
        raise ScheduleError(f"{i.var.name} has no loop of its own", node=show_loop(block))
    return plain(s, loop)


def _around(loops: tuple[Loop, ...], loop: Loop) -> tuple[Loop, ...]:
    return loops[: loops.index(loop)]


def _check_iterators(block: Block, *names: Var) -> None:
    for i in block.iters:
        if i.var in names:
            raise ScheduleError(
                f"{block.name} has an iterator {i.var.name} already", node=show_loop(block)
            )


def _updated(b: Block, iters: tuple[Iter, ...], change: Callable[[Expr], Expr]) -> Stmt:
    """The block with other iterators."""
    return b.with_(
        iters=iters,
        indices=tuple(map(change, b.indices)),
        value=change(b.value),
        init=None if b.init is None else change(b.init),
    )
