"""Operators on signals: Fourier transforms of any length, frames, windows, mel filters.

A complex number is a pair along the last axis. Angles are computed in f64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F16, F32, F64, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import numbers
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices
from .elementwise import call, wide, widened
from .sampling import f32
from .shape import sizes

_FAR = 2.0**40  # a place beyond which nothing is told apart


def _at_least(op: Op, value: Expr, least: int, what: str) -> None:
    fits = n.le(as_expr(least), value)
    if isinstance(fits, Const) and not fits.value:
        raise op.fail(f"{what} is {value}, less than {least}")
    assume(fits)


@dataclass(frozen=True)
class Dft(Op):
    """The discrete Fourier transform of ``length`` along ``axis``: a sum for each element.

    The signal is cut, or padded by zeros. With ``onesided`` only frequencies up to length // 2 are
    given; if ``inverse`` is set too, only these are taken, and the result is real. The inverse
    divides by the length.

    Shape: x [..., n, ..., 1 or 2] -> [..., length, ..., 2]; length // 2 + 1 if onesided,
        [..., length, ..., 1] if onesided and inverse.
    Errors: TypeCheckError if x is not float, its last axis is no real or complex number, or the
        length is 0.
    Source: ONNX DFT-20.
    """

    name = "dft"

    length: Expr
    axis: int
    inverse: bool = False
    onesided: bool = False

    @property
    def real(self) -> bool:
        """Whether the result is real."""
        return self.inverse and self.onesided

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_float:
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank < 2:
            raise self.fail(f"{x} has no axis of the parts of numbers")
        self.check_parts(x.shape[-1])
        axis = self.resolve_axis(self.axis, x.rank)
        if axis == x.rank - 1:
            raise self.fail("the last axis holds the parts of numbers")
        _at_least(self, self.length, 1, "the length")
        shape = list(x.shape)
        half = n.floordiv(self.length, 2) + 1
        shape[axis] = half if self.onesided and not self.inverse else self.length
        shape[-1] = as_expr(1 if self.real else 2)
        return x.with_shape(shape)

    def check_parts(self, parts: Expr) -> None:
        """The signal is real, or complex, or must be either."""
        if self.onesided:
            wanted, what = (2, "complex") if self.inverse else (1, "real")
            fits, message = n.eq(parts, wanted), f"is not {what}"
        else:
            fits, message = n.all_of(n.le(1, parts), n.le(parts, 2)), "is neither real nor complex"
        if isinstance(fits, Const) and not fits.value:
            raise self.fail(f"a signal of numbers of {parts} parts {message}")
        assume(fits)

    def compute(self, x: te.Tensor) -> te.Tensor:
        out = self.infer(TensorType(x.dtype, x.shape)).shape
        inner = wide(x.dtype)
        size, axis = self.length, self.axis % x.rank
        count = n.floordiv(size, 2) + 1 if self.real else size
        sign = 1.0 if self.inverse else -1.0

        def turn(p: Expr, q: Expr, t: Expr) -> Expr:
            """The part ``p`` of the result for the part ``q`` of the signal, at angle t / size."""
            angle = n.const(math.tau, F64) * n.cast(t, F64) / n.cast(size, F64)
            sine = call("sin", angle) * n.const(sign, F64)
            turned = n.select(n.lt(p, q), n.neg(sine), sine)
            return n.cast(n.select(n.eq(p, q), call("cos", angle), turned), inner)

        table = te.compute((2, x.shape[-1], size), turn, "turns")
        source = te.compute(x.shape, lambda *i: self._weighted(x, i, inner), "signal")

        def element(*i: Expr) -> Expr:
            *at, j, q = i
            t = n.floormod(j * at[axis], size)
            return source[(*at[:axis], j, *at[axis + 1 : -1], q)] * table[(at[-1], q, t)]

        over = (n.minimum(x.shape[axis], count), x.shape[-1])
        total = te.reduce("sum", out, over, element, self.name)
        if not self.inverse:
            return te.compute(out, lambda *i: n.cast(total[i], x.dtype), "spectrum")
        by = n.cast(size, inner)
        return te.compute(out, lambda *i: n.cast(total[i] / by, x.dtype), "spectrum")

    def _weighted(self, x: te.Tensor, i: tuple[Expr, ...], inner: DType) -> Expr:
        """An element of the signal; those that stand for two frequencies, twice."""
        value = n.cast(x[i], inner)
        if not self.real:
            return value
        k = i[self.axis % x.rank]
        single = n.any_of(n.eq(k, 0), n.eq(k * 2, self.length))
        return value * n.select(single, n.const(1.0, inner), n.const(2.0, inner))

    def reference(self, x: Array) -> Array:
        (size,) = numbers((self.length,))
        axis = self.axis % x.ndim
        w = x.astype(np.float64)
        if not np.isfinite(w).all():
            return self._sums(w, size, axis).astype(x.dtype)
        signal = w[..., 0] + (1j * w[..., 1] if x.shape[-1] == 2 else 0)
        if self.real:
            return np.asarray(np.fft.irfft(signal, size, axis)[..., None]).astype(x.dtype)
        y = (np.fft.ifft if self.inverse else np.fft.fft)(signal, size, axis)
        if self.onesided:
            y = np.take(y, np.arange(size // 2 + 1), axis)
        return np.stack([y.real, y.imag], -1).astype(x.dtype)

    def _sums(self, w: Array, size: int, axis: int) -> Array:
        """The reference as the sums that it is: other ways make less of NaN and infinities."""
        w = np.moveaxis(w, axis, 0)[: size // 2 + 1 if self.real else size]
        j, k = np.arange(len(w)), np.arange(size)
        if self.onesided and not self.inverse:
            k = k[: size // 2 + 1]
        if self.real:
            w = w * np.where((j == 0) | (2 * j == size), 1, 2).reshape(-1, *[1] * (w.ndim - 1))
        angle = math.tau * (k[:, None] * j % size) / size
        cosine, sine = np.cos(angle), np.sin(angle) * (1 if self.inverse else -1)

        def total(part: Array, by: Array) -> Array:
            terms = part * by.reshape(*by.shape, *[1] * (part.ndim - 1))
            return np.asarray(terms.sum(axis=1))

        with np.errstate(invalid="ignore"):
            y = [total(w[..., 0], cosine), total(w[..., 0], sine)]
            if w.shape[-1] == 2:
                y = [y[0] - total(w[..., 1], sine), y[1] + total(w[..., 1], cosine)]
        parts = np.stack(y[:1] if self.real else y, -1) / (size if self.inverse else 1)
        return np.moveaxis(parts, 0, axis)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        eight, five, seven = sizes(8, 5, 7)
        gone = f32(3, 8, 1)
        gone[1, 2], gone[2, 0] = np.nan, np.inf
        yield cls(eight, 1), [gone]
        yield cls(eight, 1, True, True), [np.concatenate([gone[:2, :5], gone[:2, 3:]], -1)]
        yield cls(eight, 1), [f32(2, 8, 1)]
        yield cls(five, 0), [f32(5, 3, 2)]
        yield cls(seven, 1, True), [f32(2, 5, 2)]
        yield cls(five, -2, False, True), [f32(2, 7, 1).astype(np.float64)]
        yield cls(eight, 1, True, True), [f32(2, 5, 2)]
        yield cls(seven, 0, True, True), [f32(4, 2)]
        yield cls(eight, 1), [f32(2, 8, 1).astype(np.float16)]


@dataclass(frozen=True)
class ComplexMul(Op):
    """The products of complex numbers.

    Shape: x [..., 2], y [..., 2] -> their broadcast.
    Errors: TypeCheckError if they do not broadcast, or are not complex.
    Source: numpy.multiply.
    """

    name = "complex_mul"

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if x.dtype is not y.dtype or not x.dtype.is_float:
            raise self.fail(f"operands are {x.dtype} and {y.dtype}")
        for t in (x, y):
            if t.rank == 0 or not isinstance(t.shape[-1], Const) or t.shape[-1].value != 2:
                raise self.fail(f"{t} is not complex")
        return x.with_shape(broadcast(x.shape, y.shape))

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        shape = broadcast(x.shape, y.shape)
        inner = wide(x.dtype)

        def element(*i: Expr) -> Expr:
            def part(t: te.Tensor, k: int) -> Expr:
                return n.cast(t[(*broadcast_indices(i, t.shape)[:-1], as_expr(k))], inner)

            real = part(x, 0) * part(y, 0) - part(x, 1) * part(y, 1)
            imaginary = part(x, 0) * part(y, 1) + part(x, 1) * part(y, 0)
            return n.cast(n.select(n.eq(i[-1], 0), real, imaginary), x.dtype)

        return te.compute(shape, element, self.name)

    def reference(self, x: Array, y: Array) -> Array:
        a, b = (widened(t)[..., 0] + 1j * widened(t)[..., 1] for t in (x, y))
        return np.stack([(a * b).real, (a * b).imag], -1).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 2), f32(3, 2, low=-1.0)]
        yield cls(), [f32(2, 3, 2), f32(3, 2)]
        yield cls(), [f32(3, 2).astype(np.float16), f32(1, 2).astype(np.float16)]


@dataclass(frozen=True)
class Frames(Op):
    """Pieces of ``length`` of a signal, one at every ``step``, as many as fit.

    Shape: x [b, n, c] -> [b, (n - length) // step + 1, length, c].
    Errors: TypeCheckError if nothing fits, or the step is 0.
    Source: ONNX STFT-17.
    """

    name = "frames"

    step: Expr
    length: Expr

    def infer(self, x: TensorType) -> TensorType:
        if x.rank != 3:
            raise self.fail(f"the signal is {x}, not [batch, length, parts]")
        _at_least(self, self.step, 1, "the step")
        fits = n.le(self.length, x.shape[1])
        if isinstance(fits, Const) and not fits.value:
            raise self.fail(f"frames of {self.length} in a signal of {x.shape[1]}")
        assume(fits)
        batch, size, parts = x.shape
        count = n.floordiv(size - self.length, self.step) + 1
        return x.with_shape((batch, count, self.length, parts))

    def compute(self, x: te.Tensor) -> te.Tensor:
        shape = self.infer(TensorType(x.dtype, x.shape)).shape
        return te.compute(shape, lambda b, f, t, c: x[b, f * self.step + t, c], self.name)

    def reference(self, x: Array) -> Array:
        step, length = numbers((self.step, self.length))
        windows = np.lib.stride_tricks.sliding_window_view(x, length, 1)[:, ::step]
        return np.ascontiguousarray(np.swapaxes(windows, 2, 3))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(*sizes(2, 4)), [f32(2, 9, 1)]
        yield cls(*sizes(3, 3)), [f32(1, 9, 2)]
        yield cls(*sizes(5, 9)), [f32(1, 9, 1)]


@dataclass(frozen=True)
class CosineWindow(Op):
    """a[0] - a[1] cos(2 pi k / m) + a[2] cos(4 pi k / m) for k < size.

    m is ``size``, or size - 1 if not ``periodic``.

    Shape: -> dtype [size].
    Errors: TypeCheckError for a negative size, or a dtype that is no number.
    Source: ONNX HannWindow-17, HammingWindow-17, BlackmanWindow-17.
    """

    name = "cosine_window"

    size: Expr
    weights: tuple[float, float, float]
    periodic: bool = True
    dtype: DType = F32

    def infer(self) -> TensorType:
        if isinstance(self.size, Const) and self.size.value < 0:
            raise self.fail(f"the size is {self.size}")
        if self.dtype.kind not in "fiu":
            raise self.fail(f"is not defined for {self.dtype}")
        return TensorType(self.dtype, (self.size,))

    def compute(self) -> te.Tensor:
        turns = self.size if self.periodic else n.maximum(self.size - 1, 1)
        first, second, third = (n.const(w, F64) for w in self.weights)

        def element(k: Expr) -> Expr:
            angle = n.const(math.tau, F64) * n.cast(k, F64) / n.cast(turns, F64)
            value = first - second * call("cos", angle)
            if self.weights[2]:
                value = value + third * call("cos", angle + angle)
            return n.cast(value, self.dtype)

        return te.compute((self.size,), element, self.name)

    def reference(self) -> Array:
        (size,) = numbers((self.size,))
        angle = 2 * np.pi * np.arange(size) / max(size - (not self.periodic), 1)
        a, b, c = self.weights
        return np.asarray(a - b * np.cos(angle) + c * np.cos(2 * angle)).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        (ten,) = sizes(10)
        yield cls(ten, (0.5, 0.5, 0.0)), []
        yield cls(ten, (0.42, 0.5, 0.08), False), []
        yield cls(as_expr(1), (0.5, 0.5, 0.0), False, F64), []
        yield cls(as_expr(0), (0.5, 0.5, 0.0), True, F16), []


@dataclass(frozen=True)
class MelWeights(Op):
    """Triangles over frequencies, evenly spaced on the mel scale 2595 log10(1 + f / 700).

    Shape: sample rate i32 or i64 [], lower and upper edge in Hz float []
        -> dtype [length // 2 + 1, bands].
    Errors: TypeCheckError if an input is no scalar.
    Source: ONNX MelWeightMatrix-17.
    """

    name = "mel_weights"

    bands: Expr
    length: Expr  # of the Fourier transform
    dtype: DType = F32

    def infer(self, rate: TensorType, lower: TensorType, upper: TensorType) -> TensorType:
        for t in (rate, lower, upper):
            if t.rank:
                raise self.fail(f"takes single numbers, not {t}")
        if not rate.dtype.is_int or not lower.dtype.is_float or upper.dtype is not lower.dtype:
            raise self.fail(f"is not defined for {rate}, {lower} and {upper}")
        if self.dtype.kind not in "fiu":
            raise self.fail(f"is not defined for {self.dtype}")
        return TensorType(self.dtype, (n.floordiv(self.length, 2) + 1, self.bands))

    def compute(self, rate: te.Tensor, lower: te.Tensor, upper: te.Tensor) -> te.Tensor:
        scale, tenth = n.const(700.0, F64), n.const(2595.0 / math.log(10), F64)

        def mel(hertz: te.Tensor) -> Expr:
            return tenth * call("log1p", n.cast(hertz[()], F64) / scale)

        first = te.compute((), lambda: mel(lower), "first")
        step = te.compute(
            (), lambda: (mel(upper) - mel(lower)) / n.cast(self.bands + 2, F64), "step"
        )

        def edge(k: Expr) -> Expr:
            at = first[()] + n.cast(k, F64) * step[()]
            hertz = scale * call("expm1", at / tenth)
            place = call("floor", n.cast(self.length + 1, F64) * hertz / n.cast(rate[()], F64))
            far = n.const(_FAR, F64)  # what lies beyond is nowhere, and so is NaN
            return n.cast(call("min_second", call("max_second", place, n.neg(far)), far), I64)

        edges = te.compute((self.bands + 2,), edge, "edges")

        def element(j: Expr, band: Expr) -> Expr:
            left, centre, right = (edges[band + k] for k in range(3))

            def share(a: Expr, b: Expr) -> Expr:
                return n.cast(a, F64) / n.cast(n.maximum(b, 1), F64)

            one, zero = n.const(1.0, F64), n.const(0.0, F64)
            rising = n.select(n.eq(left, centre), one, share(j - left, centre - left))
            rises = n.all_of(n.le(left, j), n.le(j, centre))
            falls = n.all_of(n.le(centre, j), n.lt(j, right))
            falling = share(right - j, right - centre)
            return n.cast(n.select(falls, falling, n.select(rises, rising, zero)), self.dtype)

        return te.compute((n.floordiv(self.length, 2) + 1, self.bands), element, self.name)

    def reference(self, rate: Array, lower: Array, upper: Array) -> Array:
        bands, length = numbers((self.bands, self.length))
        low, high = (2595 * np.log10(1 + float(f) / 700) for f in (lower, upper))
        mels = low + np.arange(bands + 2) * (high - low) / (bands + 2)
        with np.errstate(all="ignore"):
            places = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / float(rate))
        edges = np.nan_to_num(places, nan=-_FAR).clip(-_FAR, _FAR).astype(np.int64)
        out = np.zeros((length // 2 + 1, bands))
        for band in range(bands):
            left, centre, right = edges[band : band + 3]
            for j in range(len(out)):
                if left <= j <= centre:
                    out[j, band] = 1 if left == centre else (j - left) / (centre - left)
                elif centre < j < right:
                    out[j, band] = (right - j) / (right - centre)
        return out.astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        rate, low, high = np.array(8192), np.array(0.0, "float32"), np.array(4096.0, "float32")
        yield cls(as_expr(8), as_expr(16)), [rate, low, high]
        yield cls(as_expr(5), as_expr(64), F64), [rate.astype("int32"), low + 100, high]
        yield cls(as_expr(3), as_expr(8)), [np.array(0), low, high]


__all__ = ["ComplexMul", "CosineWindow", "Dft", "Frames", "MelWeights"]
