"""A tuning job as one page of HTML: nothing in it is loaded from elsewhere.

The time of a call of the model over the time of the job, each task's way there, what the cost model
thought of candidates beside what they took, the best schedules beside those that the job began
with, and what failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite
from pathlib import Path
from typing import Final

from planish.compiler.errors import TuningError
from planish.compiler.files import why, written_whole
from planish.schedules.trace import show_trace

from .tune import Progress, State

WIDTH: Final = 640
HEIGHT: Final = 200
NL: Final = "\n"
MARGIN: Final = 56
STYLE: Final = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; color: #222 }
table { border-collapse: collapse } td, th { padding: 0.2em 0.8em; text-align: right }
td:first-child, th:first-child { text-align: left } tr:nth-child(even) { background: #f4f4f4 }
pre { background: #f4f4f4; padding: 0.8em; overflow-x: auto; font-size: 12px }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1em }
svg { background: #fafafa; display: block } svg text { font-size: 11px; fill: #555 }
"""
Points = Sequence[tuple[float, float]]


def write(path: str | Path, name: str, history: Sequence[Progress]) -> None:
    """Write the page of a job, of which ``history`` are the states after its rounds.

    Errors: TuningError if the file cannot be written.
    """
    try:
        with written_whole(path) as file:
            file.write(page(name, history).encode())
    except OSError as error:
        raise TuningError(f"{path} cannot be written: {why(error)}") from error


def page(name: str, history: Sequence[Progress]) -> str:
    """The page."""
    last = history[-1]
    states = sorted(last.states, key=lambda s: -s.first * s.task.calls if s.share else 0.0)
    parts = [
        f"<h1>Tuning of {escape(name)}</h1>",
        f"<p>{last.trials} trials in {last.spent:.0f} s. A call of the model's functions takes"
        f" {_ms(last.seconds)}, at the beginning {_ms(last.first)}.</p>",
        "<h2>The model</h2>",
        lines(
            [("model", [(p.spent, p.seconds * 1e3) for p in history if not p.missing])],
            "seconds",
            "ms of a call",
        ),  # fmt: skip
        "<h2>Tasks</h2>",
        _table(states),
        lines(
            [(s.task.label, _relative(s)) for s in states[:8]],
            "trials",
            "time over that at the beginning",
        ),  # fmt: skip
        "<h2>Predicted and measured</h2>",
        "<p>Of each candidate the score that the cost model gave, more is better, and its speed"
        " over that of its task's best one.</p>",
        dots([(s.task.label, _predictions(s)) for s in states[:8]], "score", "speed"),
        "<h2>Failures</h2>",
        _failures(last),
        "<h2>Schedules</h2>",
        *map(_schedules, states),
    ]
    head = f'<meta charset="utf-8"><title>Tuning of {escape(name)}</title><style>{STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if isfinite(seconds) else "not measured"


def _relative(s: State) -> Points:
    """After each trial of a task the best time so far, over that at the beginning."""
    best, out = float("inf"), []
    for k, known in enumerate(s.search.known):
        best = min(best, known.time)
        if isfinite(best) and isfinite(s.first) and s.first:
            out.append((float(k), best / s.first))
    return out


def _predictions(s: State) -> Points:
    times = [k.time for k in s.search.known if isfinite(k.time)]
    best = min(times, default=0.0)
    return [
        (k.score, best / k.time)
        for k in s.search.known
        if k.score is not None and isfinite(k.time) and k.time
    ]


def _table(states: Iterable[State]) -> str:
    rows = "".join(
        f"<tr><td>{escape(s.task.label)}</td><td>{s.task.calls}</td><td>{_ms(s.first)}</td>"
        f"<td>{_ms(s.seconds)}</td><td>{s.trials}</td><td>{escape(s.dead.partition(NL)[0])}</td></tr>"
        for s in states
    )
    head = "<tr><th>task</th><th>calls</th><th>first</th><th>now</th><th>trials</th><th></th></tr>"
    return f"<table>{head}{rows}</table>"


def _failures(last: Progress) -> str:
    if not last.failures:
        return "<p>None.</p>"
    rows = "".join(
        f"<tr><td>{escape(k)}</td><td>{count}</td></tr>" for k, count in last.failures.items()
    )
    return f"<table><tr><th>kind</th><th>candidates</th></tr>{rows}</table>"


def _schedules(s: State) -> str:
    began, now = s.search.start.schedule, s.best.schedule
    same = " is what it began with" if began.trace == now.trace else ""
    sides = "" if same else (
        f"<div class=sides><pre>{escape(show_trace(began.trace))}</pre>"
        f"<pre>{escape(show_trace(now.trace))}</pre></div>"
    )  # fmt: skip
    return (
        f"<details><summary>{escape(s.task.label)}{same}</summary>"
        f"{sides}<pre>{escape(s.task.text)}</pre></details>"
    )


# ------------------------------------------------------------------------------------ pictures


def lines(series: Sequence[tuple[str, Points]], x: str, y: str) -> str:
    """Lines over one another, each with its name."""
    return _picture(series, x, y, joined=True)


def dots(series: Sequence[tuple[str, Points]], x: str, y: str) -> str:
    """Points over one another."""
    return _picture(series, x, y, joined=False)


def _picture(series: Sequence[tuple[str, Points]], x: str, y: str, joined: bool) -> str:
    every = [p for _, points in series for p in points]
    if not every:
        return "<p>There is nothing to show yet.</p>"
    left, right = min(p[0] for p in every), max(p[0] for p in every)
    low, high = min(0.0, *(p[1] for p in every)), max(p[1] for p in every)
    wide, tall = (right - left) or 1.0, (high - low) or 1.0

    def at(p: tuple[float, float]) -> str:
        across = MARGIN + (p[0] - left) / wide * (WIDTH - 2 * MARGIN)
        up = HEIGHT - MARGIN / 2 - (p[1] - low) / tall * (HEIGHT - MARGIN)
        return f"{across:.1f},{up:.1f}"

    parts = []
    for k, (name, points) in enumerate(series):
        colour = f"hsl({137 * k % 360} 60% 42%)"
        if joined:
            way = " ".join(map(at, points))
            parts.append(f'<polyline fill="none" stroke="{colour}" points="{way}"/>')
        else:
            for p in points:
                across, up = at(p).split(",")
                parts.append(f'<circle r="2" fill="{colour}" cx="{across}" cy="{up}"/>')
        parts.append(
            f'<text x="{WIDTH + 8}" y="{16 + 14 * k}" style="fill:{colour}">{escape(name)}</text>'
        )
    bottom = HEIGHT - 4
    parts += [
        f'<text x="{MARGIN}" y="{bottom}">{left:.3g}</text>',
        f'<text x="{WIDTH - MARGIN}" y="{bottom}" text-anchor="end">{right:.3g} {escape(x)}</text>',
        f'<text x="4" y="14">{high:.3g} {escape(y)}</text>',
        f'<text x="4" y="{HEIGHT - MARGIN / 2}">{low:.3g}</text>',
    ]
    return f'<svg width="{WIDTH + 220}" height="{HEIGHT}">{"".join(parts)}</svg>'
