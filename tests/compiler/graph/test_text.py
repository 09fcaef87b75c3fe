"""Graphs as text, and back."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import ParseError
from planish.compiler.expr.nodes import Var, as_expr, const, le
from planish.compiler.graph.ir import Graph, GraphBuilder, tensor
from planish.compiler.graph.text import parse, show, show_node
from planish.compiler.graph.verify import verify
from planish.compiler.ops.base import Op
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.registry import load_operators
from planish.compiler.ops.shape import Reshape, Split

N = Var("n")


def example() -> Graph:
    b = GraphBuilder("example")
    x = b.input("x", tensor(F32, N, 4))
    w = b.input("w", tensor(F32, 2))
    b.defaults["w:0"] = np.array([0.5, -0.0], np.float32)
    big = b.constant(np.zeros((4, 8), np.float32), "big")
    small = b.constant(np.array([math.inf, math.nan, -1.5, 0.1], np.float32), "small")
    k = b.constant(np.array(3), "k")
    y = b.one(Add(), x, small, name="y", origin="/m/Add")
    p, q = b.apply(Split((as_expr(1), as_expr(3)), 1), y, names=["p", "q"])
    r = b.one(Reshape((N * 4,)), y, name="r")
    ends = (as_expr(0), as_expr(1))
    padded = b.one(Pad(ends, ends, fill=-math.inf), x, None, name="padded")
    steps = b.one(Range(const(0.5, F32), const(2.0, F32), N, F32), name="steps")
    half = b.one(Cast(I64), b.one(Add(), w, w, name="double"), name="half")
    b.constraints.append(le(2, N))
    g = b.finish([p, q, r, padded, steps, half, big, k], input_names=["x", "w:0"])
    verify(g)
    return g


GOLDEN = """\
def example(x: f32[n, 4], w: f32[2]) -> (p, q, r, padded, steps, half, big, k):
    names(inputs=('x', 'w:0'))
    assume(2 <= n)
    default('w:0', [0.5, -0.0])
    big: f32[4, 8] = constant('big')
    small: f32[4] = constant([inf, nan, -1.5, 0.1])
    k: i64[()] = constant(3)
    y: f32[n, 4] = add(x, small)  # /m/Add
    p, q = split[f32[n, 1], f32[n, 3]](y, sizes=(1, 3), axis=1)
    r: f32[n * 4] = reshape(y, shape=(n * 4,))
"""


def test_graphs_as_text() -> None:
    lines = show(example()).splitlines()
    assert lines[:10] == GOLDEN.splitlines()[:10]
    assert lines[10:] == [
        "    padded: f32[n, 6] = pad(x, None, before=(0, 1), after=(0, 1), fill=-inf)",
        "    steps: f32[n] = range(start=f32(0.5), delta=f32(2.0), count=n, dtype=f32)",
        "    double: f32[2] = add(w, w)",
        "    half: i64[2] = cast(double, dtype=i64)",
    ]


def test_text_parses_back() -> None:
    g = example()
    arrays = {v.name: a for v, a in g.constants.items()}
    back = parse(show(g), arrays)
    assert show(back) == show(g)
    for a, b in zip(g.constants.values(), back.constants.values(), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert [node.op for node in back.nodes] == [node.op for node in g.nodes]
    assert back.constraints == g.constraints and back.input_names == g.input_names
    assert back.nodes[0].origin == "/m/Add"
    assert math.copysign(1, back.defaults["w:0"][1]) == -1


@pytest.mark.parametrize(
    "array",
    [
        np.array([1e-45, 3.4e38, 1 / 3], np.float32),
        np.array([1e-320, 1 / 3], np.float64),
        np.array([6e-8, 65504, 1 / 3], np.float16),
        np.array([1 / 3, 1e38], ml_dtypes.bfloat16),
        np.array([2**64 - 1], np.uint64),
        np.array([-(2**63)], np.int64),
        np.array([[True, False]]),
        np.zeros((2, 0, 3), np.int8),
    ],
)
def test_constants_are_exact(array: np.ndarray) -> None:  # type: ignore[type-arg]
    b = GraphBuilder()
    g = b.finish([b.constant(array)])
    (back,) = parse(show(g)).constants.values()
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


load_operators()


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_every_operator_parses_back(name: str) -> None:
    for op, arrays in Op.registry[name].samples():
        b = GraphBuilder()
        inputs = [None if a is None else b.constant(a, f"c{k}") for k, a in enumerate(arrays)]
        g = b.finish(b.apply(op, *inputs))
        back = parse(show(g), {v.name: a for v, a in g.constants.items()})
        assert show(back) == show(g)
        assert repr(back.nodes[0].op) == repr(op)
        assert [v.content for v in back.outputs] == [v.content for v in g.outputs]


def test_an_empty_graph() -> None:
    b = GraphBuilder()
    x = b.input("x", tensor(F32))
    text = "def graph(x: f32[()]) -> (x,):\n    pass\n"
    assert show(b.finish([x])) == text and show(parse(text)) == text


def test_a_node_shows_itself() -> None:
    g = example()
    assert repr(g.nodes[0]) == show_node(g.nodes[0]) == "y: f32[n, 4] = add(x, small)  # /m/Add"


HEAD = "def f(x: f32[n, 4]) -> (y,):\n    "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "one function definition"),
        ("x = 1", "one function definition"),
        ("def f(", "not a graph"),
        ("def f(x) -> (x,):\n    pass", "the type of x is missing"),
        ("def f(x: f33[2]) -> (x,):\n    pass", "f33.2. is no type"),
        ("def f(x: f32[2], x: f32[2]) -> (x,):\n    pass", "x is made twice"),
        ("def f(x: f32[2]) -> x:\n    pass", "a tuple of names"),
        ("def f(x: f32[2]) -> (z,):\n    pass", "no value z"),
        (HEAD + "y: f32[n, 4] = reluu(x)", "no operator reluu"),
        (HEAD + "y: f32[n, 4] = relu(z)", "no value z"),
        (HEAD + "y: f32[n, 4] = relu(x, slope=1)", "has no attribute slope"),
        (HEAD + "y: f32[n, 4] = reshape(x)", "missing 1 required"),
        (HEAD + "y: f32[n, 5] = relu(x)", "its shape rule gives"),
        (HEAD + "x: f32[n, 4] = relu(x)", "x is made twice"),
        (HEAD + "y: f32[m, 4] = relu(x)", "its shape rule gives|is no symbol"),
        (HEAD + "y: f32[2] = constant('w')", "the constant w is not given"),
        (HEAD + "y: f32[2] = constant([1.0])", "not a constant of"),
        (HEAD + "y: f32[2] = constant(open('/etc/passwd'))", "no number"),
        (HEAD + "y: f32[n, 4] = relu(x) + 1", "not a statement"),
        (HEAD + "import os", "not a statement"),
        (HEAD + "default('q')\n    y: f32[n, 4] = relu(x)", "no input q"),
    ],
)
def test_what_is_no_graph(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_errors_name_the_line() -> None:
    with pytest.raises(ParseError) as caught:
        parse(HEAD + "y: f32[n, 4] = reluu(x)")
    assert caught.value.node == "2: y: f32[n, 4] = reluu(x)"
