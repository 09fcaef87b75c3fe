"""Jobs: what they find, what they write, and that they can be ended anywhere."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import onnx.parser
import pytest

import planish
from planish.autotune.cost import CostModel
from planish.autotune.features import NAMES
from planish.autotune.measure import Result
from planish.autotune.records import Best, read
from planish.autotune.search import Search
from planish.autotune.tasks import Task
from planish.autotune.tune import Job, Options, Progress
from planish.compiler.errors import TuningError, TypeCheckError
from planish.schedules.trace import Trace
from planish.tuning import seconds_of

from .some import matmul_task, rows_task

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
g (float[n, 64] x) => (float[n, 48] y) <float[64, 48] w = {WEIGHTS}> {
  a = MatMul(x, w)
  y = Relu(a)
}""".replace("WEIGHTS", ", ".join(["0.5"] * (64 * 48)))


def cost(trace: Trace) -> float:
    """A time that follows from the schedule."""
    digest = hashlib.sha256(str(trace).encode()).digest()
    return 1e-3 * (1 + digest[0] / 256)


class Made:
    """A measurer whose times follow from the traces; some fail."""

    until = float("inf")

    def __init__(self, failing: int = 0) -> None:
        self.failing, self.seen = failing, list[Trace]()
        self.closed = False

    def results(
        self,
        task: Task,
        traces: Sequence[Trace],
        incumbent: float,
        built: Callable[[], object] = lambda: None,
    ) -> list[Result | None]:
        built()
        out: list[Result | None] = []
        for t in traces:
            self.seen.append(t)
            fails = self.failing and len(self.seen) > 3 and len(str(t)) % self.failing == 0
            out.append(Result(error="crash") if fails else Result((cost(t), 2 * cost(t))))
        return out

    def compare(
        self, task: Task, old: Trace, new: Trace, rounds: int
    ) -> tuple[Result, Result] | None:
        return Result((cost(old),) * rounds), Result((cost(new),) * rounds)

    def close(self) -> None:
        self.closed = True


def job(tmp_path: Path, measurer: Made, **options: object) -> Progress:
    tasks = [matmul_task(), rows_task()]
    given = Options(**{"budget": 60.0, "trials": 60, **options})  # type: ignore[arg-type]
    return Job(tasks, tmp_path / "log.jsonl", given, measurer=measurer, model=CostModel()).run()


def test_a_job_finds_the_better_ones(tmp_path: Path) -> None:
    measurer = Made()
    found = job(tmp_path, measurer)
    assert found.trials == 60
    assert found.seconds < found.first
    assert measurer.closed
    contents = read([tmp_path / "log.jsonl"])
    assert sum(r.kind == "trial" for r in contents.records) == 60
    assert set(contents.texts) == {matmul_task().key, rows_task().key}
    for state in found.states:
        times = [r.time for r in contents.records if r.task == state.task.key]
        best = Best(contents).of(state.task.key, state.task.target_key, 1)
        if state.seconds < state.first:
            assert best is not None
            assert best.trace == state.best.schedule.trace
            assert state.seconds <= 1.03 * min(times)


def test_failures_are_counted_and_not_chosen(tmp_path: Path) -> None:
    found = job(tmp_path, Made(failing=3))
    assert found.failures["crash"] > 5
    contents = read([tmp_path / "log.jsonl"])
    assert sum(r.error == "crash" for r in contents.records) == found.failures["crash"]
    assert all(not r.error for r in Best(contents))


def test_a_job_goes_on_from_its_log(tmp_path: Path) -> None:
    first = Made()
    before = job(tmp_path, first, trials=30)
    second = Made()
    after = job(tmp_path, second, trials=30)
    assert after.seconds <= before.seconds
    started = {s.best.schedule.trace for s in before.states}
    repeated = set(first.seen) & set(second.seen)
    assert repeated <= started  # only what it begins with is measured again
    assert after.first == pytest.approx(before.seconds)


def test_a_job_does_not_go_on_from_another_cpus_records(tmp_path: Path) -> None:
    job(tmp_path, Made(), trials=30)
    log = tmp_path / "log.jsonl"
    key = matmul_task().target_key
    log.write_text(log.read_text().replace(key, "llvm-other-avx2-00000000"))
    before = log.read_bytes()
    measurer = Made()
    found = job(tmp_path, measurer, trials=4)
    assert measurer.seen[0] == matmul_task().space.default().schedule.trace
    assert found.states[0].first == cost(measurer.seen[0])
    assert log.read_bytes().startswith(before)


