"""One runtime on one model, in a process of its own: started by ``networks.py``.

``python peer.py ADAPTER.py MODEL.onnx THREADS`` reads a command a line and answers each with a line
of JSON: ``prepare`` imports, compiles and calls once; ``outputs OUT.npz`` writes what a call gives;
``time SECONDS CALLS`` times single calls for so long, and at least so many of them. What the
runtime prints goes to standard error. With one thread the process is held on one core, once it
has compiled.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Answer = dict[str, Any]


class Peer:
    """The runtime, as its adapter offers it."""

    def __init__(self, adapter: Path, model: Path, threads: int) -> None:
        self.adapter, self.model, self.threads = adapter, model, threads
        self.call: Callable[[], list[Any]] = list

    def prepare(self) -> Answer:
        with np.load(self.model.with_suffix(".npz")) as file:
            inputs = [file[name] for name in file.files]
        start = time.perf_counter()
        spec = importlib.util.spec_from_file_location("adapter", self.adapter)
        assert spec is not None and spec.loader is not None
        runtime = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(runtime)
        imported = time.perf_counter()
        function = runtime.compile(str(self.model), self.threads)
        compiled = time.perf_counter()
        self.call = lambda: function(inputs)
        self.call()
        done = time.perf_counter()
        if self.threads == 1:
            hold_on_one_core()
        return {
            "version": runtime.version() if hasattr(runtime, "version") else "",
            "import_seconds": imported - start,
            "compile_seconds": compiled - imported,
            "first_call_seconds": done - compiled,
        }

    def outputs(self, path: str) -> Answer:
        arrays: dict[str, Any] = {f"o{k:03}": np.asarray(a) for k, a in enumerate(self.call())}
        np.savez(path, **arrays)
        return {}

    def time(self, seconds: str, calls: str) -> Answer:
        """The times of calls; a few slow ones may take four times as long in all."""
        limit, wanted = float(seconds), int(calls)
        self.call()
        gc.collect()
        gc.disable()
        times: list[float] = []
        busy, start = time.process_time(), time.perf_counter()
        while True:
            before = time.perf_counter()
            self.call()
            after = time.perf_counter()
            times.append(after - before)
            spent = after - start
            if (spent >= limit and len(times) >= wanted) or spent >= 4 * limit:
                break
        busy = time.process_time() - busy
        gc.enable()
        return {
            "median": median(times),
            "best": min(times),
            "calls": len(times),
            "cores_used": busy / spent,
        }


def hold_on_one_core() -> None:
    """Keep every thread of this process on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        return
    core = max(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})


def main() -> None:
    """Answer commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    commands: dict[str, Callable[..., Answer]]
    commands = {"prepare": peer.prepare, "outputs": peer.outputs, "time": peer.time}
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer = commands[name](*words)
        except Exception as error:  # noqa: BLE001 (whatever a runtime raises, the driver hears of it)
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
