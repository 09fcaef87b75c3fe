"""Rewriting by rules: plain functions, one per rule, registered by the class of node they look at.

A rule gives another expression of the same value, or None. One that needs nothing but the node is
registered with ``rule`` and states itself in its docstring, ``x - 0.0 -> x``; ``statement`` parses
that, and a test holds the rule to it. One that needs to know ranges is registered with ``given``
and also takes the facts.

The engine is a loop, not a recursion; it sees a node after its operands are settled, and works on
every distinct node once. Its *fuel* bounds the number of steps: rules that undo each other are an
error that names the set and the node, not a hang.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from planish.compiler.dtypes import BOOL, F32, I32
from planish.compiler.errors import InternalError

from .nodes import Expr
from .text import Scope, parse, show

Known = TypeVar("Known")
Rule: TypeAlias = Callable[[Expr], Expr | None]
Given: TypeAlias = Callable[[Expr, Known], Expr | None]

STATEMENT: Final = Scope(
    variables={
        **dict.fromkeys(("p", "q", "r"), BOOL),
        **dict.fromkeys(("a", "b", "c"), F32),
        **dict.fromkeys(("u", "v", "w"), I32),
    }
)
"""Names in statements of rules: p, q, r are bool, a, b, c are f32, u, v, w are i32, others i64."""

_CHAIN: Final = 500
"""How often a node may be rewritten before the rules are taken to go in circles."""


class RuleSet(Generic[Known]):
    """Rules under a name, applied until none changes anything."""

    def __init__(
        self, name: str, parts: tuple[RuleSet[Known], ...] = (), fuel: int = 2_000_000
    ) -> None:
        self.name = name
        self.fuel = fuel
        self.stated: list[Rule] = [rule for p in parts for rule in p.stated]
        self._rules: dict[type[Expr], list[Given[Known]]] = {}
        for p in parts:
            for cls, rules in p._rules.items():
                self._rules.setdefault(cls, []).extend(rules)

    def rule(self, *classes: type[Expr]) -> Callable[[Rule], Rule]:
        """Register a rule that states itself in its docstring."""

        def register(function: Rule) -> Rule:
            self.stated.append(function)
            for cls in classes:
                self._rules.setdefault(cls, []).append(lambda e, _: function(e))
            return function

        return register

    def given(self, *classes: type[Expr]) -> Callable[[Given[Known]], Given[Known]]:
        """Register a rule that also looks at what is known."""

        def register(function: Given[Known]) -> Given[Known]:
            for cls in classes:
                self._rules.setdefault(cls, []).append(function)
            return function

        return register

    def step(self, e: Expr, known: Known) -> Expr | None:
        """What the first rule that applies makes of a node; None if no rule does."""
        for rule in self._rules.get(type(e), ()):
            out = rule(e, known)
            if out is not None and out is not e:
                return out
        return None

    def apply(self, root: Expr, known: Known, done: dict[Expr, Expr] | None = None) -> Expr:
        """The expression with all rules applied everywhere.

        ``done`` remembers results for the same knowledge between calls.

        Errors: InternalError if the rules do not settle.
        """
        if done is None:
            done = {}
        elif (found := done.get(root)) is not None:
            return found
        mine: dict[Expr, Expr] = {}  # kept here as well: another thread may empty ``done``
        fuel = self.fuel
        stack = [(root, root, 0)]  # (node to find the value of, its current form, rewrites so far)
        while stack:
            node, form, count = stack[-1]
            if node in mine:
                stack.pop()
                continue
            out = mine.get(form)
            if out is None:
                out = done.get(form)
            if out is not None:
                mine[node] = done[node] = out
                continue
            children = form.children
            if todo := [c for c in children if c not in mine]:
                stack.extend((c, c, 0) for c in todo)
                continue
            settled = tuple(map(mine.__getitem__, children))
            if settled != children:
                form = form.rebuild(settled)
                out = mine.get(form)
            out = out if out is not None else self.step(form, known)
            if out is None:
                mine[node] = done[node] = mine[form] = done[form] = form
            else:
                stack[-1] = (node, out, count + 1)
            fuel -= 1
            if fuel < 0 or count > _CHAIN:
                raise InternalError("rules do not settle", op=self.name, node=show(form, 500))
        return mine[root]


def statement(rule: Rule) -> tuple[Expr, Expr]:
    """The two sides that a rule states in the first line of its docstring."""
    text = (rule.__doc__ or "").strip().splitlines()[0]
    left, right = text.split("->")
    return parse(left, STATEMENT), parse(right, STATEMENT)
