"""A part of ONNX's backend tests, and our own cases: what passed before must pass."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

from .run import MODES, outcomes, recorded_failures, table
from .suites import OWN, PEER, SUITES, Case, cases, compare, outcome, short

OURS: Final = tuple(mode for mode in MODES if mode != PEER)

EVERY: Final = 24  # node case, a different one for each mode
# Families of which all run: each a kind of work, or a rule, of its own.
FAMILIES: Final = {
    "interpreter": ("test_reduce_l2_", "test_slice", "test_argmax_", "test_averagepool_1d"),
    "llvm": ("test_softmax_", "test_resize_down", "test_lstm_", "test_matmul_", "test_where_",
             "test_sequence_", "test_split_to_seq", "test_optional_", "test_if_seq", "test_loop"),
    "llvm, not optimised": ("test_gemm_", "test_pad", "test_cumsum_"),
}  # fmt: skip


def broken(some: list[Case], mode: str) -> list[str]:
    """What fails although it is not recorded to."""
    known = recorded_failures(mode) | recorded_failures("llvm")
    target, optimize = MODES[mode]
    chosen = [case for case in some if (case.suite, case.name) not in known]
    results = {case.name: outcome(case, target, optimize) for case in chosen}
    return [f"{name}: {result}" for name, result in results.items() if result != "pass"]


@pytest.mark.parametrize("mode", OURS)
def test_own_cases(mode: str) -> None:
    some = cases(OWN)
    assert len(some) == 70
    assert broken(some, mode) == []


@pytest.mark.parametrize("mode", OURS)
def test_some_node_cases(mode: str) -> None:
    some = cases("node")
    first = OURS.index(mode) * EVERY // len(OURS)
    chosen = some[first::EVERY]
    chosen += [c for c in some if c.name.startswith(FAMILIES[mode]) and c not in chosen]
    assert broken(chosen, mode) == []


def test_some_models() -> None:
    for suite in SUITES[1:]:
        assert broken(cases(suite)[::4], "llvm") == []


# ------------------------------------------------------------------------------------ the tool


def case_of(name: str, load: Callable[[], Any]) -> Case:
    return Case("made up", name, "Relu", load, 1e-3, 1e-7)


def relu(wanted: float) -> Any:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    imports = [onnx.helper.make_opsetid("", 14)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    return model, [([np.float32([2])], [np.float32([wanted])])]


def test_outcomes() -> None:
    assert outcome(case_of("right", lambda: relu(2)), "interpreter") == "pass"
    assert outcome(case_of("wrong", lambda: relu(3)), "interpreter").startswith("wrong: Not equal")
    missing = case_of("missing", lambda: (Path("none.onnx"), []))
    assert outcome(missing, "interpreter").startswith("ParseError: ")
    fault = case_of("fault", lambda: {}["x"])  # type: ignore[misc]
    assert outcome(fault, "interpreter") == "not an error of ours: KeyError: 'x'"


def spin() -> Any:
    while True:
        pass


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forks beside threads
def test_a_case_that_ends_its_process_is_a_failure() -> None:
    some = [
        case_of("first", lambda: relu(2)),
        case_of("crash", lambda: os.kill(os.getpid(), signal.SIGSEGV)),
        case_of("slow", spin),
        case_of("last", lambda: relu(2)),
    ]
    found = {case.name: result for case, result in outcomes(some, "interpreter", seconds=2)}
    assert found == {
        "first": "pass",
        "crash": "ends the process with -11",
        "slow": "takes more than 2 s",
        "last": "pass",
    }
    rows = [(case, "llvm", found[case.name]) for case in some]
    failures = {name: {"llvm": found[name]} for name in ("crash", "slow")}
    assert table(rows) == {"made up": {"Relu": {"cases": 4, "failures": failures}}}


def test_integers_of_own_cases_must_be_the_same() -> None:
    with pytest.raises(AssertionError):
        compare([np.int64([1001])], [np.int64([1000])], case_of("integers", lambda: None))


def test_reasons_are_short_and_the_same_everywhere() -> None:
    assert short("no\n  file /tmp/a/b.onnx here") == "no file b.onnx here"
    assert len(short("x" * 1000)) == 160
    assert not re.search("/", short("/home/someone/x"))
