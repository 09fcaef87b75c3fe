"""Each move is what its docstring says: what it makes of one program is another."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

import pytest

from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.schedules import moves
from planish.schedules.schedule import MOVES, parse_trace, replay

assert moves.__all__


@dataclass(frozen=True)
class Example:
    before: Function
    move: str
    after: Function


def example(doc: str) -> Example:
    """The programs and the move of a docstring."""
    parts = re.split(r"^(Before|Move|After):\n", doc, flags=re.MULTILINE)
    found = {k: textwrap.dedent(v) for k, v in zip(parts[1::2], parts[2::2], strict=True)}
    assert list(found) == ["Before", "Move", "After"]
    return Example(parse(found["Before"]), found["Move"], parse(found["After"]))


@pytest.mark.parametrize("name", sorted(MOVES))
def test_move_is_what_it_says(name: str):
    doc = inspect.getdoc(MOVES[name]) or ""
    found = example(doc)
    (step,) = parse_trace(found.move)
    assert step.move == name
    verify(found.before)
    made = replay(found.before, (step,)).func
    assert show(made) == show(verify(found.after))


@pytest.mark.parametrize("name", sorted(MOVES))
def test_move_says_when_it_is_legal(name: str):
    paragraphs = (inspect.getdoc(MOVES[name]) or "").split("\n\n")
    assert paragraphs[0].count("\n") == 0 and paragraphs[0].endswith(".")
    assert sum(p.startswith("Legal if: ") for p in paragraphs) == 1
