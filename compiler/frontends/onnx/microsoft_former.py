"""Operators of ONNX Runtime's own domain that ONNX has in another form, most of them since."""

from __future__ import annotations

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.convolution import ConvTranspose
from planish.compiler.ops.determinant import Inverse
from planish.compiler.ops.elementwise import Sub
from planish.compiler.ops.reduction import ReduceSumSquare
from planish.compiler.ops.selection import Unique
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.signal import Dft
from planish.compiler.ops.unary import Sqrt
from planish.compiler.ops.windows import Dim, plain

from .elementwise import step
from .indexing import gather_nd, pad_of, trilu
from .microsoft_quantized import MICROSOFT
from .nn import geometry, per_axis, weights_kernel
from .reader import NodeReader, handles
from .selection import unique_of
from .shape import range_of
from .signal import transformed
from .vision import grid_sample

for _name, _handler in (("GatherND", gather_nd), ("GridSample", grid_sample), ("Trilu", trilu)):
    handles(_name, 1, domain=MICROSOFT)(_handler)  # as they were before ONNX had them


@handles("Pad", 1, domain=MICROSOFT)
def pad(r: NodeReader) -> Value:
    """As ONNX's of version 11."""
    return pad_of(r, 11)


@handles("Range", 1, domain=MICROSOFT)
def range_(r: NodeReader) -> Value:
    """By 1 if nothing else is said; a number may have an axis."""
    start, limit, delta = r.input(0), r.input(1), r.optional(2)
    if delta is None:
        delta = r.constant(np.array(1, start.type.dtype.numpy))
    return range_of(r, *(_alone(r, v) for v in (start, limit, delta)))


def _alone(r: NodeReader, v: Value) -> Value:
    """The only element of a tensor."""
    if v.type.rank == 0:
        return v
    known = r.array_of(v)
    if known is not None and known.size == 1:
        return r.constant(known.reshape(()))
    return step(r, Reshape(()), v)


@handles("Unique", 1, domain=MICROSOFT)
def unique(r: NodeReader) -> tuple[Value, ...]:
    """Of a row, in the order in which they come; which one each was, and how many of each."""
    x, (y, inverse, counts) = r.input(0), [*r.output_names, "", "", ""][:3]
    if x.type.rank != 1:
        raise r.fail(f"{x!r} must have one axis")
    found = unique_of(r, x, Unique(0, False), (y, "", inverse, counts))
    return found[0], found[2], found[3]


@handles("ExpandDims", 1, domain=MICROSOFT)
def expand_dims(r: NodeReader) -> Value:
    """One axis more, at a known place of the result."""
    x, axes = r.input(0), r.ints(1, "the axis")
    rank = x.type.rank + 1
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise r.fail(f"axis {list(axes)} is out of range for rank {rank}")
    shape = list(x.type.shape)
    shape.insert(axes[0] % rank, as_expr(1))
    return r.one(Reshape(tuple(shape)), x)


@handles("CDist", 1, domain=MICROSOFT)
def cdist(r: NodeReader) -> Value:
    """Distances of each row from each."""
    metric = r.attribute("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise r.fail(f"metric {metric} is not supported", hint="euclidean and sqeuclidean are")
    a, b = r.input(0), r.input(1)
    if a.type.rank != 2 or b.type.rank != 2:
        raise r.fail(f"{a!r} and {b!r} must be matrices")
    one = as_expr(1)
    column = step(r, Reshape((a.type.shape[0], one, a.type.shape[1])), a)
    row = step(r, Reshape((one, *b.type.shape)), b)
    squares = ReduceSumSquare((2,), False)
    difference = step(r, Sub(), column, row)
    if metric == "sqeuclidean":
        return r.one(squares, difference)
    return r.one(Sqrt(), step(r, squares, difference))


@handles("Inverse", 1, domain=MICROSOFT)
def inverse(r: NodeReader) -> Value:
    """Of the last two axes."""
    return r.one(Inverse(), r.input(0))


def _one_sided(r: NodeReader) -> None:
    for name, only, default in (("onesided", 1, 1), ("normalized", 0, 0), ("signal_ndim", 1, 1)):
        if (given := r.attribute(name, default)) != only:
            raise r.fail(f"attribute {name} is {given}, and only {only} is supported")


@handles("Rfft", 1, domain=MICROSOFT)
def rfft(r: NodeReader) -> Value:
    """Of real numbers along the last axis."""
    _one_sided(r)
    x = r.input(0)
    if x.type.rank < 1:
        raise r.fail(f"{x!r} has no axis")
    parts = step(r, Reshape((*x.type.shape, as_expr(1))), x)
    return transformed(r, parts, Dft(x.type.shape[-1], x.type.rank - 1, False, True))


@handles("Irfft", 1, domain=MICROSOFT)
def irfft(r: NodeReader) -> Value:
    """Its inverse, of an even number of numbers."""
    _one_sided(r)
    x = r.input(0)
    if x.type.rank < 2:
        raise r.fail(f"{x!r} has no axis of frequencies and one of parts")
    axis = x.type.rank - 2
    length = n.mul(n.sub(x.type.shape[axis], 1), 2)
    y = transformed(r, x, Dft(length, axis, True, True))
    return r.one(Reshape(y.type.shape[:-1]), y)


@handles("ConvTransposeWithDynamicPads", 1, domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(r: NodeReader) -> Value:
    """Pads are an input, which must be there."""
    x, w, b = r.input(0), r.input(1), r.optional(3)
    if (auto := r.attribute("auto_pad", "NOTSET")) != "NOTSET":
        raise r.fail(f"auto_pad is {auto}, and pads are given")
    sizes = x.type.shape[2:]
    g = geometry(r, sizes, weights_kernel(r, w.type))
    pads: tuple[Dim, ...] = tuple(plain(p) for p in r.content(2, "the pads"))
    if len(pads) != 2 * len(sizes):
        raise r.fail(f"there are {len(pads)} pads for {len(sizes)} dimensions")
    adjust = per_axis(r, "output_padding", len(sizes), 0)
    op = ConvTranspose(g.strides, g.dilations, pads, adjust, int(r.attribute("group", 1)))
    return r.one(op, x, w, b)
