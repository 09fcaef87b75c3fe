"""The boxes of buffers that statements touch: how large a tile to cache, how much is read.

A box is a least index and an extent for each dimension, in terms of symbols and of the loop
variables that are fixed. It holds every element that is touched and may hold others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, extremes
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, free_vars, loads, product
from planish.compiler.expr.simplify import simplify
from planish.compiler.remembering import remembered

from .ir import Buffer, Stmt, constant
from .sites import sites

Box: TypeAlias = tuple[tuple[Expr, Expr], ...]

# What an index runs through: its least value, and by how much the greatest is more.
_Span: TypeAlias = tuple[Expr, Expr]


def region(
    stmt: Stmt, buffer: Buffer, fixed: tuple[Var, ...] = (), kind: str = "any"
) -> Box | None:
    """The box of ``buffer`` that blocks inside ``stmt`` touch; None if they don't touch it.

    Fixed are the variables given and those of loops outside ``stmt``. ``kind``: ``any``, or
    ``read`` (what is loaded, not a reduction's own element), or ``write``.
    """
    return _region(stmt, buffer, fixed, kind)


@remembered(4096)
def _region(stmt: Stmt, buffer: Buffer, fixed: tuple[Var, ...], kind: str) -> Box | None:
    spans: list[dict[_Span | None, None]] = [{} for _ in buffer.shape]
    touched = False
    for site in sites(stmt):
        moving = {x.var: x.extent for x in site.loops if x.var not in fixed}
        for a in site.accesses:
            if a.buffer == buffer.name and (kind == "any" or a.writes is (kind == "write")):
                touched = True
                for k, index in enumerate(a.indices):
                    spans[k][span(index, moving) or _ends(index, moving)] = None
    if not touched:
        return None
    return tuple(_dimension(list(spans[k]), d) for k, d in enumerate(buffer.shape))


def footprint(stmt: Stmt, buffer: Buffer, fixed: tuple[Var, ...] = (), kind: str = "any") -> Expr:
    """How many elements the box of a buffer has; 0 if it is not touched."""
    box = region(stmt, buffer, fixed, kind)
    return as_expr(0) if box is None else product(extent for _, extent in box)


def _dimension(found: Sequence[_Span | None], extent: Expr) -> _Span:
    """The least index and the extent along a dimension; all of it if that is not known better."""
    whole = as_expr(0), extent
    box = found[0]
    for other in found[1:]:
        box = None if box is None or other is None else _hull(box, other)
    if box is None:
        return whole
    lo, size = box[0], _sum(box[1], 1)
    first, count, end = constant(lo), constant(size), constant(extent)
    if count is None and first is not None:
        return whole  # which is no larger in general, and simple
    if count is not None and end is not None:
        if count >= end:
            return whole
        if first is not None:  # a box that stands still is cut to the buffer
            start, stop = max(first, 0), min(first + count, end)
            return (as_expr(start), as_expr(max(stop - start, 0)))
    return lo, size


def span(e: Expr, moving: Mapping[Var, Expr]) -> _Span | None:
    """The least value of an index and by how much the greatest is more, at most.

    ``moving`` are the variables that run, each from 0 below its extent; the rest stand still.
    """
    if not loads(e) and not any(v in moving for v in free_vars(e)):
        return e, as_expr(0)
    match e:
        case Var():
            last = span(moving[e], moving)  # an extent may depend on loops around
            return None if last is None else (as_expr(0), _sum(n.add(*last), -1))
        case n.Add(x, y) | n.Sub(x, y) | n.Min(x, y) | n.Max(x, y):
            a, b = span(x, moving), span(y, moving)
            return None if a is None or b is None else _combine(e, a, b)
        case n.Mul(x, Const() as c) | n.Mul(Const() as c, x):
            inner = span(x, moving)
            if inner is None:
                return None
            lo, width = inner
            if c.value >= 0:
                return _sum(n.mul(lo, c)), _sum(n.mul(width, c))
            return _sum(n.mul(n.add(lo, width), c)), _sum(n.mul(width, n.mul(c, -1)))
        case n.Mul(x, Var() as c) | n.Mul(Var() as c, x) if c not in moving:
            inner = span(x, moving)  # variables are not negative
            return None if inner is None else (_sum(n.mul(inner[0], c)), _sum(n.mul(inner[1], c)))
        case n.FloorDiv(x, Const(c)) if c > 0:
            inner = span(x, moving)
            return None if inner is None else _quotient(*inner, int(c))
        case n.FloorMod(x, Const(c)) if c > 0:
            inner = span(x, moving)
            return (as_expr(0), as_expr(c - 1)) if inner is None else _remainder(*inner, int(c))
        case n.FloorMod(_, c) if not any(v in moving for v in free_vars(c)):
            return as_expr(0), _sum(c, -1)
        case n.Select(_, x, y):
            a, b = span(x, moving), span(y, moving)
            return None if a is None or b is None else _hull(a, b)
        case _:
            return None


def _ends(e: Expr, moving: Mapping[Var, Expr]) -> _Span | None:
    """The same from the ends of the interval, which knows more laws."""
    if loads(e) or e.dtype is not I64:
        return None
    domain = {v: (as_expr(0), extent - 1) for v, extent in moving.items()}
    found = extremes(e, domain, dict.fromkeys(free_vars(e), Interval(0, None)))
    if found is None or loads(*found):
        return None
    return found[0], simplify(found[1] - found[0])


def _combine(e: Expr, a: _Span, b: _Span) -> _Span:
    match e:
        case n.Add():
            return _sum(a[0], b[0]), _sum(a[1], b[1])
        case n.Sub():
            return _sum(n.sub(a[0], n.add(b[0], b[1]))), _sum(a[1], b[1])
        case n.Min():
            return n.minimum(a[0], b[0]), n.maximum(a[1], b[1])
        case _:
            return n.maximum(a[0], b[0]), n.maximum(a[1], b[1])


def _quotient(lo: Expr, width: Expr, c: int) -> _Span:
    start = linear(lo)
    if all(k % c == 0 for k in (*start.terms.values(), start.constant)):
        return start.over(c).expr(), n.floordiv(width, c)
    first = constant(lo)
    extra = c - 1 if first is None else first % c
    return n.floordiv(lo, c), n.floordiv(n.add(width, extra), c)


def _remainder(lo: Expr, width: Expr, c: int) -> _Span:
    start, size = linear(lo), constant(width)
    if size is not None and all(k % c == 0 for k in start.terms.values()):
        first = start.constant % c
        if first + size < c:
            return as_expr(first), as_expr(size)
    return as_expr(0), as_expr(c - 1)


def _hull(a: _Span, b: _Span) -> _Span | None:
    """A span around two that are a known distance apart."""
    apart, more = linear(n.sub(b[0], a[0])), linear(n.sub(b[1], a[1]))
    if not apart.is_constant:
        return None
    if apart.constant < 0:
        return _hull(b, a)
    ends = more.plus_constant(apart.constant)
    if ends.is_constant:
        return a if ends.constant <= 0 else (a[0], _sum(b[1], apart.constant))
    return a[0], n.maximum(a[1], _sum(b[1], apart.constant))


def _sum(e: Expr, more: Expr | int = 0) -> Expr:
    return linear(n.add(e, more)).expr()
