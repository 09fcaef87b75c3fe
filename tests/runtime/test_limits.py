from __future__ import annotations

import pytest

from planish.runtime.limits import Limits, best_of, measure_limits


def test_rates_are_of_this_world() -> None:
    limits = measure_limits(1, rounds=1)
    assert limits.threads == 1
    assert 1e8 < limits.flops < 1e13
    assert 1e8 < limits.read_bytes < 1e13
    assert 1e8 < limits.copy_bytes < 1e13


def test_more_threads_than_there_are() -> None:
    assert measure_limits(10_000, rounds=1).threads < 10_000


def test_the_least_time() -> None:
    limits = Limits(1, 100.0, 10.0, 5.0)
    assert limits.seconds(200, 5) == pytest.approx(2)
    assert limits.seconds(100, 50) == pytest.approx(10)


def test_the_best_of_two() -> None:
    assert best_of(Limits(2, 1, 5, 3), Limits(2, 2, 4, 3)) == Limits(2, 2, 5, 3, apart=1)
    quiet, busy = Limits(2, 10, 5, 3, apart=0.01), Limits(2, 10, 4, 3, apart=0.5)
    assert best_of(quiet, quiet).apart == 0.01
    assert best_of(quiet, busy).apart == 0.5


def test_rounds_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where something else took the cores for some of the time."""
    from planish.runtime import limits

    times = iter([0.9] * 3 + [0.1] * 3 + [0.1, 0.1, 0.2] + [0.1, 0.1, 0.3])
    monkeypatch.setattr(limits, "_seconds", lambda _: next(times))
    assert measure_limits(1, rounds=3).apart == pytest.approx(1)
