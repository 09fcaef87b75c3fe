"""What tasks lend each other, and from which logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planish.autotune.records import Log, Record, read
from planish.autotune.transfer import Lending, outline

from .some import matmul_task, rows_task


def test_the_most_similar_task_lends_first() -> None:
    near, far, own = (matmul_task(k=k) for k in (72, 512, 64))
    lending = Lending()
    for task, steps in ((far, 1), (near, 2), (own, 3)):
        decisions = {"rule": "contraction", "steps": steps}
        lending.learn(task.key, outline(task.func, task, task.sizes), decisions)
    rows = rows_task()
    lending.learn(rows.key, outline(rows.func, rows, rows.sizes), {"rule": "rows"})
    found = lending.to(own.key, outline(own.func, own, own.sizes))
    assert found[0] == {"rule": "contraction", "steps": 2}
    assert len(found) == 3


def test_logs_lend_what_was_best_on_the_same_machine(tmp_path: Path) -> None:
    task, other = matmul_task(), matmul_task(k=128)
    point = other.space.default()
    record = Record(
        "best", other.key, other.target_key, 1, (), point.decisions, point.schedule.trace, (1.0,)
    )
    path = tmp_path / "log.jsonl"
    with Log(path) as log:
        log.task(other)
        log.add(record)
        log.add(replace(record, kind="trial", decisions={"rule": "rows"}))
        log.add(replace(record, target="another", decisions={"rule": "rows"}))
        log.add(replace(record, task="unknown"))
    lending = Lending()
    lending.read(read([path]), task)
    assert lending.to(task.key, outline(task.func, task, task.sizes)) == [point.decisions]
