"""The process that builds and measures candidates: it may crash, hang or be killed.

It reads commands from its standard input and answers each with one line, both JSON: nothing that it
is sent or sends can run code. What else is printed in the process goes nowhere.

    {"do": "task", "task": {...}}                      -> {}
    {"do": "build", "id": 3, "trace": [...]}           -> {}
    {"do": "measure", "id": 3, "rounds": 5, "limit": 0.1} -> {"seconds": [...], "stopped": false}
    {"do": "compare", "ids": [2, 3], "rounds": 7}      -> {"seconds": [[...], [...]]}
    {"do": "forget", "ids": [3]}                       -> {}

A command that fails is answered with {"error": kind, "detail": text}; the kinds are those of
records.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

from planish.compiler.errors import PlanishError, ScheduleError
from planish.schedules.trace import trace_from_json

from .kernels import Bench, Candidate, in_turn, measure
from .tasks import Task

KEPT: Final = 256 << 20  # bytes of tasks' data that are kept for when they come again
_PR_SET_PDEATHSIG: Final = 1  # of Linux's prctl


class Failure(Exception):
    """Why a command has no answer."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Worker:
    """What the process does; ``handle`` is one command."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.benches: dict[str, Bench] = {}
        self.built: dict[int, Candidate] = {}

    def handle(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a command."""
        try:
            match command:
                case {"do": "task", "task": task}:
                    return self.take(task)
                case {"do": "build", "id": int(id), "trace": trace}:
                    return self.build(id, trace)
                case {"do": "measure", "id": int(id), "rounds": int(rounds), "limit": limit}:
                    seconds, stopped = measure(self.built[id], rounds, float(limit))
                    return {"seconds": seconds, "stopped": stopped}
                case {"do": "compare", "ids": [int(a), int(b)], "rounds": int(rounds)}:
                    both = in_turn(self.built[a], self.built[b], rounds)
                    return {"seconds": list(both)}
                case {"do": "forget", "ids": [*ids]}:
                    for id in ids:
                        self.built.pop(id, None)
                    return {}
            raise Failure("failed", f"no command: {str(command)[:200]}")
        except Failure as failure:
            return {"error": failure.kind, "detail": failure.detail}
        except MemoryError:
            return {"error": "memory", "detail": "there is no memory for it"}
        except ScheduleError as error:
            return {"error": "schedule", "detail": str(error)}
        except PlanishError as error:
            return {"error": "build", "detail": str(error)}
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the candidate's)
            return {"error": "failed", "detail": f"{type(error).__name__}: {error}"}

    def take(self, task: Any) -> dict[str, Any]:
        """Go over to a task, given as JSON."""
        self.built.clear()
        if self.bench is not None:
            self.bench.forget_forms()
            self.bench = None
        key = json.dumps(task)
        bench = self.benches.pop(key, None) or Bench(Task.from_json(task))
        while self.benches and bench.bytes + sum(b.bytes for b in self.benches.values()) > KEPT:
            del self.benches[next(iter(self.benches))]  # what was not wanted for longest
        self.benches[key] = self.bench = bench
        return {}

    def build(self, id: int, trace: Any) -> dict[str, Any]:
        """Build a candidate, and check its answer."""
        if self.bench is None:
            raise Failure("failed", "there is no task yet")
        candidate = Candidate(self.bench, trace_from_json(trace))
        if wrong := self.bench.check(candidate.run()):
            raise Failure("wrong", wrong)
        self.built[id] = candidate
        return {}


def serve(worker: Worker, memory: int, lines: TextIO, answers: TextIO) -> None:
    """Answer commands until there are no more, in at most so many bytes more than now."""
    if memory:
        now = _virtual_bytes()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, most))
    for line in lines:
        answer = worker.handle(json.loads(line))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _virtual_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _end_with_parent() -> None:
    """Have the system end this process when the one that started it ends, whatever it does then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(worker: Worker, arguments: list[str]) -> None:
    """Serve on standard input and output; the argument is the memory that may be taken."""
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    answers.write("{}\n")  # it is ready
    answers.flush()
    serve(worker, int(arguments[0]) if arguments else 0, sys.stdin, answers)


if __name__ == "__main__":
    main(Worker(), sys.argv[1:])
