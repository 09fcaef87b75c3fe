"""Features of a scheduled function: what the cost model sees of a candidate.

They are worked out from the loops as the schedule leaves them, without lowering them any further.
Most are about the block that does the most work, in its loops from the inside out: how much data an
inner part of the nest touches tells what it brings from each cache, if what it touches fits there.
``NAMES`` says what each is. Amounts are logarithms to base 2 (of one more than the amount), so that
a factor counts the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2, prod
from typing import Any, Final

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate, evaluate_array
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.loop.ir import Block, Function, Loop, blocks, nests, reads
from planish.compiler.machine import Machine
from planish.schedules.rules.analysis import operations

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
NAMES: Final = {
    **_WHOLE,
    **_MAIN,
    **{f"{c}_{name}": f"{c}: {text}" for c in CACHES for name, text in _CACHE.items()},
}
_MANY: Final = 1e18


def features(func: Function, machine: Machine, threads: int, sizes: Mapping[str, int]) -> Array:
    """The features of a scheduled function, in the order of ``NAMES``; symbols have the sizes."""
    every = [_Nest(func, loops, b, sizes) for loops, b in nests(func.body)]
    out = dict.fromkeys(NAMES, 0.0)
    if not every:
        return np.array(list(out.values()), np.float32)
    main = max(every, key=lambda x: (x.points * x.cost, x.reads))
    out.update(_whole(func, machine, threads, sizes, every, main))
    out.update(_of_main(main, machine, threads))
    return np.array(list(out.values()), np.float32)


def _log(amount: float) -> float:
    return log2(1 + min(max(amount, 0.0), _MANY))


def _whole(
    func: Function,
    machine: Machine,
    threads: int,
    sizes: Mapping[str, int],
    every: list[_Nest],
    main: _Nest,
) -> dict[str, float]:
    rest = [x for x in every if x is not main]
    points = sum(x.points for x in rest)

    def size(scope: str) -> float:
        return float(sum(_value(t.bytes, sizes) for t in func.temps if t.scope == scope))

    return {
        "threads": threads,
        "vector_bytes": _log(machine.vector_bytes),
        "registers": machine.vector_registers,
        "l1": _log(machine.l1_bytes),
        "l2": _log(machine.l2_bytes),
        "l3": _log(machine.l3_bytes),
        "operations": _log(sum(x.points * x.cost for x in every)),
        "argument_bytes": _log(sum(_value(p.bytes, sizes) for p in func.params)),
        "global_bytes": _log(size("global")),
        "local_bytes": _log(size("local")),
        "blocks": len(every),
        "other_points": _log(points),
        "other_vector": sum(x.points for x in rest if x.lanes > 1) / max(1.0, points),
        "other_parallel": sum(x.points for x in rest if x.chunks) / max(1.0, points),
        "other_bytes": _log(sum(x.touched_by(0) for x in rest)),
        "nontemporal": float(any(b.nontemporal for b in blocks(func.body))),
    }


def _of_main(x: _Nest, machine: Machine, threads: int) -> dict[str, float]:
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
        "sums_share": sums * max(1.0, x.lanes * bits / 8 / machine.vector_bytes)
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
    }  # fmt: skip
    touched = [x.touched_by(k) for k in range(len(x.trips) + 1)]  # by the loops from the k-th on
    for cache, size in zip(CACHES, (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes),
                           strict=True):  # fmt: skip
        first = next((k for k, t in enumerate(touched) if t <= size), len(touched) - 1)
        runs = prod(x.trips[:first])
        out[f"{cache}_fits"] = len(x.trips) - first
        out[f"{cache}_fitting_bytes"] = _log(touched[first])
        out[f"{cache}_traffic"] = _log(touched[first] * runs)
        out[f"{cache}_traffic_share"] = touched[first] * runs / operations
    return out


def _balance(chunks: float, threads: int) -> float:
    if not chunks:
        return float(threads)
    return float(-(-chunks // threads) * threads / chunks)


def _value(e: Expr, sizes: Mapping[str, int]) -> float:
    """An extent; it may be over variables of loops outside, which are then at 0."""
    return float(e.value) if isinstance(e, Const) else float(evaluate(e, sizes))


@dataclass(frozen=True)
class _Access:
    """An access of a block.

    ``boxes`` are the elements between the least and the largest indices that the loops from the
    k-th on reach; ``used``: whether a loop moves it. The innermost loop takes it from neighbour to
    neighbour, or leaves it ``fixed``, or neither.
    """

    bytes: int
    store: bool
    boxes: list[float]
    used: list[bool]
    neighbours: bool
    fixed: bool


class _Nest:
    """A block with the loops around it, in numbers."""

    def __init__(
        self, func: Function, loops: tuple[Loop, ...], block: Block, sizes: Mapping[str, int]
    ) -> None:
        self.loops, self.block = loops, block
        origin = {**sizes, **{x.var.name: 0 for x in loops}}
        self.trips = [max(1.0, _value(x.extent, origin)) for x in loops]
        self.points = float(prod(self.trips))
        self.needed = float(prod(max(1.0, _value(i.extent, origin)) for i in block.iters))
        self.needed = self.needed if block.iters else self.points
        self.cost = operations(block.value) + (block.combiner is not None)
        self.reads = len(reads(block))
        self.lanes = self.trips[-1] if loops and loops[-1].kind == "vector" else 1.0
        chunks = [t for x, t in zip(loops, self.trips, strict=True) if x.kind == "parallel"]
        self.chunks = float(prod(chunks)) if chunks else 0.0
        self.bits = max(8, block.value.dtype.bits)
        self.in_code = 0
        for x in reversed(loops):
            if x.kind not in ("vector", "unrolled"):
                break
            self.in_code += 1
        self._kinds = self._kinds_of_loops()
        self.accesses = self._accesses(func, origin)
        self.point_bytes = float(sum(a.bytes for a in self.accesses)) or 1.0

    def _kinds_of_loops(self) -> list[str]:
        """Whether each loop moves along a reduction."""
        names = {v for i in self.block.reduce for v in n.free_vars(i.binding)}
        return ["reduce" if x.var in names else "spatial" for x in self.loops]

    def repeated(self, kind: str) -> float:
        """Points of the innermost loops that are repeated in code, of one kind or of all."""
        first = len(self.loops) - self.in_code
        chosen = [
            t
            for t, own in zip(self.trips[first:], self._kinds[first:], strict=True)
            if kind in ("", own)
        ]
        return float(prod(chosen))

    def _accesses(self, func: Function, origin: Mapping[str, int]) -> list[_Access]:
        b, count = self.block, len(self.loops)
        every = [(b.buffer, b.indices), *dict.fromkeys((x.buffer, x.indices) for x in reads(b))]
        buffers = func.buffers
        # Row k: the loops from the k-th on are at their ends, the others at 0. Behind these, for
        # each loop a row where it alone is at its end, and one where it is at 1.
        last = np.array([int(t) - 1 for t in self.trips], np.int64)
        inside = np.arange(count) >= np.arange(count + 1)[:, None]
        rows = np.concatenate([inside * last, np.diag(last), np.diag(np.minimum(1, last))])
        env: dict[str, Any] = dict(origin)
        env.update((x.var.name, rows[:, k]) for k, x in enumerate(self.loops))
        at = dict(env)
        for i in b.iters:
            at[i.var.name] = _index(i.binding, env)
        return [
            _access(buffers[name].dtype.bytes, k == 0, indices, at, count)
            for k, (name, indices) in enumerate(every)
            if buffers[name].scope != "register"
        ]

    def touched_by(self, first: int) -> float:
        """Bytes that one run of the loops from the ``first``-th on touches."""
        total = 0.0
        for a in self.accesses:
            inside = [t for t, u in zip(self.trips[first:], a.used[first:], strict=True) if u]
            total += a.bytes * min(prod(inside), a.boxes[first])
        return total

    def loads_in_code(self) -> tuple[float, float]:
        """Loads of the repeated code, each element once: all, and those of single elements."""
        first = len(self.loops) - self.in_code
        every = single = 0.0
        for a in self.accesses:
            if a.store:
                continue
            inside = [
                t
                for k, t in enumerate(self.trips[first:], first)
                if a.used[k] and not (self.lanes > 1 and k == len(self.trips) - 1)
            ]
            count = prod(inside)
            every += count
            single += count if a.fixed else 0.0
        return every, single

    def strided(self) -> float:
        """Accesses along the vector loop that are neither neighbours nor one element."""
        if self.lanes == 1:
            return 0.0
        return float(sum(not a.neighbours and not a.fixed for a in self.accesses))


def _access(
    size: int, store: bool, indices: tuple[Expr, ...], env: Mapping[str, Any], count: int
) -> _Access:
    values = [_index(i, env) for i in indices if not n.loads(i)]
    table = np.zeros((len(values), 3 * count + 1), np.int64)
    for row, value in zip(table, values, strict=True):
        row[:] = value
    corner = table[:, : count + 1]
    boxes = (np.abs(corner - corner[:, -1:]) + 1.0).prod(axis=0).tolist()
    moved = table[:, count + 1 :] - corner[:, -1:]
    any_moved = (moved != 0).any(axis=0) if len(values) else np.zeros(2 * count, bool)
    used = (any_moved[:count] | any_moved[count:]).tolist()
    step = moved[:, -1].tolist() if count and values else []
    fixed = not any(step)
    return _Access(
        size, store, boxes, used, bool(step) and not any(step[:-1]) and step[-1] == 1, fixed
    )


def _index(e: Expr, env: Mapping[str, Any]) -> Any:
    return e.value if isinstance(e, Const) else evaluate_array(e, env)
