"""Moves on how results are written."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.schedules.edit import replace
from planish.schedules.schedule import Schedule, move, show_loop


@move
def nontemporal(s: Schedule, name: str) -> Schedule:
    """Write a block's result past the caches: half the traffic where it is larger than they are.

    Legal if: the block is spatial (an update reads what it wrote).

    Before:
        def f(x: f32[64], *, C: f32[64]):
            for i in serial(64):
                with block("C", i0=spatial(64, i)):
                    C[i0] = x[i0]
    Move:
        nontemporal("C")
    After:
        def f(x: f32[64], *, C: f32[64]):
            for i in serial(64):
                with block("C", i0=spatial(64, i), nontemporal=True):
                    C[i0] = x[i0]
    """
    block = s.block(name)
    if block.combiner is not None:
        raise ScheduleError(f"{name} reads what it writes", node=show_loop(block))
    return s.with_body(replace(s.func.body, block, block.with_(nontemporal=True)))
