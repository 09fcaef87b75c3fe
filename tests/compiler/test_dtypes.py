"""Element types: their names, their layouts, and which hold the values of which."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from planish.compiler.conversion import converted
from planish.compiler.dtypes import ALL, DType, exact, from_numpy
from planish.compiler.graph.ir import Array

FLOATS = [t for t in ALL.values() if t.is_float]
REAL = [t for t in ALL.values() if t.kind != "c"]


@pytest.mark.parametrize("dtype", ALL.values(), ids=str)
def test_names(dtype: DType) -> None:
    assert from_numpy(dtype.numpy) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.numpy.itemsize == dtype.bytes
    assert dtype.bits % 8 or dtype.bits == 8 * dtype.bytes


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layout_is_that_of_numpy(dtype: DType) -> None:
    info, layout = ml_dtypes.finfo(dtype.numpy), dtype.layout
    assert layout is not None
    assert (layout.exponent, layout.mantissa) == (info.nexp, info.nmant)
    assert layout.largest == float(info.max)
    least = 2.0**layout.least
    assert least == float(info.smallest_subnormal)
    top = np.array(layout.top, f"u{dtype.bytes}").view(dtype.numpy)
    assert float(top) == layout.largest
    after = np.array(layout.top + 1, f"u{dtype.bytes}").view(dtype.numpy).astype(np.float64)
    assert not after > layout.largest or np.isinf(after)
    assert layout.has_infinities == bool(np.isinf(after))


def every(dtype: DType) -> Array:
    """All values; of wide types, those that need all digits, or the ends of the range."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=f"u{dtype.bytes}").view(dtype.numpy)
    if dtype.is_float:
        values = [(1 + 2.0**-k) * 2.0**e for k in range(53) for e in (-8, 8)]
        wide = np.array([np.inf, *values, *(-v for v in values)], np.float64)
        return wide.astype(dtype.numpy)
    return np.array([dtype.min, dtype.min + 1, 1, dtype.max - 1, dtype.max], dtype.numpy)


@pytest.mark.parametrize("source", REAL, ids=str)
@pytest.mark.parametrize("target", REAL, ids=str)
def test_exact_is_there_and_back(source: DType, target: DType) -> None:
    x = every(source)
    back = converted(converted(x, target), source)
    a, b = (v.astype(source.computed.numpy) for v in (back, x))
    same = np.array_equal(a, b, equal_nan=source.is_float)
    if source.is_float:
        same = same and np.array_equal(np.signbit(a[a == 0]), np.signbit(b[a == 0]))
    if exact(source, target):
        assert same
    elif source.bits <= 16 and not (target.bits == 64 and target.is_int):
        assert not same or {source.kind, target.kind} == {"i", "u"}


EXACT = """
bool-i8 bool-i64 u8-bf16 i16-f32 f32-f64 i8-i16 u8-i16 u16-f32 i32-f64 u8-f16 i8-bf16
f16-f32 bf16-f32 f32-f64
i4-i8 i4-f8e4m3fn i4-f8e5m2 u4-f8e4m3fn u2-f4e2m1 f4e2m1-f6e2m3 f6e3m2-f8e4m3fn f8e4m3fn-f16
f8e5m2-f16 f8e4m3fnuz-f16 f8e8m0-bf16 f8e8m0-f32""".split()  # noqa: SIM905
INEXACT = """
i32-f32 i64-u64 i64-f32 f32-f16 i8-u8 u8-i8 i64-f64 i16-f16 u16-bf16 f16-bf16 bf16-f16
f64-f32 f32-i64 i8-bool
i4-u4 i4-f6e2m3 u4-f8e5m2 i4-f4e2m1 bool-f8e8m0 f8e8m0-f16 f8e5m2-f8e4m3fn f6e2m3-f4e2m1
f8e4m3fn-f8e4m3fnuz c64-c128 f32-c64""".split()  # noqa: SIM905


@pytest.mark.parametrize("pair", [*EXACT, *INEXACT])
def test_exact(pair: str) -> None:
    source, target = (ALL[t] for t in pair.split("-"))
    assert exact(source, target) is (pair in EXACT)
