"""What the benchmarks share: processes that come first, numbers of many rounds as one, tables.

A table stands in a document between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "benchmarks" / "README.md"
RESULTS: Final = ROOT / ".benchmarks"  # ignored by git, removed by `make clean`


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that measures: this checkout's planish comes first."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, **more}


def machine() -> str:
    """The machine, in a line."""
    name = platform.processor() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        text = ""
    if found := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
        name = found[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, Python {platform.python_version()}"


def before_others(pid: int) -> None:
    """Let a process run before whatever else the machine does, as far as that is allowed."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
        Path(f"/proc/{pid}/autogroup").write_text("-20")


# ------------------------------------------------------------------------------------ numbers


def low_end(values: Sequence[float]) -> float:
    """The lower end of the median's 95 % interval, as far as so few values say: one of them.

    Source: order statistics. The k-th lowest of n lies above the median with the probability of
    fewer than k heads in n throws of a coin.
    """
    n = len(values)
    k, below = 1, 2.0**-n
    while k < n and 2 * (below + math.comb(n, k) * 2.0**-n) <= 0.05:
        below += math.comb(n, k) * 2.0**-n
        k += 1
    return sorted(values)[k - 1]


def spread(values: Sequence[float]) -> dict[str, float]:
    """The median of some rounds' values, and how far it may be off."""
    high = -low_end([-v for v in values])
    return {"median": median(values), "low": low_end(values), "high": high}


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


def brief(x: float) -> str:
    """Three digits that count, as a plain number."""
    if x == 0 or not math.isfinite(x):
        return f"{x:.0f}"
    return f"{x:.{max(0, 2 - math.floor(math.log10(abs(x))))}f}"


# ------------------------------------------------------------------------------------ results


def merge(path: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Add results to those in a file, replacing what was measured again; gives all of them."""
    known: dict[str, Any] = {}
    if path.exists():
        known = json.loads(path.read_text("utf-8"))
    known.update(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return known


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table whose first column is text and whose others are numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def insert(document: str, name: str, body: str) -> str:
    """The document with the part of this name replaced.

    Errors: LookupError if it has no such part.
    """
    pattern = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(document):
        raise LookupError(f"the document has no <!-- table: {name} --> ... <!-- end -->")
    return pattern.sub(lambda found: f"{found[1]}\n{body.strip()}\n\n{found[2]}", document, count=1)


def publish(name: str, body: str, update: bool) -> None:
    """Print a table; with ``update``, put it into this folder's README as well."""
    print(f"\n{body}\n", flush=True)
    if update:
        README.write_text(insert(README.read_text("utf-8"), name, body), "utf-8")
