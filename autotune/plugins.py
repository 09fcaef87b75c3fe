"""Rules and cost models of others: given as arguments, or brought by installed packages.

A package brings a rule by an entry point of the group ``planish.rules``, which is a function like
those in ``schedules/rules``, and a cost model by one of ``planish.cost_models``, which is called
without arguments for each job. What fails in them is an error that names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from planish.compiler.errors import PlanishError, ScheduleError, TuningError, TypeCheckError
from planish.compiler.loop.ir import Function
from planish.schedules.choices import Setting
from planish.schedules.rules import NAMES, Rule
from planish.schedules.schedule import Schedule

from .cost import CostModel, Model, Sample

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

RULES: Final = "planish.rules"
MODELS: Final = "planish.cost_models"


class Predictor(Protocol):
    """The least that a cost model is; one that also says how unsure it is is a ``Model``."""

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples there are so far."""

    def predict(self, features: Array) -> Array:
        """How good candidates of one task are, a row of features for each; more is better."""


# -------------------------------------------------------------------------------------------- rules


def chosen_rules(rules: Mapping[str, Rule] | Iterable[Rule] | None) -> dict[str, Rule]:
    """Rules by name: those given, by their functions' names if not by others; None: the installed.

    Errors: TypeCheckError for what is none or has the name of one of ours, TuningError for an
    installed one that cannot be loaded.
    """
    if rules is None:
        rules = {e.name: _loaded(e) for e in _installed(RULES)}
    if not isinstance(rules, Mapping):
        if not isinstance(rules, Iterable) or isinstance(rules, str):
            raise TypeCheckError(f"{rules!r} are no rules", op="tune", hint="give a list of them")
        rules = {getattr(r, "__name__", repr(r)): r for r in rules}
    for name, rule in rules.items():
        if not callable(rule):
            raise TypeCheckError(
                f"the rule {name} is no function of a function and a setting", op="tune"
            )
        if name in NAMES:
            raise TypeCheckError(
                f"there is a rule {name} already", op="tune", hint="give yours another name"
            )
    return {str(name): _guarded(str(name), rule) for name, rule in rules.items()}


def _guarded(name: str, rule: Rule) -> Rule:
    """The rule, whose faults are told from ours."""

    def guarded(func: Function, setting: Setting) -> Schedule:
        try:
            found = rule(func, setting)
        except ScheduleError:  # it does not fit, or these answers make nothing
            raise
        except Exception as error:  # code of others may raise anything
            raise _fault(f"the rule {name}", error) from error
        if not isinstance(found, Schedule):
            raise TuningError(f"the rule {name} gives no schedule, but {found!r}"[:200])
        return found

    return guarded


# ------------------------------------------------------------------------------------------- models


def chosen_model(which: Model | Predictor | str | PathLike[str] | None, seed: int) -> Model | None:
    """A cost model: one that is given, an installed one by its name, or that of a file.

    Errors: TypeCheckError for what is none, TuningError for one that cannot be read or loaded,
    ParseError for another file.
    """
    if which is None:
        return None
    if isinstance(which, CostModel):
        return which
    if isinstance(which, str):
        for entry in _installed(MODELS):
            if entry.name == which:
                make = _loaded(entry)
                try:
                    return _Foreign(f"the cost model {which}", make())
                except TypeError as error:
                    raise _fault(f"the cost model {which}", error) from error
    if isinstance(which, str | PathLike):
        return CostModel.load(Path(which), seed)
    return _Foreign(f"the cost model {type(which).__name__}", which)


class _Foreign:
    """A cost model of others, whose faults are told from ours."""

    def __init__(self, name: str, model: Any) -> None:
        self._name, self._model = name, model
        parts = ("fit", "predict"), ("fit", "score")
        if not any(all(callable(getattr(model, p, None)) for p in some) for some in parts):
            raise TypeCheckError(f"{name} has no fit and predict", op="tune")
        self._scores = callable(getattr(model, "score", None))

    def fit(self, samples: Sequence[Sample]) -> None:
        try:
            self._model.fit(samples)
        except Exception as error:  # code of others may raise anything
            raise _fault(self._name, error) from error

    def score(self, features: Array) -> tuple[Array, Array]:
        count = len(features)
        try:
            if self._scores:
                score, unsure = self._model.score(features)
            else:
                score, unsure = self._model.predict(features), np.zeros(count)
            found = np.asarray(score, np.float64), np.asarray(unsure, np.float64)
        except Exception as error:  # code of others may raise anything
            raise _fault(self._name, error) from error
        if any(a.shape != (count,) or not np.isfinite(a).all() for a in found):
            raise TuningError(f"{self._name} does not give a number for each of {count} candidates")
        return found


# ---------------------------------------------------------------------------------------- packages


def _installed(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group, by name; of two of one name, the first that is found."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, entry)
    return [found[name] for name in sorted(found)]


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # code of others may raise anything
        raise TuningError(
            f"the plug-in {entry.name} ({entry.value}) cannot be loaded:"
            f" {type(error).__name__}: {error}",
            hint="install it anew, or uninstall it",
        ) from error


def _fault(what: str, error: Exception) -> TuningError:
    if isinstance(error, PlanishError):
        return TuningError(f"{what} fails: {error.message}", node=error.node, hint=error.hint)
    return TuningError(f"{what} fails: {type(error).__name__}: {error}")
