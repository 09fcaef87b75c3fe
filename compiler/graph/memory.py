"""Where every value lives: inputs, outputs, constants, and one arena for all that is between.

A view shares its source's memory. A value that becomes a graph output is computed right there. Everything else gets a
place in the arena for the time from the step that makes it to the last that reads it; places of values that are
not alive together may overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.expr.simplify import simplify
from planish.compiler.program import ALIGNMENT, Place


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
    if all(isinstance(x.size, Const) for x in lifetimes):
        return _pack_known(lifetimes)
    return _pack_symbolic(lifetimes)


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


def _pack_symbolic(lifetimes: Sequence[Lifetime]) -> tuple[list[Expr], Expr]:
    """Slots that are reused by values of equal size expressions; then the slots one after the other."""
    slots: list[tuple[Expr, int]] = []  # size, busy until
    chosen = []
    for x in lifetimes:
        size = aligned(x.size)
        free = [k for k, (s, until) in enumerate(slots) if until < x.first and s is size]
        if free:
            k = free[0]
            slots[k] = size, x.last
        else:
            k = len(slots)
            slots.append((size, x.last))
        chosen.append(k)
    starts, at = [], n.as_expr(0)
    for size, _ in slots:
        starts.append(at)
        at = simplify(at + size)
    return [starts[k] for k in chosen], at


def arena(offset: Expr) -> Place:
    return Place("arena", 0, offset)
