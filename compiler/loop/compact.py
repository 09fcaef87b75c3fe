"""Shrink buffers that live in registers or in a chunk's scratch to the part that is used at a time.

Such a buffer exists for one iteration of the innermost loop that contains all its blocks. What its
accesses reach there is a box; the buffer gets the box's extents, and indices count from its corner.
Runs on bound blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import bounds, extremes
from planish.compiler.expr.nodes import Const, Expr, Load, free_vars
from planish.compiler.expr.simplify import simplify

from .ir import Block, Buffer, Function, If, Loop, Seq, Stmt, constant, seq, walk
from .known import Known, anywhere, entered
from .sites import Site, sites

Box: TypeAlias = list[tuple[Expr, Expr]]  # the least and the greatest index of each dimension


def compact(func: Function) -> Function:
    """The function with its register and local buffers shrunk."""
    for buffer in func.temps:
        if buffer.scope in ("register", "local"):
            func = _compact(func, buffer)
    return func


def _compact(func: Function, buffer: Buffer) -> Function:
    users = [x for x in sites(func.body) if any(a.buffer == buffer.name for a in x.accesses)]
    if _decides(func.body, buffer.name):
        return func  # a loop or condition around blocks reads it
    if not users:
        return func.with_(temps=tuple(t for t in func.temps if t is not buffer))
    symbols = anywhere(func)
    if alone := _walked_alone(buffer, users):
        # Where there is one element, no other is read, whatever is known of the index.
        zero = n.as_expr(0)
        only = tuple(None if k in alone else zero for k in range(len(buffer.shape)))
        func = func.with_(body=_moved(func.body, buffer.name, only, symbols))
        users = [x for x in sites(func.body) if any(a.buffer == buffer.name for a in x.accesses)]
    count = _common(users)
    known = entered(symbols, users[0].loops[:count])
    box = _box(buffer, users, count, symbols, known)
    shape = tuple(_extent(*ends, d, func, known) for ends, d in zip(box, buffer.shape, strict=True))
    if buffer.scope == "register" and any(constant(e) is None for e in shape):
        raise CodegenError(
            f"{buffer.name} is kept in registers, but its size is not constant",
            op="compact",
            node=f"{buffer.name}: {buffer.dtype}{list(shape)}",
            hint="compute it inside of a loop, or keep it in local memory",
        )
    new = Buffer(buffer.name, buffer.dtype, shape, buffer.scope)
    if new == buffer and all(lo is n.as_expr(0) for lo, _ in box):
        return func
    body = _moved(func.body, buffer.name, tuple(lo for lo, _ in box), symbols)
    return func.with_(body=body).with_buffer(new)


def _decides(body: Stmt, buffer: str) -> bool:
    """Whether a loop or a condition around blocks reads a buffer."""
    for s in walk(body):
        match s:
            case Loop(extent=e) | If(condition=e) if any(x.buffer == buffer for x in n.loads(e)):
                return True
            case _:
                pass
    return False


def _walked_alone(buffer: Buffer, users: Sequence[Site]) -> list[int]:
    """The dimensions of one element along which an index is more than that.

    Not those along which the lanes of a vector store: all but one are masked, and where they do is
    what tells them apart.
    """
    found = []
    for k in [k for k, d in enumerate(buffer.shape) if constant(d) == 1]:
        indices = [
            (site, a.indices[k], a.kind)
            for site in users
            for a in site.accesses
            if a.buffer == buffer.name
        ]
        apart = any(
            kind != "read" and any(x.kind == "vector" and x.var in free_vars(e) for x in site.loops)
            for site, e, kind in indices
        )
        if not apart and any(not isinstance(e, Const) for _, e, _ in indices):
            found.append(k)
    return found


def _common(users: Sequence[Site]) -> int:
    """How many loops are around all of the sites."""
    count = min(len(x.loops) for x in users)
    while any(x.steps[:count] != users[0].steps[:count] for x in users):
        count -= 1
    return count


def _box(buffer: Buffer, users: Sequence[Site], count: int, symbols: Known, common: Known) -> Box:
    """What is reached of a buffer while the ``count`` outer loops stand still.

    The ends of what a site reaches are right where its loops are entered; elsewhere it reaches
    nothing, and the box of all sites is none the smaller for them.
    """
    box: Box = []
    for site in users:
        known = entered(symbols, site.loops)
        domain = {x.var: (n.as_expr(0), x.extent - 1) for x in site.loops[count:]}
        still = Known({v: r for v, r in known.items() if v not in domain}, known.symbols)
        for a in site.accesses:
            if a.buffer != buffer.name:
                continue
            here: Box = []
            for index, d in zip(a.indices, buffer.shape, strict=True):
                e = simplify(index, known)
                found = None if n.loads(e) else extremes(e, domain, still)
                if found is None or n.loads(*found):  # an index or an extent that is read
                    found = n.as_expr(0), d - 1
                lo, hi = found
                here.append((simplify(lo, still), simplify(hi, still)))
            box = [
                (simplify(n.minimum(a, c), common), simplify(n.maximum(b, d), common))
                for (a, b), (c, d) in zip(box or here, here, strict=True)
            ]
    return box


def _extent(lo: Expr, hi: Expr, full: Expr, func: Function, known: Known) -> Expr:
    """How long a dimension is at most."""
    extent = simplify(hi - lo + 1, known)
    if all(v in func.symbols for v in free_vars(extent)):
        return extent
    top = bounds(extent, known).hi
    return full if top is None else n.as_expr(top)


def _moved(s: Stmt, buffer: str, corner: tuple[Expr | None, ...], known: Known) -> Stmt:
    """The statement with indices of a buffer that count from a corner; None: they are 0."""

    def local(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(
            n.as_expr(0) if lo is None else simplify(i - lo, known)
            for i, lo in zip(indices, corner, strict=True)
        )

    def load(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer == buffer:
            return Load(e.buffer, local(e.indices), e.type)
        return None

    match s:
        case Block():
            indices = tuple(n.transform(i, load) for i in s.indices)
            return s.with_(
                indices=local(indices) if s.buffer == buffer else indices,
                value=n.transform(s.value, load),
                init=None if s.init is None else n.transform(s.init, load),
                where=n.transform(s.where, load),
            )
        case Loop():
            return s.with_(body=_moved(s.body, buffer, corner, entered(known, (s,))))
        case If(condition, then, other):
            no = None if other is None else _moved(other, buffer, corner, known)
            return If(condition, _moved(then, buffer, corner, known), no)
        case Seq(body):
            return seq(*(_moved(c, buffer, corner, known) for c in body))
