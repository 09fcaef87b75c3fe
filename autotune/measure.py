"""Measuring candidates in processes of their own: built side by side, run one at a time.

Whatever a candidate does to its process (a crash, an endless loop, all the memory there is) becomes
an error of its record; the process is replaced, and nothing else is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Final, Protocol

from planish.compiler.errors import TuningError
from planish.schedules.schedule import Trace
from planish.schedules.trace import trace_to_json

from .closing import Closing
from .tasks import Task

COMMAND: Final = (sys.executable, "-m", "planish.autotune.worker")
START_SECONDS: Final = 60.0
TASK_SECONDS: Final = 120.0
BUILD_SECONDS: Final = 30.0
RUN_SECONDS: Final = 20.0  # besides what the times themselves may take
MEMORY: Final = 8 << 30  # bytes that a process may take beyond what it starts with
MOST_READ: Final = 1 << 16  # bytes of what a process says before it is ready
LOOK: Final = 1.0  # seconds after which it is looked how much time has passed
RECYCLED_AFTER: Final = 200  # candidates: what a process may have leaked goes with it


@dataclass(frozen=True)
class Limits:
    """What a candidate may take, and how often it is measured.

    One that is slower than the incumbent by the factor ``hopeless`` is not measured any further.
    """

    task_seconds: float = TASK_SECONDS
    build_seconds: float = BUILD_SECONDS
    run_seconds: float = RUN_SECONDS
    memory: int = MEMORY
    rounds: int = 5
    hopeless: float = 1.5
    recycled_after: int = RECYCLED_AFTER


@dataclass(frozen=True)
class Result:
    """What came of a candidate: times of single runs in seconds, or an error (see ``records``)."""

    seconds: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    stopped: bool = False


class BrokenTask(TuningError):
    """A task of which nothing can be measured, as its default schedule fails; others may do."""


class Measurer(Protocol):
    """Measures candidates of a task; one for other machines has the same methods.

    At ``until``, on the monotonic clock, it gives up: what is not measured then has no result.

    Errors: BrokenTask about a task; any other one ends the job.
    """

    until: float

    def results(
        self,
        task: Task,
        traces: Sequence[Trace],
        incumbent: float,
        built: Callable[[], object] = lambda: None,
    ) -> list[Result | None]:
        """What came of each candidate; ``incumbent`` is the time to beat, or infinity.

        ``built`` is called when the first one is about to be timed: what the caller does beside
        must be over when it returns.
        """

    def compare(
        self, task: Task, old: Trace, new: Trace, rounds: int
    ) -> tuple[Result, Result] | None:
        """Times of two candidates, measured in turn."""

    def close(self) -> None:
        """Give back what it holds."""


class _Gone(Exception):
    """The process has ended, or had to be ended; the kind of error that is."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.result = Result(error=kind, detail=detail)


class _OutOfTime(Exception):
    """The time of the whole job is over."""


