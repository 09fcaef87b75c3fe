"""ONNX's softmax family and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import BF16, F16, F32, F64, DType
from planish.compiler.graph.ir import Value
from planish.compiler.ops import channel_normalization, normalization, softmax
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Add, Mul, Sub
from planish.compiler.ops.reduction import ReduceMean
from planish.compiler.ops.shape import Reshape

from .elementwise import step
from .reader import NodeReader, handles

_STASH: Final[dict[int, DType]] = {1: F32, 10: F16, 11: F64, 16: BF16}


def _softmax(make: Callable[..., Any]) -> Callable[[NodeReader], Value]:
    def handle(r: NodeReader) -> Value:
        x = r.input(0)
        if r.version >= 13:
            return r.one(make((int(r.attribute("axis", -1)),)), x)
        # The input is taken as a matrix [before axis, from axis on].
        axis, rank = int(r.attribute("axis", 1)), x.type.rank
        if not -rank <= axis <= rank:
            raise r.fail(f"axis {axis} is out of range for rank {rank}")
        return r.one(make(tuple(range(axis % rank if axis < 0 else axis, rank))), x)

    return handle


handles("Softmax", 1, 11, 13)(_softmax(softmax.Softmax))
handles("LogSoftmax", 1, 11, 13)(_softmax(softmax.LogSoftmax))
handles("Hardmax", 1, 11, 13)(_softmax(softmax.Hardmax))


def stash_of(r: NodeReader) -> DType:
    """The dtype of statistics."""
    kind = r.attribute("stash_type", 1)
    if kind not in _STASH:
        raise r.fail(f"attribute stash_type is {kind}, no float dtype")
    return _STASH[kind]


@handles("LayerNormalization", *range(1, 18))
def _layer_norm(r: NodeReader) -> Sequence[Value]:
    """ONNX Runtime writes it into models of opsets in which ONNX has none, too."""
    op = normalization.LayerNorm(
        int(r.attribute("axis", -1)),
        float(r.attribute("epsilon", 1e-5)),
        any(r.output_names[1:]),
        stash_of(r),
    )
    outputs = r.apply(op, r.input(0), r.input(1), r.optional(2))
    return outputs[: max(1, len(r.output_names))]


@handles("RMSNormalization", 23)
def _rms_norm(r: NodeReader) -> Value:
    op = normalization.RMSNorm(
        int(r.attribute("axis", -1)), float(r.attribute("epsilon", 1e-5)), stash_of(r)
    )
    return r.one(op, r.input(0), r.input(1))


@handles("BatchNormalization", 1, 6, 7, 9, 14, 15)
def _batch_norm(r: NodeReader) -> Sequence[Value]:
    """Training by attribute before version 7 and since 14, else where more outputs are wanted."""
    momentum = float(r.attribute("momentum", 0.9))
    epsilon = float(r.attribute("epsilon", 1e-5))
    spatial = bool(r.attribute("spatial", 1)) if r.version < 9 else True
    training = any(r.output_names[1:])
    if r.version >= 14:
        training = bool(r.attribute("training_mode", 0))
        if any(r.output_names[1:]) and not training:
            raise r.fail("further outputs are wanted, but training_mode is 0")
    elif r.version < 7:
        training = not r.attribute("is_test", 0)
    inputs = [r.input(k) for k in range(5)]
    op = channel_normalization.BatchNorm(epsilon, spatial)
    if not training:
        return [r.one(op, *inputs)]
    return _trained(r, op, inputs, momentum)


def _trained(
    r: NodeReader, op: channel_normalization.BatchNorm, inputs: Sequence[Value], momentum: float
) -> list[Value]:
    """A batch normalised by its own statistics, and the running ones brought up to date."""
    x, scale, bias, *running = inputs
    rank = x.type.rank
    if rank < 2:
        raise r.fail(f"the input {x!r} has no channels to train")
    inner = F64 if x.type.dtype is F64 else F32
    axes = (0, *range(2, rank)) if op.spatial else (0,)
    wide = step(r, Cast(inner), x)
    centre = step(r, ReduceMean(axes), wide)
    deviation = step(r, Sub(), wide, centre)
    spread = step(r, ReduceMean(axes, False), step(r, Mul(), deviation, deviation))
    now = [step(r, Reshape(spread.type.shape), centre), spread]
    kept = [step(r, Cast(v.type.dtype), s) for s, v in zip(now, running, strict=True)]
    y = r.one(op, x, scale, bias, *(step(r, Cast(scale.type.dtype), s) for s in now))
    new = []
    for old, statistic in zip(running, kept, strict=True):
        dtype = old.type.dtype.numpy
        before = step(r, Mul(), old, r.constant(np.array(momentum, dtype)))
        part = step(r, Mul(), statistic, r.constant(np.array(1 - momentum, dtype)))
        new.append(step(r, Add(), before, part))
    # Before version 14 the batch's own statistics are outputs too.
    return [y, *new, *kept][: max(1, len(r.output_names))]


@handles("InstanceNormalization", 1, 6, 22)
def _instance_norm(r: NodeReader) -> Value:
    op = channel_normalization.InstanceNorm(float(r.attribute("epsilon", 1e-5)))
    return r.one(op, r.input(0), r.input(1), r.input(2))


@handles("GroupNormalization", 18, 21)
def _group_norm(r: NodeReader) -> Value:
    x = r.input(0)
    if r.version >= 21 and stash_of(r) is F64 and x.type.dtype is not F64:
        raise r.fail(f"stash_type float64 is not supported for {x.type.dtype}")
    op = channel_normalization.GroupNorm(
        int(r.required("num_groups")), float(r.attribute("epsilon", 1e-5)), r.version < 21
    )
    return r.one(op, x, r.input(1), r.input(2))


@handles("LpNormalization", 1, 22)
def _lp_normalization(r: NodeReader) -> Value:
    axis, p = int(r.attribute("axis", -1)), int(r.attribute("p", 2))
    return r.one(normalization.LpNormalization(axis, p), r.input(0))


@handles("MeanVarianceNormalization", 9, 13)
def _mean_variance_normalization(r: NodeReader) -> Value:
    axes = tuple(int(k) for k in r.attribute("axes", (0, 2, 3)))
    return r.one(normalization.MeanVarianceNormalization(axes), r.input(0))


@handles("LRN", 1, 13)
def _lrn(r: NodeReader) -> Value:
    op = channel_normalization.LocalResponseNorm(
        int(r.required("size")),
        float(r.attribute("alpha", 1e-4)),
        float(r.attribute("beta", 0.75)),
        float(r.attribute("bias", 1.0)),
    )
    return r.one(op, r.input(0))
