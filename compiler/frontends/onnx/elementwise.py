"""ONNX's elementwise operators: arithmetic, functions, activations, comparisons, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import from_numpy
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops import activations, compare, elementwise, power, unary
from planish.compiler.ops.base import Op

from .old_broadcast import per_channel, second_operand
from .reader import NodeReader, handles

# Operators whose node is one operator of ours without attributes, with their versions.
_PLAIN: Final[dict[str, tuple[type[Op], int, tuple[int, ...]]]] = {
    "Add": (elementwise.Add, 2, (1, 6, 7, 13, 14)),
    "Sub": (elementwise.Sub, 2, (1, 6, 7, 13, 14)),
    "Mul": (elementwise.Mul, 2, (1, 6, 7, 13, 14)),
    "Div": (elementwise.Div, 2, (1, 6, 7, 13, 14)),
    "Neg": (unary.Neg, 1, (1, 6, 13)),
    "Abs": (unary.Abs, 1, (1, 6, 13)),
    "Sign": (unary.Sign, 1, (9, 13)),
    "Exp": (unary.Exp, 1, (1, 6, 13)),
    "Log": (unary.Log, 1, (1, 6, 13)),
    "Sqrt": (unary.Sqrt, 1, (1, 6, 13)),
    "Reciprocal": (unary.Reciprocal, 1, (1, 6, 13)),
    "Floor": (unary.Floor, 1, (1, 6, 13)),
    "Ceil": (unary.Ceil, 1, (1, 6, 13)),
    "Round": (unary.Round, 1, (11, 22)),
    "Sin": (unary.Sin, 1, (7, 22)),
    "Cos": (unary.Cos, 1, (7, 22)),
    "Tan": (unary.Tan, 1, (7, 22)),
    "Asin": (unary.Asin, 1, (7, 22)),
    "Acos": (unary.Acos, 1, (7, 22)),
    "Atan": (unary.Atan, 1, (7, 22)),
    "Sinh": (unary.Sinh, 1, (9, 22)),
    "Cosh": (unary.Cosh, 1, (9, 22)),
    "Asinh": (unary.Asinh, 1, (9, 22)),
    "Acosh": (unary.Acosh, 1, (9, 22)),
    "Atanh": (unary.Atanh, 1, (9, 22)),
    "Erf": (unary.Erf, 1, (9, 13)),
    "Relu": (activations.Relu, 1, (1, 6, 13, 14)),
    "Sigmoid": (activations.Sigmoid, 1, (1, 6, 13)),
    "HardSwish": (activations.HardSwish, 1, (14, 22)),
    "Tanh": (activations.Tanh, 1, (1, 6, 13)),
    "Softplus": (activations.Softplus, 1, (1, 22)),
    "Softsign": (activations.Softsign, 1, (1, 22)),
    "Mish": (activations.Mish, 1, (18, 22)),
    "Equal": (compare.Equal, 2, (1, 7, 11, 13, 19)),
    "Greater": (compare.Greater, 2, (1, 7, 9, 13)),
    "Less": (compare.Less, 2, (1, 7, 9, 13)),
    "GreaterOrEqual": (compare.GreaterOrEqual, 2, (12, 16)),
    "LessOrEqual": (compare.LessOrEqual, 2, (12, 16)),
    "And": (
        compare.And,
        2,
        (
            1,
            7,
        ),
    ),
    "Or": (
        compare.Or,
        2,
        (
            1,
            7,
        ),
    ),
    "Xor": (
        compare.Xor,
        2,
        (
            1,
            7,
        ),
    ),
    "Not": (compare.Not, 1, (1,)),
    "BitwiseAnd": (compare.BitwiseAnd, 2, (18,)),
    "BitwiseOr": (compare.BitwiseOr, 2, (18,)),
    "BitwiseXor": (compare.BitwiseXor, 2, (18,)),
    "BitwiseNot": (compare.BitwiseNot, 1, (18,)),
    "IsNaN": (compare.IsNaN, 1, (9, 13, 20)),
}

# Operators of one tensor with float attributes: those with their defaults, in the order of ours.
_FLOATS: Final[dict[str, tuple[Callable[..., Op], dict[str, float], tuple[int, ...]]]] = {
    "LeakyRelu": (activations.LeakyRelu, {"alpha": 0.01}, (1, 6, 16)),
    "HardSigmoid": (activations.HardSigmoid, {"alpha": 0.2, "beta": 0.5}, (1, 6, 22)),
    "Elu": (activations.Elu, {"alpha": 1.0}, (1, 6, 22)),
    "Selu": (
        activations.Selu,
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        (1, 6, 22),
    ),
    "Celu": (activations.Celu, {"alpha": 1.0}, (12, 28)),
    "Swish": (activations.Swish, {"alpha": 1.0}, (24,)),
    "ThresholdedRelu": (activations.ThresholdedRelu, {"alpha": 1.0}, (10, 22)),
    "Shrink": (activations.Shrink, {"bias": 0.0, "lambd": 0.5}, (9,)),
}

# Those that version 1 has otherwise.
_FIRST_DEFAULTS: Final[dict[str, dict[str, float]]] = {"Selu": {"alpha": 1.6732, "gamma": 1.0507}}


def _register() -> None:
    def plain(cls: type[Op], arity: int) -> Callable[[NodeReader], Value]:
        if arity == 1:
            return lambda r: r.one(cls(), r.input(0))
        return lambda r: r.one(cls(), r.input(0), second_operand(r))

    def floats(make: Callable[..., Op], defaults: dict[str, float]) -> Callable[..., Value]:
        def handle(r: NodeReader) -> Value:
            of_version = _FIRST_DEFAULTS.get(r.op_type, {}) if r.version == 1 else {}
            values = {**defaults, **of_version}
            return r.one(make(*(float(r.attribute(k, v)) for k, v in values.items())), r.input(0))

        return handle

    for op_type, (cls, arity, versions) in _PLAIN.items():
        handles(op_type, *versions)(plain(cls, arity))
    for op_type, (make, defaults, versions) in _FLOATS.items():
        handles(op_type, *versions)(floats(make, defaults))


_register()


def step(r: NodeReader, op: Op, *inputs: Value | None) -> Value:
    """Apply an operator whose result is not the node's output."""
    return r.builder.one(op, *inputs, origin=r.label)


