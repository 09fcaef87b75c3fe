"""What is recorded of ONNX's tests, and read of it."""

from __future__ import annotations

from planish.conformance import TARGETS, WHY, Score, conformance, plain, total, why


def test_scores() -> None:
    failures = {
        "a": {"llvm": "ImportModelError: Mod: it is odd", "interpreter": "wrong: by one"},
        "b": {"llvm": "ImportModelError: Mod: it is odd"},
        "c": {"llvm": "another reason"},
    }
    score = Score(5, failures)
    assert [score.passed(mode) for mode in ("llvm", "interpreter", "other")] == [2, 4, 5]
    assert score.reason == "it is odd"
    assert Score(1, {}).reason == ""
    whole = total([score, Score(2, {"d": {"llvm": "x"}})])
    assert (whole.cases, whole.passed("llvm")) == (7, 3)


def test_reasons_without_what_the_table_says_anyway() -> None:
    assert plain("ImportModelError: Cast: a: b") == "a: b"
    assert plain("RuntimeFault: Cast: a") == "a"
    assert plain("wrong: Not equal: x") == "wrong: Not equal: x"
    assert plain("ends the process with -11") == "ends the process with -11"


def test_every_explanation_is_of_a_case_that_fails() -> None:
    assert why("test_relu", "wrong: by one") == "wrong: by one"
    nodes = conformance().suites["node"].values()
    failing = [case for score in nodes for case in score.failures]
    assert {why(case, "") for case in failing} - {""} == set(WHY.values())


def test_what_is_recorded() -> None:
    found = conformance()
    assert list(found.suites) == sorted(found.suites)
    assert found.suite("node").cases > 1800
    assert found.suite("cases").cases == 70
    assert found.operator("Relu").cases > 1
    assert found.operator("no such operator").cases == 0
    for name in found.suites:
        score = found.suite(name)
        for target in TARGETS:
            assert 0 <= score.passed(target) <= score.cases
            assert found.peer_passed[name] <= score.cases
