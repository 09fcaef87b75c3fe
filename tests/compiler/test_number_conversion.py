"""Conversions of arrays, against tables of all the values that a narrow dtype has."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from planish.compiler.conversion import converted
from planish.compiler.dtypes import ALL, BF16, F8E8M0, F16, F32, F64, I8, I32, I64, U64, DType
from planish.compiler.graph.ir import Array

NARROW = [t for t in ALL.values() if t.is_float and t.bits <= 16]
ROUNDED = [t for t in NARROW if t is not F8E8M0]


def table(dtype: DType) -> Array:
    """The finite numbers that are not negative, by their bits."""
    assert dtype.layout is not None
    bits = np.arange(dtype.layout.top + 1, dtype=f"u{dtype.bytes}")
    return bits.view(dtype.numpy).astype(np.float64)


def nearest(x: Array, dtype: DType) -> Array:
    """The bits of the nearest, of two the even ones, one more than the greatest where it is beyond.

    ``x`` is float64 and neither negative nor NaN.
    """
    values = table(dtype)
    beyond = 2 * values[-1] - values[-2]
    values = np.append(values, beyond)
    middles = (values[1:] + values[:-1]) / 2
    below = np.searchsorted(middles, x, "left")
    above = np.searchsorted(middles, x, "right")
    return np.where(below % 2 == 0, below, above)


def bits_of(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").astype(np.int64)


def wanted(numbers: Array, dtype: DType) -> Array:
    """The bits that numbers become; -1 for any NaN."""
    layout = dtype.layout
    assert layout is not None
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = numbers.astype(np.float64)
    sign, nan = 1 << (dtype.bits - 1), np.isnan(x)
    code = nearest(np.where(nan, 0, abs(x)), dtype)
    negative = np.signbit(x)
    over = code > layout.top
    match layout.special:
        case "ieee":
            out = code + negative * sign
        case "fn":
            out = np.where(over, -1, code + negative * sign)
        case "fnuz":
            out = np.where(over, -1, code + (negative & (code > 0)) * sign)
        case _:
            out = np.minimum(code, layout.top) + negative * sign
    return np.where(nan, -1 if layout.has_nan else sign, out)


def found(y: Array, dtype: DType) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(y.astype(np.float32)), -1, bits_of(y))


def boundaries(dtype: DType, wide: DType) -> Array:
    """All numbers of a dtype and all middles between them, with neighbours in a wider one."""
    values = table(dtype)
    if len(values) > 4096:
        values = values[np.r_[0:40, 40 : len(values) - 40 : 11, len(values) - 40 : len(values)]]
    middles = (values[1:] + values[:-1]) / 2
    last = values[-1] + (values[-1] - values[-2]) * np.array([0.25, 0.5, 0.75, 1, 1.5])
    with np.errstate(over="ignore"):
        x = np.concatenate([values, middles, last]).astype(wide.numpy)
    kind = x.dtype.type
    x = np.concatenate([x, np.nextafter(x, kind(0)), np.nextafter(x, kind(np.inf))])
    special = np.array([np.nan, np.inf, 1e-45, 3e38, 0.0], wide.numpy)
    x = np.concatenate([x, special])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("wide", [F32, F64], ids=str)
@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
def test_floats_are_rounded_once(dtype: DType, wide: DType) -> None:
    x = boundaries(dtype, wide)
    assert np.array_equal(found(converted(x, dtype), dtype), wanted(x, dtype))
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    near = rng.standard_normal(200_000) * np.exp2(rng.uniform(-20, 12, 200_000))
    with np.errstate(invalid="ignore"):
        x = np.concatenate([x.astype(np.float64), near]).astype(wide.numpy)
    assert np.array_equal(found(converted(x, dtype), dtype), wanted(x, dtype))


@pytest.mark.parametrize("source", NARROW, ids=str)
@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
def test_narrow_floats(source: DType, dtype: DType) -> None:
    x = np.arange(1 << source.bits, dtype=f"u{source.bytes}").view(source.numpy)
    assert np.array_equal(found(converted(x, dtype), dtype), wanted(x, dtype))


def test_powers_of_two() -> None:
    powers = np.arange(-127.0, 128)
    for wide in (np.float32, np.float64):
        x = np.exp2(powers).astype(wide)
        assert np.array_equal(bits_of(converted(x, F8E8M0)), powers + 127)
        for part, more in ((1.25, 0), (1.5, 1), (1.75, 1)):
            code = powers + 127 + more
            assert np.array_equal(bits_of(converted(x * wide(part), F8E8M0)), code)
        none = np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan], wide)
        assert np.array_equal(bits_of(converted(none, F8E8M0)), [255] * 6)
        tiny = np.array([1e-45, 1e-39], wide)
        assert np.array_equal(bits_of(converted(tiny, F8E8M0)), [0, 0])


@pytest.mark.parametrize("source", [I64, U64, I32], ids=str)
@pytest.mark.parametrize("dtype", [*ROUNDED, F8E8M0, F32], ids=str)
def test_integers_are_rounded_once(source: DType, dtype: DType) -> None:
    """Compared as fractions, with middles between powers and their neighbours."""
    numbers = {
        k * ((1 << p) + (1 << max(p - m, 0))) + d
        for p in range(source.bits)
        for m in (1, 3, 8, 9, 12)
        for d in (-1, 0, 1)
        for k in (1, -1)
    }
    x = np.array(sorted(k for k in numbers if source.min <= k <= source.max), source.numpy)
    values = converted(x, dtype).astype(np.float64)
    for a, y in zip(x, values, strict=True):
        whole = Fraction(int(a))
        if dtype is F8E8M0:
            assert math.isnan(y) if whole <= 0 else _is_nearest_power(whole, Fraction(y))
        elif math.isfinite(y):
            assert _is_nearest(whole, y, dtype)
        else:
            assert dtype.layout is not None and abs(int(a)) > dtype.layout.largest


def _is_nearest_power(x: Fraction, y: Fraction) -> bool:
    return abs(x - y) <= abs(x - y / 2) and abs(x - y) < abs(x - 2 * y)


def _is_nearest(x: Fraction, y: float, dtype: DType) -> bool:
    """Whether no neighbour is nearer, and an even one not as near."""
    value = converted(np.float64(y), dtype)
    bits = int(np.asarray(value).view(f"u{dtype.bytes}"))
    for other in (bits - 1, bits + 1):
        if not 0 <= other < 1 << dtype.bits:
            continue
        neighbour = float(np.array(other, f"u{dtype.bytes}").view(dtype.numpy))
        if not math.isfinite(neighbour):
            continue
        here, there = abs(x - Fraction(y)), abs(x - Fraction(neighbour))
        if there < here or (there == here != 0 and bits % 2):
            return False
    return True


def test_double_rounding_is_gone() -> None:
    """A little more than the middle of two neighbours, which float32 does not tell from it."""
    for dtype, middle in ((BF16, 1 + 2.0**-8), (F16, 1 + 2.0**-11)):
        x = np.array([middle, middle + 2.0**-40, -middle - 2.0**-40], np.float64)
        above = 2 * (middle - 1) + 1
        assert converted(x, dtype).astype(np.float64).tolist() == [1.0, above, -above]


def test_integers_of_floats() -> None:
    x = np.array([1e30, -1e30, np.nan, np.inf, -np.inf, 127.9, -128.5, -129.0, -0.5])
    assert converted(x, I8).tolist() == [127, -128, 0, 127, -128, 127, -128, -128, 0]
    assert converted(x, U64).tolist() == [2**64 - 1, 0, 0, 2**64 - 1, 0, 127, 0, 0, 0]
    assert converted(np.float32([-(2.0**31), 2.0**31]), I32).tolist() == [-(2**31), 2**31 - 1]
    small = converted(np.array([-9.0, 7.9, 8.0, 17.0, -1.0]), ALL["i4"])
    assert small.astype(np.int8).tolist() == [0, 7, 0, 0, -1]
    small = converted(np.array([-9.0, 7.9, 16.0, -1.0]), ALL["u4"])
    assert small.astype(np.int8).tolist() == [0, 7, 0, 0]
