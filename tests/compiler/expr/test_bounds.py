"""Extremes: the ends of what expressions reach while some variables run."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planish.compiler.dtypes import I64, U8
from planish.compiler.expr.bounds import Interval, extremes
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars
from planish.compiler.expr.text import Scope, parse, show

from . import strategies

SCOPE = Scope(buffers={"x": I64, "b": U8})
P1 = {Var("p1"): (Const(0), Const(5))}
KW = {**P1, Var("kw"): (Const(0), Const(2))}
TO_N = {**P1, Var("j"): (Const(0), parse("n - 1"))}
SIZES = {Var("n"): Interval(1, None), Var("p0"): Interval(0, None)}

TABLE = [
    ("p0 * 6 + p1", P1, "p0 * 6", "p0 * 6 + 5"),
    ("p0 * 6 - p1 * 2 + 1", P1, "p0 * 6 - 9", "p0 * 6 + 1"),
    ("(p0 * 6 + p1) // 56", P1, "p0 * 3 // 28", "(p0 * 3 + 2) // 28"),
    ("(p0 * 6 + p1) % 56", P1, "0", "55"),
    ("(p0 * 6 + p1) // 54", P1, "p0 // 9", "p0 // 9"),
    ("(p0 * 6 + p1) % 54", P1, "p0 % 9 * 6", "p0 % 9 * 6 + 5"),
    ("(p0 * 8 + p1) % 8", P1, "0", "5"),
    ("(p0 + p1 * 8) % 64", P1, "p0 % 8", "p0 % 8 + 56"),
    (
        "(p0 * 6 + p1) // 56 * 58 + (p0 * 6 + p1) % 56 + kw",
        KW,
        "p0 * 6 + p0 * 3 // 28 * 2",
        "p0 * 6 + (p0 * 3 + 2) // 28 * 2 + 7",
    ),
    ("p1 * n + j", TO_N, "0", "n * 6 - 1"),
    ("(p0 * n + j) // n", TO_N, "p0", "p0"),
    ("(p0 * n + j) % n", TO_N, "0", "n - 1"),
    ("j // n + p1 // 2", TO_N, "0", "2"),
    ("min(p1 + p0, n - 1)", P1, "min(p0, n - 1)", "min(p0 + 5, n - 1)"),
    ("select(p0 < 3, p1, 0)", P1, "0", "select(p0 < 3, 5, 0)"),
    ("select(p1 < 3, p0, n)", P1, "min(n, p0)", "max(n, p0)"),
    ("j - p1", {**P1, Var("j"): (Const(0), Var("p1"))}, "(-5)", "0"),
    ("x[p0] + p1", P1, "x[p0]", "x[p0] + 5"),
    ("cast(b[p1], i64)", P1, "0", "255"),
    ("p1 * p1", P1, "0", "25"),
    ("n", P1, "n", "n"),
    ("3 // (p1 + 1)", P1, "0", "3"),
    ("p0 % (p1 + 1)", P1, "0", "5"),
]


@pytest.mark.parametrize(("text", "domain", "lo", "hi"), TABLE, ids=[t[0] for t in TABLE])
def test_extremes(text, domain, lo, hi):
    found = extremes(parse(text, SCOPE), domain, SIZES)
    assert found is not None
    assert tuple(map(show, found)) == (lo, hi)


def test_a_sign_that_is_not_known():
    found = extremes(parse("p1 * m"), P1)
    assert found is not None
    assert tuple(map(show, found)) == ("min(m * 5, 0)", "max(m * 5, 0)")


@pytest.mark.parametrize("text", ["x[p1]", "p0 // (p1 - 3)"])
def test_nothing_to_say(text):
    assert extremes(parse(text, SCOPE), P1) is None


@st.composite
def domains(draw, symbols: bool):
    """Loops, one inside the other: the ends of inner ones may depend on outer ones."""
    variables = st.sampled_from(strategies.ITERATORS)
    chosen = draw(st.lists(variables, min_size=1, max_size=3, unique=True))
    domain = {}
    for k, v in enumerate(chosen):
        lo = draw(st.sampled_from([Const(0), Const(-3), *chosen[:k], *strategies.SYMBOLS]))
        domain[v] = (lo, lo + draw(st.integers(0, 5)))
    return domain


@given(st.data(), st.booleans())
def test_extremes_contain_all_values(data, symbols):
    e: Expr = data.draw(strategies.indices(symbols, leaves=6))
    domain = data.draw(domains(symbols))
    where = {v: r for v, r in data.draw(strategies.ranges()).items() if v not in domain}
    found = extremes(e, domain, where)
    if found is None:
        return
    assert not any(v in domain for v in free_vars(*found))
    point = data.draw(strategies.points(where))
    seen = [int(evaluate(e, p)) for p in _all(domain, point)]
    assert evaluate(found[0], point) <= min(seen)
    assert evaluate(found[1], point) >= max(seen)


@given(st.data())
def test_extremes_of_fused_and_split_loops_are_taken_on(data):
    """Of p0 * a + p1: sums, quotients, and both parts put together with a padded stride."""
    tile, width, pad = (data.draw(st.integers(lo, 9)) for lo in (1, 2, 0))
    p = Var("p0") * tile + Var("p1")
    kinds = [p * 3 + 1, p // width, p // width * (width + pad) + p % width]
    e = data.draw(st.sampled_from(kinds))
    domain = {Var("p1"): (Const(0), Const(data.draw(st.integers(0, tile - 1))))}
    found = extremes(e, domain, {Var("p0"): Interval(0, None)})
    assert found is not None
    point = {"p0": data.draw(st.integers(0, 100))}
    seen = [int(evaluate(e, q)) for q in _all(domain, point)]
    assert (evaluate(found[0], point), evaluate(found[1], point)) == (min(seen), max(seen))


def _all(domain, point):
    """Every point of the domain, its loops in the order they are given."""
    points = [dict(point)]
    for v, (lo, hi) in domain.items():
        points = [
            {**p, v.name: k}
            for p in points
            for k in range(int(evaluate(lo, p)), int(evaluate(hi, p)) + 1)
        ]
    assume(len(points) < 500)
    return points
