"""The cost model: it learns what a formula says, and files of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planish.autotune.cost import TIME, CostModel, Sample
from planish.autotune.features import NAMES
from planish.compiler.errors import ParseError, TuningError


def samples(tasks: int, each: int, seed: int = 0, estimate: float = 0.0) -> list[Sample]:
    """Times that follow from two of the features, in another unit for each task."""
    rng = np.random.default_rng(seed)
    out = []
    for t in range(tasks):
        unit = 10.0 ** rng.uniform(-6, -2)
        for _ in range(each):
            x = rng.uniform(0, 10, len(NAMES)).astype(np.float32)
            x[TIME] = rng.uniform(0, estimate)
            out.append(Sample(f"task {t}", x, unit * (1 + x[3] + 0.2 * (x[8] - 5) ** 2)))
    return out


def agreement(model: CostModel, some: list[Sample]) -> float:
    """The rank correlation (Spearman) of scores and throughputs."""
    score, _ = model.score(np.stack([s.features for s in some]))
    a, b = np.argsort(np.argsort(score)), np.argsort(np.argsort([-s.time for s in some]))
    return float(np.corrcoef(a, b)[0, 1])


def test_it_learns_an_order() -> None:
    model = CostModel()
    unseen = samples(1, 60, seed=1)
    score, unsure = model.score(np.stack([s.features for s in unseen]))
    assert not score.any()  # the estimate is the same for all
    assert (unsure == 1).all()
    model.fit(samples(6, 40))
    assert model.is_trained
    assert agreement(model, unseen) > 0.8


def test_the_estimate_ranks_until_samples_say_otherwise() -> None:
    some = samples(1, 60, estimate=5.0)
    features = np.stack([s.features for s in some])
    model = CostModel()
    score, _ = model.score(features)
    assert (np.argsort(score) == np.argsort(-features[:, TIME])).all()
    assert abs(agreement(model, some)) < 0.4
    model.fit(samples(6, 40, seed=1, estimate=5.0))
    assert agreement(model, some) > 0.7


def test_failures_are_the_worst() -> None:
    model = CostModel()
    known = samples(4, 40)
    model.fit([Sample(s.task, s.features, float("inf")) if s.features[3] > 5 else s for s in known])
    some = samples(1, 100, seed=2)
    score, _ = model.score(np.stack([s.features for s in some]))
    failing = np.array([s.features[3] > 5 for s in some])
    assert score[failing].max() < np.median(score[~failing])


def test_too_few_teach_nothing() -> None:
    model = CostModel()
    model.fit(samples(1, 3))
    assert not model.is_trained


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    model = CostModel()
    model.fit(samples(6, 40))
    model.save(path)
    again = CostModel.load(path)
    some = np.stack([s.features for s in samples(1, 20, seed=3)])
    np.testing.assert_allclose(again.score(some)[0], model.score(some)[0], rtol=1e-5)
    unseen = samples(1, 60, seed=4)
    before = agreement(again, unseen)
    again.fit(samples(1, 10, seed=5))  # goes on from what it knew
    assert agreement(again, unseen) > before - 0.1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"features": ["a"], "members": [{}]}',
     json.dumps({"features": list(NAMES), "members": []}),
     json.dumps({"features": list(NAMES), "members": [{}]}),
     json.dumps({"features": list(NAMES), "members": ["import os"]})],
)  # fmt: skip
def test_files_that_are_no_models(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ParseError, match="no cost model"):
        CostModel.load(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cost") / "model.json"
    model = CostModel()
    model.fit(samples(2, 40))
    model.save(path)
    return path.read_text()


BAD: list[tuple[str, int, Any]] = [
    ("split_indices", 0, 10**9), ("split_indices", 0, -5), ("left_children", 0, 10**6),
    ("right_children", 0, 0), ("left_children", 1, 1), ("right_children", 0, 1),
    ("parents", 0, 0), ("parents", 2, 1), ("default_left", 0, 7), ("default_left", 0, True),
    ("split_conditions", 0, "x"), ("base_weights", 0, float("nan")), ("sum_hessian", 0, None),
]  # fmt: skip


@pytest.mark.parametrize(("part", "place", "value"), BAD)
def test_trees_that_are_none(
    tmp_path: Path, written: str, part: str, place: int, value: Any
) -> None:
    """XGBoost would read beyond its arrays."""
    data = json.loads(written)
    tree = data["members"][1]["learner"]["gradient_booster"]["model"]["trees"][3]
    tree[part][place] = value
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ParseError, match="is no cost model: .*the tree 3"):
        CostModel.load(path)
    for less in ([], tree[part][:-1]):
        tree[part] = less
        path.write_text(json.dumps(data))
        with pytest.raises(ParseError, match="is no cost model"):
            CostModel.load(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="cannot be read"):
        CostModel.load(tmp_path / "none")
    model = CostModel()
    with pytest.raises(TuningError, match="cannot be written"):
        model.save(tmp_path / "none" / "model.json")
