"""The page of a job: whole, of this job, and nothing of names or texts gets out of its place."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from planish.autotune.cost import CostModel
from planish.autotune.report import dots, lines, page, write
from planish.autotune.tune import Job, Options, Progress
from planish.compiler.errors import TuningError

from .some import matmul_task, rows_task
from .test_tune import Made


class Checked(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name in ("src", "href") for name, _ in attributes)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def history(tmp_path: Path, trials: int = 40) -> list[Progress]:
    seen: list[Progress] = []
    tasks = [replace(matmul_task(), label="<script>alert(1)</script>"), rows_task()]
    job = Job(tasks, tmp_path / "log.jsonl", Options(60.0, trials=trials),
              measurer=Made(failing=2), model=CostModel(), report=seen.append)  # fmt: skip
    return [*seen, job.run()]


def test_a_page(tmp_path: Path) -> None:
    states = history(tmp_path)
    text = page("a & b", states)
    checked = Checked(text)
    assert checked.seen.count("svg") == 3
    assert "script" not in checked.seen
    assert "Tuning of a &amp; b" in text
    assert f"{states[-1].trials} trials" in text
    assert "<tr><td>crash</td>" in text
    assert checked.seen.count("polyline") == 3
    for s in states[-1].states:
        if s.best.schedule.trace != s.search.start.schedule.trace:
            assert text.count("class=sides") >= 1
    path = tmp_path / "page.html"
    write(path, "a & b", states)
    assert path.read_text() == text
    with pytest.raises(TuningError, match="cannot be written"):
        write(tmp_path / "none" / "page.html", "x", states)


def test_a_page_of_hardly_anything(tmp_path: Path) -> None:
    Checked(page("x", history(tmp_path, trials=1)))


def test_pictures() -> None:
    text = lines([("a", [(0.0, 1.0), (10.0, 3.0)]), ("b", [(5.0, 2.0)])], "s", "ms")
    ways = re.findall(r'points="([^"]*)"', text)
    first = [tuple(map(float, p.split(","))) for p in ways[0].split()]
    assert first[0][0] < first[1][0]
    assert first[0][1] > first[1][1]  # upwards is less
    assert dots([("a", [(1.0, 1.0)] * 4)], "x", "y").count("<circle") == 4
    assert "nothing to show" in lines([("a", [])], "x", "y")
