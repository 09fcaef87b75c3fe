"""Quantised operators of ONNX Runtime's own domain.

Those that ONNX Runtime computes on integers by tables or in floats are here what they stand for:
numbers from their integers, the operator, and integers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, I32, U8, DType
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import LeakyRelu, Sigmoid
from planish.compiler.ops.base import Op
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, Mul, Sub
from planish.compiler.ops.global_pooling import GlobalAveragePool
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.pooling import AveragePool, MaxPool
from planish.compiler.ops.quantization import (
    Dequantize,
    QuantizationRange,
    Quantize,
    Requantize,
)
from planish.compiler.ops.reduction import ReduceMean
from planish.compiler.ops.shape import Concat, Transpose
from planish.compiler.ops.softmax import Softmax

from .elementwise import step
from .nn import ceil_mode, channels_behind, channels_in_front, pool_geometry
from .quantization import (
    dequantize_linear,
    operands_of,
    qlinear_conv_of,
    quantize_linear,
    vector,
)
from .reader import NodeReader, handles

MICROSOFT: Final = "com.microsoft"

handles("QuantizeLinear", 1, domain=MICROSOFT)(quantize_linear)
handles("DequantizeLinear", 1, domain=MICROSOFT)(dequantize_linear)


def _real(r: NodeReader, at: int) -> Value:
    """The numbers of a tensor, its scale and zero point at ``at`` and behind."""
    x, scale, zero = r.input(at), r.input(at + 1), r.optional(at + 2)
    return step(r, Dequantize(F32), x, scale, zero)


def _whole(r: NodeReader, y: Value, at: int, dtype: DType) -> Value:
    """Integers of numbers, by the scale and zero point at ``at``."""
    return r.one(Quantize(dtype), y, r.input(at), r.optional(at + 1))


def _unary(make: Callable[[NodeReader], Op]) -> Callable[[NodeReader], Value]:
    def handle(r: NodeReader) -> Value:
        y = step(r, make(r), _real(r, 0))
        return _whole(r, y, 3, r.input(0).type.dtype)

    return handle


@handles("QLinearAdd", 1, domain=MICROSOFT)
def qlinear_add(r: NodeReader) -> Value:
    """A sum of numbers."""
    y = step(r, Add(), _real(r, 0), _real(r, 3))
    return _whole(r, y, 6, r.input(0).type.dtype)


@handles("QLinearMul", 1, domain=MICROSOFT)
def qlinear_mul(r: NodeReader) -> Value:
    """A product of integers, times the scales."""
    x, y = (_centred(r, r.input(k), r.optional(k + 2)) for k in (0, 3))
    factor = step(r, Div(), step(r, Mul(), r.input(1), r.input(4)), r.input(6))
    op = Requantize(r.input(0).type.dtype)
    return r.one(op, step(r, Mul(), x, y), factor, r.optional(7))


def _centred(r: NodeReader, x: Value, zero: Value | None) -> Value:
    wide = step(r, Cast(I32), x)
    return wide if zero is None else step(r, Sub(), wide, step(r, Cast(I32), zero))


def _leaky_relu(r: NodeReader) -> Op:
    return LeakyRelu(float(r.attribute("alpha", 0.01)))


def _pool(r: NodeReader) -> Op:
    return GlobalAveragePool(bool(r.attribute("channels_last", 0)))


handles("QLinearSigmoid", 1, domain=MICROSOFT)(_unary(lambda r: Sigmoid()))
handles("QLinearLeakyRelu", 1, domain=MICROSOFT)(_unary(_leaky_relu))
handles("QLinearGlobalAveragePool", 1, domain=MICROSOFT)(_unary(_pool))


def _average(r: NodeReader) -> Op:
    last = bool(r.attribute("channels_last", 0))
    g = pool_geometry(r, False, last)
    include = bool(r.attribute("count_include_pad", 0))
    ceil = ceil_mode(r, g, r.version)
    return AveragePool(g.extents, g.strides, g.dilations, g.pads, ceil, last, include)


def _softmax(r: NodeReader) -> Op:
    """Since opset 13 along one axis, before along all from one on."""
    one, rank = int(r.required("opset")) >= 13, r.input(0).type.rank
    axis = int(r.attribute("axis", -1))
    if not -rank <= axis < max(rank, 1):
        raise r.fail(f"axis {axis} is out of range for rank {rank}")
    return Softmax((axis,) if one else tuple(range(axis % max(rank, 1), rank)))


def _mean(r: NodeReader) -> Op:
    axes = tuple(int(k) for k in r.attribute("axes", ()))
    return ReduceMean(axes or None, bool(r.attribute("keepdims", 1)))


handles("QLinearAveragePool", 1, domain=MICROSOFT)(_unary(_average))
handles("QLinearSoftmax", 1, domain=MICROSOFT)(_unary(_softmax))
handles("QLinearReduceMean", 1, domain=MICROSOFT)(_unary(_mean))


@handles("QLinearWhere", 1, domain=MICROSOFT)
def qlinear_where(r: NodeReader) -> Value:
    """Numbers of either, as integers of a third scale."""
    y = step(r, Where(), r.input(0), _real(r, 1), _real(r, 4))
    return _whole(r, y, 7, r.input(1).type.dtype)


@handles("NhwcMaxPool", 1, domain=MICROSOFT)
def nhwc_max_pool(r: NodeReader) -> Value:
    """Of integers, with the channels behind."""
    g = pool_geometry(r, True, True)
    op = MaxPool(g.extents, g.strides, g.dilations, g.pads, ceil_mode(r, g, r.version), True)
    return r.one(op, r.input(0))


@handles("QLinearConv", 1, domain=MICROSOFT)
def qlinear_conv(r: NodeReader) -> Value:
    """As ONNX's; the channels of input and output may be behind, those of the weights are not."""
    if not r.attribute("channels_last", 0):
        return qlinear_conv_of(r, r.input(0))
    return channels_behind(r, qlinear_conv_of(r, channels_in_front(r, r.input(0))))


