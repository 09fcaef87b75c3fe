from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.graph.ir import Graph
from planish.compiler.graph.scale import fold_scales, put_numbers_behind

from .tables import assert_same_values, check, read, unchanged

CONV = "strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0)"

# Lines behind a convolution without bias; all of them go into it.
BEHIND_CONV = {
    "scale": "y: f32[n, 4, h, w] = mul(v, a)",
    "number": "y: f32[n, 4, h, w] = div(a, k)",
    "bias": "y: f32[n, 4, h, w] = add(a, v)",
    "negative bias": "y: f32[n, 4, h, w] = sub(a, v)",
    "batch_norm": "y: f32[n, 4, h, w] = batch_norm(a, s, t, u, s)",
    "all of these": """b: f32[n, 4, h, w] = batch_norm(a, s, t, u, s)
        d: f32[n, 4, h, w] = mul(b, v)
        y: f32[n, 4, h, w] = sub(d, k)""",
}


@pytest.mark.parametrize("bias", ["", ", u"])
@pytest.mark.parametrize("name", BEHIND_CONV)
def test_behind_a_convolution(name: str, bias: str) -> None:
    folds(
        f"""
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[4, 2, 1, 1] = constant("c")
        s: f32[4] = constant([1.0, 2.0, 0.5, 3.0])
        t: f32[4] = constant([-1.0, 0.5, 2.0, 3.0])
        u: f32[4] = constant([0.5, 0.25, 1.0, 2.0])
        v: f32[4, 1, 1] = constant([1.0, 2.0, 0.5, -1.0])
        k: f32[()] = constant(3.0)
        a: f32[n, 4, h, w] = conv(x, c{bias}, {CONV})
        {BEHIND_CONV[name]}
    """,
        ["conv"],
    )


def folds(text: str, left: list[str]) -> Graph:
    """Assert that only these operators are left, and that values stay."""
    graph = read(text)
    new = fold_scales(graph)
    assert [node.op.name for node in new.nodes] == left
    assert_same_values(graph, new)
    return new


def test_channels_last() -> None:
    folds(
        f"""
    def f(x: f32[n, h, w, 2]) -> (y,):
        c: f32[1, 1, 2, 4] = constant("c")
        v: f32[4] = constant([1.0, 2.0, 0.5, -1.0])
        a: f32[n, h, w, 4] = conv(x, c, {CONV}, channels_last=True)
        b: f32[n, h, w, 4] = mul(a, v)
        y: f32[n, h, w, 4] = add(b, v)
    """,
        ["conv"],
    )


@pytest.mark.parametrize("last", [False, True])
def test_groups_of_a_transposed_convolution(last: bool) -> None:
    attributes = "strides=(2,), dilations=(1,), pads=(0, 0), output_padding=(0,), groups=2"
    rng = np.random.default_rng(0)
    v = "[6]" if last else "[6, 1]"
    if last:
        x, c, y, attributes = (
            "[n, h, 4]",
            "[3, 4, 3]",
            "[n, h * 2 + 1, 6]",
            f"{attributes}, channels_last=True",
        )
    else:
        x, c, y = "[n, 4, h]", "[4, 3, 3]", "[n, 6, h * 2 + 1]"
    graph = read(
        f"""
    def f(x: f32{x}) -> (y,):
        c: f32{c} = constant("c")
        v: f32{v} = constant([1.0, 2.0, 0.5, -1.0, 3.0, 7.0])
        a: f32{y} = conv_transpose(x, c, {attributes})
        y: f32{y} = mul(a, v)
    """,
        {"c": rng.normal(size=(3, 4, 3) if last else (4, 3, 3)).astype("f4")},
    )
    new = fold_scales(graph)
    assert [node.op.name for node in new.nodes] == ["conv_transpose"]
    assert_same_values(graph, new)


def test_behind_a_product() -> None:
    """Its bias stays a sum of its own."""
    for flag, shape in (("", "[4, 8]"), (", transpose_b=True", "[8, 4]")):
        folds(
            f"""
    def f(x: f32[n, m, 4]) -> (y,):
        w: f32{shape} = constant("w")
        b: f32[8] = constant("b")
        c: f32[1, 1, 8] = constant("c")
        k: f32[()] = constant(2.0)
        a: f32[n, m, 8] = matmul(x, w{flag})
        d: f32[n, m, 8] = add(b, a)
        e: f32[n, m, 8] = mul(d, c)
        g: f32[n, m, 8] = add(e, k)
        y: f32[n, m, 8] = mul(k, g)
    """,
            ["matmul", "add"],
        )


def test_a_norm_of_something_else_is_a_product_and_a_sum() -> None:
    folds(
        """
    def f(x: f32[n, 4, h]) -> (y,):
        s: f32[4] = constant([1.0, 2.0, 0.5, 3.0])
        t: f32[4] = constant([-1.0, 0.5, 2.0, 3.0])
        a: f32[n, 4, h] = relu(x)
        y: f32[n, 4, h] = batch_norm(a, s, t, t, s)
    """,
        ["relu", "mul", "add"],
    )


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[n, 4, h, w] = mul(a, p)",  # not by channel
        "y: f32[n, 4, h, w] = mul(a, i)",  # infinite: 0 times that is not a number
        "y: f32[n, 4, h, w] = sub(v, a)",
        "y: f32[n, 4, h, w] = div(k, a)",
        "y: f32[2, n, 4, h, w] = mul(a, q)",  # makes it larger
    ],
)
def test_left_alone(line: str) -> None:
    outputs = "y" if "a," not in line else "y"
    unchanged(
        fold_scales,
        f"""
    def f(x: f32[n, 2, h, w], p: f32[h, w]) -> ({outputs},):
        c: f32[4, 2, 1, 1] = constant("c")
        v: f32[4, 1, 1] = constant([1.0, 2.0, 0.5, -1.0])
        k: f32[()] = constant(3.0)
        i: f32[()] = constant(inf)
        q: f32[2, 1, 1, 1, 1] = constant([1.0, 2.0])
        a: f32[n, 4, h, w] = conv(x, c, {CONV})
        {line}
    """,
    )


def test_what_others_read_stays() -> None:
    unchanged(
        fold_scales,
        f"""
    def f(x: f32[n, 2, h, w]) -> (a, y):
        c: f32[4, 2, 1, 1] = constant("c")
        k: f32[()] = constant(3.0)
        a: f32[n, 4, h, w] = conv(x, c, {CONV})
        y: f32[n, 4, h, w] = mul(a, k)
    """,
    )


def test_numbers_go_behind_products() -> None:
    check(
        put_numbers_behind,
        """
    def f(q: f32[n, m, 5, 4], k: f32[n, 7, m, 4]) -> (y,):
        c: f32[()] = constant(0.5)
        d: f32[1] = constant([4.0])
        e: f32[()] = constant(3.0)
        a: f32[n, m, 5, 4] = mul(q, c)
        b: f32[n, 7, m, 4] = div(k, d)
        g: f32[n, m, 7, 4] = transpose(b, perm=(0, 2, 1, 3))
        h: f32[n, m, 5, 7] = matmul(a, g, transpose_b=True)
        y: f32[n, m, 5, 7] = mul(e, h)
    """,
        """
    def f(q: f32[n, m, 5, 4], k: f32[n, 7, m, 4]) -> (y,):
        c: f32[()] = constant(0.375)
        g: f32[n, m, 7, 4] = transpose(k, perm=(0, 2, 1, 3))
        h: f32[n, m, 5, 7] = matmul(q, g, transpose_b=True)
        y: f32[n, m, 5, 7] = mul(h, c)
    """,
    )