class _Process:
    """One process: commands are sent, answers taken in the same order.

    ``built`` are the candidates that it holds, by trace, with the numbers that it knows them by.
    """

    def __init__(self, command: Sequence[str], limits: Limits, until: float) -> None:
        self._limits, self.until = limits, until
        self._stderr = _temporary_file()  # until it is ready, then nothing
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [*command, str(limits.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            start_new_session=True,  # an interrupt from the keyboard is not for it
        )
        self._buffer = b""
        self.task = ""
        self.candidates = 0
        self.built: dict[Trace, int] = {}
        self._deadline = time.monotonic() + START_SECONDS
        self._started = False
        self._complaint = ""  # the last line of what it said before it was ready

    def send(self, command: dict[str, Any], seconds: float) -> None:
        """Send a command, to be answered within so many seconds.

        Errors: _Gone if the process ended before.
        """
        if not self._started:
            self.answer()
            self._started = True
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(command).encode() + b"\n")
            self._child.stdin.flush()
        except OSError as error:
            raise self._gone() from error
        self._deadline = time.monotonic() + seconds

    def send_build(self, trace: Trace) -> bool:
        """Have a candidate built; False if it is there, so that no answer will come.

        Errors: _Gone if the process ended before.
        """
        if trace in self.built:
            return False
        self.candidates += 1
        command = {"do": "build", "id": self.candidates, "trace": trace_to_json(trace)}
        self.send(command, self._limits.build_seconds)
        return True

    def answer_to_build(self, trace: Trace) -> Result | None:
        """What was wrong with the candidate that was sent last.

        Errors: _Gone if the process ended before, or had to be ended.
        """
        failed = _failed(self.answer())
        if failed is None:
            self.built[trace] = self.candidates
        return failed

    def answer(self) -> dict[str, Any]:
        """The answer to the command that was sent last.

        Errors: _Gone if the process ended before, or had to be ended.
        """
        out = self.output
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = self.left()
                # What came in time is taken, also if nobody looked in time.
                waited, missed = _select(selector, left)
                self.wait_longer(missed)
                if waited and not (some := os.read(out, 1 << 16)):
                    raise self._gone()
                self._buffer += some if waited else b""
                if left + missed <= 0 and b"\n" not in self._buffer:
                    self.end()
                    if time.monotonic() >= self.until:
                        raise _OutOfTime
                    raise _Gone("timeout", "it took too long")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            found = json.loads(line)
        except ValueError as error:
            self.end()
            raise _Gone("crash", "its process answered nonsense") from error
        return found if isinstance(found, dict) else {}

    @property
    def output(self) -> int:
        """The file that answers come from."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def left(self) -> float:
        """The seconds that are left for the next answer."""
        return min(self._deadline, self.until) - time.monotonic()

    def wait_longer(self, seconds: float) -> None:
        """Give it so much more time for the answer."""
        self._deadline += seconds

    def ask(self, command: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a command and wait for the answer.

        Errors: _Gone if the process ended before, or had to be ended.
        """
        self.send(command, seconds)
        return self.answer()

    def keep(self, traces: Collection[Trace]) -> None:
        """Forget all candidates but these.

        Errors: _Gone if the process ended before, or had to be ended.
        """
        if gone := [t for t in self.built if t not in traces]:
            ids = [self.built.pop(t) for t in gone]
            self.ask({"do": "forget", "ids": ids}, self._limits.run_seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        if not self._stderr.closed:
            self._stderr.seek(0)
            lines = self._stderr.read(MOST_READ).decode(errors="replace").split("\n")
            self._complaint = next((x.strip() for x in reversed(lines) if x.strip()), "")
            self._stderr.close()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not read yet is of no interest
                    pipe.close()

    def _gone(self) -> _Gone:
        status = self._child.wait()
        self.end()
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            kind = "memory" if -status == signal.SIGKILL else "crash"
            return _Gone(kind, f"its process was ended by the signal {name}")
        why = f": {self._complaint}" if self._complaint else ""
        return _Gone("crash", f"its process ended with status {status}{why}")


class LocalMeasurer(Closing):
    """Measures on this machine, in a few processes. Used with ``with``, or closed."""

    def __init__(
        self, processes: int = 2, limits: Limits | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self.limits = limits or Limits()
        self.until = float("inf")
        self._command = command
        self._processes: list[_Process | None] = [None] * max(1, processes)
        self._compared: tuple[Trace, ...] = ()  # what may soon be asked for again

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process is not None:
                process.end()
        self._processes = [None] * len(self._processes)

    # ------------------------------------------------------------------------------ the work

    def results(
        self,
        task: Task,
        traces: Sequence[Trace],
        incumbent: float,
        built: Callable[[], object] = lambda: None,
    ) -> list[Result | None]:
        """What came of each candidate; see ``Measurer``."""
        out: list[Result | None] = [None] * len(traces)
        try:
            self._prepare(task)
            where, failed = self._build(task, traces)
            built()
            for k, trace in enumerate(traces):
                if (error := failed.get(k)) is not None:
                    out[k] = error
                else:
                    out[k] = self._measured(task, trace, where[k], incumbent)
        except _OutOfTime:
            self.close()
        return out

    def _prepare(self, task: Task) -> None:
        """Have the processes go over to a task, all at the same time."""
        sent = []
        for slot in range(len(self._processes)):
            process = self._process(slot)
            try:
                if process.task == task.key:
                    process.keep(self._compared)
                else:
                    self._send_task(process, task)
                    sent.append((slot, process))
            except _Gone as gone:
                self._lost(slot, gone)
        for slot, process in sent:
            try:
                self._take_task(process, task)
            except _Gone as gone:
                self._lost(slot, gone)

    def _build(
        self, task: Task, traces: Sequence[Trace]
    ) -> tuple[dict[int, int], dict[int, Result]]:
        """Build each in the process that is free first: where it is, or what was wrong with it."""
        waiting = list(reversed(range(len(traces))))
        where: dict[int, int] = {}
        failed: dict[int, Result] = {}
        busy: dict[int, int] = {}  # what a process is at
        while waiting or busy:
            for slot in range(len(self._processes)):
                while waiting and slot not in busy:
                    k = waiting.pop()
                    where[k] = slot
                    try:
                        if self._at(slot, task).send_build(traces[k]):
                            busy[slot] = k
                    except _Gone as gone:
                        failed[k] = self._lost(slot, gone)
            for slot in self._answering(busy):
                k = busy.pop(slot)
                process = self._processes[slot]
                assert process is not None
                try:
                    if (error := process.answer_to_build(traces[k])) is not None:
                        failed[k] = error
                except _Gone as gone:
                    failed[k] = self._lost(slot, gone)
        return where, failed

    def _answering(self, busy: Collection[int]) -> list[int]:
        """Those of some processes that have something to say, or have had the time for it."""
        with selectors.DefaultSelector() as selector:
            left = float("inf")
            for slot in busy:
                process = self._processes[slot]
                assert process is not None
                selector.register(process.output, selectors.EVENT_READ, slot)
                left = min(left, process.left())
            events, missed = _select(selector, left) if busy else ([], 0.0)
        found = [key.data for key, _ in events]
        for slot in busy:
            if missed and (process := self._processes[slot]) is not None:
                process.wait_longer(missed)
        return found or [s for s in busy if (p := self._processes[s]) and p.left() <= 0]

    def _measured(self, task: Task, trace: Trace, slot: int, incumbent: float) -> Result:
        most = incumbent * self.limits.hopeless
        limit = most if most < 1e9 else 1e9
        rounds = self.limits.rounds
        seconds = self.limits.run_seconds + (rounds + 2) * min(limit, self.limits.run_seconds)
        try:
            process = self._at(slot, task)
            # If its process has been replaced in between, it is built again.
            if process.send_build(trace) and (error := process.answer_to_build(trace)):
                return error
            command = {"do": "measure", "id": process.built[trace], "rounds": rounds,
                       "limit": limit}  # fmt: skip
            answer = process.ask(command, seconds)
        except _Gone as gone:
            return self._lost(slot, gone)
        if (failed := _failed(answer)) is not None:
            return failed
        return Result(tuple(answer["seconds"]), stopped=bool(answer.get("stopped")))

    def compare(
        self, task: Task, old: Trace, new: Trace, rounds: int
    ) -> tuple[Result, Result] | None:
        """Times of two candidates, measured in turn in one process."""
        self._compared = (old, new)
        built = [p.built if p is not None and p.task == task.key else {} for p in self._processes]
        slot = max(range(len(built)), key=lambda s: (new in built[s]) + (old in built[s]))
        try:
            process = self._at(slot, task)
            for trace in (old, new):
                if process.send_build(trace) and (failed := process.answer_to_build(trace)):
                    return (failed, Result()) if trace is old else (Result(), failed)
            answer = process.ask(
                {"do": "compare", "ids": [process.built[old], process.built[new]],
                 "rounds": rounds},
                (2 * rounds + 1) * self.limits.run_seconds,
            )  # fmt: skip
            if (failed := _failed(answer)) is not None:
                return Result(), failed
            a, b = (Result(tuple(times)) for times in answer["seconds"])
            return a, b
        except _Gone as gone:
            return Result(), self._lost(slot, gone)
        except _OutOfTime:
            self.close()
            return None

    # ------------------------------------------------------------------------------ processes

    def _process(self, slot: int) -> _Process:
        """The process of a slot."""
        process = self._processes[slot]
        if process is not None and process.candidates >= self.limits.recycled_after:
            process.end()
            process = None
        if process is None:
            process = self._processes[slot] = _Process(self._command, self.limits, self.until)
        process.until = self.until
        return process

    def _at(self, slot: int, task: Task) -> _Process:
        """The process of a slot, ready for a task."""
        process = self._processes[slot] or self._process(slot)
        if process.task != task.key:
            self._send_task(process, task)
            self._take_task(process, task)
        return process

    def _send_task(self, process: _Process, task: Task) -> None:
        process.built.clear()
        process.task = ""
        command = {"do": "task", "task": replace(task, calls=1).to_json()}
        process.send(command, self.limits.task_seconds)

    def _take_task(self, process: _Process, task: Task) -> None:
        if (failed := _failed(process.answer())) is not None:
            raise BrokenTask(
                f"the default schedule of {task.label or task.key} fails: {failed.detail}",
                node=task.text,
            )
        process.task = task.key

    def _lost(self, slot: int, gone: _Gone) -> Result:
        self._processes[slot] = None
        return gone.result


def _temporary_file() -> IO[bytes]:
    """A file without a name; where there is no place for one, what is written to it is lost."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


def _select(
    selector: selectors.BaseSelector, seconds: float
) -> tuple[list[tuple[selectors.SelectorKey, int]], float]:
    """What has something to say, after a moment, and the seconds that nobody waited in.

    Where all processes are stopped for a while (a container, a virtual machine), no time has passed
    for them.
    """
    moment = max(0.0, min(seconds, LOOK))
    before = time.monotonic()
    events = selector.select(moment)
    missed = time.monotonic() - before - moment
    return events, missed if missed > LOOK else 0.0


def _failed(answer: dict[str, Any]) -> Result | None:
    """The error of an answer, if it is one."""
    if "error" not in answer:
        return None
    return Result(error=str(answer["error"]), detail=str(answer.get("detail", "")))
