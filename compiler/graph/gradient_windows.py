"""Gradients of convolutions and pools, and of normalisations.

Windows that slide over an axis, the other way round: what an element gives to the windows that see
it is a transposed convolution, what a weight gives to all windows a convolution of the input by the
outputs' gradients, with batch and channels, strides and dilations changed round.
"""

from __future__ import annotations

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.expr.sizes import normal, volume
from planish.compiler.ops.channel_normalization import BatchNorm
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.elementwise import Add, Div, Sub
from planish.compiler.ops.global_pooling import GlobalAveragePool
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.pooling import AveragePool, MaxPool, MaxPoolIndices
from planish.compiler.ops.reduction import ReduceMean, ReduceSum
from planish.compiler.ops.scatter import ScatterElements
from planish.compiler.ops.shape import Expand, Reshape, Size, Transpose
from planish.compiler.ops.unary import Reciprocal, Sqrt
from planish.compiler.ops.windows import Dim, plain, reach

from .gradient import Step, rule
from .ir import Value

Shape = tuple[Expr, ...]
_ONE = as_expr(1)


def _cut(s: Step, x: Value, shape: Shape) -> Value:
    """The first elements along each axis."""
    if all(normal(d) is normal(e) for d, e in zip(x.type.shape, shape, strict=True)):
        return x
    return s(Slice((as_expr(0),) * len(shape), (1,) * len(shape), shape), x)


def _channels_first(op: Conv | ConvTranspose | MaxPool | AveragePool | BatchNorm, s: Step) -> None:
    """Errors: TypeCheckError for a layout that no model has."""
    if op.channels_last:
        raise op.fail("has no gradient where channels are last")


def _back(s: Step, dy: Value, w: Value, op: Conv | AveragePool, sizes: Shape, groups: int) -> Value:
    """What the elements of axes of these sizes give to windows over them."""
    rank, kernel = len(sizes), w.type.shape[2:]
    begins = op.pads[:rank]
    ends: list[Dim] = []
    more: list[Dim] = []
    for k, (size, out) in enumerate(zip(sizes, dy.type.shape[2:], strict=True)):
        seen = (out - 1) * op.strides[k] + reach(kernel[k], op.dilations[k]) - as_expr(begins[k])
        beyond = normal(normal(seen) - size)
        ends.append(plain(normal(n.maximum(beyond, 0))))
        more.append(plain(normal(n.maximum(normal(0 - beyond), 0))))
    back = ConvTranspose(op.strides, op.dilations, (*begins, *ends), tuple(more), groups)
    return s(back, dy, w)


def _weights(s: Step, x: Value, dy: Value, w: Value, op: Conv | ConvTranspose) -> Value:
    """The gradient of weights, of windows over ``x`` where there is ``dy``."""
    rank, groups = len(op.strides), op.groups
    batch, *sizes = (x.type.shape[0], *x.type.shape[2:])
    per_group, places = w.type.shape[1], tuple(range(rank))
    # Each group's channels become the batch, and the batch the channels of the group.
    parted = s(Reshape((batch, as_expr(groups), per_group, *sizes)), x)
    turned = s(Transpose((2, 1, 0, *(k + 3 for k in places))), parted)
    merged = s(Reshape((per_group, normal(batch * groups), *sizes)), turned)
    by = s(Transpose((1, 0, *(k + 2 for k in places))), dy)
    found = s(Conv(op.dilations, op.strides, op.pads, groups), merged, by)
    kept = _cut(s, found, (*found.type.shape[:2], *w.type.shape[2:]))
    return s(Transpose((1, 0, *(k + 2 for k in places))), kept)


def _over_channels(s: Step, dy: Value) -> Value:
    return s(ReduceSum((0, *range(2, dy.type.rank)), False), dy)


@rule(Conv)
def _conv(op: Conv, s: Step) -> list[Value | None]:
    _channels_first(op, s)
    x, w, *bias = s.xs
    dx = _cut(s, _back(s, s.dy, w, op, x.type.shape[2:], op.groups), x.type.shape)
    return [dx, _weights(s, x, s.dy, w, op), *(_over_channels(s, s.dy) for _ in bias)]


@rule(ConvTranspose)
def _conv_transpose(op: ConvTranspose, s: Step) -> list[Value | None]:
    _channels_first(op, s)
    x, w, *bias = s.xs
    there = Conv(op.strides, op.dilations, op.pads, op.groups)
    dx = _cut(s, s(there, s.dy, w), x.type.shape)
    return [dx, _weights(s, s.dy, x, w, op), *(_over_channels(s, s.dy) for _ in bias)]


@rule(MaxPool)
def _max_pool(op: MaxPool, s: Step) -> list[Value | None]:
    """Of several greatest elements of a window the first is taken."""
    _channels_first(op, s)
    (x,) = s.xs
    fields = op.kernel, op.strides, op.dilations, op.pads, op.ceil_mode
    places = s(MaxPoolIndices(*fields), x)
    row = (volume(s.dy.type.shape),)
    zeros = s(Expand((volume(x.type.shape),)), s.value(0.0))
    given = s(Reshape(row), places), s(Reshape(row), s.dy)
    return [s(Reshape(x.type.shape), s(ScatterElements("add"), zeros, *given))]


