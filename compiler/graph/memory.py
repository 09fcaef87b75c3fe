"""Where every value lives: inputs, outputs, constants, and one arena for all that is between.

A view shares its source's memory. A value that becomes a graph output is computed right there.
Everything else gets a place in the arena for the time from the step that makes it to the last that
reads it; places of values that are not alive together may overlap.

Sizes that are known are packed at the arena's start, largest first. Those over symbols take turns
in *slots*, which lie one after the other and are as large as the largest value that uses them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from planish.compiler.calling import ALIGNMENT
from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.expr.simplify import simplify
from planish.compiler.expr.sizes import at_least, evaluate
from planish.compiler.program import Place

# Values that all symbols take in turn to compare sizes: no more than a guess of what is larger.
_SAMPLES: Final = (1, 16, 256)


@dataclass(frozen=True)
class Lifetime:
    """Bytes that are needed from the step ``first`` to the step ``last``, both included."""

    size: Expr
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def aligned(size: Expr) -> Expr:
    """A size rounded up so that the next place is aligned."""
    return simplify((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def pack(lifetimes: Sequence[Lifetime]) -> tuple[list[Expr], Expr]:
    """Offsets for the lifetimes and the arena's size, in bytes."""
    known = [k for k, x in enumerate(lifetimes) if isinstance(x.size, Const)]
    open = [k for k, x in enumerate(lifetimes) if not isinstance(x.size, Const)]
    offsets, end = _pack_known([lifetimes[k] for k in known])
    starts, total = _pack_slots([lifetimes[k] for k in open], end)
    places = dict(zip((*known, *open), (*offsets, *starts), strict=True))
    return [places[k] for k in range(len(lifetimes))], total


def _pack_known(lifetimes: Sequence[Lifetime]) -> tuple[list[Expr], Expr]:
    """Largest first, each at the lowest offset where it does not meet one that is alive with it."""
    sizes = [_number(aligned(x.size)) for x in lifetimes]
    offsets = [0] * len(sizes)
    placed: list[int] = []
    for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], lifetimes[k].first, k)):
        busy = sorted(
            (offsets[j], offsets[j] + sizes[j])
            for j in placed
            if lifetimes[j].overlaps(lifetimes[k])
        )
        at = 0
        for start, end in busy:
            if at + sizes[k] <= start:
                break
            at = max(at, end)
        offsets[k] = at
        placed.append(k)
    total = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
    return [n.as_expr(o) for o in offsets], n.as_expr(total)


def _number(e: Expr) -> int:
    assert isinstance(e, Const)
    return int(e.value)


@dataclass
class _Slot:
    """Lifetimes that take turns, and the sizes of which none is known to be the largest."""

    members: list[Lifetime] = field(default_factory=list)
    sizes: list[Expr] = field(default_factory=list)

    def add(self, x: Lifetime) -> None:
        self.members.append(x)
        if not any(at_least(s, x.size) for s in self.sizes):
            self.sizes = [s for s in self.sizes if not at_least(x.size, s)] + [x.size]

    @property
    def size(self) -> Expr:
        return aligned(reduce(n.maximum, self.sizes))


def _pack_slots(lifetimes: Sequence[Lifetime], at: Expr) -> tuple[list[Expr], Expr]:
    """Largest first, each in the smallest slot that is free for its time; slots begin at ``at``.

    What is larger depends on the symbols, so a slot has room for each of its values.
    """
    guesses = {x.size: _guess(x.size) for x in lifetimes}
    slots: list[_Slot] = []
    chosen: dict[int, int] = {}
    order = sorted(range(len(lifetimes)), key=lambda k: (-guesses[lifetimes[k].size], k))
    for k in order:
        x = lifetimes[k]
        # Slots are as large as their first member: the last one that is free is the smallest.
        fits = (
            j for j in reversed(range(len(slots))) if not any(map(x.overlaps, slots[j].members))
        )
        j = next(fits, len(slots))
        if j == len(slots):
            slots.append(_Slot())
        slots[j].add(x)
        chosen[k] = j
    starts = []
    for slot in slots:
        starts.append(at)
        at = simplify(at + slot.size)
    return [starts[chosen[k]] for k in range(len(lifetimes))], at


def _guess(size: Expr) -> float:
    """How large a size is, on a logarithmic scale.

    It may be negative where no call has those symbols: windows larger than what they slide over.
    """
    return sum(
        math.log1p(max(evaluate(size, dict.fromkeys(n.free_vars(size), n.const(s, I64))) or 0, 0))
        for s in _SAMPLES
    )


def arena(offset: Expr) -> Place:
    """A place in the arena."""
    return Place("arena", 0, offset)
