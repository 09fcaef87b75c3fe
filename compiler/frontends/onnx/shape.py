"""ONNX operators on shapes: reshapes, transposes, joins and splits, and what asks for shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from planish.compiler.dtypes import BOOL, F32, STRING, DType, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import ceildiv, divide, normal, number, same, volume
from planish.compiler.graph.ir import MAX_CONTENT, Array, Value, unify
from planish.compiler.ops.conversion import BitCast, Cast
from planish.compiler.ops.creation import ConstantOfShape, Range, Where
from planish.compiler.ops.indexing import Trilu
from planish.compiler.ops.shape import (
    Concat,
    Expand,
    Reshape,
    ShapeOf,
    Size,
    Split,
    Tile,
    Transpose,
)
from planish.compiler.ops.strings import FromString, ToString

from .dynamic import axes_of, expanded, numbers_between, reshaped
from .items import Item
from .reader import NodeReader, handles
from .tensors import dtype_of

LATE = (21, 23, 24, 25)  # versions that only admitted more dtypes


@handles("Identity", 1, 13, 14, 16, 19, *LATE)
def identity(r: NodeReader) -> Item:
    """No node: the input itself, a tensor or a sequence."""
    return r.item(0)


@handles("Reshape", 1, 5, 13, 14, 19, *LATE)
def reshape(r: NodeReader) -> Value:
    """0 copies a dimension (unless allowzero, since version 14), -1 is what is left.

    The shape is an attribute before version 5.
    """
    x = r.input(0)
    keeps_zero = bool(r.attribute("allowzero", 0)) if r.version >= 14 else False
    wanted: Sequence[Expr]
    if r.version < 5:
        wanted = tuple(map(as_expr, r.required("shape")))
    elif r.input(1).content is None:
        return reshaped(r, x, r.input(1), keeps_zero)
    else:
        wanted = r.content(1, "the shape")
    shape: list[Expr] = []
    free: int | None = None
    for k, d in enumerate(wanted):
        if isinstance(d, Const) and d.value == -1:
            if free is not None:
                raise r.fail("two dimensions of the shape are -1")
            free = k
            shape.append(as_expr(1))
        elif isinstance(d, Const) and d.value < 0:
            raise r.fail(f"a dimension of the shape is {d.value}")
        elif isinstance(d, Const) and d.value == 0 and not keeps_zero:
            if k >= x.type.rank:
                raise r.fail(f"dimension {k} is copied from {x!r}, which has none")
            shape.append(x.type.shape[k])
        else:
            shape.append(d)
    if free is not None:
        shape[free] = remainder(r, x, shape)
    return r.one(Reshape(tuple(map(normal, shape))), x)


def remainder(r: NodeReader, x: Value, dims: Sequence[Expr]) -> Expr:
    """The dimension that is left for -1 beside others.

    A dimension of 0 of x is that of the shape, as if it were a symbol in both.
    """
    empty = [sum(same(d, 0) for d in some) for some in (x.type.shape, dims)]
    if empty[1] and empty[0] != empty[1]:
        raise r.fail(f"the dimension -1 stands beside a dimension of 0 for {x!r}")
    if empty[1]:
        total, others = (volume(d for d in some if not same(d, 0)) for some in (x.type.shape, dims))
    else:
        total, others = volume(x.type.shape), volume(dims)
    exact = divide(total, others)
    if exact is None and isinstance(total, Const) and isinstance(others, Const):
        raise r.fail(f"{x!r} does not fit the shape: {others} does not divide {total}")
    return normal(n.floordiv(total, others)) if exact is None else exact


@handles("Flatten", 1, 9, 11, 13, *LATE)
def flatten(r: NodeReader) -> Value:
    """Axes from the end since version 11."""
    x, axis = r.input(0), r.attribute("axis", 1)
    rank = x.type.rank
    if not -rank <= axis <= rank or (axis < 0 and r.version < 11):
        raise r.fail(f"axis {axis} is out of range for {x!r}")
    axis += rank if axis < 0 else 0
    return r.one(Reshape((volume(x.type.shape[:axis]), volume(x.type.shape[axis:]))), x)


def given_axes(r: NodeReader, rank: int) -> tuple[int, ...] | None:
    """The attribute (before version 13) or input ``axes``; None if it is left out."""
    if r.version < 13:
        axes = r.attribute("axes")
        return None if axes is None else tuple(axes)
    if r.optional(1) is None:
        return None
    return axes_of(r, 1, "the axes", rank)


def positive(r: NodeReader, axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front, all different."""
    for a in axes:
        if not -rank <= a < rank:
            raise r.fail(f"axis {a} is out of range for rank {rank}")
    out = [a % rank for a in axes]
    if len(set(out)) < len(out):
        raise r.fail(f"an axis is named twice in {list(axes)}")
    return out


