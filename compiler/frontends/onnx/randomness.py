"""ONNX's random operators.

The numbers follow from the ``seed``, or from the node's name where there is none: they are the same
in every call.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from planish.compiler.dtypes import BOOL, F32, I32, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.base import Op
from planish.compiler.ops.compare import GreaterOrEqual, Less, LessOrEqual, Not, Or
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range, Where
from planish.compiler.ops.elementwise import Div, FullLike, Min, Mul, Sub
from planish.compiler.ops.randomness import RandomNormal, RandomUniform
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.scans import CumSum
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.softmax import Softmax

from .elementwise import scalar, step
from .reader import NodeReader, handles
from .tensors import dtype_of

_OF_NAME: Final = 1 << 32  # seeds of names lie above those that are given


def seed_of(r: NodeReader) -> int:
    """The seed of a node's numbers."""
    given = r.attribute("seed")
    if given is None:
        return _OF_NAME + zlib.crc32(r.label.encode())
    if isinstance(given, int):
        return given & (_OF_NAME - 1)
    (bits,) = struct.unpack("<I", struct.pack("<f", given))
    return int(bits)


def _dtype(r: NodeReader, default: DType) -> DType:
    code = r.attribute("dtype")
    return default if code is None else dtype_of(int(code), "attribute dtype")


def _shape(r: NodeReader) -> tuple[Expr, ...]:
    return tuple(as_expr(int(d)) for d in r.required("shape"))


def _normal(r: NodeReader, shape: tuple[Expr, ...], dtype: DType) -> Op:
    mean, scale = float(r.attribute("mean", 0.0)), float(r.attribute("scale", 1.0))
    return RandomNormal(shape, dtype, seed_of(r), mean, scale)


def _uniform(r: NodeReader, shape: tuple[Expr, ...], dtype: DType) -> Op:
    low, high = float(r.attribute("low", 0.0)), float(r.attribute("high", 1.0))
    return RandomUniform(shape, dtype, seed_of(r), low, high)


@handles("RandomNormal", 1, 22)
def random_normal(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(_normal(r, _shape(r), _dtype(r, F32)))


@handles("RandomUniform", 1, 22)
def random_uniform(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(_uniform(r, _shape(r), _dtype(r, F32)))


@handles("RandomNormalLike", 1, 22)
def random_normal_like(r: NodeReader) -> Value:
    """All versions alike."""
    type = r.input(0).type
    return r.one(_normal(r, type.shape, _dtype(r, type.dtype)))


@handles("RandomUniformLike", 1, 22)
def random_uniform_like(r: NodeReader) -> Value:
    """All versions alike."""
    type = r.input(0).type
    return r.one(_uniform(r, type.shape, _dtype(r, type.dtype)))


@handles("Multinomial", 7, 22)
def multinomial(r: NodeReader) -> Value:
    """The number of classes whose cumulated probability a random number reaches."""
    x, count = r.input(0), int(r.attribute("sample_size", 1))
    dtype = _dtype(r, I32)
    if x.type.rank != 2 or dtype not in (I32, I64) or count < 0:
        raise r.fail(f"{count} samples ({dtype}) of {x!r}, which must be [batch, classes]")
    batch, classes = x.type.shape
    one, samples = as_expr(1), as_expr(count)
    odds = step(r, CumSum(1), step(r, Softmax((1,)), step(r, Cast(F32), x)))
    odds = step(r, Reshape((batch, one, classes)), odds)
    draws = step(r, RandomUniform((batch, samples, one), F32, seed_of(r)))
    reached = step(r, Cast(dtype), step(r, LessOrEqual(), odds, draws))
    found = step(r, ReduceSum((2,), False), reached)
    # The sum of probabilities may be rounded to less than 1.
    last = step(r, Range(n.sub(classes, 1), as_expr(1), as_expr(1), dtype))
    return r.one(Min(), found, last)


@handles("Bernoulli", 15, 22)
def bernoulli(r: NodeReader) -> Value:
    """1 where a random number is less than the probability (ONNX's function gives its opposite)."""
    x = r.input(0)
    numbers = step(r, RandomUniform(x.type.shape, x.type.dtype, seed_of(r)))
    return r.one(Cast(_dtype(r, x.type.dtype)), step(r, Less(), numbers, x))


@handles("Dropout", 1, 6, 7, 10, 12, 13, 22)
def dropout(r: NodeReader) -> list[Value]:
    """Training by attribute before version 7, by an input (which may be data) since version 12."""
    x = r.input(0)
    ratio: Value | float = 0.5
    training: Value | bool = False
    if r.version < 12:
        ratio = float(r.attribute("ratio", 0.5))
        if r.version < 7:
            training = not r.attribute("is_test", 0)
    else:
        if (given := r.optional(1)) is not None:
            ratio = given if (known := scalar(r.array(1))) is None else float(known)
        if (mode := r.optional(2)) is not None:
            training = mode if (known := scalar(r.array(2))) is None else bool(known)
    seed = seed_of(r)
    wanted = any(r.output_names[1:])
    if training is False or ratio == 0:
        kept = step(r, FullLike(True, BOOL), x) if wanted else None
        return _with_mask(r, x, kept)
    dtype = x.type.dtype
    numbers = step(r, RandomUniform(x.type.shape, F32, seed))
    kept = step(r, GreaterOrEqual(), numbers, _number(r, ratio, F32))
    one = r.constant(np.ones((), dtype.numpy))
    factor = step(r, Div(), one, step(r, Sub(), one, _number(r, ratio, dtype)))
    if isinstance(training, Value):
        mode = step(r, Reshape(()), training)
        kept = step(r, Or(), kept, step(r, Not(), mode))
        factor = step(r, Where(), mode, factor, one)
    zero = r.constant(np.zeros((), dtype.numpy))
    y = r.one(Where(), kept, step(r, Mul(), x, factor), zero)
    return _with_mask(r, y, kept)


def _number(r: NodeReader, value: Value | float, dtype: DType) -> Value:
    """A number, given or known, as a scalar of a dtype."""
    if not isinstance(value, Value):
        return r.constant(np.array(value, dtype.numpy))
    return step(r, Cast(dtype), step(r, Reshape(()), value))


def _with_mask(r: NodeReader, y: Value, kept: Value | None) -> list[Value]:
    """The outputs of Dropout; before version 10 the mask is of y's dtype."""
    if kept is None or not any(r.output_names[1:]):
        return [y]
    return [y, kept if r.version >= 10 else step(r, Cast(y.type.dtype), kept)]


__all__ = ["seed_of"]
