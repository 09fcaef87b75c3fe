"""What is done with packed sequences, by operators on the two tensors that each is.

Positions and lengths that only data tells become symbols, as sizes do, and are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planish.compiler.dtypes import I64, DType
from planish.compiler.errors import ImportModelError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import GraphBuilder, Value, assume
from planish.compiler.ops.base import Op
from planish.compiler.ops.compare import Equal, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range, Where
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.reduction import ReduceProd, ReduceSum
from planish.compiler.ops.shape import Concat, Reshape, ShapeOf
from planish.compiler.ops.sizes import Sizes
from planish.compiler.packings import MOST_RANK, ROW

from .items import (
    Form,
    Item,
    KnownOptional,
    Maps,
    PackedOptional,
    PackedSequence,
    ValueSequence,
    elements_of,
    tensors,
)

_ONE = as_expr(1)
_ZERO = as_expr(0)


class Packer:
    """Makes nodes in a graph: for what is called ``label``, which the node ``origin`` makes."""

    def __init__(
        self, builder: GraphBuilder, fresh: Callable[[str], str], label: str, origin: str = ""
    ) -> None:
        self.builder, self.fresh, self.label = builder, fresh, label
        self.origin = origin or label

    def __call__(self, op: Op, *values: Value | int | Sequence[Any]) -> Value:
        """What an operator gives; numbers are constants."""
        given = [v if isinstance(v, Value) else self.integers(v) for v in values]
        return self.builder.one(op, *given, origin=self.origin)

    def integers(self, numbers: int | Sequence[Any]) -> Value:
        return self.builder.constant(np.array(numbers, np.int64))

    # ------------------------------------------------------------------------- what data tells

    def sizes(self, x: Value, name: str, what: str, error: str = "") -> tuple[Expr, ...]:
        """The integers of a tensor as sizes: those that are known, or symbols."""
        if x.content is not None:
            for e in x.content:
                if isinstance(e, Const) and e.value < 0:
                    raise ImportModelError(error or f"{what} is negative")
            return x.content
        symbols = tuple(Var(self.fresh(name)) for _ in range(int(x.type.size or 0)))
        self(Sizes(symbols, f"{what} of {self.label}", error=error), x)
        return symbols

    def require(self, condition: Value, name: str, error: str) -> None:
        """End calls in which a condition does not hold, with this message."""
        match condition.content:
            case (Const(holds),):
                if not holds:
                    raise ImportModelError(error)
                return
        wrong = self(Where(), self(Reshape(()), condition), 0, -1)
        symbol = Var(self.fresh(name))
        self(Sizes((symbol,), name, error=error), wrong)
        self._assume(n.eq(symbol, 0))

    def _assume(self, condition: Expr) -> None:
        with self.builder.assuming(self.origin):
            assume(condition)

    def position(
        self, at: Value | int, length: Expr, name: str, end: bool = False, error: str = ""
    ) -> Expr:
        """A place in a sequence, counted from the front; ``end``: behind the last one too.

        Where it may be outside it is a symbol of its own, so that what the user is told of it does
        not come from what is read there.
        """
        at = at if isinstance(at, Value) else self.integers(at)
        if at.type.size != 1 or not at.type.dtype.is_int:
            raise ImportModelError(f"the position is {at!r}, not one integer")
        at = self(Reshape(()), at if at.type.dtype is I64 else self(Cast(I64), at))
        error = error or f"the position in a sequence is out of range for {self.label}"
        if at.content is not None and isinstance(length, Const):
            (place,) = at.content
            if isinstance(place, Const):
                number, count = int(place.value), int(length.value)
                if not -count <= number < count + end:
                    raise ImportModelError(error)
                return as_expr(number + count if number < 0 else number)
        among = self.number(length)
        at = self(Where(), self(Less(), at, 0), self(Add(), at, among), at)
        fits = self(Less(), at, self(Add(), among, 1) if end else among)
        symbol = Var(self.fresh(name))
        self(Sizes((symbol,), "the position", error=error), self(Where(), fits, at, -1))
        return symbol

    def number(self, e: Expr) -> Value:
        """A size as a scalar."""
        if isinstance(e, Const):
            return self.integers(int(e.value))
        return self(Reshape(()), self(Range(e, _ONE, _ONE)))

    # ------------------------------------------------------------------------------ to and from

    def pack(self, items: Sequence[Value], dtype: DType) -> PackedSequence:
        """The tensors as a packed sequence."""
        if not items:
            values = self.builder.constant(np.empty(0, dtype.numpy))
            shapes = self.builder.constant(np.empty((0, ROW), np.int64))
            return PackedSequence(values, shapes, elements_of())
        flat, rows = [self.flat(v) for v in items], [self.row_of(v) for v in items]
        return PackedSequence(
            self.joined(*flat), self.joined(*rows), elements_of(*(v.type for v in items))
        )

    def packed(self, sequence: ValueSequence | PackedSequence) -> PackedSequence:
        if isinstance(sequence, PackedSequence):
            return sequence
        return self.pack(sequence.items, sequence.dtype)

    def _of_dtype(self, item: ValueSequence | PackedSequence, dtype: DType) -> PackedSequence:
        """A packed sequence; of an empty one only here is said of what it is."""
        return self.pack(item.items, dtype) if isinstance(item, ValueSequence) else item

    def joined(self, *parts: Value) -> Value:
        """One after the other along the first axis."""
        return parts[0] if len(parts) == 1 else self(Concat(0), *parts)

    def flat(self, x: Value) -> Value:
        return self(Reshape((normal(n.product(x.type.shape)),)), x)

    def row_of(self, x: Value) -> Value:
        """What ``shapes`` says of a tensor."""
        rank = x.type.rank
        if rank > MOST_RANK:
            raise ImportModelError(
                f"{x!r} is put into a sequence",
                hint=f"one whose length is not known takes tensors of at most {MOST_RANK} axes",
            )
        if is_number(*x.type.shape):
            dims = [int(d.value) for d in x.type.shape if isinstance(d, Const)]
            return self.integers([[rank, *dims, *[1] * (MOST_RANK - rank)]])
        row = self(Concat(0), [rank], self(ShapeOf(), x))
        if rank < MOST_RANK:
            row = self(Concat(0), row, [1] * (MOST_RANK - rank))
        return self(Reshape((_ONE, as_expr(ROW))), row)

    def length(self, sequence: PackedSequence) -> Value:
        return self(Reshape(()), self(ShapeOf(0, 1), sequence.shapes))

    # ----------------------------------------------------------------------------- one of many

    def span(self, x: Value, start: Expr, count: Expr) -> Value:
        """Some slices along the first axis."""
        starts = (start, *[_ZERO] * (x.type.rank - 1))
        shape = (normal(count), *x.type.shape[1:])
        return self(Slice(starts, (1,) * x.type.rank, shape), x)

    def before(self, sequence: PackedSequence, place: Expr) -> Expr:
        """How many elements the tensors before one have."""
        if (shape := sequence.elements.shape) is not None:
            return normal(place * n.product(shape))
        if isinstance(place, Const) and place.value == 0:
            return _ZERO
        if place is sequence.length:
            return sequence.values.type.shape[0]
        sizes = self.counts(self.span(sequence.shapes, _ZERO, place))
        total = self(ReduceSum(None, False), sizes)
        (offset,) = self.sizes(total, f"{self.label}_offset", "the number of elements before")
        return offset

    def counts(self, shapes: Value) -> Value:
        """How many elements each tensor has, by their rows."""
        rows = shapes.type.shape[0]
        dims = self(Slice((_ZERO, _ONE), (1, 1), (rows, as_expr(MOST_RANK))), shapes)
        return self(ReduceProd((1,), False), dims)

    def row(self, sequence: PackedSequence, place: Expr) -> Value:
        return self(Reshape((as_expr(ROW),)), self.span(sequence.shapes, place, _ONE))

    def at(self, sequence: PackedSequence, place: Expr, rank: int | None) -> Value:
        """The tensor at a place; ``rank`` is what it must have, where the sequence does not say.

        Errors: ImportModelError if neither says it.
        """
        dims = sequence.elements.dims
        if sequence.elements.never:
            dims = None
        if dims is None:
            if rank is None:
                raise ImportModelError(
                    f"the rank of the tensors in {sequence!r} is not known",
                    hint="declare the shape of what is taken from it, as an output or value_info",
                )
            dims = (None,) * rank
            own = self.span(self.row(sequence, place), _ZERO, _ONE)
            self.require(
                self(Equal(), own, rank),
                f"{self.label}_has_another_rank",
                f"a tensor of a sequence has another rank than {rank}, as which it is declared",
            )
        unknown = [k for k, d in enumerate(dims) if d is None]
        shape = list(dims)
        if unknown:
            row = self.row(sequence, place)
            own = self.joined(*(self.span(row, as_expr(1 + k), _ONE) for k in unknown))
            found = self.sizes(own, f"{self.label}_{unknown[0]}", "a dimension")
            for k, size in zip(unknown, found, strict=True):
                shape[k] = size
        known = tuple(d for d in shape if d is not None)
        start = self.before(sequence, place)
        return self(Reshape(known), self.span(sequence.values, start, n.product(known)))

    def insert(self, sequence: PackedSequence, x: Value, place: Expr | None) -> PackedSequence:
        """With another tensor before a place, or at the end."""
        if x.type.dtype is not sequence.dtype:
            raise ImportModelError(f"{x!r} is put into {sequence!r}")
        values, shapes = sequence.values, sequence.shapes
        elements = sequence.elements.joined(elements_of(x.type))
        flat, row = self.flat(x), self.row_of(x)
        if place is None:
            return PackedSequence(self.joined(values, flat), self.joined(shapes, row), elements)
        start = self.before(sequence, place)
        return PackedSequence(
            self.around(values, start, start, flat),
            self.around(shapes, place, place, row),
            elements,
        )

    def erase(self, sequence: PackedSequence, place: Expr) -> PackedSequence:
        """Without the tensor at a place."""
        start = self.before(sequence, place)
        if (shape := sequence.elements.shape) is not None:
            end = normal(start + n.product(shape))
        else:
            size = self.counts(self.span(sequence.shapes, place, _ONE))
            (count,) = self.sizes(size, f"{self.label}_elements", "the number of elements")
            end = normal(start + count)
        values = self.around(sequence.values, start, end)
        shapes = self.around(sequence.shapes, place, normal(place + 1))
        return PackedSequence(values, shapes, sequence.elements)

    def around(self, x: Value, start: Expr, end: Expr, *between: Value) -> Value:
        """What is before ``start``, other values, and what is from ``end`` on."""
        tail = self.span(x, end, normal(x.type.shape[0] - end))
        return self.joined(self.span(x, _ZERO, start), *between, tail)

    # --------------------------------------------------------------------------- branches, loops

    def as_form(self, item: Item, form: Form) -> tuple[Value, ...]:
        """The tensors of which an item consists in a form."""
        if form.kind in ("tensor", "known"):
            return tensors(item)
        if form.kind == "packed":
            assert isinstance(item, ValueSequence | PackedSequence)
            return tensors(self._of_dtype(item, form.dtype))
        packed, present = self.optional(item, form)
        if form.kind == "optional":
            return tensors(packed)
        return (*tensors(packed), present)

    def optional(self, item: Item, form: Form) -> tuple[PackedSequence, Value]:
        """An item as an optional: what it holds, and whether it is there."""
        there = isinstance(item, KnownOptional) and item.item is None
        present = self.builder.constant(np.array(not there))
        match item:
            case PackedOptional(sequence, given):
                return sequence, present if given is None else given
            case KnownOptional(None):
                return self.pack((), form.dtype), present
            case KnownOptional(inner):
                assert inner is not None
                return self.optional(inner, form)
            case Value():
                return self.pack((item,), form.dtype), present
            case ValueSequence() | PackedSequence():
                return self._of_dtype(item, form.dtype), present
            case Maps():
                raise ImportModelError(f"{item!r} is no optional")

    def has_element(self, item: Item) -> Value:
        """Whether an optional is there."""
        match item:
            case PackedOptional(sequence, None):
                return self(Equal(), self.length(sequence), 1)
            case PackedOptional(_, present):
                assert present is not None
                return present
        there = not isinstance(item, KnownOptional) or item.item is not None
        return self.builder.constant(np.array(there))

    def element(self, item: Item, rank: int | None) -> Item:
        """What an optional holds; a call in which that is nothing ends with an error."""
        error = f"the optional that {self.label} takes the element of is empty"
        match item:
            case KnownOptional(None):
                raise ImportModelError(error)
            case KnownOptional(inner):
                assert inner is not None
                return inner
            case PackedOptional(sequence, present):
                if present is None:
                    first = self.position(0, sequence.length, f"{self.label}_at", error=error)
                    return self.at(sequence, first, rank)
                self.require(present, f"{self.label}_is_empty", error)
                return sequence
        return item


def is_number(*sizes: Expr) -> bool:
    """Whether all are numbers."""
    return all(isinstance(e, Const) for e in sizes)
