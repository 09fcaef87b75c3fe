"""Moves on loops: their number, order and kind."""

from __future__ import annotations

from planish.compiler.dtypes import I64
from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Var, free_vars, loads, substitute
from planish.compiler.expr.simplify import prove, simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Loop, constant
from planish.compiler.loop.known import Known
from planish.compiler.loop.polyhedral import carried, reordered
from planish.schedules.edit import guard, rebind, replace
from planish.schedules.legality import (
    CONCURRENT,
    GPU,
    as_stores,
    check_distinct,
    check_independent,
    check_loops,
    enclosing,
    plain,
)
from planish.schedules.schedule import Schedule, move, ranges, show_loop

# ---------------------------------------------------------------------------- number and order


@move
def split(s: Schedule, path: str, factor: int) -> Schedule:
    """Make two loops of one: ``i`` becomes ``i_0 * factor + i_1``.

    Legal if: the factor is positive and the loop serial. Where the factor does not divide the
    extent, blocks get a condition; what stands in the loop must then not decide by a load whether
    it runs.

    Before:
        def f(x: f32[30], *, C: f32[30]):
            for i in serial(30):
                with block("C", i0=spatial(30, i)):
                    C[i0] = x[i0]
    Move:
        split("C.i", 8)
    After:
        def f(x: f32[30], *, C: f32[30]):
            for i_0 in serial(4):
                for i_1 in serial(8):
                    with block("C", i0=spatial(30, i_0 * 8 + i_1), where=i_0 * 8 + i_1 < 30):
                        C[i0] = x[i0]
    """
    loop = plain(s, s.loop(path))
    if factor < 1:
        raise ScheduleError(f"cannot split by {factor}", node=show_loop(loop))
    around = _around(s, path, loop)
    outer, inner = Var(f"{loop.var.name}_0"), Var(f"{loop.var.name}_1")
    check_loops(s, (outer.name, inner.name), around, loop)
    known = ranges(s.func, around)
    count = simplify((loop.extent + (factor - 1)) // factor, known)
    value = outer * factor + inner
    body = rebind(loop.body, {loop.var: value})
    if simplify(loop.extent % factor, known) is not n.const(0, I64):
        if _decides_by_load(loop):
            raise ScheduleError(
                f"{factor} does not divide {loop.extent}, and a load decides what runs",
                node=show_loop(loop),
            )
        body = guard(body, n.lt(value, loop.extent))
    new = Loop(outer, count, Loop(inner, n.as_expr(factor), body))
    return s.with_body(replace(s.func.body, loop, new))


def _around(s: Schedule, path: str, loop: Loop) -> tuple[Loop, ...]:
    """The loops around a loop."""
    loops = s.loops(path.partition(".")[0])
    return loops[: next(k for k, x in enumerate(loops) if x is loop)]


def _decides_by_load(loop: Loop) -> bool:
    """Whether a condition or an extent inside, which the end of the loop protects, loads."""
    for x in ir.walk(loop.body):
        match x:
            case ir.If(condition) if loads(condition):
                return True
            case Loop(extent=e) | Block(where=e) if loads(e):
                return True
            case _:
                pass
    return False


@move
def fuse(s: Schedule, path: str, inner: str) -> Schedule:
    """Make one loop of two perfectly nested ones: ``i``, ``j`` become ``i_j // J`` and ``i_j % J``.

    Legal if: both are serial, the body of the first is the second, and the second's extent does not
    depend on the first; and no condition speaks of a loop that reduces and of one that does not.

    Before:
        def f(x: f32[4, 8], *, C: f32[4, 8]):
            for i in serial(4):
                for j in serial(8):
                    with block("C", i0=spatial(4, i), i1=spatial(8, j)):
                        C[i0, i1] = x[i0, i1]
    Move:
        fuse("C.i", "j")
    After:
        def f(x: f32[4, 8], *, C: f32[4, 8]):
            for i_j in serial(32):
                with block("C", i0=spatial(4, i_j // 8), i1=spatial(8, i_j % 8)):
                    C[i0, i1] = x[i0, i1]
    """
    first = plain(s, s.loop(path))
    second = first.body
    if not isinstance(second, Loop) or second.var.name != inner:
        raise ScheduleError(f"{inner} is not the loop directly inside", node=show_loop(first))
    plain(s, second)
    if first.var in free_vars(second.extent):
        raise ScheduleError("the inner extent depends on the outer loop", node=show_loop(first))
    _check_starts(first, second, ranges(s.func, _around(s, path, first)))
    both = Var(f"{first.var.name}_{second.var.name}")
    around = _around(s, path, first)
    check_loops(s, (both.name,), around, first)
    values = {first.var: both // second.extent, second.var: both % second.extent}
    if constant(second.extent) == 1:
        values = {first.var: both, second.var: n.as_expr(0)}
    elif constant(first.extent) == 1:
        values = {first.var: n.as_expr(0), second.var: both}
    extent = simplify(first.extent * second.extent, ranges(s.func, around))
    new = Loop(both, extent, rebind(second.body, values))
    return s.with_body(replace(s.func.body, first, new))


def _check_starts(first: Loop, second: Loop, known: Known) -> None:
    """Raise if a reduction would no longer start where nothing is summed.

    Conditions on loops that reduce, and extents of 0, do not keep its starting value from being
    stored; others do. Of a loop that both reduces and does not, neither can be told.
    """
    pair = {first.var: first.extent, second.var: second.extent}
    for b in ir.blocks(second):
        if b.init is None:
            continue
        spatial = {v for i in b.spatial for v in free_vars(i.binding)}
        only = pair.keys() & {v for i in b.reduce for v in free_vars(i.binding)} - spatial
        if len(only) != 1:
            continue
        if pair.keys() & set(free_vars(b.where)):
            raise ScheduleError(
                f"only one of the loops reduces, and {b.name} has a condition on them",
                node=show_loop(first),
            )
        (v,) = only
        if not prove(n.le(1, pair[v]), known):
            raise ScheduleError(
                f"only {v.name} reduces, and it may not run at all", node=show_loop(first)
            )


@move
def reorder(s: Schedule, block: str, order: tuple[str, ...]) -> Schedule:
    """Put loops around a block into another order; loops that are not named keep their places.

    Legal if: the loops form a perfect nest, are serial or unrolled, no extent depends on a loop
    that would come later, no dependence is turned around, and no loop that repeats elements comes
    into a reduction of theirs.

    Before:
        def f(A: f32[4, 8], *, C: f32[4]):
            for i in serial(4):
                for k in serial(8):
                    with block("C", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C[i0] += A[i0, r0]
    Move:
        reorder("C", ("k", "i"))
    After:
        def f(A: f32[4, 8], *, C: f32[4]):
            for k in serial(8):
                for i in serial(4):
                    with block("C", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C[i0] += A[i0, r0]
    """
    loops, _ = s.nest(block)
    by_name = {x.var.name: x for x in loops if x.var.name in order}
    if len(by_name) != len(order) or not order:
        have = ", ".join(x.var.name for x in loops) or "no loops"
        raise ScheduleError(
            f"{', '.join(order) or 'nothing'} is no choice of loops around {block}",
            node=show_loop(loops[0] if loops else s.block(block)),
            hint=f"there are {have}",
        )
    places = [k for k, x in enumerate(loops) if x.var.name in by_name]
    new = list(loops)
    for k, name in zip(places, order, strict=True):
        new[k] = by_name[name]
    moved = [k for k, (x, y) in enumerate(zip(loops, new, strict=True)) if x is not y]
    if not moved:
        return s
    first, last = moved[0], moved[-1] + 1
    nest, wanted = loops[first:last], new[first:last]
    _check_nest(nest, wanted)
    _check_order(s, nest, wanted)
    body = nest[-1].body
    for loop in reversed(wanted):
        body = loop.with_(body=body)
    return s.with_body(replace(s.func.body, nest[0], body))


def _check_nest(nest: tuple[Loop, ...], wanted: list[Loop]) -> None:
    """The loops are a perfect nest of ordinary loops whose extents allow the order."""
    for outer, inner in zip(nest, nest[1:], strict=False):
        if outer.body is not inner:
            raise ScheduleError("the loops are not perfectly nested", node=show_loop(nest[0]))
    for k, loop in enumerate(wanted):
        if loop.kind not in ("serial", "unrolled"):
            raise ScheduleError(
                f"{loop.var.name} is {loop.kind}",
                node=show_loop(nest[0]),
                hint="reorder first, then change kinds",
            )
        if loop.hint:
            raise ScheduleError(
                f"{loop.var.name} is marked as {loop.hint}", node=show_loop(nest[0])
            )
        if not {x.var for x in wanted[k:]}.isdisjoint(free_vars(loop.extent)):
            raise ScheduleError("an extent depends on a loop further in", node=show_loop(nest[0]))


def _check_order(s: Schedule, nest: tuple[Loop, ...], wanted: list[Loop]) -> None:
    """No dependence is turned around, and no reduction is begun anew while it runs."""
    order = [x.var for x in wanted]
    inside = list(ir.blocks(nest[-1].body))
    first = inside[0]
    own = any(x.buffer == first.buffer for x in ir.loaded(first))
    if len(inside) > 1 or own or loads(*first.indices) or not first.iters:
        conflict = reordered(s.func, nest, order)
        if conflict is not None:
            raise ScheduleError(f"{conflict}: they must keep their order", node=show_loop(nest[0]))
    for b in inside:
        used = {v for i in b.reduce for v in free_vars(i.binding)}
        mixed = used & {v for i in b.spatial for v in free_vars(i.binding)}
        for k, outer in enumerate(nest):
            passed = {x.var for x in nest[k + 1 :]} & set(order[: order.index(outer.var)]) & used
            if not passed or (outer.var in used and not mixed & {outer.var, *passed}):
                continue
            stores, same = as_stores(s.func, outer)
            if outer.var in used or carried(stores, same) is not None:
                what = "begin" if outer.var in used else "compute"
                raise ScheduleError(
                    f"iterations of {outer.var.name} {what} the same elements of {b.buffer}: it "
                    f"must stay outside of {', '.join(v.name for v in order if v in passed)}",
                    node=show_loop(nest[0]),
                )


# ---------------------------------------------------------------------------------------- kinds


def _set_kind(s: Schedule, loop: Loop, kind: str) -> Schedule:
    return s.with_body(replace(s.func.body, loop, loop.with_(kind=kind)))


def _check_alone(s: Schedule, path: str, loop: Loop, kinds: tuple[str, ...]) -> None:
    """Raise if a loop of one of the kinds is around a loop or in it."""
    inside = [x for x in ir.walk(loop.body) if isinstance(x, Loop)]
    for other in (*_around(s, path, loop), *inside):
        if other.kind in kinds:
            raise ScheduleError(
                f"{other.var.name} is {other.kind}, and {loop.var.name} is nested with it",
                node=show_loop(loop if other in inside else other),
            )


@move
def parallel(s: Schedule, path: str) -> Schedule:
    """Run the loop's iterations on several threads.

    Legal if: the loop reduces nothing, no iteration touches an element that another one writes,
    scratch that is used inside is not used outside, and no loop around or inside is parallel.

    Before:
        def f(x: f32[64], *, C: f32[64]):
            for i in serial(64):
                with block("C", i0=spatial(64, i)):
                    C[i0] = x[i0]
    Move:
        parallel("C.i")
    After:
        def f(x: f32[64], *, C: f32[64]):
            for i in parallel(64):
                with block("C", i0=spatial(64, i)):
                    C[i0] = x[i0]
    """
    loop = plain(s, s.loop(path))
    _check_alone(s, path, loop, CONCURRENT)
    check_independent(s.func, loop, "parallel")
    return _set_kind(s, loop, "parallel")


@move
def bind(s: Schedule, path: str, axis: str) -> Schedule:
    """Run the loop's iterations on the threads, or blocks of threads, of a GPU.

    ``axis`` is ``block.x``, ``thread.x``, or their ``y`` and ``z``.

    Legal if: the loop could be parallel (threads of one block may share ``local`` buffers), the
    axis is not in use around or inside, and no axis of blocks is inside one of threads.

    Before:
        def f(x: f32[64], *, C: f32[64]):
            for i in serial(64):
                with block("C", i0=spatial(64, i)):
                    C[i0] = x[i0]
    Move:
        bind("C.i", "block.x")
    After:
        def f(x: f32[64], *, C: f32[64]):
            for i in bind(64, "block.x"):
                with block("C", i0=spatial(64, i)):
                    C[i0] = x[i0]
    """
    if axis not in GPU:
        raise ScheduleError(f"there is no axis {axis!r}", hint=f"one of {', '.join(GPU)}")
    loop = plain(s, s.loop(path))
    _check_alone(s, path, loop, ("parallel", axis))
    threads = enclosing(_around(s, path, loop), [x for x in GPU if x.startswith("thread")])
    blocks = [x for x in ir.walk(loop) if isinstance(x, Loop) and x.kind.startswith("block")]
    if threads if axis.startswith("block") else blocks:
        raise ScheduleError("an axis of blocks is inside one of threads", node=show_loop(loop))
    check_independent(s.func, loop, axis)
    return _set_kind(s, loop, axis)


@move
def vectorize(s: Schedule, path: str) -> Schedule:
    """Run the loop's iterations as lanes of vectors. A loop that reduces folds its lanes.

    Legal if: the extent is a constant power of two, the body is one block, and the loop either only
    reduces or no iteration touches an element that another one writes.

    Before:
        def f(x: f32[8], *, C: f32[8]):
            for i in serial(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = x[i0]
    Move:
        vectorize("C.i")
    After:
        def f(x: f32[8], *, C: f32[8]):
            for i in vector(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = x[i0]
    """
    loop = plain(s, s.loop(path))
    extent = constant(loop.extent)
    if extent is None or extent < 1 or extent & (extent - 1):
        raise ScheduleError(
            "the extent of a vector loop is a constant power of two", node=show_loop(loop)
        )
    block = loop.body
    if not isinstance(block, Block):
        raise ScheduleError("only a loop around one block can be vectorized", node=show_loop(loop))
    if not _folds(block, loop.var):
        check_distinct(s.func, loop, "vector")
        _check_lanes(block, loop)
    return _set_kind(s, loop, "vector")


def _check_lanes(b: Block, loop: Loop) -> None:
    """Raise ScheduleError if all iterations write one element.

    Threads have scratch of their own, in which that is no conflict; lanes share theirs.
    """
    bindings = {i.var: i.binding for i in b.iters}
    if constant(loop.extent) == 1 or loop.var in free_vars(
        *(substitute(index, bindings) for index in b.indices)
    ):
        return
    raise ScheduleError(
        f"every iteration of {loop.var.name} writes one element of {b.buffer}: it cannot be vector",
        node=show_loop(loop),
    )


def _folds(b: Block, var: Var) -> bool:
    """Whether a loop takes part in a block's reduction and in nothing else."""
    where: tuple[Expr, ...] = tuple(i.binding for i in b.spatial)
    reduces = any(var in free_vars(i.binding) for i in b.reduce)
    alone = all(x.buffer != b.buffer for x in ir.loaded(b))
    return reduces and alone and var not in free_vars(*where)


@move
def unroll(s: Schedule, path: str) -> Schedule:
    """Repeat the body for each iteration.

    Legal if: the extent is constant.

    Before:
        def f(x: f32[4], *, C: f32[4]):
            for i in serial(4):
                with block("C", i0=spatial(4, i)):
                    C[i0] = x[i0]
    Move:
        unroll("C.i")
    After:
        def f(x: f32[4], *, C: f32[4]):
            for i in unrolled(4):
                with block("C", i0=spatial(4, i)):
                    C[i0] = x[i0]
    """
    loop = plain(s, s.loop(path))
    if constant(loop.extent) is None:
        raise ScheduleError("the extent is not constant", node=show_loop(loop))
    return _set_kind(s, loop, "unrolled")


__all__ = [
    "bind", "fuse", "parallel", "reorder", "split", "unroll", "vectorize",
]  # fmt: skip
