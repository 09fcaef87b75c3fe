"""Modules whose steps the interpreter runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import planish
from planish.build import assemble
from planish.compiler.errors import InternalError, TypeCheckError
from planish.compiler.expr.nodes import as_expr
from planish.compiler.program import Place, Program
from planish.targets.interpreter import Interpreted
from planish.targets.target import Interpreter


def model(branches: bool = False) -> onnx.ModelProto:
    """``relu(x w) + x[0]``; with branches, or -x[0] where a flag is not set."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("ReduceSum", ["z"], ["s"], keepdims=0),
    ]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    if branches:
        inputs.append(flag)
        sides = []
        for op_type in ("Exp", "Neg"):
            out = helper.make_empty_tensor_value_info("out")
            side = helper.make_graph([helper.make_node(op_type, ["s"], ["out"])], "side", [], [out])
            sides.append(side)
        nodes.append(
            helper.make_node("If", ["flag"], ["t"], then_branch=sides[0], else_branch=sides[1])
        )
    weights = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) - 5, "w")
    out = helper.make_tensor_value_info("t" if branches else "s", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [out], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def expected(x: np.ndarray) -> np.float32:
    w = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    return np.maximum(x @ w, 0).sum()


@pytest.mark.parametrize("optimize", [True, False])
def test_it_is_called_as_any_module(optimize: bool) -> None:
    module = planish.compile(model(), target="interpreter", optimize=optimize)
    for rows in (0, 1, 5):
        x = np.linspace(-1, 1, 4 * rows, dtype=np.float32).reshape(rows, 4)
        (got,) = module(x)
        np.testing.assert_allclose(got, expected(x), rtol=1e-5)
        np.testing.assert_array_equal(module.run({"x": x})["s"], got)
    assert module.stats()["calls"] == 6
    assert module.stats()["code_bytes"] == 0
    assert len(module.profile([x], 3)) == len(module.interface.steps)
    with pytest.raises(TypeCheckError, match="must be of f32"):
        module(x.astype(np.float64))
    with pytest.raises(TypeCheckError, match="dimension 1 must be 4"):
        module(x[:, :3])


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag: bool) -> None:
    module = planish.compile(model(True), target="interpreter")
    x = np.linspace(-0.1, 0.1, 8, dtype=np.float32).reshape(2, 4)
    (got,) = module(x, np.array(flag))
    want = expected(x)
    np.testing.assert_allclose(got, np.exp(want) if flag else -want, rtol=1e-5)


def test_the_environment_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANISH_TARGET", "interpreter")
    assert planish.compile(model()).target == Interpreter()


def program_of(module: planish.Module) -> Program:
    assert isinstance(module.code, Interpreted)
    return module.code.program


def test_kernels_stay_plain_loops() -> None:
    module = planish.compile(model(), target="interpreter")
    assert {x.trace for x in program_of(module).schedules.values()} == {""}


def test_memory_that_is_not_there_is_not_touched() -> None:
    program = program_of(planish.compile(model(), target="interpreter", optimize=False))
    for kind, offset in (("arena", 1 << 40), ("arena", -64), ("output", 4)):
        first, *rest = program.steps
        place = Place(kind, 0, as_expr(offset))
        step = replace(first, arguments=(*first.arguments[:-1], place))
        wrong = replace(program, steps=(step, *rest))
        module = assemble(wrong, Interpreted(wrong, Interpreter()), 1)
        x = np.ones((1, 4), np.float32)
        with pytest.raises(InternalError, match="are outside of"):
            module(x)
