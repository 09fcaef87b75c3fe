"""Graphs within graphs: passes, text and checks."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.dtypes import I64
from planish.compiler.errors import ParseError
from planish.compiler.expr.nodes import Var, const
from planish.compiler.graph.canonicalize import canonicalize
from planish.compiler.graph.cse import eliminate_common
from planish.compiler.graph.dce import eliminate_dead
from planish.compiler.graph.fold import fold_constants, is_closed
from planish.compiler.graph.ir import Graph
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.subgraphs import everywhere, substituted, symbols_of
from planish.compiler.graph.text import large_constants, parse, show
from planish.compiler.graph.verify import verify
from planish.compiler.pipeline import GRAPH_PASSES, run

CHOICE = """\
def g(c: bool[()], x: f32[n, 4]) -> (y,):
    t: f32[n, 4] = exp(x)
    def then(t: f32[n, 4], x: f32[n, 4]) -> (r,):
        dead: f32[n, 4] = neg(x)
        r: f32[n, 4] = neg(t)
    def other(t: f32[n, 4], x: f32[n, 4]) -> (r,):
        a: f32[n, 4] = add(t, t)
        b: f32[n, 4] = add(t, t)
        r: f32[n, 4] = mul(a, b)
    y: f32[n, 4] = if_(c, t, x, then=then, other=other)
"""
NESTED = """\
def g(c: bool[()], d: bool[1], x: f32[4]) -> (y,):
    def then(d: bool[1], x: f32[4]) -> (r,):
        w: f32[20] = constant('then.w')
        def then(x: f32[4]) -> (x,):
            v: f32[20] = constant('then.then.v')
        def other(x: f32[4]) -> (r,):
            r: f32[4] = neg(x)
        r: f32[4] = if_(d, x, then=then, other=other)
    def other(d: bool[1], x: f32[4]) -> (x,):
        pass
    y: f32[4] = if_(c, d, x, then=then, other=other)
    z: f32[4] = if_(d, d, x, then=other, other=then)
"""
BIG = {"then.w": np.zeros(20, np.float32), "then.then.v": np.ones(20, np.float32)}


def value(g: Graph, c: bool, x: np.ndarray) -> np.ndarray:
    return run_reference(g, {"c": np.array(c), "x": x})[0]


def test_text_of_graphs_within_graphs() -> None:
    for text, arrays in ((CHOICE, {}), (NESTED, BIG)):
        g = parse(text, arrays)
        assert show(g) == text
        assert show(parse(show(g), large_constants(g))) == text
        assert large_constants(g).keys() == arrays.keys()


def test_graphs_of_one_name_are_told_apart() -> None:
    text = NESTED.replace("then=other, other=then", "then=other, other=same")
    same = "    def same(d: bool[1], x: f32[4]) -> (x,):\n        pass\n    z:"
    g = parse(text.replace("    z:", same), BIG)
    graphs = [graph for node in g.nodes for graph in node.op.graphs.values()]
    object.__setattr__(graphs[-1], "name", "then")
    assert "def then_1(" in show(g)
    assert show(parse(show(g), BIG)) == show(g)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("then=then", "then=none", "there is no graph none"),
        ("def other", "def then", "two graphs then"),
        ("r: f32[n, 4] = neg(t)", "r: f32[n, 4] = neg(c)", "there is no value c"),
        ("r: f32[n, 4] = neg(t)", "r: f32[n, 4] = frob(t)", "there is no operator frob"),
        ("if_(c, t, x,", "if_(c, t,", "1 inputs for a branch that takes 2"),
        ("r: f32[n, 4] = neg(t)", "r: f32[n, 3] = neg(t)", "its shape rule gives"),
        ("mul(a, b)", "equal(a, b)", "equal"),
    ],
)
def test_text_that_is_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(CHOICE.replace(old, new))


EXPANDED = """\
def g(c: bool[()], k: f32[1], x: f32[n]) -> (y,):
    def then(k: f32[1]) -> (r,):
        r: f32[n] = expand(k, shape=(n,))
    def other(k: f32[1]) -> (r,):
        t: f32[1] = neg(k)
        r: f32[n] = expand(t, shape=(n,))
    y: f32[n] = if_(c, k, then=then, other=other)
"""


def test_subgraphs_have_the_symbols_around_them() -> None:
    g = parse(EXPANDED)
    inputs = {"c": np.array(False), "k": np.ones(1, np.float32), "x": np.ones(3, np.float32)}
    np.testing.assert_array_equal(run_reference(g, inputs)[0], [-1, -1, -1])
    with pytest.raises(ParseError, match="m in m is no symbol"):
        parse(EXPANDED.replace("expand(k, shape=(n,))", "expand(k, shape=(m,))"))


def test_passes_go_into_subgraphs() -> None:
    g = parse(CHOICE)
    smaller = everywhere(everywhere(g, eliminate_dead), eliminate_common)
    verify(smaller)
    (then, other) = (graph for node in smaller.nodes for graph in node.op.graphs.values())
    assert len(then.nodes) == 1 and len(everywhere(other, eliminate_dead).nodes) == 2
    assert everywhere(smaller, eliminate_dead) is not g
    same = run(g, GRAPH_PASSES, observe=lambda _, graph: verify(graph))
    assert run(same, GRAPH_PASSES) is same
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for c in (True, False):
        np.testing.assert_array_equal(value(same, c, x), value(g, c, x))


def test_inputs_that_no_branch_reads_are_dropped() -> None:
    g = canonicalize(everywhere(parse(CHOICE), eliminate_dead))
    assert [len(node.inputs) for node in g.nodes if node.op.graphs] == [2]
    verify(g)


def test_constants_become_those_of_branches() -> None:
    text = CHOICE.replace("t: f32[n, 4] = exp(x)", "t: f32[4] = constant([1.0, 2.0, 3.0, 4.0])")
    g = canonicalize(everywhere(parse(text.replace("f32[n, 4]", "f32[4]")), eliminate_dead))
    (then, other) = (graph for node in g.nodes for graph in node.op.graphs.values())
    assert not g.constants and not then.inputs and len(then.constants) == 1
    verify(g)


@pytest.mark.parametrize("c", ["True", "False"])
def test_a_branch_whose_condition_is_known_stands_in_the_node_s_place(c: str) -> None:
    text = CHOICE.replace("def g(c: bool[()], x", "def g(x")
    g = parse(text.replace("    t:", f"    c: bool[()] = constant({c})\n    t:", 1))
    inlined = eliminate_dead(canonicalize(g))
    verify(inlined)
    assert not any(node.op.graphs for node in inlined.nodes)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for found, want in zip(
        run_reference(inlined, {"x": x}), run_reference(g, {"x": x}), strict=True
    ):
        np.testing.assert_array_equal(found, want)


def test_symbols_within() -> None:
    g = parse(CHOICE)
    (node,) = (node for node in g.nodes if node.op.graphs)
    assert not is_closed(node)
    assert symbols_of(node.op.graphs["then"]) == (Var("n"),)
    fixed = substituted(g, {Var("n"): const(3, I64)})
    verify(fixed)
    assert symbols_of(fixed) == () and is_closed(fixed.nodes[-1])
    assert fold_constants(g) is g
