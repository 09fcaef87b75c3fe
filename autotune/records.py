"""Records: what was tried, and what came of it; lines of JSON that are only ever added.

A log has three kinds of lines. ``task`` says what a key stands for; ``trial`` is a candidate with
its times or its error; ``best`` is one that was measured again, side by side with the schedule
that was best before, and was faster and right. Only ``best`` lines are ever applied. Every line is
written at once and complete; one that was cut off is skipped by whoever reads. Logs are merged by
writing one behind the other.

A line is used where the task, the target, the threads and the schedule language are the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from planish.compiler.errors import ParseError, TuningError
from planish.compiler.files import why, written_whole
from planish.schedules.choices import Decisions, Option
from planish.schedules.schedule import LANGUAGE, Trace
from planish.schedules.trace import trace_from_json, trace_to_json

from .closing import Closing
from .tasks import Task, parse_text

SCHEMA: Final = 1
TURN_SECONDS: Final = 2.0  # that a line waits for those of others
KEPT_TRIALS: Final = 200  # of a task, where a log is pruned
Kind: TypeAlias = Literal["trial", "best"]
KINDS: Final = ("task", "trial", "best")  # of lines
ERRORS: Final = ("schedule", "build", "crash", "timeout", "memory", "wrong", "failed")


@dataclass(frozen=True)
class Record:
    """A candidate and what came of it.

    ``target`` is the target's short name (``tasks.target_key``; the line of the task says it all).
    ``seconds`` are the times of single runs, none if there was an ``error`` (one of ``ERRORS``),
    which ``detail`` explains. ``stopped``: it was given up early, as slower than others by far.
    ``before``: of a best one, the times of the schedule that it replaces, measured in turn with it.
    """

    kind: Kind
    task: str
    target: str
    threads: int
    sizes: tuple[int, ...]
    decisions: Decisions
    trace: Trace
    seconds: tuple[float, ...] = ()
    error: str = ""
    detail: str = ""
    stopped: bool = False
    before: tuple[float, ...] = ()
    language: int = LANGUAGE
    made: Mapping[str, str] = field(default_factory=dict)  # when, and by which versions

    @property
    def time(self) -> float:
        """The time that it counts with, in seconds; infinite after an error."""
        return min(self.seconds) if self.seconds else float("inf")

    @property
    def gain(self) -> float:
        """By how much a best one was faster than what it replaced: 1.1 is by a tenth."""
        return min(self.before) / self.time if self.before and self.seconds else 1.0

    def to_json(self) -> dict[str, Any]:
        """The record as a line's object; what is empty is left out."""
        out: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": self.kind,
            "task": self.task,
            "target": self.target,
            "threads": self.threads,
            "sizes": list(self.sizes),
            "decisions": {k: _plain(v) for k, v in self.decisions.items()},
            "trace": trace_to_json(self.trace),
            "seconds": [_short(s) for s in self.seconds],
            "before": [_short(s) for s in self.before],
            "error": self.error,
            "detail": self.detail[:500],
            "stopped": self.stopped,
            "language": self.language,
            "made": dict(self.made),
        }
        return {k: v for k, v in out.items() if v not in ("", [], False)}


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")


def _plain(option: Option) -> Any:
    return list(option) if isinstance(option, tuple) else option


def _option(data: Any) -> Option:
    match data:
        case int() | str() if not isinstance(data, bool):
            return data
        case [*items] if all(isinstance(x, int) and not isinstance(x, bool) for x in items):
            return tuple(items)
    raise ParseError("not a decision", node=repr(data)[:200])


def _times(data: Any) -> tuple[float, ...]:
    if isinstance(data, list) and all(isinstance(x, int | float) and x >= 0 for x in data):
        return tuple(map(float, data))
    raise ParseError("not times in seconds", node=repr(data)[:200])


