"""Tuning as the user sees it: from a model to its tasks, and from logs to schedules."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planish.compiler.config import CONFIG
from planish.compiler.errors import ScheduleError, TypeCheckError
from planish.compiler.given import as_number, as_path, as_sizes
from planish.version import __version__

if TYPE_CHECKING:
    from planish.autotune.cost import Model
    from planish.autotune.measure import Measurer
    from planish.autotune.plugins import Predictor
    from planish.autotune.records import Best
    from planish.autotune.tasks import Task
    from planish.autotune.tune import Progress
    from planish.compiler.graph.ir import Graph
    from planish.compiler.loop.ir import Function
    from planish.compiler.machine import Machine
    from planish.compiler.program import AnyStep
    from planish.schedules.rules import Rule
    from planish.schedules.schedule import Schedule
    from planish.targets.target import Target

SHIPPED: Final = Path(__file__).parent / "tuning_logs"
UNITS: Final = {"s": 1, "m": 60, "h": 3600}
LONGEST: Final = 1e9  # seconds: thirty years
SETTLING_SHARE: Final = 0.1  # of the budget, which is left for looking at the model at the end
SETTLING_SECONDS: Final = 15.0
TIMES: Final = 16  # that a loop's body counts where only data tells how often it runs


# -------------------------------------------------------------------------------------- using logs


def shipped_logs(target: Target) -> tuple[Path, ...]:
    """The logs for a target that come with planish."""
    if not target.scheduled:
        return ()
    from planish.autotune.tasks import folder_of

    return tuple(sorted((SHIPPED / folder_of(target)).glob("*.jsonl")))


class Tuned:
    """The schedules that logs have for functions, compiled for a target and so many threads."""

    def __init__(self, logs: Sequence[Path], target: Target, threads: int) -> None:
        self.logs, self.target, self.threads = logs, target, threads

    @cached_property
    def best(self) -> Best:
        """What the logs say; read when it is first asked for."""
        from planish.autotune.records import read_best

        return read_best(self.logs)

    def __call__(self, func: Function, constants: frozenset[str]) -> Schedule | None:
        """The schedule of a canonical function; None if it was not tuned."""
        if not self.logs:
            return None
        from planish.autotune.tasks import Task
        from planish.schedules.schedule import replay

        task = Task(func, constants, self.target, self.threads)
        record = self.best.of(task.key, task.target_key, self.threads)
        if record is None:
            return None
        try:
            s = replay(func, record.trace)
        except ScheduleError:  # of moves that have become stricter: the default is right
            return None
        names = [p.name for p in func.params]
        return s if constants.issuperset(names[k] for k in s.forms()) else None


# ------------------------------------------------------------------------------------------- tasks


def tasks_of(
    graph: Graph,
    target: Target,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    machine: Machine | None = None,
) -> list[Task]:
    """The tasks of an imported graph, that with the most calls first.

    ``sizes`` are those of open dimensions, by name, at which functions are measured; they stay
    right for all. ``machine``: the one that measures, if it is another one.
    """
    from planish.assembly import assembled
    from planish.autotune.tasks import SIZE, Task
    from planish.build import optimized, threads_for
    from planish.lowering import Kernels

    graph = optimized(graph, target)
    most = threads_for(target, threads)
    kernels = Kernels(machine or target.machine, most, True, target.scheduled)
    program = assembled(graph, kernels)
    at = {v.name: (sizes or {}).get(v.name, SIZE) for v in (*program.symbols, *program.bound)}
    calls: Counter[str] = Counter()
    seen: dict[str, tuple[int, ...]] = {}
    from planish.compiler.expr.evaluate import evaluate

    for step, times in _calls(program.steps):
        calls[step.function] += times
        seen.setdefault(step.function, tuple(int(evaluate(e, at)) for e in step.symbols))
    tasks = [
        Task(
            k.plain, k.constants, target, most, seen[k.func.name], calls[k.func.name], k.func.name,
            machine,
        )
        for k in kernels
        if k.func.name in calls
    ]  # fmt: skip
    return sorted(tasks, key=lambda t: -t.calls)


def _calls(steps: Sequence[AnyStep], times: int = 1) -> Iterator[tuple[Any, int]]:
    """The calls of kernels, and how often each is done."""
    from planish.compiler.expr.nodes import Const
    from planish.compiler.program import Repeat, Step, inner

    for step in steps:
        if isinstance(step, Step):
            yield step, times
        again = times
        if isinstance(step, Repeat):
            known = isinstance(step.trip, Const)
            again = times * (max(1, int(step.trip.value)) if known else TIMES)  # type: ignore[union-attr]
        for some in inner(step):
            yield from _calls(some, again)


# ------------------------------------------------------------------------------------------ tuning


def seconds_of(budget: str | float) -> float:
    """The seconds of a budget: a number of them, or "90s", "10m", "2h".

    Errors: TypeCheckError for anything else.
    """
    if isinstance(budget, int | float) and not isinstance(budget, bool) and 0 < budget < LONGEST:
        return float(budget)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget) if isinstance(budget, str) else None
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < seconds < LONGEST:
        raise TypeCheckError(
            f"the budget {budget!r} is no time", op="tune", hint="such as 90s, 10m or 2h"
        )
    return seconds


def tune(
    model: Any,
    budget: str | float = "10m",
    log: str | Path = "tuning.jsonl",
    target: str | Target | None = None,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    tasks: str = "",
    report: Callable[[Progress], None] = lambda _: None,
    cluster: str | None = None,
    rules: Mapping[str, Rule] | Iterable[Rule] | None = None,
    cost_model: Model | Predictor | str | Path | None = None,
    measurer: Measurer | None = None,
    logs: Sequence[str | Path] | None = None,
    **options: Any,
) -> Progress:
    """Tune the functions of a model for the time of ``budget``; what is found goes to ``log``.

    A log that is there is gone on with. Compile with ``logs=[log]`` to use it. ``dims`` fixes open
    dimensions, ``sizes`` says for which sizes to tune those that stay open. ``tasks``: only those
    whose names contain one of these words. What was best in ``logs`` for functions like these is
    tried early: by default the logs that come with planish. ``report`` is called after every
    round. At the end, functions that turn out to be slower in the model than by default get their
    default schedules back (``taken_back`` of the result).

    ``cluster`` is the address of a Ray cluster that measures, or "local" for a Ray on this machine.
    ``rules`` are tried beside ours: None are those that installed packages bring. ``cost_model``:
    one to use instead of ours, the file of one, or the name of an installed one. ``measurer``: one
    to use instead of this machine. Other options are those of ``planish.autotune.tune.Options``.

    Errors: TypeCheckError for options that do not fit, TuningError if the log cannot be written or
    there is nothing to tune or nobody to measure, and those of ``compile``.
    """
    from dataclasses import fields

    from planish.autotune.plugins import chosen_model, chosen_rules
    from planish.autotune.tune import BATCH, Job, Options
    from planish.build import import_graph, resolve_target

    began, seconds = time.monotonic(), seconds_of(budget)
    log = as_path(log, "tune")
    dims, sizes = as_sizes(dims, "dims", "tune"), as_sizes(sizes, "sizes", "tune")
    threads = None if threads is None else as_number(threads, "threads", "tune", least=1)
    for name, least in (("trials", 1), ("seed", 0), ("batch", 1)):
        if options.get(name) is not None:
            options[name] = as_number(options[name], name, "tune", least)
    found = resolve_target(target)
    _check_measurable(found, cluster, measurer)
    if unknown := set(options) - {f.name for f in fields(Options)}:
        raise TypeCheckError(f"there is no option {min(unknown)}", op="tune")
    own = chosen_rules(rules)
    chosen = chosen_model(cost_model, options.get("seed", 0))
    graph = import_graph(model, dims, lambda _: None)
    words = tasks.split(",")
    made = {"planish": __version__, "machine": found.name}
    one: Any = measurer or _measurer(found, cluster)
    with closing(one):
        machine = None
        if cluster is not None:
            machine = one.machine
            threads = threads or CONFIG.threads or max(2, one.cpus)
            options.setdefault("batch", BATCH * one.devices)
        every = tasks_of(graph, found, threads, sizes, machine)
        settles = measurer is None and cluster is None and options.get("start") != "plain"
        left = max(1.0, seconds - (time.monotonic() - began))
        if settles:
            left -= min(SETTLING_SHARE * left, SETTLING_SECONDS)
        job = Job(
            [replace(t, rules=own) for t in every if any(w in t.label for w in words)],
            log,
            Options(budget=left, made=made, **options),
            measurer=one,
            model=chosen,
            logs=shipped_logs(found) if logs is None else logs,
            report=report,
        )
        result = job.run()
    if settles and not result.interrupted:
        from planish.settling import settle

        taken_back = settle(
            graph, found, every[0].threads, sizes or {}, log, [s.task for s in result.states], made
        )
        result = replace(result, taken_back=tuple(taken_back))
    return result


def _check_measurable(target: Target, cluster: str | None, measurer: Measurer | None) -> None:
    """Whether there can be something that measures code for a target.

    Errors: TypeCheckError.
    """
    if cluster is not None and (not isinstance(cluster, str) or not cluster):
        raise TypeCheckError(
            f"the cluster {cluster!r} is no address", op="tune",
            hint='"local", "auto", "HOST:6379" or "ray://HOST:10001"',
        )  # fmt: skip
    if cluster is not None and measurer is not None:
        raise TypeCheckError("both a cluster and a measurer are given", op="tune")
    if (target.missing and cluster is None) or not target.scheduled:
        raise TypeCheckError(
            f"the target {target} cannot be measured on this machine", op="tune",
            hint="tune where the code is to run",
        )  # fmt: skip


def _measurer(target: Target, cluster: str | None) -> Any:
    if cluster is None:
        from planish.autotune.measure import LocalMeasurer

        return LocalMeasurer()
    from planish.autotune.cluster import ClusterMeasurer

    return ClusterMeasurer(target, cluster)
