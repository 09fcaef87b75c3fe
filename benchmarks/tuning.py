"""What tuning brings, and how soon: a model's time over the time that its tuning has taken.

``python benchmarks/tuning.py MODEL.onnx ...`` (or folders; inputs stand beside each model in
NAME.npz) tunes each for ``--budget``, from schedules that nobody has thought about (``--start
plain``) or from the default ones, and without what comes with planish unless ``--shipped``. A run
that was cut off goes on where it was, also on another day: what it wrote is in ``--folder``.

Then each model is compiled with what was known after 1, 5 and 20 minutes (those that have passed)
and without any, and all of these are timed in turn, in one process. A round gives the median of a
slice's calls, and the ratio of two such medians; what is reported is the median of the rounds'
ratios and the lower end of its 95 % interval. ``noise`` is the default module against another one
of the same kind. ``trials to 95 %`` are those after which the functions, each by itself, together
reach that part of the speed that they have at the end of the best run of the model, however that
one began. ``worst function`` is the least ratio of a function's time by default to its time
when tuned, among those that take a hundredth of the model's time or more. With ``--ship`` what was
found is also written, without most trials, to the logs that come with planish.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from math import inf, isinf
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from harness import (
    RESULTS,
    brief,
    geometric_mean,
    machine,
    merge,
    publish,
    spread,
    table,
)
from networks import found

import planish
from planish.autotune.cost import CostModel
from planish.autotune.records import merged, pruned, read
from planish.autotune.tasks import folder_of
from planish.targets.target import parse_target
from planish.tuning import SHIPPED, seconds_of

POINTS: Final = (60.0, 300.0, 1200.0)  # seconds after which a model is looked at
NEARLY: Final = 0.95  # of the best speed
NOTABLE: Final = 0.01  # of a model's time: what a function must take to be told of
SHIPPED_TRIALS: Final = 24  # of a function, from which the cost model learns
DEFAULT, AGAIN, LAST = "default", "default again", "tuned"

Arrays = Sequence[np.ndarray[Any, Any]]


# ------------------------------------------------------------------------------------- tuning


def curve(folder: Path) -> list[dict[str, float]]:
    """What a run has written so far: seconds, trials, the model's time, the bytes of its log."""
    path = folder / "curve.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def spent_on(folder: Path) -> tuple[float, int]:
    """The seconds and the trials that a run has taken so far."""
    told = curve(folder)
    return (told[-1]["spent"], int(told[-1]["trials"])) if told else (0.0, 0)


def tune(model: Path, folder: Path, options: argparse.Namespace) -> None:
    """Tune a model until its budget is spent; what was done before counts."""
    folder.mkdir(parents=True, exist_ok=True)
    before, tried = spent_on(folder)
    left = seconds_of(options.budget) - before
    if left < 1.0:
        return
    log = folder / "log.jsonl"

    with (folder / "curve.jsonl").open("a", encoding="utf-8") as file:

        def report(p: Any) -> None:
            at = {"spent": before + p.spent, "trials": tried + p.trials, "seconds": p.seconds,
                  "missing": p.missing, "bytes": log.stat().st_size}  # fmt: skip
            file.write(json.dumps(at) + "\n")
            file.flush()

        last = planish.tune(
            model,
            left,
            log,
            threads=options.threads,
            start=options.start,
            seed=options.seed,
            cost_model=None if options.shipped else CostModel(seed=options.seed),
            logs=None if options.shipped else (),
            report=report,
        )
        report(last)


def ship(model: Path, folder: Path, threads: int) -> Path:
    """Write what was found to the logs that come with planish, which grow by it."""
    log = folder / "log.jsonl"
    contents = read([log])
    target = parse_target(next(iter(contents.targets.values())))
    path = SHIPPED / folder_of(target) / f"{model.stem}-{threads}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = folder / "shipped.jsonl"
    pruned(contents, [log], found, SHIPPED_TRIALS)
    merged([*([path] if path.exists() else []), found], path)
    return path


def known_at(folder: Path, seconds: float) -> Path:
    """A log of what was known so many seconds after the start; infinite: of all that is known."""
    if isinf(seconds):  # also what was found in the model itself, after the last round
        size = (folder / "log.jsonl").stat().st_size
    else:
        told = curve(folder)
        size = max((int(one["bytes"]) for one in told if one["spent"] <= seconds), default=0)
    lines = (folder / "log.jsonl").read_bytes()[:size].splitlines()
    path = folder / f"at_{seconds:.0f}.jsonl"
    with path.open("wb") as file:
        for line in lines:
            record = json.loads(line)
            if record["kind"] == "best":
                # Whether it is better than the default schedule is what is to be seen here.
                record["made"].pop("start", None)
                file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return path


# ---------------------------------------------------------------------------------- comparing


