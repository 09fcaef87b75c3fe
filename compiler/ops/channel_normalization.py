"""Normalisations by channel: batch, instance and group normalisation, local response."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import BF16, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume, unify
from planish.compiler.loop import te

from .base import Op
from .elementwise import call, wide
from .normalization import check_float, inverse, mean_of, moments
from .sampling import f32, special
from .softmax import at_zero
from .windows import check_most


@dataclass(frozen=True)
class BatchNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias by channel, of given statistics.

    The channel is axis 1, or the last with ``channels_last``; a vector has one. Without ``spatial``
    every element but for the batch has parameters of its own.

    Shape: x [n, c, ...], scale, bias, mean and variance [c] -> x's.
    Errors: TypeCheckError if the parameters do not have the channels' extent.
    Source: ONNX BatchNormalization-15 in inference; Ioffe and Szegedy, "Batch Normalization".
    """

    name = "batch_norm"

    epsilon: float = 1e-5
    spatial: bool = True
    channels_last: bool = False

    def parameters(self, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The shape of each parameter."""
        if not self.spatial:
            return shape[1:]
        return (shape[-1 if self.channels_last else 1],) if len(shape) > 1 else (as_expr(1),)

    def place(self, i: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where in the parameters those of the element at ``i`` are."""
        if self.spatial and len(i) == 1:
            return (as_expr(0),)
        return self.parameters(i)

    def infer(
        self,
        x: TensorType,
        scale: TensorType,
        bias: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> TensorType:
        check_float(self, x, scale, bias, mean, variance)
        if x.rank == 0:
            raise self.fail("a scalar has no channels")
        wanted = self.parameters(x.shape)
        for what, t in (("scale", scale), ("bias", bias), ("mean", mean), ("variance", variance)):
            if t.rank != len(wanted):
                raise self.fail(f"{what} {t} has not the shape of the channels of {x}")
            for a, b in zip(t.shape, wanted, strict=True):
                unify(a, b, f"{what} {t} has not the extent of the channels of {x}")
        return x

    def compute(
        self, x: te.Tensor, scale: te.Tensor, bias: te.Tensor, mean: te.Tensor, variance: te.Tensor
    ) -> te.Tensor:
        inner = wide(x.dtype)

        def slope(*c: Expr) -> Expr:
            inverse = call("rsqrt", n.cast(variance[c], inner) + self.epsilon)
            return n.cast(scale[c], inner) * inverse

        factor = te.compute(scale.shape, slope, "factor")

        def element(*i: Expr) -> Expr:
            c = self.place(i)
            deviation = n.cast(x[i], inner) - n.cast(mean[c], inner)
            return n.cast(deviation * factor[c] + n.cast(bias[c], inner), x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
        if self.spatial and x.ndim > 1:
            shape = [1] * x.ndim
            shape[-1 if self.channels_last else 1] = -1
            scale, bias, mean, variance = (v.reshape(shape) for v in (scale, bias, mean, variance))
        s, b, m, v = (p.astype(np.float64) for p in (scale, bias, mean, variance))
        y = (x.astype(np.float64) - m) / np.sqrt(v + self.epsilon) * s + b
        return np.asarray(y).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        def given(*shape: int) -> list[Array]:
            size = int(np.prod(shape))
            low = (-1.0, -2.0, -0.5, 0.1)
            return [f32(size, low=v, high=2.0).reshape(shape) for v in low]

        yield cls(), [f32(2, 3, 4, 5), *given(3)]
        yield cls(1e-2), [f32(4, 3), *given(3)]
        yield cls(), [f32(5), *given(1)]
        yield cls(spatial=False), [f32(2, 3, 4), *given(3, 4)]
        yield cls(channels_last=True), [f32(2, 4, 5, 3), *given(3)]
        yield cls(), [f32(2, 3, 4).astype(np.float16), *given(3)]
        yield cls(), [f32(2, 3, 4).astype(np.float64), *(g.astype("f8") for g in given(3))]
        yield cls(), [special()[None, None, :] * np.ones((1, 2, 1), "f4"), *given(2)]


def _check_channels(op: Op, x: TensorType, **parameters: TensorType) -> None:
    """Errors: TypeCheckError if x has no channels or the parameters are not one for each."""
    if x.rank < 2:
        raise op.fail(f"{x} has no channels: at least [n, c] is needed")
    for what, t in parameters.items():
        if t.rank != 1:
            raise op.fail(f"{what} {t} has not the shape of the channels of {x}")
        unify(t.shape[0], x.shape[1], f"{what} {t} has not the extent of the channels of {x}")


@dataclass(frozen=True)
class InstanceNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes behind the channels.

    Shape: x [n, c, ...], scale [c], bias [c] -> x's.
    Errors: TypeCheckError if the parameters do not have the channels' extent.
    Source: ONNX InstanceNormalization-22; Ulyanov et al., "Instance Normalization".
    """

    name = "instance_norm"

    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_float(self, x, scale, bias)
        _check_channels(self, x, scale=scale, bias=bias)
        return x

    def compute(self, x: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> te.Tensor:
        axes, inner = tuple(range(2, x.rank)), wide(x.dtype)
        _, deviation, variance = moments(x, axes, inner)
        spread = inverse(variance, self.epsilon)

        def element(*i: Expr) -> Expr:
            y = deviation[i] * spread[at_zero(i, axes)] * n.cast(scale[i[1]], inner)
            return n.cast(y + n.cast(bias[i[1]], inner), x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        w, axes = x.astype(np.float64), tuple(range(2, x.ndim))
        shape = (-1, *[1] * (x.ndim - 2))
        y = w - w.mean(axis=axes, keepdims=True)
        y = y / np.sqrt(w.var(axis=axes, keepdims=True) + self.epsilon)
        return np.asarray(y * scale.reshape(shape) + bias.reshape(shape)).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(2, 3, 4, 5), f32(3), f32(3, low=0.0)]
        yield cls(1e-2), [f32(2, 3, 7), f32(3), f32(3, seed=1)]
        half = np.float16
        yield cls(), [f32(2, 3, 40).astype(half), f32(3).astype(half), f32(3, seed=1).astype(half)]
        yield cls(), [np.array([[[1, np.nan], [1, 3]]], "f4"), f32(2), f32(2, seed=1)]


@dataclass(frozen=True)
class GroupNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over groups of channels.

    Shape: x [n, c, ...], scale [c], bias [c] -> x's; with ``by_group``, scale and bias [groups].
    Errors: TypeCheckError if the groups do not divide the channels or parameters do not fit.
    Source: ONNX GroupNormalization-21 (18: by_group); Wu and He, "Group Normalization".
    """

    name = "group_norm"

    groups: int = 1
    epsilon: float = 1e-5
    by_group: bool = False

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_float(self, x, scale, bias)
        if self.groups < 1:
            raise self.fail(f"there are {self.groups} groups")
        _check_channels(self, x)
        channels = x.shape[1]
        if isinstance(channels, Const) and int(channels.value) % self.groups:
            raise self.fail(f"{self.groups} groups do not divide the channels of {x}")
        assume(n.eq(n.floormod(channels, self.groups), 0))
        wanted = as_expr(self.groups) if self.by_group else channels
        for what, t in (("scale", scale), ("bias", bias)):
            if t.rank != 1:
                raise self.fail(f"{what} {t} is no vector")
            unify(t.shape[0], wanted, f"{what} {t} has not the extent {wanted}")
        return x

    def compute(self, x: te.Tensor, scale: te.Tensor, bias: te.Tensor) -> te.Tensor:
        inner = wide(x.dtype)
        each = n.floordiv(x.shape[1], self.groups)
        # Moments are over the channels as two axes, [groups, each], without the first.
        shape = (x.shape[0], as_expr(self.groups), each, *x.shape[2:])
        axes = tuple(range(2, len(shape)))
        zeros = (Const(0, I64),) * (x.rank - 1)

        def joined(*i: Expr) -> tuple[Expr, ...]:
            return (i[0], i[1] * each + i[2], *i[3:])

        def group(*i: Expr) -> tuple[Expr, ...]:
            return (i[0], n.floordiv(i[1], each), *zeros)

        mean = mean_of(shape, axes, lambda *i: n.cast(x[joined(*i)], inner), "mean")
        deviation = te.compute(
            x.shape, lambda *i: n.cast(x[i], inner) - mean[group(*i)], "deviation"
        )
        variance = mean_of(
            shape, axes, lambda *i: deviation[joined(*i)] * deviation[joined(*i)], "variance"
        )
        spread = inverse(variance, self.epsilon)

        def element(*i: Expr) -> Expr:
            c = group(*i)[1] if self.by_group else i[1]
            y = deviation[i] * spread[group(*i)] * n.cast(scale[c], inner)
            return n.cast(y + n.cast(bias[c], inner), x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, scale: Array, bias: Array) -> Array:
        size = math.prod(x.shape[1:]) // self.groups
        w = x.astype(np.float64).reshape(x.shape[0], self.groups, size)
        y = (w - w.mean(axis=2, keepdims=True)) / np.sqrt(
            w.var(axis=2, keepdims=True) + self.epsilon
        )
        if self.by_group:
            y = y * scale[:, None] + bias[:, None]
            return np.asarray(y).reshape(x.shape).astype(x.dtype)
        shape = (-1, *[1] * (x.ndim - 2))
        out = y.reshape(x.shape) * scale.reshape(shape) + bias.reshape(shape)
        return np.asarray(out).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(2), [f32(2, 6, 4, 5), f32(6), f32(6, low=0.0)]
        yield cls(3, 1e-2, True), [f32(2, 6, 4), f32(3), f32(3, seed=1)]
        yield cls(4), [f32(2, 4, 3), f32(4), f32(4, seed=1)]
        half = np.float16
        yield cls(2), [f32(2, 4, 20).astype(half), f32(4).astype(half), f32(4, seed=1).astype(half)]
        yield cls(2), [f32(3, 4), f32(4), f32(4, seed=1)]


@dataclass(frozen=True)
class LocalResponseNorm(Op):
    """x / (bias + alpha / size * s) ** beta, where s sums the squares of ``size`` channels around.

    Shape: x [n, c, ...] float -> the same.
    Errors: TypeCheckError if the size is not positive.
    Source: ONNX LRN-13; Krizhevsky et al., "ImageNet Classification with Deep Networks".
    """

    name = "local_response_norm"

    size: int = 5
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, x: TensorType) -> TensorType:
        check_float(self, x)
        if self.size < 1:
            raise self.fail(f"the size is {self.size}")
        check_most(self, "the size", (self.size,))
        _check_channels(self, x)
        return x

    def compute(self, x: te.Tensor) -> te.Tensor:
        inner = wide(x.dtype)
        before = (self.size - 1) // 2
        channels = x.shape[1]
        padded_shape = (x.shape[0], channels + (self.size - 1), *x.shape[2:])

        def square(*i: Expr) -> Expr:
            c = i[1] - before
            value = n.cast(x[(i[0], c, *i[2:])], inner)
            inside = n.all_of(n.le(0, c), n.lt(c, channels))
            return n.select(inside, value * value, 0.0)

        squares = te.compute(padded_shape, square, "squares")
        total = te.reduce(
            "sum",
            x.shape,
            (self.size,),
            lambda *i: squares[(i[0], i[1] + i[-1], *i[2:-1])],
            "total",
        )

        def element(*i: Expr) -> Expr:
            base = total[i] * (self.alpha / self.size) + self.bias
            return n.cast(n.cast(x[i], inner) / _to_the(base, self.beta), x.dtype)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        w = x.astype(np.float64)
        low, high = (self.size - 1) // 2, self.size // 2
        total = np.zeros_like(w)
        for c in range(x.shape[1]):
            window = w[:, max(0, c - low) : c + high + 1]
            total[:, c] = (window**2).sum(axis=1)
        return (w / (self.bias + self.alpha / self.size * total) ** self.beta).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(3), [f32(2, 7, 3, 2)]
        yield cls(4, 0.5, 0.5, 2.0), [f32(2, 7, 3)]
        yield cls(5, 1.0, 1.3), [f32(1, 3, 4)]
        yield cls(3, 0.1, 1.0), [f32(2, 5, 2).astype(np.float16)]
        yield cls(3, 0.1), [f32(2, 5, 2).astype(BF16.numpy)]
        yield cls(1), [f32(2, 3)]


def _to_the(x: Expr, exponent: float) -> Expr:
    """x ** exponent for a positive x: the usual exponents take square roots only."""
    if exponent == 1.0:
        return x
    if exponent == 0.5:
        return call("sqrt", x)
    if exponent == 0.75:
        root = call("sqrt", x)
        return root * call("sqrt", root)
    return call("pow", x, n.const(exponent, x.dtype))
