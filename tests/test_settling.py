"""What is slower in the model is taken back; what is not stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planish
from planish.autotune.records import Log, Record, read
from planish.build import import_graph
from planish.settling import settle
from planish.targets.llvm.target import host
from planish.tuning import tasks_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two products of the same size with something between them that keeps them apart."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("a", (256, 256)), ("b", (256, 128)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], name="first"),
        helper.make_node("Softmax", ["p"], ["q"], axis=0),
        helper.make_node("MatMul", ["q", "b"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 128])],
        weights,
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
        ).SerializeToString()
    )
    onnx.checker.check_model(str(path))
    return path


def test_what_is_slower_is_taken_back(tmp_path: Path, model: Path) -> None:
    sizes = {"n": 64}
    tasks = tasks_of(import_graph(model, None, lambda _: None), host(), 1, sizes)
    slow, fast = (t for t in tasks if t.label.startswith("matmul"))
    log = tmp_path / "log.jsonl"
    with Log(log) as file:
        for task, point in ((slow, slow.space.plain()), (fast, fast.space.default())):
            file.task(task)
            file.add(
                Record(
                    "best", task.key, task.target_key, 1, task.sizes, point.decisions,
                    point.schedule.trace, (1e-6,), before=(2e-6,),
                )
            )  # fmt: skip
    before = log.read_bytes()
    graph = import_graph(model, None, lambda _: None)
    assert settle(graph, host(), 1, sizes, log, tasks, {}) == [slow.label]
    assert log.read_bytes().startswith(before)
    last = read([log]).records[-1]
    assert (last.task, last.trace) == (slow.key, slow.space.default().schedule.trace)
    assert min(last.seconds) < min(last.before)
    schedules = planish.compile(model, threads=1, logs=[log]).provenance["schedules"]
    default = planish.compile(model, threads=1, logs=[]).provenance["schedules"]
    assert schedules[slow.label]["trace"] == default[slow.label]["trace"]
    assert settle(graph, host(), 1, sizes, log, tasks, {}) == []


def test_nothing_tuned_is_nothing_to_settle(tmp_path: Path, model: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"")
    graph = import_graph(model, None, lambda _: None)
    assert settle(graph, host(), 1, {}, log, [], {}) == []


def test_a_job_ends_by_settling(tmp_path: Path, model: Path) -> None:
    found = planish.tune(
        model, "30s", tmp_path / "log.jsonl", threads=1, trials=4, sizes={"n": 16}, tasks="matmul"
    )
    assert found.trials == 4
    assert isinstance(found.taken_back, tuple)
