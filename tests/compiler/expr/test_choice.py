"""Select, min, max and casts."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.dtypes import ALL, BOOL
from planish.compiler.expr.choice import exact
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
    ("max(min(a, b), min(a, b))", "min(a, b)"),
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


@pytest.mark.parametrize("source", ALL.values(), ids=str)
@pytest.mark.parametrize("target", ALL.values(), ids=str)
def test_exact(source, target):
    """Exactly what survives the way there and back, at the values that need most digits."""
    if source is target or source is BOOL:
        assert exact(source, target)
        return
    if source.is_float:
        samples = [1.0, np.ldexp(1.0, -20), np.ldexp(1.0, 14), np.inf]
        samples += [1 + 2.0**-k for k in range(1, 53)]
        x = np.array(samples, np.float64).astype(source.numpy)
    else:
        x = np.array([source.min, source.max, source.max - 1, source.min + 1, 1], source.numpy)
    with np.errstate(all="ignore"):
        there = x.astype(target.numpy)
        back = there.astype(source.numpy)
        ends = int(x[1]) if source.is_int else 0
        same = bool(np.all(back == x)) and (source.is_float or int(there[1]) == ends)
    assert exact(source, target) == (same and target is not BOOL and not (source.is_float and target.is_int))
