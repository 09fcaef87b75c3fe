"""The cost model: which of a task's candidates are the fastest, learnt from those measured.

Gradient-boosted trees (XGBoost: Chen and Guestrin, KDD 2016) that rank: within a task, by the
throughput relative to the best one. What is comparable is never the time of two tasks. They begin
with what the estimate of a candidate's time says, and learn where it is wrong: without any samples
the estimate alone ranks. A few such models, each trained on a part of the samples, tell by their
differences how sure they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from planish.compiler.errors import ParseError, TuningError
from planish.compiler.files import read_file, why, written_whole

from .features import NAMES
from .trees import checked

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

MEMBERS: Final = 3
ROUNDS: Final = 60  # trees of a member
ROUNDS_MORE: Final = 30  # trees that are added to a model that was trained before
TIME: Final = list(NAMES).index("time")  # what the estimate says, as a logarithm
LEAST: Final = 8  # samples below which there is nothing to learn
PARAMETERS: Final[dict[str, Any]] = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": 16,
    "eta": 0.15,
    "max_depth": 6,
    "min_child_weight": 1.0,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "nthread": 1,
    "verbosity": 0,
}
SHIPPED: Final = Path(__file__).parent / "model.json"


@dataclass(frozen=True, eq=False)
class Sample:
    """A measured candidate: its features, its task, and its time in seconds (infinite: failed)."""

    task: str
    features: Array
    time: float


class Model(Protocol):
    """What a search asks; another model can take the place of ours."""

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples there are so far."""

    def score(self, features: Array) -> tuple[Array, Array]:
        """How good candidates are, more is better, and how unsure that is; of one task."""


class CostModel:
    """The model that is described above; it may begin with what another one has learnt."""

    def __init__(self, base: Sequence[Any] = (), seed: int = 0) -> None:
        self._base = list(base)
        self._members = list(base)
        self.seed = seed

    @property
    def is_trained(self) -> bool:
        """Whether it has learnt anything."""
        return bool(self._members)

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples there are so far."""
        xgboost = _xgboost()
        if len(samples) < LEAST:
            return
        matrix = _matrix(xgboost, samples)
        members = []
        for k in range(MEMBERS):
            base = self._base[k % len(self._base)] if self._base else None
            rounds = ROUNDS_MORE if base is not None else ROUNDS
            given = {**PARAMETERS, "seed": self.seed + k}
            members.append(xgboost.train(given, matrix, rounds, xgb_model=base))
        self._members = members

    def score(self, features: Array) -> tuple[Array, Array]:
        """How good candidates are, more is better, and how unsure that is."""
        count = len(features)
        if not count:
            return np.zeros(count), np.ones(count)
        if not self._members:
            return _normal(-features[:, TIME]), np.ones(count)
        xgboost = _xgboost()
        matrix = xgboost.DMatrix(features, feature_names=list(NAMES))
        matrix.set_base_margin(-features[:, TIME])
        found = np.stack([_normal(m.predict(matrix)) for m in self._members])
        return found.mean(axis=0), found.std(axis=0)

    # ------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the model as JSON.

        Errors: TuningError if the file cannot be written.
        """
        members = [json.loads(m.save_raw("json")) for m in self._members]
        text = json.dumps({"features": list(NAMES), "members": members}, separators=(",", ":"))
        try:
            with written_whole(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise TuningError(f"the model {path} cannot be written: {why(error)}") from error

    @classmethod
    def load(cls, path: str | Path, seed: int = 0) -> CostModel:
        """The model of a file.

        Errors: TuningError if it cannot be read, ParseError if it is none for these features.
        """
        try:
            text = read_file(Path(path))
        except ParseError as error:
            raise TuningError(f"the model {error.message}") from error
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"{path} is no cost model: {error}") from error
        xgboost = _xgboost()
        match data:
            case {"features": list(names), "members": [_, *_] as members} if names == list(NAMES):
                base = []
                for each in members:
                    booster = xgboost.Booster({"nthread": 1})
                    try:
                        sound = json.dumps(checked(each, names))
                        booster.load_model(bytearray(sound.encode()))
                    except (ParseError, xgboost.core.XGBoostError) as error:
                        raise ParseError(f"{path} is no cost model: {error}") from error
                    base.append(booster)
                return cls(base, seed)
        raise ParseError(f"{path} is no cost model of this version's features")

    @classmethod
    def shipped(cls, seed: int = 0) -> CostModel:
        """The model that comes with planish; an untrained one if there is none that fits."""
        try:
            return cls.load(SHIPPED, seed)
        except (TuningError, ParseError):
            return cls(seed=seed)


def _normal(scores: Array) -> Array:
    """Scores of one task with a mean of 0 and a deviation of 1."""
    return np.asarray((scores - scores.mean()) / (scores.std() + 1e-9))


def _matrix(xgboost: Any, samples: Sequence[Sample]) -> Any:
    """The samples by tasks, each with its throughput relative to its task's best."""
    best: dict[str, float] = {}
    for s in samples:
        best[s.task] = min(s.time, best.get(s.task, float("inf")))
    order = sorted(range(len(samples)), key=lambda k: samples[k].task)
    chosen = [samples[k] for k in order]
    numbers = {task: k for k, task in enumerate(sorted(best))}
    rows = np.stack([s.features for s in chosen])
    return xgboost.DMatrix(
        rows,
        base_margin=-rows[:, TIME],
        label=[best[s.task] / s.time if s.time < float("inf") else 0.0 for s in chosen],
        qid=[numbers[s.task] for s in chosen],
        feature_names=list(NAMES),
    )


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError as error:
        raise TuningError(
            "tuning needs XGBoost, which is not installed", hint="pip install xgboost-cpu"
        ) from error
    return xgboost