@handles("Squeeze", 1, 11, 13, *LATE)
def squeeze(r: NodeReader) -> Value:
    """The axes are an attribute before version 13."""
    x = r.input(0)
    axes = given_axes(r, x.type.rank)
    if axes is None:
        for k, d in enumerate(x.type.shape):
            if not isinstance(d, Const):
                raise r.fail(
                    f"whether dimension {k} of {x!r} is 1 is not known", hint="give the axes"
                )
        dropped = [k for k, d in enumerate(x.type.shape) if same(d, 1)]
    else:
        dropped = positive(r, axes, x.type.rank)
    for k in dropped:
        unify(x.type.shape[k], as_expr(1), f"dimension {k} of {x!r} is squeezed but not 1")
    kept = tuple(d for k, d in enumerate(x.type.shape) if k not in dropped)
    return r.one(Reshape(kept), x)


@handles("Unsqueeze", 1, 11, 13, *LATE)
def unsqueeze(r: NodeReader) -> Value:
    """The axes are an attribute before version 13."""
    x, given = r.input(0), r.optional(1)
    more = 0 if given is None or r.version < 13 else given.type.size or 0
    axes = given_axes(r, x.type.rank + more)
    if axes is None:
        raise r.fail("the axes are missing")
    rank = x.type.rank + len(axes)
    new = positive(r, axes, rank)
    old = iter(x.type.shape)
    return r.one(Reshape(tuple(as_expr(1) if k in new else next(old) for k in range(rank))), x)


@handles("Transpose", 1, 13, *LATE)
def transpose(r: NodeReader) -> Value:
    """Without perm the dimensions are reversed."""
    x = r.input(0)
    perm = r.attribute("perm")
    return r.one(Transpose(tuple(reversed(range(x.type.rank))) if perm is None else tuple(perm)), x)


@handles("Concat", 1, 4, 11, 13)
def concat(r: NodeReader) -> Value:
    """The axis must be given since version 4."""
    axis = r.attribute("axis", 1) if r.version < 4 else r.required("axis")
    return r.one(Concat(axis), *r.inputs())


@handles("Expand", 8, 13)
def expand(r: NodeReader) -> Value:
    """All versions alike."""
    if r.input(1).content is None:
        return expanded(r, r.input(0), r.input(1))
    return r.one(Expand(r.content(1, "the shape")), r.input(0))


def whole_numbers(r: NodeReader, index: int, what: str) -> tuple[int, ...]:
    """The elements of a known input, which may be floats but must be integers."""
    array = r.array(index)
    if array is None:
        raise r.fail(f"{what} (input {index}, {r.input(index)!r}) must be constant")
    numbers = array.ravel().tolist()
    if any(v != int(v) for v in numbers):
        raise r.fail(f"{what} (input {index}) must be integers, not {numbers}")
    return tuple(map(int, numbers))


@handles("Tile", 1, 6, 13)
def tile(r: NodeReader) -> Value:
    """Version 1 repeats one axis."""
    if r.version < 6:
        x = r.input(0)
        (times,), (axis,) = (whole_numbers(r, k, what) for k, what in ((1, "tiles"), (2, "axis")))
        (axis,) = positive(r, [axis], x.type.rank)
        return r.one(Tile(tuple(as_expr(times if k == axis else 1) for k in range(x.type.rank))), x)
    return r.one(Tile(r.content(1, "the repetitions")), r.input(0))


