"""Features of a scheduled function: what the cost model sees of a candidate.

They are worked out from the loops as the schedule leaves them, without lowering them any further.
Most are about the block that does the most work, in its loops from the inside out: how much data an
inner part of the nest touches tells what it brings from each cache, if what it touches fits there.
``NAMES`` says what each is. Amounts are logarithms to base 2 (of one more than the amount), so that
a factor counts the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2, prod
from typing import Any, Final

import numpy as np

from planish.compiler.loop.ir import Function, blocks
from planish.compiler.machine import Machine

from .estimate import START, Time, least_time, starts, time_of, traffic
from .nests import Nest, bytes_of, nests_of

Array = np.ndarray[Any, Any]

# Of the whole function.
_WHOLE: Final = {
    "threads": "threads that the function may use",
    "vector_bytes": "bytes of the machine's vectors",
    "registers": "vector registers of the machine",
    "l1": "bytes of the nearest cache",
    "l2": "bytes of a core's second cache",
    "l3": "bytes of the shared cache",
    "operations": "operations of all blocks, each point counted",
    "argument_bytes": "bytes of the parameters",
    "global_bytes": "bytes of temporaries that live in the arena",
    "local_bytes": "bytes of temporaries of a chunk",
    "blocks": "how many blocks there are",
    "other_points": "points of blocks besides the main one",
    "other_vector": "the part of those that is vectorised",
    "other_parallel": "the part of those in parallel loops",
    "other_bytes": "bytes that those read and write",
    "nontemporal": "whether a block writes past the caches",
}
# Of the block with the most work.
_MAIN: Final = {
    "points": "points that are computed, those beyond the edges included",
    "waste": "those points over the points that are needed",
    "intensity": "operations of a point over the bytes that it reads and writes",
    "lanes": "lanes of its vector loop",
    "vector_fill": "bytes of a vector over those that the machine has",
    "unrolled": "points of the loops that are repeated in code",
    "sums": "vectors of results among those: the chains that do not wait for each other",
    "sums_share": "those over the machine's registers",
    "steps": "steps of the reduction among those",
    "loads": "vectors and single elements read by those points, each counted once",
    "loads_share": "those over the points",
    "broadcasts": "single elements among those",
    "strided": "reads or writes along the vector loop that are not neighbours",
    "inner_trips": "iterations of the loop around the repeated code",
    "outer_trips": "iterations of all loops around that",
    "loops": "loops around that",
    "parallel_trips": "chunks that may run in parallel (0: it is serial)",
    "balance": "the time of the most loaded thread over the mean, for chunks of equal time",
    "chunk_points": "points of a chunk",
    "touched": "bytes that all iterations touch",
}
# For each cache: how the block's nest uses it.
_CACHE: Final = {
    "fits": "how many loops inside out touch no more than that cache holds",
    "fitting_bytes": "bytes that those touch",
    "traffic": "bytes brought into that cache altogether: what those touch, each time they run",
    "traffic_share": "those bytes for each operation",
}
CACHES: Final = ("l1", "l2", "l3")
# What ``estimate`` says, over the least time that the task's operations can take.
_TIME: Final = {
    "time": "the estimated time of all blocks",
    "main_time": "that of the main block",
    "serial_time": "that of blocks that run on one thread",
    "other_time": "that of blocks besides the main one",
    "starting": "the time that parallel loops take to start",
    "arithmetic": "the main block's operations",
    "latency": "its sums' waiting for each other",
    "loading": "its loads and stores",
    "code": "its loops",
    **{f"{c}_time": f"its data from behind {c}" for c in CACHES},
}
NAMES: Final = {
    **_WHOLE,
    **_MAIN,
    **{f"{c}_{name}": f"{c}: {text}" for c in CACHES for name, text in _CACHE.items()},
    **_TIME,
}
_MANY: Final = 1e18
_LITTLE: Final = 1e-3  # of the least time: what counts for nothing


def least_cycles(func: Function, machine: Machine, threads: int, sizes: Mapping[str, int]) -> float:
    """The least time that the operations of a task's function can take, in cycles."""
    return least_time(nests_of(func, sizes), machine, threads)


