from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.graph.dce import eliminate_dead
from planish.compiler.graph.fold import fold_constants
from planish.compiler.graph.ir import Graph

from .tables import check, read, unchanged


def fold(graph: Graph) -> Graph:
    return eliminate_dead(fold_constants(graph))


def test_a_chain_of_constants() -> None:
    check(
        fold,
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[2, 2] = constant([1.0, 4.0, 9.0, 16.0])
        b: f32[2, 2] = sqrt(a)
        c: f32[2, 2] = transpose(b, perm=(1, 0))
        d: f32[4] = reshape(c, shape=(4,))
        y: f32[n, 4] = add(x, d)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        d: f32[4] = constant([1.0, 3.0, 2.0, 4.0])
        y: f32[n, 4] = add(x, d)
    """,
        exact=True,
    )


def test_what_is_known_of_shapes() -> None:
    check(
        fold,
        """
    def f(x: f32[n, 4]) -> (c,):
        a: i64[2] = shape(x)
        b: i64[1] = slice(a, starts=(1,), steps=(1,), shape=(1,))
        c: i64[1] = mul(b, b)
    """,
        """
    def f(x: f32[n, 4]) -> (c,):
        c: i64[1] = constant([16])
    """,
    )


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[4] = exp(a)",  # numpy rounds otherwise than we do
        "y: f32[1] = reduce_sum(a)",  # and sums in another order
        "y: f32[4096, 4096, 4] = expand(a, shape=(4096, 4096, 4))",  # too large
        "y: f32[n, 4] = expand(a, shape=(n, 4))",
        "y: i64[3] = range(start=n, delta=1, count=3)",
    ],
)
def test_left_alone(line: str) -> None:
    unchanged(
        fold_constants,
        f"""
    def f(x: f32[n]) -> (y, a):
        a: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
        {line}
    """,
    )


def test_sums_of_integers_are_exact() -> None:
    graph = read(
        """
    def f(x: i32[n]) -> (y,):
        a: i32[4] = constant([1, 2, 3, 4])
        b: i32[1] = reduce_sum(a)
        y: i32[n] = add(x, b)
    """
    )
    (array,) = fold(graph).constants.values()
    np.testing.assert_array_equal(array, [10])


def test_a_transposed_constant_is_not_copied() -> None:
    weights = np.zeros((300, 500), np.float32)
    weights.flags.writeable = False
    graph = read(
        """
    def f(x: f32[n, 500]) -> (y,):
        a: f32[300, 500] = constant("a")
        b: f32[500, 300] = transpose(a, perm=(1, 0))
        y: f32[n, 300] = matmul(x, b)
    """,
        {"a": weights},
    )
    (array,) = fold(graph).constants.values()
    assert array.shape == (500, 300) and np.shares_memory(array, weights)