@handles("Split", 1, 2, 11, 13, 18)
def split(r: NodeReader) -> tuple[Value, ...]:
    """Sizes are an attribute before version 13; num_outputs and a smaller last part since 18."""
    x, axis = r.input(0), r.attribute("axis", 0)
    (axis,) = positive(r, [axis], x.type.rank)
    extent = x.type.shape[axis]
    count = len(r.output_names)
    if r.version < 13:
        given = r.attribute("split")
        if r.version < 2 and r.optional(1) is not None:
            if given is not None:
                raise r.fail("the sizes are given both as an attribute and as an input")
            given = whole_numbers(r, 1, "the sizes")
        sizes = None if given is None else tuple(map(as_expr, given))
    else:
        sizes = None if r.optional(1) is None else r.content(1, "the sizes")
    if r.version >= 18:
        number_of = r.attribute("num_outputs")
        if sizes is not None and number_of is not None:
            raise r.fail("both the sizes and the number of parts are given")
        if number_of is not None and number_of != count:
            raise r.fail(f"the node has {count} outputs and {number_of} parts")
    if sizes is None:
        sizes = equal_parts(r, extent, count)
    if len(sizes) != count:
        raise r.fail(f"the node has {count} outputs and {len(sizes)} parts")
    return r.apply(Split(tuple(sizes), axis), x)


def equal_parts(r: NodeReader, extent: Expr, count: int) -> tuple[Expr, ...]:
    """The sizes of ``count`` parts, of which the last may be smaller since version 18."""
    if (size := divide(extent, as_expr(count))) is not None:
        return (size,) * count
    if r.version < 18:
        if isinstance(extent, Const):
            raise r.fail(f"{extent} is not a multiple of {count}")
        size = normal(n.floordiv(extent, count))
        return (size,) * count  # Split assumes that these are all
    most = ceildiv(extent, count)
    last = normal(extent - most * (count - 1))
    if isinstance(last, Const) and last.value < 0:
        raise r.fail(f"{extent} elements cannot be split into {count} parts")
    return (most,) * (count - 1) + (last,)


@handles("Shape", 1, 13, 15, 19, *LATE)
def shape(r: NodeReader) -> Value:
    """start and end since version 15, held within the rank."""
    x = r.input(0)
    rank = x.type.rank
    start, end = 0, rank
    if r.version >= 15:
        start, end = r.attribute("start", 0), r.attribute("end", rank)
        start, end = (max(0, min(rank, k + rank if k < 0 else k)) for k in (start, end))
    whole = start == 0 and end == rank
    return r.one(ShapeOf() if whole else ShapeOf(start, max(start, end)), x)


