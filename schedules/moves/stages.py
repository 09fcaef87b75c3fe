"""Moves on stages: where a buffer is computed."""

from __future__ import annotations

from collections.abc import Sequence

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Domain, extremes
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.expr.simplify import prove, simplify
from planish.compiler.loop import ir
from planish.compiler.loop.affine import Formula
from planish.compiler.loop.ir import Block, Function, Iter, Loop, Stmt, constant
from planish.compiler.loop.known import Known, entered
from planish.compiler.loop.sites import Site
from planish.schedules.edit import map_loads, replace, without
from planish.schedules.legality import (
    CONCURRENT,
    check_anew,
    check_concurrent,
    check_loops,
    check_scope,
    check_stage,
    check_still,
    decided,
    enclosing,
    own_variables,
    readers,
    root_of,
)
from planish.schedules.schedule import Schedule, move, ranges, show_loop

from .buffers import layout
from .caches import cache_read, cache_write
from .iterators import merge

__all__ = ["cache_read", "cache_write", "compute_at", "inline", "layout", "merge"]


@move
def inline(s: Schedule, name: str) -> Schedule:
    """Compute a stage where it is read, instead of storing it.

    Legal if: the block is spatial, computes all of a temporary buffer at its iterators, and stands
    before its readers; and nothing that it reads is written before they are done.

    Before:
        def f(x: f32[8], *, C: f32[8]):
            T = buffer(f32[8], "global")
            for i in serial(8):
                with block("T", i0=spatial(8, i)):
                    T[i0] = x[i0] * f32(2.0)
            for i in serial(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = T[i0] + f32(1.0)
    Move:
        inline("T")
    After:
        def f(x: f32[8], *, C: f32[8]):
            for i in serial(8):
                with block("C", i0=spatial(8, i)):
                    C[i0] = x[i0] * f32(2.0) + f32(1.0)
    """
    root, source = root_of(s, name)
    block, buffer = source.block, source.block.buffer
    if block.combiner is not None:
        raise ScheduleError(f"{name} is a reduction: it must be stored", node=show_loop(root))
    if s.func.buffers[buffer].scope == "param":
        raise ScheduleError(f"{buffer} is a parameter: it must be stored", node=show_loop(root))
    check_stage(s, source)
    for reader in readers(s.func, buffer):
        check_still(s, source, reader)
        _check_undecided(buffer, reader)
    axes = [i.var for i in block.spatial]

    def expand(load: Load, _: Block | None) -> Expr:
        return n.substitute(block.value, dict(zip(axes, load.indices, strict=True)))

    body = map_loads(replace(s.func.body, root, None), buffer, expand, block.origin)
    func = without(s.func.with_(body=body), buffer)
    check_concurrent(func)
    return s.with_func(func)


def _check_undecided(buffer: str, reader: Site) -> None:
    if buffer in decided(reader):
        raise ScheduleError(
            f"{buffer} decides whether {reader.block.name} runs: it must be stored",
            node=show_loop(reader.loops[0] if reader.loops else reader.block),
        )


@move
def compute_at(s: Schedule, name: str, path: str, scope: str = "") -> Schedule:
    """Compute, inside a loop of its readers, just the part of a stage that is read there.

    The stage gets new loops over the box that is read inside the loop, in front of its first
    reader; ``scope`` moves its buffer.

    Legal if: the block computes all of a buffer at its iterators and stands before its readers,
    which are all inside the loop, and none of which starts from it a reduction along the loop or
    one around; what it reads is not written before they are done, and is all there if elements may
    be computed that were left out so far; the box has a size that is the same in all iterations, a
    constant one in registers; and the boxes make up the whole of a parameter.

    Before:
        def f(x: f32[32], *, C: f32[32]):
            T = buffer(f32[32], "global")
            for i in serial(32):
                with block("T", i0=spatial(32, i)):
                    T[i0] = x[i0] * f32(2.0)
            for i_0 in serial(4):
                for i_1 in serial(8):
                    with block("C", i0=spatial(32, i_0 * 8 + i_1)):
                        C[i0] = T[i0] + f32(1.0)
    Move:
        compute_at("T", "C.i_0", "local")
    After:
        def f(x: f32[32], *, C: f32[32]):
            T = buffer(f32[32], "local")
            for i_0 in serial(4):
                for T_i0 in serial(8):
                    with block("T", i0=spatial(32, i_0 * 8 + T_i0)):
                        T[i0] = x[i0] * f32(2.0)
                for i_1 in serial(8):
                    with block("C", i0=spatial(32, i_0 * 8 + i_1)):
                        C[i0] = T[i0] + f32(1.0)
    """
    root, source = root_of(s, name)
    loop, buffer = s.loop(path), s.func.buffers[source.block.buffer]
    check_stage(s, source)
    if scope and buffer.scope == "param":
        raise ScheduleError(
            f"{buffer.name} is a parameter: it stays in memory",
            node=show_loop(root),
            hint="cache_write it first",
        )
    if loop.kind == "vector":
        raise ScheduleError("a vector loop holds one block", node=show_loop(loop))
    inside = _readers_inside(s, source, loop)
    around = inside[0].loops[: inside[0].loops.index(loop) + 1]
    for reader in inside:
        _check_start(buffer.name, reader, around)
    check_still(s, source, inside[0], len(around))
    check_anew(s, source, inside[0], {x.var for x in source.loops if x not in around})
    known = ranges(s.func, around)
    box = _box(inside, source.block, known, s.func)
    _check_shared(source, around, box, own_variables(root), known)
    if buffer.scope == "param" and not _covers(s.func, inside, around, box, buffer.shape):
        raise ScheduleError(f"not all of {buffer.name} is read in the loop", node=show_loop(loop))
    new = _regenerated(s.func, source.block, box, around, scope)
    check_loops(s, own_names(new), around, source.block)
    left = s.with_body(replace(s.func.body, root, None))
    target = left.loop(f"{inside[0].block.name}.{loop.var.name}")
    body = _before_reader(target.body, new, buffer.name)
    func = left.func.with_(body=replace(left.func.body, target, target.with_(body=body)))
    if scope:
        to = check_scope(scope)
        func = func.with_buffer(ir.Buffer(buffer.name, buffer.dtype, buffer.shape, to))
    if enclosing(around, CONCURRENT) is not None:
        check_concurrent(func)
    return s.with_func(func)


