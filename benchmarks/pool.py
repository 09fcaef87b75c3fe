"""What a parallel loop costs: hot, after a pause, and for two callers at once.

``python benchmarks/pool.py`` prints a table for each; ``--help`` lists the options. Loops are timed
in machine code: the call from Python is no part of a time. On a machine that others use too,
``--quiet`` keeps only samples of moments in which nobody else ran (Linux).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from planish.runtime.pool import Pool
from planish.targets.llvm.pool import pool_ir

Times: TypeAlias = npt.NDArray[np.int64]

KERNELS = """
define void @nothing(ptr %ctx, i64 %chunk) {
  ret void
}

; ctx: how many have come; each waits for one other
define void @meet(ptr %ctx, i64 %chunk) {
entry:
  %before = atomicrmw add ptr %ctx, i64 1 acq_rel
  %odd = or i64 %before, 1
  br label %wait
wait:
  %come = load atomic i64, ptr %ctx acquire, align 8
  %enough = icmp sgt i64 %come, %odd
  br i1 %enough, label %done, label %wait
done:
  ret void
}

; ctx: steps, then 64 bytes for each chunk
define void @work(ptr %ctx, i64 %chunk) {
entry:
  %steps = load i64, ptr %ctx
  %line = add i64 %chunk, 1
  %at = mul i64 %line, 64
  %p = getelementptr i8, ptr %ctx, i64 %at
  %first = load double, ptr %p
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %x = phi double [ %first, %entry ], [ %x.next, %step ]
  %scaled = fmul double %x, 0.5
  %x.next = fadd double %scaled, 1.0
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %steps
  br i1 %more, label %step, label %done
done:
  store double %x.next, ptr %p
  ret void
}

