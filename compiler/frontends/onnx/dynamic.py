"""Shapes, slices and ranges that only the data tells.

Integers that a node is given are worked on as tensors, by operators like any other, until what is
left are sizes; those become symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from planish.compiler.dtypes import BOOL, F64, I64, U64
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.base import Op
from planish.compiler.ops.compare import Equal, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range, Where
from planish.compiler.ops.elementwise import Add, Div, Max, Min, Mul, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.reduction import ReduceProd, ReduceSum
from planish.compiler.ops.shape import Concat, Expand, Reshape, ShapeOf
from planish.compiler.ops.unary import Ceil

from .reader import NodeReader, Undecided, known_number

_MOST = (1 << 63) - 1
_MOST_RANK = 6  # of a tensor whose axes only the data tells
_FAR = 1 << 41  # a step this great leaves every dimension


class Integers:
    """Arithmetic on small tensors of i64 in the graph that a node is read into."""

    def __init__(self, r: NodeReader) -> None:
        self.r = r

    def __call__(self, op: Op, *values: Value | int | Sequence[Any]) -> Value:
        """What an operator gives; numbers are constants."""
        given = [v if isinstance(v, Value) else self.constant(v) for v in values]
        return self.r.builder.one(op, *given, origin=self.r.label)

    def constant(self, numbers: int | Sequence[Any]) -> Value:
        return self.r.constant(np.array(numbers, np.int64))

    def wide(self, x: Value) -> Value:
        """Integers of any width as i64."""
        if not x.type.dtype.is_int:
            raise self.r.fail(f"{x!r} must be integers")
        return x if x.type.dtype is I64 else self(Cast(I64), x)

    def shape(self, x: Value) -> Value:
        return self(ShapeOf(), x)

    def length(self, x: Value) -> int:
        """How many integers a tensor has, which must be known."""
        if x.type.size is None:
            raise self.r.fail(f"{x!r} has an open number of integers", hint=known_number(x))
        return x.type.size

    def row(self, x: Value) -> Value:
        """One dimension instead of any."""
        return x if x.type.rank == 1 else self(Reshape((as_expr(self.length(x)),)), x)

    def count(self, start: Value, limit: Value, step: Value) -> Value:
        """How many numbers there are from ``start`` to before ``limit`` by ``step``.

        What is between two may be more than fits in 64 bits; a count that is has no size.
        """
        back = self(Less(), step, 0)
        start, limit = self(Where(), back, limit, start), self(Where(), back, start, limit)
        step = self(Where(), back, self(Sub(), 0, step), step)
        # As unsigned numbers the distance fits, and the amount of the least integer does.
        low, high, by = (self(Cast(U64), v) for v in (start, limit, step))
        one = self.r.constant(np.array(1, np.uint64))
        most = self.r.constant(np.array(_MOST, np.uint64))
        whole = self(Div(), self(Sub(), self(Sub(), high, low), one), self(Max(), by, one))
        count = self(Add(), self(Cast(I64), self(Min(), whole, most)), 1)
        # One more than the greatest integer is negative: no size, as it should be.
        return self(Where(), self(Less(), start, limit), count, 0)

    def some(self, axes: Value, rank: int) -> None:
        """End calls in which an axis is out of range."""
        found = self(ReduceSum((0, 1), False), self(Cast(I64), self.at(axes, rank)))
        pack = self.r.packer()
        error = f"an axis is out of range for rank {rank}"
        pack.require(self(Equal(), found, self.length(axes)), f"{pack.label}_axes", error)

    def moves(self, step: Value) -> None:
        """End calls in which a step is 0."""
        zero = self.r.constant(np.zeros((), step.type.dtype.numpy))
        still = self(ReduceSum(None, False), self(Cast(I64), self(Equal(), step, zero)))
        pack = self.r.packer()
        pack.require(self(Equal(), still, 0), f"{pack.label}_still", "a step is 0")

    def spread(self, values: Value, axes: Value | None, rank: int, default: int) -> Value:
        """Integers given for some of ``rank`` axes (None: the first), with a default for others."""
        values = self.row(self.wide(values))
        if axes is None:
            axes = self.constant(list(range(self.length(values))))
        column = as_expr(self.length(values)), as_expr(1)
        change = self(Reshape(column), self(Sub(), values, default))
        change = self(Where(), self.at(axes, rank), change, 0)
        return self(Add(), self(ReduceSum((0,), False), change), default)

    def at(self, axes: Value, rank: int) -> Value:
        """Which axes these are: a row of bools for each, none true for one out of range."""
        axes = self.row(self.wide(axes))
        axes = self(Where(), self(Less(), axes, 0), self(Add(), axes, rank), axes)
        count = as_expr(self.length(axes))
        return self(Equal(), self(Reshape((count, as_expr(1))), axes), [list(range(rank))])

    def pick(self, x: Value, k: int) -> Value:
        """Element ``k`` of a row."""
        return self(Gather(0), x, k)


def axes_of(r: NodeReader, index: int, what: str, rank: int) -> tuple[int, ...]:
    """Input ``index`` as different axes of a tensor, in any order.

    If only the data tells them, the handler runs once for each choice that there is.

    Errors: Undecided, which the importer understands.
    """
    value = r.input(index)
    count = value.type.size
    if value.content is not None or count is None or rank > _MOST_RANK:
        return r.ints(index, what)
    shape = [int(d.value) for d in value.type.shape if isinstance(d, Const)]
    dtype = value.type.dtype.numpy
    choices = {
        sum(1 << a for a in some): np.array(some, dtype).reshape(shape)
        for some in combinations(range(rank), count)
    }
    if not choices:
        raise r.fail(f"{what} (input {index}) is {value!r} for a rank of {rank}")
    i = Integers(r)
    bits = i(Where(), i.at(value, rank), [[1 << a for a in range(rank)]], 0)
    # Twice the same axis, or one that is none, gives a number of fewer bits.
    raise Undecided(index, i(ReduceSum((0, 1), False), bits), choices)


def flag(r: NodeReader, index: int) -> bool:
    """Input ``index`` as one bool; if only the data tells it, as ``axes_of``."""
    value = r.input(index)
    if value.type.dtype is not BOOL or value.type.size != 1:
        raise r.fail(f"input {index} is {value!r}, not one bool")
    match value.content:
        case (Const(known),):
            return bool(known)
    i = Integers(r)
    shape = [1] * value.type.rank
    choices = {k: np.array(bool(k)).reshape(shape) for k in (0, 1)}
    raise Undecided(index, i(Reshape(()), i(Cast(I64), value)), choices)


def known_elements(r: NodeReader, value: Value) -> list[int | None]:
    """The integers of a row: those that are known, where others depend on the data.

    Exporters put shapes together from what they read and what is written in the model.
    """
    array = r.array_of(value)
    if array is not None:
        return [int(e) for e in array.reshape(-1)]
    makers = (node for node in reversed(r.builder.nodes) if value in node.outputs)
    maker = next(makers, None)
    if maker is not None and isinstance(maker.op, Concat):
        return [e for v in maker.operands for e in known_elements(r, v)]
    return [None] * (value.type.size or 0)


def reshaped(r: NodeReader, x: Value, wanted: Value, keeps_zero: bool) -> Value:
    """x in a shape with 0 for what stays (unless ``keeps_zero``) and -1 for what is left."""
    i = Integers(r)
    wanted = i.row(i.wide(wanted))
    rank = i.length(wanted)
    known = known_elements(r, wanted)
    shape = i.shape(x)
    if not keeps_zero:
        shared = [*range(min(rank, x.type.rank))]
        own = i(Gather(0), shape, shared)
        if rank > len(shared):
            own = i(Concat(0), own, [0] * (rank - len(shared)))
        wanted = i(Where(), i(Equal(), wanted, 0), own, wanted)
    open = i(Equal(), wanted, -1)
    others = i(ReduceProd(None, False), i(Where(), open, 1, wanted))
    rest = i(Div(), i(ReduceProd(None, False), shape), i(Max(), others, 1))
    dims = r.symbols(i(Where(), open, rest, wanted), "the shape")
    told = zip(dims, known, strict=True)
    return r.one(Reshape(tuple(as_expr(k) if k is not None and k > 0 else d for d, k in told)), x)


def expanded(r: NodeReader, x: Value, wanted: Value) -> Value:
    """The broadcast of x and a shape, each dimension of either being 1 or that of both."""
    i = Integers(r)
    wanted = i.row(i.wide(wanted))
    rank = max(i.length(wanted), x.type.rank)

    def full(shape: Value) -> Value:
        missing = rank - i.length(shape)
        return i(Concat(0), [1] * missing, shape) if missing else shape

    known = known_elements(r, wanted)
    known = [*[None] * (rank - len(known)), *known]
    own, wanted = full(i.shape(x)), full(wanted)
    dims = r.symbols(i(Where(), i(Equal(), wanted, 1), own, wanted), "the shape")
    told = zip(dims, known, strict=True)
    dims = tuple(as_expr(k) if k is not None and k != 1 else d for d, k in told)
    return r.one(Expand(dims, loose=True), x)


def sliced(
    r: NodeReader,
    x: Value,
    starts: Value,
    ends: Value,
    axes: Value | Sequence[int] | None,
    steps: Value | Sequence[int] | None,
) -> Value:
    """A slice between places that only the data tells, along axes or by steps that it tells too."""
    i = Integers(r)
    rank = x.type.rank
    counts = {len(v) if isinstance(v, Sequence) else v.type.size
              for v in (starts, ends, axes, steps) if v is not None}  # fmt: skip
    if len(counts) > 1:
        raise r.fail("starts, ends, axes and steps differ in number")
    if isinstance(axes, Value) or axes is None:
        over = list(range(rank))
        if axes is not None:
            i.some(axes, rank)
        full = [
            i.spread(v, axes, rank, default)
            for v, default in ((starts, 0), (ends, _MOST), (_value(i, steps, starts), 1))
        ]
    else:
        over = [a % rank for a in axes]
        full = [i.row(i.wide(v)) for v in (starts, ends, _value(i, steps, starts))]
    start, end, step = full
    step = i(Max(), i(Min(), step, _FAR), -_FAR)  # no arithmetic on it may overflow
    if isinstance(steps, Value):
        i.moves(steps)
    extent = i(Gather(0), i.shape(x), over)
    back = i(Less(), step, 0)
    last = i(Where(), back, i(Sub(), extent, 1), extent)

    def held(v: Value, least: Value | int) -> Value:
        v = i(Where(), i(Less(), v, 0), i(Add(), v, extent), v)
        return i(Max(), i(Min(), v, last), least)

    first = held(start, 0)
    stop = held(end, i(Where(), back, -1, 0))
    count = i(Min(), i.count(first, stop, step), extent)
    sizes = r.symbols(count, "the size of the slice")
    shape = list(x.type.shape)
    for axis, size in zip(over, sizes, strict=True):
        shape[axis] = size
    known = r.array_of(step)
    if known is not None and (known != 0).all():
        places = r.symbols(first, "the start of the slice")
        from_: list[Expr] = [as_expr(0)] * rank
        by = [1] * rank
        for axis, place, jump in zip(over, places, known.tolist(), strict=True):
            from_[axis], by[axis] = place, max(-_FAR, min(_FAR, jump))
        return r.one(Slice(tuple(from_), tuple(by), tuple(shape)), x)
    for k, axis in enumerate(over):
        numbers = i(Range(as_expr(0), as_expr(1), sizes[k]))
        at = i(Add(), i(Mul(), numbers, i.pick(step, k)), i.pick(first, k))
        x = i(Gather(axis), x, at)
    return x


def _value(i: Integers, steps: Value | Sequence[int] | None, like: Value) -> Value:
    if isinstance(steps, Value):
        return steps
    return i.constant([1] * i.length(like) if steps is None else list(steps))


def numbers_between(r: NodeReader, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta ... before limit, of any dtype."""
    i = Integers(r)
    dtype = start.type.dtype
    start, limit, delta = (i(Reshape(()), v) for v in (start, limit, delta))
    if r.array_of(delta) is None:
        i.moves(delta)
    if dtype.is_float:
        a, b, d = (i(Cast(F64), v) for v in (start, limit, delta))
        count = i(Cast(I64), i(Ceil(), i(Div(), i(Sub(), b, a), d)))
        count = i(Max(), count, 0)
    else:
        count = i.count(*(i.wide(v) for v in (start, limit, delta)))
    size = r.symbol(count, "the number of elements")
    wide = dtype.computed
    steps = i(Cast(wide), i(Range(as_expr(0), as_expr(1), size)))
    start, delta = (v if wide is dtype else i(Cast(wide), v) for v in (start, delta))
    found = i(Add(), start, i(Mul(), steps, delta))
    return found if wide is dtype else i(Cast(dtype), found)
