"""Logs: lines that are only added, read whatever happened to them, merged and pruned."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from planish.autotune.records import (
    Best,
    Contents,
    Log,
    Record,
    merged,
    pruned,
    read,
    read_best,
    record_from_json,
)
from planish.compiler.errors import ParseError, TuningError
from planish.schedules.schedule import LANGUAGE

from .some import matmul_task


def record(kind: str = "trial", seconds: float = 1e-3, **changes: object) -> Record:
    task = matmul_task()
    point = task.space.default()
    r = Record(
        kind, task.key, task.target_key, task.threads, (), point.decisions,  # type: ignore[arg-type]
        point.schedule.trace, (seconds, 2 * seconds), made={"when": "now"},
    )  # fmt: skip
    return replace(r, **changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.mark.parametrize(
    "r",
    [
        record(),
        record("best", before=(2e-3, 3e-3)),
        record(seconds=0.0, error="crash", detail="x" * 900),
        record(stopped=True, sizes=(3, 4), language=LANGUAGE + 1),
    ],
)
def test_json_gives_the_record_back(r: Record) -> None:
    again = record_from_json(json.loads(json.dumps(r.to_json())))
    assert again == replace(r, detail=r.detail[:500])


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 99},
        {"kind": "other"},
        {"trace": [["split", {}]]},
        {"trace": "split"},
        {"seconds": ["1"]},
        {"seconds": [-1.0]},
        {"decisions": {"tile": 1.5}},
        {"decisions": []},
        {"threads": None},
        {"sizes": ["n"]},
    ],
)
def test_what_is_no_record(change: dict[str, object]) -> None:
    with pytest.raises(ParseError):
        record_from_json({**record().to_json(), **change})


def test_a_log_grows(path: Path) -> None:
    for k in range(3):
        with Log(path) as log:
            log.task(matmul_task())
            log.task(matmul_task())
            log.add(record(seconds=k + 1.0))
    found = read([path])
    assert [r.time for r in found.records] == [1.0, 2.0, 3.0]
    assert found.texts == {matmul_task().key: matmul_task().text}
    assert found.skipped == 0
    assert path.read_text().count('"kind":"task"') == 1


def test_a_log_that_was_cut_anywhere_loses_one_line(path: Path) -> None:
    with Log(path) as log:
        log.task(matmul_task())
        for k in range(4):
            log.add(record(seconds=k + 1.0))
    whole = path.read_bytes()
    ends = [k + 1 for k, c in enumerate(whole) if c == ord("\n")]
    pick = Random(0)
    for cut in [*ends, *(pick.randrange(len(whole)) for _ in range(40))]:
        path.write_bytes(whole[:cut])
        with Log(path) as log:
            log.add(record(seconds=9.0))
        data = path.read_bytes()
        assert data.startswith(whole[:cut])
        complete = sum(end <= cut for end in ends)
        found = read([path])
        # What is cut off right before the end of its line is whole.
        assert len(found.records) - (complete + 1 - min(complete, 1)) in (0, 1)
        assert found.records[-1].time == 9.0
        assert found.skipped <= 1


def test_a_log_that_is_deleted_is_written_anew(path: Path) -> None:
    with Log(path) as log:
        log.task(matmul_task())
        log.add(record(seconds=1.0))
        before = path.read_bytes()
        path.unlink()
        log.add(record(seconds=2.0))
        assert path.read_bytes().startswith(before)
        path.rename(path.with_name("moved.jsonl"))
        log.add(record(seconds=3.0))  # what was moved is still there
        log.task(matmul_task())
        path.write_bytes(b"")  # emptied in place
        log.add(record(seconds=4.0))
        path.unlink()
        path.write_bytes(b"{}\n")  # another file
        log.task(matmul_task())
        log.add(record(seconds=5.0))
    assert [r.time for r in read([path.with_name("moved.jsonl")]).records] == [1.0, 2.0]
    found = read([path])
    assert [r.time for r in found.records] == [5.0]
    assert set(found.texts) == {matmul_task().key}


def test_a_line_that_another_job_left_torn_is_ended(path: Path) -> None:
    with Log(path) as first, Log(path) as second:
        first.add(record(seconds=1.0))
        with path.open("ab") as file:  # as where the disk is full, or the job killed
            file.write(b'{"schema":1,"ki')
        second.add(record(seconds=2.0))
        first.add(record(seconds=3.0))
    found = read([path])
    assert [r.time for r in found.records] == [1.0, 2.0, 3.0]
    assert found.skipped == 1


def test_a_disk_that_fills_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is torn, those before and after it are whole."""
    room = [150]

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = os_write(file, data[: room[0]])
        room[0] -= count
        return count

    os_write = os.write
    with Log(path) as log:
        log.add(record(seconds=1.0))
        monkeypatch.setattr(os, "write", write)
        with pytest.raises(TuningError, match="cannot be written: No space left on device"):
            log.add(record(seconds=2.0))
        monkeypatch.undo()
        log.add(record(seconds=3.0))
    found = read([path])
    assert [r.time for r in found.records] == [1.0, 3.0]
    assert found.skipped == 1


