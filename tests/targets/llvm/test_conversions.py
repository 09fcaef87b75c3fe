"""Native conversions between all dtypes: every bit pattern of the narrow ones, and every boundary.

They are compared with ``compiler.conversion``, which tables of all values judge.
"""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.conversion import converted
from planish.compiler.dtypes import ALL, BOOL, FLOAT8, DType
from planish.compiler.expr import nodes as n
from planish.compiler.graph.ir import Array
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.schedules.rules import default_schedule
from planish.targets.llvm.target import Llvm, host

from .running import Batch
from .test_codegen import runnable

TYPES = [t for t in ALL.values() if t.kind != "c"]


def conversion(source: DType, target: DType, size: int) -> Function:
    x = te.placeholder((n.as_expr(size),), source, "x")
    y = te.compute(x.shape, lambda i: n.cast(x[i], target), "y")
    return default_schedule(lower(target.name, [x], [y]), host().machine, 1).func


def patterns(dtype: DType) -> Array:
    """All values of a narrow dtype; of a wide one many, and all boundaries of the narrow ones."""
    if dtype is BOOL:
        return np.array([False, True] * 9)
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=f"u{dtype.bytes}").view(dtype.numpy)
    return integers(dtype) if dtype.is_int else floats(dtype)


def integers(dtype: DType) -> Array:
    rng = np.random.default_rng(3)
    near = (
        sign * (factor * 2**k + d)
        for k in range(dtype.bits)
        for d in (-1, 0, 1)
        for factor in (1, 3, 5, 257, 513)
        for sign in (1, -1)
    )
    ends = np.array([v for v in near if dtype.min <= v <= dtype.max], dtype.numpy)
    return np.concatenate([rng.integers(dtype.min, dtype.max, 2000, dtype.numpy, True), ends])


def floats(dtype: DType) -> Array:
    rng = np.random.default_rng(4)
    kind = dtype.numpy.type
    raw = rng.integers(0, 256, 8 * 10_000, dtype=np.uint8).view(dtype.numpy)
    scaled = (rng.standard_normal(10_000) * np.exp2(rng.uniform(-45, 40, 10_000))).astype(kind)
    exact = [np.exp2(np.arange(-149.0, 128)) * part for part in (1, 1.5)]
    for t in TYPES:
        if t.layout is None or t.bits > 16 or t.layout.special == "scale":
            continue
        v = np.arange(t.layout.top + 1, dtype=f"u{t.bytes}").view(t.numpy).astype(np.float64)
        if t.bits == 16:
            v = v[np.r_[0:300, 300 : len(v) - 100 : 53, len(v) - 100 : len(v)]]
        exact += [v, (v[1:] + v[:-1]) / 2, v[-1:] + (v[-1:] - v[-2:-1]) / 2]
    with np.errstate(over="ignore"):
        near = np.concatenate(exact).astype(kind)
        near = np.concatenate([near, np.nextafter(near, kind(0)), np.nextafter(near, kind(np.inf))])
    special = np.array([np.nan, np.inf, 0], kind)
    return np.concatenate([raw, scaled, near, -near, special, -special])


def same(x: Array, y: Array, dtype: DType) -> Array:
    """Where two arrays agree: to the last bit, but for NaN."""
    bits = [a.view(f"u{dtype.bytes}") for a in (x, y)]
    if not dtype.is_float:
        return np.equal(*bits)
    wide = [np.isnan(a.astype(dtype.computed.numpy)) for a in (x, y)]
    return np.equal(*bits) | (wide[0] & wide[1])


def check(source: DType, x: Array, targets: list[DType], machine: Llvm) -> None:
    batch = Batch.of({t.name: conversion(source, t, len(x)) for t in targets}, machine)
    for t in targets:
        (y,) = batch.run(t.name, [x])
        right = same(y, converted(x, t), t)
        wrong = np.flatnonzero(~right)[:5]
        assert right.all(), f"{t}: {[(x[k], y[k], converted(x[k], t)) for k in wrong]}"


@pytest.mark.parametrize("source", TYPES, ids=str)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
def test_conversions(source: DType, target: str) -> None:
    check(source, patterns(source), [t for t in TYPES if t is not source], runnable(target))


def test_a_million_floats() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint32).view(np.float32)
    check(ALL["f32"], x, [*FLOAT8, ALL["f8e8m0"], ALL["bf16"], ALL["f16"]], host())
