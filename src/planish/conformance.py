"""What ONNX's backend tests said when they were last run: ``make conformance``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("conformance.json")
NODES: Final = "node"  # the suite whose cases are of one operator each
TARGETS: Final = ("llvm", "interpreter")

# Why cases fail that do not fail for what they say, by patterns of their names.
WHY: Final[Mapping[str, str]] = {
    r"test_(bernoulli|training_dropout)": (
        "random numbers: ONNX leaves the generator to who implements it, and the expected ones are"
        " those of numpy's"
    ),
    r"test_dft_inverse(_opset19)?$": (
        "where the exact value is 0, what is expected is a rounding error of float32, 1.9e-7, and"
        " what is given a smaller one"
    ),
    r"test_attention_4d_causal_fp16": (
        "what is expected was added up in float16; what is given, in float32, is nearer to the"
        " exact values"
    ),
    r"test_resize_downsample_scales_(cubic|linear)_align_corners$": (
        "by ONNX's text the corners are aligned over the length of the resized tensor; what is"
        " expected takes the length before it is rounded down, so that the corners are not aligned"
    ),
    r"test_loop16_seq_none$": (
        "what is given is what is expected, to the bit: ONNX's runner cannot compare a sequence"
        " that holds a scalar"
    ),
    r"test_affine_grid_.*_expanded": (
        "ONNX's definition squeezes whatever dimensions are 1, or gives a scalar or a vector in two"
        " branches: only the data tells the rank; the operator itself has a kernel"
    ),
}


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


def why(case: str, reason: str) -> str:
    """Why a case fails: what it says, or what is behind that."""
    return next((text for pattern, text in WHY.items() if re.match(pattern, case)), reason)


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
