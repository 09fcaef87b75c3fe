from __future__ import annotations

import numpy as np

from planish.compiler.graph.parts import split_products

from .tables import check, unchanged

BEFORE = """
    def f(x: f32[n, 6, 16]) -> (q, k):
        w: f32[16, 128] = constant("w")
        b: f32[128] = constant("b")
        a: f32[n, 6, 128] = matmul(x, w)
        c: f32[n, 6, 128] = add(a, b)
        d: f32[n, 6, 4, 32] = reshape(c, shape=(n, 6, 4, 32))
        q: f32[n, 6, 3, 32] = slice(d, starts=(0, 0, 0, 0), steps=(1, 1, 1, 1), shape=(n, 6, 3, 32))
        k: f32[n, 6, 1, 32] = slice(d, starts=(0, 0, 3, 0), steps=(1, 1, 1, 1), shape=(n, 6, 1, 32))
    """


def test_parts_of_a_product_have_weights_of_their_own() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.normal(size=shape).astype("f4")
        for name, shape in {"w": (16, 128), "b": (128,), "w1": (16, 96), "w2": (16, 32),
                            "b1": (96,), "b2": (32,)}.items()
    }  # fmt: skip
    check(
        split_products,
        BEFORE,
        """
    def f(x: f32[n, 6, 16]) -> (q, k):
        w1: f32[16, 96] = constant("w1")
        b1: f32[96] = constant("b1")
        w2: f32[16, 32] = constant("w2")
        b2: f32[32] = constant("b2")
        a: f32[n, 6, 96] = matmul(x, w1)
        c: f32[n, 6, 96] = add(a, b1)
        q: f32[n, 6, 3, 32] = reshape(c, shape=(n, 6, 3, 32))
        d: f32[n, 6, 32] = matmul(x, w2)
        e: f32[n, 6, 32] = add(d, b2)
        k: f32[n, 6, 1, 32] = reshape(e, shape=(n, 6, 1, 32))
    """,
        arrays=arrays,
    )


def test_a_product_that_is_read_as_a_whole_stays() -> None:
    unchanged(split_products, BEFORE.replace("(q, k)", "(q, k, c)"))
    unchanged(split_products, BEFORE.replace("(q, k)", "(q, k, d)"))


def test_rows_are_not_columns() -> None:
    unchanged(
        split_products,
        """
    def f(x: f32[n, 6, 16]) -> (q, k):
        w: f32[16, 128] = constant("w")
        a: f32[n, 6, 128] = matmul(x, w)
        q: f32[n, 3, 128] = slice(a, starts=(0, 0, 0), steps=(1, 1, 1), shape=(n, 3, 128))
        k: f32[n, 3, 128] = slice(a, starts=(0, 3, 0), steps=(1, 1, 1), shape=(n, 3, 128))
    """,
    )
