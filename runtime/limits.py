"""What this machine can do at most: measured, by as many threads as a call may use.

Rates are the best of several rounds: arithmetic of independent multiply-adds on vectors, reading an
array that fits in no cache, and copying one with streaming stores.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Final

import numpy as np

from planish.compiler.machine import Machine
from planish.targets.llvm.native import NativeCode, load_object, object_code
from planish.targets.llvm.pool import pool_ir
from planish.targets.llvm.symbols import WORKER
from planish.targets.llvm.target import host

from .memory import aligned_empty
from .pool import pool

_ARRAY_BYTES: Final = 96 << 20
_FMA_ROUNDS: Final = 1 << 20  # loop iterations of a chunk: some milliseconds
_CHUNKS: Final = 8  # of each thread, so that one that is moved aside delays nothing
_CALL: Final = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Limits:
    """Rates per second with so many threads; of float32 arithmetic, multiply-add counting two.

    ``apart`` is by how much measurements of one rate differ: 0.1 is a tenth. On a busy machine it
    is large, and the rates may be too low.
    """

    threads: int
    flops: float
    read_bytes: float
    copy_bytes: float
    apart: float = 0.0

    def seconds(self, flops: float, moved_bytes: float) -> float:
        """The least time for so much work on data that fits in no cache."""
        return max(flops / self.flops, moved_bytes / self.copy_bytes)


def best_of(a: Limits, b: Limits) -> Limits:
    """The higher rates of two measurements."""
    pairs = ((a.flops, b.flops), (a.read_bytes, b.read_bytes), (a.copy_bytes, b.copy_bytes))
    between = max(max(pair) / min(pair) - 1 for pair in pairs)
    flops, read, copy = map(max, pairs)
    return Limits(a.threads, flops, read, copy, max(a.apart, b.apart, between))


def measure_limits(threads: int, rounds: int = 5) -> Limits:
    """The limits with so many threads; takes less than a second."""
    return _measured(max(1, min(threads, pool().maximum)), rounds)


def _measured(threads: int, rounds: int) -> Limits:
    code, machine = _code(), host().machine
    chunks = threads * _CHUNKS
    block = _ARRAY_BYTES // chunks // 4096 * 4096
    source, target = aligned_empty(block * chunks), aligned_empty(block * chunks)
    source[:], target[:] = 1, 0
    context = np.array([source.ctypes.data, target.ctypes.data, block, 0], np.int64)
    taking = pool()
    taking.ensure(threads, code.address(WORKER), code)

    def run(name: str) -> Callable[[], None]:
        function = _CALL(code.address(name))
        return lambda: function(taking.address, context.ctypes.data, chunks, threads)

    lanes = machine.lanes(4)
    work = {
        "limit_fma": 2.0 * lanes * _accumulators(machine) * _FMA_ROUNDS / _CHUNKS * chunks,
        "limit_read": float(block * chunks),
        "limit_copy": 2.0 * block * chunks,
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds + 1):
        for name in work:
            times[name].append(_seconds(run(name)))
    flops, read, copy = (work[name] / min(times[name]) for name in work)
    # The first round wakes the machine up.
    apart = max(median(t[1:]) / min(t[1:]) - 1 for t in times.values())
    return Limits(threads, flops, read, copy, apart)


def _seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _accumulators(machine: Machine) -> int:
    return min(12, machine.vector_registers - 4)


@cache
def _code() -> NativeCode:
    target = host()
    names = ("limit_fma", "limit_read", "limit_copy")
    text = object_code([_limits_ir(target.machine), pool_ir(target.triple)], target)
    return load_object(text, (*names, WORKER))


def _limits_ir(machine: Machine) -> str:
    parts = ["declare void @planish_parallel(ptr, ptr, ptr, i64, i64)", "!0 = !{i32 1}"]
    for name in ("fma", "read", "copy"):
        parts.append(
            f"define void @limit_{name}(ptr %pool, ptr %ctx, i64 %chunks, i64 %threads) {{\n"
            f"  call void @planish_parallel(ptr %pool, ptr @{name}, ptr %ctx, i64 %chunks,"
            " i64 %threads)\n  ret void\n}"
        )
    return "\n".join([*parts, _fma_ir(machine), _read_ir(machine), _copy_ir(machine)])


def _fma_ir(machine: Machine) -> str:
    vector = f"<{machine.lanes(4)} x float>"
    count = _accumulators(machine)
    suffix = f"v{machine.lanes(4)}f32"
    phis, steps = [], []
    for k in range(count):
        phis.append(f"  %a{k} = phi {vector} [ %x, %entry ], [ %b{k}, %loop ]")
        if machine.fma:
            steps.append(
                f"  %b{k} = call {vector} @llvm.fma.{suffix}"
                f"({vector} %a{k}, {vector} %x, {vector} %x)"
            )
        else:
            steps.append(f"  %m{k} = fmul {vector} %a{k}, %x\n  %b{k} = fadd {vector} %m{k}, %x")
    sums = "\n".join(f"  %s{k} = fadd {vector} %s{k - 1}, %b{k}" for k in range(1, count))
    return f"""
declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})

define void @fma(ptr %ctx, i64 %chunk) noinline {{
entry:
  %at = getelementptr i64, ptr %ctx, i64 3
  %zero = load i64, ptr %at
  %f = sitofp i64 %zero to float
  %half = fadd float %f, 0.5
  %v = insertelement {vector} poison, float %half, i32 0
  %x = shufflevector {vector} %v, {vector} poison, <{machine.lanes(4)} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{chr(10).join(phis)}
{chr(10).join(steps)}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {_FMA_ROUNDS // _CHUNKS}
  br i1 %more, label %loop, label %done
done:
  %s0 = fadd {vector} %b0, %x
{sums}
  %sink = alloca {vector}
  store volatile {vector} %s{count - 1}, ptr %sink
  ret void
}}
"""


_STREAM_HEAD: Final = """
entry:
  %from.at = getelementptr i64, ptr %ctx, i64 0
  %to.at = getelementptr i64, ptr %ctx, i64 1
  %block.at = getelementptr i64, ptr %ctx, i64 2
  %from = load ptr, ptr %from.at
  %to = load ptr, ptr %to.at
  %block = load i64, ptr %block.at
  %first = mul i64 %chunk, %block
  %end = add i64 %first, %block
  br label %loop
"""
_UNROLL: Final = 8


def _read_ir(machine: Machine) -> str:
    vector = f"<{machine.vector_bytes // 8} x i64>"
    lines, phis = [], []
    for k in range(_UNROLL):
        phis.append(f"  %a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")
        lines.append(
            f"  %o{k} = add i64 %i, {k * machine.vector_bytes}\n"
            f"  %p{k} = getelementptr i8, ptr %from, i64 %o{k}\n"
            f"  %v{k} = load {vector}, ptr %p{k}, align 16\n"
            f"  %b{k} = xor {vector} %a{k}, %v{k}"
        )
    sums = "\n".join(f"  %s{k} = xor {vector} %s{k - 1}, %b{k}" for k in range(1, _UNROLL))
    sums = sums.replace("%s0,", "%b0,")
    return f"""
define void @read(ptr %ctx, i64 %chunk) noinline {{{_STREAM_HEAD}
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
{chr(10).join(phis)}
{chr(10).join(lines)}
  %next = add i64 %i, {_UNROLL * machine.vector_bytes}
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
{sums}
  %sink = alloca {vector}
  store volatile {vector} %s{_UNROLL - 1}, ptr %sink
  ret void
}}
"""


def _copy_ir(machine: Machine) -> str:
    vector = f"<{machine.vector_bytes // 4} x float>"
    lines = [
        f"  %o{k} = add i64 %i, {k * machine.vector_bytes}\n"
        f"  %p{k} = getelementptr i8, ptr %from, i64 %o{k}\n"
        f"  %q{k} = getelementptr i8, ptr %to, i64 %o{k}\n"
        f"  %v{k} = load {vector}, ptr %p{k}, align 16\n"
        f"  store {vector} %v{k}, ptr %q{k}, align {machine.vector_bytes}, !nontemporal !0"
        for k in range(_UNROLL)
    ]
    return f"""
define void @copy(ptr %ctx, i64 %chunk) noinline {{{_STREAM_HEAD}
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
{chr(10).join(lines)}
  %next = add i64 %i, {_UNROLL * machine.vector_bytes}
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
