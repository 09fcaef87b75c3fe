"""planish beside ONNX Runtime, model by model, in one run: which is faster, is the answer the same?

``python benchmarks/networks.py FOLDER`` measures every NAME.onnx there that has its inputs beside
it in NAME.npz (arrays in the order of the graph's inputs); files can be named one by one, too.

How a number is made. Each runtime has a process of its own, and a third one is ONNX Runtime again:
what the same thing differs from itself is the noise. Over several rounds they take turns; while one
is timed the others, with all their threads, are stopped. A round gives the median of a slice's
calls, and the ratio of two such medians; what is reported is the median of the rounds' ratios and
the lower end of its 95 % interval. With 1 thread a process is held on one core. No tuning logs are
used. The error is the largest difference from ONNX Runtime's output, as a share of that output's
largest value.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from harness import (
    RESULTS,
    before_others,
    brief,
    environment,
    geometric_mean,
    machine,
    merge,
    publish,
    spread,
    table,
)

HERE: Final = Path(__file__).resolve().parent
OURS, OTHER, AGAIN = "planish", "onnxruntime", "onnxruntime again"
ADAPTERS: Final = {
    OURS: HERE / "peers" / "planish_.py",
    OTHER: HERE / "peers" / "onnxruntime_.py",
    AGAIN: HERE / "peers" / "onnxruntime_.py",
}
LEGEND: Final = """\
*ms*: the median of the quietest round's calls; *speed*: ONNX Runtime's time over planish's, the
median of the rounds; *at least*: the lower end of its 95 % interval; *noise*: the interval for ONNX
Runtime against itself; *error*: from ONNX Runtime's output, as a share of its largest value."""
POOLS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PLANISH_THREADS")

Answer = dict[str, Any]


class PeerError(Exception):
    """A runtime that failed, died or did not answer."""


class Process:
    """A runtime in a process of its own, which is stopped unless it has been asked something."""

    def __init__(self, adapter: Path, model: Path, threads: int, python: str, log: IO[str]) -> None:
        command = [python, str(HERE / "peer.py"), str(adapter), str(model), str(threads)]
        self.log = log
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(**dict.fromkeys(POOLS, str(threads))),
            text=True,
            start_new_session=True,
        )
        before_others(self.process.pid)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, command: str, seconds: float) -> Answer:
        """The answer to a command.

        Errors: PeerError.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self._signal(signal.SIGKILL)
            raise PeerError(f"no answer to {command.split()[0]!r} within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"died with exit code {self.process.wait()}: {self._last_words()}")
        self._signal(signal.SIGSTOP)
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise PeerError(" ".join(str(answer["error"]).split()))
        return answer

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _last_words(self) -> str:
        self.log.seek(0)
        return "; ".join(self.log.read().splitlines()[-3:])


# -------------------------------------------------------------------------------- measuring


def measure(model: Path, threads: int, options: argparse.Namespace) -> Answer:
    """Everything about one model with so many threads.

    Errors: PeerError naming the runtime.
    """
    with ExitStack() as stack:
        peers: dict[str, Process] = {}
        facts: dict[str, Answer] = {}
        outputs: dict[str, Path] = {}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, adapter in ADAPTERS.items():
            log = stack.enter_context((folder / f"{name}.log").open("w+"))
            process = Process(adapter, model, threads, options.python, log)
            peers[name] = stack.enter_context(process)
            outputs[name] = folder / f"{len(outputs)}.npz"
            with naming(name):
                facts[name] = peers[name].ask("prepare", options.limit)
                peers[name].ask(f"outputs {outputs[name]}", options.limit)
        error, what = difference(outputs[OURS], outputs[OTHER])
        times: dict[str, list[Answer]] = {name: [] for name in peers}
        names = list(peers)
        for k in range(options.rounds):
            for name in names[k % len(names) :] + names[: k % len(names)]:
                with naming(name):
                    command = f"time {options.seconds} {options.calls}"
                    times[name].append(peers[name].ask(command, options.limit))
    medians = {name: [t["median"] for t in rounds] for name, rounds in times.items()}
    return {
        "threads": threads,
        "error": error,
        "what": what,
        "peers": {n: {**facts[n], "rounds": times[n]} for n in names},
        "speed": spread(ratios(medians[OTHER], medians[OURS])),
        "noise": spread(ratios(medians[OTHER], medians[AGAIN])),
    }


class naming:
    """Say in errors which runtime it was."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PeerError):
            raise PeerError(f"{self.name}: {error}") from None


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def difference(ours: Path, other: Path) -> tuple[float, str]:
    """The largest error, as a share of an output's largest value; and what else is wrong."""
    worst = 0.0
    with np.load(ours) as a, np.load(other) as b:
        if len(a.files) != len(b.files):
            return float("inf"), f"{len(a.files)} outputs, not {len(b.files)}"
        for name in b.files:
            x, y = a[name], b[name]
            if x.shape != y.shape or x.dtype != y.dtype:
                return float("inf"), f"{x.dtype}{list(x.shape)}, not {y.dtype}{list(y.shape)}"
            if not y.size:
                continue
            if y.dtype.kind not in "fc":
                worst = max(worst, float((x != y).mean()))
                continue
            finite = np.isfinite(y)
            same = np.array_equal(np.isfinite(x), finite)
            if not (same and np.array_equal(x[~finite], y[~finite], equal_nan=True)):
                return float("inf"), "NaN or infinite in other places"
            off = np.abs(x[finite].astype(np.float64) - y[finite])
            scale = float(np.abs(y[finite]).max(initial=0)) or 1.0
            worst = max(worst, float(off.max(initial=0)) / scale)
    return worst, ""


