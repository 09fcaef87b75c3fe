"""Running graphs by the operators' references."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.dtypes import F32
from planish.compiler.errors import RuntimeFault, TypeCheckError
from planish.compiler.expr.nodes import Var, le
from planish.compiler.graph.ir import Array, Graph, GraphBuilder, Node, tensor
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.sampling import f32
from planish.compiler.ops.shape import Reshape

N = Var("n")


def example() -> Graph:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N, 2))
    w = b.input("w", tensor(F32, 2))
    b.defaults["w"] = f32(2)
    flat = b.one(Reshape((N * 2,)), b.one(Add(), x, w))
    b.constraints.append(le(2, N))
    return b.finish([flat, x])


def test_symbols_get_their_values() -> None:
    x = f32(3, 2)
    flat, same = run_reference(example(), {"x": x})
    np.testing.assert_array_equal(flat, (x + f32(2)).ravel())
    assert same is x
    (flat, _) = run_reference(example(), {"x": x, "w": f32(2, low=0)})
    np.testing.assert_array_equal(flat, (x + f32(2, low=0)).ravel())


def test_each_node_is_seen() -> None:
    seen: list[str] = []

    def observe(node: Node, outputs: tuple[Array, ...]) -> None:
        seen.append(f"{node.op.name} {outputs[0].shape}")

    run_reference(example(), {"x": f32(3, 2)}, observe)
    assert seen == ["add (3, 2)", "reshape (6,)"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": f32(3, 2), "y": f32(1)}, "there is no input 'y'"),
        ({"x": f32(3)}, "input 'x' is float32.3., not f32.n, 2."),
        ({"x": f32(3, 2).astype(np.float64)}, "input 'x' is float64"),
        ({"x": f32(3, 4)}, "dimension 2 of input 'x' is 4"),
        ({"x": f32(1, 2)}, "2 <= n does not hold"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Array], message: str) -> None:
    with pytest.raises((RuntimeFault, TypeCheckError), match=message):
        run_reference(example(), inputs)
