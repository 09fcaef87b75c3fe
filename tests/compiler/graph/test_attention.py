from __future__ import annotations

import pytest

from planish.compiler.graph.attention import compose_attention

from .tables import assert_same_values, check, read, unchanged

COMPOSED = {
    "plain": (
        """
    def f(q: f32[2, 9, 4], k: f32[2, 4, 7], v: f32[2, 7, 3]) -> (y,):
        s: f32[2, 9, 7] = matmul(q, k)
        w: f32[2, 9, 7] = softmax(s)
        y: f32[2, 9, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[2, 9, 4], k: f32[2, 4, 7], v: f32[2, 7, 3]) -> (y,):
        y: f32[2, 9, 3] = attention(q, k, v)
    """,
    ),
    "mask, keys in rows": (
        """
    def f(q: f32[2, 9, 4], k: f32[2, 7, 4], v: f32[2, 7, 3], m: f32[9, 7]) -> (y,):
        s: f32[2, 9, 7] = matmul(q, k, transpose_b=True)
        t: f32[2, 9, 7] = add(m, s)
        w: f32[2, 9, 7] = softmax(t)
        y: f32[2, 9, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[2, 9, 4], k: f32[2, 7, 4], v: f32[2, 7, 3], m: f32[9, 7]) -> (y,):
        a: f32[2, 4, 7] = transpose(k, perm=(0, 2, 1))
        y: f32[2, 9, 3] = attention(q, a, v, m)
    """,
    ),
    "a number goes to the queries": (
        """
    def f(q: f32[9, 2, 4], k: f32[2, 4, 7], v: f32[2, 7, 3], m: f32[9, 7]) -> (y,):
        c: f32[1] = constant([0.5])
        a: f32[2, 9, 4] = transpose(q, perm=(1, 0, 2))
        s: f32[2, 9, 7] = matmul(a, k)
        r: f32[2, 9, 7] = mul(c, s)
        t: f32[2, 9, 7] = add(r, m)
        w: f32[2, 9, 7] = softmax(t)
        y: f32[2, 9, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[9, 2, 4], k: f32[2, 4, 7], v: f32[2, 7, 3], m: f32[9, 7]) -> (y,):
        c: f32[()] = constant(0.5)
        b: f32[9, 2, 4] = mul(q, c)
        a: f32[2, 9, 4] = transpose(b, perm=(1, 0, 2))
        y: f32[2, 9, 3] = attention(a, k, v, m)
    """,
    ),
    "rows that are masked altogether are zero": (
        """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3], m: f32[9, 7]) -> (y,):
        z: f32[1] = constant([0.0])
        s: f32[9, 7] = matmul(q, k)
        t: f32[9, 7] = add(s, m)
        w: f32[9, 7] = softmax(t)
        c: bool[9, 7] = is_nan(w)
        u: f32[9, 7] = where(c, z, w)
        y: f32[9, 3] = matmul(u, v)
    """,
        """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3], m: f32[9, 7]) -> (y,):
        y: f32[9, 3] = attention(q, k, v, m, empty_is_zero=True)
    """,
    ),
}

KEPT = {
    "scores that are an output": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3]) -> (y, s):
        s: f32[9, 7] = matmul(q, k)
        w: f32[9, 7] = softmax(s)
        y: f32[9, 3] = matmul(w, v)
    """,
    "softmax along the other axis": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3]) -> (y,):
        s: f32[9, 7] = matmul(q, k)
        w: f32[9, 7] = softmax(s, axes=(0,))
        y: f32[9, 3] = matmul(w, v)
    """,
    "few queries": """
    def f(q: f32[1, 4], k: f32[4, 7], v: f32[7, 3]) -> (y,):
        s: f32[1, 7] = matmul(q, k)
        w: f32[1, 7] = softmax(s)
        y: f32[1, 3] = matmul(w, v)
    """,
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name: str) -> None:
    check(compose_attention, *COMPOSED[name])


@pytest.mark.parametrize("name", COMPOSED)
def test_same_values(name: str) -> None:
    graph = read(COMPOSED[name][0])
    assert_same_values(graph, compose_attention(graph))


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    unchanged(compose_attention, KEPT[name])
