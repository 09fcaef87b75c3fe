"""Comparisons in canonical form, and bools."""

from __future__ import annotations

import pytest

from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Var
from planish.compiler.expr.rewrite import STATEMENT
from planish.compiler.expr.simplify import simplify
from planish.compiler.expr.text import parse, show

RANGES = {
    Var("i"): Interval(0, 99),
    Var("j"): Interval(0, 7),
    Var("k"): Interval(0, 5),
    Var("n"): Interval(1, None),
}

TABLE = [
    ("i + 3 < n + 5", "i < n + 2"),
    ("i - n < 0", "i < n"),
    ("i <= n", "i <= n"),
    ("i < n + 1", "i <= n"),
    ("i <= 4", "i < 5"),
    ("4 < i", "5 <= i"),
    ("i * 6 + k < n * 6 + 6", "i <= n"),
    ("i * 8 + j < 800", "True"),
    ("i * 8 + j < 799", "i * 8 + j < 799"),
    ("i * 8 < x * 4 + 3", "i * 2 <= x"),
    ("x // 8 < n", "x < n * 8"),
    ("n <= x // 8", "n * 8 <= x"),
    ("0 <= i", "True"),
    ("i < 0", "False"),
    ("x == x + 1", "False"),
    ("x * 2 == 7", "False"),
    ("x * 2 == n * 2 + 4", "n + 2 == x"),
    ("n == x - 2", "n + 2 == x"),
    ("x - 3 != 4", "x != 7"),
    ("i == 100", "False"),
    ("i != 100", "True"),
    ("0 <= x and x < 8 and x < 9", "0 <= x and x < 8"),
    ("x < 3 and 5 < x", "False"),
    ("x < 6 or 4 < x", "True"),
    ("x < 3 or x < 5", "x < 5"),
    ("x < 3 and p and x < 3", "x < 3 and p"),
    ("p and not p", "False"),
    ("p or (q or not p)", "True"),
    ("not (x < 3 and p)", "3 <= x or not p"),
    ("not a < b", "not a < b"),
    ("not a == b", "a != b"),
    ("u < i32(-2147483648)", "False"),
    ("cast(u, i64) < 3000000000", "True"),
]


@pytest.mark.parametrize(("text", "expected"), TABLE, ids=[t[0] for t in TABLE])
def test_logic(text, expected):
    out = simplify(parse(text, STATEMENT), RANGES)
    assert show(out) == expected
    assert simplify(out, RANGES) is out
