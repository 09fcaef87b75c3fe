from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.graph.fuse import fuse
from planish.compiler.graph.ir import Graph
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.single import single_query
from planish.compiler.graph.verify import verify

from .tables import assert_same_values, normal, read

TURNED = """
    def f(q: f32[b, 2, m, 4], k: f32[b, 2, n, 4], v: f32[b, 2, n, 3], c: f32[m, n], a: bool[n]) -> (
        y,
    ):
        t: f32[b, 2, 4, n] = transpose(k, perm=(0, 1, 3, 2))
        y: f32[b, 2, m, 3] = attention(q, t, v, c, a, scale=0.5, masked=-9.0, empty_is_zero=True)
"""
WRITTEN_OUT = """
    def f(q: f32[b, 2, 1, 4], k: f32[b, 2, n, 4], v: f32[b, 2, n, 3], c: f32[1, n], a: bool[n]) -> (
        y,
    ):
        d: f32[()] = constant(0.5)
        e: f32[()] = constant(-9.0)
        z: f32[()] = constant(0.0)
        s: f32[b, 2, 1, n] = matmul(q, k, transpose_b=True)
        r: f32[b, 2, 1, n] = mul(s, d)
        o: f32[b, 2, 1, n] = add(r, c)
        p: f32[b, 2, 1, n] = where(a, o, e)
        w: f32[b, 2, 1, n] = softmax(p)
        i: bool[b, 2, 1, n] = is_nan(w)
        x: f32[b, 2, 1, n] = where(i, z, w)
        y: f32[b, 2, 1, 3] = matmul(x, v)
"""


def single(graph: Graph) -> Graph | None:
    (group,) = fuse(graph)
    found = single_query(group)
    return None if found is None else found[1]


def test_written_out() -> None:
    found = single(read(TURNED))
    assert found is not None
    verify(found)
    order = {v.name: v for v in found.inputs}
    found = found.with_(
        inputs=tuple(order[name] for name in "qkvca"), input_names=("q", "k", "v", "c", "a")
    )
    assert normal(found) == normal(read(WRITTEN_OUT))
    one = read(TURNED.replace("[b, 2, m", "[b, 2, 1").replace("[m, n]", "[1, n]"))
    assert_same_values(one, found)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scores_are_as_wide_as_those_of_attention(dtype: str) -> None:
    """They exceed the greatest f16, as the sums that attention takes in f32 may."""
    text = f"""
    def f(q: {dtype}[m, 128], k: {dtype}[128, n], v: {dtype}[n, 3]) -> (y,):
        y: {dtype}[m, 3] = attention(q, k, v, scale=0.0884)
    """
    found = single(read(text))
    assert found is not None
    verify(found)
    order = {v.name: v for v in found.inputs}
    found = found.with_(inputs=tuple(order[name] for name in "qkv"), input_names=tuple("qkv"))
    numpy = found.inputs[0].type.dtype.numpy
    q, k = np.full((1, 128), 28, numpy), np.full((128, 5), 28, numpy)
    k[:, 1] = -1
    v = np.arange(15).reshape(5, 3).astype(numpy)
    one = read(text.replace("[m,", "[1,"))
    with np.errstate(over="ignore", invalid="ignore"):
        (wanted,) = run_reference(one, {"q": q, "k": k, "v": v})
        (result,) = run_reference(found, {"q": q, "k": k, "v": v})
    assert np.isfinite(result.astype(np.float32)).all()
    np.testing.assert_allclose(result.astype("f4"), wanted.astype("f4"), rtol=1e-2)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ("9", "n"),  # it is known
        ("m", "m"),  # a single query has a single key
        ("m + n", "n"),  # no size by itself
    ],
)
def test_no_choice(rows: str, columns: str) -> None:
    graph = read(f"""
    def f(q: f32[{rows}, 4], k: f32[4, {columns}], v: f32[{columns}, 3], w: f32[m, n]) -> (y,):
        y: f32[{rows}, 3] = attention(q, k, v)
    """)
    assert single(graph) is None


def test_scores_of_halves_are_wide() -> None:
    """One row means what several mean: sums beyond the largest half are no infinities."""
    halves = TURNED.replace("f32", "f16")
    found = single(read(halves))
    assert found is not None
    verify(found)
    one = read(halves.replace("[b, 2, m", "[b, 2, 1").replace("[m, n]", "[1, n]"))
    names = tuple(one.input_names)
    order = {v.name: v for v in found.inputs}
    found = found.with_(inputs=tuple(order[name] for name in names), input_names=names)
    rng = np.random.default_rng(0)
    q = np.full((1, 2, 1, 4), 200, np.float16)
    k = (200 + rng.integers(0, 3, (1, 2, 5, 4))).astype(np.float16)
    v = rng.standard_normal((1, 2, 5, 3)).astype(np.float16)
    given = {"q": q, "k": k, "v": v, "c": np.zeros((1, 5), np.float16), "a": np.ones(5, bool)}
    (got,), (want,) = run_reference(found, given), run_reference(one, given)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol=1e-3)
