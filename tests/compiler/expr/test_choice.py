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
def test_exact_is_there_and_back(source, target):
    """Values that need all digits, or the ends of the range, survive."""
    if not exact(source, target) or source is BOOL:
        return
    if source.is_float:
        values = [(1 + 2.0**-k) * 2.0**e for k in range(53) for e in (-8, 8)]
        x = np.array([np.inf, *values, *(-v for v in values)], np.float64).astype(source.numpy)
    else:
        x = np.array([source.min, source.min + 1, 1, source.max - 1, source.max], source.numpy)
    there = x.astype(target.numpy)
    assert np.array_equal(there.astype(source.numpy), x)
    assert np.array_equal(np.sign(there.astype(np.float64)), np.sign(x.astype(np.float64)))


EXACT = """
bool-i8 i8-i16 u8-i16 u16-f32 i32-f64 u8-f16 i8-bf16 f16-f32 bf16-f32 f32-f64""".split()  # noqa: SIM905
INEXACT = """
i8-u8 u8-i8 i64-f64 i16-f16 u16-bf16 f16-bf16 bf16-f16 f64-f32 f32-i64 i8-bool""".split()  # noqa: SIM905


@pytest.mark.parametrize("pair", [*EXACT, *INEXACT])
def test_exact(pair):
    source, target = (ALL[t] for t in pair.split("-"))
    assert exact(source, target) is (pair in EXACT)
