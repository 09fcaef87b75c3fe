"""ONNX operators on sequences and optionals.

While the length of a sequence is known, it is a list during the import and costs nothing; what is
done at a place that only data tells, or into a number of parts that it tells, packs it.
"""

from __future__ import annotations

import numpy as np
import onnx

from planish.compiler.dtypes import F32, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import Value
from planish.compiler.ops.compare import Equal, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range, Where
from planish.compiler.ops.elementwise import Add, Div, Min, Mul, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.scans import CumSum
from planish.compiler.ops.shape import Concat, Expand, Reshape, Split, Transpose
from planish.compiler.packings import MOST_RANK, ROW

from .items import (
    Elements,
    Item,
    KnownOptional,
    Maps,
    PackedOptional,
    PackedSequence,
    ValueSequence,
)
from .packing import Packer
from .reader import NodeReader, handles
from .shape import positive
from .tensors import dtype_of

_MOST_PARTS = 64  # that a tensor is split into one by one
_MOST_OF_A_PART = 1 << 45  # more than any dimension: a greater size means the same
_ONE = as_expr(1)


# --------------------------------------------------------------------------------- sequences


@handles("SequenceConstruct", 11)
def sequence_construct(r: NodeReader) -> ValueSequence:
    """All tensors of one dtype."""
    items = r.inputs()
    if any(v.type.dtype is not items[0].type.dtype for v in items):
        raise r.fail("the tensors differ in dtype")
    return ValueSequence(tuple(items))


@handles("SequenceEmpty", 11)
def sequence_empty(r: NodeReader) -> ValueSequence:
    """No tensors; floats if it is not said of what."""
    code = r.attribute("dtype")
    return ValueSequence((), F32 if code is None else dtype_of(code, "attribute dtype"))


def known_place(r: NodeReader, index: int, length: int, end: bool = False) -> int | None:
    """A place in a sequence of known length, counted from the front, if it is known.

    ``end``: behind the last one too.
    """
    if r.array(index) is None:
        return None
    places = r.ints(index, "the position")
    if len(places) != 1 or not -length <= places[0] < length + end:
        raise r.fail(f"the position {list(places)} is outside of a sequence of {length}")
    return places[0] + length if places[0] < 0 else places[0]


@handles("SequenceAt", 11)
def sequence_at(r: NodeReader) -> Value:
    """The position counts from the end if it is negative."""
    sequence = r.sequence(0)
    if isinstance(sequence, ValueSequence):
        place = known_place(r, 1, len(sequence.items))
        if place is not None:
            return sequence.items[place]
    pack = r.packer()
    packed = pack.packed(sequence)
    at = pack.position(r.input(1), packed.length, f"{pack.label}_at")
    return pack.at(packed, at, r.declared_rank(r.output_names[0]))


@handles("SequenceLength", 11)
def sequence_length(r: NodeReader) -> Value:
    """A constant, or a size."""
    sequence = r.sequence(0)
    if isinstance(sequence, ValueSequence):
        return r.constant(np.array(len(sequence.items), np.int64), r.output_names[0])
    return r.packer().length(sequence)


@handles("SequenceInsert", 11)
def sequence_insert(r: NodeReader) -> ValueSequence | PackedSequence:
    """At the end if no position is given."""
    sequence, x = r.sequence(0), r.input(1)
    last = r.optional(2) is None
    if isinstance(sequence, ValueSequence):
        items = sequence.items
        if items and x.type.dtype is not sequence.dtype:
            raise r.fail(f"{x!r} is put into a sequence of {sequence.dtype}")
        place = len(items) if last else known_place(r, 2, len(items), end=True)
        if place is not None:
            return ValueSequence((*items[:place], x, *items[place:]))
    pack = r.packer()
    packed = pack.packed(sequence)
    if last:
        return pack.insert(packed, x, None)
    at = pack.position(r.input(2), packed.length, f"{pack.label}_at", end=True)
    return pack.insert(packed, x, at)


@handles("SequenceErase", 11)
def sequence_erase(r: NodeReader) -> ValueSequence | PackedSequence:
    """The last one if no position is given."""
    sequence = r.sequence(0)
    last = r.optional(1) is None
    if isinstance(sequence, ValueSequence):
        items = sequence.items
        if not items:
            raise r.fail("the sequence is empty")
        place = len(items) - 1 if last else known_place(r, 1, len(items))
        if place is not None:
            return ValueSequence((*items[:place], *items[place + 1 :]), sequence.dtype)
    pack = r.packer()
    packed = pack.packed(sequence)
    at = r.constant(np.array(-1)) if last else r.input(1)
    return pack.erase(packed, pack.position(at, packed.length, f"{pack.label}_at"))


