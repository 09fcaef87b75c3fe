"""Moves on loops: their number, order and kind."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Var, free_vars
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Loop, Stmt, constant

from planish.schedules.schedule import Schedule, move, ranges, replace, show_loop


def rebind(s: Stmt, values: dict[Var, Expr], known: dict[Var, n.Var] | None = None) -> Stmt:
    """The statement with loop variables replaced in bindings, conditions and extents."""
    if isinstance(s, Block):
        iters = tuple(
            ir.Iter(i.var, i.extent, i.kind, n.substitute(i.binding, values)) for i in s.iters
        )
        return s.with_(iters=iters, where=n.substitute(s.where, values))
    new = ir.with_children(s, tuple(rebind(c, values) for c in ir.children(s)))
    if isinstance(new, Loop):
        return new.with_(extent=n.substitute(new.extent, values))
    if isinstance(new, ir.If):
        return ir.If(n.substitute(new.condition, values), new.then, new.other)
    return new


def guard(s: Stmt, condition: Expr) -> Stmt:
    """The statement with another condition on every block."""
    return ir.map_blocks(s, lambda b: b.with_(where=n.all_of(b.where, condition)))


@move
def split(s: Schedule, path: str, factor: int) -> Schedule:
    """Make two loops of one: ``i`` becomes ``i_0 * factor + i_1``.

    Legal if: factor > 0 and the loop is serial. Where the factor does not divide the extent, blocks get a condition.

    Before: for i in serial(30)
    After: for i_0 in serial(4), for i_1 in serial(8), where i_0 * 8 + i_1 < 30
    """
    loop = s.loop(path)
    if factor < 1:
        raise ScheduleError(f"cannot split by {factor}", node=show_loop(loop))
    if loop.kind != "serial":
        raise ScheduleError(f"the loop is {loop.kind}", node=show_loop(loop), hint="split it first")
    known = ranges(s.func, s.loops(path.partition(".")[0]))
    outer, inner = Var(f"{loop.var.name}_0"), Var(f"{loop.var.name}_1")
    count = simplify((loop.extent + (factor - 1)) // factor, known)
    value = outer * factor + inner
    body = rebind(loop.body, {loop.var: value})
    if simplify(loop.extent % factor, known) is not n.const(0, n.I64):
        body = guard(body, n.lt(value, loop.extent))
    new = Loop(outer, count, Loop(inner, n.as_expr(factor), body))
    return s.with_body(replace(s.func.body, loop, new))


@move
def fuse(s: Schedule, path: str, inner: str) -> Schedule:
    """Make one loop of two perfectly nested ones: ``i``, ``j`` become ``i_j // J`` and ``i_j % J``.

    Legal if: the body of the first is the second, and the second's extent does not depend on the first.

    Before: for i in serial(4), for j in serial(8)
    After: for i_j in serial(32)
    """
    first = s.loop(path)
    second = first.body
    if not isinstance(second, Loop) or second.var.name != inner:
        raise ScheduleError(f"{inner} is not the loop directly inside", node=show_loop(first))
    if first.var in free_vars(second.extent):
        raise ScheduleError("the inner extent depends on the outer loop", node=show_loop(first))
    if first.kind != "serial" or second.kind != "serial":
        raise ScheduleError("only serial loops can be fused", node=show_loop(first))
    both = Var(f"{first.var.name}_{second.var.name}")
    known = ranges(s.func, s.loops(path.partition(".")[0]))
    values = {first.var: both // second.extent, second.var: both % second.extent}
    if constant(second.extent) == 1:
        values = {first.var: both, second.var: n.as_expr(0)}
    elif constant(first.extent) == 1:
        values = {first.var: n.as_expr(0), second.var: both}
    new = Loop(both, simplify(first.extent * second.extent, known), rebind(second.body, values))
    return s.with_body(replace(s.func.body, first, new))


@move
def reorder(s: Schedule, block: str, order: tuple[str, ...]) -> Schedule:
    """Put loops around a block into another order.

    Legal if: they form a perfect nest around that one block (loops that are not named may stand between), and no
    extent depends on a loop that would come later.

    Before: for i, for j, for k
    After: reorder("C", ("k", "i")): for k, for j, for i
    """
    loops, target = s.nest(block)
    named = [loop for loop in loops if loop.var.name in order]
    if len(named) != len(order):
        have = ", ".join(loop.var.name for loop in loops)
        raise ScheduleError(f"not all of {order} are around {block}", hint=f"there are {have}")
    first, last = loops.index(named[0]), loops.index(named[-1])
    chain = loops[first : last + 1]
    for outer, inner in zip(chain, chain[1:], strict=False):
        if outer.body is not inner:
            raise ScheduleError("the loops are not perfectly nested", node=show_loop(chain[0]))
    if len(list(ir.blocks(chain[-1].body))) > 1:
        raise ScheduleError("there is more than one block inside", node=show_loop(chain[0]))
    by_name = {loop.var.name: loop for loop in named}
    wanted = iter(order)
    new = [by_name[next(wanted)] if loop.var.name in by_name else loop for loop in chain]
    body = chain[-1].body
    for k, loop in reversed(list(enumerate(new))):
        later = {x.var for x in new[k:]}
        if later & set(free_vars(loop.extent)):
            raise ScheduleError("an extent depends on a loop further in", node=show_loop(loop))
        body = loop.with_(body=body)
    del target
    return s.with_body(replace(s.func.body, chain[0], body))


def _set_kind(s: Schedule, loop: Loop, kind: str) -> Schedule:
    if loop.kind != "serial":
        raise ScheduleError(f"the loop is {loop.kind} already", node=show_loop(loop))
    return s.with_body(replace(s.func.body, loop, loop.with_(kind=kind)))


def check_independent(loop: Loop, func: ir.Function, kind: str) -> None:
    """Raise ScheduleError unless the iterations write different elements."""
    buffers = func.buffers
    for b in ir.blocks(loop.body):
        if any(loop.var in free_vars(i.binding) for i in b.reduce):
            raise ScheduleError(
                f"{loop.var.name} reduces into {b.buffer}: it cannot be {kind}",
                node=show_loop(loop),
                hint="rfactor it first",
            )
        private = buffers[b.buffer].scope in ("local", "register")
        if not private and not any(loop.var in free_vars(i.binding) for i in b.spatial):
            raise ScheduleError(
                f"every iteration of {loop.var.name} writes the same elements of {b.buffer}",
                node=show_loop(loop),
                hint=f"compute {b.name} outside of the loop, or keep {b.buffer} local",
            )


@move
def parallel(s: Schedule, path: str) -> Schedule:
    """Run the loop's iterations on several threads.

    Legal if: the loop reduces nothing, and no two iterations write the same element of a buffer that is not local.

    Before: for i in serial(64)
    After: for i in parallel(64)
    """
    loop = s.loop(path)
    check_independent(loop, s.func, "parallel")
    return _set_kind(s, loop, "parallel")


@move
def vectorize(s: Schedule, path: str) -> Schedule:
    """Run the loop's iterations as lanes of vectors.

    Legal if: the extent is constant and a power of two, and there is one block and no loop inside. A loop that reduces folds
    its lanes.

    Before: for i in serial(8)
    After: for i in vector(8)
    """
    loop = s.loop(path)
    extent = constant(loop.extent)
    if extent is None or extent & (extent - 1):
        raise ScheduleError("a vector loop has 2, 4, 8 ... iterations", node=show_loop(loop))
    if not isinstance(loop.body, Block):
        raise ScheduleError("only a loop around one block can be vectorized", node=show_loop(loop))
    return _set_kind(s, loop, "vector")


@move
def unroll(s: Schedule, path: str) -> Schedule:
    """Repeat the body for each iteration.

    Legal if: the extent is constant.

    Before: for i in serial(4)
    After: for i in unrolled(4)
    """
    loop = s.loop(path)
    if constant(loop.extent) is None:
        raise ScheduleError("the extent is not constant", node=show_loop(loop))
    return _set_kind(s, loop, "unrolled")