def test_the_draws_of_a_job_are_repeatable(tmp_path: Path) -> None:
    """Which task comes when depends on the time that rounds take."""
    runs = []
    for k in range(2):
        folder = tmp_path / str(k)
        folder.mkdir()
        measurer = Made()
        Job([matmul_task()], folder / "log.jsonl", Options(300.0, trials=40, seed=3),
            measurer=measurer, model=CostModel()).run()  # fmt: skip
        runs.append(measurer.seen)
    assert runs[0] == runs[1]


def test_tasks_lend_each_other_what_was_good(tmp_path: Path) -> None:
    """What is best for one is among the first that are tried for another one like it."""
    tasks = [matmul_task(m=32, n=48, k=64 + 4 * k) for k in range(3)]
    measurer = Made()
    found = Job(tasks, tmp_path / "log.jsonl", Options(120.0, trials=60), measurer=measurer,
                model=CostModel()).run()  # fmt: skip
    assert found.trials == 60
    best = found.states[0].best
    other = Job(tasks[1:2], tmp_path / "other.jsonl", Options(120.0, trials=6),
                measurer=(second := Made()), model=CostModel(),
                logs=[tmp_path / "log.jsonl"]).run()  # fmt: skip
    assert other.trials == 6
    lent = [
        tasks[1].space.point(s.best.decisions).schedule.trace
        for s in found.states
        if s.task is not tasks[1] and s.seconds < s.first
    ]
    assert lent, best
    assert set(lent) & set(second.seen[:5])


def test_plain_schedules_are_begun_with(tmp_path: Path) -> None:
    """From there on as well nobody estimates anything."""
    measurer = Made()
    job(tmp_path, measurer, trials=20, start="plain")
    plain = matmul_task().space.plain().schedule.trace
    assert plain in measurer.seen
    contents = read([tmp_path / "log.jsonl"])
    assert len(Best(contents)) == 0  # it cannot be told whether they are better than the default
    assert any(r.kind == "best" for r in contents.records)


def test_what_ends_a_job(tmp_path: Path) -> None:
    began = time.monotonic()
    found = job(tmp_path, Made(), budget=2.0, trials=None)
    assert 1.0 < time.monotonic() - began < 10.0
    assert found.trials > 5
    found = job(tmp_path, Made(), trials=None, enough=1.0)
    assert found.trials == 2  # it was enough from the beginning
    with pytest.raises(TuningError, match="nothing to tune"):
        Job([], tmp_path / "log.jsonl", measurer=Made())