def test_several_jobs_write_one_log(path: Path) -> None:
    """Lines of processes that write at once are all whole."""
    program = (
        "import sys; from tests.autotune.test_records import Log, record, matmul_task\n"
        "with Log(sys.argv[1]) as log:\n"
        "    for k in range(300):\n"
        "        log.task(matmul_task())\n"
        "        log.add(record(seconds=k + float(sys.argv[2]), detail='x' * 400))\n"
    )
    root = Path(__file__).parents[2]
    paths = [str(root), *(p for p in sys.path if p)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    jobs = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(n)], env=environment)
        for n in (0.25, 0.75)
    ]
    assert [job.wait(120) for job in jobs] == [0, 0]
    found = read([path])
    assert found.skipped == 0
    assert len({r.time for r in found.records}) == 600


def test_a_log_of_a_newer_version_is_left_alone(path: Path) -> None:
    newer = json.dumps({**record().to_json(), "schema": 2, "more": {"a": 1}}).encode() + b"\n"
    path.write_bytes(newer)
    with Log(path) as log:
        log.add(record(seconds=2.0))
    assert path.read_bytes().startswith(newer)
    found = read([path])
    assert (len(found.records), found.skipped) == (1, 1)


def test_lines_of_other_things_are_skipped(path: Path) -> None:
    with Log(path) as log:
        log.add(record())
    code = '{"schema":1,"kind":"task","task":"k","text":"def f(): import os"}'
    lines = ["", "{", "[1, 2]", '"text"', "null", "\x00\x01", '{"schema": 1, "kind": "task"}',
             code, "[" * 100_000]  # fmt: skip
    path.write_bytes(path.read_bytes() + "\n".join(lines).encode() + b"\n\xff\xfe\n")
    found = read([path])
    assert len(found.records) == 1
    assert not found.texts
    assert found.skipped == 9


def test_the_last_best_one_counts(path: Path) -> None:
    key = record().task, record().target
    with Log(path) as log:
        log.add(record(seconds=1e-9))  # a trial is never applied
        assert read_best([path]).of(*key, 1) is None
        log.add(record("best", 3e-3, before=(4e-3,)))
        log.add(record("best", 2e-3, before=(3e-3,)))
        log.add(record("best", 1e-6, before=(3e-3,), language=LANGUAGE + 1))
        log.add(record("best", 1e-6, before=(3e-3,), threads=3))
        log.add(record("best", 1e-6, before=(3e-3,), made={"start": "plain"}))
    for best in (read_best([path]), Best(read([path]))):
        found = best.of(*key, 1)
        assert found is not None
        assert found.time == 2e-3
        assert found.gain == 1.5
        assert best.of(key[0], "another", 1) is None
        assert best.of(key[0], key[1], 2) is None


def test_logs_are_merged(path: Path) -> None:
    other, out = path.with_name("other.jsonl"), path.with_name("out.jsonl")
    for name, seconds in ((path, 1.0), (other, 2.0)):
        with Log(name) as log:
            log.task(matmul_task())
            log.add(record(seconds=seconds))
    other.write_bytes(other.read_bytes() + b"{torn")
    assert merged([path, other, path], out) == (3, 1)
    assert [r.time for r in read([out]).records] == [1.0, 2.0]


def test_logs_are_pruned(path: Path) -> None:
    with Log(path) as log:
        log.task(matmul_task())
        log.task(matmul_task(m=7))
        for k in range(300):
            log.add(record(seconds=float(300 - k)))
        log.add(record("best", 3.0, before=(4.0,)))
        log.add(record("best", 2.0, before=(3.0,)))
        log.add(record(language=LANGUAGE - 1))
    contents = read([path])
    out = path.with_name("out.jsonl")
    count = pruned(contents, [path], out)
    found = read([out])
    assert count == len(found.records) + 1
    assert set(found.texts) == {matmul_task().key}
    assert [r.time for r in found.records if r.kind == "best"] == [2.0]
    assert min(r.time for r in found.records if r.kind == "trial") == 1.0
    assert all(r.language == LANGUAGE for r in found.records)
    assert len(found.records) <= 201


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="cannot be read: No such file"):
        read([tmp_path / "none"])
    with pytest.raises(TuningError, match="cannot be read: Is a directory"):
        read([tmp_path])
    with pytest.raises(TuningError, match="cannot be written"):
        Log(tmp_path / "none" / "log.jsonl")
    with pytest.raises(TuningError, match="cannot be written"):
        merged([], tmp_path / "none" / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_a_full_disk() -> None:
    with Log("/dev/full") as log, pytest.raises(TuningError, match="No space left"):
        log.add(record())


def test_nothing_is_best() -> None:
    assert len(Best(Contents())) == 0
