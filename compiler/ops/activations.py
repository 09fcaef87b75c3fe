"""Activation functions: what networks put between their linear parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, F64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array, TensorType

from .elementwise import Binary, Unary, broadcasts_to, call
from .sampling import extremes, f32, special
from .unary import erf

_GELU_TANH: Final = 0.7978845608028654  # sqrt(2 / pi)


@dataclass(frozen=True)
class _Activation(Unary):
    """A function of floats; the references compute in float64."""

    def reference(self, x: Array) -> Array:
        return np.asarray(self.values(x.astype(np.float64))).astype(x.dtype)


@dataclass(frozen=True)
class Relu(Unary):
    """max(x, 0); NaN and zeros stay.

    Shape: x [...] -> the same.
    Source: ONNX Relu-14.
    """

    name = "relu"
    kinds = "fi"

    def element(self, x: Expr) -> Expr:
        return n.maximum(n.const(0, x.dtype), x)

    def values(self, x: Array) -> Array:
        return np.where(x < 0, x.dtype.type(0), x)


@dataclass(frozen=True)
class LeakyRelu(_Activation):
    """x, or alpha * x below 0.

    Shape: x [...] -> the same.
    Source: ONNX LeakyRelu-16.
    """

    name = "leaky_relu"

    alpha: float = 0.01

    def element(self, x: Expr) -> Expr:
        return n.select(n.lt(x, 0), x * self.alpha, x)

    def values(self, x: Array) -> Array:
        return np.where(x < 0, x * self.alpha, x)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(0.3)
        yield cls(-1.5)


@dataclass(frozen=True)
class PRelu(Binary):
    """x, or slope * x below 0.

    Shape: x [...], slope that broadcasts to x's shape -> x's.
    Source: ONNX PRelu-16.
    """

    name = "prelu"

    def element(self, x: Expr, y: Expr) -> Expr:
        return n.select(n.lt(x, 0), x * y, x)

    def values(self, x: Array, y: Array) -> Array:
        return np.where(x < 0, x * y, x)

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        if not broadcasts_to(y.shape, x.shape):
            raise self.fail(f"the slope {y} does not broadcast to {x}")
        return super().infer(x, y)

    @classmethod
    def arrays(cls) -> Iterator[list[Array]]:
        yield [f32(2, 3, 4), f32(3, 1)]
        yield [f32(2, 3), f32(2, 3, seed=1)]
        yield [special()[:, None] * np.ones(3, np.float32), np.array([0.25, -2.0, 0.0], np.float32)]
        yield [f32(4).astype(np.float16), f32(1).astype(np.float16)]
        for dtype in ("int32", "uint64"):
            every = extremes(dtype)
            yield [np.repeat(every[:, None], every.size, axis=1), every]


@dataclass(frozen=True)
class Sigmoid(_Activation):
    """1 / (1 + exp(-x)).

    Shape: x [...] -> the same.
    Source: ONNX Sigmoid-13.
    """

    name = "sigmoid"

    def element(self, x: Expr) -> Expr:
        return call("sigmoid", x)

    def values(self, x: Array) -> Array:
        return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class HardSigmoid(_Activation):
    """alpha * x + beta, clipped to [0, 1].

    Shape: x [...] -> the same.
    Source: ONNX HardSigmoid-22.
    """

    name = "hard_sigmoid"

    alpha: float = 0.2
    beta: float = 0.5

    def element(self, x: Expr) -> Expr:
        return hard_sigmoid(x, self.alpha, self.beta)

    def values(self, x: Array) -> Array:
        return np.clip(x * self.alpha + self.beta, 0, 1)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(1 / 6, 0.5)


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """alpha * x + beta, clipped to [0, 1]."""
    return n.maximum(0.0, n.minimum(1.0, x * alpha + beta))


@dataclass(frozen=True)
class HardSwish(_Activation):
    """x * hard_sigmoid(x) with alpha 1/6 and beta 1/2.

    Shape: x [...] -> the same.
    Source: ONNX HardSwish-22.
    """

    name = "hard_swish"

    def element(self, x: Expr) -> Expr:
        return x * hard_sigmoid(x, 1 / 6, 0.5)

    def values(self, x: Array) -> Array:
        return x * np.clip(x / 6 + 0.5, 0, 1)


@dataclass(frozen=True)
class Tanh(_Activation):
    """The hyperbolic tangent.

    Shape: x [...] -> the same.
    Source: ONNX Tanh-13.
    """

    name = "tanh"

    def element(self, x: Expr) -> Expr:
        return call("tanh", x)

    def values(self, x: Array) -> Array:
        return np.tanh(x)


@dataclass(frozen=True)
class Gelu(_Activation):
    """x * (1 + erf(x / sqrt(2))) / 2, or the usual approximation by tanh.

    Shape: x [...] -> the same.
    Source: ONNX Gelu-20; Hendrycks and Gimpel, "Gaussian Error Linear Units".
    """

    name = "gelu"

    approximate: bool = False  # by tanh

    def element(self, x: Expr) -> Expr:
        if self.approximate:
            inner = call("tanh", (x + x * x * x * 0.044715) * _GELU_TANH)
        else:
            inner = call("erf", x * math.sqrt(0.5))
        return x * 0.5 * (inner + 1.0)

    def values(self, x: Array) -> Array:
        if self.approximate:
            inner = np.tanh(_GELU_TANH * (x + 0.044715 * x**3))
        else:
            inner = erf(x / math.sqrt(2))
        return np.asarray(0.5 * x * (1 + inner))

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(True)


@dataclass(frozen=True)
class Softplus(_Activation):
    """log(1 + exp(x)).

    Shape: x [...] -> the same.
    Source: ONNX Softplus-22.
    """

    name = "softplus"

    def element(self, x: Expr) -> Expr:
        return call("softplus", x)

    def values(self, x: Array) -> Array:
        return np.logaddexp(0.0, x)


@dataclass(frozen=True)
class Softsign(_Activation):
    """x / (1 + |x|).

    Shape: x [...] -> the same.
    Source: ONNX Softsign-22.
    """

    name = "softsign"

    def element(self, x: Expr) -> Expr:
        return x / (call("abs", x) + 1.0)

    def values(self, x: Array) -> Array:
        return np.asarray(x / (1 + np.abs(x)))


@dataclass(frozen=True)
class Elu(_Activation):
    """x, or alpha * (exp(x) - 1) below 0.

    Shape: x [...] -> the same.
    Source: ONNX Elu-22.
    """

    name = "elu"

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return n.select(n.lt(x, 0), call("expm1", x) * self.alpha, x)

    def values(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * np.expm1(x), x)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(2.0)


@dataclass(frozen=True)
class Selu(_Activation):
    """gamma * x, or gamma * alpha * (exp(x) - 1) below 0.

    Shape: x [...] -> the same.
    Source: ONNX Selu-22; Klambauer et al., "Self-Normalizing Neural Networks".
    """

    name = "selu"

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def element(self, x: Expr) -> Expr:
        return n.select(n.lt(x, 0), call("expm1", x) * self.alpha, x) * self.gamma

    def values(self, x: Array) -> Array:
        return self.gamma * np.where(x < 0, self.alpha * np.expm1(x), x)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(2.0, 3.0)


@dataclass(frozen=True)
class Celu(_Activation):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    Shape: x [...] -> the same.
    Source: ONNX Celu-28; Barron, "Continuously Differentiable Exponential Linear Units".
    """

    name = "celu"

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        curve = call("expm1", x / self.alpha) * self.alpha
        return n.maximum(0.0, x) + n.minimum(0.0, curve)

    def values(self, x: Array) -> Array:
        return np.maximum(0, x) + np.minimum(0, self.alpha * np.expm1(x / self.alpha))

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(2.0)


