"""What the verifier finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Var, as_expr, const, eq
from planish.compiler.graph.ir import Graph, GraphBuilder, Value, tensor
from planish.compiler.graph.verify import verify
from planish.compiler.ops.activations import Relu
from planish.compiler.ops.creation import Range
from planish.compiler.ops.elementwise import Add

N, Q = Var("n"), Var("q")


def example() -> Graph:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N))
    c = b.constant(np.array([1, 2]), "c")
    y = b.one(Relu(), x, name="y")
    z = b.one(Add(), y, x, name="z")
    return b.finish([z, c])


def test_a_graph_is_one() -> None:
    verify(example())
    b = GraphBuilder()
    verify(b.finish([b.input("x", tensor(F32))]))


def with_node(g: Graph, k: int, **changes: Any) -> Graph:
    nodes = list(g.nodes)
    nodes[k] = replace(nodes[k], **changes)
    return g.with_(nodes=tuple(nodes))


OTHER = Value("other", tensor(F32, N))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.with_(nodes=g.nodes[::-1]), "y is used before it is made"),
        (lambda g: g.with_(nodes=(*g.nodes, g.nodes[0])), "y is made twice"),
        (lambda g: g.with_(outputs=(OTHER, OTHER)), "the output is not made"),
        (lambda g: with_node(g, 0, inputs=(OTHER,)), "other is used before"),
        (lambda g: with_node(g, 0, outputs=(Value("x", tensor(F32, N)),)), "called x"),
        (lambda g: with_node(g, 1, outputs=(Value("z", tensor(F32, 3)),)), "its shape rule gives"),
        (lambda g: with_node(g, 1, outputs=(Value("z", tensor(I64, N)),)), "its shape rule gives"),
        (lambda g: with_node(g, 1, outputs=g.nodes[1].outputs * 2), "it gives 1 values"),
        (lambda g: with_node(g, 0, inputs=(list(g.constants)[0],)), "its shape rule gives i64"),
        (
            lambda g: g.with_(constants={v: a[:1] for v, a in g.constants.items()}),
            "the constant is",
        ),
        (lambda g: g.with_(constraints=(eq(Q, 1),)), "q in q == 1 is no symbol"),
        (lambda g: g.with_(constraints=(N,)), "is no condition"),
        (lambda g: g.with_(input_names=()), "differ in number"),
        (lambda g: g.with_(defaults={"u": np.zeros(1)}), "a default for u"),
        (lambda g: g.with_(defaults={"x": np.zeros(1)}), "the default is float64"),
        (lambda g: g.with_(inputs=(Value("x", tensor(F32, -1)),)), "is no dimension"),
    ],
)
def test_what_is_no_graph(change: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(change(example()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((const(1, I64),), "1 elements are known"),
        ((Q, Q), "is no symbol"),
        ((const(1.0, F32), const(1.0, F32)), "is not all i64"),
    ],
)
def test_contents(content: Any, message: str) -> None:
    b = GraphBuilder()
    (array,) = [np.array([1, 2])]
    value = Value("c", tensor(I64, 2), content)
    g = b.finish([value]).with_(constants={value: array})
    with pytest.raises(InternalError, match=message):
        verify(g)


def test_attributes_are_over_symbols() -> None:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N))
    y = b.one(Range(as_expr(0), as_expr(1), Q))
    with pytest.raises(InternalError, match="q in q is no symbol of the inputs"):
        verify(b.finish([x, y]))


def test_dimensions_are_compared_by_value() -> None:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N))
    y = b.one(Range(as_expr(0), as_expr(1), N * 2))
    g = b.finish([x, y])
    verify(
        with_node(g, 0, outputs=(Value("y", tensor(I64, N + N)),))
        .with_(outputs=())
        .with_(output_names=())
    )
