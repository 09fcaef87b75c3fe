"""Moves that are not legal, and what is said of them: one file of cases for each module of moves.

A file has programs, each after a line ``=== NAME``, and cases: after a line ``--- NAME``, the
moves on that program, a line ``refused:``, and the whole text of the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify
from planish.schedules.schedule import parse_trace, replay

FOLDER = Path(__file__).parent / "refused"


@dataclass(frozen=True)
class Refusal:
    program: str
    moves: str
    error: str


def refusals(name: str) -> list[Any]:
    """The cases of a file, as parameters of a test."""
    text = (FOLDER / f"{name}.txt").read_text()
    parts = re.split(r"^(===|---) (\w+)\n", text, flags=re.MULTILINE)[1:]
    programs: dict[str, str] = {}
    found = []
    for mark, key, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if mark == "===":
            programs[key] = body.strip("\n")
            continue
        moves, error = body.split("\nrefused:\n")
        case = Refusal(programs[key], moves.strip(), error.strip("\n"))
        found.append(pytest.param(case, id=f"{key}-{case.moves.splitlines()[-1]}"))
    return found


def check_refusal(case: Refusal) -> None:
    """The last move is refused in these words; those before it are legal."""
    *before, last = parse_trace(case.moves)
    s = replay(verify(parse(case.program)), tuple(before))
    with pytest.raises(ScheduleError) as caught:
        replay(s.func, (last,))
    assert str(caught.value) == case.error
