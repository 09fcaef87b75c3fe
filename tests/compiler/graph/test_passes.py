"""All passes on random graphs: results stay, and graphs stay graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planish.compiler.expr.nodes import const
from planish.compiler.graph.fuse import fuse
from planish.compiler.graph.ir import Array, Graph
from planish.compiler.graph.layout import cost
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.verify import verify
from planish.compiler.pipeline import GRAPH_PASSES, Pass, run

from .random_graphs import Example, examples
from .tables import sample
from .test_fuse import well_formed

EXAMPLES = 40


def inputs_of(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    symbols = {v: const(2, v.dtype) for v in graph.symbols}
    return {v.name: sample(v.type, symbols, rng) for v in graph.inputs}


def assert_close(new: tuple[Array, ...], old: tuple[Array, ...], graph: Graph) -> None:
    for a, b in zip(new, old, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * scale, err_msg=repr(graph))


@pytest.mark.parametrize("p", GRAPH_PASSES, ids=lambda p: p.name)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_pass_keeps_values(p: Pass[Graph], data: st.DataObject) -> None:
    graph = data.draw(examples()).graph
    new = p.run(graph)
    verify(new)
    inputs = inputs_of(graph)
    assert_close(run_reference(new, inputs), run_reference(graph, inputs), graph)
    assert p.run(new) is new or p.name == "transposes", "it does not settle"


@settings(max_examples=4 * EXAMPLES)
@given(example=examples())
def test_all_passes_keep_values(example: Example) -> None:
    graph = example.graph
    steps: list[Graph] = [graph]
    new = run(graph, GRAPH_PASSES, observe=lambda _, g: steps.append(g))
    for g in steps:
        verify(g)
    inputs = inputs_of(graph)
    assert_close(run_reference(new, inputs), run_reference(graph, inputs), graph)
    well_formed(new, fuse(new))


@settings(max_examples=EXAMPLES)
@given(example=examples())
def test_transposes_cost_no_more_than_before(example: Example) -> None:
    graph = example.graph
    (sink,) = (p for p in GRAPH_PASSES if p.name == "transposes")
    assert cost(sink.run(graph)) <= cost(graph)