; The time of each of so many loops, in nanoseconds.
define void @sample(
    ptr %pool, ptr %fn, ptr %ctx, i64 %chunks, i64 %threads, i64 %samples, ptr %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %start = call i64 @planish_pool_clock(ptr %pool)
  call void @planish_parallel(ptr %pool, ptr %fn, ptr %ctx, i64 %chunks, i64 %threads)
  %end = call i64 @planish_pool_clock(ptr %pool)
  %time = sub i64 %end, %start
  %p = getelementptr i64, ptr %times, i64 %i
  store i64 %time, ptr %p
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %samples
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


class Loops:
    """Compiled loops on a pool of their own."""

    def __init__(self, threads: int, spin_us: float) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        machine = llvm.Target.from_triple(triple).create_target_machine()
        module = llvm.parse_assembly(pool_ir(triple) + KERNELS)
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self.sample = ctypes.CFUNCTYPE(
            None, pointer, pointer, pointer, integer, integer, integer, pointer
        )(self.address("sample"))
        self.threads = threads
        self.pool = Pool(threads)
        self.pool.block.idle_spin_ns = self.pool.block.wait_spin_ns = int(spin_us * 1000)
        self.pool.ensure(threads, self.address("planish_pool_worker"), self.engine)
        while self.pool.stats().workers < threads - 1:
            time.sleep(1e-4)
        self.steps_per_us = 1.0
        self.steps_per_us = 1e8 / self.nanoseconds(50, threads=1, chunks=1, chunk_us=1e5).min()

    def address(self, name: str) -> int:
        return int(self.engine.get_function_address(name))

    def nanoseconds(
        self, samples: int, *, threads: int, chunks: int, chunk_us: float = 0, fn: str = ""
    ) -> Times:
        """Times of so many loops, one right after the other."""
        times = np.zeros(samples, np.int64)
        ctx = np.zeros(8 * (chunks + 1), np.int64)
        ctx[0] = int(chunk_us * self.steps_per_us)
        kernel = self.address(fn or ("work" if chunk_us else "nothing"))
        self.sample(
            self.pool.address, kernel, ctx.ctypes.data, chunks, threads, samples, times.ctypes.data
        )
        return times


def others_us() -> float:
    """How much processor time all other processes have used so far."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    own = os.times()
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return (busy - own.user - own.system) * 1e6


def measured(sample: Callable[[], Times], samples: int, quiet: bool) -> Times:
    """So many samples or more; if ``quiet``, of spells in which others hardly ran."""
    kept: list[Times] = []
    while sum(map(len, kept)) < samples:
        spell = []
        began, before = time.perf_counter(), others_us() if quiet else 0
        while time.perf_counter() - began < 0.15:
            spell.append(sample())
        if not quiet or others_us() - before < 0.1e6 * (time.perf_counter() - began):
            kept += spell
    return np.concatenate(kept)


def row(name: str, times: Times) -> None:
    """Print the distribution of times."""
    low, middle, high = (np.percentile(times, q) / 1000 for q in (0, 50, 99))
    print(f"{name:<34}{low:>10.2f}{middle:>10.2f}{high:>10.2f}{times.max() / 1000:>10.2f}")


def title(name: str) -> None:
    """Print the head of a table."""
    print(f"\n{name + ' (us)':<34}{'best':>10}{'p50':>10}{'p99':>10}{'worst':>10}", flush=True)


def hot(loops: Loops, samples: int, quiet: bool) -> None:
    """Loops one right after the other."""
    threads = loops.threads

    def show(name: str, threads: int, chunks: int, chunk_us: float = 0, fn: str = "") -> None:
        def sample() -> Times:
            return loops.nanoseconds(1000, threads=threads, chunks=chunks, chunk_us=chunk_us, fn=fn)

        row(name, measured(sample, samples, quiet))

    title("empty loop, hot")
    show("the clock alone", 1, 0)
    show("2 chunks, 1 thread", 1, 2)
    for chunks in (2, 8, 64):
        show(f"{chunks} chunks, {threads} threads", threads, chunks)
    show("2 chunks that await each other", 2, 2, fn="meet")
    title("loop of 2 chunks, hot")
    for chunk_us in (0.5, 2, 10):
        show(f"{chunk_us:g} us each, 1 thread", 1, 2, chunk_us)
        show(f"{chunk_us:g} us each, {threads} threads", threads, 2, chunk_us)


def idle(loops: Loops, samples: int, quiet: bool, pauses_ms: list[float], total_us: float) -> None:
    """Loops after a pause of all threads; serial and parallel ones in turn."""
    chunks = 4 * loops.threads
    chunk_us = total_us / chunks

    def loop(threads: int, count: int = 1) -> Times:
        return loops.nanoseconds(count, threads=threads, chunks=chunks, chunk_us=chunk_us)

    title(f"loop of {chunks} chunks, {total_us:g} us")
    for threads in (1, loops.threads):
        times = measured(partial(loop, threads, 100), samples, quiet)
        row(f"{threads} threads, hot", times)
    for pause in pauses_ms:

        def both(pause: float = pause) -> Times:
            out = []
            for threads in (1, loops.threads):
                time.sleep(pause / 1000)
                out.append(loop(threads))
            return np.array(out).T

        times = measured(both, samples, quiet)
        row(f"1 thread, after {pause:g} ms", times[:, 0])
        row(f"{loops.threads} threads, after {pause:g} ms", times[:, 1])


def callers(loops: Loops, samples: int, count: int = 2) -> None:
    """Several Python threads that call at once."""
    title("loop of 8 chunks of 25 us")
    each = 5 * samples
    for threads in (1, loops.threads):
        for together in range(1, count + 1):
            times: list[Times] = []

            def call(threads: int = threads, times: list[Times] = times) -> None:
                times.append(loops.nanoseconds(each, threads=threads, chunks=8, chunk_us=25))

            running = [threading.Thread(target=call) for _ in range(together)]
            began = time.perf_counter()
            for caller in running:
                caller.start()
            for caller in running:
                caller.join()
            rate = together * each / (time.perf_counter() - began)
            row(f"{together} callers x {threads}: {rate:.0f}/s", np.concatenate(times))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--spin-us", type=float, default=50)
    parser.add_argument("--work-us", type=float, default=200, help="of the loops after a pause")
    parser.add_argument("--pauses-ms", type=float, nargs="*", default=[0.1, 1, 10, 100])
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    loops = Loops(options.threads, options.spin_us)
    hot(loops, 10 * options.samples, options.quiet)
    callers(loops, options.samples)
    idle(loops, options.samples, options.quiet, options.pauses_ms, options.work_us)
    print(f"\n{loops.pool.stats()}")


if __name__ == "__main__":
    main()
