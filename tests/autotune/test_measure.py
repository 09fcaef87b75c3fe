"""Measuring: times, and everything that a candidate may do to its process."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planish.autotune import measure
from planish.autotune.kernels import Bench, Candidate
from planish.autotune.measure import Limits, LocalMeasurer, Result
from planish.autotune.tasks import Task
from planish.compiler.errors import TuningError
from planish.schedules.schedule import Step
from planish.schedules.trace import Trace, trace_to_json

from . import poisoned
from .some import matmul_task, rows_task

POISONED = (sys.executable, str(Path(poisoned.__file__)))
WANTED = {"crash": "crash", "hang": "timeout", "allocate": "memory", "wrong": "wrong",
          "illegal": "crash", "exit": "crash", "nonsense": "crash", "": ""}  # fmt: skip


def traces(task: Task, count: int, seed: int = 0) -> list[Trace]:
    """So many different schedules."""
    pick, found = Random(seed), {}
    while len(found) < count:
        found[task.space.random(pick).schedule.trace] = True
    return list(found)


@pytest.mark.parametrize("task", [matmul_task(threads=2), rows_task()], ids=lambda t: t.label)
def test_times(task: Task) -> None:
    some = traces(task, 3)
    with LocalMeasurer(2) as measurer:
        results = measurer.results(task, some, float("inf"))
        both = measurer.compare(task, some[0], some[1], 3)
        hopeless = measurer.results(task, some[:1], 1e-9)
    assert all(r is not None and not r.error and len(r.seconds) == 5 for r in results)
    assert both is not None
    assert len(both[0].seconds) == len(both[1].seconds) == 3
    assert hopeless[0] is not None
    assert hopeless[0].stopped
    assert len(hopeless[0].seconds) == 1


def test_schedules_that_are_none() -> None:
    task = matmul_task()
    good = task.space.default().schedule.trace
    bad: list[tuple[Trace, str]] = [
        ((Step("split", ("s0.nowhere", 4)),), "schedule"),
        ((Step("explode", ()),), "schedule"),
        ((Step("layout", ("b0", ("d1", "d0"), (64, 32))),), "build"),  # that is no constant
    ]
    with LocalMeasurer(1) as measurer:
        results = measurer.results(task, [*(t for t, _ in bad), good], float("inf"))
    assert [r and r.error for r in results] == [*(kind for _, kind in bad), ""]


def test_a_default_that_fails_is_the_tasks_fault() -> None:
    task = matmul_task(m=31)
    broken = Task(task.func, task.constants, task.target, task.threads, (5,))
    with LocalMeasurer(1) as measurer, pytest.raises(TuningError, match="default schedule of"):
        measurer.results(broken, [task.space.default().schedule.trace], 1.0)


def test_wrong_answers_are_seen() -> None:
    bench = Bench(matmul_task())
    answer = bench.answer[0]
    assert bench.check([answer]) == ""
    assert bench.check([answer * (1 + 1e-6)]) == ""
    assert "differs by" in bench.check([answer + 1e-2 * abs(answer).max()])
    broken = answer.copy()
    broken[3, 5] = float("nan")
    assert "not finite at other places" in bench.check([broken])
    assert bench.check(Candidate(bench, traces(matmul_task(), 1)[0]).run()) == ""


def poisoned_run(
    count: int, monkeypatch: pytest.MonkeyPatch, seconds: float = 5.0
) -> list[tuple[str, Result]]:
    """What candidates were to do, and what came of them; each may take so many seconds."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    task = matmul_task()
    some = traces(task, count)
    limits = Limits(build_seconds=seconds, rounds=1, memory=4 << 30)
    with LocalMeasurer(2, limits, POISONED) as measurer:
        results = measurer.results(task, some, float("inf"))
    kinds = [poisoned.kind_of(trace_to_json(t)) for t in some]
    return [(kind, r) for kind, r in zip(kinds, results, strict=True) if r is not None]


def check_poisoned(found: list[tuple[str, Result]], count: int) -> None:
    assert len(found) == count
    for kind, result in found:
        assert result.error == WANTED[kind], (kind, result)
        assert bool(result.seconds) == (not kind)


def test_poison_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    found = poisoned_run(14, monkeypatch)
    check_poisoned(found, 14)
    assert len({kind for kind, _ in found}) >= 4


def test_what_is_built_beside_one_that_hangs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    task = matmul_task()
    some = traces(task, 60)
    kinds = [poisoned.kind_of(trace_to_json(t)) for t in some]
    pair = [some[kinds.index("hang")], some[kinds.index("")]]
    with LocalMeasurer(2, Limits(build_seconds=3.0, rounds=1), POISONED) as measurer:
        for _ in range(2):  # the first time, the second process starts while the first one hangs
            results = measurer.results(task, pair, float("inf"))
            assert [r and r.error for r in results] == ["timeout", ""]


def test_time_in_which_all_is_stopped_does_not_count() -> None:
    class Slow(selectors.SelectSelector):
        """One that comes back late, as after a stop."""

        def select(self, timeout: float | None = None) -> list[Any]:
            time.sleep((timeout or 0.0) + late)
            return []

    with Slow() as selector:
        late = 1.2
        _, missed = measure._select(selector, 0.1)
        assert 1.1 < missed < 5.0
        late = 0.0
        assert measure._select(selector, 0.1) == ([], 0.0)


def test_a_process_that_is_stopped_is_replaced() -> None:
    """One that somebody stops, and that does not end, is no better than one that hangs."""
    task = matmul_task()
    some = traces(task, 2)
    with LocalMeasurer(1, Limits(build_seconds=9.0, run_seconds=2.0, rounds=1)) as measurer:
        assert [r and r.error for r in measurer.results(task, some[:1], float("inf"))] == [""]
        process = measurer._processes[0]
        assert process is not None
        process._child.send_signal(signal.SIGSTOP)
        results = measurer.results(task, some, float("inf"))
        assert [r and r.error for r in results] == ["", ""]  # it was seen before they were built
        assert process._child.poll() is not None


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_much_poison_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred candidates that harm; the memory of this process stays what it was."""
    monkeypatch.setenv("POISONED_EVERY", "1")
    poisoned_run(8, monkeypatch)
    before = resident()
    found = poisoned_run(200, monkeypatch, 10.0)  # the machine may be busy
    check_poisoned(found, 200)
    assert set(Counter(kind for kind, _ in found)) == set(poisoned.KINDS)
    assert resident() - before < 20 << 20


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_the_end_of_a_job_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that hangs does not hold up the end."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    task = matmul_task()
    hanging = [t for t in traces(task, 40) if poisoned.kind_of(trace_to_json(t)) == "hang"][:1]
    assert hanging
    with LocalMeasurer(1, Limits(build_seconds=60.0), POISONED) as measurer:
        measurer.until = time.monotonic() + 6.0
        began = time.monotonic()
        assert measurer.results(task, hanging, float("inf")) == [None]
        assert time.monotonic() - began < 9.0


def test_a_process_that_does_not_start_says_why() -> None:
    task = matmul_task()
    command = (sys.executable, "-c", "import sys; sys.exit('there is no planish here')")
    with LocalMeasurer(1, command=command) as measurer:
        (result,) = measurer.results(task, [task.space.default().schedule.trace], 1.0)
    assert result is not None and result.error == "crash"
    assert result.detail == "its process ended with status 1: there is no planish here"
