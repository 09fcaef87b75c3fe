"""Deterministic arrays for the operators' samples."""

from __future__ import annotations

import zlib

import numpy as np

from planish.compiler.graph.ir import Array


def f32(*shape: int, low: float = -3.0, high: float = 3.0) -> Array:
    """Uniform float32 in [low, high); the same for the same arguments."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, low, high)).encode()))
    return rng.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -5, high: int = 6, dtype: str = "int64") -> Array:
    """Uniform integers in [low, high)."""
    rng = np.random.default_rng(zlib.crc32(repr((shape, low, high)).encode()))
    return rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Array:
    """Both truth values."""
    return ints(*shape, low=0, high=2).astype(bool)


def special(dtype: str = "float32") -> Array:
    """NaN, infinities, zeros of both signs, the largest, the smallest and a few plain numbers."""
    info = np.finfo(dtype)
    values = [
        np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.25, -100.0,
        info.max, info.min, info.tiny,
    ]  # fmt: skip
    return np.array(values, dtype)


def extremes(dtype: str) -> Array:
    """The least and the greatest integers of the dtype and some small ones."""
    info = np.iinfo(dtype)
    small = [v for v in (-7, -2, -1, 0, 1, 2, 3, 10, 65) if v >= info.min]
    return np.array([info.min, info.min + 1, *small, info.max - 1, info.max], dtype)
