"""Moves on how results are written."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.schedules.schedule import Schedule, move, replace, show_loop


@move
def nontemporal(s: Schedule, name: str) -> Schedule:
    """Write a block's result past the caches: half the traffic where it is larger than they are.

    Legal if: the block is spatial (an update reads what it wrote).

    Before: with block("C"): C[i] = x[i]
    After: with block("C", nontemporal=True): C[i] = x[i]
    """
    block = s.block(name)
    if block.combiner is not None:
        raise ScheduleError(f"{name} reads what it writes", node=show_loop(block))
    return s.with_body(replace(s.func.body, block, block.with_(nontemporal=True)))
