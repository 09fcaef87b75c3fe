"""Simplify what is left: indices, values and conditions, under the ranges of the loops around."""

from __future__ import annotations

from planish.compiler.expr.bounds import bounds
from planish.compiler.expr.nodes import FALSE, TRUE, Expr
from planish.compiler.expr.simplify import simplify

from .hints import without_stale
from .ir import Block, Function, If, Loop, Seq, Stmt, seq, with_children
from .known import Known, anywhere, entered


def tidy(func: Function) -> Function:
    """The function with its expressions simplified, and without what never runs."""
    known = anywhere(func)
    body = _tidy(func.body, known)
    if body is func.body:
        return func
    return without_stale(func.with_(body=Seq(()) if body is None else body))


def _tidy(s: Stmt, known: Known) -> Stmt | None:
    """The statement, the same object if it is tidy; None if it never runs."""
    match s:
        case Block():
            return _block(s, known)
        case Loop():
            extent = simplify(s.extent, known)
            top = bounds(extent, known).hi
            if top is not None and top <= 0:
                return None
            body = _tidy(s.body, entered(known, (s,)))
            if body is None or (body is s.body and extent is s.extent):
                return None if body is None else s
            return s.with_(extent=extent, body=body)
        case If():
            return _if(s, known)
        case Seq(body):
            kept = [x for x in (_tidy(c, known) for c in body) if x is not None]
            if len(kept) == len(body):
                same = all(a is b for a, b in zip(kept, body, strict=True))
                return s if same and len(body) != 1 else seq(*kept)
            return seq(*kept) if kept else None


def _if(s: If, known: Known) -> Stmt | None:
    c = simplify(s.condition, known)
    then = None if c is FALSE else _tidy(s.then, known)
    other = None if c is TRUE or s.other is None else _tidy(s.other, known)
    if c is TRUE or c is FALSE:
        return then if c is TRUE else other
    if then is None:
        return None if other is None else If(simplify(~c, known), other)
    if c is s.condition and (other is None) == (s.other is None):
        return with_children(s, (then,) if other is None else (then, other))
    return If(c, then, other)


def _block(b: Block, known: Known) -> Block | None:
    if b.init is not None:  # where it starts follows from the parts of its condition
        return b

    def plain(e: Expr) -> Expr:
        return simplify(e, known)

    where = plain(b.where)
    if where is FALSE:
        return None
    if b.iters:  # the update speaks of these, not of the loops around
        return b if where is b.where else b.with_(where=where)
    new = b.with_(indices=tuple(map(plain, b.indices)), value=plain(b.value), where=where)
    return b if new == b else new
