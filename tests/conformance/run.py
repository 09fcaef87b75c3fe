"""Runs ONNX's backend tests, or folders of the same form, and writes down what comes of them.

``python tests/conformance/run.py`` runs all suites and writes ``src/planish/conformance.json``, of
which ``planish ops`` and the documents tell. ONNX Runtime runs them too, for comparison. Cases run
in a process of their own: one that ends it, or takes too long, fails, and the next goes on in a new
one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import onnx

from conformance.suites import OWN, PEER, SUITES, Case, cases, folders, outcome
from planish.conformance import FILE, conformance

# The ways to run a case: target, and whether the graph is optimised.
MODES: Final[dict[str, tuple[str, bool]]] = {
    "interpreter": ("interpreter", True),
    "llvm": ("llvm", True),
    "llvm, not optimised": ("llvm", False),
    PEER: (PEER, True),
}
# The suites of ONNX run in these.
USUAL: Final = ("interpreter", "llvm", PEER)
_SECONDS: Final = 60  # of a processor's time, for one case
_WAIT: Final = 20  # times as long it may wait for a processor


def outcomes(
    todo: Sequence[Case], mode: str, seconds: int = _SECONDS
) -> Iterator[tuple[Case, str]]:
    """What comes of each case, in order."""
    target, optimize = MODES[mode]
    context = multiprocessing.get_context("fork")  # the cases need not be read again
    position = 0
    while position < len(todo):
        ours, theirs = context.Pipe()
        worker = context.Process(
            target=_work, args=(todo[position:], target, optimize, seconds, theirs), daemon=True
        )
        worker.start()
        theirs.close()
        try:
            while position < len(todo):
                in_time = ours.poll(seconds * _WAIT)
                found = ours.recv() if in_time else "waits for ever"
                yield todo[position], found
                position += 1
                if not in_time:
                    break
        except EOFError:
            worker.join()
            slow = worker.exitcode == -signal.SIGXCPU
            ended = f"ends the process with {worker.exitcode}"
            yield todo[position], f"takes more than {seconds} s" if slow else ended
            position += 1
        worker.kill()
        worker.join()


def _work(todo: Sequence[Case], target: str, optimize: bool, seconds: int, results: Any) -> None:
    for case in todo:
        until = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        results.send(outcome(case, target, optimize))
    results.close()


def table(found: Iterable[tuple[Case, str, str]]) -> dict[str, Any]:
    """The outcomes of (case, mode) by suite and operator: how many cases, and which fail, how."""
    suites: dict[str, dict[str, dict[str, Any]]] = {}
    seen: set[tuple[str, str]] = set()
    for case, mode, result in found:
        by_operator = suites.setdefault(case.suite, {})
        entry = by_operator.setdefault(case.operator, {"cases": 0, "failures": {}})
        if (case.suite, case.name) not in seen:
            seen.add((case.suite, case.name))
            entry["cases"] += 1
        if result != "pass":
            entry["failures"].setdefault(case.name, {})[mode] = result
    return suites


def peer(found: Iterable[tuple[Case, str, str]]) -> dict[str, Any]:
    """How many cases of each suite the other runtime passes."""
    import onnxruntime

    passed = Counter(case.suite for case, _, result in found if result == "pass")
    return {"name": f"ONNX Runtime {onnxruntime.__version__}", "passed": dict(passed)}


def write(found: Sequence[tuple[Case, str, str]]) -> None:
    """Write ``conformance.json``."""
    ours = [entry for entry in found if entry[1] != PEER]
    theirs = [entry for entry in found if entry[1] == PEER]
    modes: dict[str, list[str]] = {}
    for case, mode, _ in ours:
        if mode not in (known := modes.setdefault(case.suite, [])):
            known.append(mode)
    suites = {name: _shorter(by, modes[name]) for name, by in table(ours).items()}
    whole = {"onnx": onnx.__version__, "peer": peer(theirs), "modes": modes, "suites": suites}
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=True)
    FILE.write_text(text + "\n", "utf-8")


def _shorter(operators: dict[str, Any], modes: Sequence[str]) -> dict[str, Any]:
    """A suite's table, with one reason where it is that of all modes."""

    def said(reasons: dict[str, str]) -> Any:
        same = set(reasons) == set(modes) and len(set(reasons.values())) == 1
        return next(iter(reasons.values())) if same else reasons

    return {
        name: {**entry, "failures": {c: said(r) for c, r in entry["failures"].items()}}
        for name, entry in operators.items()
    }


def recorded_failures(mode: str) -> set[tuple[str, str]]:
    """The cases (suite, name) that ``conformance.json`` says fail."""
    suites = conformance().suites
    return {
        (suite, name)
        for suite, operators in suites.items()
        for score in operators.values()
        for name, reasons in score.failures.items()
        if mode in reasons
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--suite", action="append", choices=(*SUITES, OWN), help="default: all")
    parser.add_argument("--folder", type=Path, help="a folder of cases instead of the suites")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="default: all")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--every", type=int, default=1, help="every so manyth case")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="for one case")
    parser.add_argument("--quiet", action="store_true", help="print sums only")
    args = parser.parse_args()
    if args.folder:
        suites = {args.folder.name: list(folders(args.folder))}
    else:
        suites = {name: cases(name) for name in args.suite or (*SUITES, OWN)}
    found = []
    for name, some in suites.items():
        todo = [case for case in some if args.only in case.name][:: args.every]
        for mode in args.mode or (USUAL if name in SUITES else MODES):
            passed = 0
            for case, result in outcomes(todo, mode, args.seconds):
                found.append((case, mode, result))
                passed += result == "pass"
                if result != "pass" and not args.quiet and (mode != PEER or args.mode):
                    print(f"{name}: {case.name}: {mode}: {result}", flush=True)  # noqa: T201
            print(f"{name}: {mode}: {passed} of {len(todo)} pass", flush=True)  # noqa: T201
    if not (args.folder or args.suite or args.mode or args.only or args.every > 1):
        write(found)
    return 0 if all(result == "pass" for _, mode, result in found if mode != PEER) else 1


if __name__ == "__main__":
    sys.exit(main())
