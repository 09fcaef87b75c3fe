"""Deterministic arrays for the operators' samples.

The numbers depend on the arguments alone, in every process. Where one sample takes two arrays of
one shape, one of them has another ``seed``: of equal operands x - y and y - x are the same.
"""

from __future__ import annotations

import zlib

import numpy as np

from planish.compiler.graph.ir import Array


def _generator(shape: tuple[int, ...], low: float, high: float, seed: int) -> np.random.Generator:
    key = (shape, low, high) if seed == 0 else (shape, low, high, seed)
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def f32(*shape: int, low: float = -3.0, high: float = 3.0, seed: int = 0) -> Array:
    """Uniform float32 in [low, high)."""
    rng = _generator(shape, low, high, seed)
    return rng.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -5, high: int = 6, dtype: str = "int64", seed: int = 0) -> Array:
    """Uniform integers in [low, high)."""
    rng = _generator(shape, low, high, seed)
    return rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> Array:
    """Both truth values."""
    return ints(*shape, low=0, high=2, seed=seed).astype(bool)


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
