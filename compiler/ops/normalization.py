"""Normalisations: tensors brought to mean 0 and variance 1, or to norm 1, then scaled.

Each is one operator of several stages (mean, variance, result), so that it becomes one kernel.
Moments of f16 and bf16 are computed in f32, the variance from the deviations, not from squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BF16, F32, F64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop import te

from .base import Op, broadcast_indices
from .elementwise import broadcasts_to, call, wide, widen
from .reduction import count, reduce_over
from .sampling import f32
from .softmax import at_zero

Index = tuple[Expr, ...]


def check_float(op: Op, *types: TensorType | None) -> None:
    """Errors: TypeCheckError if one of the types is no float."""
    for t in types:
        if t is not None and not t.dtype.is_float:
            raise op.fail(f"is not defined for {t.dtype}")


def mean_of(
    shape: Sequence[Expr], axes: tuple[int, ...], element: Callable[..., Expr], name: str
) -> te.Tensor:
    """The mean over the axes, which stay as extents of 1."""
    total = reduce_over("sum", axes, tuple(shape), element, name=f"{name}_sum")
    size = count(shape, axes, total.dtype)
    return te.compute(total.shape, lambda *i: total[i] / size, name)


def moments(
    x: te.Tensor, axes: tuple[int, ...], inner: DType
) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Mean, deviation from it and variance over the axes."""
    mean = mean_of(x.shape, axes, lambda *i: n.cast(x[i], inner), "mean")
    deviation = te.compute(
        x.shape, lambda *i: n.cast(x[i], inner) - mean[at_zero(i, axes)], "deviation"
    )
    variance = mean_of(x.shape, axes, lambda *i: deviation[i] * deviation[i], "variance")
    return mean, deviation, variance


def inverse(variance: te.Tensor, epsilon: float) -> te.Tensor:
    """1 / sqrt(variance + epsilon)."""
    return te.compute(variance.shape, lambda *i: call("rsqrt", variance[i] + epsilon), "inverse")


def scaled(y: Expr, scale: te.Tensor | None, bias: te.Tensor | None, i: Index) -> Expr:
    """y * scale + bias, where these broadcast to the index."""
    if scale is not None:
        y = y * n.cast(scale[broadcast_indices(i, scale.shape)], y.dtype)
    if bias is not None:
        y = y + n.cast(bias[broadcast_indices(i, bias.shape)], y.dtype)
    return y