def own_names(root: Stmt) -> list[str]:
    """The names of the loops in a statement."""
    return [x.var.name for x in ir.walk(root) if isinstance(x, Loop)]


def _readers_inside(s: Schedule, source: Site, loop: Loop) -> list[Site]:
    """The readers of a stage, all of which must be inside the loop."""
    buffer = source.block.buffer
    found = readers(s.func, buffer)
    inside = [x for x in found if loop in x.loops]
    if not inside:
        raise ScheduleError(f"nothing in the loop reads {buffer}", node=show_loop(loop))
    for x in found:
        if x not in inside:
            raise ScheduleError(
                f"{x.block.name} reads {buffer} outside of the loop", node=show_loop(loop)
            )
        _check_undecided(buffer, x)
    return inside


def _check_start(buffer: str, reader: Site, around: Sequence[Loop]) -> None:
    """The starting value of a reduction is stored in front of all its loops."""
    b = reader.block
    if b.init is None or all(x.buffer != buffer for x in n.loads(b.init)):
        return
    used = {v for i in b.reduce for v in free_vars(i.binding)}
    for loop in around:
        if loop.var in used:
            raise ScheduleError(
                f"{b.name} starts from {buffer}, in front of {loop.var.name}", node=show_loop(loop)
            )


def _check_shared(
    source: Site,
    around: Sequence[Loop],
    box: Sequence[tuple[Expr, Expr]],
    own: set[Var],
    known: Known,
) -> None:
    """A stage's iterators that follow loops around its readers must go on to do so."""
    b = source.block
    both = {x.var for x in source.loops if x in around} - own
    if not both.isdisjoint(v for i in b.reduce for v in free_vars(i.binding)):
        raise ScheduleError(
            f"{b.name} reduces in a loop that its readers are in", node=show_loop(source.loops[0])
        )
    for i, (lo, extent) in zip(b.spatial, box, strict=True):
        if both.isdisjoint(free_vars(i.binding)):
            continue
        if constant(extent) != 1 or simplify(i.binding, known) is not lo:
            raise ScheduleError(
                f"{b.name} computes {i.var.name} = {i.binding} there, and {extent} from {lo} on "
                "are read",
                node=show_loop(source.loops[0]),
            )


def _before_reader(body: Stmt, new: Stmt, buffer: str) -> Stmt:
    parts = body.body if isinstance(body, ir.Seq) else (body,)
    at = next(k for k, part in enumerate(parts) if _loads(part, buffer))
    return ir.seq(*parts[:at], new, *parts[at:])


def _loads(s: Stmt, buffer: str) -> bool:
    for b in ir.blocks(s):
        roots = (b.value, *b.indices, b.where, *(() if b.init is None else (b.init,)))
        if any(x.buffer == buffer for x in n.loads(*roots)):
            return True
    return False