@rule(AveragePool)
def _average_pool(op: AveragePool, s: Step) -> list[Value | None]:
    _channels_first(op, s)
    (x,) = s.xs
    rank, out = len(op.kernel), s.dy.type.shape[2:]
    images = normal(x.type.shape[0] * x.type.shape[1])
    ones = s(Expand(tuple(map(as_expr, (1, 1, *op.kernel)))), s.value(1.0))
    shares = s(Div(), s(Reshape((images, _ONE, *out)), s.dy), _counts(op, s, ones, out))
    back = _back(s, shares, ones, op, x.type.shape[2:], 1)
    back = _cut(s, back, (images, _ONE, *x.type.shape[-rank:]))
    return [s(Reshape(x.type.shape), back)]


def _counts(op: AveragePool, s: Step, ones: Value, out: Shape) -> Value:
    """How many elements of each window count: [1, 1, *out]."""
    rank = len(op.kernel)
    sizes, pads = list(s.xs[0].type.shape[2:]), list(op.pads)
    if op.count_include_pad:  # then these are elements like others
        for k in range(rank):
            sizes[k] = normal(sizes[k] + as_expr(pads[k]) + as_expr(pads[k + rank]))
        pads = [0] * len(pads)
    for k in range(rank):
        seen = (out[k] - 1) * op.strides[k] + reach(op.kernel[k], op.dilations[k])
        pads[k + rank] = plain(normal(n.maximum(seen - as_expr(pads[k]) - sizes[k], 0)))
    image = s(Expand((_ONE, _ONE, *sizes)), s.value(1.0))
    found = s(Conv(op.strides, op.dilations, tuple(pads)), image, ones)
    return _cut(s, found, (_ONE, _ONE, *out))


@rule(GlobalAveragePool)
def _global_average_pool(op: GlobalAveragePool, s: Step) -> list[Value | None]:
    (x,) = s.xs
    sizes = x.type.shape[1:-1] if op.channels_last else x.type.shape[2:]
    count = s(Size(), s(Expand(sizes), s.value(1.0)))
    return [s(Expand(x.type.shape), s(Div(), s.dy, s(Cast(s.dy.type.dtype), count)))]


# -------------------------------------------------------------------------------- normalisations


@rule(BatchNorm)
def _batch_norm(op: BatchNorm, s: Step) -> list[Value | None]:
    _channels_first(op, s)
    x, scale, _, mean, variance = s.xs
    rank = x.type.rank
    over = (0, *range(2, rank)) if op.spatial and rank > 1 else (0,)
    wide: Shape = tuple(_ONE if k in over else d for k, d in enumerate(x.type.shape))

    def spread(v: Value) -> Value:
        return s(Reshape(wide), s(Cast(s.dy.type.dtype), v))

    def total(v: Value, like: Value) -> Value:
        return s(Cast(like.type.dtype), s(Reshape(like.type.shape), s(ReduceSum(over, True), v)))

    inverse = s(Reciprocal(), s(Sqrt(), s(Add(), spread(variance), op.epsilon)))
    deviation = s(Sub(), x, spread(mean))
    slope = s.times(inverse, spread(scale))
    by_scale = s.times(s.dy, deviation, inverse)
    by_mean = s.times(s.dy, slope, -1.0)
    by_variance = s.times(s.dy, deviation, slope, inverse, inverse, -0.5)
    return [
        s.times(s.dy, slope),
        total(by_scale, scale),
        total(s.dy, s.xs[2]),
        total(by_mean, mean),
        total(by_variance, variance),
    ]


@rule(LayerNorm)
def _layer_norm(op: LayerNorm, s: Step) -> list[Value | None]:
    dy, *others = s.dys
    if dy is None or any(d is not None for d in others):
        raise op.fail("has no gradient of its statistics")
    x, *rest = s.node.inputs
    scale, bias = (*rest, None, None)[:2]
    assert x is not None
    axes = op.over(x.type.rank)
    deviation = s(Sub(), x, s(ReduceMean(axes, True), x))
    variance = s(ReduceMean(axes, True), s.times(deviation, deviation))
    inverse = s(Reciprocal(), s(Sqrt(), s(Add(), variance, op.epsilon)))
    normed = s.times(deviation, inverse)
    by = dy if scale is None else s.times(dy, scale)
    along = s.times(normed, s(ReduceMean(axes, True), s.times(by, normed)))
    dx = s.times(s(Sub(), s(Sub(), by, s(ReduceMean(axes, True), by)), along), inverse)
    found: list[Value | None] = [dx]
    if scale is not None:
        found.append(s.fit(s.times(dy, normed), scale))
    if bias is not None:
        found.append(s.fit(dy, bias))
    return found
