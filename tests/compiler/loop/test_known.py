"""What is known of symbols inside of loops."""

from __future__ import annotations

import pytest

from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Var
from planish.compiler.expr.text import parse
from planish.compiler.loop.ir import Function, Loop, Seq
from planish.compiler.loop.known import anywhere, entered
from planish.compiler.loop.text import parse as parse_function
from planish.compiler.loop.text import show
from planish.compiler.loop.tidy import tidy

FUNC = Function("f", (), 0, (Var("n"), Var("m")), (), Seq(()))


@pytest.mark.parametrize(
    ("extent", "n", "m"),
    [
        ("n", 1, 0),
        ("8", 0, 0),
        ("n * m", 1, 1),
        ("n * m * 4", 1, 1),
        ("(n + 7) // 8", 1, 0),
        ("n // 8", 8, 0),
        ("n - 2", 3, 0),
        ("(n - 3) // 2 + 1", 3, 0),
        ("min(n, m - 1)", 1, 2),
        ("max(n, m)", 0, 0),
        ("n + m", 0, 0),
        ("n - m", 1, 0),
        ("5 - n", 0, 0),
        ("(n - 1) * (m - 1)", 0, 0),  # both may be negative
        ("n % 4", 0, 0),
    ],
)
def test_a_loop_that_is_entered_has_an_iteration(extent: str, n: int, m: int):
    loop = Loop(Var("i"), parse(extent), Seq(()))
    known = entered(anywhere(FUNC), (loop,))
    assert known[Var("n")] == Interval(n, None)
    assert known[Var("m")] == Interval(m, None)
    assert known[Var("i")].lo == 0


def test_what_is_known_outside_stays_as_it_was():
    outside = anywhere(FUNC)
    entered(outside, (Loop(Var("i"), parse("n"), Seq(())),))
    assert outside[Var("n")] == Interval(0, None)
    assert Var("i") not in outside


def test_loops_say_more_together():
    loops = [Loop(Var(v), parse(e), Seq(())) for v, e in (("i", "8"), ("j", "n - i * 2"))]
    assert entered(anywhere(FUNC), loops)[Var("n")] == Interval(1, None)


def test_a_condition_on_an_empty_size_stays():
    """A symbol need not be an extent of anything around."""
    text = """\
def f(x: f32[n], *, y: f32[()]):
    symbols(n, k)
    with block("y"):
        y[()] = f32(0.0)
    if 0 < k:
        for i in serial(n):
            if 0 < n:
                with block("last"):
                    y[()] = x[i]"""
    kept = show(tidy(parse_function(text)))
    assert "if 1 <= k:" in kept
    assert "if 0 < n:" not in kept
    assert kept.count("if ") == 1
