"""An interpreter that sees races: what the order of a loop's iterations decides where it is open.

The plain one runs loops of every kind serially, so what threads or lanes would do to each other
shows nowhere. Here it is recorded what each iteration of a parallel loop, a GPU axis or a vector
loop touches: an element that one of them writes must not be touched by another. Scratch that only
the loop uses is new in each iteration, but lanes share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from planish.compiler.errors import InternalError
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Expr, free_vars, loads
from planish.compiler.loop.interpret import Array, Run, interpret
from planish.compiler.loop.ir import (
    Block,
    Function,
    Loop,
    Stmt,
    children,
    constant,
    loaded,
    nests,
)  # fmt: skip

Element = tuple[str, tuple[int, ...]]
SEVERAL: Final = -1


class Race(AssertionError):
    """Two iterations touch one element, and one of them writes it."""


@dataclass
class Concurrent:
    """A loop whose iterations run at the same time, and which of them did what so far."""

    loop: Loop
    private: set[str]
    iteration: int = 0
    wrote: dict[Element, int] = field(default_factory=dict)
    read: dict[Element, int] = field(default_factory=dict)

    def touch(self, buffer: str, place: tuple[int, ...], writes: bool) -> None:
        if buffer in self.private:
            return
        element = buffer, place
        writer, reader = self.wrote.get(element), self.read.get(element)
        if writer not in (None, self.iteration):
            self.fail(element, writer)
        if not writes:
            several = reader not in (None, self.iteration)
            self.read[element] = SEVERAL if several else self.iteration
            return
        if reader not in (None, self.iteration):
            self.fail(element, reader)
        self.wrote[element] = self.iteration

    def fail(self, element: Element, other: int | None) -> None:
        buffer, place = element
        which = "several" if other == SEVERAL else other
        raise Race(
            f"{buffer}{list(place)} is touched by {self.loop.var.name} = {self.iteration} and "
            f"{which} of a {self.loop.kind} loop, and written"
        )


class Racing(Run):
    """A call that fails where another order of iterations could be seen."""

    def __init__(
        self, func: Function, inputs: Sequence[Array], symbols: dict[str, int], vectorize: bool
    ) -> None:
        super().__init__(func, inputs, symbols, False)
        self.func = func
        self.around: list[Concurrent] = []

    def loop(self, s: Loop, env: dict[str, Any]) -> None:
        if s.kind in ("serial", "unrolled") or (s.kind == "vector" and folds(s)):
            super().loop(s, env)
            return
        count = int(self.value(s.extent, env, s))
        here = Concurrent(s, set() if s.kind == "vector" else private(self.func, s))
        self.around.append(here)
        for here.iteration in range(count):
            for name in self.fresh.get(id(s), ()):
                self.written[name][...] = False
            self.statement(s.body, {**env, s.var.name: here.iteration})
        self.around.pop()

    def value(self, e: Expr, env: Mapping[str, Any], at: Stmt) -> Any:
        for x in loads(e) if self.around else ():
            shape = self.buffers[x.buffer].shape
            try:
                place = tuple(int(evaluate(i, env, self.buffers)) for i in x.indices)
            except InternalError:
                continue  # the index itself is loaded where that is not asked for
            if all(0 <= i < d for i, d in zip(place, shape, strict=True)):  # as this is otherwise
                for loop in self.around:
                    loop.touch(x.buffer, place, writes=False)
        return super().value(e, env, at)

    def store(self, buffer: str, place: tuple[int, ...], value: Any) -> None:
        for loop in self.around:
            loop.touch(buffer, place, writes=True)
        super().store(buffer, place, value)


def folds(loop: Loop) -> bool:
    """Whether lanes are added up: they update one element, which is what the loop is for."""
    b = loop.body
    if not isinstance(b, Block) or b.combiner is None:
        return False
    if not b.iters:
        return loop.var not in free_vars(*b.indices)
    spatial = {v for i in b.spatial for v in free_vars(i.binding)}
    return loop.var not in spatial and any(loop.var in free_vars(i.binding) for i in b.reduce)


def private(func: Function, loop: Loop) -> set[str]:
    """The scratch that is used in a loop only."""
    own = {b.name for b in func.temps if b.scope in ("local", "register")}
    todo: list[Stmt] = [func.body]
    while todo:
        s = todo.pop()
        if s is not loop:
            own -= {x.buffer for x in loaded(s)} | ({s.buffer} if isinstance(s, Block) else set())
            todo += children(s)
    return own


def is_concurrent(s: Stmt) -> bool:
    """Whether a statement has loops whose order is open."""
    here = isinstance(s, Loop) and s.kind not in ("serial", "unrolled")
    return here or any(map(is_concurrent, children(s)))


def points(func: Function) -> int:
    """How many elements a function touches, about."""
    count = 0
    for loops, b in nests(func.body):
        extents = (constant(x.extent) for x in loops)
        count += prod(4 if e is None else e for e in extents) * (1 + len(loaded(b)))
    return count


def watched(
    func: Function, inputs: Sequence[Array], symbols: Mapping[str, int] | None = None
) -> tuple[Array, ...]:
    """The results of a function, point by point.

    Errors: Race if they could be others.
    """
    return interpret(func, inputs, symbols, run=Racing)
