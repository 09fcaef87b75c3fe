from __future__ import annotations

import pytest

from planish.compiler.graph.settled import settle_sizes
from planish.compiler.graph.text import show

from .tables import normal, read, unchanged


def test_a_number() -> None:
    graph = read("""
    def f(x: f32[n, 3], y: f32[m, 3]) -> (z,):
        assume(n == 2)
        z: f32[n, 3] = neg(x)
    """)
    wanted = """
    def f(x: f32[2, 3], y: f32[m, 3]) -> (z,):
        z: f32[2, 3] = neg(x)
    """
    assert normal(settle_sizes(graph)) == normal(read(wanted))


def test_one_batch() -> None:
    """A product that is one of its factors; the other conditions stay."""
    graph = read("""
    def f(x: f32[b, n]) -> (z,):
        assume(1 <= n)
        assume(b * n == n)
        assume(n <= 9)
        y: f32[b * n] = reshape(x, shape=(b * n,))
        z: f32[1, n] = reshape(y, shape=(1, n))
    """)
    new = settle_sizes(graph)
    assert [str(v.type) for v in new.values()] == ["f32[1, n]", "f32[n]", "f32[1, n]"]
    assert [str(c) for c in new.constraints] == ["1 <= n", "n <= 9"], show(new)


@pytest.mark.parametrize(
    "condition",
    [
        "0 <= n",
        "b * n == m",
        "b * b == n",
        "b * m == m",  # m may be 0, and b anything
        "b == n",
    ],
)
def test_several_numbers(condition: str) -> None:
    unchanged(
        settle_sizes,
        f"""
    def f(x: f32[b, n], w: f32[m]) -> (z,):
        assume(1 <= n)
        assume({condition})
        z: f32[b, n] = neg(x)
    """,
    )
