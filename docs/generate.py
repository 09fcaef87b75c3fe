"""The parts of the documents that the program makes: ``python docs/generate.py`` writes them anew.

A part stands in a document between ``<!-- table: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import onnx
from harness import ROOT, insert
from layer import layer

from planish.build import resolve_target
from planish.compiler.config import CONFIG
from planish.compiler.pipeline import GRAPH_PASSES, LOOP_PASSES
from planish.conformance import TARGETS, conformance, why
from planish.operators import onnx_operators, own_operators
from planish.show import stage_text

# The examples are compiled for this CPU wherever they are made.
TARGET: Final = "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu"
THREADS: Final = 2


def stage(name: str) -> str:
    """The example model after a stage, as a block of text."""
    text = stage_text(layer(), name, resolve_target(TARGET), threads=THREADS)
    return f"```text\n{text}\n```"


def environment() -> str:
    """The environment variables."""
    return _table(("variable", "what it does"), ((f"`{v.name}`", v.help) for v in CONFIG))


def operators() -> str:
    """ONNX's operators: what is done with each of their forms, and how many of its cases pass."""
    rows = []
    for o in onnx_operators():
        forms = (" ".join(map(str, versions)) for versions in (o.handled, o.expanded, o.missing))
        counts = (f"{o.passed[target]}/{o.cases}" if o.cases else "" for target in TARGETS)
        rows.append((o.name, *forms, *counts))
    return _table(("operator", "own kernel", "by its definition", "refused", *TARGETS), rows)


def refused() -> str:
    """Operators of which forms are refused, and why."""
    whys: dict[str, list[str]] = {}
    for o in onnx_operators():
        if o.missing:
            forms = f" ({' '.join(map(str, o.missing))})" if o.handled or o.expanded else ""
            whys.setdefault(o.why, []).append(o.name + forms)
    return _table(("why", "operators"), ((_cell(w), ", ".join(o)) for w, o in whys.items()))


def suites() -> str:
    """How many cases of ONNX's tests pass, here and elsewhere."""
    found = conformance()
    rows = []
    for name in found.suites:
        score = found.suite(name)
        passed = (score.passed(target) for target in TARGETS)
        rows.append((name, score.cases, *passed, found.peer_passed.get(name, "")))
    head = ("suite", "cases", *TARGETS, found.peer)
    return _table(head, (map(str, row) for row in rows))


def failures() -> str:
    """Each case that fails, by the reason."""
    found = conformance()
    cases: dict[str, dict[str, None]] = {}
    for name in found.suites:
        for case, reasons in found.suite(name).failures.items():
            found_by = {mode: why(case, reason) for mode, reason in reasons.items()}
            for mode, reason in found_by.items():
                always = all(found_by.get(target) == reason for target in TARGETS)
                cases.setdefault(reason, {})[case if always else f"{case} ({mode})"] = None
    return _table(
        ("why", "cases"),
        ((_cell(reason), ", ".join(some)) for reason, some in sorted(cases.items())),
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def passes() -> str:
    """The passes in their order."""
    lists = (("graph", GRAPH_PASSES), ("loops", LOOP_PASSES))
    lines = (f"{name + ':':8}{', '.join(p.name for p in passes)}" for name, passes in lists)
    return "```text\n" + "\n".join(map(_filled, lines)) + "\n```"


def version() -> str:
    """Which ONNX the lists are of."""
    newest = onnx.defs.onnx_opset_version()
    return f"These are the operators of ONNX {onnx.__version__}, opset {newest}."


def own() -> str:
    """The operators of planish."""
    rows = ((f"`{o.name}`", o.summary.replace("|", "\\|"), o.source) for o in own_operators())
    return _table(("operator", "what it gives", "source"), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(head), *map(tuple, rows)]
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _filled(line: str) -> str:
    return fill(line, 88, subsequent_indent=" " * 8)


# Document, name of the part, and what makes it.
PARTS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    ("README.md", "environment", environment),
    ("docs/ir.md", "graph", lambda: stage("graph")),
    ("docs/ir.md", "fused", lambda: stage("fused")),
    ("docs/ir.md", "lowered", lambda: stage("lowered")),
    ("docs/ir.md", "loops", lambda: stage("loops")),
    ("docs/ir.md", "passes", passes),
    ("docs/operators.md", "version", version),
    ("docs/operators.md", "suites", suites),
    ("docs/operators.md", "operators", operators),
    ("docs/operators.md", "refused", refused),
    ("docs/operators.md", "failures", failures),
    ("docs/operators.md", "own", own),
)


def documents() -> Iterator[tuple[Path, str]]:
    """Each document with such parts, and its text with the parts made anew."""
    for name in dict.fromkeys(document for document, _, _ in PARTS):
        text = (ROOT / name).read_text("utf-8")
        for document, part, make in PARTS:
            if document == name:
                text = insert(text, part, make())
        yield ROOT / name, text


if __name__ == "__main__":
    for path, text in documents():
        path.write_text(text, "utf-8")
