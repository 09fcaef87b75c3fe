"""Sums: their terms, their arithmetic, their canonical form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import F32
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.linear import TERMS, Linear, factors, linear, order, ratio
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.expr.text import parse, show

from . import strategies

CANONICAL = [
    ("(i * 16 + j) * 4 - j * 2 + 3", "i * 64 + j * 2 + 3"),
    ("j + i", "i + j"),
    ("3 + i - 5", "i - 2"),
    ("(m + 1) * (k + 2) - k * m", "m * 2 + k + 2"),
    ("n * m * 2 + m * n", "m * n * 3"),
    ("5 - i", "5 - i"),
    ("j - i", "j - i"),
    ("0 - i - j - 3", "i * (-1) - j - 3"),
    ("i - i + j - j", "0"),
    ("(x // 4) * y * 2 + y * (x // 4)", "y * (x // 4) * 3"),
    ("h * (w * i + j) + k", "h * i * w + h * j + k"),
    ("i * 9223372036854775807 * 2", "i * (-2)"),
]


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_canonical(text, expected):
    assert show(linear(parse(text)).expr()) == expected


def test_terms():
    i, j = Var("i"), Var("j")
    form = linear(i * 6 + 4 - j + i)
    assert dict(form.terms) == {i: 7, j: -1}
    assert form.constant == 4
    assert form.coefficient(i) == 7
    assert form.coefficient(Var("k")) == 0
    assert not form.is_constant
    assert linear(Const(3)).is_constant
    assert linear(i * 6 - j * 9 + 1).gcd() == 3


def test_arithmetic():
    x, y = linear(parse("i * 2 + j + 1")), linear(parse("j - k"))
    assert show((x + y).expr()) == "i * 2 + j * 2 - k + 1"
    assert show((x - y).expr()) == "i * 2 + k + 1"
    assert show(x.scaled(-3).expr()) == "i * (-6) - j * 3 - 3"
    assert x.scaled(0).same(Linear({}))
    assert show(x.times(y).expr()) == show(linear(parse("(i * 2 + j + 1) * (j - k)")).expr())
    assert show(x.replace(Var("i"), y).expr()) == "j * 3 - k * 2 + 1"
    assert show(linear(parse("i * 4 + j * 8 + 5")).over(4).expr()) == "j * 2 + i + 1"
    chosen, rest = x.split(lambda atom, k: k == 2)
    assert (show(chosen.expr()), show(rest.expr())) == ("i * 2", "j + 1")


def test_factors():
    i, m, k = Var("i"), Var("m"), Var("k")
    assert factors(i * k * m) == (i, k, m)
    assert ratio(i * k * m, k) is i * m
    assert ratio(i * k, i * k) == 1
    assert ratio(i * k, k * i * i) is None
    assert order(i) < order(k) < order(i // 2) != order(i // 3)


def test_only_indices():
    with pytest.raises(TypeCheckError):
        linear(Var("x", F32))


@given(strategies.indices(symbols=True), st.data())
def test_value(e: Expr, data):
    point = data.draw(strategies.points(data.draw(strategies.ranges())))
    again = linear(e).expr()
    assert evaluate(e, point) == evaluate(again, point)
    assert linear(again).expr() is again


@given(st.permutations([parse(t) for t in ("i * 8", "j", "i // 3", "h * w * 2", "min(i, j)", "7")]))
def test_order_does_not_matter(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert show(linear(total).expr()) == "h * w * 2 + i * 8 + j + i // 3 + min(i, j) + 7"


def test_large_sums_stay_bounded():
    e: Expr = Const(0)
    for k in range(50_000):
        e = e + Var(f"v{k % 1000}")
    assert len(linear(e).terms) <= TERMS
    wide = n.product([sum((Var(f"{c}{k}") for k in range(9)), Const(0)) for c in "abc"])
    assert len(linear(wide).terms) <= TERMS
    doubled: Expr = Var("i")
    for _ in range(60):
        doubled = doubled + doubled
    assert linear(doubled).coefficient(Var("i")) == 2**60
