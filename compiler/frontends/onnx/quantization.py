"""ONNX's quantised operators.

Products of quantised tensors are those of their elements less the zero points, in i16, added up in
i32; a zero point that is known to be 0 costs nothing. Floats of 8 bits are multiplied in f32.
"""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, FLOAT8, I16, I32, U8, DType
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.convolution import Conv
from planish.compiler.ops.elementwise import Div, Mul, Sub
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.quantization import (
    Dequantize,
    QuantizationRange,
    Quantize,
    Requantize,
)
from planish.compiler.ops.shape import Reshape

from .nn import geometry, product, step, weights_kernel
from .reader import NodeReader, handles
from .tensors import dtype_of


def _dtype(r: NodeReader, name: str) -> DType | None:
    """The dtype that an attribute names, 0 standing for none."""
    code = int(r.attribute(name, 0))
    return dtype_of(code, f"attribute {name}") if code else None


@handles("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def quantize_linear(r: NodeReader) -> Value:
    """One axis since version 13, blocks and output_dtype since 21, precision since 23.

    ONNX Runtime's own version 1 has blocks too.
    """
    x, scale, zero = r.input(0), r.input(1), r.optional(2)
    version = 21 if r.version == 1 else r.version
    axis = int(r.attribute("axis", 1)) if version >= 13 else 1
    block, dtype, precision = 0, None, None
    saturate = bool(r.attribute("saturate", 1)) if version >= 19 else True
    if version >= 21:
        block, dtype = int(r.attribute("block_size", 0)), _dtype(r, "output_dtype")
    if version >= 23:
        precision = _dtype(r, "precision")
    if dtype is not None and zero is not None and zero.type.dtype is not dtype:
        raise r.fail(f"output_dtype is {dtype}, the zero point {zero!r}")
    out = dtype or (zero.type.dtype if zero is not None else U8)
    op = Quantize(out, axis, block, precision, saturate or out not in FLOAT8)
    return r.one(op, x, scale, zero)


@handles("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def dequantize_linear(r: NodeReader) -> Value:
    """One axis since version 13, blocks since 21, output_dtype since 23."""
    x, scale, zero = r.input(0), r.input(1), r.optional(2)
    version = 21 if r.version == 1 else r.version
    axis = int(r.attribute("axis", 1)) if version >= 13 else 1
    block = int(r.attribute("block_size", 0)) if version >= 21 else 0
    dtype = _dtype(r, "output_dtype") if version >= 23 else None
    return r.one(Dequantize(dtype or scale.type.dtype, axis, block), x, scale, zero)


@handles("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(r: NodeReader) -> list[Value]:
    """The range of the tensor itself decides the scale."""
    x = r.input(0)
    scale, zero = r.builder.apply(
        QuantizationRange(U8), x, names=("", *r.output_names)[2:], origin=r.label
    )
    return [r.one(Quantize(U8), x, scale, zero), scale, zero]


# ------------------------------------------------------------------------------------ products


def centred(r: NodeReader, x: Value, zero: Value | None, behind: int = 0) -> Value | None:
    """An operand less its zero point, in i16; None if there is none but 0.

    ``behind``: the axes of x behind the one that a vector of zero points runs along.
    """
    if zero is None:
        return None
    if zero.type.dtype is not x.type.dtype:
        raise r.fail(f"the zero point is {zero!r}, the operand {x!r}")
    known = r.array_of(zero)
    if known is not None and not known.any():
        return None
    place = vector(r, zero, behind)
    weights, at = r.builder.constants.get(x), r.array_of(place)
    if weights is not None and at is not None:  # not with each call, however many there are
        return r.constant(weights.astype(np.int16) - at.astype(np.int16), x.name)
    wide = step(r, Cast(I16), place)
    return step(r, Sub(), step(r, Cast(I16), x), wide)


def vector(r: NodeReader, v: Value, behind: int) -> Value:
    """A vector along an axis that has ``behind`` axes behind it; one element as a scalar."""
    if v.type.size == 1:
        return v if v.type.rank == 0 else step(r, Reshape(()), v)
    if v.type.rank == 1 and behind:
        return step(r, Reshape((*v.type.shape, *[as_expr(1)] * behind)), v)
    return v


def operands_of(
    r: NodeReader,
    a: Value,
    b: Value,
    a_zero: Value | None,
    b_zero: Value | None,
    behind: tuple[int, int],
) -> tuple[Value, Value]:
    """Both operands less their zero points, in one dtype."""
    pairs = ((a, a_zero, behind[0]), (b, b_zero, behind[1]))
    if a.type.dtype in FLOAT8 and b.type.dtype in FLOAT8:
        left, right = (_float_centred(r, *pair) for pair in pairs)
        return left, right
    for v in (a, b):
        if not v.type.dtype.is_int or v.type.dtype.bits != 8:
            raise r.fail(f"operand {v!r} is neither i8 nor u8")
    found = [centred(r, *pair) for pair in pairs]
    if found == [None, None] and a.type.dtype is b.type.dtype:
        return a, b
    left, right = (
        step(r, Cast(I16), v) if c is None else c for v, c in zip((a, b), found, strict=True)
    )
    return left, right


def _float_centred(r: NodeReader, x: Value, zero: Value | None, behind: int) -> Value:
    wide = step(r, Cast(F32), x)
    return (
        wide if zero is None else step(r, Sub(), wide, step(r, Cast(F32), vector(r, zero, behind)))
    )


def _product(r: NodeReader, a: int, a_zero: int, b: int, b_zero: int) -> Value:
    """The matrix product of two inputs in i32, those of rank 1 being a row or a column."""
    zeros = r.optional(a_zero), r.optional(b_zero)

    def multiply(left: Value, right: Value) -> Value:
        left, right = operands_of(r, left, right, *zeros, (1, 0))
        return step(r, MatMul(result=None if left.type.dtype is F32 else I32), left, right)

    return product(r, r.input(a), r.input(b), multiply)


@handles("MatMulInteger", 10)
def matmul_integer(r: NodeReader) -> Value:
    """Zero points of a by row, of b by column."""
    return _product(r, 0, 2, 1, 3)


def _convolution(
    r: NodeReader, x: Value, zeros: tuple[int, int], w: int, bias: Value | None
) -> Value:
    weights = r.input(w)
    g = geometry(r, x.type.shape[2:], weights_kernel(r, weights.type))
    groups = int(r.attribute("group", 1))
    points = r.optional(zeros[0]), r.optional(zeros[1])
    x, weights = operands_of(r, x, weights, *points, (0, weights.type.rank - 1))
    op = Conv(g.strides, g.dilations, g.pads, groups, result=I32)
    return step(r, op, x, weights, bias)


@handles("ConvInteger", 10)
def conv_integer(r: NodeReader) -> Value:
    """Padded with the zero point."""
    return _convolution(r, r.input(0), (2, 3), 1, None)


def _factor(r: NodeReader, a: Value, b: Value, y: Value) -> Value:
    """a * b / y of scales, in f32."""
    left, right, below = (v if v.type.dtype is F32 else step(r, Cast(F32), v) for v in (a, b, y))
    return step(r, Div(), step(r, Mul(), left, right), below)


@handles("QLinearConv", 10)
def qlinear_conv(r: NodeReader) -> Value:
    """Weights with one scale, or one for each output channel."""
    return qlinear_conv_of(r, r.input(0))


def qlinear_conv_of(r: NodeReader, x: Value) -> Value:
    """A convolution of integers as integers, of input 0 or another form of it."""
    y = _convolution(r, x, (2, 5), 3, r.optional(8))
    by_channel = vector(r, r.input(4), y.type.rank - 2)
    scale, out, zero = (vector(r, r.input(k), 0) for k in (1, 6, 7))
    return r.one(Requantize(zero.type.dtype), y, _factor(r, scale, by_channel, out), zero)


@handles("QLinearMatMul", 10, 21)
def qlinear_matmul(r: NodeReader) -> Value:
    """Scales of a by row, of b by column."""
    y = _product(r, 0, 2, 3, 5)
    rows, columns = vector(r, r.input(1), 1), vector(r, r.input(4), 0)
    out, zero = vector(r, r.input(6), 1), vector(r, r.input(7), 1)
    return r.one(Requantize(zero.type.dtype), y, _factor(r, rows, columns, out), zero)


__all__ = ["dequantize_linear", "operands_of", "qlinear_conv_of", "quantize_linear", "vector"]
