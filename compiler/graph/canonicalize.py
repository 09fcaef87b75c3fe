"""One form for what can be written in several: what follows looks for few shapes of program.

Every rule holds to the last bit, for NaN, infinities and zeros of either sign too: ``x + 0.0``
stays, since it turns -0.0 into 0.0, and ``x + -0.0`` goes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import exact, from_numpy
from planish.compiler.ops.activations import Clip, Relu
from planish.compiler.ops.base import is_one
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Mul
from planish.compiler.ops.reduction import ReduceMax, ReduceMean
from planish.compiler.ops.shape import Expand, Reshape

from .branches import BRANCHES
from .ir import Graph, Node, Replacement, Value
from .match import Rules, Site, same_shape, same_type
from .movements import MOVEMENTS
from .views import VIEWS

IDENTITIES: Final = Rules("identities")


def canonicalize(graph: Graph) -> Graph:
    """The graph in its canonical form."""
    return CANONICAL.run(graph)


def shaped(s: Site, x: Value, like: Value) -> Value:
    """``x`` broadcast to the shape of a value."""
    x = s.builder.now(x)
    return x if same_shape(x.type.shape, like.type.shape) else s.make(Expand(like.type.shape), x)


# ---------------------------------------------------------------------------------- arithmetic


def _neutral(s: Site, node: Node, side: int, number: float) -> Replacement:
    """The other operand, if this one is a constant of that number (and sign) everywhere."""
    array = s.array(node.inputs[side])
    other = node.inputs[1 - side]
    if array is None or other is None or not _all(array, number):
        return None
    return shaped(s, other, node.outputs[0])


def _all(array: Any, number: float) -> bool:
    """Whether every element is the number; zeros are told by their sign."""
    if array.size == 0 or array.reshape(-1)[0] != number or not (array == number).all():
        return False
    if from_numpy(array.dtype).is_discrete or number != 0:
        return True
    return bool((np.signbit(array.astype(np.float64)) == (math.copysign(1, number) < 0)).all())


@IDENTITIES.rule("add")
def add_nothing(s: Site, node: Node) -> Replacement:
    """x + -0.0 -> x; of integers, x + 0 -> x"""
    zero = -0.0 if node.outputs[0].type.dtype.is_float else 0
    return _neutral(s, node, 1, zero) or _neutral(s, node, 0, zero)


@IDENTITIES.rule("sub")
def subtract_nothing(s: Site, node: Node) -> Replacement:
    """x - 0.0 -> x"""
    return _neutral(s, node, 1, 0.0)


@IDENTITIES.rule("mul")
def times_one(s: Site, node: Node) -> Replacement:
    """x * 1 -> x"""
    return _neutral(s, node, 1, 1) or _neutral(s, node, 0, 1)


@IDENTITIES.rule("div")
def over_one(s: Site, node: Node) -> Replacement:
    """x / 1 -> x"""
    return _neutral(s, node, 1, 1)


@IDENTITIES.rule("div")
def over_power_of_two(s: Site, node: Node) -> Replacement:
    """x / 2^k -> x * 2^-k, where neither overflows"""
    x, y = node.inputs
    array = s.array(y)
    if array is None or not node.outputs[0].type.dtype.is_float or array.size == 0:
        return None
    if array.size > 4096 or array.dtype.itemsize < 2:
        return None
    fraction, exponent = np.frexp(array.astype(np.float64))
    room = 14 if array.dtype.itemsize == 2 else 100
    if not (np.abs(fraction) == 0.5).all() or not (np.abs(exponent) < room).all():
        return None
    assert y is not None
    inverse = (1 / array.astype(np.float64)).astype(array.dtype)
    return s.make(Mul(), x, s.constant(inverse, y.name))


@IDENTITIES.rule("pow_scalar")
def first_power(s: Site, node: Node) -> Replacement:
    """x ** 1 -> x"""
    return node.inputs[0] if getattr(node.op, "exponent", None) == 1.0 else None


@IDENTITIES.rule("neg", "logical_not")
def twice(s: Site, node: Node) -> Replacement:
    """neg(neg(x)) -> x"""
    inner = s.maker(node.inputs[0], node.op.name)
    return None if inner is None else inner.inputs[0]


@IDENTITIES.rule("logical_and", "logical_or")
def logical_constant(s: Site, node: Node) -> Replacement:
    """x and true -> x; x or false -> x"""
    neutral = node.op.name == "logical_and"
    return _neutral(s, node, 1, neutral) or _neutral(s, node, 0, neutral)


@IDENTITIES.rule("where")
def known_choice(s: Site, node: Node) -> Replacement:
    """where(true, x, y) -> x; where(false, x, y) -> y; where(c, x, x) -> x"""
    condition, x, y = node.inputs
    assert x is not None and y is not None
    array = s.array(condition)
    if x is y or (array is not None and array.size and array.all()):
        return shaped(s, x, node.outputs[0])
    if array is not None and array.size and not array.any():
        return shaped(s, y, node.outputs[0])
    return None


# --------------------------------------------------------------------------------- conversions


@IDENTITIES.rule("cast")
def cast_to_own(s: Site, node: Node) -> Replacement:
    """cast(x, its own dtype) -> x"""
    (x,) = node.inputs
    assert x is not None
    return x if x.type.dtype is node.outputs[0].type.dtype else None


@IDENTITIES.rule("cast")
def cast_through(s: Site, node: Node) -> Replacement:
    """cast(cast(x, wide), dtype) -> cast(x, dtype), if every x is the same in wide"""
    inner = s.maker(node.inputs[0], "cast")
    if inner is None or inner.inputs[0] is None:
        return None
    x, op = inner.inputs[0], node.op
    if not exact(x.type.dtype, inner.outputs[0].type.dtype):
        return None
    assert isinstance(op, Cast)
    return x if op.is_identity(x.type.dtype) else s.make(op, x)


# ------------------------------------------------------------------------------------ clipping


@IDENTITIES.rule("max", "min")
def to_clip(s: Site, node: Node) -> Replacement:
    """max(x, 0) -> relu(x); max(x, low) -> clip(x, low); min(x, high) -> clip(x, None, high)"""
    for k in (1, 0):
        bound, x = s.array(node.inputs[k]), node.inputs[1 - k]
        if bound is None or x is None or bound.size != 1:
            continue
        if not same_type(x.type, node.outputs[0].type):
            continue
        number = bound.reshape(-1)[0].item()
        if number != number:
            continue
        if node.op.name == "min":
            return s.make(Clip(None, number), x)
        if number == 0 and x.type.dtype.kind in "fi":
            return s.make(Relu(), x)
        return s.make(Clip(number, None), x)
    return None


@IDENTITIES.rule("clip")
def clip_open(s: Site, node: Node) -> Replacement:
    """clip(x) -> x, and of floats clip(x, -inf, inf) -> x; clip(x, 0) -> relu(x)"""
    assert isinstance(node.op, Clip)
    x, low, high = node.inputs[0], node.op.low, node.op.high
    assert x is not None
    if low == -math.inf or high == math.inf:
        return s.make(
            Clip(None if low == -math.inf else low, None if high == math.inf else high), x
        )
    if high is not None:
        return None
    if low is None:
        return x
    return s.make(Relu(), x) if low == 0 and x.type.dtype.kind in "fi" else None


@IDENTITIES.rule("clip", "relu")
def clip_again(s: Site, node: Node) -> Replacement:
    """clip(clip(x, a, b), c, d) -> clip(x, max(a, c), min(b, d)), if the bounds are in order"""
    inner = s.maker(node.inputs[0], "clip", "relu")
    if inner is None or not s.alone(inner.outputs[0]):
        return None
    (a, b), (c, d) = _bounds(inner), _bounds(node)
    low = max((v for v in (a, c) if v is not None), default=None)
    high = min((v for v in (b, d) if v is not None), default=None)
    if low is not None and high is not None and low > high:
        return None
    return s.make(Clip(low, high), inner.inputs[0])


def _bounds(node: Node) -> tuple[float | None, float | None]:
    return (node.op.low, node.op.high) if isinstance(node.op, Clip) else (0, None)


# ---------------------------------------------------------------------------------- reductions

_OF_ONE: Final = ("sum", "mean", "max", "min", "prod")
_REDUCTIONS: Final = (*_OF_ONE, "l1", "l2", "sum_square", "log_sum", "log_sum_exp")


@IDENTITIES.rule(*(f"reduce_{k}" for k in _OF_ONE))
def reduce_one(s: Site, node: Node) -> Replacement:
    """reduce(x, axes of extent 1) -> reshape(x)"""
    x, op = node.inputs[0], node.op
    assert x is not None
    axes = op.over(x.type.rank)  # type: ignore[attr-defined]
    if not all(is_one(x.type.shape[k]) for k in axes):
        return None
    shape = node.outputs[0].type.shape
    return x if same_shape(shape, x.type.shape) else s.make(Reshape(shape), x)


@IDENTITIES.rule(*(f"reduce_{k}" for k in _REDUCTIONS), "argmax", "argmin")
def keep_dimensions(s: Site, node: Node) -> Replacement:
    """reduce(x, keepdims=False) -> reshape(reduce(x, keepdims=True)), a view that can move"""
    op: Any = node.op
    if op.keepdims:
        return None
    return s.make(
        Reshape(node.outputs[0].type.shape), s.make(replace(op, keepdims=True), *node.inputs)
    )


@IDENTITIES.rule("global_average_pool", "global_max_pool")
def global_pool(s: Site, node: Node) -> Replacement:
    """global_average_pool(x) -> reduce_mean(x, spatial axes)"""
    x = node.inputs[0]
    assert x is not None
    rank, last = x.type.rank, bool(getattr(node.op, "channels_last", False))
    axes = tuple(range(1, rank - 1) if last else range(2, rank))
    if not axes:
        return None
    op = ReduceMax if node.op.name == "global_max_pool" else ReduceMean
    return s.make(op(axes, True), x)


CANONICAL: Final = Rules("canonicalize", IDENTITIES, MOVEMENTS, VIEWS, BRANCHES)
