"""Layers of ONNX Runtime's own domain: embeddings, groups of channels, sums with a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, I32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import Gelu, Swish
from planish.compiler.ops.channel_normalization import GroupNorm
from planish.compiler.ops.compare import Equal, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import ConstantOfShape, Where
from planish.compiler.ops.elementwise import Add, Max, Min, Mul, Sub
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.quantization import Dequantize
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.shape import Reshape, Split, Transpose
from planish.compiler.ops.softmax import Softmax
from planish.compiler.ops.unary import Abs

from .attending import counting, part_of
from .dynamic import Integers
from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .nn import channels_behind, channels_in_front
from .reader import NodeReader, handles

_FARTHEST: Final = 1 << 16  # distances that have places in a table of buckets


@handles("EmbedLayerNormalization", 1, domain=MICROSOFT)
def embed_layer_normalization(r: NodeReader) -> list[Value | None]:
    """Sums of embeddings of words, of their places, and of segments where there are any.

    Output 1 says how many of a row of the mask are 1; without a mask that is 0.
    """
    r.attribute("mask_index_type")  # output 1 is asked for by its name

    def rows(at: int, places: Value) -> Value:
        return step(r, Gather(0), r.input(at), places)

    total = _embedded(r, rows, r.optional(8))
    return [_normalised(r, total, r.input(5), r.input(6)), _counts(r), total]


@handles("QEmbedLayerNormalization", 1, domain=MICROSOFT)
def quantized_embed_layer_normalization(r: NodeReader) -> list[Value | None]:
    """The same of tables of integers, with scales from input 8 and zero points from input 13 on."""

    def real(at: int, whole: Value) -> Value:
        scale, zero = (r.input(at - 2 + k) for k in (8, 13))
        return step(r, Dequantize(scale.type.dtype), whole, scale, zero)

    def rows(at: int, places: Value) -> Value:
        return real(at, step(r, Gather(0), r.input(at), places))

    total = _embedded(r, rows, None)
    return [_normalised(r, total, real(5, r.input(5)), real(6, r.input(6))), _counts(r)]


def _embedded(r: NodeReader, rows: Callable[[int, Value], Value], places: Value | None) -> Value:
    """Rows of the tables 2, 3 and 4, added up."""
    ids, segments = r.input(0), r.optional(1)
    if ids.type.rank != 2:
        raise r.fail(f"the words {ids!r} must be [batch, sequence]")
    if (segments is None) != (r.optional(4) is None):
        raise r.fail("inputs 1 and 4, segments and their embedding, belong together")
    at = counting(r, ids.type.shape[1]) if places is None else places
    total = step(r, Add(), rows(2, ids), rows(3, at))
    return total if segments is None else step(r, Add(), total, rows(4, segments))


def _normalised(r: NodeReader, x: Value, scale: Value, bias: Value) -> Value:
    return r.one(LayerNorm(-1, float(r.attribute("epsilon", 1e-12)), False, F32), x, scale, bias)


def _counts(r: NodeReader) -> Value | None:
    """How many of each row of the mask are 1, if that is wanted."""
    mask = r.optional(7)
    if not any(r.output_names[1:2]):
        return None
    if mask is None:
        return step(r, ConstantOfShape(r.input(0).type.shape[:1], n.const(0, I32)))
    ones = step(r, Equal(), mask, r.constant(np.array(1, mask.type.dtype.numpy)))
    return step(r, ReduceSum((1,), False), step(r, Cast(I32), ones))


def _group_norm(r: NodeReader, x: Value, last: bool) -> Value:
    """Groups of channels normalised, then the activation that the node asks for."""
    dtype, activation = x.type.dtype, r.required("activation")
    if activation not in (0, 1):
        raise r.fail(f"attribute activation is {activation}, neither 0 nor 1")
    if x.type.rank < 3:
        raise r.fail(f"{x!r} must have a batch, channels and sizes")
    weights = [
        v if v.type.dtype is dtype else step(r, Cast(dtype), v) for v in (r.input(1), r.input(2))
    ]
    op = GroupNorm(int(r.required("groups")), float(r.attribute("epsilon", 1e-5)))
    y = step(r, op, channels_in_front(r, x) if last else x, *weights)
    y = channels_behind(r, y) if last else y
    return step(r, Swish(1.0), y) if activation else y


@handles("GroupNorm", 1, domain=MICROSOFT)
def group_norm(r: NodeReader) -> Value:
    """The channels are behind unless ``channels_last`` is 0."""
    return _group_norm(r, r.input(0), bool(r.attribute("channels_last", 1)))


@handles("SkipGroupNorm", 1, domain=MICROSOFT)
def skip_group_norm(r: NodeReader) -> list[Value]:
    """Of a sum, which is output 1; what skipped the layer may be one number for each channel."""
    x, skip, bias = r.input(0), r.input(3), r.optional(4)
    last, ones = bool(r.attribute("channels_last", 1)), (as_expr(1),) * (x.type.rank - 2)
    if skip.type.rank == 2:
        batch, channels = skip.type.shape
        shape = (batch, *ones, channels) if last else (batch, channels, *ones)
        skip = step(r, Reshape(shape), skip)
    total = step(r, Add(), x, skip)
    if bias is not None:
        if not last:
            bias = step(r, Reshape((*bias.type.shape, *ones)), bias)
        total = step(r, Add(), total, bias)
    return [_group_norm(r, total, last), total]


@handles("BiasAdd", 1, domain=MICROSOFT)
def bias_add(r: NodeReader) -> Value:
    """The input, plus a bias, plus what skipped the layer."""
    return r.one(Add(), step(r, Add(), r.input(0), r.input(1)), r.input(2))


@handles("BiasSplitGelu", 1, domain=MICROSOFT)
def bias_split_gelu(r: NodeReader) -> Value:
    """The first half of a sum, times the Gelu of the second."""
    total = step(r, Add(), r.input(0), r.input(1))
    half = part_of(r, total.type.shape[-1], 2, f"{total!r} has no halves")
    left, right = r.builder.apply(Split((half, half), -1), total, origin=r.label)
    return r.one(Mul(), left, step(r, Gelu(), right))


@handles("BiasSoftmax", 1, domain=MICROSOFT)
def bias_softmax(r: NodeReader) -> Value:
    """Of a sum, over all axes from one on; how the bias broadcasts follows from the shapes."""
    r.required("is_inner_broadcast")
    total = step(r, Add(), r.input(0), r.input(1))
    axis, rank = int(r.attribute("axis", 1)), total.type.rank
    if not -rank <= axis < rank:
        raise r.fail(f"axis {axis} is out of range for rank {rank}")
    return r.one(Softmax(tuple(range(axis % rank, rank))), total)


def _buckets(count: int, most: int) -> list[int]:
    """The bucket of each distance up to ``most``, rounded as in floats of 32 bits."""
    exact, far = count // 2, np.arange(most + 1)
    ratio = np.log(np.maximum(far, exact).astype(np.float32) / np.float32(exact))
    ranged = ratio / np.float32(np.log(most / exact)) * np.float32(count - exact)
    last = np.minimum(exact + ranged.astype(np.int64), count - 1)
    return [int(k) for k in np.where(far < exact, far, last)]


@handles("RelativePositionBias", 1, domain=MICROSOFT)
def relative_position_bias(r: NodeReader) -> Value:
    """A row of the table for each distance of a query and a key: of far ones, several share one.

    Half of the rows are for single distances, the others for ranges that grow up to max_distance;
    where keys behind the query count, half of all rows are for those.
    """
    table, most = r.input(0), int(r.required("max_distance"))
    both = bool(r.attribute("is_bidirectional", 0))
    if table.type.rank != 2 or not isinstance(rows := table.type.shape[0], Const):
        raise r.fail(f"the table {table!r} must be [buckets, heads], their number known")
    buckets = int(rows.value) // 2 if both else int(rows.value)
    exact = buckets // 2
    if exact < 1 or not exact < most <= _FARTHEST:
        raise r.fail(f"max_distance {most} for a table of {rows} rows")
    i = Integers(r)
    queries, keys = (r.symbol(i.row(i.wide(r.input(k))), f"length {k}") for k in (1, 2))
    at = i(Reshape((queries, as_expr(1))), counting(r, queries))
    behind = i(Sub(), at, counting(r, keys))  # how far the key is behind the query
    far = i(Abs(), behind) if both else i(Max(), behind, 0)
    bucket = i(Gather(0), _buckets(buckets, most), i(Min(), far, most))
    if both:
        bucket = i(Where(), i(Less(), behind, 0), i(Add(), bucket, buckets), bucket)
    found = i(Transpose((2, 0, 1)), i(Gather(0), table, bucket))
    return r.one(Reshape((as_expr(1), *found.type.shape)), found)