@handles("QLinearConcat", 1, domain=MICROSOFT)
def qlinear_concat(r: NodeReader) -> Value:
    """The scale of the result first, then each tensor with its own."""
    parts = [_real(r, k) for k in range(2, r.input_count, 3)]
    if not parts:
        raise r.fail("there is nothing to concatenate")
    y = step(r, Concat(int(r.required("axis"))), *parts)
    return _whole(r, y, 0, r.input(2).type.dtype)


def _scaled(
    r: NodeReader, product: Value, a_scale: Value, b_scale: Value, bias: Value | None
) -> Value:
    """A product of integers as numbers, plus a bias."""
    factor = step(r, Mul(), a_scale, b_scale)
    y = step(r, Mul(), step(r, Cast(F32), product), factor)
    return y if bias is None else step(r, Add(), y, bias)


@handles("MatMulIntegerToFloat", 1, domain=MICROSOFT)
def matmul_integer_to_float(r: NodeReader) -> Value:
    """A product of integers, times both scales."""
    a, b = operands_of(r, r.input(0), r.input(1), r.optional(4), r.optional(5), (1, 0))
    product = step(r, MatMul(result=I32), a, b)
    scales = vector(r, r.input(2), 1), vector(r, r.input(3), 0)
    return _scaled(r, product, *scales, r.optional(6))


@handles("DynamicQuantizeMatMul", 1, domain=MICROSOFT)
def dynamic_quantize_matmul(r: NodeReader) -> Value:
    """The left operand quantised by its own range."""
    x = r.input(0)
    scale, zero = r.builder.apply(QuantizationRange(U8), x, origin=r.label)
    whole = step(r, Quantize(U8), x, scale, zero)
    a, b = operands_of(r, whole, r.input(1), zero, r.optional(3), (1, 0))
    product = step(r, MatMul(result=I32), a, b)
    return _scaled(r, product, scale, vector(r, r.input(2), 0), r.optional(4))


@handles("QGemm", 1, domain=MICROSOFT)
def qgemm(r: NodeReader) -> Value:
    """alpha * A B + C, C being of the product's scale; numbers if they are given no scale."""
    alpha = float(r.attribute("alpha", 1.0))
    a, b = r.input(0), r.input(3)
    flips = bool(r.attribute("transA", 0)), bool(r.attribute("transB", 0))
    a, b = (step(r, Transpose((1, 0)), v) if f else v for v, f in zip((a, b), flips, strict=True))
    left, right = operands_of(r, a, b, r.optional(2), r.optional(5), (1, 0))
    product = step(r, MatMul(result=I32), left, right)
    bias = r.optional(6)
    factor = step(r, Mul(), r.input(1), r.input(4))
    if alpha != 1:
        factor = step(r, Mul(), factor, r.constant(np.array(alpha, np.float32)))
    if bias is not None:
        product = step(r, Add(), product, bias)
    if r.optional(7) is None:
        r.optional(8)
        return r.one(Mul(), step(r, Cast(F32), product), factor)
    y_scale, y_zero = r.input(7), r.optional(8)
    dtype = a.type.dtype if y_zero is None else y_zero.type.dtype
    return r.one(Requantize(dtype), product, step(r, Div(), factor, y_scale), y_zero)
