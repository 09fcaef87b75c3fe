"""What ``planish bench`` prints: runtimes beside each other, and a module step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from planish.bench import BUSY, REPEAT, StepTime, Timing
from planish.console import counted, write

if TYPE_CHECKING:
    from planish.runtime.limits import Limits

_ROWS_SHOWN: Final = 30


def write_timings(timings: Sequence[Timing], threads: int) -> None:
    """The times of calls, planish's first."""
    short = min(t.median for t in timings) < 1e-3
    unit, scale = ("microseconds", 1e6) if short else ("milliseconds", 1e3)
    write(f"{counted(threads, 'thread')}, {unit} of a call")
    write(f"{'':14}{'median':>10}{'best':>10}{'p90':>10}{'calls':>8}{'speed':>9}")
    ours = timings[0].median
    for t in timings:
        speed = "" if t is timings[0] else f"{t.median / ours:8.2f}x"
        times = "".join(f"{scale * x:10.2f}" for x in (t.median, t.best, t.p90))
        write(f"{t.name:14}{times}{t.calls:8}{speed:>9}".rstrip())
    if len(timings) > 1:
        write("speed: of planish, over that runtime's")


def write_profile(profile: Sequence[StepTime], limits: Limits) -> None:
    """The steps, those that take longest first, and what all of them take."""
    write(
        f"\nlimits here: {limits.flops / 1e9:.0f} GFLOP/s, reading {limits.read_bytes / 1e9:.0f}"
        f" GB/s, copying {limits.copy_bytes / 1e9:.0f} GB/s"
    )
    write(f"{'function':28}{'us':>10}{'share':>8}{'GFLOP/s':>10}{'GB/s':>8}{'limit':>8}  nodes")
    ordered = sorted(profile, key=lambda s: -s.seconds)
    for s in ordered[:_ROWS_SHOWN]:
        nodes = ", ".join(s.origin)
        _write_row(s.function, [s], nodes if len(nodes) <= 60 else f"{nodes[:57]}...")
    if rest := ordered[_ROWS_SHOWN:]:
        _write_row(f"{len(rest)} others", rest)
    if len(profile) > 1:
        _write_row("all", profile)
    write(f"us: the best of {REPEAT} runs; share: of the sum of these times")
    write("limit: the least time for the work by the limits above, over the time taken; more than")
    write("       100 % means that data came from a cache, that a way was found to do less work,")
    write(
        "       or that the limits are too low since the machine was busy when they were measured"
    )
    if limits.apart > BUSY:
        write(
            f"\nNOTE: the machine was busy: its limits were measured {limits.apart:.0%} apart,"
            "\n      so that the limits may be too low, and the shares of them too high"
        )


def _write_row(name: str, steps: Sequence[StepTime], nodes: str = "") -> None:
    """Some steps as one: times are summed up, rates are over all of the time."""
    seconds = sum(s.seconds for s in steps)
    share = sum(s.share for s in steps)
    gflops, gbytes, limit = (
        sum(rate * s.seconds for rate, s in zip(rates, steps, strict=True)) / max(seconds, 1e-9)
        for rates in zip(*((s.gflops, s.gbytes, s.of_limit) for s in steps), strict=True)
    )
    write(
        f"{name[:27]:28}{1e6 * seconds:10.1f}{100 * share:7.1f}%{gflops:10.1f}"
        f"{gbytes:8.1f}{100 * limit:7.0f}%  {nodes}".rstrip()
    )
