"""Take the starting value of reductions out of their blocks, then the iterators.

The block ``C[i] += ...`` with ``init`` becomes a spatial block that stores the starting value, in
front of the outermost loop that the reduction runs in, and the block without ``init``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Expr, Var, free_vars, loads, not_, substitute

from .ir import Block, Function, If, Loop, Stmt, blocks, children, map_blocks, seq, with_children
from .sites import start_where
from .text import show_head

# What is around a block: loops, and conditions with whether they hold.
Around: TypeAlias = tuple[Loop | tuple[Expr, bool], ...]


def decompose(func: Function) -> Function:
    """The function with every ``init`` a block of its own."""
    if all(b.init is None for b in blocks(func.body)):
        return func
    return func.with_(body=_decompose(func.body, frozenset()))


def _decompose(s: Stmt, outer: frozenset[Var]) -> Stmt:
    """``outer``: the variables of the loops around."""
    match s:
        case Block(init=None):
            return s
        case Block():
            bare = s.with_(init=None)
            return bare if outer & _reducing(s) else seq(_start(s, ()), bare)
        case Loop(var, _, body):
            new = s.with_(body=_decompose(body, outer | {var}))
            starts = []
            for around, b in _below(s, ()):
                used = _reducing(b)
                if b.init is not None and var in used and not outer & used:
                    if s.kind not in ("serial", "unrolled", "vector"):
                        shown = show_head(s)
                        raise InternalError("a parallel loop reduces", op="decompose", node=shown)
                    starts.append(_start(b, around))
            return seq(*starts, new)
        case _:
            return with_children(s, tuple(_decompose(c, outer) for c in children(s)))


def _reducing(b: Block) -> set[Var]:
    """The variables that a block's reduction runs through."""
    return {v for i in b.reduce for v in free_vars(i.binding)}


def _below(s: Stmt, around: Around) -> Iterator[tuple[Around, Block]]:
    """The blocks in a statement, with what is around them in it."""
    match s:
        case Block():
            yield around, s
        case Loop(body=body):
            yield from _below(body, (*around, s))
        case If(condition, then, other):
            yield from _below(then, (*around, (condition, True)))
            if other is not None:
                yield from _below(other, (*around, (condition, False)))
        case _:
            for c in children(s):
                yield from _below(c, around)


def _start(b: Block, around: Around) -> Stmt:
    """The block that stores the starting value, in what its elements need of what is around."""
    assert b.init is not None
    needed = {v for i in b.spatial for v in free_vars(i.binding)}
    gone = {x.var for x in around if isinstance(x, Loop) and x.var not in needed}
    out: Stmt = Block(
        f"{b.name}_init", b.spatial, b.buffer, b.indices, b.init, where=start_where(b)
    )
    for x in reversed(around):
        if not isinstance(x, Loop):
            condition, holds = x
            if gone.isdisjoint(free_vars(condition)):
                out = If(condition if holds else not_(condition), out)
        elif x.var in needed:
            if not gone.isdisjoint(free_vars(x.extent)) or loads(x.extent):
                message = f"the extent of {x.var.name} depends on a reduction or on data"
                raise InternalError(message, op="decompose", node=show_head(x))
            out = Loop(x.var, x.extent, out, x.kind)
    return out


def bind(func: Function) -> Function:
    """Every block in terms of the loops around it, without iterators of its own."""
    if not any(b.iters for b in blocks(func.body)):
        return func

    def change(b: Block) -> Block:
        values = b.bindings
        return b.with_(
            iters=(),
            indices=tuple(substitute(i, values) for i in b.indices),
            value=substitute(b.value, values),
            init=None if b.init is None else substitute(b.init, values),
        )

    return func.with_(body=map_blocks(func.body, change))