def _box(
    inside: Sequence[Site], block: Block, outer: Known, func: Function
) -> list[tuple[Expr, Expr]]:
    """Least index and extent along each dimension that the readers need.

    The ends of what a reader needs are right where its loops are entered; elsewhere it needs
    nothing, and the box of all readers is none the smaller for them.
    """
    boxes: list[tuple[Expr, Expr]] | None = None
    for site in inside:
        own = [x for x in site.loops if x.var not in outer]
        domain = {x.var: (n.as_expr(0), x.extent - 1) for x in own}
        known = entered(outer, own)
        for access in site.accesses:
            if access.buffer != block.buffer or access.kind != "read":
                continue
            here = []
            for index, dim in zip(access.indices, func.buffers[block.buffer].shape, strict=True):
                bound = simplify(index, known)
                hull = None if n.loads(bound) else extremes(bound, domain)
                if hull is None or n.loads(*hull):
                    hull = n.as_expr(0), dim - 1
                lo, hi = hull
                here.append((simplify(lo, known), simplify(hi, known)))
            if boxes is None:
                boxes = here
            else:
                boxes = [
                    (simplify(n.minimum(a, c), outer), simplify(n.maximum(p, q), outer))
                    for (a, p), (c, q) in zip(boxes, here, strict=True)
                ]
    assert boxes is not None
    return [(lo, simplify(hi - lo + 1, outer)) for lo, hi in boxes]


def _covers(
    func: Function,
    inside: Sequence[Site],
    around: Sequence[Loop],
    box: Sequence[tuple[Expr, Expr]],
    shape: Sequence[Expr],
) -> bool:
    """Whether the boxes of all iterations are the whole buffer."""
    if any(x.guards for x in inside):
        return False
    loops = {x.var: f"a{k}" for k, x in enumerate(around)}
    whole, part = Formula(), Formula()
    for x in around:
        part.between(loops[x.var], x.extent, loops)
    for k, ((lo, extent), dim) in enumerate(zip(box, shape, strict=True)):
        whole.between(f"e{k}", dim, {})
        start, count = part.term(lo, loops), part.term(extent, loops)
        part.add(None if start is None or count is None else f"{start} <= e{k} < {start} + {count}")
    for symbol in func.symbols:
        whole.add(f"{whole.term(symbol, {})} >= 0")
    if not (whole.exact and part.exact):
        return False
    elements = [f"e{k}" for k in range(len(shape))]
    reached = part.set([*elements, *loops.values()])
    for _ in loops:
        reached = reached.project_out(_set_dimension(), len(elements), 1)
    return bool(whole.set(elements).subtract(reached).is_empty())


def _set_dimension() -> object:
    import islpy

    return islpy.dim_type.set


def _regenerated(
    func: Function,
    block: Block,
    box: Sequence[tuple[Expr, Expr]],
    around: Sequence[Loop],
    scope: str,
) -> Stmt:
    """The block in new loops over the box."""
    loops: list[Loop] = []
    iters: list[Iter] = []
    where: Expr = n.TRUE
    spatial = iter(box)
    for i in block.iters:
        var = Var(f"{block.name}_{i.var.name}")
        if i.kind == "reduce":
            loops.append(Loop(var, i.extent, block))
            iters.append(Iter(i.var, i.extent, i.kind, var))
            continue
        lo, extent = next(spatial)
        _check_size(func, block, extent, scope)
        bound = lo
        if constant(extent) != 1:
            loops.append(Loop(var, extent, block))
            bound = simplify(lo + var, ranges(func, (*around, *loops)))
        iters.append(Iter(i.var, i.extent, i.kind, bound))
        where = n.all_of(where, _outside(func, i, bound, (*around, *loops)))
    out: Stmt = block.with_(iters=tuple(iters), where=where)
    for x in reversed(loops):
        out = x.with_(body=out)
    return out


def _check_size(func: Function, block: Block, extent: Expr, scope: str) -> None:
    if any(v not in func.symbols for v in free_vars(extent)):
        raise ScheduleError(
            f"the box of {block.buffer} changes its size: {extent}", node=show_loop(block)
        )
    if scope == "register" and constant(extent) is None:
        raise ScheduleError(
            f"{block.buffer} in registers needs a constant box, not {extent}",
            node=show_loop(block),
        )


def _outside(func: Function, i: Iter, bound: Expr, loops: tuple[Loop, ...]) -> Expr:
    """The condition for what an iterator is bound to being in its extent; true if it always is."""
    known = ranges(func, loops)
    over, under = n.lt(bound, i.extent), n.le(0, bound)
    kept = [c for c in (over, under) if not prove(c, known)]
    if kept and (ends := extremes(bound, domain(loops), known)) is not None:
        if over in kept and prove(ends[1] < i.extent, known):
            kept.remove(over)
        if under in kept and prove(n.le(0, ends[0]), known):
            kept.remove(under)
    return n.all_of(*kept)


def domain(loops: Sequence[Loop]) -> Domain:
    """What the variables of loops run through."""
    return {x.var: (n.as_expr(0), x.extent - 1) for x in loops}
