"""Dimensions may bear any name, those of the compiler's own variables too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import planish

OWN = ["i0", "i1", "r0", "v0", "s0", "rf", "d0", "i0_i1", "i0_0", "s0_i1", "x", "b0"]


def model(name: str, first: bool) -> bytes:
    """The mean over rows of exp(x), one of whose dimensions has the name."""
    dims = [name, "other"] if first else ["other", name]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("ReduceMean", ["e"], ["y"], axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "named", [x], [y])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("first", [True, False])
def test_any_name(name: str, first: bool) -> None:
    module = planish.compile(model(name, first), threads=1)
    for shape in ((3, 5), (17, 33)):
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        (y,) = module(x)
        np.testing.assert_allclose(y, np.exp(x.astype(np.float64)).mean(axis=1), rtol=1e-5)
