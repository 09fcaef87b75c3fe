"""The last word on what was tuned: in the model itself, beside the default schedules.

A candidate is timed as a model runs it, as far as that can be told of a function alone. What came
before in the caches, and what else is in them, only the model tells. So at the end of a job the
model is compiled both ways, and functions that are slower in it than they were by default get
their default schedules back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from planish.compiler.errors import PlanishError

if TYPE_CHECKING:
    from planish.autotune.tasks import Task
    from planish.compiler.graph.ir import Graph
    from planish.runtime.module import Module
    from planish.targets.target import Target

ROUNDS: Final = 9
RUNS: Final = 5  # of each module in a round
SLOWER: Final = 0.99  # the middle ratio of times, default over tuned, below which it counts
MOST_SECONDS: Final = 60.0


def settle(
    graph: Graph,
    target: Target,
    threads: int,
    sizes: Mapping[str, int],
    log: Path,
    tasks: Iterable[Task],
    made: Mapping[str, str],
) -> list[str]:
    """Take back, by lines of the log, what is slower in the model; gives the functions' names.

    A model of which no inputs can be made up that it accepts is left as it is.

    Errors: TuningError if the log cannot be written.
    """
    from planish.arrays import usable_inputs
    from planish.build import compile_imported

    tuned = compile_imported(graph, target, threads, logs=(log,))
    if not tuned.stats()["tuned"]:
        return []
    plain = compile_imported(graph, target, threads)
    default = plain.provenance["schedules"]
    names = {
        name for name, s in tuned.provenance["schedules"].items()
        if s["trace"] != default.get(name, s)["trace"]
    }  # fmt: skip
    try:
        _, inputs = usable_inputs(plain, sizes)
        times = _in_turn(plain, tuned, inputs)
    except PlanishError:
        return []
    back = {name: pair for name, pair in times.items() if name in names and _is_slower(*pair)}
    _take_back(log, [t for t in tasks if t.label in back], back, made)
    return sorted(back)


def _in_turn(
    plain: Module, tuned: Module, inputs: Mapping[str, object]
) -> dict[str, tuple[list[float], list[float]]]:
    """The seconds of each function, all its calls together, by default and tuned, in turn."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    end = time.monotonic() + MOST_SECONDS
    for module in (plain, tuned):
        module.profile(inputs, 2)
    for k in range(ROUNDS):
        for which in (0, 1) if k % 2 == 0 else (1, 0):
            total: dict[str, float] = {}
            for step in (plain, tuned)[which].profile(inputs, RUNS):
                seconds = float(median(step.nanoseconds)) * 1e-9
                total[step.function] = total.get(step.function, 0.0) + seconds
            for name, seconds in total.items():
                times.setdefault(name, ([], []))[which].append(seconds)
        if time.monotonic() > end:
            break
    return times


def _is_slower(plain: list[float], tuned: list[float]) -> bool:
    """Whether the tuned function is slower beyond noise."""
    ratios = sorted(a / b for a, b in zip(plain, tuned, strict=False) if b)
    return len(ratios) > 2 and median(ratios) < SLOWER and ratios[-2] < 1.0


def _take_back(
    log: Path,
    tasks: Iterable[Task],
    times: Mapping[str, tuple[list[float], list[float]]],
    made: Mapping[str, str],
) -> None:
    from planish.autotune.records import Log, Record, now

    with Log(log) as file:
        for task in tasks:
            plain, tuned = times[task.label]
            point = task.space.default()
            file.add(
                Record(
                    "best", task.key, task.target_key, task.threads, task.sizes, point.decisions,
                    point.schedule.trace, tuple(plain), before=tuple(tuned),
                    made={**made, "when": now(), "why": "it is faster in the model"},
                )
            )  # fmt: skip


__all__ = ["settle"]
