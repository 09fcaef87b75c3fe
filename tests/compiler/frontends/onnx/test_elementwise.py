"""Elementwise nodes of all versions against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_node import check, model_of

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model, load_handlers
from planish.compiler.frontends.onnx.reader import HANDLERS
from planish.compiler.ops.sampling import bools, extremes, f32, ints

Array = np.ndarray[Any, Any]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5], np.float32)

UNARY: dict[str, list[dict[str, Any]]] = {
    **{
        name: [{}]
        for name in """
        Neg Abs Sign Exp Log Sqrt Reciprocal Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh
        Asinh Acosh Atanh Erf Relu Sigmoid HardSwish Tanh Softplus Softsign Mish IsNaN
        """.split()  # noqa: SIM905
    },
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "HardSigmoid": [{}, {"alpha": 0.3, "beta": 0.4}],
    "Elu": [{}, {"alpha": 2.0}],
    "Selu": [{}, {"alpha": 2.0, "gamma": 3.0}],
    "Celu": [{}, {"alpha": 2.0}],
    "Swish": [{}, {"alpha": 1.5}],
    "ThresholdedRelu": [{}, {"alpha": 0.25}],
    "Shrink": [{}, {"bias": 1.5, "lambd": 1.0}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "IsInf": [{}, {"detect_positive": 0}, {"detect_negative": 0}],
}
# What ONNX Runtime has no kernel of, or another answer than the specification's.
BY_REFERENCE = {("Celu", 28), ("Swish", 24), ("Mod", 28), ("BitShift", 28)}


def opsets(op_type: str, newest: int = 100) -> list[int]:
    """An opset of each version that we handle."""
    load_handlers()
    return sorted({max(7, v) for v in HANDLERS["", op_type].versions if v <= newest})


def oracle(op_type: str, opset: int) -> str:
    return "reference" if opset > 22 or (op_type, opset) in BY_REFERENCE else "runtime"


def cases(table: dict[str, list[dict[str, Any]]]) -> list[tuple[str, int, dict[str, Any]]]:
    return [(name, o, a) for name, each in table.items() for o in opsets(name) for a in each]


@pytest.mark.parametrize(("op_type", "opset", "attributes"), cases(UNARY))
def test_unary(op_type: str, opset: int, attributes: dict[str, Any]) -> None:
    check(op_type, [f32(3, 4)], opset, oracle=oracle(op_type, opset), **attributes)


# Those whose value at infinities and NaN is specified or follows from the formula.
NICE = (
    *("Neg", "Abs", "Sign", "Exp", "Log", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round"),
    *("Sin", "Atan", "Tanh", "Erf", "Sigmoid"),
)


@pytest.mark.parametrize("op_type", [*NICE, "LeakyRelu", "IsNaN", "IsInf", "HardSigmoid"])
def test_unary_of_special_values(op_type: str) -> None:
    opset = opsets(op_type, 22)[-1]
    # ONNX Runtime's vector code has other ideas about NaN in some of these.
    x = SPECIAL[1:] if op_type in ("Sign", "HardSigmoid", "Sigmoid", "Tanh", "Erf") else SPECIAL
    check(op_type, [x], opset, **({} if op_type != "LeakyRelu" else {"alpha": 0.5}))


@pytest.mark.parametrize("opset", opsets("Not"))
def test_not(opset: int) -> None:
    check("Not", [bools(3, 4)], opset)


BINARY = ["Add", "Sub", "Mul", "Div", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]


@pytest.mark.parametrize(("op_type", "opset"), [(name, o) for name in BINARY for o in opsets(name)])
def test_binary(op_type: str, opset: int) -> None:
    inputs: list[Array | None] = [f32(2, 1, 4), f32(3, 1)]
    if op_type == "Equal" and opset < 11:
        inputs = [ints(2, 1, 4), ints(3, 1)]
    check(op_type, inputs, opset)


@pytest.mark.parametrize("op_type", BINARY)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_binary_of_integers(op_type: str, dtype: str) -> None:
    small = np.array([-7, -3, -1, 1, 2, 3, 7], dtype)
    check(op_type, [np.concatenate([small, -small])[:, None], small], opsets(op_type, 22)[-1])


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor"])
def test_logic(op_type: str) -> None:
    check(op_type, [bools(3, 4), bools(4)], 7)


@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_bits(op_type: str, dtype: str) -> None:
    check(op_type, [extremes(dtype)[:, None], extremes(dtype)], 18)


def test_bitwise_not() -> None:
    check("BitwiseNot", [extremes("int16")], 18)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(direction: str) -> None:
    x = extremes("uint32")
    check("BitShift", [x[:, None], np.arange(32).astype("uint32")], 11, direction=direction)


def test_bit_shift_of_signed_integers() -> None:
    model = model_of("BitShift", [extremes("int32"), extremes("int32")], 28, direction="RIGHT")
    import_model(model)


def test_bit_shift_in_no_direction_is_an_error() -> None:
    model = model_of("BitShift", [extremes("uint8"), extremes("uint8")], 11, direction="UP")
    with pytest.raises(PlanishError, match="UP"):
        import_model(model)


@pytest.mark.parametrize("opset", opsets("PRelu"))
@pytest.mark.parametrize("slope", [(3, 1), (1,), (2, 3, 4), (4,)])
def test_prelu(opset: int, slope: tuple[int, ...]) -> None:
    check("PRelu", [f32(2, 3, 4), f32(*slope)], opset)


def test_prelu_with_a_slope_too_large_is_an_error() -> None:
    with pytest.raises(PlanishError, match="slope"):
        import_model(model_of("PRelu", [f32(3, 1), f32(3, 4)], 16))


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
def test_mod_of_integers(opset: int, fmod: int, dtype: str) -> None:
    x = np.arange(-9, 10).astype(dtype)
    y = np.array([-4, -3, -1, 1, 2, 7]).astype(dtype)
    check("Mod", [x[:, None], y], opset, fmod=fmod)


@pytest.mark.parametrize("opset", [10, 13])
def test_mod_of_floats(opset: int) -> None:
    check("Mod", [f32(4, 3, low=-1e6, high=1e6), f32(3)], opset, fmod=1)


def test_mod_of_floats_by_floor() -> None:
    check("Mod", [f32(4, 3), f32(3)], 28, oracle="reference")
    with pytest.raises(ImportModelError, match="fmod to be 1"):
        import_model(model_of("Mod", [f32(4, 3), f32(3)], 13))


@pytest.mark.parametrize("opset", opsets("Pow"))
def test_pow(opset: int) -> None:
    check("Pow", [f32(3, 4, low=0.1), f32(4)], opset)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, -0.5, -2.0, 0.0, 1.0, 1.7])
def test_pow_of_a_known_exponent(exponent: float) -> None:
    x = np.concatenate([f32(9), SPECIAL])
    check("Pow", [x, np.array(exponent, np.float32)], 15, constants=(1,))


@pytest.mark.parametrize("base", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("exponent", ["float32", "float64", "int32", "int64"])
def test_pow_of_mixed_dtypes(base: str, exponent: str) -> None:
    check("Pow", [np.array([[1], [2], [3], [7]], base), np.array([0, 1, 2, 5], exponent)], 15)


def test_pow_whose_exponent_has_the_larger_rank() -> None:
    check("Pow", [f32(low=1.0), np.array([2.0], np.float32)], 15, constants=(1,))


@pytest.mark.parametrize("opset", opsets("Clip"))
@pytest.mark.parametrize("low", [None, -1.0])
@pytest.mark.parametrize("high", [None, 1.5])
def test_clip(opset: int, low: float | None, high: float | None) -> None:
    if opset < 11:
        found = {"min": low, "max": high}
        check("Clip", [f32(3, 4)], opset, **{k: v for k, v in found.items() if v is not None})
        return
    bounds = [None if v is None else np.array(v, np.float32) for v in (low, high)]
    for constants in ((), (1,), (2,), (1, 2)):
        check("Clip", [f32(3, 4), *bounds], opset, constants=constants)


def test_clip_of_integers_with_crossed_bounds() -> None:
    low, high = np.array(3, np.int32), np.array(-1, np.int32)
    check("Clip", [ints(3, 4, dtype="int32"), low, high], 13, constants=(1, 2))


@pytest.mark.parametrize(
    ("op_type", "opset"), [(k, o) for k in ("Min", "Max", "Sum", "Mean") for o in opsets(k)]
)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(op_type: str, opset: int, count: int) -> None:
    inputs: list[Array | None] = [f32(3, 4), f32(3, 4, low=-1.0), -f32(3, 4), f32(3, 4, high=9.0)]
    if opset >= 8:
        inputs[1:3] = [f32(4), f32(2, 3, 1)]
    check(op_type, inputs[:count], opset)


@pytest.mark.parametrize("op_type", ["Min", "Max"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "float64", "float16"])
def test_extremes_of_other_dtypes(op_type: str, dtype: str) -> None:
    check(op_type, [np.arange(5).astype(dtype), np.arange(5)[::-1].astype(dtype)], 13)


@pytest.mark.parametrize("op_type", ["Min", "Max"])
def test_nan_wins(op_type: str) -> None:
    check(op_type, [SPECIAL[:, None], SPECIAL], 13)


@pytest.mark.parametrize("opset", opsets("Dropout", 22))
def test_dropout(opset: int) -> None:
    x = f32(3, 4)
    if opset < 12:
        check("Dropout", [x], opset, ratio=0.3)
        return
    ratio, training = np.array(0.3, np.float32), np.array(False)
    check("Dropout", [x], opset)
    check("Dropout", [x], opset, seed=3)
    check("Dropout", [x, ratio], opset, constants=(1,))
    check("Dropout", [x, ratio], opset)
    check("Dropout", [x, None, training], opset, constants=(2,))
    check("Dropout", [x, ratio, training], opset, outputs=2, constants=(1, 2))