def slice_of(module: planish.Module, inputs: Arrays, seconds: float) -> float:
    """The median time of calls, made for so many seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        module(*inputs)
        times.append(time.perf_counter() - start)
    return median(times)


def functions(module: planish.Module, inputs: Arrays) -> dict[str, float]:
    """The best time of each function, all its calls together."""
    out: dict[str, float] = {}
    for step in module.profile(inputs, 30):
        out[step.function] = out.get(step.function, 0.0) + step.best_seconds
    return out


def compare(model: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Time a model as it is by default, and with what tuning knew at several moments."""
    spent, trials = spent_on(folder)
    points = [p for p in POINTS if p <= spent + 5]
    logs: dict[str, list[Path]] = {DEFAULT: [], AGAIN: []}
    logs.update((f"{p:.0f}", [known_at(folder, p)]) for p in points)
    logs[LAST] = [known_at(folder, inf)]
    modules = {
        name: planish.compile(model, threads=options.threads, logs=some)
        for name, some in logs.items()
    }
    with np.load(model.with_suffix(".npz")) as file:
        inputs = [file[name] for name in file.files]
    for module in modules.values():
        slice_of(module, inputs, options.seconds)
    rounds: dict[str, list[float]] = {name: [] for name in modules}
    for k in range(options.rounds):
        names = list(modules) if k % 2 == 0 else list(reversed(modules))
        for name in names:
            rounds[name].append(slice_of(modules[name], inputs, options.seconds))
    plain, tuned = (functions(modules[name], inputs) for name in (DEFAULT, LAST))
    least = NOTABLE * sum(plain.values())
    worst = min(
        (plain[f] / tuned[f] for f in plain if f in tuned and plain[f] >= least), default=1.0
    )
    return {
        "machine": machine(),
        "threads": options.threads,
        "start": options.start,
        "shipped": options.shipped,
        "spent": spent,
        "trials": trials,
        "ms": {name: 1e3 * min(times) for name, times in rounds.items()},
        "speed": {
            name: spread([a / b for a, b in zip(rounds[DEFAULT], times, strict=True)])
            for name, times in rounds.items()
        },
        "of the last": {
            name: spread([a / b for a, b in zip(rounds[LAST], times, strict=True)])
            for name, times in rounds.items()
        },
        "worst": worst,
        # Where something is missing, the times are not those of the whole model.
        "curve": [
            [one["spent"], one["trials"], one["seconds"]]
            for one in curve(folder)
            if not one["missing"]
        ],
    }


# ---------------------------------------------------------------------------------- reporting


def report(results: Mapping[str, Any]) -> str:
    """The results as markdown: a table for each way to begin."""
    parts = []
    best: dict[str, float] = {}
    for r in results.values():
        times = [seconds for _, _, seconds in r["curve"]]
        best[r["model"]] = min([*times, best.get(r["model"], inf)])
    for start in ("plain", "default"):
        for shipped in (False, True):
            some = {
                r["model"]: r
                for r in results.values()
                if r["start"] == start and r["shipped"] == shipped
            }
            if some:
                parts.append(_table(some, start, shipped, best))
    return "\n\n".join(parts)


def _trials_to(r: Mapping[str, Any], seconds: float) -> str:
    """After how many trials a run had no more than so many seconds left."""
    return next((str(trials) for _, trials, now in r["curve"] if now <= seconds), "")


def _table(some: Mapping[str, Any], start: str, shipped: bool, best: Mapping[str, float]) -> str:
    rows = []
    for name, r in sorted(some.items()):

        def part(point: float, r: Mapping[str, Any] = r) -> str:
            value = r["of the last"].get(f"{point:.0f}")
            return f"{value['median']:.2f} ({value['low']:.2f})" if value else ""

        tuned, noise = r["speed"][LAST], r["speed"][AGAIN]
        rows.append([
            name, f"{r['spent'] / 60:.0f}", str(r["trials"]), brief(r["ms"][DEFAULT]),
            brief(r["ms"][LAST]), part(60.0), part(300.0), _trials_to(r, best[name] / NEARLY),
            f"{tuned['median']:.2f}", f"{tuned['low']:.2f}",
            f"{noise['low']:.2f} to {noise['high']:.2f}", f"{r['worst']:.2f}",
        ])  # fmt: skip
    mean = geometric_mean(r["speed"][LAST]["median"] for r in some.values())
    low = geometric_mean(r["speed"][LAST]["low"] for r in some.values())
    last = next(iter(some.values()))
    own = "with the logs and the model that come with planish" if shipped else "from no log"
    head = ["model", "minutes", "trials", "default, ms", "tuned, ms", "after 1 min",
            "after 5 min", "trials to 95 %", "tuned, speed", "at least", "noise",
            "worst function"]  # fmt: skip
    return "\n".join(
        [
            f"From {start} schedules, {own}; {last['threads']} threads on {last['machine']}.",
            "",
            table(head, rows),
            "",
            f"Geometric mean of the tuned models' speed: {mean:.2f} (at least {low:.2f}).",
        ]
    )


def main() -> None:
    """Tune and compare all, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="files or folders")
    parser.add_argument("--budget", default="20m", help="of each model (default: 20m)")
    parser.add_argument("--start", choices=("plain", "default"), default="plain")
    parser.add_argument("--shipped", action="store_true", help="with logs and model of planish")
    parser.add_argument("--ship", action="store_true", help="add what is found to tuning_logs/")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=9, help="at least 7 (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a slice (default: 0.4)")
    parser.add_argument("--folder", type=Path, default=RESULTS / "tuning", metavar="DIR")
    parser.add_argument("--json", type=Path, default=RESULTS / "tuning.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the table into the README")
    options = parser.parse_args()
    if options.ship and options.start != "default":
        parser.error("what began with plain schedules may be slower than the default: no --ship")
    for model in found(options.models):
        name = "-".join([model.stem, options.start, *(["shipped"] if options.shipped else [])])
        print(f"{name} ...", flush=True)
        tune(model, options.folder / name, options)
        if options.ship:
            print(ship(model, options.folder / name, options.threads), flush=True)
        result = compare(model, options.folder / name, options)
        results = merge(options.json, {name: {"model": model.stem, **result}})
    publish("tuning", report(results), options.update)


if __name__ == "__main__":
    main()