# ------------------------------------------------------------------------------ to one tensor


@handles("ConcatFromSequence", 11)
def concat_from_sequence(r: NodeReader) -> Value:
    """Joined along an axis, or along a new one."""
    sequence = r.sequence(0)
    axis, new = r.required("axis"), bool(r.attribute("new_axis", 0))
    if isinstance(sequence, PackedSequence):
        return _stacked(r, sequence, axis) if new else _joined(r, sequence, axis)
    items = sequence.items
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


def _rank(r: NodeReader, sequence: PackedSequence, more: int) -> int:
    """The rank of all tensors; the result has ``more`` axes."""
    if sequence.elements.dims is not None and not sequence.elements.never:
        return len(sequence.elements.dims)
    declared = r.declared_rank(r.output_names[0])
    if declared is None or declared < more:
        raise r.fail(
            f"the rank of the tensors in {sequence!r} is not known",
            hint="declare the shape of the result, as an output or value_info",
        )
    return declared - more


def _common(r: NodeReader, p: Packer, s: PackedSequence, rank: int, but: int | None) -> list[Expr]:
    """The dimensions of all tensors, checked to be equal, except for those along an axis."""
    rows = s.shapes
    error = f"{r.label} joins an empty sequence"
    at = p.position(0, s.length, f"{p.label}_first", error=error)
    dims = s.elements.dims or (None,) * rank
    unknown = [k for k, d in enumerate(dims) if d is None and k != but]
    first = p.row(s, at)
    if unknown or s.elements.dims is None:
        same = p(Equal(), rows, first)
        if but is not None:
            along = np.arange(ROW) == 1 + but
            same = p(Where(), p.builder.constant(along), p.builder.constant(np.array(True)), same)
        differing = p(ReduceSum(None, False), p(Where(), same, 0, 1))
        p.require(
            p(Equal(), differing, 0),
            f"{p.label}_differ",
            f"{r.label} joins tensors that differ in rank, or in other dimensions than the axis",
        )
    if s.elements.dims is None:
        p.require(
            p(Equal(), p.span(first, as_expr(0), _ONE), rank),
            f"{p.label}_has_another_rank",
            f"{r.label} joins tensors of another rank than {rank}, as which they are declared",
        )
    if not unknown:
        return [_ONE if d is None else d for d in dims]
    own = p.joined(*(p.span(first, as_expr(1 + k), _ONE) for k in unknown))
    found = iter(p.sizes(own, f"{p.label}_{unknown[0]}", "a dimension"))
    return [_ONE if k == but else next(found) if d is None else d for k, d in enumerate(dims)]


def _stacked(r: NodeReader, sequence: PackedSequence, axis: int) -> Value:
    """Joined along a new axis: all tensors have one shape."""
    p, rank = r.packer(), _rank(r, sequence, 1)
    (axis,) = positive(r, [axis], rank + 1)
    dims = _common(r, p, sequence, rank, None)
    whole = p(Reshape((sequence.length, *dims)), sequence.values)
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    return p(Transpose(tuple(order)), whole) if axis else whole


def _joined(r: NodeReader, sequence: PackedSequence, axis: int) -> Value:
    """Joined along an axis, in which they may differ."""
    p, rank = r.packer(), _rank(r, sequence, 0)
    (axis,) = positive(r, [axis], rank)
    dims = _common(r, p, sequence, rank, axis)
    widths = _column(p, sequence.shapes, 1 + axis)
    (extent,) = p.sizes(p(ReduceSum(None, False), widths), f"{p.label}_{axis}", "a dimension")
    before, behind = normal(n.product(dims[:axis])), normal(n.product(dims[axis + 1 :]))
    shape = (*dims[:axis], extent, *dims[axis + 1 :])
    if isinstance(before, Const) and before.value == 1:
        return p(Reshape(shape), sequence.values)
    start, width = _parts(p, widths, extent)
    size = p.number(behind)
    # Element a, c, b of the result is in the tensor from column start[c] on, width[c] wide.
    column = p(Range(as_expr(0), _ONE, extent))
    first = p(Add(), p(Mul(), p(Mul(), start, p.number(before)), size),
              p(Mul(), p(Sub(), column, start), size))  # fmt: skip
    stride = p(Mul(), width, size)
    over = p(Reshape((before, _ONE)), p(Range(as_expr(0), _ONE, before)))
    at = p(Add(), first, p(Mul(), over, stride))
    inner = p(Range(as_expr(0), _ONE, behind))
    index = p(Add(), p(Reshape((before, extent, _ONE)), at), inner)
    return p(Reshape(shape), p(Gather(0), sequence.values, index))


