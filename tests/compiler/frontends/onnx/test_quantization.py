"""Quantised operators against ONNX Runtime, and against ONNX's reference where that has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_harness
import pytest
from one_node import Arrays, check
from onnx_harness import model_of, node

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32, ints


def bytes_of(*shape: int, dtype: str = "uint8") -> Array:
    low = 0 if dtype == "uint8" else -128
    return ints(*shape, low=low, high=low + 256, dtype=dtype)


X = f32(3, 4, low=-40.0, high=40.0)
SCALE = np.array(0.3, "float32")


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes"),
    [
        (10, [X, SCALE, None], {}),
        (10, [X, SCALE, np.array(-3, "int8")], {}),
        (13, [X, f32(4, low=0.1, high=0.5), ints(4, dtype="int8")], {}),
        (13, [X, f32(3, low=0.1, high=0.5), bytes_of(3)], {"axis": -2}),
        (19, [X, SCALE, np.array(9, "uint8")], {"saturate": 0}),
        (21, [X, SCALE, None], {"output_dtype": 5}),
        (21, [X * 100, SCALE, np.array(30000, "uint16")], {}),
        (21, [X, f32(3, 2, low=0.1, high=0.5), None], {"block_size": 3, "output_dtype": 3}),
        (21, [X, f32(2, 4, low=0.1, high=0.5), bytes_of(2, 4)], {"block_size": 2, "axis": 0}),
    ],
)
def test_quantize_linear(opset: int, inputs: Arrays, attributes: dict[str, Any]) -> None:
    check("QuantizeLinear", inputs, opset, **attributes)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([X, np.array(0.3, "float16"), np.array(3, "uint8")], {"precision": 1}),
        ([X.astype(np.float16), np.array(0.3, "float32"), np.array(3, "uint8")], {}),
    ],
)
def test_precision_of_the_quotient(inputs: Arrays, attributes: dict[str, Any]) -> None:
    check("QuantizeLinear", inputs, 23, oracle="reference", **attributes)


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes"),
    [
        (10, [bytes_of(3, 4), SCALE, None], {}),
        (10, [ints(3, 4, dtype="int32"), SCALE, None], {}),
        (13, [bytes_of(3, 4), f32(4), bytes_of(4)], {}),
        (19, [bytes_of(3, 4, dtype="int8"), f32(3), None], {"axis": 0}),
        (21, [ints(3, 4, dtype="int16"), f32(3, 2), None], {"block_size": 2}),
        (21, [bytes_of(3, 4), f32(2, 4), bytes_of(2, 4)], {"block_size": 2, "axis": 0}),
        (21, [bytes_of(3, 4), np.array(0.3, "float16"), np.array(3, "uint8")], {}),
    ],
)
def test_dequantize_linear(opset: int, inputs: Arrays, attributes: dict[str, Any]) -> None:
    check("DequantizeLinear", inputs, opset, **attributes)


def test_dtype_of_the_result() -> None:
    inputs: Arrays = [bytes_of(3, 4), SCALE, None]
    check("DequantizeLinear", inputs, 23, oracle="reference", output_dtype=10)


@pytest.mark.parametrize("x", [X, X - 50, X + 50, X * 0], ids=["both", "less", "more", "zeros"])
def test_dynamic_quantize_linear(x: Array) -> None:
    check("DynamicQuantizeLinear", [x], 11, outputs=3)


A, B = bytes_of(3, 4), bytes_of(4, 5, dtype="int8")


@pytest.mark.parametrize(
    ("inputs", "constants"),
    [
        ([A, B], ()),
        ([A, B.astype("uint8"), np.array(12, "uint8"), np.array(200, "uint8")], (3,)),
        ([A, B, np.array(12, "uint8"), np.array(0, "int8")], (3,)),
        ([A, B, np.array(12, "uint8"), ints(5, dtype="int8")], ()),
        ([bytes_of(2, 3, 4), B, np.array([7], "uint8")], ()),
        ([bytes_of(2, 3, 4), bytes_of(2, 4, 5), np.array(7, "uint8"), bytes_of(2, 1, 5)], ()),
    ],
)
def test_matmul_integer(inputs: Arrays, constants: tuple[int, ...]) -> None:
    check("MatMulInteger", inputs, 10, constants=constants)


def test_matmul_integer_by_row() -> None:
    """ONNX Runtime takes one zero point for a."""
    a, rows = bytes_of(3, 4), bytes_of(3)
    want = (a.astype("int32") - rows[:, None]) @ B.astype("int32")
    inputs = {"a": a, "b": B, "z": rows}
    onnx_harness.check(node("MatMulInteger", "a b z"), inputs, want=[want], symbolic=False)


@pytest.mark.parametrize(
    ("a", "b"), [(bytes_of(4), bytes_of(4, 5)), (A, bytes_of(4)), (bytes_of(4), bytes_of(4))]
)
def test_operands_of_rank_one(a: Array, b: Array) -> None:
    check("MatMulInteger", [a, b, np.array(3, "uint8"), None], 10, oracle="reference")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("zero", [None, np.array(100, "uint8")])
def test_conv_integer(groups: int, zero: Any) -> None:
    x, w = bytes_of(1, 4, 6, 7), bytes_of(6, 4 // groups, 3, 2)
    inputs: Arrays = [x, w, zero, None if zero is None else np.array(3, "uint8")]
    check("ConvInteger", inputs, 10, pads=[1, 0, 2, 1], strides=[1, 2], group=groups)


@pytest.mark.parametrize("w_dtype", ["uint8", "int8"])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_qlinear_conv(w_dtype: str, by_channel: bool, bias: bool) -> None:
    x, w = bytes_of(1, 3, 6, 6), bytes_of(5, 3, 3, 3, dtype=w_dtype)
    zero = np.array(w_dtype == "uint8", w_dtype) * 7
    inputs: Arrays = [
        x, np.array(0.02, "float32"), np.array(100, "uint8"), w,
        f32(5, low=0.01, high=0.02) if by_channel else np.array(0.015, "float32"),
        np.full(5, zero, w_dtype) if by_channel else np.array(zero, w_dtype),
        np.array(0.3, "float32"), np.array(120, "uint8"),
        ints(5, low=-900, high=900, dtype="int32") if bias else None,
    ]  # fmt: skip
    check("QLinearConv", inputs, 10, pads=[1, 1, 1, 1], constants=(3, 5))


@pytest.mark.parametrize("opset", [10, 21])
@pytest.mark.parametrize("by_column", [False, True])
def test_qlinear_matmul(opset: int, by_column: bool) -> None:
    inputs: Arrays = [
        A, np.array(0.02, "float32"), np.array(90, "uint8"), B,
        f32(5, low=0.01, high=0.02) if by_column else np.array(0.015, "float32"),
        ints(5, dtype="int8") if by_column else np.array(4, "int8"),
        np.array(0.07, "float32"), np.array(101, "uint8"),
    ]  # fmt: skip
    check("QLinearMatMul", inputs, opset)


def test_qlinear_matmul_by_row() -> None:
    inputs: Arrays = [
        A, f32(3, 1, low=0.01, high=0.02), bytes_of(3, 1), B,
        np.array(0.015, "float32"), np.array(4, "int8"),
        np.array(0.07, "float32"), np.array(101, "uint8"),
    ]  # fmt: skip
    check("QLinearMatMul", inputs, 21, oracle="reference")


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("QuantizeLinear", "x:f34 s:f3", {}, "scales along axis 1: 3 and 4"),
        ("QuantizeLinear", "x:f34 s:f12", {"block_size": 3, "axis": 0}, "scales of blocks, axis 1"),
        ("QuantizeLinear", "x:f34 s:f33", {"block_size": 3}, "3 scales for 4 elements"),
        ("QuantizeLinear", "x:f34 s:f z:b", {"output_dtype": 3}, "output_dtype is i8"),
        ("DequantizeLinear", "x:f34 s:f", {}, "does not allow"),
    ],
)
def test_what_does_not_fit(
    op_type: str, inputs: str, attributes: dict[str, Any], message: str
) -> None:
    given, names = {}, []
    for part in inputs.split():
        name, _, kind = part.partition(":")
        names.append(name)
        dtype = "float32" if kind[0] == "f" else "uint8"
        given[name] = np.ones([int(c) for c in kind[1:]], dtype)
    with pytest.raises(PlanishError, match=message):
        import_model(model_of(node(op_type, " ".join(names), **attributes), given, opset=23))
