"""Experimental operators of ONNX's first years, which ONNX Runtime knows up to opset 9.

Converters wrote them: of CoreML's networks, among others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import Softplus, Tanh
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.indexing import Slice

from .elementwise import step
from .reader import NodeReader, handles

_OPSETS: Final = range(1, 10)


def _times(r: NodeReader, x: Value, factor: float) -> Value:
    """A product with a number."""
    if factor == 1:
        return x
    return step(r, Mul(), x, r.constant(np.array(factor, x.type.dtype.numpy)))


@handles("Affine", *_OPSETS)
def affine(r: NodeReader) -> Value:
    """alpha * x + beta."""
    x = _times(r, r.input(0), float(r.attribute("alpha", 1.0)))
    beta = float(r.attribute("beta", 0.0))
    return r.one(Add(), x, r.constant(np.array(beta, x.type.dtype.numpy)))


@handles("Scale", *_OPSETS)
def scale(r: NodeReader) -> Value:
    """x times a number."""
    factor = float(r.attribute("scale", 1.0))
    return _times(r, r.input(0), factor)


@handles("ImageScaler", *_OPSETS)
def image_scaler(r: NodeReader) -> Value:
    """x times a number, plus one for each channel."""
    x, bias = r.input(0), np.array(r.attribute("bias", ()), np.float32)
    if x.type.rank != 4 or not bias.size:
        raise r.fail(f"{x!r} must have four axes, and bias a number for each channel")
    column = bias.reshape(-1, 1, 1).astype(x.type.dtype.numpy)
    return r.one(Add(), _times(r, x, float(r.attribute("scale", 1.0))), r.constant(column))


@handles("ScaledTanh", *_OPSETS)
def scaled_tanh(r: NodeReader) -> Value:
    """alpha * tanh(beta * x)."""
    alpha, beta = float(r.required("alpha")), float(r.required("beta"))
    return _times(r, step(r, Tanh(), _times(r, r.input(0), beta)), alpha)


@handles("ParametricSoftplus", *_OPSETS)
def parametric_softplus(r: NodeReader) -> Value:
    """alpha * softplus(beta * x)."""
    alpha, beta = float(r.required("alpha")), float(r.required("beta"))
    return _times(r, step(r, Softplus(), _times(r, r.input(0), beta)), alpha)


@handles("Crop", *_OPSETS)
def crop(r: NodeReader) -> Value:
    """An image without borders (left, top, right, bottom), or of a size from the first two on."""
    x, border = r.input(0), [int(k) for k in r.required("border")]
    sizes = [int(k) for k in r.attribute("scale", ())]
    if x.type.rank != 4 or len(border) != 4 or min(border) < 0 or len(sizes) not in (0, 2):
        raise r.fail(f"{x!r} without borders of {border}, in the size {sizes or 'that is left'}")
    left, top, right, bottom = border
    shape: list[Expr] = list(x.type.shape)
    for axis, before, after in ((2, top, bottom), (3, left, right)):
        rest = normal(n.sub(shape[axis], before + after))
        shape[axis] = as_expr(sizes[axis - 2]) if sizes else rest
    starts = tuple(map(as_expr, (0, 0, top, left)))
    return r.one(Slice(starts, (1,) * 4, tuple(shape)), x)
