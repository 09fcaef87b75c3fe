"""What the cost model knows of networks and functions that it has not seen.

``python benchmarks/cost_model.py LOG ...`` takes the logs of tuning, one for each network, with
their trials. The model is trained on all networks but one, without the functions that this one has
too, and ranks the trials of each function of that one (``networks``); and on all functions but a
fifth (``functions``). Shown are means over functions:

rank correlation: Spearman's, of the score with the speed; top 1, top 5: the best time there is over
the best time among the so many with the highest scores. ``random`` draws instead of scoring, and
``roofline`` takes the larger of two times: that of the operations at the machine's vector width,
all threads and the balance taken into account, and that of what the second cache is brought.

``--retest N`` measures up to N trials of each of some functions once more, on this machine, which
must be the one of the logs: the correlation of the old times with the new ones is what a perfect
model could reach.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from harness import RESULTS, machine, merge, publish, table

from planish.autotune.cost import CostModel, Sample
from planish.autotune.features import NAMES
from planish.autotune.measure import LocalMeasurer
from planish.autotune.records import Contents, read
from planish.autotune.tasks import Task, parse_text
from planish.autotune.training import samples_of
from planish.compiler.errors import PlanishError
from planish.targets.target import parse_target

LEAST: Final = 16  # trials that a function needs to be ranked
FOLDS: Final = 5
DRAWS: Final = 100
COLUMNS: Final = {name: k for k, name in enumerate(NAMES)}
FLOPS_PER_BYTE: Final = 16.0  # of a core, operations of a lane over bytes from the second cache

Array = np.ndarray[Any, Any]
Scorer = Callable[[Array], Array]


# ------------------------------------------------------------------------------------ scores


def ranks(values: Array) -> Array:
    """The ranks of values, the mean rank for equal ones."""
    order = np.argsort(values, kind="stable")
    out = np.empty(len(values))
    out[order] = np.arange(len(values))
    for value in np.unique(values):
        same = values == value
        out[same] = out[same].mean()
    return out


def correlation(a: Array, b: Array) -> float:
    """Spearman's rank correlation; 0 if one of them is constant."""
    x, y = ranks(a), ranks(b)
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def top(score: Array, times: Array, count: int) -> float:
    """The best time of all over the best among the so many with the highest scores."""
    chosen = np.argsort(-score, kind="stable")[:count]
    return float(times.min() / times[chosen].min())


def judged(groups: Iterable[tuple[Array, Array]], scorer: Scorer) -> list[float]:
    """Rank correlation, top 1 and top 5: the means over functions, given as features and times."""
    found = []
    for features, times in groups:
        score = scorer(features)
        found.append((correlation(score, -times), top(score, times, 1), top(score, times, 5)))
    return [float(x) for x in np.mean(found, axis=0)]


def drawn(groups: Sequence[tuple[Array, Array]]) -> list[float]:
    """The same for scores that are drawn."""
    pick = np.random.default_rng(0)
    every = [judged(groups, lambda f: pick.random(len(f))) for _ in range(DRAWS)]
    return [float(x) for x in np.mean(every, axis=0)]


def roofline(features: Array) -> Array:
    """The speed of candidates by a formula of two limits."""

    def amount(name: str) -> Array:
        return np.exp2(features[:, COLUMNS[name]]) - 1

    def value(name: str) -> Array:
        return features[:, COLUMNS[name]]

    lanes = np.maximum(1.0, value("lanes"))
    threads = np.maximum(1.0, value("threads")) / np.maximum(1.0, value("balance"))
    compute = amount("operations") * value("waste") / (lanes * threads)
    memory = amount("l2_traffic") / (FLOPS_PER_BYTE * threads)
    return np.asarray(-np.maximum(compute, memory))


# ------------------------------------------------------------------------------------- splits


