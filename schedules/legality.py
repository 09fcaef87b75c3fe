"""What moves ask before they act, and the errors that say no.

Questions about the order of instances go to ``polyhedral``, which tries plain arithmetic first.
What the block semantics settle is not asked there: different points of a block write different
elements, and a buffer is written before it is read within one iteration of the innermost loop
around all its blocks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from planish.compiler.errors import ScheduleError
from planish.compiler.expr.nodes import Expr, Var, free_vars, loads
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Loop, Stmt, constant
from planish.compiler.loop.polyhedral import carried, reduces
from planish.compiler.loop.sites import Site, sites, start_where

from .completeness import is_complete, runs_within
from .schedule import Schedule, show_loop

GPU: Final = ("block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z")
CONCURRENT: Final = ("parallel", *GPU)

# ------------------------------------------------------------------------------------ places


def site_of(func: Function, block: Block) -> Site:
    """Where a block stands. (Sites are of an equal function, not always of the same objects.)"""
    found = next(x for x in sites(func.body) if x.block.name == block.name)
    return found if found.block is block else replace(found, block=block)


def uses(site: Site) -> set[str]:
    """The buffers that a block touches, or the conditions and extents around it."""
    return {a.buffer for a in site.accesses} | decided(site)


def reads(site: Site, buffer: str) -> bool:
    """Whether a block, or what is around it, loads from a buffer."""
    own = any(a.buffer == buffer and a.kind == "read" for a in site.accesses)
    return own or buffer in decided(site)


def decided(site: Site) -> set[str]:
    """The buffers that the conditions and extents around a block load from."""
    around = (*(c for c, _ in site.guards), *(x.extent for x in site.loops))
    return {x.buffer for x in loads(*around)}


def users(func: Function, buffer: str) -> list[Site]:
    """The sites that touch a buffer, in order."""
    return [x for x in sites(func.body) if buffer in uses(x)]


def readers(func: Function, buffer: str) -> list[Site]:
    """The sites that load from a buffer, but for the update of an element of its own."""
    return [x for x in users(func, buffer) if reads(x, buffer)]


def shared(a: Site, b: Site) -> int:
    """How many of the loops around two blocks are the same."""
    count = 0
    for x, y in zip(a.steps[:-1], b.steps[:-1], strict=False):
        if x != y:
            break
        count += 1
    return count


def common(found: Sequence[Site]) -> int:
    """How many loops are around all of the blocks."""
    return min(shared(found[0], x) if x is not found[0] else len(x.loops) for x in found)


# ------------------------------------------------------------------------------------- names


def check_loops(s: Schedule, names: Iterable[str], around: Sequence[Loop], inside: Stmt) -> None:
    """Raise unless loops of these names can stand between the loops around and a statement."""
    taken = {v.name for v in s.func.symbols} | {x.var.name for x in around}
    taken |= {x.var.name for x in ir.walk(inside) if isinstance(x, Loop)}
    for name in names:
        if name in taken or not name.isidentifier():
            raise ScheduleError(
                f"there is a loop {name} already", node=show_loop(around[0] if around else inside)
            )


def check_new(s: Schedule, block: str, buffer: str) -> None:
    """Raise unless a block and a buffer can get these names."""
    if any(b.name == block for b in ir.blocks(s.func.body)):
        raise ScheduleError(f"there is a block {block} already", node=show_loop(s.block(block)))
    if buffer in s.func.buffers or any(v.name == buffer for v in s.func.symbols):
        raise ScheduleError(f"{buffer} has a meaning already")


def check_scope(scope: str) -> ir.Scope:
    """The scope of a temporary buffer that is called so."""
    match scope:
        case "global" | "local" | "register":
            return scope
        case _:
            raise ScheduleError(
                f"there is no scope {scope!r} of temporary buffers",
                hint="global, local or register",
            )


def plain(s: Schedule, loop: Loop) -> Loop:
    """The loop itself, if it is an ordinary one."""
    if loop.kind != "serial":
        raise ScheduleError(
            f"the loop is {loop.kind}",
            node=show_loop(loop),
            hint=f"do this first, then make it {loop.kind}",
        )
    if loop.hint:
        raise ScheduleError(f"the loop is marked as {loop.hint}", node=show_loop(loop))
    if loads(loop.extent):
        raise ScheduleError("the extent depends on data", node=show_loop(loop))
    return loop


# ------------------------------------------------------------------------------------ stages


def is_identity(b: Block) -> bool:
    """Whether the block writes at its spatial iterators, in order."""
    return len(b.indices) == len(b.spatial) and all(
        x is i.var or (constant(i.extent) == 1 and constant(x) == 0)
        for x, i in zip(b.indices, b.spatial, strict=True)
    )


def check_stage(s: Schedule, site: Site) -> None:
    """Raise unless a block computes a buffer: alone, all of it, from other buffers."""
    b = site.block
    others = [x for x in sites(s.func.body) if x.block.name != b.name]
    reason = ""
    if not b.iters and not set(free_vars(b.value)) <= set(s.func.symbols):
        reason = f"{b.name} has no iterators"
    elif not is_identity(b):
        reason = f"{b.name} does not write at its iterators"
    elif b.combiner is not None and b.init is None:
        reason = f"{b.name} continues what is in {b.buffer}"
    elif any(a.buffer == b.buffer and a.kind == "read" for a in site.accesses):
        reason = f"{b.name} reads what it writes"
    elif site.guards or not runs_within(s.func, site):
        reason = f"{b.name} does not write all of {b.buffer}"
    elif any(x.block.buffer == b.buffer for x in others):
        names = ", ".join(x.block.name for x in others if x.block.buffer == b.buffer)
        reason = f"{b.buffer} is written by {names} as well"
    if reason:
        raise ScheduleError(reason, node=show_loop(site.loops[0] if site.loops else b))


def check_complete(s: Schedule, site: Site, own: Container[Var]) -> None:
    """Raise unless a block's own loops, while the others stand still, compute all that they can."""
    if not is_complete(s.func, site, own):
        raise ScheduleError(
            f"the loops around {site.block.name} leave out some of {site.block.buffer}",
            node=show_loop(site.loops[0] if site.loops else site.block),
        )


