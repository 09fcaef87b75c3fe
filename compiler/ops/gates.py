"""The activation functions of recurrent layers, by ONNX's names, as numbers and as expressions."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr
from planish.compiler.graph.ir import Array

# A function's name, alpha and beta (0 where it has none).
Activation: TypeAlias = tuple[str, float, float]

# By name: the defaults of alpha and beta; None where the function has no such parameter.
DEFAULTS: Final[dict[str, tuple[float | None, float | None]]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, None),
    "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, None),
}


def activate(activation: Activation, x: Array) -> Array:
    """The function of an array, by numpy."""
    name, alpha, beta = activation
    match name:
        case "Relu":
            return np.maximum(x, 0)
        case "Tanh":
            return np.tanh(x)
        case "Sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)))
        case "Softsign":
            return np.asarray(x / (1 + np.abs(x)))
        case "Softplus":
            return np.logaddexp(x, 0)
        case "Affine":
            return np.asarray(alpha * x + beta)
        case "LeakyRelu":
            return np.where(x < 0, alpha * x, x)
        case "ThresholdedRelu":
            return np.where(x > alpha, x, 0)
        case "ScaledTanh":
            return np.asarray(alpha * np.tanh(beta * x))
        case "HardSigmoid":
            return np.clip(alpha * x + beta, 0, 1)
        case "Elu":
            return np.where(x < 0, alpha * np.expm1(x), x)
        case _:
            raise KeyError(name)


def expression(activation: Activation, x: Expr) -> Expr:
    """The function of an expression."""
    name, a, b = activation
    t = x.dtype
    zero, one, alpha, beta = (n.const(v, t) for v in (0.0, 1.0, a, b))

    def call(function: str, arg: Expr) -> Expr:
        return Call(function, (arg,), t)

    match name:
        case "Relu":
            return n.maximum(x, zero)
        case "Tanh":
            return call("tanh", x)
        case "Sigmoid":
            return call("sigmoid", x)
        case "Softsign":
            return n.div(x, n.add(one, call("abs", x)))
        case "Softplus":
            return call("softplus", x)
        case "Affine":
            return n.add(n.mul(alpha, x), beta)
        case "LeakyRelu":
            return n.select(n.lt(x, zero), n.mul(alpha, x), x)
        case "ThresholdedRelu":
            return n.select(n.lt(alpha, x), x, zero)
        case "ScaledTanh":
            return n.mul(alpha, call("tanh", n.mul(beta, x)))
        case "HardSigmoid":
            return n.minimum(n.maximum(n.add(n.mul(alpha, x), beta), zero), one)
        case "Elu":
            return n.select(n.lt(x, zero), n.mul(alpha, call("expm1", x)), x)
        case _:
            raise KeyError(name)