def test_an_interrupt_ends_a_job_well(tmp_path: Path) -> None:
    def report(p: Progress) -> None:
        if p.trials >= 12:
            raise KeyboardInterrupt

    measurer = Made()
    log = tmp_path / "log.jsonl"
    found = Job([matmul_task()], log, Options(60.0), measurer=measurer, model=CostModel(),
                report=report).run()  # fmt: skip
    assert found.interrupted
    assert measurer.closed
    assert len(read([log]).records) >= 12


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_loses_ends_a_job_too(tmp_path: Path) -> None:
    """In the callback of a weak reference, where exceptions are only written to stderr."""

    class Thing:
        pass

    lost: list[int] = []

    def report(p: Progress) -> None:
        if p.trials >= 12:
            thing = Thing()
            dying = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
            del thing
            lost.append(p.trials)
            assert dying() is None

    before = signal.getsignal(signal.SIGINT)
    found = Job([matmul_task()], tmp_path / "log.jsonl", Options(60.0), measurer=Made(),
                model=CostModel(), report=report).run()  # fmt: skip
    assert found.interrupted
    assert lost == [found.trials]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_search_does_not_repeat_itself() -> None:
    task = matmul_task()
    search = Search(task, task.space, Random(0))
    model = CostModel()
    seen = {task.space.default().schedule.trace}
    for _ in range(3):
        for point in search.propose(6, model):
            assert point.schedule.trace not in seen
            seen.add(point.schedule.trace)
            search.told(point, cost(point.schedule.trace))
    assert len(seen) == 19
    assert search.samples[0].features.shape == (len(NAMES),)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (30, 30.0), (0.5, 0.5)]
)
def test_budgets(text: str | float, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-3s", "0s", "1d", "1 m", 0, -1, True, None])
def test_what_is_no_budget(text: object) -> None:
    with pytest.raises(TypeCheckError, match="no time"):
        seconds_of(text)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ whole models


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return path


def test_a_model_is_tuned_and_compiled(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    found = planish.tune(
        model,
        "60s",
        log,
        threads=1,
        sizes={"n": 32},
        trials=20,
        measurer=Made(),
        cost_model=CostModel(),
    )
    (state,) = found.states
    assert state.task.sizes == (32,)
    assert state.seconds < state.first
    plain, tuned = planish.compile(model, threads=1, logs=[]), planish.compile(
        model, threads=1, logs=[log]
    )  # fmt: skip
    assert (plain.stats()["tuned"], plain.stats()["default"]) == (0, 1)
    assert (tuned.stats()["tuned"], tuned.stats()["default"]) == (1, 0)
    (schedule,) = tuned.provenance["schedules"].values()
    assert schedule["trace"] == state.best.schedule.text()
    for rows in (1, 7, 32, 50):
        x = np.random.default_rng(rows).standard_normal((rows, 64), np.float32)
        np.testing.assert_allclose(tuned(x)[0], plain(x)[0], rtol=1e-5)
    # For another number of threads, there is no record.
    assert planish.compile(model, threads=2, logs=[log]).stats()["tuned"] == 0


def test_records_that_fit_no_more_are_not_used(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    planish.tune(model, "60s", log, threads=1, trials=20, measurer=Made(), cost_model=CostModel())
    log.write_text(log.read_text().replace('"vectorize"', '"vectorise"'))
    assert planish.compile(model, threads=1, logs=[log]).stats()["tuned"] == 0


def test_options_that_do_not_fit(tmp_path: Path, model: Path) -> None:
    with pytest.raises(TypeCheckError, match="no option colour"):
        planish.tune(model, "1s", tmp_path / "log", colour=3)
    with pytest.raises(TypeCheckError, match="cannot be measured on this machine"):
        planish.tune(model, "1s", tmp_path / "log", "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux")


def tuning(model: Path, log: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "planish", "tune", str(model), "--log", str(log), *more]
    marked = {**os.environ, "PLANISH_TEST": str(log)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=marked
    )


def test_a_job_on_this_machine(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    process = tuning(model, log, "--budget", "120s", "--threads", "1", "--trials", "12")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "12 trials" in out
    assert "ten more minutes are expected to bring" in out.splitlines()[-1]
    assert len([r for r in read([log]).records if r.kind == "trial"]) == 12


def killed_and_resumed(model: Path, log: Path, moments: Sequence[float]) -> None:
    """Kill jobs at moments; what was in the log stays as it was, but for a line cut off."""
    for moment in moments:
        before = log.read_bytes() if log.exists() else b""
        process = tuning(model, log, "--budget", "60s", "--threads", "1")
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = log.read_bytes() if log.exists() else b""
        assert after.startswith(before)
        assert not log.exists() or read([log]).skipped <= len(moments)
    deadline = time.monotonic() + 30
    while (left := workers(log)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left


def workers(log: Path) -> list[Path]:
    """The processes that a job for a log has started and that are still there."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PLANISH_TEST={log}\0".encode() in environment.read_bytes() + b"\0":
                found.append(environment.parent)
        except OSError:  # it has ended, or is not ours
            continue
    return found


def test_killed_jobs_lose_nothing(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    killed_and_resumed(model, log, [4.0, 6.0])
    count = len(read([log]).records)
    process = tuning(model, log, "--budget", "120s", "--threads", "1", "--trials", "8")
    process.communicate(timeout=200)
    assert process.returncode == 0
    assert len(read([log]).records) >= count + 1


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_killed_jobs_lose_nothing(tmp_path: Path, model: Path) -> None:
    pick = Random(0)
    log = tmp_path / "log.jsonl"
    killed_and_resumed(model, log, [pick.uniform(1.0, 15.0) for _ in range(20)])


def test_an_interrupt_from_the_keyboard(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    process = tuning(model, log, "--budget", "200s", "--threads", "1")
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and not (log.exists() and len(read([log]).records) > 2):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # Where the interrupt met code made from text, Python ends by the signal: 130 to a shell too.
    assert process.returncode in (130, -signal.SIGINT), err
    assert f"the same command goes on from {log}" in out
    assert os.path.getsize(log) > 0