def by_task(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples that did not fail, by function, of those that have enough of them."""
    out: dict[str, list[Sample]] = {}
    for s in samples:
        if s.time < float("inf"):
            out.setdefault(s.task, []).append(s)
    return {task: some for task, some in out.items() if len(some) >= LEAST}


def group(samples: Sequence[Sample]) -> tuple[Array, Array]:
    """The samples of a function as features and times."""
    return np.stack([s.features for s in samples]), np.array([s.time for s in samples])


def model_of(samples: Sequence[Sample]) -> Scorer:
    """A model that has learnt from samples."""
    model = CostModel()
    model.fit(samples)
    return lambda features: model.score(features)[0]


def held_out(networks: dict[str, list[Sample]]) -> dict[str, dict[str, list[float]]]:
    """What models, the formula and chance reach, for each network that was held out, and folds."""
    rows: dict[str, dict[str, list[float]]] = {}
    for name, own in networks.items():
        groups = {task: group(some) for task, some in by_task(own).items()}
        seen = {s.task for s in own}
        others = [s for n, some in networks.items() if n != name for s in some]
        others = [s for s in others if s.task not in seen]
        if groups and others:
            rows[name] = _compared(list(groups.values()), model_of(others))
    every = by_task([s for some in networks.values() for s in some])
    tasks = sorted(every)
    random.Random(0).shuffle(tasks)
    parts: list[dict[str, list[float]]] = []
    weights = []
    for fold in range(FOLDS):
        test = tasks[fold::FOLDS]
        rest = [s for t in tasks if t not in test for s in every[t]]
        if test and rest:
            parts.append(_compared([group(every[t]) for t in test], model_of(rest)))
            weights.append(len(test))
    if parts:
        rows["functions"] = {
            kind: [float(x) for x in np.average([p[kind] for p in parts], axis=0, weights=weights)]
            for kind in parts[0]
        }
    return rows


def _compared(groups: Sequence[tuple[Array, Array]], scorer: Scorer) -> dict[str, list[float]]:
    return {
        "model": judged(groups, scorer),
        "roofline": judged(groups, roofline),
        "random": drawn(groups),
        "count": [float(len(groups))],
    }


def retest(contents: Contents, count: int, tasks: int) -> dict[str, float]:
    """The correlation of times in the logs with times measured now, and the top 1 and 5."""
    trials: dict[str, list[Any]] = {}
    for r in contents.records:
        if r.kind == "trial" and r.seconds:
            trials.setdefault(r.task, []).append(r)
    chosen = sorted(t for t, some in trials.items() if len(some) >= LEAST and t in contents.texts)
    random.Random(0).shuffle(chosen)
    found = []
    with LocalMeasurer() as measurer:
        for key in chosen[:tasks]:
            some = random.Random(1).sample(trials[key], min(count, len(trials[key])))
            func, constants = parse_text(contents.texts[key])
            try:
                target = parse_target(contents.targets[key])
            except PlanishError:
                continue
            task = Task(func, constants, target, some[0].threads, some[0].sizes)
            results = measurer.results(task, [r.trace for r in some], float("inf"))
            pairs = [
                (min(r.seconds), min(x.seconds))
                for r, x in zip(some, results, strict=True)
                if x is not None and x.seconds and not r.stopped
            ]
            if len(pairs) >= LEAST // 2:
                old, new = np.array(pairs).T
                found.append((correlation(-old, -new), top(-old, new, 1), top(-old, new, 5)))
    mean = np.mean(found, axis=0)
    return {"correlation": float(mean[0]), "top1": float(mean[1]), "top5": float(mean[2]),
            "tasks": len(found)}  # fmt: skip


# ---------------------------------------------------------------------------------- reporting


def report(rows: dict[str, Any], again: dict[str, float] | None) -> str:
    """The results as markdown."""
    networks = [name for name in rows if name != "functions"]
    mean = {
        kind: [float(x) for x in np.mean([rows[n][kind] for n in networks], axis=0)]
        for kind in ("model", "roofline", "random", "count")
    }
    shown = {name: rows[name] for name in networks} | {"**mean of networks**": mean}
    if "functions" in rows:
        shown["functions"] = rows["functions"]
    out = []
    for name, row in shown.items():
        cells = [f"{x:.2f}" for kind in ("model", "roofline", "random") for x in row[kind]]
        out.append([name, f"{row['count'][0]:.0f}", *cells])
    head = ["held out", "functions", "model: correlation", "top 1", "top 5",
            "roofline: correlation", "top 1", "top 5", "random: correlation", "top 1",
            "top 5"]  # fmt: skip
    lines = [f"On {machine()}.", "", table(head, out)]
    if again is not None:
        share = mean["model"][0] / again["correlation"]
        lines += [
            "",
            f"Measured again, {again['tasks']:.0f} functions: correlation "
            f"{again['correlation']:.2f}, top 1 {again['top1']:.2f}, top 5 {again['top5']:.2f}. "
            f"The model reaches {share:.2f} of that correlation.",
        ]
    return "\n".join(lines)


def _name(log: Path) -> str:
    """The network of a log: it is the file's name, or that of the run's folder."""
    return log.parent.name if log.stem == "log" else log.stem


def main() -> None:
    """Judge the model, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="one for each network")
    parser.add_argument("--retest", type=int, default=0, metavar="N", help="trials of a function")
    parser.add_argument("--functions", type=int, default=20, help="to retest (default: 20)")
    parser.add_argument("--json", type=Path, default=RESULTS / "cost_model.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the table into the README")
    options = parser.parse_args()
    networks = {_name(path): samples_of(read([path]))[0] for path in options.logs}
    rows = held_out(networks)
    if not rows:
        raise SystemExit(f"no function has {LEAST} trials that went well in two logs or more")
    again = (
        retest(read(options.logs), options.retest, options.functions) if options.retest else None
    )
    merge(options.json, {"machine": machine(), "rows": rows, "retest": again})
    publish("cost model", report(rows, again), options.update)


if __name__ == "__main__":
    main()
