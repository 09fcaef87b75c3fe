"""The logs that come with planish are read whole, and what they hold still applies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planish.autotune.cost import CostModel
from planish.autotune.records import Best, read
from planish.autotune.tasks import Task, folder_of, parse_text
from planish.autotune.training import samples_of
from planish.compiler.loop.verify import verify
from planish.schedules.schedule import LANGUAGE, replay
from planish.targets.target import parse_target
from planish.tuning import SHIPPED, shipped_logs

LOGS = sorted(SHIPPED.glob("*/*.jsonl"))


def test_there_are_some() -> None:
    assert LOGS


def test_the_shipped_model_is_one_of_todays_features() -> None:
    """If not: ``planish logs fit tuning_logs/*/*.jsonl -o autotune/model.json``."""
    model = CostModel.shipped()
    assert model.is_trained
    samples = samples_of(read(LOGS[:1]))[0][:64]
    score, _ = model.score(np.stack([s.features for s in samples]))
    assert np.isfinite(score).all() and score.std() > 0


@pytest.mark.parametrize("path", LOGS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_shipped_log(path: Path) -> None:
    contents = read([path])
    assert contents.skipped == 0
    assert {r.language for r in contents.records} == {LANGUAGE}
    best = list(Best(contents))
    assert best
    for r in best:
        func, constants = parse_text(contents.texts[r.task])
        target = parse_target(contents.targets[r.task])
        assert path in shipped_logs(target)
        assert path.parent.name == folder_of(target)
        task = Task(func, constants, target, r.threads, r.sizes)
        assert (task.key, task.target_key) == (r.task, r.target)
        verify(replay(func, r.trace).func)
