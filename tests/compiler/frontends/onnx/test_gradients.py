from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import planish
from planish.compiler.errors import ImportModelError

TRAINING = "ai.onnx.preview.training"
X, W = np.array([[0.5, -1.0]], np.float32), np.array([[2.0], [3.0]], np.float32)


def made(nodes: list[onnx.NodeProto], outputs: str, **shapes: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=op.lower(), **attributes)


def gradient(inputs: str, outputs: str, y: str, xs: str, zs: str = "") -> onnx.NodeProto:
    names = {"xs": xs.split(), **({"zs": zs.split()} if zs else {})}
    given = [name if name != "-" else "" for name in outputs.split()]
    return helper.make_node(
        "Gradient", inputs.split(), given, name="gradient", domain=TRAINING, y=y, **names
    )


CHAIN = [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("Mul", "t t", "y")]


@pytest.mark.parametrize("rows", [1, 3, 0])
def test_of_inputs(rows: int) -> None:
    x = np.resize(X, (rows, 2))
    module = planish.compile(
        made([*CHAIN, gradient("x w", "dx dw", "y", "x w")], "dx dw", x=["n", 2], w=[2, 1])
    )
    dx, dw = module(x, W)
    t = np.tanh(x @ W)
    dh = 2 * t * (1 - t * t)
    np.testing.assert_allclose(dx, dh @ W.T, rtol=1e-4)
    np.testing.assert_allclose(dw, x.T @ dh, rtol=1e-4)


def test_of_what_is_between() -> None:
    (dt,) = planish.compile(
        made([*CHAIN, gradient("t", "dt", "y", "t")], "dt", x=[1, 2], w=[2, 1])
    )(X, W)
    np.testing.assert_allclose(dt, 2 * np.tanh(X @ W), rtol=1e-4)


def test_elsewhere_than_where_the_value_is() -> None:
    module = planish.compile(
        made([*CHAIN, gradient("v w", "- dw", "y", "x w")], "dw", x=[1, 2], w=[2, 1], v=[1, 2])
    )
    v = np.array([[0.1, 0.2]], np.float32)
    t = np.tanh(v @ W)
    np.testing.assert_allclose(module(X, W, v)[0], v.T @ (2 * t * (1 - t * t)), rtol=1e-4)


def test_of_a_gradient() -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("Mul", "e x", "y"),
        gradient("x", "d", "y", "x"),
        gradient("x", "d2", "d", "x"),
    ]
    x = np.array([0.5, -1.0], np.float32)
    d, d2 = planish.compile(made(nodes, "d d2", x=[2]))(x)
    np.testing.assert_allclose(d, np.exp(x) * (x + 1), rtol=1e-5)
    np.testing.assert_allclose(d2, np.exp(x) * (x + 2), rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Tan", "x", "y"), gradient("x", "d", "y", "x")], "no gradient of tan is known"),
        ([node("Exp", "x", "y"), gradient("x x", "d", "y", "x")], "2 inputs, and names 1"),
        ([node("Exp", "x", "y"), gradient("x x", "d d2", "y", "x x")], "named twice"),
        (
            [node("Exp", "x", "y"), gradient("x", "d", "q", "x")],
            "'q', which no node beside it makes",
        ),
    ],
)
def test_errors(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        planish.compile(made(nodes, "d", x=[2]))


def network() -> onnx.ModelProto:
    """A small convolutional network in f64, its loss, and the gradients of that."""
    norm = node("BatchNormalization", "c s b m v", "n m2 v2", epsilon=1e-3, training_mode=1)
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1], strides=[2, 1]),
        norm,
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[1, 2]),
        node("AveragePool", "p", "q", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "q", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f u z", "l"),
        node("SoftmaxCrossEntropyLoss", "l t", "loss"),
        gradient("x w s b u z", "dx dw ds db du dz", "loss", "x w s b u z"),
    ]
    ports = [helper.make_tensor_value_info(k, TensorProto.DOUBLE, s) for k, s in SHAPES.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [*ports, helper.make_tensor_value_info("t", TensorProto.INT64, ["n"])],
        [onnx.ValueInfoProto(name=name) for name in ["loss", "dx", "dw", "ds", "db", "du", "dz"]],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


SHAPES: dict[str, list[Any]] = {
    "x": ["n", 3, "h", 8],
    "w": [4, 3, 3, 3],
    **dict.fromkeys("sbmv", [4]),
    "u": [4, 5],
    "z": [5],
}


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_of_a_convolutional_network(target: str) -> None:
    """Along random directions, at two sizes of one module."""
    module, rng = planish.compile(network(), target=target), np.random.default_rng(0)
    for sizes in ({"n": 2, "h": 7}, {"n": 1, "h": 4}):
        shapes = {k: [sizes.get(d, d) for d in s] for k, s in SHAPES.items()}
        inputs = {k: rng.standard_normal(s) for k, s in shapes.items()}
        inputs |= {"v": rng.uniform(0.5, 2.0, 4), "t": rng.integers(0, 5, sizes["n"])}
        out = module.run(inputs)
        for k in ["x", "w", "s", "b", "u", "z"]:
            along = 1e-6 * rng.standard_normal(shapes[k])
            low, high = (
                module.run({**inputs, k: inputs[k] + sign * along})["loss"] for sign in (-1, 1)
            )
            wanted = (high - low) / 2
            np.testing.assert_allclose((out[f"d{k}"] * along).sum(), wanted, rtol=1e-4, atol=1e-13)
