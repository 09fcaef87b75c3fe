"""Moves on stages: where a buffer is computed, in what form it is kept."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, extremes
from planish.compiler.expr.nodes import Const, Expr, Load, Var, free_vars
from planish.compiler.expr.simplify import prove, simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, constant

from planish.schedules.schedule import (
    Schedule,
    iterator_ranges,
    move,
    ranges,
    replace,
    show_loop,
)


def _writer(func: Function, buffer: str) -> Block | None:
    found = [b for b in ir.blocks(func.body) if b.buffer == buffer]
    return found[0] if len(found) == 1 else None


def _readers(s: Stmt, buffer: str) -> list[tuple[tuple[Loop, ...], Block]]:
    return [(loops, b) for loops, b in ir.nests(s) if any(x.buffer == buffer for x in ir.reads(b))]


def _is_identity(b: Block) -> bool:
    """Whether the block writes at its spatial iterators, in order."""
    return len(b.indices) == len(b.spatial) and all(
        x is i.var or (constant(i.extent) == 1 and constant(x) == 0)
        for x, i in zip(b.indices, b.spatial, strict=True)
    )


def _root_nest(s: Schedule, name: str) -> tuple[Stmt, Block]:
    """The outermost statement that holds the block alone."""
    loops, block = s.nest(name)
    root: Stmt = block
    for loop in reversed(loops):
        if len(list(ir.blocks(loop))) != 1:
            break
        root = loop
    return root, block


def _own(root: Stmt) -> set[Var]:
    """The variables of the loops in a statement."""
    return {x.var for x in ir.walk(root) if isinstance(x, Loop)}


def _drop(func: Function, buffer: str) -> Function:
    return func.with_(temps=tuple(t for t in func.temps if t.name != buffer))


@move
def inline(s: Schedule, name: str) -> Schedule:
    """Compute a stage where it is read, instead of storing it.

    Legal if: the block is spatial, unconditional, writes at its iterators, and its buffer is temporary.

    Before: T[i] = x[i] * 2; C[i] = T[i] + 1
    After: C[i] = x[i] * 2 + 1
    """
    root, block = _root_nest(s, name)
    buffer = block.buffer
    if block.combiner is not None or block.where is not n.TRUE or not _is_identity(block):
        raise ScheduleError(f"{name} is not a plain elementwise stage", node=show_loop(root))
    if s.func.buffers[buffer].scope == "param":
        raise ScheduleError(f"{buffer} is a parameter: it must be stored", node=show_loop(root))
    axes = [i.var for i in block.spatial]

    def expand(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == buffer:
            return n.substitute(block.value, dict(zip(axes, e.indices, strict=True)))
        return None

    def change(b: Block) -> Block:
        if not any(x.buffer == buffer for x in ir.reads(b)):
            return b
        return b.with_(
            value=n.transform(b.value, expand),
            indices=tuple(n.transform(i, expand) for i in b.indices),
            origin=b.origin | block.origin,
        )

    body = ir.map_blocks(replace(s.func.body, root, None), change)
    return Schedule(_drop(s.func.with_(body=body), buffer), s.trace)


@move
def compute_at(s: Schedule, name: str, path: str, scope: str = "") -> Schedule:
    """Compute, inside a loop of its reader, just the part of a stage that is read there.

    The stage gets new loops over the box that the iterations inside the loop read; ``scope`` moves its buffer
    ("register", "local").

    Legal if: the stage writes at its iterators, everything that reads it is inside the loop, and its box has a constant
    extent where the buffer is kept in registers.

    Before: for i: T[i] = ...; for i_0: for i_1: C[i] = T[i_0 * 8 + i_1]
    After: for i_0: (for T_i in serial(8): T[i_0 * 8 + T_i] = ...; for i_1: C[i] = ...)
    """
    root, block = _root_nest(s, name)
    loop = s.loop(path)
    if not _is_identity(block):
        raise ScheduleError(f"{name} does not write at its iterators", node=show_loop(root))
    inside, everywhere = _readers(loop, block.buffer), _readers(s.func.body, block.buffer)
    if not inside:
        raise ScheduleError(f"nothing in the loop reads {block.buffer}", node=show_loop(loop))
    if len(inside) != len(everywhere):
        raise ScheduleError(f"{block.buffer} is read outside of the loop", node=show_loop(loop))
    around = s.loops(inside[0][1].name)
    around = around[: next(k for k, x in enumerate(around) if x is loop) + 1]
    outer = ranges(s.func, around)
    box = _box(inside, block, outer, s.func)
    new = _regenerated(s.func, block, box, outer, scope)
    body = replace(s.func.body, root, None)
    target = next(x for x in ir.walk(body) if isinstance(x, Loop) and _same_loop(x, loop))
    body = replace(body, target, target.with_(body=_before_reader(target.body, new, block.buffer)))
    func = s.func.with_(body=body)
    if scope:
        b = func.buffers[block.buffer]
        if b.scope == "param":
            raise ScheduleError(f"{b.name} is a parameter: it stays in memory", hint="cache_write")
        func = func.with_buffer(Buffer(b.name, b.dtype, b.shape, scope))  # type: ignore[arg-type]
    return Schedule(func, s.trace)


def _same_loop(a: Loop, b: Loop) -> bool:
    return a is b or (a.var is b.var and a == b)


def _before_reader(body: Stmt, new: Stmt, buffer: str) -> Stmt:
    parts = body.body if isinstance(body, ir.Seq) else (body,)
    at = next(k for k, part in enumerate(parts) if _readers(part, buffer))
    return ir.seq(*parts[:at], new, *parts[at:])


def _box(
    readers: list[tuple[tuple[Loop, ...], Block]],
    block: Block,
    outer: dict[Var, n.Expr],
    func: Function,
) -> list[tuple[Expr, Expr]]:
    """Least index and extent along each dimension that the readers need."""
    boxes: list[tuple[Expr, Expr]] | None = None
    for loops, b in readers:
        domain: dict[Var, tuple[Expr, Expr]] = {}
        known = dict(outer)
        for x in loops:
            if x.var not in outer:
                domain[x.var] = (n.as_expr(0), x.extent - 1)
                known.update(ranges(func, (x,)))
        values = b.bindings
        for load in ir.reads(b):
            if load.buffer != block.buffer:
                continue
            here = []
            for index, dim in zip(load.indices, block.spatial, strict=True):
                bound = simplify(n.substitute(index, values), known)
                hull = None if n.loads(bound) else extremes(bound, domain)
                lo, hi = hull if hull is not None else (n.as_expr(0), dim.extent - 1)
                here.append((simplify(lo, known), simplify(hi, known)))
            if boxes is None:
                boxes = here
            else:
                boxes = [
                    (simplify(n.minimum(a, c), known), simplify(n.maximum(p, q), known))
                    for (a, p), (c, q) in zip(boxes, here, strict=True)
                ]
    assert boxes is not None
    return [(lo, simplify(hi - lo + 1, outer)) for lo, hi in boxes]  # type: ignore[arg-type]


def _regenerated(
    func: Function,
    block: Block,
    box: list[tuple[Expr, Expr]],
    outer: dict[Var, n.Expr],
    scope: str,
) -> Stmt:
    """The block in new loops over the box, spatial ones first."""
    loops: list[tuple[Var, Expr]] = []
    iters: list[Iter] = []
    where: Expr = n.TRUE
    known = dict(outer)
    spatial = iter(box)
    for i in block.iters:
        if i.kind == "reduce":
            var = Var(f"{block.name}_{i.var.name}")
            loops.append((var, i.extent))
            iters.append(Iter(i.var, i.extent, i.kind, var))
            continue
        lo, extent = next(spatial)
        if any(v in outer and v not in func.symbols for v in free_vars(extent)):
            raise ScheduleError(f"the box of {block.buffer} changes its size: {extent}", node=str(lo))
        if scope == "register" and constant(extent) is None:
            raise ScheduleError(f"{block.buffer} in registers needs a constant box, not {extent}")
        if constant(extent) == 1:
            iters.append(Iter(i.var, i.extent, i.kind, lo))
            bound: Expr = lo
        else:
            var = Var(f"{block.name}_{i.var.name}")
            loops.append((var, extent))
            known.update(ranges(func, (Loop(var, extent, block),)))  # type: ignore[arg-type]
            bound = simplify(lo + var, known)  # type: ignore[arg-type]
            iters.append(Iter(i.var, i.extent, i.kind, bound))
        if not prove(n.lt(bound, i.extent), known):  # type: ignore[arg-type]
            where = n.all_of(where, n.lt(bound, i.extent))
        if not prove(n.le(0, bound), known):  # type: ignore[arg-type]
            where = n.all_of(where, n.le(0, bound))
    out: Stmt = block.with_(iters=tuple(iters), where=where)
    for var, extent in reversed(loops):
        out = Loop(var, extent, out)
    return out


@move
def cache_write(s: Schedule, name: str, scope: str) -> Schedule:
    """Let a block write into a buffer of its own, which a new block copies to where it wrote before.

    The new block is called as the old one, which becomes ``name_cache``.

    Legal if: the block writes at its iterators.

    Before: C[i] += x[i, k]
    After: C_cache[i] += x[i, k]; C[i] = C_cache[i]
    """
    root, block = _root_nest(s, name)
    if not _is_identity(block):
        raise ScheduleError(f"{name} does not write at its iterators", node=show_loop(root))
    target = s.func.buffers[block.buffer]
    cache = Buffer(f"{target.name}_cache", target.dtype, target.shape, scope)  # type: ignore[arg-type]
    moved = block.with_(name=f"{name}_cache", buffer=cache.name)
    own = _own(root)
    iters, loops = [], []
    for i in block.spatial:
        inside = bool(own & set(free_vars(i.binding)))  # else a loop that other blocks share
        iters.append(Iter(i.var, i.extent, "spatial", i.var if inside else i.binding))
        if inside:
            loops.append(i)
    axes = tuple(i.var for i in iters)
    copy: Stmt = Block(
        name, tuple(iters), target.name, axes, Load(cache.name, axes, target.dtype), origin=block.origin
    )
    for i in reversed(loops):
        copy = Loop(i.var, i.extent, copy)
    body = replace(s.func.body, root, ir.seq(replace(root, block, moved), copy))
    return Schedule(s.func.with_(body=body).with_buffer(cache), s.trace)


@move
def cache_read(s: Schedule, buffer: str, reader: str, scope: str) -> Schedule:
    """Let a block read a copy of a buffer; the copying block is called ``buffer_cache``.

    Legal if: the block reads the buffer.

    Before: C[i] = x[i] + 1
    After: x_cache[i] = x[i]; C[i] = x_cache[i] + 1
    """
    loops, block = s.nest(reader)
    source = s.func.buffers.get(buffer)
    if source is None or not any(x.buffer == buffer for x in ir.reads(block)):
        raise ScheduleError(f"{reader} does not read {buffer}")
    cache = Buffer(f"{buffer}_cache", source.dtype, source.shape, scope)  # type: ignore[arg-type]
    axes = tuple(Var(f"i{k}") for k in range(len(source.shape)))
    iters = tuple(Iter(v, d, "spatial", v) for v, d in zip(axes, source.shape, strict=True))
    copy: Stmt = Block(cache.name, iters, cache.name, axes, Load(buffer, axes, source.dtype))
    for i in reversed(iters):
        copy = Loop(i.var, i.extent, copy)

    def rename(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == buffer:
            return Load(cache.name, e.indices, e.type)
        return None

    moved = block.with_(
        value=n.transform(block.value, rename),
        indices=tuple(n.transform(i, rename) for i in block.indices),
    )
    outermost: Stmt = loops[0] if loops else block
    body = replace(s.func.body, block, moved)
    first = next(x for x in _top(body) if moved in list(ir.blocks(x)))
    del outermost
    body = replace(body, first, ir.seq(copy, first))
    return Schedule(s.func.with_(body=body).with_buffer(cache), s.trace)


def _top(body: Stmt) -> tuple[Stmt, ...]:
    return body.body if isinstance(body, ir.Seq) else (body,)


@move
def merge(s: Schedule, name: str, first: str, second: str) -> Schedule:
    """Make one iterator of two neighbouring spatial ones, and one loop of their loops.

    Unlike ``fuse``, which leaves the iterators alone, it makes tiles possible that cross the end of a row.

    Legal if: the iterators are bound to loops of their own, one directly inside the other.

    Before: for i, for j: block(i=spatial(4, i), j=spatial(8, j)): C[i, j] = ...
    After: for i_j: block(i_j=spatial(32, i_j)): C[i_j // 8, i_j % 8] = ...
    """
    loops, block = s.nest(name)
    by_name = {i.var.name: i for i in block.iters}
    if first not in by_name or second not in by_name:
        raise ScheduleError(f"{name} has no iterators {first}, {second}", node=show_loop(block))
    a, b = by_name[first], by_name[second]
    if a.kind != b.kind:
        raise ScheduleError("only iterators of one kind can be merged", node=show_loop(block))
    outer = next((x for x in loops if x.var is a.binding), None)
    if outer is None or not isinstance(outer.body, Loop) or outer.body.var is not b.binding:
        raise ScheduleError("their loops are not directly nested", node=show_loop(block))
    var = Var(f"{first}_{second}")
    values = {a.var: var // b.extent, b.var: var % b.extent}
    iters = tuple(
        Iter(var, a.extent * b.extent, a.kind, var) if i is a else i for i in block.iters if i is not b
    )
    known = {var: n.as_expr(0)}
    del known
    fresh = block.with_(
        iters=iters,
        indices=tuple(n.substitute(i, values) for i in block.indices),
        value=n.substitute(block.value, values),
    )
    inner = outer.body
    new = Loop(var, a.extent * b.extent, replace(inner.body, block, fresh))
    return s.with_body(replace(s.func.body, outer, new))


@move
def layout(s: Schedule, buffer: str, dims: tuple[str, ...], shape: tuple[object, ...]) -> Schedule:
    """Keep a buffer in another order: its element ``d0, d1 ...`` is stored at ``dims``, in ``shape``.

    ``dims`` are expressions over d0, d1 ...; ``shape`` are numbers or expressions over the symbols. A parameter's
    caller must give it in this form (constants are brought into it when the model is compiled); what the old
    form did not have is zero.

    Legal if: different elements are stored at different places within the shape.

    Before: B[k, n], B: f32[64, 40]
    After: layout("B", ("d1 // 16", "d0", "d1 % 16"), (3, 64, 16)): B[n // 16, k, n % 16], B: f32[3, 64, 16]
    """
    from planish.compiler.expr.text import parse

    old = s.func.buffers.get(buffer)
    if old is None:
        raise ScheduleError(f"there is no buffer {buffer}")
    forms = [parse(d) for d in dims]
    axes = [Var(f"d{k}") for k in range(len(old.shape))]
    extents = tuple(parse(x) if isinstance(x, str) else n.as_expr(x) for x in shape)  # type: ignore[arg-type]
    symbols = set(s.func.symbols)
    for f in (*forms, *extents):
        extra = [v for v in free_vars(f) if v not in axes and v not in symbols]
        if extra:
            raise ScheduleError(f"{extra[0]} is no dimension of {buffer}", node=str(f))

    def place(indices: tuple[Expr, ...], known: dict[Var, Interval]) -> tuple[Expr, ...]:
        values = dict(zip(axes, indices, strict=True))
        return tuple(simplify(n.substitute(f, values), known) for f in forms)

    def change(b: Block) -> Block:
        if b.buffer != buffer and all(x.buffer != buffer for x in ir.reads(b)):
            return b
        known = iterator_ranges(s.func, b)

        def change_load(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.buffer == buffer:
                return Load(buffer, place(e.indices, known), e.type)
            return None

        indices = tuple(n.transform(i, change_load) for i in b.indices)
        if b.buffer == buffer:
            indices = place(indices, known)
        return b.with_(indices=indices, value=n.transform(b.value, change_load))

    func = s.func.with_(body=ir.map_blocks(s.func.body, change))
    return Schedule(func.with_buffer(Buffer(buffer, old.dtype, extents, old.scope)), s.trace)


__all__ = ["Const", "cache_read", "cache_write", "compute_at", "inline", "layout", "merge"]
