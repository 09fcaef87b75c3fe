"""Intervals contain the value, and are tight where schedules need it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import F32, I64, U8
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.intervals import Interval, bounds, divides, facts
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Cast, Const, Expr, Load, Var, eq, select
from planish.compiler.expr.text import Scope, parse

from . import strategies

SCOPE = Scope(buffers={"x": I64, "b": U8})
RANGES = {
    Var("i"): Interval(0, 7),
    Var("j"): Interval(-3, 5),
    Var("k"): Interval(0, 5),
    Var("n"): Interval(1, None),
}

TABLE = [
    ("i", 0, 7),
    ("i * 8 + k", 0, 61),
    ("i - i + 3", 3, 3),
    ("i * (-2) + 1", -13, 1),
    ("j // 2", -2, 2),
    ("j % 4", 0, 3),
    ("k % 8", 0, 5),
    ("(k + 8) % 8", 0, 5),
    ("(m * 6) % 56", 0, 54),
    ("(m * 6 + 1) % 8", 1, 7),
    ("(m * 6 + 5) // 56 - m * 6 // 56", 0, 1),
    ("(m + i) // 8 - m // 8", 0, 1),
    ("n * i", 0, None),
    ("n * k // n", 0, None),
    ("n * j", None, None),
    ("i * k", 0, 35),
    ("(i * 8) % n", 0, 56),
    ("m % n", 0, None),
    ("3 // n", 0, 3),
    ("(0 - 1) // n", -1, -1),
    ("min(i, j)", -3, 5),
    ("max(i, m)", 0, None),
    ("min(n, 9) - 1", 0, 8),
    ("select(i < 3, k, 10)", 0, 10),
    ("m", None, None),
    ("x[i]", -(2**63), 2**63 - 1),
    ("x[i] + 1", -(2**63), 2**63 - 1),
    ("max(x[i], 0)", 0, 2**63 - 1),
    ("max(x[i], 0) + 1", -(2**63), 2**63 - 1),
    ("x[i] + 3 - x[i]", 3, 3),
    ("x[i] % 4", 0, 3),
    ("cast(b[i], i64) + 1", 1, 256),
    ("cast(i < 3, i64)", 0, 1),
]


@pytest.mark.parametrize(("text", "lo", "hi"), TABLE, ids=[t[0] for t in TABLE])
def test_bounds(text, lo, hi):
    assert bounds(parse(text, SCOPE), RANGES) == Interval(lo, hi)


def test_narrow_types_wrap():
    b = Load("b", (Var("i"),), U8)
    assert bounds(b) == Interval(0, 255)
    assert bounds(b + 1) == Interval(0, 255)
    assert bounds(Cast(Var("i"), U8), RANGES) == Interval(0, 7)
    assert bounds(Cast(Var("m"), U8)) == Interval(0, 255)
    assert bounds(Cast(Load("f", (Var("i"),), F32), U8)) == Interval(0, 255)


def test_what_is_no_integer():
    assert bounds(parse("i < 3"), RANGES) == Interval(0, 1)
    assert bounds(Load("f", (Var("i"),), F32) + 1.0) == Interval()


@given(st.data(), st.booleans())
def test_bounds_contain_the_value(data, symbols):
    where = data.draw(strategies.ranges())
    e: Expr = data.draw(strategies.indices(symbols))
    point = data.draw(strategies.points(where))
    assert bounds(e, where).holds(int(evaluate(e, point)))


DIVIDES = [
    ("i * 8 + 16", 8, True),
    ("i * 8 + 4", 8, False),
    ("i * 8 + 4", 4, True),
    ("i * n * 6", 3, True),
    ("i * 8 % 32", 8, True),
    ("i * 8 % 12", 4, True),
    ("i * 8 // 2", 4, False),  # by simplify first
    ("min(i * 4, 8)", 4, True),
    ("select(i < 3, i * 6, 9)", 3, True),
    ("0 * i", 5, True),
    ("(i * 2) * (j * 3)", 6, True),
    ("i", 1, True),
]


@pytest.mark.parametrize(("text", "k", "expected"), DIVIDES)
def test_divides(text, k, expected):
    assert divides(parse(text), k) is expected


def test_divides_a_known_value():
    assert divides(parse("i * j"), 6, {Var("i"): Interval(6, 6)})


@given(st.data())
def test_divisor_divides(data):
    where = data.draw(strategies.ranges())
    e = data.draw(strategies.indices())
    value = int(evaluate(e, data.draw(strategies.points(where))))
    d = facts(where).divisor(e)
    assert value == 0 if d == 0 else value % d == 0


def test_intervals_multiply():
    up = Interval(2, None)
    assert up.times(Interval(3, 4)) == Interval(6, None)
    assert up.times(Interval(-4, -3)) == Interval(None, -6)
    assert Interval(None, -2).times(Interval(None, -3)) == Interval(6, None)
    assert up.times(Interval(-1, 1)) == Interval()
    assert Interval(0, 0).times(Interval()) == Interval(0, 0)


def test_what_is_measured_may_overflow():
    known = facts(RANGES)
    data = Load("x", (Var("i"),), I64)
    assert known.tame(linear(data))
    assert not known.tame(linear(data * 2))
    assert known.tame(linear(data % 8 * 2 + Var("m")))
    assert known.tame(linear(data // 4 + Var("m")))
    assert not known.whole(linear(data))
    assert known.tame(linear(Cast(Load("b", (Var("i"),), U8), I64) * 2))
    assert not known.positive(data)
    assert known.positive(Var("m"))
    assert known.positive(data % 8 + 1)


def test_numbers_that_are_no_indices_may_overflow():
    known, most = facts(RANGES), Const((1 << 63) - 1, I64)
    chosen = select(eq(Load("x", (Var("i"),), I64), 0), Const(1, I64), Const(0, I64))
    assert known.tame(linear(chosen + 1))
    assert known.bounds(chosen + most).hi == (1 << 63) - 1
    assert known.bounds(chosen + most).lo == -(1 << 63)


def test_same_knowledge_is_shared():
    assert facts(dict(RANGES)) is facts(dict(RANGES))
    assert facts(RANGES) is not facts({})
