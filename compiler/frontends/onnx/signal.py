"""ONNX's operators on signals.

A Fourier transform of known length is a product with a constant matrix, or several for a length
with factors; else a sum for each element.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, F64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import number
from planish.compiler.graph.ir import Array, Value, unify
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Mul
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.shape import Concat, Reshape, Transpose
from planish.compiler.ops.signal import ComplexMul, CosineWindow, Dft, Frames, MelWeights

from .dynamic import axes_of
from .elementwise import step
from .reader import NodeReader, handles
from .tensors import dtype_of

WHOLE: Final = 256  # the greatest length whose transform is one product, if it has factors
MATRIX: Final = 1024  # and if it has none
RADIX: Final = 64  # the greatest factor that is split off


@handles("DFT", 17, 20)
def dft(r: NodeReader) -> Value:
    """The axis an attribute in version 17, then an input."""
    x = r.input(0)
    rank = x.type.rank
    if r.version < 20:
        axis = int(r.attribute("axis", 1))
    elif r.optional(2) is None:
        axis = -2
    else:
        (axis,) = axes_of(r, 2, "the axis", rank)
    inverse, onesided = bool(r.attribute("inverse", 0)), bool(r.attribute("onesided", 0))
    if not -rank <= axis < rank:
        raise r.fail(f"axis {axis} is out of range for rank {rank}")
    axis %= rank
    if r.optional(1) is not None:
        length = r.number(1, "the length")
    else:
        length = x.type.shape[axis]
        if inverse and onesided:
            length = n.mul(n.sub(length, 1), 2)
    return transformed(r, x, Dft(length, axis, inverse, onesided))


def transformed(r: NodeReader, x: Value, op: Dft) -> Value:
    """The transform by matrices where that pays."""
    op.infer(x.type)  # all that can be wrong with it
    length, given, parts = map(number, (op.length, x.type.shape[op.axis], x.type.shape[-1]))
    if length is None or given is None or parts is None or not (factor := _factor(length)):
        return r.one(op, x)
    dtype = x.type.dtype
    inner = F64 if dtype is F64 else F32
    rank = x.type.rank
    perm = (*(k for k in range(rank) if k not in (op.axis, rank - 1)), op.axis, rank - 1)
    x = step(r, Transpose(perm), step(r, Cast(inner), x))
    if length == factor:
        y = _product(r, x, _whole(op, length, given, parts))
    else:
        if op.real:
            x = _both_sides(r, x, length, given)
        y = _by_factors(r, _fitted(r, x, length), length, op.inverse)
        shape = list(y.type.shape)
        if op.real:
            shape[-1] = as_expr(1)
        elif op.onesided:
            shape[-2] = as_expr(length // 2 + 1)
        y = _head(r, y, tuple(shape))
        if op.inverse:
            y = step(r, Mul(), y, r.constant(np.array(1 / length, inner.numpy)))
    back = tuple(perm.index(k) for k in range(rank))
    return r.one(Cast(dtype), step(r, Transpose(back), y))


def _factor(length: int) -> int:
    """The factor to split off a length first; itself for one product, 0 for none."""
    if length <= WHOLE:
        return length
    fits = [k for k in range(2, RADIX + 1) if length % k == 0]
    if fits and _factor(length // fits[-1]):
        return fits[-1]
    return length if length <= MATRIX else 0


def _turns(length: int, rows: int, columns: int, sign: int) -> Array:
    """e^(sign 2 pi i j k / length) as [j, k, part of the operand, part of the result]."""
    angle = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    cosine, sine = np.cos(angle), sign * np.sin(angle)
    return np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], -2)


def _whole(op: Dft, length: int, given: int, parts: int) -> Array:
    """The matrix of a transform: [rows, part, columns, part]."""
    rows = min(given, length // 2 + 1 if op.real else length)
    columns = length // 2 + 1 if op.onesided and not op.inverse else length
    turns = _turns(length, rows, columns, 1 if op.inverse else -1)
    out = np.swapaxes(turns[:, :, :parts], 1, 2)
    if op.real:
        row = np.arange(rows)
        twice = np.where((row == 0) | (2 * row == length), 1.0, 2.0)
        out = out[..., :1] * twice[:, None, None, None]
    return out / length if op.inverse else out


def _product(r: NodeReader, x: Value, matrix: Array) -> Value:
    """x [..., n, p] times a matrix [rows, p, columns, q], of the first rows: [..., columns, q]."""
    rows, parts, columns, out = matrix.shape
    *outer, _, _ = x.type.shape
    x = _head(r, x, (*outer, as_expr(rows), as_expr(parts)))
    flat = r.constant(
        np.ascontiguousarray(matrix.reshape(rows * parts, columns * out), x.type.dtype.numpy)
    )
    lines = step(r, Reshape((n.product(outer), as_expr(rows * parts))), x)
    y = step(r, MatMul(), lines, flat)
    return step(r, Reshape((*outer, as_expr(columns), as_expr(out))), y)


def _head(r: NodeReader, x: Value, shape: tuple[Expr, ...]) -> Value:
    """The first elements along each axis."""
    if all(a is b for a, b in zip(shape, x.type.shape, strict=True)):
        return x
    zeros = tuple(as_expr(0) for _ in shape)
    return step(r, Slice(zeros, (1,) * len(shape), shape), x)


def _fitted(r: NodeReader, x: Value, length: int) -> Value:
    """x [..., n, p] cut or padded to [..., length, 2]."""
    *outer, rows, parts = x.type.shape
    x = _head(r, x, (*outer, as_expr(min(length, number(rows) or 0)), parts))
    before = (as_expr(0),) * x.type.rank
    after = [as_expr(0)] * x.type.rank
    after[-2] = as_expr(length - (number(x.type.shape[-2]) or 0))
    after[-1] = as_expr(2 - (number(parts) or 0))
    if all(isinstance(a, Const) and a.value == 0 for a in after):
        return x
    return step(r, Pad(before, tuple(after)), x)


def _both_sides(r: NodeReader, x: Value, length: int, given: int) -> Value:
    """The whole spectrum of a real signal, of the frequencies up to length // 2."""
    half = length // 2 + 1
    x = _fitted(r, x, half)
    *outer, _, parts = x.type.shape
    count = (length - 1) // 2
    starts = (*(as_expr(0) for _ in outer), as_expr(count), as_expr(0))
    steps = (*(1 for _ in outer), -1, 1)
    other = step(r, Slice(starts, steps, (*outer, as_expr(count), parts)), x)
    mirror = r.constant(np.array([1, -1], x.type.dtype.numpy))
    return step(r, Concat(x.type.rank - 2), x, step(r, Mul(), other, mirror))


