from __future__ import annotations

import numpy as np

from planish.compiler.graph.cse import eliminate_common

from .tables import check, read, unchanged


def test_equal_nodes() -> None:
    check(
        eliminate_common,
        """
    def f(x: f32[n, 4]) -> (y, d):
        a: f32[n, 4] = relu(x)
        b: f32[n, 4] = relu(x)
        c: f32[n, 4] = exp(a)
        d: f32[n, 4] = exp(b)
        y: f32[n, 4] = add(c, d)
    """,
        """
    def f(x: f32[n, 4]) -> (y, c):
        a: f32[n, 4] = relu(x)
        c: f32[n, 4] = exp(a)
        y: f32[n, 4] = add(c, c)
    """,
        exact=True,
    )


def test_equal_constants() -> None:
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    graph = read(
        """
    def f(x: f32[10, 100]) -> (y, c):
        a: f32[10, 100] = constant("a")
        b: f32[10, 100] = constant("b")
        c: f32[10, 100] = constant("c")
        d: f32[10, 100] = constant("d")
        e: f32[10, 100] = add(a, b)
        g: f32[10, 100] = add(c, d)
        h: f32[10, 100] = mul(e, g)
        y: f32[10, 100] = mul(h, x)
    """,
        {"a": array, "b": array.T.copy().T, "c": array.copy(), "d": array + (array == 500)},
    )
    new = eliminate_common(graph)
    assert sorted(v.name for v in new.constants) == ["a", "d"]
    assert new.outputs[1].name == "a"


def test_what_differs_by_a_sign_of_zero_stays() -> None:
    unchanged(
        eliminate_common,
        """
    def f(x: f32[n, 4]) -> (y, z, a, b):
        a: f32[2] = constant([0.0, 1.0])
        b: f32[2] = constant([-0.0, 1.0])
        y: f32[n, 4] = leaky_relu(x, alpha=0.0)
        z: f32[n, 4] = leaky_relu(x, alpha=-0.0)
    """,
    )


def test_equal_nans_are_one() -> None:
    new = eliminate_common(
        read(
            """
    def f(x: f32[2]) -> (y, z):
        a: f32[2] = constant([nan, 1.0])
        b: f32[2] = constant([nan, 1.0])
        y: f32[2] = add(a, x)
        z: f32[2] = add(b, x)
    """
        )
    )
    assert len(new.nodes) == len(new.constants) == 1
