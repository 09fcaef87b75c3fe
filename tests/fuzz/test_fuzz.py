"""What the fuzzer found stays found, and a few cases of it run each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .case import Case, from_text, model_of, read, to_text
from .generate import case_of
from .judge import Finding, difference, judge
from .minimise import minimised
from .run import MILD
from .workers import Worker

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.onnxtxt"))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def faults(found: list[Finding]) -> list[str]:
    return [f"{f.kind}: {f.where}: {f.text}" for f in found if f.kind not in MILD]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forks beside threads
@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_corpus(path: Path, worker: Worker) -> None:
    """``python tests/fuzz/run.py FILE`` says the same."""
    assert faults(worker.judge(read(path))) == []


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return case_of(lambda low, high: draw(st.integers(low, high)), with_suite=False)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@settings(max_examples=12)
@given(case=cases())
def test_some_cases(case: Case, worker: Worker) -> None:
    assert faults(worker.judge(case)) == []


# ------------------------------------------------------------------------------------- the tool


def relu(**wanted: np.ndarray) -> Case:
    from onnx import helper

    x = np.array([1.5, -0.0, np.nan, -np.inf], np.float32)
    node = helper.make_node("Relu", ["x"], ["y"])
    return Case(model_of([node], {"x": x}, {}, ["y"], {"": 14}), ({"x": x},), "a note", wanted)


def test_files_keep_every_bit() -> None:
    case = relu(y=np.array([1.5, 0, np.nan, 0], np.float32))
    text = to_text(case)
    again = from_text(text)
    assert to_text(again) == text
    assert again.calls[0]["x"].tobytes() == case.calls[0]["x"].tobytes()
    assert again.note == "a note"


def test_a_wrong_number_is_found() -> None:
    assert judge(relu(y=np.array([1.5, 0, np.nan, 0], np.float32))) == []
    (finding,) = judge(relu(y=np.array([1.5, 0, np.nan, 1], np.float32)))
    assert (finding.kind, finding.where) == ("wrong", "optimised")


def test_only_rounding_is_allowed() -> None:
    one = np.ones(3, np.float32)
    assert not difference(one, one + np.float32(2e-7), [])
    assert difference(one, one + np.float32(1e-5), [])
    assert not difference(one, one + np.float32(1e-5), [one + np.float32(1e-6)])
    assert difference(one, one * np.nan, [])
    assert difference(np.arange(3), np.arange(3) + 1, [])


def test_integers_of_sums_may_be_cut_elsewhere() -> None:
    found, wanted = np.array([7, 3]), np.array([6, 3])
    assert difference(found, wanted, [])
    assert not difference(found, wanted, [], wide=[np.array([8, 3])])
    assert difference(found, wanted, [], wide=[np.array([5, 4])])


def test_cases_become_smaller() -> None:
    from onnx import helper

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Abs", ["b"], ["c"]),
    ]
    case = Case(model_of(nodes, {"x": x}, {}, ["a", "c"], {"": 14}), ({"x": x},))
    least = minimised(case, lambda c: "Neg" in c.operators)
    assert least.operators == ["Neg"]
    assert [a.size for a in least.calls[0].values()] == [1]