def features(
    func: Function, machine: Machine, threads: int, sizes: Mapping[str, int], least: float
) -> Array:
    """The features of a scheduled function, in the order of ``NAMES``; symbols have the sizes.

    ``least`` is the least time of the function before it was scheduled.
    """
    every = nests_of(func, sizes)
    out = dict.fromkeys(NAMES, 0.0)
    if not every:
        return np.array(list(out.values()), np.float32)
    main = max(every, key=lambda x: (x.points * x.cost, x.reads))
    brought = [traffic(x, machine) for x in every]
    k = every.index(main)
    out.update(_whole(func, machine, threads, sizes, every, main))
    out.update(_of_main(main, machine, threads, brought[k]))
    times = [time_of(x, machine, threads, b) for x, b in zip(every, brought, strict=True)]
    out.update(_times(times, times[k], START * threads * starts(every), least))
    return np.array(list(out.values()), np.float32)


def _log(amount: float) -> float:
    return log2(1 + min(max(amount, 0.0), _MANY))


def _whole(
    func: Function,
    machine: Machine,
    threads: int,
    sizes: Mapping[str, int],
    every: list[Nest],
    main: Nest,
) -> dict[str, float]:
    rest = [x for x in every if x is not main]
    points = sum(x.points for x in rest)

    def size(scope: str) -> float:
        return float(sum(bytes_of(t, sizes) for t in func.temps if t.scope == scope))

    return {
        "threads": threads,
        "vector_bytes": _log(machine.vector_bytes),
        "registers": machine.vector_registers,
        "l1": _log(machine.l1_bytes),
        "l2": _log(machine.l2_bytes),
        "l3": _log(machine.l3_bytes),
        "operations": _log(sum(x.points * x.cost for x in every)),
        "argument_bytes": _log(sum(bytes_of(p, sizes) for p in func.params)),
        "global_bytes": _log(size("global")),
        "local_bytes": _log(size("local")),
        "blocks": len(every),
        "other_points": _log(points),
        "other_vector": sum(x.points for x in rest if x.lanes > 1) / max(1.0, points),
        "other_parallel": sum(x.points for x in rest if x.chunks) / max(1.0, points),
        "other_bytes": _log(sum(x.touched_by(0) for x in rest)),
        "nontemporal": float(any(b.nontemporal for b in blocks(func.body))),
    }


def _of_main(
    x: Nest, machine: Machine, threads: int, brought: Sequence[tuple[int, float, float]]
) -> dict[str, float]:
    bits = x.bits
    operations = max(1.0, x.points * x.cost)
    code = x.in_code
    sums = x.repeated("spatial") / max(1, x.lanes)
    loads, single = x.loads_in_code()
    trips = x.trips[: len(x.trips) - code]
    out = {
        "points": _log(x.points),
        "waste": x.points / max(1.0, x.needed),
        "intensity": x.cost / x.point_bytes,
        "lanes": x.lanes,
        "vector_fill": x.lanes * bits / 8 / machine.vector_bytes,
        "unrolled": _log(x.repeated("")),
        "sums": sums,
        "sums_share": sums
        * max(1.0, x.lanes * bits / 8 / machine.vector_bytes)
        / machine.vector_registers,
        "steps": x.repeated("reduce"),
        "loads": loads,
        "loads_share": loads * x.lanes / max(1.0, x.repeated("")),
        "broadcasts": single,
        "strided": x.strided(),
        "inner_trips": _log(trips[-1] if trips else 1),
        "outer_trips": _log(prod(trips[:-1])),
        "loops": len(trips),
        "parallel_trips": _log(x.chunks),
        "balance": _balance(x.chunks, threads),
        "chunk_points": _log(x.points / max(1.0, x.chunks)),
        "touched": _log(x.touched_by(0)),
    }
    for cache, (loops, size, runs) in zip(CACHES, brought, strict=True):
        out[f"{cache}_fits"] = loops
        out[f"{cache}_fitting_bytes"] = _log(size)
        out[f"{cache}_traffic"] = _log(size * runs)
        out[f"{cache}_traffic_share"] = size * runs / operations
    return out


def _times(times: Sequence[Time], main: Time, starting: float, least: float) -> dict[str, float]:
    amounts = {
        "time": sum(t.all for t in times) + starting,
        "main_time": main.all,
        "serial_time": sum(t.all for t in times if t.serial),
        "other_time": sum(t.all for t in times if t is not main),
        "starting": starting,
        "arithmetic": main.arithmetic,
        "latency": main.latency,
        "loading": main.loading,
        "code": main.code,
        **{f"{c}_time": t for c, t in zip(CACHES, main.caches, strict=True)},
    }
    return {name: log2(max(t / least, _LITTLE)) for name, t in amounts.items()}


def _balance(chunks: float, threads: int) -> float:
    if not chunks:
        return float(threads)
    return float(-(-chunks // threads) * threads / chunks)