@dataclass(frozen=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from ``axis`` on.

    With ``statistics``, the mean and 1 / sqrt(variance + epsilon) are outputs too, in ``stash``.

    Shape: x [...], scale and bias that broadcast to it or none -> x's
        (and twice x's with 1 from ``axis`` on).
    Errors: TypeCheckError if the axis is out of range or scale or bias do not broadcast.
    Source: ONNX LayerNormalization-17; Ba et al., "Layer Normalization".
    """

    name = "layer_norm"

    axis: int = -1
    epsilon: float = 1e-5
    statistics: bool = False
    stash: DType = F32  # the dtype of the statistics, and the least that they are computed in

    def over(self, rank: int) -> tuple[int, ...]:
        return tuple(range(self.resolve_axis(self.axis, rank), rank))

    def inner(self, dtype: DType) -> DType:
        return F64 if F64 in (dtype, self.stash) else F32

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType | tuple[TensorType, ...]:
        check_float(self, x, scale, bias)
        axes = self.over(x.rank)
        for what, t in (("scale", scale), ("bias", bias)):
            if t is not None:
                _check_fits(self, what, t, x)
        if not self.statistics:
            return x
        kept = x.with_dtype(self.stash).with_shape(
            1 if k in axes else d for k, d in enumerate(x.shape)
        )
        return x, kept, kept

    def compute(
        self, x: te.Tensor, scale: te.Tensor | None = None, bias: te.Tensor | None = None
    ) -> te.Tensor | tuple[te.Tensor, ...]:
        axes = self.over(x.rank)
        mean, deviation, variance = moments(x, axes, self.inner(x.dtype))
        spread = inverse(variance, self.epsilon)

        def element(*i: Expr) -> Expr:
            return n.cast(scaled(deviation[i] * spread[at_zero(i, axes)], scale, bias, i), x.dtype)

        y = te.compute(x.shape, element, self.name)
        if not self.statistics:
            return y
        return y, _as(mean, self.stash), _as(spread, self.stash)

    def reference(
        self, x: Array, scale: Array | None = None, bias: Array | None = None
    ) -> Array | tuple[Array, ...]:
        axes = self.over(x.ndim)
        w = x.astype(np.float64)
        mean = w.mean(axis=axes, keepdims=True)
        inverse = 1 / np.sqrt(w.var(axis=axes, keepdims=True) + self.epsilon)
        y = (w - mean) * inverse
        y = y if scale is None else y * scale.astype(np.float64)
        y = np.asarray(y if bias is None else y + bias.astype(np.float64)).astype(x.dtype)
        if not self.statistics:
            return y
        return y, mean.astype(self.stash.numpy), inverse.astype(self.stash.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 8), f32(8), f32(8, low=0.0)]
        yield cls(), [f32(3, 8), None, None]
        yield cls(1, 1e-2, True), [f32(2, 3, 4), f32(3, 4), None]
        yield cls(0), [f32(2, 3), f32(3), f32(2, 1)]
        yield cls(-1, 1e-5, True, F64), [f32(2, 6), f32(6), f32(6, seed=1)]
        for dtype in (np.float16, BF16.numpy):
            arrays = f32(4, 32), f32(32), f32(32, seed=1)
            yield cls(statistics=True), [a.astype(dtype) for a in arrays]
        yield cls(), [f32(2, 5).astype(np.float64), f32(5).astype(np.float64), None]
        yield cls(), [f32(2, 7, low=4.0, high=5.0), None, None]
        yield cls(), [np.array([[1, np.nan, 2], [1, 2, np.inf], [3, 3, 3]], "f4"), None, None]
        yield cls(), [f32(0, 4), f32(4), None]


def _as(x: te.Tensor, dtype: DType) -> te.Tensor:
    if x.dtype is dtype:
        return x
    return te.compute(x.shape, lambda *i: n.cast(x[i], dtype), x.name.rpartition("_")[0])


def _check_fits(op: Op, what: str, t: TensorType, x: TensorType) -> None:
    """Errors: TypeCheckError if ``t`` does not broadcast to ``x``."""
    if not broadcasts_to(t.shape, x.shape):
        raise op.fail(f"{what} {t} does not broadcast to {x}")
    for d, e in zip(t.shape, x.shape[x.rank - t.rank :], strict=True):
        if not (isinstance(d, Const) and d.value == 1):
            unify(d, e, f"{what} {t} does not broadcast to {x}")


@dataclass(frozen=True)
class RMSNorm(Op):
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from ``axis`` on.

    Shape: x [...], scale that broadcasts to it or none -> x's, of scale's dtype.
    Errors: TypeCheckError if the axis is out of range or the scale does not broadcast.
    Source: ONNX RMSNormalization-23; Zhang and Sennrich, "Root Mean Square Layer Normalization".
    """

    name = "rms_norm"

    axis: int = -1
    epsilon: float = 1e-5
    stash: DType = F32  # the least dtype to compute in

    def infer(self, x: TensorType, scale: TensorType | None = None) -> TensorType:
        check_float(self, x, scale)
        self.resolve_axis(self.axis, x.rank)
        if scale is None:
            return x
        _check_fits(self, "scale", scale, x)
        return x.with_dtype(scale.dtype)

    def compute(self, x: te.Tensor, scale: te.Tensor | None = None) -> te.Tensor:
        axes = tuple(range(self.resolve_axis(self.axis, x.rank), x.rank))
        inner = F64 if F64 in (x.dtype, self.stash) else F32
        square = mean_of(
            x.shape, axes, lambda *i: n.cast(x[i], inner) * n.cast(x[i], inner), "square"
        )
        spread = inverse(square, self.epsilon)

        def element(*i: Expr) -> Expr:
            y = scaled(n.cast(x[i], inner) * spread[at_zero(i, axes)], scale, None, i)
            return n.cast(y, x.dtype if scale is None else scale.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array | None = None) -> Array:
        axes = tuple(range(self.resolve_axis(self.axis, x.ndim), x.ndim))
        w = x.astype(np.float64)
        y = w / np.sqrt((w * w).mean(axis=axes, keepdims=True) + self.epsilon)
        if scale is None:
            return np.asarray(y).astype(x.dtype)
        return np.asarray(y * scale.astype(np.float64)).astype(scale.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 8), f32(8)]
        yield cls(1, 1e-2), [f32(2, 3, 4), f32(3, 4)]
        yield cls(0), [f32(2, 3), None]
        yield cls(), [f32(4, 32).astype(np.float16), f32(32)]
        yield cls(), [f32(4, 32).astype(BF16.numpy), f32(32).astype(BF16.numpy)]
        yield cls(stash=F64), [f32(2, 5), f32(5)]
        yield cls(), [np.array([[1, np.nan, 2], [1, 2, np.inf], [0, 0, 0]], "f4"), None]


@dataclass(frozen=True)
class LpNormalization(Op):
    """x over its norm along ``axis``: the sum of |x|, or with ``p`` 2 the root of that of squares.

    Where the norm is 0, so is the result.

    Shape: x [...] float -> the same.
    Errors: TypeCheckError if the axis is out of range or p is neither 1 nor 2.
    Source: ONNX LpNormalization-22.
    """

    name = "lp_normalization"

    axis: int = -1
    p: int = 2

    def infer(self, x: TensorType) -> TensorType:
        check_float(self, x)
        self.resolve_axis(self.axis, x.rank)
        if self.p not in (1, 2):
            raise self.fail(f"p is {self.p}, not 1 or 2")
        return x

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = (self.resolve_axis(self.axis, x.rank),)

        def term(*i: Expr) -> Expr:
            value = widen(x[i])
            return call("abs", value) if self.p == 1 else value * value

        total = reduce_over("sum", axes, x.shape, term, name="total")
        norm = total
        if self.p == 2:
            norm = te.compute(total.shape, lambda *i: call("sqrt", total[i]), "norm")

        def element(*i: Expr) -> Expr:
            size = norm[at_zero(i, axes)]
            return n.cast(n.select(n.eq(size, 0), 0.0, widen(x[i]) / size), x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        w = x.astype(np.float64)
        norm = np.linalg.norm(w, ord=self.p, axis=self.axis, keepdims=True)
        return np.where(norm == 0, 0, w / norm).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        rows = np.array([[0, 0, 0], [1, np.nan, 2], [3, 0, -4]], "f4")
        for p in (1, 2):
            yield cls(p=p), [f32(3, 8)]
            yield cls(1, p), [f32(2, 3, 4)]
            yield cls(0, p), [f32(4, 32).astype(np.float16)]
            yield cls(-1, p), [rows]


@dataclass(frozen=True)
class MeanVarianceNormalization(Op):
    """(x - mean) / (sqrt(variance) + 1e-9) over ``axes``.

    Shape: x [...] float -> the same.
    Errors: TypeCheckError if an axis is out of range.
    Source: ONNX MeanVarianceNormalization-13.
    """

    name = "mean_variance_normalization"

    axes: tuple[int, ...] = (0, 2, 3)

    def over(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted({self.resolve_axis(k, rank) for k in self.axes}))

    def infer(self, x: TensorType) -> TensorType:
        check_float(self, x)
        if len(self.over(x.rank)) != len(self.axes):
            raise self.fail(f"axes {self.axes} name one twice")
        return x

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        _, deviation, variance = moments(x, axes, wide(x.dtype))
        spread = te.compute(variance.shape, lambda *i: call("sqrt", variance[i]) + 1e-9, "spread")
        return te.compute(
            x.shape, lambda *i: n.cast(deviation[i] / spread[at_zero(i, axes)], x.dtype), self.name
        )

    def reference(self, x: Array) -> Array:
        w, axes = x.astype(np.float64), self.over(x.ndim)
        spread = w.std(axis=axes, keepdims=True) + 1e-9
        return np.asarray((w - w.mean(axis=axes, keepdims=True)) / spread).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(2, 3, 4, 5)]
        yield cls((1, -1)), [f32(2, 3, 4)]
        yield cls((0,)), [f32(8, 3).astype(np.float16)]
        yield cls((1,)), [np.array([[1, np.nan, 2], [1, 2, np.inf]], "f4")]
