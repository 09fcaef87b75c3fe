"""Operators from one dtype to another: by value, and by the bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import (
    ALL,
    BF16,
    BOOL,
    C64,
    F4E2M1,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E8M0,
    F16,
    F32,
    F64,
    FLOAT8,
    I4,
    I8,
    I16,
    I32,
    I64,
    U4,
    U8,
    U16,
    U32,
    U64,
    DType,
    from_numpy,
)
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, as_expr
from planish.compiler.graph.ir import Array, Content, TensorType
from planish.compiler.loop import te

from .base import Op
from .sampling import bools, f32, ints, special

ROUND_MODES: Final = ("up", "down", "nearest")
_LEAST, _MOST = 2.0**-127, 2.0**127  # of f8e8m0


@dataclass(frozen=True)
class Cast(Op):
    """Converted to another dtype.

    A float becomes the integer towards zero, the nearest of the dtype if it is out of range (of
    fewer than 8 bits: the low bits of that in i32), and 0 if it is NaN. A number becomes true if it
    is not 0; a wide integer wraps around in a narrow one. A number becomes the nearest float, of
    two the even one.

    ``saturate`` concerns floats of 8 bits alone: what is out of range becomes the greatest number,
    else an infinity, or NaN where there is none. ``round_mode`` concerns ``f8e8m0`` alone: the next
    power of two ``up``, ``down``, or the ``nearest``, of two the greater. There 0 is out of range,
    and negative numbers become NaN.

    Shape: x [...] -> dtype [...].
    Errors: TypeCheckError for complex numbers and an unknown round_mode.
    Source: ONNX Cast-28.
    """

    name = "cast"

    dtype: DType
    saturate: bool = True
    round_mode: str = "up"

    @staticmethod
    def of(dtype: DType, saturate: bool, round_mode: str) -> Cast:
        """The operator without the options that do not concern the dtype."""
        eight = dtype in FLOAT8 or dtype is F8E8M0
        return Cast(dtype, saturate or not eight, round_mode if dtype is F8E8M0 else "up")

    def infer(self, x: TensorType) -> TensorType:
        if self.round_mode not in ROUND_MODES:
            modes = ", ".join(ROUND_MODES)
            raise self.fail(f"there is no round mode {self.round_mode}", hint=f"one of {modes}")
        if x.dtype is not self.dtype and "c" in (x.dtype.kind, self.dtype.kind):
            raise self.fail(f"{x.dtype} is not converted to {self.dtype}")
        return x.with_dtype(self.dtype)

    def is_identity(self, dtype: DType) -> bool:
        """Whether every value of the dtype stays what it is."""
        return dtype is self.dtype and not (dtype is F8E5M2 and self.saturate)

    def element(self, x: Expr) -> Expr:
        """The output's element for the input's."""
        if x.dtype is self.dtype and self.is_identity(x.dtype):
            return x
        if self.dtype is F8E8M0:
            return self._power(x)
        layout = self.dtype.layout
        if layout is not None and self.dtype in FLOAT8 and self.saturate:
            x = n.cast(x, x.dtype.computed if x.dtype.is_float else F32)
            most = n.const(layout.largest, x.dtype)
            x = Call("min_second", (most, x), x.dtype)  # x, if it is NaN
            x = Call("max_second", (n.neg(most), x), x.dtype)
        return n.cast(x, self.dtype)

    def _power(self, x: Expr) -> Expr:
        """By the exponent of the number in f64, after adding what rounding takes."""
        x = n.cast(_odd(x), F64)
        bits = Call("bitcast", (x,), U64)
        size = Call("bit_and", (bits, n.const((1 << 63) - 1, U64)), U64)
        step = {"up": (1 << 52) - 1, "nearest": 1 << 51, "down": 0}[self.round_mode]
        raised = Call("shift_right", (size + n.const(step, U64), n.const(52, U64)), U64)
        code = n.cast(raised, I32) - n.const(1023 - 127, I32)
        if self.saturate:
            valid, top = n.le(0.0, x), 254
        elif self.round_mode == "up":
            valid, top = n.all_of(n.lt(0.0, x), n.le(x, _MOST)), 254
        elif self.round_mode == "nearest":
            valid, top = n.all_of(n.le(_LEAST, x), n.le(x, _MOST)), 254
        else:
            valid, top = n.le(_LEAST, x), 255
        code = n.minimum(n.maximum(code, n.const(0, I32)), n.const(top, I32))
        code = n.select(valid, code, n.const(255, I32))
        return Call("bitcast", (n.cast(code, U8),), F8E8M0)

    def compute(self, x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: self.element(x[i]), self.name)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        (x,) = inputs
        if x is None or not self.dtype.is_discrete:
            return (None,)
        narrow = self.dtype is not BOOL and self.dtype.bits < 32
        if narrow and not all(isinstance(e, Const) or e.dtype is BOOL for e in x):
            return (None,)
        return (tuple(self.of_known(e) for e in x),)

    def of_known(self, e: Expr) -> Expr:
        if self.dtype is BOOL:
            return e if e.dtype is BOOL else n.ne(e, 0)
        if e.dtype is BOOL:
            return n.select(e, 1, 0)
        return as_expr(n.wrap(int(e.value), self.dtype)) if isinstance(e, Const) else e

    def reference(self, x: Array) -> Array:
        source, layout = from_numpy(x.dtype), self.dtype.layout
        if self.is_identity(source):
            return x
        if self.dtype is F8E8M0:
            return self._power_reference(x)
        if layout is not None and self.dtype in FLOAT8 and self.saturate:
            x = x.astype(np.float64)
            x = np.clip(x, -layout.largest, layout.largest)
        return converted(x, self.dtype)

    def _power_reference(self, x: Array) -> Array:
        wide = x.astype(from_numpy(x.dtype).computed.numpy).astype(np.longdouble)
        fraction, exponent = np.frexp(wide)
        more = {"up": fraction > 0.5, "nearest": fraction >= 0.75, "down": False}[self.round_mode]
        power = np.where(wide == np.inf, 999, exponent - 1 + more)
        if self.saturate:
            power = np.clip(np.where(wide == 0, -127, power), -127, 127)
            valid = wide >= 0
        else:
            inexact = self.round_mode == "nearest" and ((wide < _LEAST) | (wide > _MOST))
            valid = (wide > 0) & ~np.asarray(inexact) & (power <= 127)
            if self.round_mode == "up":
                power = np.maximum(power, -127)
            valid &= power >= -127
        code = np.where(valid, power + 127, 255).astype(np.uint8)
        return code.view(F8E8M0.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(I64), [f32(3, 5, low=-9.0, high=9.0)]
        yield cls(F16), [f32(3, 5)]
        yield cls(BF16), [f32(3, 5)]
        yield cls(F32), [f32(4).astype(np.float16)]
        yield cls(F32), [f32(4).astype(BF16.numpy)]
        yield cls(F32), [bools(4)]
        yield cls(BOOL), [np.array([0.0, -0.0, 0.5, np.nan, np.inf], np.float32)]
        yield cls(BOOL), [ints(5, low=-1, high=2)]
        yield cls(U8), [ints(6, low=-300, high=600, dtype="int32")]
        yield cls(F32), [ints(4, low=-(2**40), high=2**40)]
        for dtype in (I8, U16, I32, U64):
            yield cls(dtype), [special("float64")]
        for name in sorted(set(ALL) - {"c64", "c128"}):
            yield cls(ALL[name]), [f32(3, 4, low=-12.0, high=12.0)]
            yield cls(F32), [converted(f32(3, 4, low=-12.0, high=12.0), ALL[name])]
        for dtype in (F16, BF16, *FLOAT8, F4E2M1):
            yield cls(dtype, False), [_ties(dtype)]
        for dtype in FLOAT8:
            yield cls(dtype), [_ties(dtype)]
            yield cls(dtype), [special("float32")]
            yield cls(dtype, False), [special("float32")]
        for mode in ROUND_MODES:
            yield cls(F8E8M0, True, mode), [_powers("float32")]
            yield cls(F8E8M0, False, mode), [_powers("float64")]
        yield cls(F8E8M0), [np.array([0, 3, 2**53 + 1, 2**62 + 1, 2**63 - 1, -5], np.int64)]
        yield cls(BF16), [np.array([2**54 + 2**46 + 1, 2**63 - 1, -(2**62) - 2**54 - 1, 7])]
        yield cls(U4), [converted(ints(3, 5), I4)]
        yield cls(F8E5M2), [converted(special(), F8E5M2)]
        yield cls(F8E4M3FN), [converted(special(), F8E4M3FNUZ)]
        yield cls(C64), [f32(2, 3).astype(np.complex64)]


def _odd(x: Expr) -> Expr:
    """A number as it is; a large 64-bit integer so that its last place in f64 tells its rest."""
    t = x.dtype
    if t not in (I64, U64):
        return x
    low = Call("bit_and", (x, n.const(0x7FF, t)), t)
    rest = n.select(n.eq(low, 0), n.const(0, t), n.const(0x400, t))
    return n.select(n.lt(x, n.const(1 << 53, t)), x, x - low + rest)


def _ties(dtype: DType) -> Array:
    """Halfway between neighbours, where two roundings differ from one, and about the greatest."""
    layout = dtype.layout
    assert layout is not None
    step = 2.0**-layout.mantissa
    about = [1 + step / 2, 1 + 3 * step / 2, 1 + step, 1.0]
    tiny = [2.0**layout.least * k for k in (0.25, 0.5, 0.75, 1.5, 2.5)]
    top = layout.largest
    tops = [top, top * (1 + step / 8), top * (1 + step / 2), top * 1.5] if top < 1e300 else []
    values = np.array([*about, *tiny, *tops], np.float64)
    near = np.concatenate([values, values * (1 + 1e-13), values * (1 - 1e-13)])
    return np.concatenate([near, -near])


def _powers(dtype: str) -> Array:
    parts = np.array([1.0, 1.25, 1.5, 1.75], dtype)
    scales = np.array([2.0**k for k in (-140, -128, -127, -126, -1, 0, 5, 126, 127)], dtype)
    return np.concatenate([(scales[:, None] * parts).ravel(), special(dtype)])


@dataclass(frozen=True)
class BitCast(Op):
    """The same bits, read as another dtype of the same width; a bool is a byte that is not 0.

    Shape: x [...] -> dtype [...].
    Errors: TypeCheckError if the widths differ.
    Source: ONNX BitCast-26.
    """

    name = "bitcast"

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        if _width(x.dtype) != _width(self.dtype):
            have, want = _width(x.dtype), _width(self.dtype)
            raise self.fail(f"{x.dtype} has {have} bits, {self.dtype} {want}")
        return x.with_dtype(self.dtype)

    def compute(self, x: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            return x[i] if x.dtype is self.dtype else Call("bitcast", (x[i],), self.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        bits = x.view(f"u{x.dtype.itemsize}") if x.dtype.itemsize <= 8 else x
        return np.not_equal(bits, 0) if self.dtype is BOOL else bits.view(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(I32), [f32(3, 5)]
        yield cls(F32), [ints(3, 5, low=0, high=2**30, dtype="uint32")]
        yield cls(F64), [ints(7, low=-(2**60), high=2**60)]
        yield cls(BF16), [f32(2, 3).astype(np.float16)]
        yield cls(I16), [f32(2, 3).astype(BF16.numpy)]
        yield cls(U8), [bools(5)]
        yield cls(BOOL), [ints(5, low=0, high=3, dtype="int8")]
        yield cls(F8E5M2), [ints(9, low=0, high=256, dtype="uint8")]
        yield cls(I4), [converted(ints(9, low=0, high=16), U4)]
        yield cls(U4), [converted(f32(9), F4E2M1)]
        yield cls(C64), [f32(2, 3).astype(np.float64)]
        yield cls(U64), [f32(2, 3).astype(np.complex64)]
        yield cls(U32), [f32()]


def _width(dtype: DType) -> int:
    return 8 if dtype is BOOL else dtype.bits


__all__ = ["ROUND_MODES", "BitCast", "Cast"]