# -------------------------------------------------------------------------------- reporting


def report(results: Mapping[str, Answer]) -> str:
    """The results as markdown: a row for each model, and their geometric means."""
    order = sorted(results.items(), key=lambda item: (item[1]["threads"], item[0]))
    good = [(name.rpartition("/")[0], r) for name, r in order if "speed" in r]
    if not good:
        return "Nothing could be measured."
    versions = " and ".join(
        f"{name} {good[-1][1]['peers'][name]['version']}" for name in (OURS, OTHER)
    )
    lines = [f"{versions} on {good[-1][1]['machine']}."]
    for threads in dict.fromkeys(r["threads"] for _, r in good):
        some = [(name, r) for name, r in good if r["threads"] == threads]
        rows = [_row(name, r) for name, r in some]
        speed, low, noise = (
            geometric_mean(r[part][end] for _, r in some)
            for part, end in (("speed", "median"), ("speed", "low"), ("noise", "median"))
        )
        mean = f"**geometric mean of {len(some)}**"
        rows.append([mean, "", "", f"**{speed:.2f}**", f"{low:.2f}", f"{noise:.2f}", "", ""])
        head = ["model", "planish, ms", "ONNX Runtime, ms", "speed", "at least", "noise", "error"]
        head.append("compile, s")
        lines += ["", f"{threads} thread{'s' * (threads > 1)}:", "", table(head, rows)]
    lines += ["", LEGEND]
    for name, r in order:
        if "failed" in r:
            model, _, threads = name.rpartition("/")
            lines += ["", f"Failed: {model}, threads {threads}: {r['failed'][:300]}"]
    return "\n".join(lines)


def _row(name: str, r: Answer) -> list[str]:
    ms = [1e3 * min(t["median"] for t in r["peers"][peer]["rounds"]) for peer in (OURS, OTHER)]
    noise = r["noise"]
    return [
        name,
        *map(brief, ms),
        f"{r['speed']['median']:.2f}",
        f"{r['speed']['low']:.2f}",
        f"{noise['low']:.2f} to {noise['high']:.2f}",
        r["what"] or f"{r['error']:.0e}",
        f"{r['peers'][OURS]['compile_seconds']:.1f}",
    ]


def found(paths: Iterable[Path]) -> list[Path]:
    """The models among some files and folders: those with inputs beside them.

    Errors: SystemExit if there are none.
    """
    out = []
    for path in paths:
        files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        ready = [f for f in files if f.with_suffix(".npz").exists()]
        if not path.is_dir() and not ready:
            raise SystemExit(f"{path} needs its inputs beside it, in {path.with_suffix('.npz')}")
        out += ready
    if not out:
        raise SystemExit("there is no NAME.onnx with its inputs in NAME.npz")
    return out


def main() -> int:
    """Measure all, print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="files or folders")
    parser.add_argument("--threads", default="1,2", help="numbers by commas (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=9, help="at least 7 (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a slice (default: 0.4)")
    parser.add_argument("--calls", type=int, default=5, help="of a slice, at least (default: 5)")
    parser.add_argument("--limit", type=float, default=300, help="seconds that an answer may take")
    parser.add_argument("--python", default=sys.executable, help="what runs the runtimes")
    parser.add_argument("--json", type=Path, default=RESULTS / "models.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the table into the README")
    options = parser.parse_args()
    if options.rounds < 7:
        parser.error("--rounds must be at least 7")
    counts = [int(n) for n in options.threads.split(",")]
    results: dict[str, Answer] = {}
    for model in found(options.models):
        for threads in counts:
            try:
                answer = measure(model, threads, options)
                speed = answer["speed"]
                said = f"{speed['median']:.2f} (at least {speed['low']:.2f})"
            except PeerError as error:
                answer, said = {"threads": threads, "failed": str(error)}, str(error)[:150]
            print(f"{model.stem:24} {threads} threads: {said}", flush=True)
            one = {f"{model.stem}/{threads}": {**answer, "machine": machine()}}
            results |= one
            merged = merge(options.json, one)
    publish("models", report(merged), options.update)
    return int(any("failed" in r for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
