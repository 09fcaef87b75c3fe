from __future__ import annotations

import pytest

from planish.compiler.graph.fuse import Group, fuse, singletons
from planish.compiler.graph.ir import Graph

from .tables import read

CONV = "strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), channels_last=True"


def names(groups: tuple[Group, ...]) -> list[str]:
    """The operators of each group, those that are code."""
    return [f"{g.kind}: {' '.join(x.op.name for x in g.nodes)}" for g in groups if g.kind != "view"]


def groups(text: str) -> list[str]:
    graph = read(text)
    found = fuse(graph)
    well_formed(graph, found)
    return names(found)


def well_formed(graph: Graph, found: tuple[Group, ...]) -> None:
    """Every value is made by one group, before it is read, and every node is in one."""
    made = {*graph.inputs, *graph.constants}
    for g in found:
        assert set(g.inputs) <= made, g.nodes
        assert not made & set(g.outputs)
        inside = {v for x in g.nodes for v in x.outputs}
        assert set(g.outputs) <= inside
        assert all(v in inside or v in g.inputs for x in g.nodes for v in x.operands)
        made.update(g.outputs)
    assert set(graph.outputs) <= made
    assert {x for g in found for x in g.nodes} == set(graph.nodes)


TABLE = {
    "a chain": (
        """
    def f(x: f32[n, 4], z: f32[4]) -> (y,):
        a: f32[n, 4] = exp(x)
        b: f32[n, 4] = add(a, z)
        y: f32[4, n] = transpose(b, perm=(1, 0))
    """,
        ["injective: exp add transpose"],
    ),
    "an output in between": (
        """
    def f(x: f32[n, 4]) -> (a, y):
        a: f32[n, 4] = exp(x)
        y: f32[n, 4] = neg(a)
    """,
        ["injective: exp", "injective: neg"],
    ),
    "what is in front of a contraction, and behind it": (
        """
    def f(x: f32[n, 8]) -> (y,):
        w: f32[8, 4] = constant("w")
        z: f32[8] = constant("z")
        e: f32[4] = constant("e")
        a: f32[n, 8] = add(x, z)
        b: f32[n, 8] = mul(a, z)
        c: f32[n, 4] = matmul(b, w)
        y: f32[n, 4] = add(c, e)
    """,
        ["injective: add mul", "contraction: matmul add"],
    ),
    "an epilogue that reads twice": (
        f"""
    def f(x: f32[n, h, w, 4]) -> (y,):
        c: f32[1, 1, 4, 8] = constant("c")
        a: f32[n, h, w, 8] = conv(x, c, {CONV})
        b: f32[n, h, w, 8] = sigmoid(a)
        y: f32[n, h, w, 8] = mul(a, b)
    """,
        ["contraction: conv sigmoid mul"],
    ),
    "an epilogue of several steps, and a residual": (
        f"""
    def f(x: f32[n, h, w, 8], s: f32[n, 1, 1, 8]) -> (y,):
        c: f32[1, 1, 8, 8] = constant("c")
        a: f32[n, h, w, 8] = conv(x, c, {CONV})
        b: f32[n, h, w, 8] = mul(a, a)
        d: f32[n, h, w, 8] = tanh(b)
        e: f32[n, h, w, 8] = mul(a, d)
        g: f32[n, h, w, 8] = mul(x, s)
        y: f32[n, h, w, 8] = add(e, g)
    """,
        ["contraction: conv mul tanh mul mul add"],
    ),
    "of two contractions the later": (
        """
    def f(x: f32[n, 4]) -> (y,):
        u: f32[4, 8] = constant("u")
        v: f32[4, 8] = constant("v")
        a: f32[n, 8] = matmul(x, u)
        b: f32[n, 8] = matmul(x, v)
        y: f32[n, 8] = add(a, b)
    """,
        ["contraction: matmul", "contraction: matmul add"],
    ),
    "attention": (
        """
    def f(q: f32[n, 5, 3, 4], k: f32[n, 5, 3, 4], v: f32[n, 5, 3, 4], m: f32[5, 5]) -> (y,):
        z: f32[()] = constant(0.0)
        a: f32[n, 3, 5, 4] = transpose(q, perm=(0, 2, 1, 3))
        b: f32[n, 3, 4, 5] = transpose(k, perm=(0, 2, 3, 1))
        c: f32[n, 3, 5, 4] = transpose(v, perm=(0, 2, 1, 3))
        d: f32[n, 3, 5, 5] = matmul(a, b)
        e: f32[n, 3, 5, 5] = add(d, m)
        s: f32[n, 3, 5, 5] = softmax(e)
        i: bool[n, 3, 5, 5] = is_nan(s)
        j: f32[n, 3, 5, 5] = where(i, z, s)
        o: f32[n, 3, 5, 4] = matmul(j, c)
        p: f32[n, 5, 3, 4] = transpose(o, perm=(0, 2, 1, 3))
        y: f32[n, 5, 12] = reshape(p, shape=(n, 5, 12))
    """,
        [
            "contraction: transpose transpose matmul add",
            "reduction: softmax is_nan where",
            "contraction: transpose matmul transpose",
        ],
    ),
    "an operand that is moved, read by two": (
        """
    def f(x: f32[n, 5, 8], u: f32[n, 4, 2], v: f32[n, 4, 3]) -> (y, z):
        a: f32[n, 5, 4] = slice(x, starts=(0, 0, 2), steps=(1, 1, 1), shape=(n, 5, 4))
        y: f32[n, 5, 2] = matmul(a, u)
        z: f32[n, 5, 3] = matmul(a, v)
    """,
        ["contraction: slice matmul", "contraction: slice matmul"],
    ),
    "an operand that is moved, read by another": (
        """
    def f(x: f32[n, 5, 8], u: f32[n, 4, 2]) -> (y, z):
        a: f32[n, 5, 4] = slice(x, starts=(0, 0, 2), steps=(1, 1, 1), shape=(n, 5, 4))
        y: f32[n, 5, 2] = matmul(a, u)
        z: f32[n, 5, 4] = softmax(a)
    """,
        ["injective: slice", "contraction: matmul", "reduction: softmax"],
    ),
    "a result stored with its last axis elsewhere": (
        """
    def f(x: f32[n, 4], u: f32[4, 8]) -> (y,):
        a: f32[n, 8] = matmul(x, u)
        y: f32[8, n] = transpose(a, perm=(1, 0))
    """,
        ["contraction: matmul", "injective: transpose"],
    ),
    "what a reduction reads and what follows along its rows": (
        """
    def f(x: f32[n, 8], z: f32[8]) -> (y,):
        w: f32[8] = constant("w")
        a: f32[n, 8] = add(x, z)
        b: f32[n, 8] = layer_norm(a, w)
        y: f32[n, 8] = relu(b)
    """,
        ["reduction: add layer_norm relu"],
    ),
    "a sum spread over its row": (
        """
    def f(x: f32[n, 8]) -> (y,):
        a: f32[n, 1] = reduce_sum(x, axes=(1,))
        b: f32[n, 1] = sqrt(a)
        y: f32[n, 8] = div(x, b)
    """,
        ["reduction: reduce_sum sqrt div"],
    ),
    "a sum spread over leading axes": (
        """
    def f(x: f32[n, 8]) -> (y,):
        a: f32[1, 8] = reduce_sum(x, axes=(0,))
        y: f32[n, 8] = mul(x, a)
    """,
        ["reduction: reduce_sum", "injective: mul"],
    ),
    "a cheap value that two would store": (
        """
    def f(x: f32[n, m, 8], z: f32[n, 1, 8]) -> (y,):
        a: f32[n, m, 8] = sub(x, z)
        b: f32[n, m, 8] = mul(a, a)
        c: f32[n, 1, 8] = reduce_mean(b, axes=(1,))
        y: f32[n, m, 8] = mul(a, c)
    """,
        ["reduction: sub mul reduce_mean", "injective: sub mul"],
    ),
    "an expensive one": (
        """
    def f(x: f32[n, 8]) -> (y,):
        a: f32[n, 8] = exp(x)
        c: f32[1, 8] = reduce_mean(a, axes=(0,))
        y: f32[n, 8] = mul(a, c)
    """,
        ["injective: exp", "reduction: reduce_mean", "injective: mul"],
    ),
    "an expensive one that would be repeated": (
        """
    def f(x: f32[8], z: f32[n, 8]) -> (y,):
        a: f32[8] = exp(x)
        y: f32[n, 8] = mul(a, z)
    """,
        ["injective: exp", "injective: mul"],
    ),
    "a window over what is computed": (
        """
    def f(x: f32[n, 8, 8, 4]) -> (y,):
        a: f32[n, 8, 8, 4] = relu(x)
        y: f32[n, 7, 7, 4] = max_pool(a, kernel=(2, 2), strides=(1, 1), dilations=(1, 1), \
pads=(0, 0, 0, 0), channels_last=True)
    """,
        ["injective: relu", "reduction: max_pool"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_groups(name: str) -> None:
    text, wanted = TABLE[name]
    assert groups(text) == wanted


def test_singletons() -> None:
    graph = read(TABLE["attention"][0])
    found = singletons(graph)
    well_formed(graph, found)
    assert [g.nodes for g in found] == [(x,) for x in graph.nodes]
    assert {g.kind for g in found} == {"injective", "contraction", "reduction", "view"}


def test_long_chains_are_cut() -> None:
    lines = [f"a{k}: f32[n, 4] = {'exp' if k % 2 else 'neg'}(a{k - 1})" for k in range(1, 60)]
    text = "def f(a0: f32[n, 4]) -> (a59,):\n    " + "\n    ".join(lines)
    assert 3 <= len(groups(text)) <= 6
