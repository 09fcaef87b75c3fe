"""Tuning on a cluster: what is lost is done again, and nothing twice; what ends a job."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import onnx
import pytest

import planish
from planish.autotune.cluster import ClusterMeasurer
from planish.autotune.cost import CostModel
from planish.autotune.device import Device, alone, label_of, results_of
from planish.autotune.measure import BrokenTask, Limits, LocalMeasurer
from planish.autotune.records import Record, read
from planish.autotune.tasks import Task
from planish.autotune.tune import Job, Options, Progress
from planish.cli import main
from planish.compiler.errors import ParseError, TuningError, TypeCheckError
from planish.schedules.trace import trace_to_json
from planish.targets.llvm.target import host
from planish.targets.target import parse_target

from .some import matmul_task, rows_task
from .test_measure import POISONED, WANTED, poisoned, traces
from .test_tune import MODEL

QUICK = Limits(build_seconds=20.0, rounds=1)


@pytest.fixture(autouse=True)
def found_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find planish, and the tests, where this one does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))


# ------------------------------------------------------------------------------------- one device


def device(limits: Limits = QUICK, command: tuple[str, ...] | None = None) -> Device:
    given = json.dumps(asdict(limits))
    return Device(given, 2, command) if command else Device(given, 2)


def command(do: str, task: Task, some: list[Any], **more: Any) -> str:
    given = {"do": do, "task": task.to_json(), "traces": [trace_to_json(t) for t in some]}
    return json.dumps({**given, **more})


def test_a_device_is_what_a_measurer_is() -> None:
    task = rows_task()
    some = traces(task, 3)
    with LocalMeasurer(2, QUICK) as measurer:
        local = measurer.results(task, some, float("inf"))
    d = device()
    try:
        text = d.work(command("results", task, some, incumbent=float("inf")), 100.0)
        there = results_of(json.loads(text), 3)
        text = d.work(command("compare", task, some[:2], rounds=3), 100.0)
        both = results_of(json.loads(text), 2)
        late = d.work(command("results", task, some, incumbent=1.0), -1.0)
    finally:
        d.close()
    assert [(r and len(r.seconds), r and r.error) for r in there] == [
        (r and len(r.seconds), r and r.error) for r in local
    ]
    assert [r and len(r.seconds) for r in both] == [3, 3]
    assert results_of(json.loads(late), 3) == [None] * 3


def test_poison_does_no_harm_to_a_device() -> None:
    task = matmul_task()
    some = traces(task, 8)
    kinds = [poisoned.kind_of(trace_to_json(t)) for t in some]
    assert len(set(kinds)) > 2
    d = device(Limits(build_seconds=3.0, rounds=1, memory=4 << 30), POISONED)
    try:
        text = d.work(command("results", task, some, incumbent=float("inf")), 100.0)
    finally:
        d.close()
    assert [r and r.error for r in results_of(json.loads(text), 8)] == [WANTED[k] for k in kinds]


def test_a_broken_task_is_one_for_all() -> None:
    task = matmul_task(m=31)
    broken = Task(task.func, task.constants, task.target, task.threads, (5,))
    d = device()
    try:
        with pytest.raises(BrokenTask, match="not a task|default schedule of"):
            some = [task.space.default().schedule.trace]
            text = d.work(command("results", broken, some, incumbent=1.0), 100.0)
            results_of(json.loads(text), 1)
    finally:
        d.close()


@pytest.mark.parametrize("data", [3, [], [1], [{"seconds": ["1"]}], {"broken": 1}, [[None]]])
def test_what_is_no_answer(data: Any) -> None:
    with pytest.raises(ParseError):
        results_of(data, 1)


def test_one_at_a_time_on_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    soon = time.monotonic() + 0.2
    with alone(soon, path) as first, alone(soon, path) as second:
        assert (first, second) == (True, False)
    with alone(soon, path) as third:
        assert third


def test_labels_are_of_cpus() -> None:
    mine, other = label_of(host()), label_of(parse_target("llvm -mcpu=znver4"))
    assert mine != other
    assert mine == label_of(parse_target(str(host())))


# -------------------------------------------------------------------------------------- a cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Ray on this machine that takes itself for two machines, and lets nobody else in."""
    token = tmp_path_factory.mktemp("cluster") / "token"
    token.write_text(uuid4().hex)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
        patch.setenv("PLANISH_TEST", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        pytest.importorskip("ray")  # reads the environment, once
        from ray.cluster_utils import Cluster

        each = {
            "num_cpus": 1,
            "object_store_memory": 80 << 20,
            "resources": {label_of(host()): 1},
        }
        found = Cluster(initialize_head=True, head_node_args={**each, "include_dashboard": False})
        found.add_node(**each)
        yield found
        found.shutdown()


def actors() -> list[int]:
    """The processes of our cluster's actors that measure."""
    mark = f"PLANISH_TEST={os.environ['PLANISH_TEST']}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            named = b"ray::Device" in (folder / "cmdline").read_bytes()
            if named and mark in (folder / "environ").read_bytes() + b"\0":
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def trials(log: Path) -> list[Record]:
    return [r for r in read([log]).records if r.kind == "trial"]


def disturbed(address: str, log: Path, how: signal.Signals, count: int) -> Progress:
    """A job while which one of two actors gets a signal in the middle of its work."""
    sent: list[int] = []

    def disturb() -> None:
        while not (log.exists() and trials(log)):
            time.sleep(0.02)
        time.sleep(0.3)
        sent.append(actors()[0])
        os.kill(sent[0], how)

    with ClusterMeasurer(host(), address, QUICK) as measurer:
        assert measurer.devices == 2
        thread = Thread(target=disturb)
        thread.start()
        options = Options(120.0, trials=count, batch=8)
        found = Job([matmul_task()], log, options, measurer=measurer, model=CostModel()).run()
        thread.join()
        assert measurer.lost >= 1
    deadline = time.monotonic() + 20
    while actors() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sent
    assert not actors()
    return found


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.long),
    ],
)
def test_an_actor_that_is_lost_is_replaced(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    """All trials are recorded, each once, as if nothing had been."""
    monkeypatch.setattr("planish.autotune.cluster.SILENT_SECONDS", 3.0)
    log = tmp_path / "log.jsonl"
    found = disturbed(cluster.address, log, how, 9)
    counts = Counter(r.trace for r in trials(log))
    assert found.trials == len(counts) == sum(counts.values()) == 9
    assert not found.failures
    # Records are what they are without a cluster.
    with LocalMeasurer(1, QUICK) as local:
        here = tmp_path / "here.jsonl"
        Job([matmul_task()], here, Options(60.0, trials=1), measurer=local,
            model=CostModel()).run()  # fmt: skip
    assert trials(here)[0].to_json().keys() == trials(log)[0].to_json().keys()


def test_nobody_measures_for_another_cpu(cluster: Any) -> None:
    other = parse_target("llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu -mattr=+avx2")
    with pytest.raises(TuningError, match="no machine that measures planish:llvm-znver4") as error:
        ClusterMeasurer(other, cluster.address)
    assert f"the cluster has {label_of(host())}" in str(error.value)


@pytest.mark.long
def test_a_label_that_is_not_true(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = parse_target("llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu -mattr=+avx2")
    monkeypatch.setattr("planish.autotune.cluster.OTHERS_SECONDS", 0.0)
    label = {label_of(other): 1}
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20, resources=label)
    try:
        with pytest.raises(TuningError, match="no machine that measures") as error:
            ClusterMeasurer(other, cluster.address)
    finally:
        cluster.remove_node(node)
    assert f"its label is not that of its CPU, which is {label_of(host())}" in str(error.value)


def test_a_cluster_whose_machines_all_go(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job ends with an error that says so, and not never."""
    task = matmul_task()
    with ClusterMeasurer(host(), cluster.address, QUICK) as measurer:
        monkeypatch.setattr("planish.autotune.cluster.ACTOR_SECONDS", 1.0)
        monkeypatch.setattr(measurer, "label", "planish:gone")
        for actor in list(measurer._actors):
            measurer._lose(actor)
        with pytest.raises(TuningError, match="no machine that measures planish:gone"):
            measurer.results(task, traces(task, 2), float("inf"))


# ------------------------------------------------------------------------------- what users see


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return path


def test_a_model_is_tuned_on_a_cluster(cluster: Any, tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    words = ["--budget", "100s", "--trials", "3", "--cluster", cluster.address]
    assert main(["tune", str(model), "--log", str(log), *words]) == 0
    assert len(trials(log)) == 3
    assert planish.compile(model, logs=[log]).stats()["default"] in (0, 1)


def test_no_ray(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TuningError, match="needs Ray") as error:
        planish.tune(model, "1s", tmp_path / "log.jsonl", cluster="local")
    assert error.value.hint == "pip install ray[client]"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_nobody_there(cluster: Any, tmp_path: Path, model: Path, address: str) -> None:
    with pytest.raises(TuningError, match=f"the cluster {address} cannot be reached: Connection"):
        planish.tune(model, "1s", tmp_path / "log.jsonl", cluster=address)


@pytest.mark.parametrize("address", ["", 5, True])
def test_what_is_no_address(tmp_path: Path, model: Path, address: Any) -> None:
    with pytest.raises(TypeCheckError, match="is no address"):
        planish.tune(model, "1s", tmp_path / "log.jsonl", cluster=address)


def test_labels_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["target", "--label"]) == 0
    assert json.loads(capsys.readouterr().out) == {label_of(host()): 1}