@handles("Size", 1, 13, 19, *LATE)
def size(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(Size(), r.input(0))


@handles("Where", 9, 16)
def where(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(Where(), *(r.input(k) for k in range(3)))


@handles("Cast", 1, 6, 9, 13, 19, *LATE, 28)
def cast(r: NodeReader) -> Value:
    """Versions differ in dtypes, and in options for floats of 8 bits; 1 names the dtype."""
    to = r.required("to")
    if r.version == 1:
        codes = dict(onnx.TensorProto.DataType.items())
        if (name := str(to).upper()) not in codes:
            raise r.fail(f"attribute to is {to!r}, which is no element type")
        to = codes[name]
    return converted(r, r.input(0), dtype_of(to, "attribute to"))


def converted(r: NodeReader, x: Value, dtype: DType) -> Value:
    """x in another dtype; at once for a few numbers, which may be a shape's."""
    saturate = r.attribute("saturate", 1) if r.version >= 19 else 1
    round_mode = r.attribute("round_mode", "up") if r.version >= 24 else "up"
    if saturate not in (0, 1):
        raise r.fail(f"attribute saturate is {saturate}, not 0 or 1")
    op = Cast.of(dtype, bool(saturate), round_mode)
    if STRING in (x.type.dtype, dtype) and x.type.dtype is not dtype:
        return _text(r, x, dtype, op)
    if op.is_identity(x.type.dtype):
        return x
    known = r.array(0)
    op.infer(x.type)
    if known is not None and known.size <= MAX_CONTENT:
        return r.constant(op.reference(known), r.output_names[0])
    return r.one(op, x)


def _text(r: NodeReader, x: Value, dtype: DType, op: Cast) -> Value:
    """Numbers from strings, or strings from numbers."""
    if dtype is STRING:
        return r.one(ToString(), x)
    if not dtype.is_float or dtype.bits >= 16:
        return r.one(FromString(dtype), x)
    return r.one(op, r.builder.one(FromString(F32), x, origin=r.label))


@handles("CastLike", 15, 19, *LATE)
def cast_like(r: NodeReader) -> Value:
    """As Cast, to the other input's dtype."""
    return converted(r, r.input(0), r.input(1).type.dtype)


@handles("BitCast", 26)
def bit_cast(r: NodeReader) -> Value:
    """To a dtype of the same width."""
    dtype = dtype_of(r.required("to"), "attribute to")
    return r.one(BitCast(dtype), r.input(0))


@handles("ConstantOfShape", 9, 20, *LATE)
def constant_of_shape(r: NodeReader) -> Value:
    """Zeros of float unless a value is given."""
    value = r.tensor("value")
    value = np.zeros(1, np.float32) if value is None else value
    if value.size != 1:
        raise r.fail(f"the value has {value.size} elements")
    dims = r.content(0, "the shape")
    if any(isinstance(d, Const) and d.value < 0 for d in dims):
        raise r.fail(f"a dimension is negative: {list(dims)}")
    return r.one(ConstantOfShape(dims, scalar(value)))


def scalar(array: Array) -> Const:
    """The only element of an array, in its dtype."""
    return n.const(array.reshape(()).item(), from_numpy(array.dtype))


@handles("Range", 11, 27)
def range_(r: NodeReader) -> Value:
    """Integer limits may be symbolic; of others, and of steps, the data may tell."""
    start, limit, delta = (r.input(k) for k in range(3))
    if r.version >= 27 and r.attribute("stash_type", 1) != 1 and start.type.dtype.bits == 16:
        raise r.fail("only a stash_type of 1 (float) is supported")
    return range_of(r, start, limit, delta)


def range_of(r: NodeReader, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta ... before limit."""
    dtype, three = start.type.dtype, (start, limit, delta)
    if any(v.type.dtype is not dtype or v.type.size != 1 for v in three):
        raise r.fail(f"{start!r}, {limit!r}, {delta!r} are not three numbers of one dtype")
    if dtype.is_float:
        arrays = [r.array_of(v) for v in three]
        if any(a is None for a in arrays):
            return numbers_between(r, start, limit, delta)
        first, last, step = (float(a.reshape(())) for a in arrays if a is not None)
        if step == 0 or not np.isfinite([first, last, step]).all():
            raise r.fail(f"numbers from {first} to {last} by {step}")
        count = max(0, int(np.ceil((last - first) / step)))
        if count > 1 << 40:
            raise r.fail(f"there are {count} numbers from {first} to {last} by {step}")
        op = Range(n.const(first, dtype), n.const(step, dtype), as_expr(count), dtype)
        return r.one(op)
    known = r.array_of(delta)
    if start.content is None or limit.content is None or known is None:
        return numbers_between(r, start, limit, delta)
    (first_,), (last_,) = start.content, limit.content
    step_ = int(known.reshape(()))
    if step_ == 0:
        raise r.fail("the step is 0")
    if isinstance(first_, Const) and isinstance(last_, Const):  # their difference may not fit
        count = max(0, -((int(first_.value) - int(last_.value)) // step_))
        if count > 1 << 40:
            raise r.fail(f"there are {count} numbers from {first_} to {last_} by {step_}")
        count_ = as_expr(count)
    else:
        extent = last_ - first_ if step_ > 0 else first_ - last_
        count_ = normal(n.maximum(0, ceildiv(extent, abs(step_))))
    return r.one(Range(first_, as_expr(step_), count_, dtype))


@handles("DepthToSpace", 1, 11, 13, 28)
def depth_to_space(r: NodeReader) -> Value:
    """mode since version 11."""
    x, block = r.input(0), r.required("blocksize")
    mode = r.attribute("mode", "DCR") if r.version >= 11 else "DCR"
    if mode not in ("DCR", "CRD"):
        raise r.fail(f"there is no mode {mode}")
    batch, depth, height, width = four(r, x, block)
    rest = divided(r, depth, block * block)
    b = as_expr(block)
    if mode == "DCR":
        inner, perm = (batch, b, b, rest, height, width), (0, 3, 4, 1, 5, 2)
    else:
        inner, perm = (batch, rest, b, b, height, width), (0, 1, 4, 2, 5, 3)
    y = r.builder.one(Reshape(inner), x, origin=r.label)
    y = r.builder.one(Transpose(perm), y, origin=r.label)
    return r.one(Reshape((batch, rest, normal(height * b), normal(width * b))), y)


@handles("SpaceToDepth", 1, 13, 28)
def space_to_depth(r: NodeReader) -> Value:
    """mode since version 28."""
    x, block = r.input(0), r.required("blocksize")
    mode = r.attribute("mode", "DCR") if r.version >= 28 else "DCR"
    if mode not in ("DCR", "CRD"):
        raise r.fail(f"there is no mode {mode}")
    batch, depth, height, width = four(r, x, block)
    h, w = divided(r, height, block), divided(r, width, block)
    b = as_expr(block)
    y = r.builder.one(Reshape((batch, depth, h, b, w, b)), x, origin=r.label)
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = r.builder.one(Transpose(perm), y, origin=r.label)
    return r.one(Reshape((batch, normal(depth * (block * block)), h, w)), y)


def four(r: NodeReader, x: Value, block: int) -> tuple[Expr, Expr, Expr, Expr]:
    """The dimensions of an image."""
    if x.type.rank != 4:
        raise r.fail(f"{x!r} has rank {x.type.rank}, not 4")
    if not 1 <= block < 1 << 20:
        raise r.fail(f"the block size is {block}")
    batch, depth, height, width = x.type.shape
    return batch, depth, height, width


def divided(r: NodeReader, extent: Expr, by: int) -> Expr:
    """``extent / by``, which must be whole."""
    if isinstance(extent, Const) and int(extent.value) % by:
        raise r.fail(f"{r.input(0)!r} has no whole blocks: {extent} is not a multiple of {by}")
    return normal(n.floordiv(extent, by))


@handles("EyeLike", 9, 22)
def eye_like(r: NodeReader) -> Value:
    """For a matrix of known size a constant, else what a band leaves of ones."""
    x = r.input(0)
    code = r.attribute("dtype")
    dtype = x.type.dtype if code is None else dtype_of(code, "attribute dtype")
    k = r.attribute("k", 0)
    dims = [number(d) for d in x.type.shape]
    if len(dims) != 2:
        raise r.fail(f"{x!r} is no matrix")
    if dims[0] is None or dims[1] is None or dims[0] * dims[1] > 1 << 24:
        one = Const(True, BOOL) if dtype is BOOL else n.const(1, dtype)
        ones = r.builder.one(ConstantOfShape(x.type.shape, one), origin=r.label)
        upper = r.builder.one(Trilu(True, as_expr(int(k))), ones, origin=r.label)
        return r.one(Trilu(False, as_expr(int(k))), upper)
    k = max(-dims[0] - 1, min(dims[1] + 1, k))
    return r.constant(np.eye(dims[0], dims[1], k, dtype.numpy), r.label)
