"""Shrink buffers that live in registers or in a chunk's scratch to the part that is used at a time.

Such a buffer exists for one iteration of the innermost loop that contains all its blocks. What its accesses reach there is a box;
the buffer gets the box's extents, and indices count from its corner. Runs on bound blocks.
"""

from __future__ import annotations

from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds, extremes
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.expr.simplify import simplify

from . import ir
from .ir import Block, Buffer, Function, Loop, constant

Nest = tuple[tuple[Loop, ...], Block]


def compact(func: Function) -> Function:
    """The function with its register and local buffers shrunk."""
    for buffer in func.temps:
        if buffer.scope in ("register", "local"):
            func = _compact(func, buffer)
    return func


def _compact(func: Function, buffer: Buffer) -> Function:
    nests = [
        (loops, b)
        for loops, b in ir.nests(func.body)
        if b.buffer == buffer.name or any(x.buffer == buffer.name for x in ir.reads(b))
    ]
    if not nests:
        return func.with_(temps=tuple(t for t in func.temps if t is not buffer))
    common = _common(nests)
    known: dict[Var, Interval] = {s: Interval(1, None) for s in func.symbols}
    for loops, _ in nests:
        for loop in loops:
            top = bounds(loop.extent, known).hi
            known[loop.var] = Interval(0, None if top is None else max(0, top - 1))
    box: list[tuple[Expr, Expr]] | None = None
    for loops, b in nests:
        domain = {x.var: (n.as_expr(0), x.extent - 1) for x in loops if x not in common}
        for indices in _accesses(b, buffer.name):
            here = [_hull(i, d, domain, known) for i, d in zip(indices, buffer.shape, strict=True)]
            if box is None:
                box = here
            else:
                box = [
                    (simplify(n.minimum(a, c), known), simplify(n.maximum(p, q), known))
                    for (a, p), (c, q) in zip(box, here, strict=True)
                ]
    assert box is not None
    shape = []
    for (lo, hi), full in zip(box, buffer.shape, strict=True):
        extent = simplify(hi - lo + 1, known)
        if any(v not in func.symbols for v in free_vars(extent)):
            top = bounds(extent, known).hi
            extent = full if top is None else n.as_expr(top)
        shape.append(extent)
    if buffer.scope == "register" and any(constant(e) is None for e in shape):
        raise CodegenError(
            f"{buffer.name} is kept in registers, but its size is not constant",
            op="compact",
            node=f"{buffer.name}: {buffer.dtype}{shape}",
            hint="compute it inside of a loop, or keep it in local memory",
        )
    corner = [lo for lo, _ in box]

    def local(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(simplify(i - lo, known) for i, lo in zip(indices, corner, strict=True))

    def change_load(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == buffer.name:
            return Load(e.buffer, local(e.indices), e.type)
        return None

    def change(b: Block) -> Block:
        value = n.transform(b.value, change_load)
        indices = local(b.indices) if b.buffer == buffer.name else b.indices
        return b.with_(value=value, indices=tuple(n.transform(i, change_load) for i in indices))

    body = ir.map_blocks(func.body, change)
    return func.with_(body=body).with_buffer(
        Buffer(buffer.name, buffer.dtype, tuple(shape), buffer.scope)
    )


def _common(nests: list[Nest]) -> set[Loop]:
    """The loops that all the blocks share."""
    first = nests[0][0]
    out: set[Loop] = set()
    for k, loop in enumerate(first):
        if all(len(loops) > k and loops[k] is loop for loops, _ in nests):
            out.add(loop)
        else:
            break
    return out


def _accesses(b: Block, buffer: str) -> list[tuple[Expr, ...]]:
    out = [x.indices for x in ir.reads(b) if x.buffer == buffer]
    if b.buffer == buffer:
        out.append(b.indices)
    return out


def _hull(
    index: Expr,
    dim: Expr,
    domain: dict[Var, tuple[Expr, Expr]],
    known: dict[Var, Interval],
) -> tuple[Expr, Expr]:
    index = simplify(index, known)
    found = None if n.loads(index) else extremes(index, domain)
    if found is None:
        return n.as_expr(0), dim - 1
    return simplify(found[0], known), simplify(found[1], known)
