"""planish as a backend of ONNX."""

from __future__ import annotations

import unittest
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.base import Backend

import planish
from planish import onnx_backend
from planish.compiler.errors import PlanishError, TypeCheckError
from planish.compiler.ops.sampling import f32


def model(op_type: str = "Sub", ir_version: int = 8) -> onnx.ModelProto:
    """``x - w``, of a ``w`` that may be given."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["2"])],
        "g",
        [value("x", TensorProto.FLOAT, [3]), value("w", TensorProto.FLOAT, [3])],
        [value("2", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "w")],
    )
    imports = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def test_it_is_a_backend_of_onnx() -> None:
    assert planish.onnx_backend is onnx_backend
    assert issubclass(onnx_backend.PlanishBackend, Backend)
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(TypeCheckError, match="'CUDA:1'"):
        onnx_backend.prepare(model(), "CUDA:1")


def test_outputs_have_positions_and_names() -> None:
    x = np.float32([5, 5, 5])
    outputs = onnx_backend.prepare(model()).run([x])
    np.testing.assert_array_equal(outputs[0], [4, 3, 2])
    np.testing.assert_array_equal(outputs["2"], [4, 3, 2])  # type: ignore[call-overload]
    (by_name,) = onnx_backend.run_model(model(), {"x": x})
    np.testing.assert_array_equal(by_name, outputs[0])


def test_inputs_with_initialisers_may_be_given() -> None:
    x = np.float32([5, 5, 5])
    prepared = onnx_backend.prepare(model())
    np.testing.assert_array_equal(prepared.run([x, x])[0], [0, 0, 0])
    np.testing.assert_array_equal(prepared.run(x)[0], [4, 3, 2])
    with pytest.raises(TypeCheckError, match="3 inputs are given"):
        prepared.run([x, x, x])


def test_a_node_by_itself() -> None:
    x, y = f32(2, 3), f32(3)
    node = helper.make_node("Add", ["x", "y"], ["z"])
    np.testing.assert_array_equal(onnx_backend.run_node(node, [x, y])[0], x + y)
    old = helper.make_node("Add", ["x", "y"], ["z"], broadcast=1)
    np.testing.assert_array_equal(onnx_backend.run_node(old, [x, y], opset_version=6)[0], x + y)
    twice = helper.make_node("Mul", ["x", "x"], ["z"])
    np.testing.assert_array_equal(onnx_backend.run_node(twice, {"x": x})[0], x * x)
    with pytest.raises(TypeCheckError, match="takes 2 inputs"):
        onnx_backend.run_node(node, [x])


def test_what_is_not_supported_is_an_ordinary_error() -> None:
    with pytest.raises(PlanishError) as caught:
        onnx_backend.prepare(model("Subtract"))
    assert not isinstance(caught.value, unittest.SkipTest)


def test_the_environment_chooses_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANISH_TARGET", "interpreter")
    prepared = onnx_backend.prepare(model())
    assert str(prepared.module.target) == "interpreter"
    np.testing.assert_array_equal(prepared.run([np.float32([5, 5, 5])])[0], [4, 3, 2])


def test_onnx_runs_its_tests_on_it() -> None:
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():  # some expected values divide by zero
        warnings.simplefilter("ignore", RuntimeWarning)
        tests = BackendTest(onnx_backend, __name__)
    tests.include("^test_(relu|concat_2d_axis_1|operator_mm|PReLU_2d_multiparam)_cpu$")
    result = unittest.TestResult()
    tests.test_suite.run(result)
    assert not result.errors and not result.failures
    assert result.testsRun - len(result.skipped) == 4