def check_anew(s: Schedule, source: Site, reader: Site, own: Container[Var]) -> None:
    """Raise if a stage may read what is not computed, once it computes elements that it left out.

    It leaves none out while its own loops run, or all that it reads is there before its reader.
    """
    if is_complete(s.func, source, own):
        return
    for name in sorted({a.buffer for a in source.accesses if a.kind == "read"}):
        if not is_whole(s.func, name, reader):
            raise ScheduleError(
                f"{source.block.name} leaves out some of {source.block.buffer}, for which "
                f"{name} may not be there",
                node=show_loop(source.loops[0] if source.loops else source.block),
            )


def is_whole(func: Function, buffer: str, before: Site) -> bool:
    """Whether all of a buffer is written in front of the outermost loop around a block."""
    if any(b.name == buffer for b in func.inputs):
        return True
    writers = (x for x in sites(func.body) if x.block.buffer == buffer)
    return any(w.steps[0] < before.steps[0] and _fills(func, w) for w in writers)


def _fills(func: Function, site: Site) -> bool:
    """Whether a block writes every element of its buffer."""
    b, shape = site.block, func.buffers[site.block.buffer].shape
    if not is_identity(b) or any(i.extent is not d for i, d in zip(b.spatial, shape, strict=True)):
        return False
    return is_complete(func, site)


def check_still(s: Schedule, source: Site, reader: Site, depth: int | None = None) -> None:
    """Raise unless a stage can as well be computed where a reader of it stands.

    It can if it stands before the reader, and what it reads is not written in between. ``depth``:
    how many of the reader's loops will be around it, if not all; it is then computed in front of
    the part that the reader is in.
    """
    level = shared(source, reader)
    ahead = depth is not None and depth <= level
    level = level if depth is None else min(depth, level)
    start, end = source.steps[level], reader.steps[level]
    name, buffer = source.block.name, source.block.buffer
    if start >= end:
        raise ScheduleError(
            f"{reader.block.name} reads {buffer} before {name} writes it",
            node=_both(source, reader),
        )
    needs = uses(source) - {buffer}
    for w in sites(s.func.body):
        if w.block.buffer not in needs or shared(w, source) < level:
            continue
        if start <= w.steps[level] and (
            w.steps[level] < end or (w.steps[level] == end and not ahead)
        ):
            raise ScheduleError(
                f"{w.block.name} writes {w.block.buffer}, which {name} reads, before "
                f"{reader.block.name} is done",
                node=_both(source, w),
            )


def _both(a: Site, b: Site) -> str:
    """What is around two blocks, or the blocks."""
    k = shared(a, b)
    if k:
        return show_loop(a.loops[k - 1])
    return "\n".join(show_loop(x.loops[0] if x.loops else x.block) for x in (a, b))