def _by_factors(r: NodeReader, x: Value, length: int, inverse: bool) -> Value:
    """The transform of x [..., length, 2], for each factor of the length.

    With length = a b, j = b s + t and k = u + a v, the sum over s is a transform of length a, and
    its results, turned by t u / length, are summed over t in one of length b.
    Source: Cooley, Tukey, "An algorithm for the machine calculation of complex Fourier series".
    """
    sign = 1 if inverse else -1
    a = _factor(length)
    if a == length:
        return _product(r, x, np.swapaxes(_turns(length, length, length, sign), 1, 2))
    b = length // a
    *outer, _, two = x.type.shape
    k = len(outer)
    swap = Transpose((*range(k), k + 1, k, k + 2))
    inner = step(r, swap, step(r, Reshape((*outer, as_expr(a), as_expr(b), two)), x))
    inner = _product(r, inner, np.swapaxes(_turns(a, a, a, sign), 1, 2))  # [..., t, u, 2]
    turns = _turns(length, b, a, sign)[:, :, 0]
    turned = step(r, ComplexMul(), inner, r.constant(turns.astype(x.type.dtype.numpy)))
    outside = _by_factors(r, step(r, swap, turned), b, inverse)  # [..., u, v, 2]
    return step(r, Reshape((*outer, as_expr(length), two)), step(r, swap, outside))


@handles("STFT", 17)
def stft(r: NodeReader) -> Value:
    """The transforms of frames, each times the window."""
    x, window = r.input(0), r.optional(2)
    if x.type.rank != 3:
        raise r.fail(f"the signal {x!r} is not [batch, length, parts]")
    if window is not None and window.type.rank != 1:
        raise r.fail(f"the window {window!r} is no vector")
    hop = r.number(1, "the step")
    length = x.type.shape[1] if window is None else window.type.shape[0]
    if r.optional(3) is not None:
        given = r.number(3, "the frames' length")
        length = given if window is None else unify(given, length, "the window's length differs")
    frames = step(r, Frames(hop, length), x)
    if window is not None:
        column = step(r, Reshape((*window.type.shape, as_expr(1))), window)
        frames = step(r, Mul(), frames, column)
    return transformed(r, frames, Dft(length, 2, False, bool(r.attribute("onesided", 1))))


def _window(r: NodeReader, weights: tuple[float, float, float]) -> Value:
    dtype = _output_dtype(r)
    periodic = bool(r.attribute("periodic", 1))
    return r.one(CosineWindow(r.number(0, "the size"), weights, periodic, dtype))


def _output_dtype(r: NodeReader) -> DType:
    return dtype_of(int(r.attribute("output_datatype", 1)), "attribute output_datatype")


@handles("HannWindow", 17)
def hann_window(r: NodeReader) -> Value:
    """ONNX has a function for it, whose size must be a float."""
    return _window(r, (0.5, 0.5, 0.0))


@handles("HammingWindow", 17)
def hamming_window(r: NodeReader) -> Value:
    """As the Hann window, with other weights."""
    return _window(r, (25 / 46, 21 / 46, 0.0))


@handles("BlackmanWindow", 17)
def blackman_window(r: NodeReader) -> Value:
    """As the Hann window, with other weights."""
    return _window(r, (0.42, 0.5, 0.08))


@handles("MelWeightMatrix", 17)
def mel_weight_matrix(r: NodeReader) -> Value:
    """The sizes decide the shape; rate and edges may be data."""
    op = MelWeights(r.number(0, "the bands"), r.number(1, "the length"), _output_dtype(r))
    inputs = (step(r, Reshape(()), r.input(k)) for k in (2, 3, 4))
    return r.one(op, *inputs)
