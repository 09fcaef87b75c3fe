"""Weights that ONNX Runtime's own domain keeps in few bits, with a scale for each block."""

from __future__ import annotations

from typing import Final

import numpy as np

from planish.compiler.dtypes import I64, U8
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.compare import And, GreaterOrEqual, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.quantization import Dequantize
from planish.compiler.ops.shape import Reshape

from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .reader import NodeReader, handles


@handles("MatMulNBits", 1, domain=MICROSOFT)
def matmul_nbits(r: NodeReader) -> Value:
    """Weights in blocks along the sums, of a few bits each, packed from the low end of bytes."""
    x, bits = r.input(0), int(r.attribute("bits", 4))
    rows, width = int(r.required("N")), int(r.required("K"))
    block = int(r.required("block_size"))
    r.attribute("accuracy_level")  # how ONNX Runtime may round the left operand
    if r.attribute("weight_prepacked", 0):
        raise r.fail("the weights are in the order of one GPU (weight_prepacked is not 0)")
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


# What the numbers of 4 bits stand for: floats of 2 bits each of exponent and mantissa as they are
# in bitsandbytes (largest 1), and quantiles of the normal distribution.
_FP4: Final = (0.0, 0.0052083333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_TABLES: Final = {0: (*_FP4, *(-x for x in _FP4)), 1: _NF4}


@handles("MatMulBnb4", 1, domain=MICROSOFT)
def matmul_bnb4(r: NodeReader) -> Value:
    """Weights of 4 bits in blocks of all of them, the first of two in a byte's high end."""
    kind, block = r.required("quant_type"), int(r.required("block_size"))
    rows, width = int(r.required("N")), int(r.required("K"))
    r.attribute("training_mode")  # the same product
    packed, scales = r.array(1), r.array(2)
    if packed is None or scales is None:
        raise r.fail(f"the weights {r.input(1)!r} and {r.input(2)!r} must be constant")
    if kind not in _TABLES or block < 1 or min(rows, width) < 1:
        raise r.fail(f"quant_type {kind} in blocks of {block} for [{rows}, {width}] weights")
    count = rows * width
    if packed.size != (count + 1) // 2 or scales.size != -(-count // block):
        raise r.fail(f"{packed.size} bytes and {scales.size} scales for [{rows}, {width}] weights")
    table = np.array(_TABLES[kind], np.float32)
    numbers = table[_unpacked(packed.reshape(-1, 1), 4)[:, ::-1].reshape(-1)[:count]]
    spread = np.repeat(scales.reshape(-1).astype(np.float32), block)[:count]
    weights = (numbers * spread).reshape(rows, width).astype(scales.dtype)
    flip = bool(r.attribute("transB", 1))
    return r.one(MatMul(False, flip), r.input(0), r.constant(weights, "weights"))


@handles("GatherBlockQuantized", 1, domain=MICROSOFT)
def gather_block_quantized(r: NodeReader) -> Value:
    """Rows of a table, as numbers; zeros for one that is out of range.

    A table of bytes has numbers of ``bits`` along its last axis, the first in the low end of a
    byte, and their middle stands for 0 unless there are zero points.
    """
    table, at, scales, zeros = r.input(0), r.input(1), r.input(2), r.optional(3)
    rank, bits = table.type.rank, int(r.attribute("bits", 4))
    axes = [int(r.attribute(*name)) for name in (("gather_axis", 0), ("quantize_axis", 1))]
    if any(not -rank <= a < rank for a in axes):
        raise r.fail(f"axes {axes} are out of range for rank {rank}")
    along, by = (a % rank for a in axes)
    if table.type.dtype is U8:
        if along != 0 or by != rank - 1 or rank < 2:
            raise r.fail(
                f"bytes are gathered along axis 0 and quantised along the last, not {axes}"
            )
        table, zeros = _table_of_bytes(r, bits, scales, zeros)
    block = int(r.attribute("block_size", 128))
    if block == 0 and isinstance(whole := table.type.shape[by], Const):
        block = max(int(whole.value), 1)
    there, at = _inside(r, table.type.shape[along], at)
    if along == by:
        op = Dequantize(scales.type.dtype, by, block)
        y = step(r, Gather(along), step(r, op, table, scales, zeros), at)
    else:
        op = Dequantize(scales.type.dtype, by if by < along else by + at.type.rank - 1, block)
        y = step(r, op, *(v and step(r, Gather(along), v, at) for v in (table, scales, zeros)))
    ones = (as_expr(1),) * (rank - 1 - along)
    there = step(r, Reshape((*at.type.shape, *ones)), there)
    return r.one(Where(), there, y, r.constant(np.array(0).astype(y.type.dtype.numpy)))


def _inside(r: NodeReader, extent: Expr, at: Value) -> tuple[Value, Value]:
    """Which places there are, and the places with 0 for others."""
    if not isinstance(extent, Const):
        raise r.fail(f"the table {r.input(0)!r} must have a known number of rows")
    wide = at if at.type.dtype is I64 else step(r, Cast(I64), at)
    low, high, zero = (
        r.constant(np.array(v, np.int64)) for v in (-int(extent.value), int(extent.value), 0)
    )
    there = step(r, And(), step(r, GreaterOrEqual(), wide, low), step(r, Less(), wide, high))
    return there, step(r, Where(), there, wide, zero)


def _table_of_bytes(
    r: NodeReader, bits: int, scales: Value, zeros: Value | None
) -> tuple[Value, Value]:
    """The numbers in a table of bytes, and its zero points."""
    packed = r.array(0)
    if packed is None or (zeros is not None and r.array(3) is None):
        raise r.fail(f"the table {r.input(0)!r} and its zero points must be constant")
    if bits not in (2, 4, 8):
        raise r.fail(f"attribute bits is {bits}, and may be 2, 4 or 8")
    table = r.constant(np.ascontiguousarray(_unpacked(packed, bits)), "table")
    shape = [int(d.value) for d in scales.type.shape if isinstance(d, Const)]
    if len(shape) != packed.ndim:
        raise r.fail(f"the scales {scales!r} do not fit the table {table!r}")
    known = None if zeros is None else r.array(3)
    if known is None:
        return table, r.constant(np.full(shape, 1 << (bits - 1), np.uint8), "zeros")
    found = _unpacked(known, bits)[..., : shape[-1]]
    return table, r.constant(np.ascontiguousarray(found), "zeros")
