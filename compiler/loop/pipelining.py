"""What of a loop's body may run iterations ahead: the statements that fill buffers of their own.

A loop with the hint ``pipeline(n)`` may keep n copies of the buffers that the first statements of
its body fill, and run those n - 1 iterations ahead of the rest. The hint is a wish that targets
need not grant (``llvm`` does not); whether it can be granted is said here.
"""

from __future__ import annotations

from .ir import Block, Function, Loop, Seq, Stmt, blocks, children, loaded
from .sites import sites


def ahead(func: Function, loop: Loop) -> tuple[int, str]:
    """How many statements of a loop's body may run ahead of the others, or 0 and what forbids it.

    They write only ``local`` or ``register`` buffers that nothing outside of the loop uses, and
    read nothing that the other statements write.
    """
    parts = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    own = {b.name for b in func.temps if b.scope in ("local", "register")}
    own -= _outside(func.body, loop)
    count = 0
    while count < len(parts) and all(b.buffer in own for b in blocks(parts[count])):
        count += 1
    if not 0 < count < len(parts):
        return 0, "no statement in front of others fills a buffer of the loop"
    written = {b.buffer for part in parts[count:] for b in blocks(part)}
    for part in parts[:count]:
        for site in sites(part):
            for a in site.accesses:
                if a.buffer in written:
                    return 0, f"{site.block.name} uses {a.buffer}, which the loop writes"
    return count, ""


def _outside(s: Stmt, loop: Loop) -> set[str]:
    """The buffers that a statement uses outside of the loop. (Blocks of parts have one name.)"""
    if s is loop:
        return {x.buffer for x in loaded(loop)}
    used = {x.buffer for x in loaded(s)}
    return used.union(
        {s.buffer} if isinstance(s, Block) else (), *(_outside(c, loop) for c in children(s))
    )