def _column(p: Packer, shapes: Value, k: int) -> Value:
    """One of the numbers in each row."""
    rows = shapes.type.shape[0]
    part = p(Slice((as_expr(0), as_expr(k)), (1, 1), (rows, _ONE)), shapes)
    return p(Reshape((rows,)), part)


def _parts(p: Packer, widths: Value, extent: Expr) -> tuple[Value, Value]:
    """For each column of parts beside each other: where its part begins, and how wide it is."""
    ends = p(CumSum(0), widths)
    column = p(Reshape((extent, _ONE)), p(Range(as_expr(0), _ONE, extent)))
    ended = p(Cast(I64), p(Less(), column, ends))
    parts = p.number(widths.type.shape[0])
    owner = p(Sub(), parts, p(ReduceSum((1,), False), ended))
    starts = p(Sub(), ends, widths)
    return p(Gather(0), starts, owner), p(Gather(0), widths, owner)


# -------------------------------------------------------------------------------- from one tensor


@handles("SplitToSequence", 11, 24)
def split_to_sequence(r: NodeReader) -> ValueSequence | PackedSequence:
    """Parts of given sizes, or of one size; keepdims counts only without sizes."""
    x = r.input(0)
    (axis,) = positive(r, [r.attribute("axis", 0)], x.type.rank)
    keep = bool(r.attribute("keepdims", 1))
    extent = x.type.shape[axis]
    given = r.optional(1)
    if given is not None and given.type.rank == 1:
        if given.content is None and given.type.size is None:
            return _split_at(r, x, axis, given)
        return _split(r, x, axis, list(r.content(1, "the sizes")), True)
    if given is None or r.array(1) is not None:
        (size,) = (1,) if given is None else r.ints(1, "the size")
        if size < 1:
            raise r.fail(f"the size of parts is {size}")
        if not isinstance(extent, Const) or -(-int(extent.value) // size) > _MOST_PARTS:
            size = min(size, _MOST_OF_A_PART)
            return _split_evenly(r, x, axis, as_expr(size), given is not None or keep)
        whole, rest = divmod(int(extent.value), size)
        parts = [as_expr(size)] * whole + ([as_expr(rest)] if rest else [])
        return _split(r, x, axis, parts, given is not None or keep)
    p = r.packer()
    small = p(Min(), p(Cast(I64), p(Reshape(()), given)), _MOST_OF_A_PART)
    error = f"the size of the parts of {r.label} is less than 1"
    (less,) = p.sizes(p(Sub(), small, 1), f"{p.label}_size", "the size of parts", error)
    return _split_evenly(r, x, axis, normal(less + 1), True)


def _split(r: NodeReader, x: Value, axis: int, parts: list[Expr], keep: bool) -> ValueSequence:
    """Parts of known number."""
    if not parts:
        return ValueSequence((), x.type.dtype)
    values = r.builder.apply(
        Split(tuple(parts), axis), x, names=[r.label] * len(parts), origin=r.label
    )
    if not keep:
        shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
        values = tuple(
            r.builder.one(Reshape(shape), v, name=r.label, origin=r.label) for v in values
        )
    return ValueSequence(values)


def _split_evenly(r: NodeReader, x: Value, axis: int, size: Expr, keep: bool) -> PackedSequence:
    """Parts of one size, but for the last; how many there are only a call knows."""
    p = r.packer()
    extent = x.type.shape[axis]
    count = normal(n.floordiv(extent + size - 1, size))
    begin = p(Mul(), p(Range(as_expr(0), _ONE, count)), p.number(size))
    widths = p(Min(), p(Sub(), p.number(extent), begin), p.number(size))
    column = p(Range(as_expr(0), _ONE, extent))
    part = p.number(size)
    start = p(Mul(), p(Div(), column, part), part)
    width = p(Min(), p(Sub(), p.number(extent), start), part)
    one = isinstance(size, Const) and size.value == 1
    return _split_packed(r, x, axis, widths, start, width, _ONE if one else None, keep)


def _split_at(r: NodeReader, x: Value, axis: int, given: Value) -> PackedSequence:
    """Parts of sizes of which only a call knows how many there are."""
    p = r.packer()
    widths = given if given.type.dtype is I64 else p(Cast(I64), given)
    extent = x.type.shape[axis]
    negative = p(ReduceSum(None, False), p(Where(), p(Less(), widths, 0), 1, 0))
    p.require(p(Equal(), negative, 0), f"{p.label}_sizes", f"a size of {r.label} is negative")
    fits = p(Equal(), p(ReduceSum(None, False), widths), p.number(extent))
    error = f"the sizes of {r.label} do not add up to the dimension that is split"
    p.require(fits, f"{p.label}_rest", error)
    start, width = _parts(p, widths, extent)
    return _split_packed(r, x, axis, widths, start, width, None, True)


def _split_packed(
    r: NodeReader,
    x: Value,
    axis: int,
    widths: Value,
    start: Value,
    width: Value,
    every: Expr | None,
    keep: bool,
) -> PackedSequence:
    """The parts of a tensor whose column c is in the one from ``start[c]`` on, ``width[c]`` wide.

    ``every`` is the width of all, if they have one.
    """
    p = r.packer()
    if x.type.rank > MOST_RANK:
        raise r.fail(f"{x!r} has more than {MOST_RANK} axes, and is split into an unknown number")
    dims, extent = x.type.shape, x.type.shape[axis]
    before, behind = normal(n.product(dims[:axis])), normal(n.product(dims[axis + 1 :]))
    total = normal(n.product(dims))
    values = p(Reshape((total,)), x)
    if not (isinstance(before, Const) and before.value == 1):
        block = p.number(normal(before * behind))
        place = p(Range(as_expr(0), _ONE, total))
        column = p(Div(), place, block)
        own, wide = p(Gather(0), start, column), p(Gather(0), width, column)
        line = p(Mul(), wide, p.number(behind))
        rest = p(Sub(), place, p(Mul(), own, block))
        over = p(Div(), rest, line)
        within = p(Sub(), rest, p(Mul(), over, line))
        from_ = p(Add(), p(Mul(), over, p.number(normal(extent * behind))),
                  p(Mul(), own, p.number(behind)))  # fmt: skip
        values = p(Gather(0), values, p(Add(), from_, within))
    known: list[Expr | None] = list(dims)
    known[axis] = every
    rows = widths.type.shape[0]
    if keep:
        row = [p.integers([x.type.rank])]
        row += [p(Reshape((_ONE,)), p.number(d)) for d in dims]
    else:
        del known[axis]
        row = [p.integers([x.type.rank - 1])]
        row += [p(Reshape((_ONE,)), p.number(d)) for k, d in enumerate(dims) if k != axis]
    if len(row) < ROW:
        row.append(p.integers([1] * (ROW - len(row))))
    shapes = p(Expand((rows, as_expr(ROW))), p.joined(*row))
    if keep:
        along = p.builder.constant(np.arange(ROW) == 1 + axis)
        shapes = p(Where(), along, p(Reshape((rows, _ONE)), widths), shapes)
    return PackedSequence(values, shapes, Elements(tuple(known)))


# ------------------------------------------------------------------------------------ optionals


@handles("Optional", 15, 28)
def optional(r: NodeReader) -> KnownOptional:
    """An optional that is there, or an empty one of a type."""
    item = r.any(0)
    kind = r.attribute("type")
    if item is not None:
        if isinstance(item, KnownOptional | PackedOptional | Maps):
            raise r.fail(f"{item!r} is put into an optional")
        return KnownOptional(item)
    if not isinstance(kind, onnx.TypeProto):
        raise r.fail("there is neither an input nor a type")
    dtype, of_sequence = optional_type(kind, "attribute type")
    return KnownOptional(None, dtype, of_sequence)


def optional_type(kind: onnx.TypeProto, where: str) -> tuple[DType, bool]:
    """The dtype of what may be in an optional, and whether that is a sequence."""
    if kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    of_sequence = kind.WhichOneof("value") == "sequence_type"
    if of_sequence:
        kind = kind.sequence_type.elem_type
    return dtype_of(kind.tensor_type.elem_type, where), of_sequence


@handles("OptionalHasElement", 15, 18, 28)
def optional_has_element(r: NodeReader) -> Value:
    """False without an input; what is no optional is there."""
    item = r.any(0)
    if item is None:
        return r.constant(np.array(False), r.output_names[0])
    return r.packer().has_element(item)


@handles("OptionalGetElement", 15, 18, 28)
def optional_get_element(r: NodeReader) -> Item:
    """A call in which there is none ends with an error; what is no optional is itself."""
    return r.packer().element(r.item(0), r.declared_rank(r.output_names[0]))
