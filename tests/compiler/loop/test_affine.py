"""Expressions and conditions in isl's notation."""

from __future__ import annotations

import pytest

from planish.compiler.expr.nodes import Var
from planish.compiler.expr.text import parse
from planish.compiler.loop.affine import Formula, parameter

NAMES = {Var("i"): "a0", Var("j"): "a1"}


@pytest.mark.parametrize(
    ("text", "expected", "exact"),
    [
        ("i * 8 + j - 3", "(((8 * a0) + a1) - 3)", True),
        ("(i + j) // 4", "floor((a0 + a1) / 4)", True),
        ("i % 4", "(a0 mod 4)", True),
        ("min(i, n)", "min(a0, n_)", True),
        ("i * j", None, True),
        ("i // n", None, True),
        ("n * m", "p_", False),
        ("i + n // m", "(a0 + p_", False),
    ],
)
def test_terms(text: str, expected: str | None, exact: bool):
    f = Formula()
    found = f.term(parse(text), NAMES)
    assert found == expected or (found and expected and found.startswith(expected))
    assert f.exact is exact


def test_a_parameter_is_the_same_in_all_formulas():
    assert parameter(Var("n")) == "n_"
    assert parameter(parse("n * m")) == parameter(parse("n * m")) != parameter(parse("m * n"))


@pytest.mark.parametrize(
    ("text", "positive", "points"),
    [
        ("i < 3", True, [0, 1, 2]),
        ("i < 3", False, [3, 4, 5]),
        ("i % 2 == 0 and not i == 2", True, [0, 4]),
        ("i % 2 == 0 and not i == 2", False, [1, 2, 3, 5]),
        ("i == 1 or i * i == 4", True, [0, 1, 2, 3, 4, 5]),  # the unknown may hold
        ("i == 1 or i * i == 4", False, [0, 2, 3, 4, 5]),
        ("i == 1 and i * i == 4", True, [1]),
        ("i != 1 and True", True, [0, 2, 3, 4, 5]),
        ("False", True, []),
    ],
)
def test_conditions(text: str, positive: bool, points: list[int]):
    f = Formula()
    f.add("0 <= a0 < 6")
    f.holds(parse(text), NAMES, positive)
    held = f.set(["a0"])
    for k in range(6):
        g = Formula()
        g.add(f"a0 = {k}")
        assert held.is_disjoint(g.set(["a0"])) is (k not in points)
