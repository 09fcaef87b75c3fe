"""Room for ``local`` buffers that are too large for a stack.

A ``local`` buffer is the scratch of one chunk of a parallel loop. What is small lives on the stack
of the thread that runs the chunk. For what is large, or of a size that is not known when the model
is compiled, ``with_slots`` adds a ``global`` buffer of bytes beside it, ``name_slots[slots,
bytes]``: the parts of the call's scratch, one for each chunk. Loops that use it are cut into no
more chunks than there are slots.
"""

from __future__ import annotations

from typing import Final

from planish.compiler.dtypes import U8
from planish.compiler.expr import nodes as n

from .compact import compact
from .decompose import bind, decompose
from .ir import Buffer, Function, constant

STACK_BYTES: Final = 256 << 10  # of all buffers together; threads have stacks of some MiB
_ALIGN: Final = 64
_PER_THREAD: Final = 2  # chunks, so that a thread that is slow delays the others less


def backing(name: str) -> str:
    """What the slots of a buffer are called."""
    return f"{name}_slots"


def with_slots(func: Function, threads: int) -> Function:
    """The scheduled function with slots for its large local buffers, for so many threads."""
    if not any(t.scope == "local" for t in func.temps):
        return func
    small = compact(bind(decompose(func)))
    slots = 1 if threads == 1 else threads * _PER_THREAD
    room = STACK_BYTES
    kept = set()
    local = [t for t in small.temps if t.scope == "local"]
    for t in sorted(local, key=lambda t: constant(t.bytes) or 0):
        size = constant(t.bytes)
        if size is not None and size <= room:
            room -= -(-size // _ALIGN) * _ALIGN
            kept.add(t.name)
    for t in local:
        if t.name not in kept:
            bytes_ = (t.bytes + (_ALIGN - 1)) // _ALIGN * _ALIGN
            shape = (n.as_expr(slots), bytes_)
            func = func.with_buffer(Buffer(backing(t.name), U8, shape, "global"))
    return func
