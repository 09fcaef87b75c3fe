"""What loops are marked as, and whether it is true.

A hint says what a target may do with a loop: ``pipeline(n)`` that the first statements of its body
may run n - 1 iterations ahead (``pipelining``), the name of an intrinsic that the nest is what the
instruction does (``intrinsics``). A target may do as it says without looking again, or leave it,
as the ``llvm`` target does with all hints. So every hint holds in every function: the verifier asks
here, a move that would make one false is refused, and a pass that does drops it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from planish.compiler.expr.nodes import free_vars

from .intrinsics import INTRINSICS, matches
from .ir import Block, Function, Loop, Stmt, blocks, children, with_children
from .known import anywhere, entered
from .pipelining import ahead

_PIPELINE = re.compile(r"pipeline\((\d+)\)")


def fault(func: Function, around: tuple[Loop, ...], loop: Loop, hint: str) -> str:
    """Why a hint would not hold for a loop that stands in others; nothing if it does."""
    if found := _PIPELINE.fullmatch(hint):
        if int(found[1]) < 2:
            return f"{found[1]} stages overlap nothing"
        return f"the loop is {loop.kind}" if loop.kind != "serial" else ahead(func, loop)[1]
    if hint not in INTRINSICS:
        return f"there is no intrinsic {hint}"
    used = {v for b in blocks(loop) for i in b.reduce for v in free_vars(i.binding)}
    start = used.isdisjoint(x.var for x in around)  # else it is stored further out
    if matches(loop, INTRINSICS[hint], entered(anywhere(func), around), start):
        return ""
    return f"the nest is not what {hint} does"


def stale(func: Function) -> tuple[Loop, str] | None:
    """The first loop whose hint does not hold, and why."""
    return next(_stale(func, func.body, ()), None)


def _stale(func: Function, s: Stmt, around: tuple[Loop, ...]) -> Iterator[tuple[Loop, str]]:
    if isinstance(s, Loop):
        if s.hint and (reason := fault(func, around, s, s.hint)):
            yield s, reason
        around = (*around, s)
    for c in children(s):
        yield from _stale(func, c, around)


def without_stale(func: Function) -> Function:
    """The function without the hints that do not hold."""

    def keep(s: Stmt, around: tuple[Loop, ...]) -> Stmt:
        inside = (*around, s) if isinstance(s, Loop) else around
        new = with_children(s, tuple(keep(c, inside) for c in children(s)))
        if isinstance(s, Loop) and s.hint and fault(func, around, s, s.hint):
            assert isinstance(new, Loop)
            return new.with_(hint="")
        return new

    body = keep(func.body, ()) if is_marked(func.body) else func.body
    return func if body is func.body else func.with_(body=body)


def is_marked(s: Stmt) -> bool:
    """Whether a loop in a statement has a hint. (Asked after every move: not by recursion.)"""
    todo = [s]
    while todo:
        x = todo.pop()
        if isinstance(x, Loop):
            if x.hint:
                return True
            todo.append(x.body)
        elif not isinstance(x, Block):
            todo.extend(children(x))
    return False
