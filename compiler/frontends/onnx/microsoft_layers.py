"""Layers of ONNX Runtime's own domain: embeddings, groups of channels, sums with a bias."""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, I32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import Gelu, Swish
from planish.compiler.ops.channel_normalization import GroupNorm
from planish.compiler.ops.compare import Equal
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import ConstantOfShape
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.shape import Reshape, Split
from planish.compiler.ops.softmax import Softmax

from .attending import counting, part_of
from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .nn import channels_behind, channels_in_front
from .reader import NodeReader, handles


@handles("EmbedLayerNormalization", 1, domain=MICROSOFT)
def embed_layer_normalization(r: NodeReader) -> list[Value | None]:
    """Sums of embeddings of words, of their places, and of segments where there are any.

    Output 1 says how many of a row of the mask are 1; without a mask that is 0.
    """
    ids, segments, mask, places = r.input(0), r.optional(1), r.optional(7), r.optional(8)
    r.attribute("mask_index_type")  # output 1 is asked for by its name
    if ids.type.rank != 2:
        raise r.fail(f"the words {ids!r} must be [batch, sequence]")
    if (segments is None) != (r.optional(4) is None):
        raise r.fail("inputs 1 and 4, segments and their embedding, belong together")
    at = counting(r, ids.type.shape[1]) if places is None else places
    total = step(r, Gather(0), r.input(2), ids)
    total = step(r, Add(), total, step(r, Gather(0), r.input(3), at))
    if segments is not None:
        total = step(r, Add(), total, step(r, Gather(0), r.input(4), segments))
    op = LayerNorm(-1, float(r.attribute("epsilon", 1e-12)), False, F32)
    y = r.one(op, total, r.input(5), r.input(6))
    counts = None
    if any(r.output_names[1:2]):
        if mask is None:
            counts = step(r, ConstantOfShape(ids.type.shape[:1], n.const(0, I32)))
        else:
            ones = step(r, Equal(), mask, r.constant(np.array(1, mask.type.dtype.numpy)))
            counts = step(r, ReduceSum((1,), False), step(r, Cast(I32), ones))
    return [y, counts, total]


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
