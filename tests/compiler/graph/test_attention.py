from __future__ import annotations

import pytest

from planish.compiler.graph.attention import compose_attention
from planish.compiler.graph.canonicalize import canonicalize

from .tables import assert_same_values, check, normal, read, unchanged

# What is written out, and the same with attention composed.
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
    "mask, keys and values in rows": (
        """
    def f(q: f32[2, 9, 4], k: f32[2, 7, 4], v: f32[2, 3, 7], m: f32[9, 7]) -> (y,):
        s: f32[2, 9, 7] = matmul(q, k, transpose_b=True)
        t: f32[2, 9, 7] = add(m, s)
        w: f32[2, 9, 7] = softmax(t)
        y: f32[2, 9, 3] = matmul(w, v, transpose_b=True)
    """,
        """
    def f(q: f32[2, 9, 4], k: f32[2, 7, 4], v: f32[2, 3, 7], m: f32[9, 7]) -> (y,):
        a: f32[2, 4, 7] = transpose(k, perm=(0, 2, 1))
        b: f32[2, 7, 3] = transpose(v, perm=(0, 2, 1))
        y: f32[2, 9, 3] = attention(q, a, b, m)
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
    "divided by a number, at unknown lengths": (
        """
    def f(q: f32[b, h, m, 4], k: f32[b, h, 4, n], v: f32[b, h, n, 3], c: f32[b, 1, 1, n]) -> (y,):
        d: f32[()] = constant(4.0)
        s: f32[b, h, m, n] = matmul(q, k)
        r: f32[b, h, m, n] = div(s, d)
        t: f32[b, h, m, n] = sub(r, c)
        w: f32[b, h, m, n] = softmax(t)
        y: f32[b, h, m, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[b, h, m, 4], k: f32[b, h, 4, n], v: f32[b, h, n, 3], c: f32[b, 1, 1, n]) -> (y,):
        d: f32[()] = constant(0.25)
        p: f32[b, h, m, 4] = mul(q, d)
        e: f32[b, 1, 1, n] = neg(c)
        y: f32[b, h, m, 3] = attention(p, k, v, e)
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
    "a mask that chooses, and one that is added": (
        """
    def f(q: f32[2, m, 4], k: f32[2, 4, n], v: f32[2, n, 3], a: bool[m, n], c: f32[n]) -> (y,):
        z: f32[()] = constant(-1000.0)
        s: f32[2, m, n] = matmul(q, k)
        r: f32[2, m, n] = where(a, s, z)
        t: f32[2, m, n] = add(c, r)
        w: f32[2, m, n] = softmax(t)
        y: f32[2, m, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[2, m, 4], k: f32[2, 4, n], v: f32[2, n, 3], a: bool[m, n], c: f32[n]) -> (y,):
        y: f32[2, m, 3] = attention(q, k, v, a, c, masked=-1000.0)
    """,
    ),
    "a mask of what is hidden": (
        """
    def f(q: f32[2, m, 4], k: f32[2, 4, n], v: f32[2, n, 3], a: bool[m, n]) -> (y,):
        z: f32[1] = constant([-inf])
        s: f32[2, m, n] = matmul(q, k)
        t: f32[2, m, n] = where(a, z, s)
        w: f32[2, m, n] = softmax(t)
        y: f32[2, m, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[2, m, 4], k: f32[2, 4, n], v: f32[2, n, 3], a: bool[m, n]) -> (y,):
        b: bool[m, n] = logical_not(a)
        y: f32[2, m, 3] = attention(q, k, v, b)
    """,
    ),
    "heads are parted for the mask": (
        """
    def f(q: f32[8, m, 4], k: f32[8, 4, n], v: f32[8, n, 3], c: f32[4, 1, m, n]) -> (y,):
        s: f32[8, m, n] = matmul(q, k)
        r: f32[4, 2, m, n] = reshape(s, shape=(4, 2, m, n))
        t: f32[4, 2, m, n] = add(r, c)
        u: f32[8, m, n] = reshape(t, shape=(8, m, n))
        w: f32[8, m, n] = softmax(u)
        y: f32[8, m, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[8, m, 4], k: f32[8, 4, n], v: f32[8, n, 3], c: f32[4, 1, m, n]) -> (y,):
        d: f32[4, 2, m, 4] = reshape(q, shape=(4, 2, m, 4))
        e: f32[4, 2, 4, n] = reshape(k, shape=(4, 2, 4, n))
        g: f32[4, 2, n, 3] = reshape(v, shape=(4, 2, n, 3))
        w: f32[4, 2, m, 3] = attention(d, e, g, c)
        y: f32[8, m, 3] = reshape(w, shape=(8, m, 3))
    """,
    ),
    "windows: a bias before heads are parted, a mask behind": (
        """
    def f(q: f32[24, 2, 9, 4], k: f32[24, 2, 4, 9], v: f32[24, 2, 9, 4],
          p: f32[1, 2, 9, 9], c: f32[1, 6, 1, 9, 9]) -> (y,):
        s: f32[24, 2, 9, 9] = matmul(q, k)
        r: f32[24, 2, 9, 9] = add(s, p)
        t: f32[4, 6, 2, 9, 9] = reshape(r, shape=(4, 6, 2, 9, 9))
        u: f32[4, 6, 2, 9, 9] = add(t, c)
        x: f32[24, 2, 9, 9] = reshape(u, shape=(24, 2, 9, 9))
        w: f32[24, 2, 9, 9] = softmax(x)
        y: f32[24, 2, 9, 4] = matmul(w, v)
    """,
        """
    def f(q: f32[24, 2, 9, 4], k: f32[24, 2, 4, 9], v: f32[24, 2, 9, 4],
          p: f32[1, 2, 9, 9], c: f32[1, 6, 1, 9, 9]) -> (y,):
        d: f32[4, 6, 2, 9, 4] = reshape(q, shape=(4, 6, 2, 9, 4))
        e: f32[4, 6, 2, 4, 9] = reshape(k, shape=(4, 6, 2, 4, 9))
        g: f32[4, 6, 2, 9, 4] = reshape(v, shape=(4, 6, 2, 9, 4))
        h: f32[1, 1, 2, 9, 9] = reshape(p, shape=(1, 1, 2, 9, 9))
        w: f32[4, 6, 2, 9, 4] = attention(d, e, g, h, c)
        y: f32[24, 2, 9, 4] = reshape(w, shape=(24, 2, 9, 4))
    """,
    ),
    "heads that share keys, joined for the mask": (
        """
    def f(q: f32[b, 2, 3, m, 4], k: f32[b, 2, 1, 4, n], v: f32[b, 2, 1, n, 3],
          c: f32[b, 1, m, n], p: f32[6, m, n]) -> (y,):
        s: f32[b, 2, 3, m, n] = matmul(q, k)
        r: f32[b, 6, m, n] = reshape(s, shape=(b, 6, m, n))
        a: f32[b, 6, m, n] = add(r, p)
        t: f32[b, 6, m, n] = add(a, c)
        u: f32[b, 6, m, n] = softmax(t)
        w: f32[b, 2, 3, m, n] = reshape(u, shape=(b, 2, 3, m, n))
        y: f32[b, 2, 3, m, 3] = matmul(w, v)
    """,
        """
    def f(q: f32[b, 2, 3, m, 4], k: f32[b, 2, 1, 4, n], v: f32[b, 2, 1, n, 3],
          c: f32[b, 1, m, n], p: f32[6, m, n]) -> (y,):
        d: f32[1, 2, 3, m, n] = reshape(p, shape=(1, 2, 3, m, n))
        e: f32[b, 1, 1, m, n] = reshape(c, shape=(b, 1, 1, m, n))
        y: f32[b, 2, 3, m, 3] = attention(q, k, v, d, e)
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
    "weights that are an output": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3]) -> (y, w):
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
    "a mask that makes more scores": """
    def f(q: f32[1, 9, 4], k: f32[1, 4, 7], v: f32[1, 7, 3], m: f32[2, 9, 7]) -> (y,):
        s: f32[1, 9, 7] = matmul(q, k)
        t: f32[2, 9, 7] = add(s, m)
        w: f32[2, 9, 7] = softmax(t)
        y: f32[2, 9, 3] = matmul(w, v)
    """,
    "a number after the mask": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3], m: f32[9, 7]) -> (y,):
        c: f32[()] = constant(0.5)
        s: f32[9, 7] = matmul(q, k)
        t: f32[9, 7] = add(s, m)
        u: f32[9, 7] = mul(t, c)
        w: f32[9, 7] = softmax(u)
        y: f32[9, 3] = matmul(w, v)
    """,
    "scores rounded, where they may overflow": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f16[7, 3]) -> (y,):
        s: f32[9, 7] = matmul(q, k)
        t: f16[9, 7] = cast(s, dtype=f16)
        w: f16[9, 7] = softmax(t)
        y: f16[9, 3] = matmul(w, v)
    """,
    "masks of two numbers": """
    def f(q: f32[9, 4], k: f32[4, 7], v: f32[7, 3], a: bool[9, 7], b: bool[7]) -> (y,):
        c: f32[()] = constant(-5.0)
        d: f32[()] = constant(-6.0)
        s: f32[9, 7] = matmul(q, k)
        t: f32[9, 7] = where(a, s, c)
        u: f32[9, 7] = where(b, t, d)
        w: f32[9, 7] = softmax(u)
        y: f32[9, 3] = matmul(w, v)
    """,
}

# How exporters repeat keys and values for the heads that share them.
REPEATED = {
    "expand": """
        e: f32[b, 2, 1, n, 4] = reshape(k, shape=(b, 2, 1, n, 4))
        g: f32[b, 2, 3, n, 4] = expand(e, shape=(b, 2, 3, n, 4))
        h: f32[b, 6, n, 4] = reshape(g, shape=(b, 6, n, 4))
        i: f32[b, 2, 1, n, 4] = reshape(v, shape=(b, 2, 1, n, 4))
        j: f32[b, 2, 3, n, 4] = expand(i, shape=(b, 2, 3, n, 4))
        l: f32[b, 6, n, 4] = reshape(j, shape=(b, 6, n, 4))
    """,
    "tile": """
        e: f32[b, 2, 1, n, 4] = reshape(k, shape=(b, 2, 1, n, 4))
        g: f32[b, 2, 3, n, 4] = tile(e, repeats=(1, 1, 3, 1, 1))
        h: f32[b, 6, n, 4] = reshape(g, shape=(b, 6, n, 4))
        i: f32[b, 2, 1, n, 4] = reshape(v, shape=(b, 2, 1, n, 4))
        j: f32[b, 2, 3, n, 4] = tile(i, repeats=(1, 1, 3, 1, 1))
        l: f32[b, 6, n, 4] = reshape(j, shape=(b, 6, n, 4))
    """,
    "expand, then a number": """
        e: f32[b, 2, 1, n, 4] = reshape(k, shape=(b, 2, 1, n, 4))
        g: f32[b, 2, 3, n, 4] = expand(e, shape=(b, 2, 3, n, 4))
        x: f32[b, 6, n, 4] = reshape(g, shape=(b, 6, n, 4))
        z: f32[()] = constant(0.5)
        h: f32[b, 6, n, 4] = mul(x, z)
        i: f32[b, 2, 1, n, 4] = reshape(v, shape=(b, 2, 1, n, 4))
        j: f32[b, 2, 3, n, 4] = expand(i, shape=(b, 2, 3, n, 4))
        l: f32[b, 6, n, 4] = reshape(j, shape=(b, 6, n, 4))
    """,
}


def repeated(lines: str, mask: str = "b, 1, m, n") -> str:
    """Attention of six heads, of which three share keys and values."""
    return f"""
    def f(q: f32[b, 6, m, 4], k: f32[b, 2, n, 4], v: f32[b, 2, n, 4], c: f32[{mask}]) -> (y,):
        {lines.strip()}
        a: f32[b, 6, 4, n] = transpose(h, perm=(0, 1, 3, 2))
        s: f32[b, 6, m, n] = matmul(q, a)
        d: f32[()] = constant(0.5)
        r: f32[b, 6, m, n] = mul(s, d)
        t: f32[b, 6, m, n] = add(r, c)
        w: f32[b, 6, m, n] = softmax(t)
        y: f32[b, 6, m, 4] = matmul(w, l)
    """


WIDER = """
    def f(q: f16[2, m, 4], k: f16[2, 4, n], v: f16[2, n, 3], c: f32[n]) -> (y,):
        d: f16[()] = constant(0.25)
        p: f16[2, m, n] = matmul(q, k)
        r: f16[2, m, n] = mul(p, d)
        s: f32[2, m, n] = cast(r, dtype=f32)
        t: f32[2, m, n] = add(s, c)
        w: f32[2, m, n] = softmax(t)
        x: f16[2, m, n] = cast(w, dtype=f16)
        y: f16[2, m, 3] = matmul(x, v)
    """


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name: str) -> None:
    check(compose_attention, *COMPOSED[name])


def test_softmax_in_wider_floats() -> None:
    found = compose_attention(read(WIDER))
    wanted = """
    def f(q: f16[2, m, 4], k: f16[2, 4, n], v: f16[2, n, 3], c: f32[n]) -> (y,):
        y: f16[2, m, 3] = attention(q, k, v, c, scale=0.25)
    """
    assert normal(found) == normal(read(wanted))


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    unchanged(compose_attention, KEPT[name])


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("mask", ["n", "m, n", "b, 1, m, n", "6, 1, 1", "b, 6, m, n"])
def test_keys_are_not_repeated(name: str, mask: str) -> None:
    graph = read(repeated(REPEATED[name], mask))
    new = canonicalize(compose_attention(canonicalize(graph)))
    found = [x for x in new.nodes if x.op.name == "attention"]
    assert len(found) == 1
    assert not any(x.op.name in ("expand", "tile") for x in new.nodes)
    assert [str(found[0].operands[k].type.shape[2]) for k in (1, 2)] == ["1", "1"]
    assert_same_values(graph, new)
