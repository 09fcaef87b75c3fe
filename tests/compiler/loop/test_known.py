"""What may be taken for known where a statement stands."""

from __future__ import annotations

import pytest

from planish.compiler.dtypes import I64
from planish.compiler.expr.bounds import Interval
from planish.compiler.expr.nodes import Var
from planish.compiler.expr.text import Scope, parse
from planish.compiler.loop.known import needed, not_empty, of_symbols, within
from planish.compiler.loop.text import parse as parse_function
from planish.compiler.loop.text import show
from planish.compiler.loop.tidy import tidy


@pytest.mark.parametrize(
    ("extent", "names"),
    [
        ("n", "n"),
        ("n * m", "n m"),
        ("n + m", ""),
        ("(n + 7) // 8", "n"),
        ("(n - 3) // 2 + 1", "n"),
        ("(n - 1) // 2 + 1", "n"),
        ("n + 1", ""),
        ("min(n, m)", "n m"),
        ("max(n, m)", ""),
        ("n - m", "n"),
        ("4", ""),
        ("k[0]", ""),
    ],
)
def test_what_an_extent_needs(extent: str, names: str) -> None:
    scope = Scope({"n": I64, "m": I64}, {"k": I64})
    assert [v.name for v in needed(parse(extent, scope))] == names.split()


def test_loops_make_symbols_known() -> None:
    func = parse_function("""
def f(x: f32[n, m], *, y: f32[n, m]):
    for i in serial(n):
        for j in serial(min(m, 8)):
            with block("y", i0=spatial(n, i), i1=spatial(m, j)):
                y[i0, i1] = x[i0, i1]""")
    n, m, i = Var("n"), Var("m"), Var("i")
    outside = of_symbols(func)
    assert outside == {n: Interval(0, None), m: Interval(0, None)}
    loop = func.body
    known = within(outside, loop)  # type: ignore[arg-type]
    assert known == {n: Interval(1, None), m: Interval(0, None), i: Interval(0, None)}
    assert not_empty(outside, func.params[0].shape)[m] == Interval(1, None)


def test_a_condition_on_an_empty_size_stays() -> None:
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
