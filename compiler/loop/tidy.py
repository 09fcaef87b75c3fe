"""Simplify what is left after partitioning: indices, values and conditions, under the ranges of the loops around."""

from __future__ import annotations

from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.nodes import FALSE, TRUE, Expr, Var
from planish.compiler.expr.simplify import simplify

from . import ir
from .ir import Block, Function, If, Loop, Seq, Stmt


def tidy(func: Function) -> Function:
    """The function with its expressions simplified, and without what never runs."""
    known = {s: Interval(1, None) for s in func.symbols}
    body = _tidy(func.body, known)
    return func.with_(body=Seq(()) if body is None else body)


def _tidy(s: Stmt, known: dict[Var, Interval]) -> Stmt | None:
    match s:
        case Block():
            return _block(s, known)
        case Loop():
            extent = simplify(s.extent, known)
            top = bounds(extent, known).hi
            if top is not None and top <= 0:
                return None
            inner = {**known, s.var: Interval(0, None if top is None else top - 1)}
            body = _tidy(s.body, inner)
            return None if body is None else s.with_(extent=extent, body=body)
        case If(condition, then, other):
            c = simplify(condition, known)
            if c is TRUE:
                return _tidy(then, known)
            if c is FALSE:
                return None if other is None else _tidy(other, known)
            yes = _tidy(then, known)
            no = None if other is None else _tidy(other, known)
            if yes is None:
                return None if no is None else If(simplify(~c, known), no)
            return If(c, yes, no)
        case Seq(body):
            kept = [x for x in (_tidy(c, known) for c in body) if x is not None]
            return ir.seq(*kept) if kept else None


def _block(b: Block, known: dict[Var, Interval]) -> Block | None:
    def plain(e: Expr) -> Expr:
        return simplify(e, known)

    where = plain(b.where)
    if where is FALSE:
        return None
    return b.with_(
        indices=tuple(map(plain, b.indices)), value=plain(b.value), where=where
    )
