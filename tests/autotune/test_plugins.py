"""Rules and cost models of others: used, replayed without them, and their faults told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

import planish
from planish.autotune.cost import CostModel, Sample
from planish.autotune.plugins import chosen_model, chosen_rules
from planish.autotune.records import read
from planish.cli import main
from planish.compiler.dtypes import F32
from planish.compiler.errors import PlanishError, ScheduleError, TuningError, TypeCheckError
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.ops.activations import Relu
from planish.schedules.choices import Setting
from planish.schedules.rules import NAMES, rules
from planish.schedules.schedule import Schedule, replay
from planish.schedules.space import Space
from planish.schedules.trace import Trace, trace_from_json, trace_to_json
from planish.targets.llvm.target import host

from .some import matmul_task, rows_task
from .test_cost import samples
from .test_tune import Made, cost

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import plugins  # the example


@pytest.fixture
def space() -> Space:
    x = te.placeholder((64, 128), F32)
    out = Relu().compute(x)
    assert isinstance(out, te.Tensor)
    func = canonical(lower("f", [x], [out]))
    return Space(func, host().machine, 1, frozenset(), own={"blocks": plugins.blocks})


class ByRule(Made):
    """A measurer for which one rule's schedules, told by a word of their text, are the fastest."""

    def results(
        self,
        task: Any,
        traces: Sequence[Trace],
        incumbent: float,
        built: Callable[[], object] = lambda: None,
    ) -> list[Any]:
        out = super().results(task, traces, incumbent, built)
        return [self.timed(t) for t, _ in zip(traces, out, strict=True)]

    def compare(self, task: Any, old: Trace, new: Trace, rounds: int) -> Any:
        a, b = self.timed(old), self.timed(new)
        return tuple(type(r)(r.seconds[:1] * rounds) for r in (a, b))

    def timed(self, trace: Trace) -> Any:
        from planish.autotune.measure import Result

        own = any(step.move == "reorder" for step in trace)
        return Result(((0.1 if own else 1.0) * cost(trace),) * 2)


# ------------------------------------------------------------------------------------------ rules


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugins.main(tmp_path, trials=6)
    out = capsys.readouterr().out.splitlines()
    assert "records are of the rule blocks" in out[0]
    assert out[1] == "right: True"


def test_an_own_rule_is_a_part_of_the_space(space: Space) -> None:
    default = space.default()
    assert default.decisions["rule"] != "blocks"
    assert "blocks" in default.options["rule"]
    pick = Random(0)
    drawn = [space.random(pick) for _ in range(40)]
    own = [p for p in drawn if p.decisions["rule"] == "blocks"]
    assert 4 <= len(own) <= 30
    assert len({p.decisions["side"] for p in own}) > 2
    mutated = [space.mutated(own[0], pick) for _ in range(10)]
    assert any(p is not None and p.decisions.get("side") for p in mutated)


def test_it_is_offered_only_where_it_fits() -> None:
    for task in (matmul_task(), rows_task()):
        space = Space(task.func, task.machine, 1, task.constants, own={"blocks": plugins.blocks})
        assert "blocks" not in space.default().options["rule"]


def test_its_traces_replay_without_it(space: Space) -> None:
    pick = Random(1)
    own = [p for p in (space.random(pick) for _ in range(30)) if p.decisions["rule"] == "blocks"]
    assert own
    without = Space(space.func, space.machine, 1)
    for p in own:
        trace = trace_from_json(trace_to_json(p.schedule.trace))
        assert replay(space.func, trace).func == p.schedule.func
        assert without.point(p.decisions).decisions["rule"] != "blocks"


def test_a_model_is_compiled_without_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    given: dict[str, Any] = {"threads": 1, "trials": 20, "cost_model": CostModel()}
    found = planish.tune(
        plugins.model(), "60s", log, rules=[plugins.blocks], measurer=ByRule(), **given
    )
    (state,) = found.states
    assert state.best.decisions["rule"] == "blocks"
    tuned = planish.compile(plugins.model(), threads=1, logs=[log])
    assert tuned.stats()["tuned"] == 1
    (schedule,) = tuned.provenance["schedules"].values()
    assert schedule["trace"] == state.best.schedule.text()
    x = np.random.default_rng(0).standard_normal((plugins.ROWS, plugins.COLUMNS), np.float32)
    np.testing.assert_array_equal(tuned(x)[0], np.maximum(x, 0) + 1)
    # A job that does not have the rule goes on from what it found.
    again = planish.tune(plugins.model(), "60s", log, rules=[], measurer=ByRule(), **given)
    assert again.first == pytest.approx(state.seconds)
    assert again.states[0].best.schedule.trace == state.best.schedule.trace


def test_names_of_our_rules(space: Space) -> None:
    task = matmul_task()
    for func in (space.func, task.func, rows_task().func):
        assert {name for name, _ in rules(func, Setting(host().machine))} <= set(NAMES)


def raising(func: Function, setting: Setting) -> Schedule:
    raise KeyError("colour")


