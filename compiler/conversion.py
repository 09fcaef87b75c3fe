"""Arrays from one dtype to another, as ``cast`` in an expression means it.

- A float becomes the nearest value of the dtype, of two the even one, in one step: float64 and wide
  integers are not rounded to float32 on the way. What is out of range becomes an infinity; NaN
  where there are none; the greatest number of that sign in a dtype that has neither, where NaN
  becomes -0.0.
- In ``f8e8m0``, of two nearest powers the greater one; 0, negative numbers, infinities and NaN
  become NaN.
- A float becomes an integer towards zero, the nearest one if it is out of range, and 0 for NaN; of
  fewer than 8 bits it is 0 if it is out of range, as in ml_dtypes. (ONNX leaves both open.)
- Wide integers lose their high bits in narrow ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .dtypes import BF16, BOOL, F8E8M0, I32, DType, from_numpy

Array: TypeAlias = np.ndarray[Any, Any]


def converted(x: Any, dtype: DType) -> Array:
    """The array in another dtype."""
    array = np.asarray(x)
    source = from_numpy(array.dtype)
    if source is dtype:
        return array
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return _to_float(array, source, dtype)
        if dtype is BOOL:
            return np.asarray(_plain(array, source) != 0)
        if dtype.is_packed and source.is_float:
            wide = _to_integer(_plain(array, source), I32)
            inside = (wide >= dtype.min) & (wide <= dtype.max)
            return converted(np.where(inside, wide, 0), dtype)
        if source.is_float:
            return _to_integer(_plain(array, source), dtype)
        if dtype.is_packed:
            return _plain(array, source).astype(dtype.computed.numpy).astype(dtype.numpy)
        return np.asarray(_plain(array, source).astype(dtype.numpy))


def _plain(x: Array, source: DType) -> Array:
    """Numbers in a dtype of numpy's own, exactly."""
    return x.astype(source.computed.numpy)


def _to_float(x: Array, source: DType, dtype: DType) -> Array:
    plain = _plain(x, source)
    if dtype.bits >= 32 or (dtype.name == "f16" and source.is_float):
        return np.asarray(plain.astype(dtype.numpy))
    if not source.is_float:
        plain = _odd_double(plain) if plain.dtype.itemsize == 8 else plain.astype(np.float64)
    if dtype is F8E8M0:
        return _to_power(plain.astype(np.float64))
    if plain.dtype == np.float64:
        single = plain.astype(np.float32)
        plain = to_odd(single, plain - single)
    out: Array = plain.astype(dtype.numpy)
    if dtype is BF16 or dtype.layout is None or dtype.layout.has_nan:
        return out
    return np.where(np.isnan(plain), -np.zeros((), np.float32).astype(dtype.numpy), out)


def _odd_double(x: Array) -> Array:
    """64-bit integers as float64 whose last place tells whether something was lost."""
    low = x & x.dtype.type(0xFFF)
    high = x - low
    sticky = np.where(low != 0, high + x.dtype.type(0x800), x)
    wide = (x >= 2**53) | (x <= -(2**53)) if x.dtype.kind == "i" else x >= 2**53
    return np.asarray(np.where(wide, sticky, x).astype(np.float64))


def to_odd(x: Array, lost: Array) -> Array:
    """Of x + lost's two neighbours the odd one: rounded once more, it gives the right result.

    Source: S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, 2008.
    """
    integer = np.int64 if x.dtype == np.float64 else np.int32
    even = np.ascontiguousarray(x).view(integer).reshape(x.shape) % 2 == 0
    nudge = even & (lost != 0) & np.isfinite(x) & np.isfinite(lost)
    return np.where(nudge, np.nextafter(x, np.copysign(np.inf, lost).astype(x.dtype)), x)


def _to_power(x: Array) -> Array:
    """The nearest power of two as ``f8e8m0``."""
    fraction, exponent = np.frexp(x)
    code = exponent + np.where(fraction >= 0.75, 127, 126)
    code = np.where((x > 0) & (x < np.inf) & (code < 255), np.maximum(code, 0), 255)
    return np.asarray(code.astype(np.uint8)).view(F8E8M0.numpy)


def _to_integer(x: Array, dtype: DType) -> Array:
    """Floats as integers of 8 bits or more."""
    least, beyond = float(dtype.min), 2.0 ** (dtype.max.bit_length())
    x = np.trunc(x)
    inside = (x >= least) & (x < beyond)
    out = np.where(inside, x, 0).astype(np.int64 if least else np.uint64).astype(dtype.numpy)
    out = np.where(x >= beyond, np.array(dtype.max, dtype.numpy), out)
    return np.where(x < least, np.array(dtype.min, dtype.numpy), out)


__all__ = ["converted", "to_odd"]
