"""Heaps as loops: the first few in an order, or all of them, in O(n log n) without more memory.

A heap holds ``count`` items at places 0, 1 ...; none comes later in the order than its parent,
which is at (place - 1) // 2. So the last of all is at place 0. Where an item belongs is found by
going down from there: the number of steps is known beforehand, and steps beyond the place do
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Like, as_expr
from planish.compiler.loop.ir import Stmt, seq

from .steps import Cell, Elements, Routine, when

Item: TypeAlias = tuple[Expr, ...]
MOST_LEVELS = 62  # of a heap whose size fits into an i64


@dataclass(frozen=True)
class Heap:
    """A heap along one dimension of several buffers, whose elements at a place are an item.

    ``at`` gives the indices of a place. ``compare`` stores into a cell whether the first of two
    items comes before the second.
    """

    routine: Routine
    buffers: tuple[Elements, ...]
    at: Callable[[Expr], Item]
    compare: Callable[[Cell, Item, Item], Stmt]
    levels: Expr
    hole: Cell
    child: Cell
    before: Cell
    held: tuple[Cell, ...]

    @staticmethod
    def of(
        routine: Routine,
        buffers: tuple[Elements, ...],
        at: Callable[[Expr], Item],
        compare: Callable[[Cell, Item, Item], Stmt],
        levels: Expr,
    ) -> Heap:
        """A heap with cells of its own."""
        cells = (routine.cell("hole"), routine.cell("child"), routine.cell("before", n.TRUE.type))
        held = tuple(routine.cell(f"held_{b.buffer.name}", b.dtype) for b in buffers)
        return Heap(routine, buffers, at, compare, levels, *cells, held)

    def item(self, place: Expr) -> Item:
        """What is at a place."""
        return tuple(b[self.at(place)] for b in self.buffers)

    def put(self, place: Expr, item: Item) -> Stmt:
        """Store an item at a place."""
        pairs = zip(self.buffers, item, strict=True)
        return seq(*(b.put(self.at(place), v) for b, v in pairs))

    def hold(self, item: Item) -> Stmt:
        """Take an item, for ``sink``."""
        return seq(*(c.be(v) for c, v in zip(self.held, item, strict=True)))

    def sink(self, place: Like, count: Expr) -> Stmt:
        """Put the held item at a place or below, among the first ``count`` places."""
        held = tuple(c.now for c in self.held)
        hole, child = self.hole.now, self.child.now

        def step(_: Expr) -> Stmt:
            left = hole * 2 + 1
            right = n.minimum(left + 1, count - 1)
            return when(
                left < count,
                self.compare(self.before, self.item(left), self.item(right)),
                self.child.be(n.select(self.before.now, right, left)),
                self.compare(self.before, held, self.item(child)),
                when(
                    self.before.now,
                    self.put(hole, self.item(child)),
                    self.hole.be(child),
                ),
            )

        return seq(
            self.hole.be(place),
            self.routine.loop(self.levels, step),
            self.put(hole, held),
        )

    def build(self, count: Expr) -> Stmt:
        """Make a heap of the items at the first ``count`` places."""
        half = count // 2

        def place(i: Expr) -> Stmt:
            p = half - 1 - i
            return seq(self.hold(self.item(p)), self.sink(p, count))

        return self.routine.loop(half, place)

    def sort(self, count: Expr) -> Stmt:
        """Put a heap into its order."""
        first = as_expr(0)

        def take(i: Expr) -> Stmt:
            last = count - 1 - i
            return seq(
                self.hold(self.item(last)),
                self.put(last, self.item(first)),
                self.sink(first, last),
            )

        return self.routine.loop(count - 1, take)


def levels(routine: Routine, count: Expr) -> tuple[Stmt, Expr]:
    """How many levels are below the first of a heap of that size, and what computes it."""
    if isinstance(count, Const):
        return seq(), as_expr(max(0, int(count.value).bit_length() - 1))
    found, power = routine.cell("levels", scope="global"), routine.cell("power")
    grown = n.le(power.now, count)
    start = seq(found.be(0), power.be(2))
    more = seq(
        found.be(found.now + n.select(grown, n.as_expr(1), n.as_expr(0))), power.be(power.now * 2)
    )
    return seq(start, routine.loop(MOST_LEVELS, lambda _: more)), found.now


__all__ = ["Heap", "Item", "levels"]