@dataclass(frozen=True)
class Mish(_Activation):
    """x * tanh(log(1 + exp(x))).

    Shape: x [...] -> the same.
    Source: ONNX Mish-22; Misra, "Mish".
    """

    name = "mish"

    def element(self, x: Expr) -> Expr:
        return x * call("tanh", call("softplus", x))

    def values(self, x: Array) -> Array:
        return x * np.tanh(np.logaddexp(0.0, x))


@dataclass(frozen=True)
class Swish(_Activation):
    """x * sigmoid(alpha * x).

    Shape: x [...] -> the same.
    Source: ONNX Swish-24.
    """

    name = "swish"

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return x * call("sigmoid", x if self.alpha == 1.0 else x * self.alpha)

    def values(self, x: Array) -> Array:
        return np.asarray(x / (1 + np.exp(-self.alpha * x)))

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(1.702)


@dataclass(frozen=True)
class ThresholdedRelu(_Activation):
    """x above alpha, else 0 (so for NaN).

    Shape: x [...] -> the same.
    Source: ONNX ThresholdedRelu-22.
    """

    name = "thresholded_relu"

    alpha: float = 1.0

    def element(self, x: Expr) -> Expr:
        return n.select(n.lt(n.const(self.alpha, x.dtype), x), x, 0.0)

    def values(self, x: Array) -> Array:
        return np.where(x > self.alpha, x, 0)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(-0.5)


@dataclass(frozen=True)
class Shrink(Unary):
    """x + bias below -lambd, otherwise x - bias above lambd, else 0 (so for NaN).

    Shape: x [...] -> the same.
    Source: ONNX Shrink-9.
    """

    name = "shrink"
    kinds = "fiu"

    bias: float = 0.0
    lambd: float = 0.5

    def element(self, x: Expr) -> Expr:
        wide = n.cast(x, x.dtype if x.dtype.is_float else F32 if x.dtype.bits < 32 else F64)
        out = n.select(n.lt(n.const(self.lambd, wide.dtype), wide), wide - self.bias, 0.0)
        out = n.select(n.lt(wide, -self.lambd), wide + self.bias, out)
        return n.cast(out, x.dtype)

    def values(self, x: Array) -> Array:
        high = np.where(x > self.lambd, x - self.bias, 0)
        return np.where(x < -self.lambd, x + self.bias, high)

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls()
        yield cls(1.5, 1.5)
        yield cls(1.0, -1.0)

    @classmethod
    def arrays(cls) -> Iterator[Array]:
        yield from super().arrays()
        yield np.arange(-5, 6).astype(np.int32)
        yield np.arange(6).astype(np.uint8)


@dataclass(frozen=True)
class Clip(Unary):
    """min(high, max(low, x)), where a bound may be left out; NaN stays.

    Shape: x [...] -> the same.
    Source: ONNX Clip-13.
    """

    name = "clip"
    kinds = "fiu"

    low: float | int | None = None
    high: float | int | None = None

    def element(self, x: Expr) -> Expr:
        if self.low is not None:
            x = n.maximum(n.const(self.low, x.dtype), x)
        return x if self.high is None else n.minimum(n.const(self.high, x.dtype), x)

    def values(self, x: Array) -> Array:
        if self.low is not None:
            x = np.maximum(x, x.dtype.type(self.low))
        return x if self.high is None else np.minimum(x, x.dtype.type(self.high))

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        yield cls(0, 6)
        yield cls(low=-1.5)
        yield cls(high=0.5)
        yield cls(2.0, -1.0)
        yield cls()
