"""Compiled models with branches that the data choose, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planish
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.text import large_constants, parse, show
from planish.compiler.graph.verify import verify
from planish.targets.llvm.target import host

RNG = np.random.default_rng(7)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


W, V = weight("w", 24, 24), weight("v", 24, 24)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def typed(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name: str, nodes: list[onnx.NodeProto], outputs: str, *weights: Any) -> onnx.GraphProto:
    ports = [typed(o, None, None) for o in outputs.split()]
    return helper.make_graph(nodes, name, [], ports, list(weights))


def model(rows: int | str = "n") -> onnx.ModelProto:
    """Products, views, values of outside and a branch within; results that are no new values.

    ``total`` is what the first branch depends on, ``d`` what the one within depends on.
    """
    inside = node(
        "If", "d", "q",
        then_branch=branch("a", [node("Softmax", "p", "soft", axis=1), node("Mul", "soft h", "e")],
                           "e"),
        else_branch=branch("b", [node("Identity", "h", "e")], "e"),
    )  # fmt: skip
    then = branch(
        "then",
        [node("MatMul", "h w", "p0"), node("Relu", "p0", "p"), inside, node("Add", "q x", "r"),
         node("Identity", "r", "again")],
        "r again",
    )  # fmt: skip
    other = branch(
        "other",
        [node("MatMul", "flat v", "s0"), node("Tanh", "s0", "s"), node("Identity", "x", "t")],
        "s t",
        V,
    )
    nodes = [
        node("Sigmoid", "x", "h"),
        node("Shape", "x", "shape"),
        node("Reshape", "h shape", "flat"),
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "c"),
        node("If", "c", "y z", then_branch=then, else_branch=other),
        node("Add", "y h", "sum"),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    graph = helper.make_graph(
        nodes, "choices", [typed("x", rows, 24), typed("d", kind=TensorProto.BOOL)],
        [typed(o, rows, 24) for o in ("sum", "y", "z")], [W, zero],
    )  # fmt: skip
    out = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    out.ir_version = 8
    onnx.checker.check_model(out)
    return out


def inputs(rows: int, positive: bool, d: bool) -> dict[str, Any]:
    x = RNG.standard_normal((rows, 24)).astype(np.float32)
    return {"x": x + np.float32(0.5 if positive else -0.5), "d": np.array(d)}


def expected(m: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    import onnxruntime as ort

    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def assert_right(module: planish.Module, m: onnx.ModelProto, rows: int) -> None:
    for positive in (True, False):
        for d in (True, False):
            feed = inputs(rows, positive, d)
            for got, want in zip(module(*feed.values()), expected(m, feed), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [5, "n"])
def test_modules_are_right(rows: int | str, threads: int, optimize: bool, tmp_path: Path) -> None:
    m = model(rows)
    module = planish.compile(m, threads=threads, optimize=optimize)
    for count in (5,) if rows == 5 else (1, 5, 130):
        assert_right(module, m, count)
    module.save(tmp_path / "m.planish")
    assert_right(planish.load(tmp_path / "m.planish"), m, 5)


def test_a_branch_is_one_step_of_a_profile() -> None:
    module = planish.compile(model(), threads=1)
    steps = module.interface.steps
    assert [s.function for s in steps].count("if") == 1
    assert module.stats()["steps"] == len(steps)
    times = module.profile(list(inputs(5, True, True).values()), 3)
    assert len(times) == len(steps)


def test_the_text_of_an_optimised_graph_parses_back() -> None:
    from planish.build import optimized

    for graph in (import_model(model()), optimized(import_model(model()), host())):
        verify(graph)
        text = show(graph)
        assert show(parse(text, large_constants(graph))) == text


def test_every_stage_shows_what_is_in_branches() -> None:
    from planish.build import optimized
    from planish.show import stage_text

    m = model()
    fused = stage_text(m, "fused", host())
    assert "# kernels of their own in the graphs" in fused
    arrays = large_constants(optimized(import_model(m), host()))
    assert parse(fused, arrays).output_names == ("sum", "y", "z")
    for stage in ("lowered", "loops", "llvm"):
        assert "softmax" in stage_text(m, stage, host(), threads=1)
