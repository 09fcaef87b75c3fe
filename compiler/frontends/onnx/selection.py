"""ONNX operators that write at chosen places, or choose what to keep: scatters, TopK, NonZero."""

from __future__ import annotations

from collections.abc import Sequence

from planish.compiler.dtypes import STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.expr.sizes import at_least, normal, volume
from planish.compiler.graph.ir import Value
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.scatter import REDUCTIONS, ScatterElements, ScatterND
from planish.compiler.ops.selection import CountNonZero, NonZero, Unique, UniquePlaces
from planish.compiler.ops.sequences import ReverseSequence, TensorScatter
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.strings import StringRanks
from planish.compiler.ops.topk import TopK

from .reader import NodeReader, handles
from .shape import positive

_SINCE = {"none": 1, "add": 16, "mul": 16, "min": 18, "max": 18}


@handles("TopK", 1, 10, 11, 24)
def top_k(r: NodeReader) -> tuple[Value, ...]:
    """k is an attribute before version 10, and the largest come first before 11.

    Where the order is not asked for, it is the same all the same.
    """
    x = r.input(0)
    k: Expr = as_expr(r.required("k")) if r.version < 10 else r.number(1, "k")
    largest = True
    if r.version >= 11:
        largest = bool(r.attribute("largest", 1))
        r.attribute("sorted", 1)
    (axis,) = positive(r, [r.attribute("axis", -1)], x.type.rank)
    return r.apply(TopK(k, axis, largest), x)


@handles("Scatter", 9, 11)
def scatter(r: NodeReader) -> Value:
    """ScatterElements under its old name."""
    return r.one(ScatterElements("none", r.attribute("axis", 0)), *r.inputs())


@handles("ScatterElements", 11, 13, 16, 18)
def scatter_elements(r: NodeReader) -> Value:
    """add and mul since version 16, min and max since 18."""
    return r.one(ScatterElements(reduction_of(r), r.attribute("axis", 0)), *r.inputs())


@handles("ScatterND", 11, 13, 16, 18)
def scatter_nd(r: NodeReader) -> Value:
    """As ScatterElements."""
    return r.one(ScatterND(reduction_of(r)), *r.inputs())


def reduction_of(r: NodeReader) -> str:
    """How updates meet what is there."""
    found = r.attribute("reduction", "none") if r.version >= 16 else "none"
    if found not in REDUCTIONS or r.version < _SINCE[found]:
        raise r.fail(f"there is no reduction {found}")
    return str(found)


@handles("TensorScatter", 24)
def tensor_scatter(r: NodeReader) -> Value:
    """The update goes to the front of the axis where no indices are given."""
    mode = r.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise r.fail(f"there is no mode {mode}")
    op = TensorScatter(r.attribute("axis", -2), mode == "circular")
    where = r.optional(2)
    return r.one(op, r.input(0), r.input(1), *([] if where is None else [where]))


@handles("ReverseSequence", 10, 28)
def reverse_sequence(r: NodeReader) -> Value:
    """All versions alike."""
    op = ReverseSequence(r.attribute("batch_axis", 1), r.attribute("time_axis", 0))
    return r.one(op, r.input(0), r.input(1))


@handles("NonZero", 9, 13)
def nonzero(r: NodeReader) -> Value:
    """All versions alike."""
    x = r.input(0)
    return r.one(NonZero(count_of(r, x)), x)


def count_of(r: NodeReader, x: Value) -> Expr:
    """How many elements are not zero."""
    count = r.builder.one(CountNonZero(), x, origin=r.label)
    return r.symbol(count, "the number of elements that are not zero")


@handles("Compress", 9, 11, 28)
def compress(r: NodeReader) -> Value:
    """What the true conditions choose: conditions beyond the end choose nothing."""
    x, conditions, axis = r.input(0), r.input(1), r.attribute("axis")
    if conditions.type.rank != 1:
        raise r.fail(f"the conditions are {conditions!r}, not a vector")
    if axis is None:
        x, axis = flat(r, x), 0
    (axis,) = positive(r, [axis], x.type.rank)
    (given,), extent = conditions.type.shape, x.type.shape[axis]
    if not at_least(extent, given):
        size = normal(n.minimum(given, extent))
        op = Slice((as_expr(0),), (1,), (size,))
        conditions = r.builder.one(op, conditions, origin=r.label)
    count = count_of(r, conditions)
    places = r.builder.one(NonZero(count), conditions, origin=r.label)
    return r.one(Gather(axis), x, r.builder.one(Reshape((count,)), places, origin=r.label))


def flat(r: NodeReader, x: Value) -> Value:
    """All elements as a vector."""
    if x.type.rank == 1:
        return x
    return r.builder.one(Reshape((volume(x.type.shape),)), x, origin=r.label)


@handles("Unique", 11, 28)
def unique(r: NodeReader) -> tuple[Value, ...]:
    """Of all elements where there is no axis."""
    x, axis = r.input(0), r.attribute("axis")
    if axis is None:
        x, axis = flat(r, x), 0
    (axis,) = positive(r, [axis], x.type.rank)
    names = [*r.output_names, *[""] * 4]
    return unique_of(r, x, Unique(axis, bool(r.attribute("sorted", 1))), names)


def unique_of(
    r: NodeReader, x: Value, op: Unique, names: Sequence[str]
) -> tuple[Value, Value, Value, Value]:
    """Elements, where each is first, which one each was, and how many there are of it."""

    def name(k: int) -> list[str]:
        return [names[k] or f"{r.label}_{k}"]

    # Numbers in the order of the strings do for those.
    keys = r.builder.one(StringRanks(), x, origin=r.label) if x.type.dtype is STRING else x
    inverse, number = r.builder.apply(op, keys, names=name(2), origin=r.label)
    count = r.symbol(number, "the number of different elements")
    places, counts = r.builder.apply(
        UniquePlaces(count), inverse, names=name(1) + name(3), origin=r.label
    )
    (y,) = r.builder.apply(Gather(op.axis), x, places, names=name(0), origin=r.label)
    return y, places, inverse, counts
