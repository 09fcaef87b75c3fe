from __future__ import annotations

import numpy as np
import pytest

from planish.build import compile_imported, resolve_target
from planish.compiler.graph.text import parse
from planish.compiler.graph.verify import verify
from planish.folding import constant_nodes, fold_by_kernels

FOLDED = """
def f(x: f32[n, 40]) -> (y, b):
    c: f32[40] = constant("c")
    w: f32[40, 40] = constant("w")
    a: f32[1, 40] = reshape(c, shape=(1, 40))
    b: f32[1, 40] = exp(a)
    d: f32[1, 40] = matmul(b, w)
    e: f32[1, 40] = softmax(d)
    y: f32[n, 40] = add(x, e)
"""
COMPUTED = """
def f(x: f32[n, 40], c: f32[40]) -> (y, b):
    w: f32[40, 40] = constant("w")
    a: f32[1, 40] = reshape(c, shape=(1, 40))
    b: f32[1, 40] = exp(a)
    d: f32[1, 40] = matmul(b, w)
    e: f32[1, 40] = softmax(d)
    y: f32[n, 40] = add(x, e)
"""


def test_a_folded_constant_is_the_computed_one() -> None:
    rng = np.random.default_rng(0)
    arrays = {"c": rng.normal(size=40).astype("f4"), "w": rng.normal(size=(40, 40)).astype("f4")}
    target = resolve_target(None)
    graph = fold_by_kernels(parse(FOLDED, arrays), target)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["add"]
    module = compile_imported(parse(COMPUTED, arrays), target, 1)
    x = np.zeros((1, 40), np.float32)
    for constant, computed in zip(
        graph.constants.values(), module(x, arrays["c"])[::-1], strict=True
    ):
        np.testing.assert_array_equal(constant, computed)


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[n, 4] = exp(x)",
        "y: f32[n, 4] = expand(c, shape=(n, 4))",  # how large is not known
        "y: f32[2048, 2048, 4] = expand(c, shape=(2048, 2048, 4))",  # too large
        "y: f32[2048, 2048] = constant_of_shape(shape=(2048, 2048), value=f32(1.0))",
    ],
)
def test_left_alone(line: str) -> None:
    graph = parse(
        f"""
def f(x: f32[n, 4]) -> (y,):
    c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
    {line}
"""
    )
    assert constant_nodes(graph) == []
    assert fold_by_kernels(graph, resolve_target(None)) is graph
