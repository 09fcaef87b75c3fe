from __future__ import annotations

from planish.compiler.graph.dce import eliminate_dead

from .tables import check, unchanged


def test_what_nobody_reads_goes() -> None:
    check(
        eliminate_dead,
        """
    def f(x: f32[n, 4], u: f32[n]) -> (y,):
        a: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
        b: f32[()] = constant(1.0)
        c: f32[n, 4] = add(x, a)
        d: f32[n, 4] = mul(c, b)
        y: f32[n, 4] = relu(x)
    """,
        """
    def f(x: f32[n, 4], u: f32[n]) -> (y,):
        y: f32[n, 4] = relu(x)
    """,
        exact=True,
    )


def test_a_node_stays_for_one_of_its_results() -> None:
    unchanged(
        eliminate_dead,
        """
    def f(x: f32[n, 4]) -> (a,):
        a, b = split[f32[n, 1], f32[n, 3]](x, sizes=(1, 3), axis=1)
    """,
    )


def test_a_constant_that_is_a_result_stays() -> None:
    unchanged(
        eliminate_dead,
        """
    def f(x: f32[n, 4]) -> (a,):
        a: f32[()] = constant(1.0)
    """,
    )
