"""The commands ``planish tune`` and ``planish logs``."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections import Counter
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planish.compiler.config import CONFIG
from planish.compiler.errors import TuningError, TypeCheckError
from planish.console import (
    check_apart,
    check_writable,
    counted,
    given_dims,
    note,
    refuse_module,
    write,
    write_json,
)

if TYPE_CHECKING:
    from planish.autotune.records import Contents, Record
    from planish.autotune.tune import Progress as Standing
    from planish.cli import Progress

INTERRUPTED = 130  # the exit code
EVERY = 10.0  # seconds between lines, where there is no terminal


def tune(args: Namespace, say: Progress) -> int:
    """``planish tune``."""
    from planish.tuning import seconds_of, tune

    refuse_module(args.model)
    if args.target_speed is not None and not 0 < args.target_speed < inf:
        raise TypeCheckError(
            f"--target-speed is {args.target_speed}, and must be a time of more than 0"
        )
    budget = seconds_of(args.budget)
    told = time.monotonic()
    history: list[Standing] = []
    check_apart(args.log, args.model.path)
    if args.html is not None:
        check_writable(args.html, args.model.path, args.log)

    def report(p: Standing) -> None:
        nonlocal told
        history.append(p)
        say(_line(p), min(1.0, p.spent / budget))
        if not sys.stderr.isatty() and time.monotonic() - told >= EVERY:
            told = time.monotonic()
            note(_line(p))

    say("reading the model")
    found = tune(
        args.model.source,
        args.budget,
        args.log,
        args.target,
        given_dims(args),
        args.threads,
        sizes=dict(args.size),
        tasks=args.tasks,
        report=report,
        cluster=args.cluster,
        cost_model=args.cost_model,
        trials=args.trials,
        enough=None if args.target_speed is None else args.target_speed * 1e-3,
        start=args.start,
        seed=args.seed,
    )
    if args.html is not None:
        from planish.autotune.report import write as write_page

        write_page(args.html, args.model.path.name, [*history, found])
    if args.json:
        write_json(_standing(found, args.log))
        return INTERRUPTED if found.interrupted else 0
    for s in sorted(found.states, key=lambda s: -s.first * s.task.calls):
        what = f"cannot be tuned: {s.dead.splitlines()[0]}" if s.dead else _times(s)
        write(f"  {s.task.label:24} {counted(s.task.calls, 'call'):>9}  {what}")
    if found.taken_back:
        write(f"slower in the model, so default again: {', '.join(found.taken_back)}")
    if found.interrupted:
        write(f"interrupted; the same command goes on from {args.log}")
    write(
        f"{counted(found.trials, 'trial')} in {found.spent:.0f} s: a call of the model's functions"
        f" takes {found.seconds * 1e3:.3f} ms, at the beginning {found.first * 1e3:.3f} ms;"
        f" ten more minutes are expected to bring {found.expected * 1e3:.3f} ms"
    )
    return INTERRUPTED if found.interrupted else 0


def _times(s: Any) -> str:
    if s.seconds == float("inf"):
        return "not measured yet"
    gain = s.first / s.seconds if s.seconds else 1.0
    return f"{s.first * 1e6:9.1f} -> {s.seconds * 1e6:9.1f} us ({gain:.2f}x), {s.trials} trials"


def _line(p: Standing) -> str:
    failed = ", ".join(f"{count} {kind}" for kind, count in p.failures.items())
    failed = f", failed: {failed}" if failed else ""
    if p.missing:
        measured = len(p.states) - p.missing
        return f"{p.trials} trials, {measured} of {len(p.states)} functions{failed}; {p.label}"
    return (
        f"{p.trials} trials, {p.seconds * 1e3:.3f} ms (was {p.first * 1e3:.3f}, expected"
        f" {p.expected * 1e3:.3f}){failed}; {p.label}"
    )


def _standing(p: Standing, log: Path) -> dict[str, Any]:
    return {
        "log": str(log),
        "trials": p.trials,
        "spent": p.spent,
        "interrupted": p.interrupted,
        "seconds": p.seconds,
        "first": p.first,
        "expected": p.expected,
        "missing": p.missing,
        "failures": dict(p.failures),
        "taken_back": list(p.taken_back),
        "tasks": [
            {
                "task": s.task.key,
                "label": s.task.label,
                "calls": s.task.calls,
                "first": s.first,
                "seconds": s.seconds,
                "trials": s.trials,
                "error": s.dead,
            }
            for s in p.states
        ],
    }


# -------------------------------------------------------------------------------------------- logs


def logs(args: Namespace, say: Progress) -> int:
    """``planish logs``."""
    from planish.autotune.records import read
    from planish.build import resolve_target
    from planish.tuning import shipped_logs

    paths = args.logs or [*shipped_logs(resolve_target(None)), *CONFIG.logs]
    if not paths:
        raise TypeCheckError("there are no tuning logs", op="logs", hint="give some files")
    if args.action in ("merge", "prune", "fit"):
        check_writable(args.output)
    if args.action == "merge":
        return _merge(paths, args.output)
    say("reading logs")
    contents = read(paths)
    match args.action:
        case "list":
            return _list(contents, paths, args.json)
        case "show":
            return _show(contents, args.task, args.json)
        case "best":
            return _best(contents, args.json)
        case "prune":
            return _prune(contents, paths, args.output)
        case _:
            return _fit(contents, args.output, say)


def _list(contents: Contents, paths: list[Path], as_json: bool) -> int:
    from planish.autotune.records import Best
    from planish.schedules.schedule import LANGUAGE

    trials: Counter[tuple[str, str, int]] = Counter()
    failed: Counter[str] = Counter()
    for r in contents.records:
        if r.kind == "trial":
            trials[r.task, r.target, r.threads] += 1
            failed[r.error or "measured"] += 1
    best = {(r.task, r.target, r.threads): r for r in Best(contents)}
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "label": contents.labels.get(task, ""),
            "target": target,
            "threads": threads,
            "trials": count,
            "gain": best[task, target, threads].gain if (task, target, threads) in best else None,
        }
        for (task, target, threads), count in trials.items()
    ]
    old = sum(r.language != LANGUAGE for r in contents.records)
    if as_json:
        write_json(
            {
                "logs": [str(p) for p in paths],
                "tasks": rows,
                "results": dict(failed),
                "skipped": contents.skipped,
                "of_another_language": old,
            }
        )
        return 0
    for row in rows:
        gain = "" if row["gain"] is None else f", the last gain {row['gain']:.2f}x"
        write(
            f"{row['task']}  {row['label'] or '-':24} {row['threads']} threads on"
            f" {row['target']}: {counted(row['trials'], 'trial')}{gain}"
        )
    kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items()) or "no trials"
    write(f"{counted(len(rows), 'task')}; {kinds}; {counted(len(best), 'best schedule')}")
    if contents.skipped:
        write(f"{counted(contents.skipped, 'line')} could not be read, and count as not there")
    if old:
        write(f"{counted(old, 'record')} of another version's schedules, which are not used")
    return 0


def _show(contents: Contents, key: str, as_json: bool) -> int:
    found = [r for r in contents.records if r.task.startswith(key)]
    if not found:
        raise TuningError(f"there are no records of a task {key}", hint="planish logs list")
    if as_json:
        write_json({"records": [r.to_json() for r in found]})
        return 0
    write(contents.texts.get(found[0].task, "(the task's text is in none of the logs)"))
    for r in sorted(found, key=lambda r: r.time):
        write(f"\n{r.kind}: {_result(r)}, {r.threads} threads on {r.target}")
        write("    " + ", ".join(f"{k}={v}" for k, v in r.decisions.items()))
    return 0


def _result(r: Record) -> str:
    if r.error:
        return f"{r.error} ({r.detail.splitlines()[0] if r.detail else ''})"
    gain = f", {r.gain:.3f}x" if r.before else ""
    return f"{r.time * 1e6:.1f} us{' (given up early)' if r.stopped else ''}{gain}"


def _best(contents: Contents, as_json: bool) -> int:
    from planish.autotune.records import Best
    from planish.schedules.trace import show_trace

    best = Best(contents)
    if as_json:
        write_json({"best": [r.to_json() for r in best]})
        return 0
    for r in best:
        write(f"{r.task} {contents.labels.get(r.task, '')}: {_result(r)}, {r.threads} threads")
        write("\n".join(f"    {line}" for line in show_trace(r.trace).splitlines()))
    return 0


def _merge(paths: list[Path], output: Path) -> int:
    """Write every readable line once, in order."""
    from planish.autotune.records import merged

    count, skipped = merged(paths, output)
    unread = f"; {counted(skipped, 'line')} that could not be read left out" if skipped else ""
    write(f"{output}: {counted(count, 'line')}{unread}")
    return 0


def _prune(contents: Contents, paths: list[Path], output: Path) -> int:
    from planish.autotune.records import pruned

    kept = pruned(contents, paths, output)
    write(f"{output}: {counted(kept, 'line')}")
    return 0


def _fit(contents: Contents, output: Path, say: Progress) -> int:
    from planish.autotune.cost import CostModel
    from planish.autotune.training import samples_of

    samples, lost = samples_of(contents, lambda share: say("replaying traces", share))
    say("training")
    model = CostModel()
    model.fit(samples)
    if not model.is_trained:
        raise TuningError(f"{counted(len(samples), 'record')} are too few to learn from")
    model.save(output)
    tasks = len({s.task for s in samples})
    more = f"; {counted(lost, 'record')} cannot be replayed" if lost else ""
    write(
        f"{output}: learnt from {counted(len(samples), 'record')} of {counted(tasks, 'task')}{more}"
    )
    return 0
