"""Pretrained networks: is the answer right, how fast is it, what does compiling cost?

``python benchmarks/pretrained.py RECIPES.py [NAME ...]`` makes each network by the recipes: a
Python file with ``RECIPES``, ``Store(cache, offline)`` and ``load(name, folder, store)``, whose
samples have ``path``, ``inputs`` and ``answer(run)``, which says whether what a runtime gives is
right. A process of its own compiles the network and judges its answer; then planish and ONNX
Runtime are timed in turns on the sample's inputs, as ``networks.py`` does it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from harness import RESULTS, brief, environment, geometric_mean, machine, merge, publish, table
from networks import OTHER, OURS, Answer, PeerError, measure

SLOWEST: Final = 3.0  # times ONNX Runtime's time that planish may take
LEGEND: Final = """\
*right*: whether the network's answer is, judged in words; *ms*: the median of the quietest round's
calls; *times*: planish's time over ONNX Runtime's, the median of the rounds, wanted is at most 3;
*compile*: in seconds of a CPU; *peak*: the memory of the process that compiled and answered. What
is not as wanted is bold."""


def recipes_of(path: Path) -> ModuleType:
    """The recipes as a module."""
    spec = importlib.util.spec_from_file_location("recipes", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipes"] = module
    spec.loader.exec_module(module)
    return module


def made(recipes: ModuleType, name: str, folder: Path, options: argparse.Namespace) -> Any:
    """A network's sample, its files in the folder."""
    return recipes.load(name, folder, recipes.Store(options.cache, options.offline))


def judge(options: argparse.Namespace) -> Answer:
    """Compile a network and say whether its answer is right: in a process that does only that."""
    recipes = recipes_of(options.recipes)
    (name,) = options.names
    folder = Path(options.judge)
    sample = made(recipes, name, folder, options)
    import planish

    before = time.process_time()
    module = planish.compile(str(sample.path), threads=2, logs=[])
    spent = time.process_time() - before
    right, said = sample.answer(module.run)
    arrays = [sample.inputs[port.name] for port in module.inputs]
    np.savez(folder / f"{name}.npz", **{f"i{k:03}": a for k, a in enumerate(arrays)})
    os.replace(sample.path, folder / f"{name}.onnx")
    return {"right": bool(right), "said": said, "compile_seconds": spent, "peak_mb": peak_mb()}


def peak_mb() -> float:
    """The most memory that this process has had; what the system counts includes its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def judged(name: str, folder: Path, options: argparse.Namespace) -> Answer:
    """The same, from outside.

    Errors: PeerError.
    """
    command = [sys.executable, __file__, str(options.recipes), name, "--judge", str(folder)]
    command += ["--cache", options.cache] if options.cache else []
    command += ["--offline"] if options.offline else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(),
            timeout=options.limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerError(f"no answer within {options.limit:.0f} s") from None
    if done.returncode:
        raise PeerError("; ".join(done.stderr.splitlines()[-4:]))
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    return answer


def one(name: str, options: argparse.Namespace) -> Answer:
    """Everything about one network."""
    with tempfile.TemporaryDirectory() as folder:
        out: Answer = {"machine": machine()}
        try:
            out |= judged(name, Path(folder), options)
            for threads in options.counts:
                model = Path(folder, f"{name}.onnx")
                out[f"threads {threads}"] = measure(model, threads, options)
        except PeerError as error:
            out["failed"] = str(error)
        return out


# -------------------------------------------------------------------------------- reporting


def report(results: Mapping[str, Answer]) -> str:
    """The results as markdown: a row for each network."""
    keys = [k for r in results.values() for k in r if k.startswith("threads")]
    counts = sorted(dict.fromkeys(keys))
    head = ["network", "right"]
    for key in counts:
        head += [f"ms, {key[8:]} thr.", "ONNX Runtime", "times"]
    head += ["compile, s", "peak, MB"]
    rows, times = [], {key: [] for key in counts}
    for name, r in sorted(results.items()):
        row = [name, "yes" if r.get("right") else "**no**"]
        for key in counts:
            row += _timing(r.get(key), times[key])
        told = (r.get("compile_seconds"), r.get("peak_mb"))
        rows.append([*row, *("" if x is None else brief(x) for x in told)])
    right = sum(bool(r.get("right")) for r in results.values())
    mean = [f"**{len(results)}**", f"**{right}**"]
    for key in counts:
        mean += ["", "", f"**{geometric_mean(times[key]):.2f}**" if times[key] else ""]
    rows.append([*mean, "", ""])
    lines = [f"{next(iter(results.values()))['machine']}.", "", table(head, rows), "", LEGEND]
    for name, r in sorted(results.items()):
        if "failed" in r:
            lines += ["", f"Failed: {name}: {r['failed'][:300]}"]
    return "\n".join(lines)


def _timing(found: Answer | None, times: list[float]) -> list[str]:
    if found is None:
        return ["", "", ""]
    rounds = {n: found["peers"][n]["rounds"] for n in (OURS, OTHER)}
    ms = [1e3 * min(t["median"] for t in rounds[n]) for n in (OURS, OTHER)]
    ratio = 1 / found["speed"]["median"]
    times.append(ratio)
    return [*map(brief, ms), f"{ratio:.2f}" if ratio <= SLOWEST else f"**{ratio:.2f}**"]


def main() -> int:
    """Measure all, print the table; 1 if a network is wrong, failed, or too slow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", type=Path, metavar="RECIPES.py")
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (default: all)")
    parser.add_argument("--threads", default="1,2", help="numbers by commas (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=7, help="of turns (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a slice (default: 0.4)")
    parser.add_argument("--calls", type=int, default=2, help="of a slice, at least (default: 2)")
    parser.add_argument("--limit", type=float, default=600, help="seconds that an answer may take")
    parser.add_argument("--python", default=sys.executable, help="what runs the runtimes")
    parser.add_argument("--cache", help="where the recipes keep what they download")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument("--json", type=Path, default=RESULTS / "pretrained.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the table into the README")
    parser.add_argument("--judge", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        print(json.dumps(judge(options)))
        return 0
    options.counts = [int(n) for n in options.threads.split(",")]
    known = list(recipes_of(options.recipes).RECIPES)
    if unknown := [n for n in options.names if n not in known]:
        parser.error(f"no network is called {unknown[0]}; there are {', '.join(known)}")
    bad = False
    for name in options.names or known:
        answer = one(name, options)
        rest = {k: v for k, v in answer.items() if k.startswith("threads")}
        slow = [1 / v["speed"]["median"] for v in rest.values()]
        said = (
            answer.get("failed") or f"{'right' if answer['right'] else 'WRONG'}: {answer['said']}"
        )
        said += "".join(f", {ratio:.2f} times" for ratio in slow)
        print(f"{name:20} {said}", flush=True)
        bad |= "failed" in answer or not answer["right"] or max(slow, default=0) > SLOWEST
        merged = merge(options.json, {name: answer})
    publish("pretrained", report(merged), options.update)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
