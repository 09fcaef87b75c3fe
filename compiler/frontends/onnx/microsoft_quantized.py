"""Quantised operators of ONNX Runtime's own domain.

Those that ONNX Runtime computes on integers by tables or in floats are here what they stand for:
numbers from their integers, the operator, and integers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, I32, U8, DType
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.activations import LeakyRelu, Sigmoid
from planish.compiler.ops.base import Op
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Add, Div, Mul, Sub
from planish.compiler.ops.global_pooling import GlobalAveragePool
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.quantization import (
    Dequantize,
    QuantizationRange,
    Quantize,
    Requantize,
)
from planish.compiler.ops.shape import Concat, Reshape, Transpose

from .elementwise import step
from .quantization import (
    dequantize_linear,
    operands_of,
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


@handles("MatMulNBits", 1, domain=MICROSOFT)
def matmul_nbits(r: NodeReader) -> Value:
    """Weights in blocks along the sums, of a few bits each, packed from the low end of bytes."""
    x, bits = r.input(0), int(r.attribute("bits", 4))
    rows, width = int(r.required("N")), int(r.required("K"))
    block = int(r.required("block_size"))
    r.attribute("accuracy_level")  # how ONNX Runtime may round the left operand
    packed, scales, bias = r.array(1), r.input(2), r.optional(5)
    if bits not in (2, 4, 8) or block < 1 or min(rows, width) < 1:
        raise r.fail(f"{bits} bits in blocks of {block} for [{rows}, {width}] weights")
    if packed is None or packed.dtype != np.uint8:
        raise r.fail(f"the weights {r.input(1)!r} must be constant bytes")
    if r.optional(4) is not None:
        raise r.fail("an order of the blocks (g_idx) is not supported")
    blocks = -(-width // block)
    if packed.size * 8 != rows * blocks * block * bits or scales.type.size != rows * blocks:
        raise r.fail(f"{packed.size} bytes and {scales!r} for [{rows}, {width}] weights")
    weights = _unpacked(packed, bits).reshape(rows, blocks * block)[:, :width]
    table = r.constant(np.ascontiguousarray(weights), "weights")
    grid = as_expr(rows), as_expr(blocks)
    scales = step(r, Reshape(grid), scales)
    zeros = _zeros(r, bits, rows, blocks)
    numbers = step(r, Dequantize(x.type.dtype, 1, block), table, scales, zeros)
    y = step(r, MatMul(False, True), x, numbers)
    return y if bias is None else r.one(Add(), y, bias)


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers in bytes, the lowest bits first: [bytes * 8 / bits] along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*packed.shape[:-1], -1))


def _zeros(r: NodeReader, bits: int, rows: int, blocks: int) -> Value:
    """The zero points of blocks: half the range, unless they are given as packed bytes."""
    given = r.optional(3)
    if given is None:
        return r.constant(np.full((rows, blocks), 1 << (bits - 1), np.uint8), "zeros")
    known = r.array(3)
    if known is None or known.dtype != np.uint8 or known.size % rows:
        raise r.fail(f"the zero points {given!r} must be constant bytes")
    zeros = _unpacked(known.reshape(rows, -1), bits)
    if zeros.shape[1] < blocks:
        raise r.fail(f"the zero points {given!r} are too few for {blocks} blocks")
    return r.constant(np.ascontiguousarray(zeros[:, :blocks]), "zeros")
