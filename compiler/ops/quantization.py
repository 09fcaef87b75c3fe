"""Numbers as narrow integers: ``x`` stands for ``(x - zero point) * scale``.

A scale and its zero point are one number for the whole tensor, one for each slice along an axis, or
one for each block of elements along an axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import (
    BF16,
    F4E2M1,
    F8E4M3FN,
    F8E5M2,
    F8E8M0,
    F16,
    F32,
    F64,
    FLOAT8,
    I2,
    I4,
    I8,
    I16,
    I32,
    U4,
    U8,
    U16,
    DType,
    from_numpy,
)
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume, unify
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices, is_one
from .conversion import Cast
from .elementwise import broadcasts_to, call, wide, widened
from .reduction import reduce_over
from .sampling import f32, ints, special


def is_quantized(dtype: DType) -> bool:
    """Whether tensors are quantised to a dtype: integers up to 16 bits, floats up to 8."""
    if dtype.is_int:
        return dtype.bits <= 16
    return dtype.is_float and dtype.bits <= 8 and dtype is not F8E8M0


def saturated(x: Expr, dtype: DType, zero: Expr | None) -> Expr:
    """``round(x) + zero`` in an integer dtype; what lies beyond becomes the nearest number.

    NaN becomes the least one.
    """
    low: Expr = n.const(dtype.min, x.dtype)
    high: Expr = n.const(dtype.max, x.dtype)
    if zero is not None:  # limits before the sum: it is exact, in integers
        offset = n.cast(zero, x.dtype)
        low, high = low - offset, high - offset
    near = call("round_even", x)
    inside = n.cast(call("min_second", call("max_second", near, low), high), I32)
    return n.cast(inside if zero is None else inside + n.cast(zero, I32), dtype)


def stored(x: Expr, dtype: DType, zero: Expr | None, saturate: bool = True) -> Expr:
    """``x + zero`` as the nearest of ``dtype``."""
    if dtype.is_int:
        return saturated(x, dtype, zero)
    moved = x if zero is None else x + n.cast(zero, x.dtype)
    return Cast.of(dtype, saturate, "up").element(moved)


def stored_array(x: Array, dtype: DType, zero: Array | None, saturate: bool = True) -> Array:
    """The same by numpy."""
    if not dtype.is_int:
        moved = x if zero is None else x + zero.astype(x.dtype)
        if saturate and dtype.layout is not None:
            moved = np.clip(moved, -dtype.layout.largest, dtype.layout.largest)
        return converted(moved, dtype)
    near = np.rint(x.astype(np.float64))
    near = near if zero is None else near + zero.astype(np.float64)
    near = np.where(np.isnan(near), dtype.min, near)
    whole = np.clip(near, dtype.min, dtype.max).astype(np.int64)
    return np.asarray(whole.astype(dtype.numpy))


@dataclass(frozen=True)
class _Scaled(Op):
    """What quantising and its inverse share: which scale belongs to an element."""

    dtype: DType  # of the result
    axis: int = 1  # of the scales, unless there is one number
    block: int = 0  # elements along the axis to a scale; 0: the scales are a vector

    def check_scales(self, x: TensorType, scale: TensorType, zero: TensorType | None) -> None:
        if zero is not None and not scale.size == zero.size == 1:
            if zero.rank != scale.rank:
                raise self.fail(f"the scale is {scale}, the zero point {zero}")
            for d, e in zip(scale.shape, zero.shape, strict=True):
                unify(d, e, "scale and zero point differ")
        if scale.size == 1 and (scale.rank <= 1 or not self.block):
            return
        axis = self.resolve_axis(self.axis, x.rank)
        if self.block < 0:
            raise self.fail(f"blocks of {self.block}")
        if not self.block:
            if scale.rank != 1:
                raise self.fail(f"the scale is {scale}: neither one number nor a vector")
            unify(scale.shape[0], x.shape[axis], f"scales along axis {axis}")
            return
        if scale.rank != x.rank:
            raise self.fail(f"scales {scale} of blocks of {x}")
        for k, (d, e) in enumerate(zip(scale.shape, x.shape, strict=True)):
            if k != axis:
                unify(d, e, f"scales of blocks, axis {k}")
                continue
            fits = n.eq(d, n.floordiv(e + (self.block - 1), self.block))
            if isinstance(fits, Const) and not fits.value:
                raise self.fail(f"{d} scales for {e} elements in blocks of {self.block}")
            assume(fits)

    def element(self, scales: te.Tensor, x: te.Tensor, i: tuple[Expr, ...]) -> Expr:
        """The scale (or zero point) of an element."""
        axis = self.axis % x.rank if x.rank else 0
        if all(map(is_one, scales.shape)):
            return scales[tuple(as_expr(0) for _ in scales.shape)]
        if not self.block:
            return scales[i[axis]]
        return scales[(*i[:axis], n.floordiv(i[axis], self.block), *i[axis + 1 :])]

    def spread(self, scales: Array, x: Array) -> Array:
        """Scales (or zero points) for each element, or what broadcasts to them, by numpy."""
        if scales.size == 1 and not (self.block and scales.ndim > 1):
            return scales.reshape(())
        if self.block:
            wide = np.repeat(scales, self.block, self.axis)
            return np.take(wide, np.arange(x.shape[self.axis]), self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return scales.reshape(shape)


@dataclass(frozen=True)
class Quantize(_Scaled):
    """x / scale, rounded to the nearest integer (the even one of two), plus the zero point.

    What lies beyond the range of ``dtype`` becomes its end. A ``dtype`` of floats is rounded to as
    Cast does, ``saturate`` being its option. The quotient is rounded to ``precision``, if given,
    else to the dtype of the scale (of x, if that is f8e8m0).

    Shape: x [...] number, scale [], [n] or [..., ceil(n / block), ...], zero point of ``dtype`` and
        the scale's shape or none -> dtype [...].
    Errors: TypeCheckError if scales do not fit x, or dtypes are none of these.
    Source: ONNX QuantizeLinear-28.
    """

    name = "quantize"

    precision: DType | None = None
    saturate: bool = True

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> TensorType:
        if not is_quantized(self.dtype):
            raise self.fail(f"cannot quantise to {self.dtype}")
        if self.precision is not None and not self.precision.is_float:
            raise self.fail(f"cannot divide in {self.precision}: the precision must be a float")
        if x.dtype not in (F16, BF16, F32, I32):
            raise self.fail(f"is not defined for {x.dtype}")
        if scale.dtype.kind not in "fi":
            raise self.fail(f"scales are {scale.dtype}")
        if zero is not None and zero.dtype is not self.dtype:
            raise self.fail(f"the zero point is {zero.dtype}, the result {self.dtype}")
        self.check_scales(x, scale, zero)
        return x.with_dtype(self.dtype)

    def rounds_to(self, x: DType, scale: DType) -> DType:
        """The dtype of the quotient."""
        if self.precision is not None:
            return self.precision
        if scale is F8E8M0:
            scale = x
        return scale if scale.is_float else F64

    def compute(self, x: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
        precision = self.rounds_to(x.dtype, scale.dtype)
        inner = wide(precision)

        def quotient(value: Expr, by: Expr) -> Expr:
            a, b = (n.cast(n.cast(v, precision), inner) for v in (value, by))
            return n.cast(n.cast(n.div(a, b), precision), inner)

        def element(*i: Expr) -> Expr:
            ratio = quotient(x[i], self.element(scale, x, i))
            at = None if zero is None else self.element(zero, x, i)
            return stored(ratio, self.dtype, at, self.saturate)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        by = self.spread(scale, x)
        precision = self.rounds_to(from_numpy(x.dtype), from_numpy(scale.dtype))
        a, b = (widened(converted(v, precision)) for v in (x, by))
        ratio = converted(np.asarray(a / b), precision)
        at = None if zero is None else self.spread(zero, x)
        return stored_array(widened(ratio), self.dtype, at, self.saturate)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x = f32(3, 4, low=-40.0, high=40.0)
        by = f32(low=0.1, high=0.4)
        yield cls(U8), [x, by, np.array(128, "uint8")]
        yield cls(I8), [x, by, None]
        yield cls(I16, 0), [x * 1000, f32(3, low=0.1, high=0.9), ints(3, dtype="int16")]
        yield cls(U16, -1), [x, f32(4, low=0.001, high=0.002), np.arange(4).astype("uint16")]
        yield cls(U8, 1, 3), [x, f32(3, 2, low=0.1, high=0.9), ints(3, 2, low=0, dtype="uint8")]
        yield cls(I8), [special("float32"), np.array([0.5], "float32"), np.array([-3], "int8")]
        yield (
            cls(I8),
            [np.array([0.5, 1.5, 2.5, -0.5, -2.5, 200], "float32"), np.array(1, "float32"), None],
        )
        yield cls(U8), [x.astype("float16"), by.astype("float16"), np.array(7, "uint8")]
        yield cls(U8), [x.astype(BF16.numpy), by.astype(BF16.numpy), np.array(7, "uint8")]
        yield (
            cls(U8, precision=F32),
            [x.astype("float16"), by.astype("float16"), np.array(7, "uint8")],
        )
        yield cls(I8), [ints(5, low=-900, high=900, dtype="int32"), np.array(3.5, "float32"), None]
        for dtype in (U4, I4, I2):
            yield cls(dtype), [x / 8, by, converted(np.array(1), dtype)]
        for dtype in (*FLOAT8, F4E2M1):
            yield cls(dtype), [x, np.array(1.5, "float32"), None]
        yield cls(F8E4M3FN, saturate=False), [x * 100, np.array(1.5, "float32"), None]
        yield cls(F8E5M2), [x, converted(by, F8E8M0), converted(np.array(0), F8E5M2)]


@dataclass(frozen=True)
class Dequantize(_Scaled):
    """(x - zero point) * scale.

    Shape: x [...] of integers up to 32 bits or floats up to 8, scale [], [n] or
        [..., ceil(n / block), ...], zero point of x's dtype and the scale's shape or none
        -> dtype [...].
    Errors: TypeCheckError if scales do not fit x.
    Source: ONNX DequantizeLinear-28.
    """

    name = "dequantize"

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> TensorType:
        if not self.dtype.is_float:
            raise self.fail(f"gives floats, not {self.dtype}")
        if not is_quantized(x.dtype) and x.dtype is not I32:
            raise self.fail(f"is not defined for {x.dtype}")
        if not scale.dtype.is_float:
            raise self.fail(f"scales are {scale.dtype}")
        if zero is not None and zero.dtype is not x.dtype:
            raise self.fail(f"the zero point is {zero.dtype}, x {x.dtype}")
        self.check_scales(x, scale, zero)
        return x.with_dtype(self.dtype)

    def compute(self, x: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
        inner = wide(self.dtype)

        def element(*i: Expr) -> Expr:
            between = I32 if x.dtype.is_int else inner
            value = n.cast(x[i], between)
            if zero is not None:
                value = value - n.cast(self.element(zero, x, i), between)
            by = n.cast(self.element(scale, x, i), inner)
            return n.cast(n.cast(value, inner) * by, self.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        inner = wide(self.dtype).numpy
        between = np.dtype(np.int32) if from_numpy(x.dtype).is_int else inner
        value = x.astype(between)
        if zero is not None:
            value = value - self.spread(zero, x).astype(between)
        return np.asarray(value.astype(inner) * self.spread(scale, x).astype(inner)).astype(
            self.dtype.numpy
        )

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x = ints(3, 4, low=0, high=256, dtype="uint8")
        yield cls(F32), [x, f32(), np.array(128, "uint8")]
        yield cls(F32, 0), [x.astype("int8"), f32(3), ints(3, dtype="int8")]
        yield cls(F32, -1), [ints(3, 4, dtype="int32"), f32(4), None]
        yield cls(F32, 1, 3), [x, f32(3, 2), ints(3, 2, low=0, dtype="uint8")]
        yield cls(F32, 0, 2), [x.astype("int16"), f32(2, 4), None]
        yield cls(F16), [x, f32(1, low=0.1, high=0.2).astype("float16"), np.array([3], "uint8")]
        yield cls(BF16), [x, f32().astype(BF16.numpy), None]
        few = f32(3, 4, low=-6.0, high=7.0)
        for dtype in (U4, I4, I2, *FLOAT8, F4E2M1):
            yield cls(F32), [converted(few, dtype), f32(), converted(np.array(1), dtype)]
        yield cls(F32), [converted(few, F8E4M3FN), converted(f32(low=0.1), F8E8M0), None]


@dataclass(frozen=True)
class Requantize(Op):
    """x * scale, rounded to the nearest integer (the even one of two), plus the zero point.

    What lies beyond the range of ``dtype`` becomes its end.

    Shape: x i32 or f32 [...], scale float and zero point of ``dtype`` that broadcast to it
        -> dtype [...].
    Errors: TypeCheckError if they do not broadcast, or for other dtypes.
    Source: ONNX QLinearMatMul-21, QLinearConv-10.
    """

    name = "requantize"

    dtype: DType

    def infer(self, x: TensorType, scale: TensorType, zero: TensorType | None = None) -> TensorType:
        if not is_quantized(self.dtype) or x.dtype not in (I32, F32):
            raise self.fail(f"makes {self.dtype} of {x.dtype}")
        if not scale.dtype.is_float:
            raise self.fail(f"scales are {scale.dtype}")
        if zero is not None and zero.dtype is not self.dtype:
            raise self.fail(f"the zero point is {zero.dtype}, the result {self.dtype}")
        for what, t in (("scale", scale), ("zero point", zero)):
            if t is not None and not broadcasts_to(t.shape, x.shape):
                raise self.fail(f"the {what} {t} does not broadcast to {x}")
            if t is not None:
                broadcast(x.shape, t.shape)
        return x.with_dtype(self.dtype)

    def compute(self, x: te.Tensor, scale: te.Tensor, zero: te.Tensor | None = None) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            by = n.cast(scale[broadcast_indices(i, scale.shape)], F32)
            at = None if zero is None else zero[broadcast_indices(i, zero.shape)]
            return stored(n.cast(x[i], F32) * by, self.dtype, at)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        product = x.astype(np.float32) * scale.astype(np.float32)
        return stored_array(product, self.dtype, zero)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x = ints(3, 4, low=-9000, high=9000, dtype="int32")
        yield cls(U8), [x, np.array(0.02, "float32"), np.array(128, "uint8")]
        yield cls(I8), [x, f32(4, low=0.0, high=0.1), ints(dtype="int8")]
        yield cls(I8), [x, f32(3, 1, low=0.0, high=0.1), None]
        yield cls(F8E4M3FN), [f32(3, 4), f32(4), converted(np.array(0), F8E4M3FN)]


@dataclass(frozen=True)
class QuantizationRange(Op):
    """The scale and the zero point for which all of x and 0 have a place in ``dtype``.

    A tensor of zeros alone (or of nothing) has the scale 1.

    Shape: x [...] f32 -> f32 [], dtype [].
    Source: ONNX DynamicQuantizeLinear-11.
    """

    name = "quantization_range"

    dtype: DType = U8

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        if x.dtype is not F32 or self.dtype not in (U8, I8):
            raise self.fail(f"makes {self.dtype} of {x.dtype}")
        return TensorType(F32, ()), TensorType(self.dtype, ())

    def compute(self, x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        axes = tuple(range(x.rank))
        least, most = (
            reduce_over(how, axes, x.shape, lambda *i: x[i], False, how) for how in ("min", "max")
        )
        zero = n.const(0.0, F32)
        steps = n.const(self.dtype.max - self.dtype.min, F32)

        def scale_of() -> Expr:
            span = n.maximum(most[()], zero) - n.minimum(least[()], zero)
            return n.select(n.eq(span, zero), n.const(1.0, F32), span / steps)

        scale = te.compute((), scale_of, "scale")

        def place() -> Expr:
            start = n.const(self.dtype.min, F32) - n.minimum(least[()], zero) / scale[()]
            return saturated(start, self.dtype, None)

        return scale, te.compute((), place, "zero_point")

    def reference(self, x: Array) -> tuple[Array, Array]:
        least = np.minimum(np.min(x, initial=np.inf), np.float32(0)).astype(np.float32)
        most = np.maximum(np.max(x, initial=-np.inf), np.float32(0)).astype(np.float32)
        span = most - least
        steps = np.float32(self.dtype.max - self.dtype.min)
        scale = np.asarray(np.float32(1) if span == 0 else span / steps)
        start = np.float32(self.dtype.min) - least / scale
        return scale, stored_array(np.asarray(start), self.dtype, None)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 4)]
        yield cls(), [f32(5, low=1.0)]
        yield cls(), [f32(2, 3, low=-3.0, high=-1.0)]
        yield cls(), [f32(2, 3) * 0]
        yield cls(), [f32(0, 3)]
        yield cls(I8), [f32()]


__all__ = ["Dequantize", "QuantizationRange", "Quantize", "Requantize"]