# ------------------------------------------------------------------------------ concurrency


def check_independent(func: Function, loop: Loop, kind: str) -> None:
    """Raise ScheduleError unless the iterations can run at the same time."""
    if (block := reduces(loop)) is not None:
        raise ScheduleError(
            f"{loop.var.name} reduces into {block.buffer}: it cannot be {kind}",
            node=show_loop(loop),
            hint="rfactor it first",
        )
    _check_private(func, loop, kind)
    check_distinct(func, loop, kind)


def check_distinct(func: Function, loop: Loop, kind: str) -> None:
    """Raise ScheduleError if iterations touch an element that one of them writes."""
    stores, same = as_stores(func, loop)
    conflict = carried(stores, same)
    if conflict is None:
        return
    name, buffer = conflict.source.name, conflict.buffer
    if name == conflict.sink.name and not any(x.buffer == buffer for x in ir.loaded(conflict.sink)):
        raise ScheduleError(
            f"iterations of {loop.var.name} write the same elements of {buffer}: "
            f"it cannot be {kind}",
            node=show_loop(loop),
            hint=f"compute {name} outside of the loop, or keep {buffer} local",
        )
    raise ScheduleError(f"{conflict}: it cannot be {kind}", node=show_loop(loop))


def as_stores(func: Function, loop: Loop) -> tuple[Function, Loop]:
    """The function with reductions as stores, because updates at the same time are wrong too."""
    if all(b.combiner is None for b in ir.blocks(loop)):
        return func, loop

    def change(b: Block) -> Block:
        if b.combiner is None:
            return b
        iters = tuple(ir.Iter(i.var, i.extent, "spatial", i.binding) for i in b.iters)
        where = b.where if b.init is None else start_where(b)
        return b.with_(iters=iters, combiner=None, init=None, where=where)

    body = ir.map_blocks(func.body, change)
    pairs = zip(ir.walk(func.body), ir.walk(body), strict=True)
    same = next(new for old, new in pairs if old is loop)
    assert isinstance(same, Loop)
    return func.with_(body=body), same


def _check_private(func: Function, loop: Loop, kind: str) -> None:
    """Scratch of a thread is used inside of its loop only."""
    scopes = ("register",) if kind.startswith("thread") else ("local", "register")
    own = {b.name for b in func.temps if b.scope in scopes}
    inside = {b.name for b in ir.blocks(loop)}
    within: set[str] = set()
    outside: set[str] = set()
    for x in sites(func.body) if own else ():
        (within if x.block.name in inside else outside).update(uses(x) & own)
    for name in sorted(within & outside):
        raise ScheduleError(
            f"{name} is {func.buffers[name].scope}, and used outside of {loop.var.name} as well: "
            f"it cannot be {kind}",
            node=show_loop(loop),
            hint=f'set_scope("{name}", "global"), or compute it inside',
        )


def check_concurrent(func: Function) -> None:
    """Raise ScheduleError unless the loops that run at the same time still can."""
    for loop in ir.walk(func.body):
        if isinstance(loop, Loop) and loop.kind in CONCURRENT:
            check_independent(func, loop, loop.kind)


def enclosing(loops: Sequence[Loop], kinds: Container[str]) -> Loop | None:
    """The outermost of loops that is of one of the kinds."""
    return next((x for x in loops if x.kind in kinds), None)


def own_variables(root: Stmt) -> set[Var]:
    """The variables of the loops in a statement."""
    return {x.var for x in ir.walk(root) if isinstance(x, Loop)}


def only_symbols(func: Function, e: Expr) -> bool:
    """Whether an expression depends on nothing but the function's symbols."""
    return set(free_vars(e)) <= set(func.symbols) and not loads(e)


def root_of(s: Schedule, name: str) -> tuple[Stmt, Site]:
    """The outermost statement that holds a block alone, and where the block stands."""
    loops, block = s.nest(name)
    root: Stmt = block
    for loop in reversed(loops):
        if sum(1 for _ in ir.blocks(loop)) != 1:
            break
        root = loop
    return root, site_of(s.func, block)


def chain(root: Stmt) -> Iterator[Stmt]:
    """The statement, and what it holds alone, down to its block; a sequence ends it."""
    yield root
    while kids := ir.children(root):
        if len(kids) != 1:
            return
        (root,) = kids
        yield root
