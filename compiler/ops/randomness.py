"""Random numbers: each element is a function of the seed and of its place alone.

So a seed gives the same numbers on every target, for every schedule and on every call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import BF16, F16, F32, F64, I32, I64, U64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.expr.sizes import numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op
from .elementwise import call, wide
from .shape import sizes

# The odd integer next to 2^64 over the golden ratio, and the multipliers of the mixing steps.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST: Final = 31
_MASK: Final = (1 << 64) - 1
_DIGITS: Final = {F16: 11, BF16: 8, F32: 24, F64: 53}  # of a significand


def _mixed(z: int) -> int:
    """The mixing function, of a number."""
    for shift, factor in _STEPS:
        z = ((z ^ (z >> shift)) * factor) & _MASK
    return z ^ (z >> _LAST)


def _bits(seed: int, place: Expr) -> Expr:
    """64 random bits for the i64 ``place``.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """

    def folded(z: Expr, shift: int) -> Expr:
        return call("bit_xor", z, call("shift_right", z, n.const(shift, U64)))

    z = n.add(n.cast(place, U64) * n.const(_GOLDEN, U64), n.const(_mixed(seed), U64))
    for shift, factor in _STEPS:
        z = folded(z, shift) * n.const(factor, U64)
    return folded(z, _LAST)


def _fraction(bits: Expr, digits: int, dtype: DType) -> Expr:
    """The first binary digits as a number below 1, exact in ``dtype``."""
    whole = call("shift_right", bits, n.const(64 - digits, U64))
    narrow = n.cast(whole, I32 if digits < 32 else I64)
    return n.cast(narrow, dtype) * n.const(2.0**-digits, dtype)


def _bits_array(seed: int, places: Array) -> Array:
    """``_bits`` by numpy."""
    z = places.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(_mixed(seed))
    for shift, factor in _STEPS:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z ^ (z >> np.uint64(_LAST)))


def _fraction_array(bits: Array, digits: int) -> Array:
    return np.asarray((bits >> np.uint64(64 - digits)).astype(np.float64) * 2.0**-digits)


@dataclass(frozen=True)
class _Random(Op):
    shape: tuple[Expr, ...]
    dtype: DType = F32
    seed: int = 0  # of 64 bits

    def infer(self) -> TensorType:
        if self.dtype not in _DIGITS:
            raise self.fail(f"gives floats, not {self.dtype}")
        for d in self.shape:
            if isinstance(d, Const) and d.value < 0:
                raise self.fail(f"a dimension is {d}")
        return TensorType(self.dtype, self.shape)

    def place(self, i: tuple[Expr, ...]) -> Expr:
        """The number of an element in row-major order."""
        out: Expr = n.const(0, I64)
        for k, d in zip(i, self.shape, strict=True):
            out = out * d + k
        return out

    def places(self) -> Array:
        shape = numbers(self.shape)
        return np.arange(math.prod(shape)).reshape(shape)


@dataclass(frozen=True)
class RandomUniform(_Random):
    """Numbers spread evenly over [low, high).

    Shape: -> dtype [*shape].
    Errors: TypeCheckError for a negative dimension, or a dtype that is no float.
    Source: ONNX RandomUniform-22; splitmix64 of the element's place.
    """

    name = "random_uniform"

    low: float = 0.0
    high: float = 1.0

    def compute(self) -> te.Tensor:
        inner = wide(self.dtype)

        def element(*i: Expr) -> Expr:
            u = _fraction(_bits(self.seed, self.place(i)), _DIGITS[self.dtype], inner)
            span = n.const(self.high - self.low, inner)
            return n.cast(n.const(self.low, inner) + u * span, self.dtype)

        return te.compute(self.shape, element, self.name)

    def reference(self) -> Array:
        inner = wide(self.dtype).numpy.type
        u = _fraction_array(_bits_array(self.seed, self.places()), _DIGITS[self.dtype])
        values = inner(self.low) + u.astype(inner) * inner(self.high - self.low)
        return np.asarray(values).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(3, 5)), []
        yield cls(sizes(4), F64, 7, -2.0, 5.0), []
        yield cls(sizes(2, 3), F16, 1), []
        yield cls(sizes(2, 3), BF16, (1 << 64) - 1), []
        yield cls(sizes()), []
        yield cls(sizes(0, 2)), []


@dataclass(frozen=True)
class RandomNormal(_Random):
    """Numbers of a normal distribution, of the mean ``mean`` and the standard deviation ``scale``.

    Shape: -> dtype [*shape].
    Errors: TypeCheckError for a negative dimension, or a dtype that is no float.
    Source: ONNX RandomNormal-22; Box and Muller, "A note on the generation of random normal
        deviates", of two random numbers of the element's place.
    """

    name = "random_normal"

    mean: float = 0.0
    scale: float = 1.0

    def compute(self) -> te.Tensor:
        inner = wide(self.dtype)
        digits = _DIGITS[inner]
        step = n.const(2.0**-digits, inner)

        def draw(k: int) -> te.Tensor:
            return te.compute(
                self.shape,
                lambda *i: _fraction(_bits(self.seed, self.place(i) * 2 + k), digits, inner),
                f"draw{k}",
            )

        first, second = draw(0), draw(1)

        def element(*i: Expr) -> Expr:
            # Of (0, 1], so that the logarithm is finite.
            radius = call("sqrt", n.const(-2.0, inner) * call("log", first[i] + step))
            z = radius * call("cos", n.const(math.tau, inner) * second[i])
            return n.cast(n.const(self.mean, inner) + n.const(self.scale, inner) * z, self.dtype)

        return te.compute(self.shape, element, self.name)

    def reference(self) -> Array:
        inner = wide(self.dtype)
        t, digits = inner.numpy.type, _DIGITS[inner]
        first, second = (
            _fraction_array(_bits_array(self.seed, self.places() * 2 + k), digits).astype(t)
            for k in (0, 1)
        )
        radius = np.sqrt(t(-2) * np.log(first + t(2.0**-digits)))
        z = radius * np.cos(t(math.tau) * second)
        return np.asarray(t(self.mean) + t(self.scale) * z).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(3, 5)), []
        yield cls(sizes(40), F64, 7, -2.0, 5.0), []
        yield cls(sizes(2, 3), F16, 1, 0.5, 0.25), []
        yield cls(sizes(2, 3), BF16, 3), []
        yield cls(sizes()), []
        yield cls(sizes(2, 0)), []


__all__ = ["RandomNormal", "RandomUniform"]