def scalar(array: Array | None) -> float | int | None:
    """The only element of a known array."""
    if array is None or array.size != 1:
        return None
    value = array.reshape(())
    return int(value) if from_numpy(array.dtype).is_discrete else float(value)


@handles("Mod", 10, 13, 28)
def _mod(r: NodeReader) -> Value:
    x, y, fmod = r.input(0), r.input(1), r.attribute("fmod", 0)
    if fmod not in (0, 1):
        raise r.fail(f"attribute fmod is {fmod}, not 0 or 1")
    if r.version < 28 and not fmod and x.type.dtype.is_float:
        raise r.fail("floats need the attribute fmod to be 1")
    return r.one(elementwise.Mod(bool(fmod)), x, y)


@handles("Pow", 1, 7, 12, 13, 15)
def _pow(r: NodeReader) -> Value:
    x, y = r.input(0), second_operand(r)
    exponent = scalar(r.array(1))
    if exponent is not None and x.type.dtype.is_float and y.type.rank <= x.type.rank:
        return r.one(power.PowScalar(float(exponent)), x)
    return r.one(power.Pow(), x, y)


@handles("PRelu", 1, 6, 7, 9, 16)
def _prelu(r: NodeReader) -> Value:
    """A slope of one axis is one for each channel before version 7."""
    x, slope = r.input(0), r.input(1)
    if r.version < 7:
        slope = per_channel(r, x, slope)
    return r.one(activations.PRelu(), x, slope)


@handles("Gelu", 20)
def _gelu(r: NodeReader) -> Value:
    approximate = r.attribute("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise r.fail(f"attribute approximate is {approximate!r}, not none or tanh")
    return r.one(activations.Gelu(approximate == "tanh"), r.input(0))


@handles("BitShift", 11, 28)
def _bit_shift(r: NodeReader) -> Value:
    direction = r.required("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise r.fail(f"attribute direction is {direction!r}, not LEFT or RIGHT")
    return r.one(compare.BitShift(direction == "LEFT"), r.input(0), r.input(1))


@handles("IsInf", 10, 20)
def _is_inf(r: NodeReader) -> Value:
    positive, negative = r.attribute("detect_positive", 1), r.attribute("detect_negative", 1)
    return r.one(compare.IsInf(bool(positive), bool(negative)), r.input(0))


@handles("Clip", 1, 6, 11, 12, 13)
def _clip(r: NodeReader) -> Value:
    x = r.input(0)
    if r.version < 11:
        low, high = r.attribute("min"), r.attribute("max")
        return r.one(
            activations.Clip(
                None if low is None else float(low), None if high is None else float(high)
            ),
            x,
        )
    bounds: list[Any] = []
    for k, what in ((1, "min"), (2, "max")):
        bound = r.optional(k)
        if bound is None:
            bounds.append(None)
            continue
        if bound.type.size != 1 or bound.type.rank > x.type.rank:
            raise r.fail(f"{what} ({bound!r}) is not one number")
        if bound.type.dtype is not x.type.dtype:
            raise r.fail(f"{what} ({bound!r}) is not of the dtype of {x!r}")
        known = scalar(r.array(k))
        bounds.append(bound if known is None else known)
    low, high = bounds
    if not isinstance(low, Value) and not isinstance(high, Value):
        return r.one(activations.Clip(low, high), x)
    if isinstance(low, Value):
        x = step(r, elementwise.Max(), x, low)
    elif low is not None:
        x = step(r, activations.Clip(low=low), x)
    if isinstance(high, Value):
        return r.one(elementwise.Min(), x, high)
    return x if high is None else r.one(activations.Clip(high=high), x)


def _folded(r: NodeReader, op: Op) -> Value:
    """A variadic operator as binary ones, from the left."""
    values = r.inputs()
    if not values:
        raise r.fail("input 0 is missing")
    for v in values:
        if v.type.dtype is not values[0].type.dtype:
            raise r.fail(f"inputs are {values[0].type.dtype} and {v.type.dtype}")
    out = values[0]
    for k, v in enumerate(values[1:], 2):
        out = r.one(op, out, v) if k == len(values) else step(r, op, out, v)
    return out


@handles("Min", 1, 6, 8, 12, 13)
def _min(r: NodeReader) -> Value:
    return _folded(r, elementwise.Min())


@handles("Max", 1, 6, 8, 12, 13)
def _max(r: NodeReader) -> Value:
    return _folded(r, elementwise.Max())


@handles("Sum", 1, 6, 8, 13)
def _sum(r: NodeReader) -> Value:
    return _folded(r, elementwise.Add())


@handles("Mean", 1, 6, 8, 13)
def _mean(r: NodeReader) -> Value:
    total = _folded(r, elementwise.Add())
    dtype = total.type.dtype
    if not dtype.is_float:
        raise r.fail(f"is not defined for {dtype}")
    if r.input_count == 1:
        return total
    return r.one(elementwise.Div(), total, r.constant(np.array(r.input_count, dtype.numpy)))


__all__ = ["scalar", "step"]
