"""Tables of graphs before and after a pass, in the text form."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping

import numpy as np

from planish.compiler.dtypes import BOOL
from planish.compiler.expr.nodes import Expr, Var, const
from planish.compiler.expr.sizes import evaluate
from planish.compiler.graph.ir import Array, Graph, TensorType
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import parse, show
from planish.compiler.graph.verify import verify

SIZES = {"n": 3, "m": 2, "h": 6, "w": 5}


def check(
    passed: Callable[[Graph], Graph],
    before: str,
    after: str,
    exact: bool = False,
    arrays: Mapping[str, Array] | None = None,
) -> Graph:
    """Assert that the pass makes ``after`` of ``before``, up to names, and keeps the values."""
    graph = read(before, arrays)
    new = passed(graph)
    verify(new)
    assert normal(new) == normal(read(after, arrays)), show(new)
    assert_same_values(graph, new, exact)
    return new


def unchanged(
    passed: Callable[[Graph], Graph], before: str, arrays: Mapping[str, Array] | None = None
) -> None:
    """Assert that the pass gives the same graph back."""
    graph = read(before, arrays)
    new = passed(graph)
    assert new is graph, show(new)


def read(text: str, arrays: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a text; constants that it names are given or random."""
    text = textwrap.dedent(text)
    found = dict(arrays or {})
    for name, dims in re.findall(r"(\w+): f32\[([\d, ]+)\] = constant\(\"\w+\"\)", text):
        if name not in found:
            shape = tuple(int(d) for d in dims.split(","))
            seed = np.random.default_rng(len(name) + sum(shape))
            found[name] = seed.uniform(0.5, 1.5, shape).astype(np.float32)
    return parse(text, found)


def normal(graph: Graph) -> str:
    """The text with values numbered, and constants in order of use, without large arrays."""
    order = {v: k for k, v in enumerate(v for node in graph.nodes for v in node.operands)}
    constants = sorted(graph.constants, key=lambda v: order.get(v, len(order)))
    graph = graph.with_(constants={v: graph.constants[v] for v in constants})
    lines = show(graph).splitlines()
    names = [v.name for v in graph.values()]
    number = {name: f"v{k}" for k, name in enumerate(names)}
    out = []
    for line in lines:
        code = line.split("  #")[0]
        code = re.sub(r"constant\([\"'].*[\"']\)", "constant(...)", code)
        code = re.sub(r"^    (names\(.*|assume\(.*|pass)$", "", code)
        out.append(re.sub(r"\b\w+\b(?!\()", lambda m: number.get(m[0], m[0]), code))
    return re.sub(r"def \w+", "def f", "\n".join(x for x in out if x))


def assert_same_values(before: Graph, after: Graph, exact: bool = False) -> None:
    """Assert that two graphs give the same for some inputs."""
    rng = np.random.default_rng(1)
    symbols: dict[Var, Expr] = {v: const(SIZES.get(v.name, 4), v.dtype) for v in before.symbols}
    inputs = {
        name: sample(v.type, symbols, rng)
        for name, v in zip(before.input_names, before.inputs, strict=True)
    }
    for old, new in zip(run_reference(before, inputs), run_reference(after, inputs), strict=True):
        assert old.dtype == new.dtype and old.shape == new.shape
        if exact or old.dtype.kind in "iub":
            np.testing.assert_array_equal(old, new)
        else:
            scale = np.abs(old[np.isfinite(old)]).max(initial=1.0)
            np.testing.assert_allclose(new, old, rtol=2e-5, atol=2e-5 * scale)


def sample(type: TensorType, symbols: dict[Var, Expr], rng: np.random.Generator) -> Array:
    """An array of a type."""
    shape = tuple(int(evaluate(d, symbols) or 0) for d in type.shape)
    if type.dtype is BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if type.dtype.is_int:
        return rng.integers(-3, 4, shape).astype(type.dtype.numpy)
    return rng.normal(size=shape).astype(type.dtype.numpy)
