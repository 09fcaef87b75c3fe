"""How long it takes until a model answers: compiled from its file, and loaded from a module file.

``python benchmarks/start.py MODEL.onnx ...`` (or folders; inputs stand beside each model in
NAME.npz) compiles every model without tuning, stage by stage, and saves it; then it times fresh
processes that import planish, load the saved module and compute one answer. Every run is a process
of its own, and a first one, which leaves files in the system's cache and Python's, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

from harness import RESULTS, before_others, brief, environment, machine, merge, publish, table
from networks import found

# What ``planish.compile`` says that it does, by first words, and what the table calls it.
SAID: Final = {
    "reading": "read",
    "optimising": "passes",
    "scheduling": "schedule",
    "generating": "emit",
    "compiling": "LLVM",
}
STAGES: Final = ("import", "read", "passes", "schedule", "loop passes", "emit", "LLVM")
# Seconds that are asked for, by models' names: of compiling, and of loading and answering.
COMPILE_TARGETS: Final = {"resnet50": 8.0, "minilm": 5.0}
LOAD_TARGETS: Final = {"minilm": 0.3}

# Imported first, so that no stage has to.
NEEDED: Final = (
    "planish.build", "planish.lowering", "planish.compiler.pipeline", "planish.targets.llvm.entry",
    "planish.targets.llvm.native", "planish.targets.llvm.pool", "planish.targets.llvm.program",
)  # fmt: skip

LOAD: Final = """
import sys, time
start = time.perf_counter()
import numpy, planish
imported = time.perf_counter()
module = planish.load(sys.argv[1])
loaded = time.perf_counter()
with numpy.load(sys.argv[2]) as file:
    inputs = [file[name] for name in file.files]
ready = time.perf_counter()
module(*inputs)
print(imported - start, loaded - imported, time.perf_counter() - ready)
"""


# ---------------------------------------------------------------- in a process of its own


def compile_here(model: str, out: str, threads: int) -> dict[str, float]:
    """Compile and save a model; the seconds of each stage."""
    start = time.perf_counter()
    for name in NEEDED:
        import_module(name)
    import_module("planish.compiler.frontends.onnx.importer").load_handlers()
    import_module("planish.compiler.ops.registry").load_operators()
    spent = {**dict.fromkeys(STAGES, 0.0), "import": time.perf_counter() - start}

    program = import_module("planish.targets.llvm.program")
    run = program.run

    def timed(*arguments: Any) -> Any:
        before = time.perf_counter()
        result = run(*arguments)
        spent["loop passes"] += time.perf_counter() - before
        return result

    vars(program)["run"] = timed  # they run between emitting one function and the next
    marks: list[tuple[str, float]] = []

    def said(what: str) -> None:
        marks.append((what.partition(" ")[0], time.perf_counter()))

    module = import_module("planish").compile(model, threads=threads, logs=[], progress=said)
    for (name, began), (_, ended) in zip(marks, marks[1:], strict=False):
        stage = SAID[name]
        spent[stage] = spent.get(stage, 0.0) + ended - began
    spent["emit"] -= spent["loop passes"]
    module.save(out)
    return spent


# ------------------------------------------------------------------------------ measuring


def process(*command: str, **environ: str) -> tuple[str, dict[str, float]]:
    """What a process prints, and its seconds: by the clock, and of processor time.

    Errors: SystemExit if it fails.
    """
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**environ))
    before_others(child.pid)
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if child.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed")
    return text, {"wall": wall, "cpu": used.ru_utime + used.ru_stime}


def measure(model: Path, threads: int, compiles: int, loads: int) -> dict[str, Any]:
    """Compile a model several times, and load it many times."""
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "model.planish"
        made = []
        for _ in range(compiles):
            command = [__file__, "--compile-here", str(model), str(module), str(threads)]
            text, seconds = process(sys.executable, *command)
            made.append({**json.loads(text.splitlines()[-1]), "process": seconds["wall"]})
        size = module.stat().st_size
        started = []
        inputs = str(model.with_suffix(".npz"))
        for _ in range(loads + 1):
            text, seconds = process(sys.executable, "-c", LOAD, str(module), inputs)
            parts = zip(("import", "load", "answer"), map(float, text.split()), strict=True)
            started.append({**dict(parts), **seconds})
        del started[0]
    return {"threads": threads, "bytes": size, "compile": made, "start": started}


# ------------------------------------------------------------------------------ reporting


def report(results: Mapping[str, Any]) -> str:
    """The results as markdown: one table of compiling, one of loading."""
    compiled, loaded = [], []
    for name, r in sorted(results.items()):

        def typical(kind: str, part: str, r: Mapping[str, Any] = r) -> float:
            return float(median(one[part] for one in r[kind]))

        stages = [typical("compile", stage) for stage in STAGES]
        target = COMPILE_TARGETS.get(name)
        compiled.append(
            [name, *(f"{s:.2f}" for s in stages), _beside(typical("compile", "process"), target)]
        )
        parts = [1e3 * typical("start", part) for part in ("import", "load", "answer", "cpu")]
        wall = _beside(typical("start", "wall"), LOAD_TARGETS.get(name))
        loaded.append([name, f"{r['bytes'] / 1e6:.1f}", *(f"{ms:.0f}" for ms in parts), wall])
    last = list(results.values())[-1]
    return "\n".join(
        [
            f"{last['threads']} threads on {last['machine']}.",
            "",
            "Compiling without tuning, in seconds; the process also starts Python and saves the "
            "module:",
            "",
            table(["model", *STAGES, "process"], compiled),
            "",
            "Loading the module file and one answer, in a fresh process; milliseconds, the process "
            "in seconds:",
            "",
            table(["model", "MB", "import", "load", "answer", "CPU", "process"], loaded),
            "",
            "Medians of the processes; CPU time is of all threads. Missed targets are bold.",
        ]
    )


def _beside(seconds: float, target: float | None) -> str:
    """A time, with what is asked for beside it."""
    if target is None:
        return brief(seconds)
    text = f"{brief(seconds)} (target {target:g})"
    return text if seconds <= target else f"**{text}**"


def main() -> None:
    """Measure all, print the tables."""
    if sys.argv[1:2] == ["--compile-here"]:
        print(json.dumps(compile_here(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="files or folders")
    parser.add_argument("--threads", type=int, default=2, help="of the module (default: 2)")
    parser.add_argument("--compiles", type=int, default=3, help="processes (default: 3)")
    parser.add_argument("--loads", type=int, default=15, help="processes (default: 15)")
    parser.add_argument("--json", type=Path, default=RESULTS / "start.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the tables into the README")
    options = parser.parse_args()
    for model in found(options.models):
        one = measure(model, options.threads, options.compiles, options.loads)
        compiling = median(c["process"] for c in one["compile"])
        starting = median(s["wall"] for s in one["start"])
        print(f"{model.stem:24} compiled in {compiling:.2f} s, starts in {1e3 * starting:.0f} ms")
        merged = merge(options.json, {model.stem: {**one, "machine": machine()}})
    publish("start", report(merged), options.update)


if __name__ == "__main__":
    main()
