"""Random moves on schedules: arguments that often fit, and often do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from planish.compiler.errors import ScheduleError
from planish.compiler.expr.nodes import free_vars
from planish.compiler.loop import ir
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, Loop
from planish.schedules import moves
from planish.schedules.legality import GPU
from planish.schedules.schedule import MOVES, Schedule

assert moves

Arrays = Sequence[np.ndarray[Any, Any]]
Pick = random.Random
SCOPES: Final = ("global", "local", "register")


def path(s: Schedule, pick: Pick) -> str:
    """A loop, most often an existing one."""
    block = name(s, pick)
    loops = [x.var.name for x in s.loops(block)]
    return f"{block}.{pick.choice([*loops, *loops, *loops, 'i'])}"


def innermost(s: Schedule, pick: Pick) -> str:
    """A loop, most often one directly around a block."""
    block = name(s, pick)
    loops = s.loops(block)
    return f"{block}.{loops[-1].var.name}" if loops and pick.random() < 0.8 else path(s, pick)


def reducing(s: Schedule, pick: Pick) -> str:
    """A loop, most often one that reduces."""
    found = [
        f"{b.name}.{v.name}"
        for b in ir.blocks(s.func.body)
        for i in b.reduce
        for v in free_vars(i.binding)
    ]
    return pick.choice(found) if found and pick.random() < 0.8 else path(s, pick)


def name(s: Schedule, pick: Pick) -> str:
    return pick.choice([b.name for b in ir.blocks(s.func.body)])


def temp(s: Schedule, pick: Pick) -> str:
    return pick.choice([b.name for b in s.func.temps] or ["none"])


def iterator(s: Schedule, block: str, pick: Pick) -> str:
    return pick.choice([i.var.name for i in s.block(block).iters] or ["i"])


def fuse(s: Schedule, pick: Pick) -> tuple[object, ...]:
    found = [
        (f"{b}.{x.var.name}", x.body.var.name)
        for b in [name(s, pick)]
        for x in s.loops(b)
        if isinstance(x.body, Loop)
    ]
    return pick.choice(found or [(path(s, pick), "i")])


def reorder(s: Schedule, pick: Pick) -> tuple[object, ...]:
    block = name(s, pick)
    loops = [x.var.name for x in s.loops(block)]
    some = pick.sample(loops, pick.randint(min(2, len(loops)), len(loops)))
    return block, tuple(some)


def compute_at(s: Schedule, pick: Pick) -> tuple[object, ...]:
    block = name(s, pick)
    buffer = s.block(block).buffer
    reads = [
        b.name for b in ir.blocks(s.func.body) if any(x.buffer == buffer for x in ir.loaded(b))
    ]
    reader = pick.choice(reads or [name(s, pick)])
    loops = [x.var.name for x in s.loops(reader)] or ["i"]
    where = f"{reader}.{pick.choice(loops)}"
    return block, where, pick.choice(["", *SCOPES])


def cache_read(s: Schedule, pick: Pick) -> tuple[object, ...]:
    block = name(s, pick)
    reads = [x.buffer for x in ir.loaded(s.block(block))] or ["x"]
    return pick.choice(reads), block, pick.choice(SCOPES)


def merge(s: Schedule, pick: Pick) -> tuple[object, ...]:
    block = name(s, pick)
    iters = [i.var.name for i in s.block(block).iters] or ["i"]
    k = pick.randrange(len(iters))
    return block, iters[k], iters[(k + 1) % len(iters)]


def divide(s: Schedule, pick: Pick) -> tuple[object, ...]:
    block = name(s, pick)
    return block, iterator(s, block, pick), pick.choice([1, 2, 3, 4])


def layout(s: Schedule, pick: Pick) -> tuple[object, ...]:
    buffer = temp(s, pick)
    if buffer == "none":
        return buffer, ("d0",), (4,)
    shape = s.func.buffers[buffer].shape
    dims = [f"d{k}" for k in range(len(shape))]
    extents: list[object] = [str(d) for d in shape]
    kind = pick.randrange(4)
    k = pick.randrange(len(dims)) if dims else 0
    if not dims or kind == 0:  # transposed
        both = list(zip(dims, extents, strict=True))
        pick.shuffle(both)
        return buffer, tuple(d for d, _ in both), tuple(e for _, e in both)
    if kind == 1 and k + 1 < len(dims):  # two dimensions as one
        wide = pick.choice([extents[k + 1], extents[k]])
        dims[k : k + 2] = [f"d{k} * ({wide}) + d{k + 1}"]
        extents[k : k + 2] = [f"({extents[k]}) * ({extents[k + 1]})"]
    else:  # panels
        w = pick.choice([2, 3, 4])
        dims[k : k + 1] = [f"d{k} // {w}", f"d{k} % {pick.choice([w, w, w, 2])}"]
        extents[k : k + 1] = [f"(({extents[k]}) + {w - 1}) // {w}", w]
    return buffer, tuple(dims), tuple(extents)


ARGUMENTS: Final[dict[str, Callable[[Schedule, Pick], tuple[object, ...]]]] = {
    "split": lambda s, p: (path(s, p), p.choice([1, 2, 3, 4, 8])),
    "fuse": fuse,
    "reorder": reorder,
    "parallel": lambda s, p: (path(s, p),),
    "vectorize": lambda s, p: (innermost(s, p),),
    "unroll": lambda s, p: (path(s, p),),
    "bind": lambda s, p: (path(s, p), p.choice(GPU)),
    "inline": lambda s, p: (name(s, p),),
    "compute_at": compute_at,
    "cache_read": cache_read,
    "cache_write": lambda s, p: (name(s, p), p.choice(SCOPES)),
    "merge": merge,
    "divide": divide,
    "layout": layout,
    "pad": lambda s, p: (temp(s, p), p.choice([0, 0, 1, 2]), p.choice([1, 4, 8]), p.choice([0, 1])),
    "set_scope": lambda s, p: (temp(s, p), p.choice(SCOPES)),
    "rfactor": lambda s, p: (reducing(s, p), p.choice(SCOPES)),
    "nontemporal": lambda s, p: (name(s, p),),
    "pipeline": lambda s, p: (path(s, p), p.choice([1, 2, 3])),
    "tensorize": lambda s, p: (path(s, p), "vpdpbusd_256"),
}
WEIGHTS: Final = {
    "split": 6, "fuse": 3, "reorder": 6, "compute_at": 8, "vectorize": 3, "unroll": 2,
    "cache_read": 3, "cache_write": 3, "inline": 2, "rfactor": 4, "tensorize": 0.2, "pipeline": 2,
    "parallel": 2, "set_scope": 2, "layout": 2, "merge": 2, "divide": 2,
}  # fmt: skip
SIZE: Final = 24  # blocks and loops that a random schedule may have


def attempt(s: Schedule, pick: Pick, only: Sequence[str] = ()) -> Schedule:
    """The schedule after a random move, or itself if that is not legal."""
    names = list(only or ARGUMENTS)
    (chosen,) = pick.choices(names, [WEIGHTS.get(x, 1) for x in names])
    if sum(1 for _ in ir.walk(s.func.body)) > SIZE:
        return s
    try:
        return MOVES[chosen](s, *ARGUMENTS[chosen](s, pick))
    except ScheduleError:
        return s


def same(
    func: Function,
    inputs: Arrays,
    symbols: Mapping[str, int],
    wanted: Arrays,
    run: Callable[..., Arrays] = interpret,
) -> None:
    found = run(func, inputs, symbols)
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)