def record_from_json(data: Any) -> Record:
    """The record that ``to_json`` gave.

    Errors: ParseError for anything else.
    """
    match data:
        case {"schema": int(schema), "kind": "trial" | "best" as kind, "task": str(task),
              "target": str(target), "threads": int(threads), "decisions": dict(decisions),
              "trace": trace, "language": int(language)} if schema <= SCHEMA:  # fmt: skip
            sizes = data.get("sizes", [])
            if not isinstance(sizes, list) or not all(isinstance(s, int) for s in sizes):
                raise ParseError("not sizes", node=repr(sizes)[:200])
            made = data.get("made", {})
            return Record(
                kind, task, target, threads, tuple(sizes),
                {str(k): _option(v) for k, v in decisions.items()},
                trace_from_json(trace),
                _times(data.get("seconds", [])),
                str(data.get("error", "")),
                str(data.get("detail", "")),
                bool(data.get("stopped", False)),
                _times(data.get("before", [])),
                language,
                {str(k): str(v) for k, v in made.items()} if isinstance(made, dict) else {},
            )  # fmt: skip
    raise ParseError("not a record that this version can read", node=repr(data)[:200])


def now() -> str:
    """The present moment, as records say it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# ------------------------------------------------------------------------------------ reading


@dataclass
class Contents:
    """What a log holds; ``skipped`` counts lines that could not be read."""

    records: list[Record] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # of tasks, by key
    labels: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)  # texts of targets, by task
    skipped: int = 0


def read(paths: Iterable[str | Path], kinds: Sequence[str] = KINDS) -> Contents:
    """What logs hold, in order; lines of other kinds are not even parsed.

    Errors: TuningError for a file that cannot be read.
    """
    marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
    every = set(kinds) == set(KINDS)  # then other lines count as ones that cannot be read
    out = Contents()
    for path in paths:
        for line in _lines(Path(path)):
            if not every and not any(mark in line for mark in marks):
                continue
            try:
                _take(json.loads(line), out)
            except (ParseError, ValueError, RecursionError):
                out.skipped += 1
    return out


def read_best(paths: Iterable[str | Path]) -> Best:
    """The best schedules of logs.

    Errors: TuningError for a file that cannot be read.
    """
    return Best(read(paths, ("best",)))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())
    except OSError as error:
        raise TuningError(f"the log {path} cannot be read: {error.strerror or error}") from error


def _take(data: Any, out: Contents) -> None:
    match data:
        case {"schema": int(schema), "kind": "task", "task": str(key), "text": str(text)} if (
            schema <= SCHEMA
        ):
            parse_text(text)
            out.texts[key] = text
            out.labels[key] = str(data.get("label", ""))
            out.targets[key] = str(data.get("target", ""))
        case _:
            out.records.append(record_from_json(data))


def merged(paths: Iterable[str | Path], output: str | Path) -> tuple[int, int]:
    """Write the readable lines of logs as one, each once; gives their number, and the others'.

    Errors: TuningError for a file that cannot be read or written.
    """
    lines: dict[bytes, None] = {}
    skipped = 0
    for path in paths:
        for line in _lines(Path(path)):
            try:
                _take(json.loads(line), Contents())
                lines[line.rstrip(b"\n")] = None
            except (ParseError, ValueError, RecursionError):
                skipped += 1
    _write_all(output, lines)
    return len(lines), skipped


def pruned(
    contents: Contents,
    paths: Iterable[str | Path],
    output: str | Path,
    trials: int = KEPT_TRIALS,
) -> int:
    """Write what is still of use: tasks, the last best schedules, trials of today's language.

    Of a task's ``trials`` so many are kept, the fastest ones and others evenly among the rest.
    Gives the number of lines.

    Errors: TuningError for a file that cannot be read or written.
    """
    best = {id(r) for r in Best(contents)}
    of: dict[tuple[str, str, int], list[Record]] = {}
    for r in contents.records:
        if r.kind == "trial" and r.language == LANGUAGE:
            of.setdefault((r.task, r.target, r.threads), []).append(r)
    kept: set[int] = set(best)
    for some in of.values():
        ordered = sorted(some, key=lambda r: r.time)
        half = trials // 2
        rest = ordered[half:]
        others = rest[:: max(1, -(-len(rest) // max(1, trials - half)))]
        kept.update(id(r) for r in (*ordered[:half], *others))
    chosen = [r for r in contents.records if id(r) in kept]
    used = {r.task for r in chosen}
    lines: dict[bytes, None] = {}
    for path in paths:
        for line in _lines(Path(path)):
            if b'"kind":"task"' in line:
                one = Contents()
                try:
                    _take(json.loads(line), one)
                except (ParseError, ValueError, RecursionError):
                    continue
                if used & set(one.texts):
                    lines[line.rstrip(b"\n")] = None
    lines.update((_encoded(r.to_json()), None) for r in chosen)
    _write_all(output, lines)
    return len(lines)


def _write_all(output: str | Path, lines: Iterable[bytes]) -> None:
    """Write a file as a whole, or not at all."""
    try:
        with written_whole(output) as file:
            file.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise TuningError(f"{output} cannot be written: {why(error)}") from error


# ------------------------------------------------------------------------------------ writing


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


class Log(Closing):
    """A log that lines are added to; whatever happens, those that are there stay as they are.

    Several processes may add to one. One that is deleted meanwhile is written anew, with all that
    it held; where another file has taken its place, lines go there. Used with ``with``.

    Errors: TuningError if the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = -1
        self._known: set[str] = set()
        try:
            self._open()
        except OSError as error:
            raise self._fails(error) from error

    def task(self, task: Task) -> None:
        """Say what a task's key stands for, if that is not there yet."""
        self._write({
            "schema": SCHEMA, "kind": "task", "task": task.key, "label": task.label,
            "target": str(task.target), "text": task.text,
        }, task.key)  # fmt: skip

    def add(self, record: Record) -> None:
        """Add a record."""
        self._write(record.to_json())

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        self._known = set(read([self.path]).texts) if self._regular else set()

    def _write(self, line: Mapping[str, Any], key: str = "") -> None:
        """Write a line; with a key, only if none was written for that."""
        try:
            self._stay()
            if key and key in self._known:
                return
            with _turn(self._file):
                self._end_line()
                self._put(_encoded(line) + b"\n")
        except OSError as error:
            raise self._fails(error) from error
        if key:
            self._known.add(key)

    def _stay(self) -> None:
        """See to it that the file is the one that the path names."""
        if not self._regular:
            return
        mine = os.fstat(self._file)
        try:
            if os.path.samestat(mine, os.stat(self.path)):
                return
        except FileNotFoundError:
            pass
        before = self._file
        try:
            self._open()
            if mine.st_nlink == 0 and os.fstat(self._file).st_size == 0:
                with _turn(self._file):
                    for start in range(0, mine.st_size, 1 << 20):
                        self._put(os.pread(before, 1 << 20, start))
                self._known = set(read([self.path]).texts)
        finally:
            os.close(before)

    def _end_line(self) -> None:
        """Put an end to a line that was cut off, so that the next one is a line of its own."""
        size = os.fstat(self._file).st_size if self._regular else 0
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._put(b"\n")

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def _fails(self, error: OSError) -> TuningError:
        return TuningError(
            f"the log {self.path} cannot be written: {error.strerror or error}",
            hint="what was written before is still there; the same command goes on from it",
        )


@contextmanager
def _turn(file: int) -> Iterator[None]:
    """Write while no other does; one that is stopped while it writes is not waited for long."""
    until = time.monotonic() + TURN_SECONDS
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # there are no locks where the file is
                break
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


# ------------------------------------------------------------------------------------- using


class Best:
    """The best schedules of some logs, by task."""

    def __init__(self, contents: Contents) -> None:
        self._found: dict[tuple[str, str, int], Record] = {}
        for r in contents.records:
            if r.kind != "best" or r.language != LANGUAGE or not r.seconds:
                continue
            if r.made.get("start", "default") != "default":
                continue  # it may be slower than the default schedule
            # Later ones were measured against earlier ones.
            self._found[r.task, r.target, r.threads] = r

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._found.values())

    def of(self, task: str, target: str, threads: int) -> Record | None:
        """The record that applies to a task, if there is one."""
        return self._found.get((task, target, threads))
