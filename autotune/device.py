"""A machine of a cluster, seen from itself: what an actor does there, by the processes it has.

What it is asked and what it answers is text, JSON: nothing that travels can run code. The actor
lives as long as its machine; what candidates do hurts only the processes that it measures in.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from planish.compiler.errors import ParseError, PlanishError
from planish.compiler.machine import Machine
from planish.runtime.pool import available_cpus
from planish.schedules.schedule import LANGUAGE
from planish.schedules.trace import trace_from_json
from planish.targets.target import Target, parse_target
from planish.version import __version__

from .measure import COMMAND, BrokenTask, Limits, LocalMeasurer, Result
from .tasks import Task, target_key

# Whoever measures on this machine holds it; another user's could not be opened.
LOCK: Final = Path(tempfile.gettempdir()) / f"planish-measuring-{os.getuid()}.lock"
AGAIN: Final = 0.02  # seconds until it is tried again


def label_of(target: Target) -> str:
    """The resource of Ray that a machine with this target's CPU has one of."""
    return f"planish:{target_key(target)}"


def boot() -> str:
    """What no other machine calls itself; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Device:
    """Measures on its machine what it is told to; ``limits`` are those of ``Limits``, as JSON.

    ``alive`` may be called while it does so.
    """

    def __init__(self, limits: str, processes: int, command: Sequence[str] = COMMAND) -> None:
        self._measurer = LocalMeasurer(processes, Limits(**json.loads(limits)), command)
        # The system ends a process when the thread that started it ends: this one does not.
        self._thread = ThreadPoolExecutor(1)

    def facts(self) -> str:
        """What the machine is, and which planish it has."""
        target = parse_target("llvm")
        facts = {
            "planish": __version__,
            "language": LANGUAGE,
            "label": label_of(target),
            "target": str(target),
            "machine": asdict(target.machine),
            "cpus": available_cpus(),
            "boot": boot(),
        }
        return json.dumps(facts)

    def alive(self) -> None:
        """Come back, which a process that is stopped does not."""

    def work(self, command: str, seconds: float) -> str:
        """The answer to a command, which may take so long; see ``answer``."""
        until = time.monotonic() + seconds
        return self._thread.submit(self._work, command, until).result()

    def _work(self, command: str, until: float) -> str:
        with alone(until) as mine:
            if not mine:
                return "null"
            self._measurer.until = until
            return json.dumps(answer(self._measurer, json.loads(command)))

    def close(self) -> None:
        """End its processes."""
        self._measurer.close()
        self._thread.shutdown()


@contextmanager
def alone(until: float, path: Path = LOCK) -> Iterator[bool]:
    """Be the only one who measures on this machine; False if that was not to be had in time."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        while not (mine := _locked(file)) and time.monotonic() < until:
            time.sleep(AGAIN)
        yield mine
    finally:
        os.close(file)  # and with it the lock, as when the process ends


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# ----------------------------------------------------------------------------------- what is said


def answer(measurer: LocalMeasurer, command: Mapping[str, Any]) -> Any:
    """What comes of a command.

    {"do": "results", "task": {...}, "traces": [[...], ...], "incumbent": 0.1} -> [result, ...]
    {"do": "compare", "task": {...}, "traces": [[...], [...]], "rounds": 7}    -> [result, result]

    A result is an object, or null if time was over; an answer of null too. A task that is broken
    is answered with {"broken": message, "node": text}.
    """
    try:
        task = Task.from_json(command["task"])
        traces = [trace_from_json(t) for t in command["traces"]]
        if command["do"] == "results":
            found = measurer.results(task, traces, command["incumbent"])
            return [None if r is None else asdict(r) for r in found]
        old, new = traces
        both = measurer.compare(task, old, new, command["rounds"])
        return None if both is None else [asdict(r) for r in both]
    except PlanishError as error:
        return {"broken": error.message, "node": error.node}


def results_of(found: Any, count: int) -> list[Result | None]:
    """The results that an answer holds, so many.

    Errors: BrokenTask if it says so, ParseError if it is no answer.
    """
    match found:
        case None:
            return [None] * count
        case {"broken": str(message), **more}:
            raise BrokenTask(message, node=str(more.get("node") or "") or None)
        case [*results] if len(results) == count:
            return [_result(r) for r in results]
    raise ParseError("not what a device answers", node=repr(found)[:200])


def _result(data: Any) -> Result | None:
    match data:
        case None:
            return None
        case {
            "seconds": [*times],
            "error": str(error),
            "detail": str(detail),
            "stopped": bool(stopped),
        } if all(isinstance(t, int | float) for t in times):
            return Result(tuple(map(float, times)), error, detail, stopped)
    raise ParseError("not a result", node=repr(data)[:200])


def machine_of(data: Mapping[str, Any]) -> Machine:
    """The machine of a device's facts."""
    return Machine(**data)