def nothing(func: Function, setting: Setting) -> Any:
    return None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (raising, "the rule raising fails: KeyError: 'colour'"),
        (nothing, "the rule nothing gives no schedule, but None"),
    ],
)
def test_rules_that_fail(rule: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=message):
        planish.tune(
            plugins.model(), "9s", tmp_path / "log", rules=[rule], measurer=Made(), threads=1
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "3 are no rules"),
        ("blocks", "'blocks' are no rules"),
        ([3], "the rule 3 is no function"),
        ({"mine": None}, "the rule mine is no function"),
        ({"rows": plugins.blocks}, "there is a rule rows already"),
    ],
)
def test_what_is_no_rule(given: Any, message: str) -> None:
    with pytest.raises(TypeCheckError, match=message):
        chosen_rules(given)


def test_rules_by_name(space: Space) -> None:
    assert list(chosen_rules([plugins.blocks])) == ["blocks"]
    found = chosen_rules({"mine": plugins.blocks})
    assert found["mine"](space.func, Setting(space.machine)).trace
    with pytest.raises(ScheduleError):
        found["mine"](matmul_task().func, Setting(space.machine))


# ------------------------------------------------------------------------------------ cost models


def test_the_examples_model_learns() -> None:
    model = chosen_model(plugins.Nearest(), 0)
    assert model is not None
    known = samples(1, 60)
    features = np.stack([s.features for s in known])
    assert not model.score(features)[0].any()
    model.fit(known)
    score, unsure = model.score(features)
    assert not unsure.any()
    assert score.argmax() == min(range(60), key=lambda k: known[k].time)


class Faulty:
    """A model that fails in a way of choice."""

    def __init__(self, fit: Callable[[Any], Any], predict: Callable[[Any], Any]) -> None:
        self.fit, self.predict = fit, predict


def fine(_: Sequence[Sample]) -> None:
    pass


def ends(_: Any) -> Any:
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Faulty(ends, len), "the cost model Faulty fails: ZeroDivisionError: oh"),
        (Faulty(fine, ends), "the cost model Faulty fails: ZeroDivisionError: oh"),
        (Faulty(fine, len), "does not give a number for each of 20"),
        (Faulty(fine, lambda x: np.full(len(x), np.nan)), "does not give a number for each of 20"),
        (Faulty(fine, lambda x: ["a"] * len(x)), "the cost model Faulty fails: ValueError"),
    ],
)
def test_models_that_fail(model: Any, message: str) -> None:
    found = chosen_model(model, 0)
    assert found is not None
    with pytest.raises(TuningError, match=message):
        found.fit([])
        found.score(np.zeros((20, 3)))


def test_what_is_no_model() -> None:
    with pytest.raises(TypeCheckError, match="the cost model int has no fit and predict"):
        chosen_model(3, 0)  # type: ignore[arg-type]


def test_a_model_that_was_fitted_is_used(tmp_path: Path) -> None:
    log, path, model = tmp_path / "log.jsonl", tmp_path / "model.json", tmp_path / "model.onnx"
    model.write_bytes(plugins.model().SerializeToString())
    given: dict[str, Any] = {"threads": 1, "trials": 12}
    planish.tune(model, "60s", log, measurer=Made(), **given)
    assert main(["logs", "fit", str(log), "-o", str(path)]) == 0
    found = planish.tune(
        model, "60s", tmp_path / "other.jsonl", measurer=Made(), cost_model=path, **given
    )
    assert found.trials == 12
    words = ["--budget", "60s", "--trials", "2", "--threads", "1", "--model", str(path)]
    assert main(["tune", str(model), "--log", str(log), *words]) == 0
    for words, code in ([str(model)], 2), ([str(tmp_path / "none")], 2), (["/dev/zero"], 2):
        assert main(["tune", str(model), "--log", str(log), "--model", *words]) == code


# --------------------------------------------------------------------------------------- packages


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package that brings a rule, a cost model, and others that are broken."""
    folder = tmp_path / "site" / "brought-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    entries = folder / "entry_points.txt"
    entries.write_text(
        "[planish.rules]\nbrought = plugins:blocks\n"
        "[planish.cost_models]\nnearest = plugins:Nearest\nbroken = plugins:nowhere\n"
        "needy = plugins:blocks\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))
    yield entries


def test_installed_ones_are_found(package: Path, tmp_path: Path) -> None:
    assert "brought" in chosen_rules(None)
    assert chosen_rules([]) == {}
    assert chosen_model("nearest", 0) is not None
    log = tmp_path / "log.jsonl"
    planish.tune(plugins.model(), "60s", log, threads=1, trials=20, measurer=ByRule(),
                 cost_model="nearest")  # fmt: skip
    assert any(r.decisions["rule"] == "brought" for r in read([log]).records)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"the plug-in broken \(plugins:nowhere\) cannot be loaded: AttributeError"),
        ("needy", "the cost model needy fails: TypeError"),
        ("absent", "the model absent cannot be read: No such file"),
    ],
)
def test_installed_ones_that_are_broken(package: Path, name: str, message: str) -> None:
    with pytest.raises(PlanishError, match=message):
        chosen_model(name, 0)
    package.write_text("[planish.rules]\nlost = nowhere.at_all:rule\n")
    with pytest.raises(TuningError, match="the plug-in lost .* cannot be loaded: ModuleNotFound"):
        chosen_rules(None)


def test_the_example_is_a_model() -> None:
    onnx.checker.check_model(plugins.model())
