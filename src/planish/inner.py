"""Steps of graphs within a graph: where their places are around them, and what a loop adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Final

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Var
from planish.compiler.expr.simplify import simplify
from planish.compiler.graph.ir import Value
from planish.compiler.ops.control import If, Loop, variables
from planish.compiler.program import (
    Allocate,
    AnyStep,
    Assign,
    Bind,
    Branch,
    Check,
    Host,
    Move,
    Place,
    Repeat,
    Step,
)

# Of a loop's part of the arena: its number, the condition, the next condition; then the body's.
NUMBER: Final = 0
CONDITION: Final = 64
AGAIN: Final = 128
LOOP_BYTES: Final = 192


@dataclass(frozen=True, eq=False)
class Inner:
    """A node whose graphs run within this one.

    Places in the steps are as if each graph were a program of its own, except for those of
    constants and on the heap.
    """

    op: If | Loop
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    parts: tuple[tuple[AnyStep, ...], ...]
    scratch_bytes: Expr  # the arena of each, and more
    origin: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Around:
    """What steps of graphs within a graph have to know of it."""

    places: Mapping[Value, Place]
    scratch: Place
    read: Callable[[Value], Place]  # where a value is read
    new: Callable[[], Place]  # another array on the heap
    failure: Callable[[str, str, Iterable[Expr]], int]  # the index of one: text, node, sizes

    def scratch_at(self, offset: int) -> Place:
        return replace(self.scratch, offset=simplify(self.scratch.offset + offset))


def branch(work: Inner, op: If, around: Around) -> Branch:
    """The step of a choice."""
    condition, *inputs = work.inputs
    assert condition is not None

    def place(inner: Place) -> Place:
        """Where a place of a branch is in this graph."""
        match inner.kind:
            case "input":
                given = inputs[inner.index]
                assert given is not None
                outer = around.read(given)
            case "output":
                outer = around.places[work.outputs[inner.index]]
            case "arena":
                outer = around.scratch
            case "constant" | "heap":
                return inner
        return replace(outer, offset=simplify(outer.offset + inner.offset))

    sides = []
    for graph, steps in zip(op.branches, work.parts, strict=True):
        side = [moved(s, place) for s in steps]
        if op.binds:
            side.append(Assign(op.binds, sizes(op.binds, work.outputs, graph.outputs)))
        sides.append(tuple(side))
    then, other = sides
    return Branch(around.read(condition), then, other, origin=work.origin)


@dataclass(frozen=True, eq=False)
class LoopSteps:
    """The steps of a loop.

    Each carried value is on the heap, and so is the next one that the body makes, which takes its
    place by a move. Values that are kept grow at the end of an array on the heap.
    """

    work: Inner
    op: Loop
    around: Around

    @property
    def initial(self) -> list[Value]:
        """The first carried values."""
        return [v for v in self.work.inputs[1 : 1 + self.op.carried] if v is not None]

    @property
    def now(self) -> list[Place]:
        """Where the carried values are."""
        return [self.around.places[v] for v in self.work.outputs[: self.op.carried]]

    @cached_property
    def then(self) -> list[Place]:
        """Where the next ones are made."""
        return [self.around.new() for _ in self.now]

    @property
    def kinds(self) -> tuple[Value, ...]:
        """The carried values in the body."""
        return self.op.body.inputs[2 : 2 + self.op.carried]

    @property
    def count(self) -> Var:
        assert isinstance(self.op.count, Var)
        return self.op.count

    def sizes_before(self) -> Iterator[AnyStep]:
        """Sizes of carried values as they are at first, and of kept ones while there are none."""
        if varying := variables(self.op.varying):
            yield Assign(varying, sizes(varying, self.kinds, self.initial))
        if kept := variables(self.op.kept):
            yield Assign(kept, tuple(n.as_expr(0) for _ in kept))

    def repeat(self) -> Repeat:
        """The loop itself."""
        at = self.around.scratch_at
        return Repeat(
            self.count,
            self.op.trip,
            at(NUMBER),
            at(CONDITION),
            at(AGAIN),
            self.work.inputs[0] is not None,
            tuple(self._body()),
            origin=self.work.origin,
        )

    def _body(self) -> Iterator[AnyStep]:
        op, (steps,) = self.op, self.work.parts
        for s in steps:
            if isinstance(s, Allocate) and s.place.kind == "output" and s.place.index > op.carried:
                yield from self._grow(s)
            else:
                yield moved(s, self._place)
        if varying := variables(op.varying):
            made = op.body.outputs[1 : 1 + op.carried]
            yield Assign(varying, sizes(varying, self.kinds, made))
        for source, target in zip(self.then, self.now, strict=True):
            yield Move(source.index, target.index)

    def _place(self, inner: Place) -> Place:
        """Where a place of the body is in the graph around it."""
        k, at = inner.index, self.around.scratch_at
        match inner.kind:
            case "input":
                outer = self._input(k)
            case "output" if k == 0:
                outer = at(AGAIN)
            case "output" if k <= self.op.carried:
                outer = self.then[k - 1]
            case "output":
                v = self.op.body.outputs[k]
                size = n.product(v.type.shape) * v.type.dtype.bytes
                outer = replace(self._list(k), offset=simplify(self.count * size))
            case "arena":
                outer = at(LOOP_BYTES)
            case "constant" | "heap":
                return inner
        return replace(outer, offset=simplify(outer.offset + inner.offset))

    def _input(self, k: int) -> Place:
        if k < 2:
            return self.around.scratch_at(CONDITION if k else NUMBER)
        if k < 2 + self.op.carried:
            return self.now[k - 2]
        given = self.work.inputs[k - 1]
        assert given is not None
        return self.around.read(given)

    def _list(self, k: int) -> Place:
        """Where all values are that output ``k`` of the body has had."""
        return self.around.places[self.work.outputs[k - 1]]

    def _grow(self, step: Allocate) -> Iterator[AnyStep]:
        """Room for one more of the values that are kept, all of which have one size."""
        k = step.place.index
        v = self.work.outputs[k - 1]
        shape = self.op.body.outputs[k].type.shape
        own = [(s, d) for s, d in zip(v.type.shape[1:], shape, strict=True) if s in self.op.kept]
        if own:
            message = f"the sizes of {v.name} differ from time to time"
            equal = reduce(n.all_of, (n.eq(s, d) for s, d in own))
            same = n.any_of(n.eq(self.count, 0), equal)
            yield Check(same, self.around.failure(message, self.work.origin[0], [same]))
            symbols = tuple(s for s, _ in own if isinstance(s, Var))
            yield Assign(symbols, tuple(d for _, d in own))
        grown = (simplify(self.count + 1), *shape)
        yield replace(step, place=self._list(k), shape=grown, kept=True)


def sizes(
    symbols: Sequence[Var], types: Sequence[Value], values: Sequence[Value]
) -> tuple[Expr, ...]:
    """What symbols in the types of some values are, by the types of others."""
    found: dict[Expr, Expr] = {}
    for kind, v in zip(types, values, strict=False):
        for symbol, d in zip(kind.type.shape, v.type.shape, strict=True):
            if symbol in symbols:
                found[symbol] = d
    return tuple(found[s] for s in symbols)


def moved(step: AnyStep, place: Callable[[Place], Place]) -> AnyStep:
    """A step of an inner graph with its places as the graph around it has them."""
    match step:
        case Step():
            arguments = tuple(map(place, step.arguments))
            return replace(step, arguments=arguments, scratch=place(step.scratch))
        case Branch():
            then, other = (tuple(moved(s, place) for s in side) for side in (step.then, step.other))
            return replace(step, condition=place(step.condition), then=then, other=other)
        case Repeat():
            return replace(
                step,
                number=place(step.number),
                condition=place(step.condition),
                again=place(step.again),
                steps=tuple(moved(s, place) for s in step.steps),
            )
        case Bind() | Allocate():
            return replace(step, place=place(step.place))
        case Host():
            inputs, outputs = (
                tuple((place(p), kind) for p, kind in some) for some in (step.inputs, step.outputs)
            )
            return replace(step, inputs=inputs, outputs=outputs)
        case _:
            return step
