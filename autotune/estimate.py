"""How long a scheduled function would take, by a formula: where the cost model's learning begins.

A block takes as long as the slowest of what it waits for: its arithmetic, the results that a sum
has to wait for, its loads and stores, and the data from each cache and from memory. What data it
brings how far follows from its loops. The numbers are cycles of a core; they were fitted, all
together, to the order of some ten thousand measured candidates, and stand for more than they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from planish.compiler.machine import Machine

from .nests import Nest

PER_CYCLE: Final = 2.0  # vector operations, a product and its sum being one
LATENCY: Final = 8.0  # of an operation whose result the next one waits for
LOAD: Final = 1.0  # of a vector
BROADCAST: Final = 3.0  # of one element
STORE: Final = 2.0
ITERATION: Final = 2.0  # of the loop around the repeated code
START: Final = 3000.0  # of a parallel loop, for each thread
# Bytes in a cycle, from what is behind each cache; memory's are those of all threads, at most so
# many of which it serves at full speed.
BANDWIDTH: Final = (32.0, 10.0, 2.5)
SERVED: Final = 8.0


@dataclass(frozen=True)
class Time:
    """Cycles of a block, divided among its threads, by what they are needed for."""

    arithmetic: float
    latency: float
    loading: float  # and storing
    code: float
    caches: tuple[float, ...]  # data from behind each cache
    serial: bool

    @property
    def all(self) -> float:
        return max(self.arithmetic, self.latency, self.loading, *self.caches) + self.code


def traffic(x: Nest, machine: Machine) -> list[tuple[int, float, float]]:
    """For each cache: how many loops inside out fit it, what they touch, and how often they run."""
    touched = [x.touched_by(k) for k in range(len(x.trips) + 1)]  # by the loops from the k-th on
    out = []
    for size in (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes):
        first = next((k for k, t in enumerate(touched) if t <= size), len(touched) - 1)
        out.append((len(x.trips) - first, touched[first], float(prod(x.trips[:first]))))
    return out


def time_of(
    x: Nest, machine: Machine, threads: int, brought: Sequence[tuple[int, float, float]]
) -> Time:
    """The estimate for a block; ``brought`` is its traffic."""
    share = max(1.0, x.chunks / -(-x.chunks // threads)) if x.chunks else 1.0
    width = max(1.0, x.lanes * x.bits / 8 / machine.vector_bytes)  # registers of a vector
    vectors = x.points / x.lanes * width
    sums = x.block.combiner is not None
    code = max(1.0, x.repeated(""))
    runs = x.points / code
    chains = max(1.0, x.repeated("spatial") / x.lanes * width)
    loads, single = x.loads_in_code()
    loading = (loads - single) * width * LOAD + single * BROADCAST + x.strided() * code
    amounts = [size * times for _, size, times in brought]
    shares = share, share, min(share, SERVED)
    return Time(
        vectors * max(1.0, x.cost / 2 if sums else x.cost) / PER_CYCLE / share,
        vectors * LATENCY / chains / share if sums and "reduce" in x.kinds else 0.0,
        (runs * loading + (0.0 if sums else vectors * STORE)) / share,
        runs * ITERATION / share,
        tuple(a / b / s for a, b, s in zip(amounts, BANDWIDTH, shares, strict=True)),
        not x.chunks,
    )


def starts(every: Sequence[Nest]) -> float:
    """How often parallel loops are started."""
    counts: dict[int, float] = {}
    for x in every:
        for k, loop in enumerate(x.loops):
            if loop.kind == "parallel":
                counts[id(loop)] = float(prod(x.trips[:k]))
                break
    return sum(counts.values())


def least_time(every: Sequence[Nest], machine: Machine, threads: int) -> float:
    """Cycles for nothing but the operations of an unscheduled function, in full vectors."""
    return max(
        1.0,
        sum(x.needed * max(1.0, x.cost / 2 if x.block.combiner is not None else x.cost)
            * x.bits / 8 for x in every) / machine.vector_bytes / PER_CYCLE / threads,
    )  # fmt: skip
