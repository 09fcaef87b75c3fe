"""Tasks: keys, text, and the way there and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planish.autotune.tasks import Task, folder_of, parse_text, target_key
from planish.compiler.errors import ParseError
from planish.targets.target import parse_target

from .some import matmul_task, rows_task


@pytest.mark.parametrize("task", [matmul_task(), rows_task(2)], ids=lambda t: t.label)
def test_json_gives_the_task_back(task: Task) -> None:
    again = Task.from_json(json.loads(json.dumps(task.to_json())))
    assert again.key == task.key
    assert again.target == task.target
    assert (again.threads, again.sizes, again.calls) == (task.threads, task.sizes, task.calls)
    assert parse_text(task.text)[1] == task.constants


def test_what_a_key_tells_apart() -> None:
    task = matmul_task()
    assert matmul_task(m=33).key != task.key
    assert replace(task, constants=frozenset()).key != task.key
    assert replace(task, calls=9, label="other", threads=7).key == task.key


@pytest.mark.parametrize(
    "change",
    [
        {"text": "f()"},
        {"text": "# constants: b1\ndef f(:"},
        {"threads": "2"},
        {"sizes": [1]},
        {"target": "nowhere"},
        {"calls": None},
    ],
)
def test_what_is_no_task(change: dict[str, object]) -> None:
    with pytest.raises(ParseError):
        Task.from_json({**matmul_task().to_json(), **change})


def test_targets_have_folders_and_keys() -> None:
    a, b = parse_target("llvm -mcpu=znver4"), parse_target("llvm -mcpu=znver3")
    assert folder_of(a) == "llvm-znver4-avx512"
    assert folder_of(b) == "llvm-znver3-avx2"
    assert target_key(a).startswith(folder_of(a))
    assert target_key(a) == target_key(parse_target(str(a))) != target_key(b)
