"""What ONNX's backend tests said when they were last run: ``make conformance``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("conformance.json")
NODES: Final = "node"  # the suite whose cases are of one operator each
TARGETS: Final = ("llvm", "interpreter")


@dataclass(frozen=True)
class Score:
    """How many cases there are, and what each that fails says, by mode (target and options)."""

    cases: int
    failures: Mapping[str, Mapping[str, str]]

    def passed(self, mode: str) -> int:
        """How many cases pass in a mode."""
        return self.cases - sum(mode in reasons for reasons in self.failures.values())

    @property
    def reason(self) -> str:
        """What most failures say on the first target; empty if there is none."""
        said = Counter(plain(r[TARGETS[0]]) for r in self.failures.values() if TARGETS[0] in r)
        return min(said, key=lambda reason: (-said[reason], reason), default="")


def plain(reason: str) -> str:
    """A reason without the error's class and its operator."""
    words = reason.split(": ", 2)
    is_ours = words[0].endswith(("Error", "Fault"))
    return words[-1] if is_ours and len(words) > 2 else reason


@dataclass(frozen=True)
class Conformance:
    """Of which ONNX, each suite's scores by operator, and how many another runtime passes."""

    onnx: str
    suites: Mapping[str, Mapping[str, Score]]
    peer: str
    peer_passed: Mapping[str, int]

    def suite(self, name: str) -> Score:
        """The score of a whole suite."""
        return total(self.suites[name].values())

    def operator(self, name: str) -> Score:
        """The score of an operator."""
        return self.suites.get(NODES, {}).get(name, Score(0, {}))


def total(scores: Iterable[Score]) -> Score:
    """Scores as one."""
    some = list(scores)
    failures = {name: reasons for s in some for name, reasons in s.failures.items()}
    return Score(sum(s.cases for s in some), failures)


@cache
def conformance() -> Conformance:
    """What is recorded."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    suites = {
        suite: {name: _score(entry, found["modes"][suite]) for name, entry in operators.items()}
        for suite, operators in found["suites"].items()
    }
    peer = found["peer"]
    return Conformance(found["onnx"], suites, peer["name"], peer["passed"])


def _score(entry: dict[str, Any], modes: list[str]) -> Score:
    """A score as it is recorded: a reason alone is that of all modes."""
    failures = {
        case: dict.fromkeys(modes, said) if isinstance(said, str) else said
        for case, said in entry["failures"].items()
    }
    return Score(entry["cases"], failures)
