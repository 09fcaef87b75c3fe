"""Sums, quotients and remainders: the laws, one line each."""

from __future__ import annotations

import pytest

from planish.compiler.dtypes import I32
from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Var
from planish.compiler.expr.simplify import simplify
from planish.compiler.expr.text import Scope, parse, show

RANGES = {
    Var("i"): Interval(0, 99),
    Var("j"): Interval(0, 7),
    Var("k"): Interval(0, 5),
    **{Var(x): Interval(1, None) for x in "nhw"},
}

QUOTIENTS = [
    ("(i * 8 + j) // 8", "i"),
    ("(i * 16 + j) // 4", "i * 4 + j // 4"),
    ("(i * 8 + j) // 32", "i // 4"),
    ("(x * 6 + k) // 56", "(x * 6 + k) // 56"),
    ("(x // 4 * 8 + y) // 28 * 28 + (x // 4 * 8 + y) % 28", "x // 4 * 8 + y"),
    ("(x * 6 + 5) // 56", "(x * 3 + 2) // 28"),
    ("(x * 6 + k) // 18", "x // 3"),
    ("(x // 4) // 8", "x // 32"),
    ("(x // 4 + 3) // 8", "(x + 12) // 32"),
    ("x // 4 * 4 // 8", "x // 8"),
    ("x % 64 // 8", "x // 8 % 8"),
    ("x % 64 // 64", "0"),
    ("(x + 13) // 8", "(x + 5) // 8 + 1"),
    ("(x - 1) // 8", "(x + 7) // 8 - 1"),
    ("j // 8", "0"),
    ("(j - 8) // 8", "(-1)"),
    ("(i * 3136 + j * 56 + k) // 56", "i * 56 + j"),
    ("(a * w + x % w) // w", "a"),
    ("(a * w + 3) // w", "a + 3 // w"),
    ("(x // w) // h", "x // (h * w)"),
    ("x % (h * w) // w", "x // w % h"),
    ("(n - 1) // n", "0"),
    ("(n * 2 + 1) * j // (n * 2 + 1)", "j"),
    ("a * n * 4 // (n * 2)", "a * 2"),
]
REMAINDERS = [
    ("(i * 8 + j) % 8", "j"),
    ("(i * 8 + j) % 32", "i % 4 * 8 + j"),
    ("(i * 20 + j) % 16", "(i * 4 + j) % 16"),
    ("(i * 6 + 3) % 4", "(i + 1) % 2 * 2 + 1"),
    ("(x % 8) % 4", "x % 4"),
    ("(x % 4) % 8", "x % 4"),
    ("(x % 8 + y) % 4", "(x + y) % 4"),
    ("(x % 4 * 2) % 8", "x % 4 * 2"),
    ("(x + 19) % 8", "(x + 3) % 8"),
    ("j % 8", "j"),
    ("(j - 8) % 8", "j"),
    ("(a * w + x % w) % w", "x % w"),
    ("a * w % w", "0"),
    ("(x % w) % w", "x % w"),
    ("x % (h * w) % w", "x % w"),
    ("(x % w + y) % w", "(x + y) % w"),
    ("(w + 3) % w", "3 % w"),
]
SUMS = [
    ("(x // 8) * 8 + x % 8", "x"),
    ("x - x // 8 * 8", "x % 8"),
    ("(x // 8) * 16 + x % 8 * 2 + 1", "x * 2 + 1"),
    ("(p // w) * w + p % w", "p"),
    ("(p // w) * w * n + p % w * n", "n * p"),
    ("(p // (w * h)) * h * w + ((p // w) % h) * w + p % w", "p"),
    ("(x // 12) * 12 + (x // 4 % 3) * 4 + x % 4", "x"),
    ("(x + p) // w * w * n + (x + p) % w * n", "n * p + n * x"),
    ("((x * 6 + 5) // 56) * 56 + (x * 6 + 5) % 56", "x * 6 + 5"),
    ("x // 4 + x // 4", "x // 4 * 2"),
    ("i * 4 + j - 2 * i - i * 2", "j"),
]


@pytest.mark.parametrize(("text", "expected"), [*QUOTIENTS, *REMAINDERS, *SUMS])
def test_index(text, expected):
    assert show(simplify(parse(text), RANGES)) == expected


def test_narrow_integers_are_left_alone():
    u = Scope(variables={"u": I32})
    e = parse("(u * i32(8) + i32(3)) // i32(8)", u)
    assert simplify(e) is e


def test_only_value():
    assert show(simplify(parse("i * 3 + j"), {Var("i"): Interval(2, 2)})) == "j + 6"
