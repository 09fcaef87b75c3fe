"""What a parallel loop costs: hot, after a pause, and for two callers at once.

``python benchmarks/pool.py [--samples 1000] [--threads 2] [--spin-us 20]`` prints a table for each.
Loops are timed in machine code, so the call from Python is not part of a time.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from planish.runtime.pool import Pool
from planish.targets.llvm.pool import pool_ir

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

    def address(self, name: str) -> int:
        return int(self.engine.get_function_address(name))

    def nanoseconds(
        self, samples: int, *, threads: int, chunks: int, chunk_us: float = 0
    ) -> np.ndarray:
        """Times of so many loops, one right after the other."""
        times = np.zeros(samples, np.int64)
        ctx = np.zeros(8 * (chunks + 1), np.int64)
        ctx[0] = int(chunk_us * self.steps_per_us()) if chunk_us else 0
        fn = self.address("work" if chunk_us else "nothing")
        self.sample(
            self.pool.address, fn, ctx.ctypes.data, chunks, threads, samples, times.ctypes.data
        )
        return times

    _steps_per_us: float = 0

    def steps_per_us(self) -> float:
        if not self._steps_per_us:
            times, ctx = np.zeros(50, np.int64), np.zeros(16, np.int64)
            ctx[0] = 100_000
            work, data = self.address("work"), ctx.ctypes.data
            self.sample(self.pool.address, work, data, 1, 1, 50, times.ctypes.data)
            self._steps_per_us = 100_000 / (times.min() / 1000)
        return self._steps_per_us


def row(name: str, times: np.ndarray) -> None:
    low, middle, high = (np.percentile(times, q) / 1000 for q in (0, 50, 99))
    print(f"{name:<34}{low:>10.2f}{middle:>10.2f}{high:>10.2f}{times.max() / 1000:>10.2f}")


def title(name: str) -> None:
    print(f"\n{name + ' (us)':<34}{'best':>10}{'p50':>10}{'p99':>10}{'worst':>10}")


def hot(loops: Loops, samples: int) -> None:
    title("empty loop, hot")
    loops.nanoseconds(samples, threads=loops.threads, chunks=2)
    clock = loops.nanoseconds(100 * samples, threads=1, chunks=0)
    row("nothing but the clock", clock)
    row("2 chunks, 1 thread", loops.nanoseconds(100 * samples, threads=1, chunks=2))
    for chunks in (2, 8, 64):
        times = loops.nanoseconds(100 * samples, threads=loops.threads, chunks=chunks)
        row(f"{chunks} chunks, {loops.threads} threads", times)
    title("loop of 2 chunks of 2 us, hot")
    for threads in (1, loops.threads):
        times = loops.nanoseconds(10 * samples, threads=threads, chunks=2, chunk_us=2)
        row(f"{threads} threads", times)


def idle(loops: Loops, samples: int, pauses_ms: list[float], total_us: float) -> None:
    chunks = 4 * loops.threads
    loop = {"chunks": chunks, "chunk_us": total_us / chunks}
    counts = {"serial": 1, f"{loops.threads} threads": loops.threads}
    title(f"loop of {chunks} chunks, {total_us:g} us in all")
    for name, threads in counts.items():
        row(f"{name}, hot", loops.nanoseconds(samples, threads=threads, **loop))
    for pause in pauses_ms:
        times = {name: np.zeros(samples, np.int64) for name in counts}
        for i in range(samples):
            for name, threads in counts.items():
                time.sleep(pause / 1000)
                times[name][i] = loops.nanoseconds(1, threads=threads, **loop)[0]
        for name in counts:
            row(f"{name}, after {pause:g} ms", times[name])


def callers(loops: Loops, samples: int, count: int = 2) -> None:
    title("loop of 8 chunks of 25 us")
    each = 5 * samples
    for threads in (1, loops.threads):
        for together in range(1, count + 1):
            times: list[np.ndarray] = []

            def call(threads: int = threads, times: list[np.ndarray] = times) -> None:
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--spin-us", type=float, default=20)
    parser.add_argument("--total-us", type=float, default=200)
    parser.add_argument("--pauses-ms", type=float, nargs="*", default=[0.1, 1, 10, 100])
    options = parser.parse_args()
    loops = Loops(options.threads, options.spin_us)
    hot(loops, options.samples)
    callers(loops, options.samples)
    idle(loops, options.samples, options.pauses_ms, options.total_us)
    print(f"\n{loops.pool.stats()}")


if __name__ == "__main__":
    main()
