"""ONNX's Constant, and sequences of tensors: known as lists during the import, gone after it."""

from __future__ import annotations

import numpy as np
import onnx

from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import Value
from planish.compiler.ops.shape import Concat, Reshape, Split

from .reader import NodeReader, ValueSequence, handles
from .shape import LATE, positive
from .tensors import dense


@handles("Constant", 1, 9, 11, 12, 13, 19, *LATE)
def constant(r: NodeReader) -> Value:
    """Numbers since version 12, sparse tensors since 11; no text."""
    kinds = [
        k
        for k in ("value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints")
        if r.has(k)
    ]
    if len(kinds) != 1:
        raise r.fail(f"exactly one kind of number must be given, not {kinds}")
    (kind,) = kinds
    name = r.output_names[0] if r.output_names else r.label
    if kind == "value":
        array = r.tensor("value")
    elif kind == "sparse_value":
        sparse = r.attribute("sparse_value")
        if not isinstance(sparse, onnx.SparseTensorProto):
            raise r.fail("attribute sparse_value is no sparse tensor")
        array = dense(sparse, f"the constant {r.label}", r.folder)
    else:
        dtype = np.float32 if "float" in kind else np.int64
        array = np.array(r.attribute(kind), dtype)
    return r.constant(array, name)


def position(r: NodeReader, index: int, length: int, end: bool = False) -> int:
    """A known place in a sequence, counted from the front; ``end``: behind the last one too."""
    places = r.ints(index, "the position")
    if len(places) != 1 or not -length <= places[0] < length + end:
        raise r.fail(f"the position {list(places)} is outside of a sequence of {length}")
    return places[0] + length if places[0] < 0 else places[0]


@handles("SequenceConstruct", 11)
def sequence_construct(r: NodeReader) -> ValueSequence:
    """All tensors of one dtype."""
    items = r.inputs()
    if any(v.type.dtype is not items[0].type.dtype for v in items):
        raise r.fail("the tensors differ in dtype")
    return ValueSequence(tuple(items))


@handles("SequenceEmpty", 11)
def sequence_empty(r: NodeReader) -> ValueSequence:
    """No tensors."""
    r.attribute("dtype")
    return ValueSequence(())


@handles("SequenceAt", 11)
def sequence_at(r: NodeReader) -> Value:
    """The position is known."""
    items = r.sequence(0)
    return items[position(r, 1, len(items))]


@handles("SequenceLength", 11)
def sequence_length(r: NodeReader) -> Value:
    """A constant."""
    return r.constant(np.array(len(r.sequence(0)), np.int64), r.output_names[0])


@handles("SequenceInsert", 11)
def sequence_insert(r: NodeReader) -> ValueSequence:
    """At the end if no position is given."""
    items = r.sequence(0)
    at = len(items) if r.optional(2) is None else position(r, 2, len(items), end=True)
    return ValueSequence((*items[:at], r.input(1), *items[at:]))


@handles("SequenceErase", 11)
def sequence_erase(r: NodeReader) -> ValueSequence:
    """The last one if no position is given."""
    items = r.sequence(0)
    at = len(items) - 1 if r.optional(1) is None else position(r, 1, len(items))
    if not items:
        raise r.fail("the sequence is empty")
    return ValueSequence((*items[:at], *items[at + 1 :]))


@handles("SplitToSequence", 11, 24)
def split_to_sequence(r: NodeReader) -> ValueSequence:
    """Parts of known number; keepdims counts only without sizes."""
    x = r.input(0)
    (axis,) = positive(r, [r.attribute("axis", 0)], x.type.rank)
    keep = bool(r.attribute("keepdims", 1))
    extent = x.type.shape[axis]
    given = r.optional(1)
    parts: list[Expr]
    if given is not None and given.type.rank == 1:
        parts = list(r.content(1, "the sizes"))
    else:
        (size,) = (1,) if given is None else r.ints(1, "the size")
        if not isinstance(extent, Const) or size < 1:
            raise r.fail(
                f"into how many parts of {size} dimension {axis} of {x!r} splits is not known"
            )
        whole, rest = divmod(int(extent.value), size)
        if whole > 1 << 16:
            raise r.fail(f"it would have {whole} parts")
        parts = [as_expr(size)] * whole + ([as_expr(rest)] if rest else [])
    if not parts:
        return ValueSequence(())
    values = r.builder.apply(
        Split(tuple(parts), axis), x, names=[r.label] * len(parts), origin=r.label
    )
    if given is None and not keep:
        shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
        values = tuple(
            r.builder.one(Reshape(shape), v, name=r.label, origin=r.label) for v in values
        )
    return ValueSequence(values)


@handles("ConcatFromSequence", 11)
def concat_from_sequence(r: NodeReader) -> Value:
    """Joined along an axis, or along a new one."""
    items = r.sequence(0)
    axis, new = r.required("axis"), bool(r.attribute("new_axis", 0))
    if not items:
        raise r.fail("the sequence is empty")
    if new:
        (axis,) = positive(r, [axis], items[0].type.rank + 1)
        shapes = [(*v.type.shape[:axis], as_expr(1), *v.type.shape[axis:]) for v in items]
        items = tuple(
            r.builder.one(Reshape(tuple(map(normal, s))), v, origin=r.label)
            for s, v in zip(shapes, items, strict=True)
        )
    return r.one(Concat(axis), *items)
