"""The engine: order, sharing, fuel; and rules that state themselves."""

from __future__ import annotations

import pytest

from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Add, Const, Expr, Min, Mul, Var, minimum
from planish.compiler.expr.rewrite import RuleSet, statement

from .strategies import deep

i = Var("i")


def test_operands_first_and_once():
    rules: RuleSet[None] = RuleSet("count")
    seen: list[str] = []

    @rules.rule(Add, Mul)
    def look(e: Expr) -> Expr | None:
        seen.append(str(e))
        return None

    shared = i + 1
    e = shared * shared + shared
    assert rules.apply(e, None) is e
    assert seen == ["i + 1", "(i + 1) * (i + 1)", "(i + 1) * (i + 1) + (i + 1)"]


def test_rules_run_until_nothing_changes():
    rules: RuleSet[int] = RuleSet("down")

    @rules.given(Const)
    def down(e: Expr, least: int) -> Expr | None:
        return Const(e.value - 1) if isinstance(e, Const) and e.value > least else None

    assert rules.apply(i + 9, 2) is i + 2
    assert rules.apply(Min(Const(9), Const(7)), 2) is Const(2)  # folded as it is rebuilt


def test_results_are_remembered():
    rules: RuleSet[None] = RuleSet("count")
    calls: list[Expr] = []
    rules.rule(Add)(lambda e: calls.append(e))
    done: dict[Expr, Expr] = {}
    rules.apply(i + 1, None, done)
    rules.apply(minimum(i + 1, 3), None, done)
    assert len(calls) == 1


def test_sets_are_made_of_sets():
    part: RuleSet[None] = RuleSet("part")
    part.rule(Add)(lambda e: i)
    whole = RuleSet("whole", (part,))
    assert whole.apply((i + 1) * 2, None) is i * 2
    assert len(whole.stated) == 1


def test_rules_that_undo_each_other():
    rules: RuleSet[None] = RuleSet("circle")
    rules.rule(Add)(lambda e: Mul(*e.children))
    rules.rule(Mul)(lambda e: Add(*e.children))
    with pytest.raises(InternalError, match="circle: rules do not settle") as error:
        rules.apply(i + 1, None)
    assert error.value.node in ("i + 1", "i * 1")


def test_rules_that_grow():
    rules: RuleSet[None] = RuleSet("grow", fuel=1000)
    rules.rule(Add)(lambda e: Add(Add(*e.children), Add(e.children[0], i)))
    with pytest.raises(InternalError, match="grow: rules do not settle"):
        rules.apply(i + 1, None)


def test_deep_trees():
    rules: RuleSet[None] = RuleSet("deep")
    rules.rule(Var)(lambda e: Var("j") if e is i else None)
    e = deep()
    out = rules.apply(e, None)
    assert out is not e
    assert out.dtype is e.dtype


def test_statement():
    def rule(e: Expr) -> Expr | None:
        """x + 0 -> x

        More words -> not looked at.
        """
        return e

    assert statement(rule) == (Add(Var("x"), Const(0)), Var("x"))
