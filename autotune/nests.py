"""A block with the loops around it, in numbers: what features and estimates are worked out from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate, evaluate_array
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.loop.ir import Block, Buffer, Function, Loop, nests, reads
from planish.schedules.rules.analysis import operations


def nests_of(func: Function, sizes: Mapping[str, int]) -> list[Nest]:
    """The blocks of a function; its symbols have the sizes."""
    return [Nest(func, loops, b, sizes) for loops, b in nests(func.body)]


def value_of(e: Expr, sizes: Mapping[str, int]) -> float:
    """An extent; it may be over variables of loops outside, which are then at 0."""
    return float(e.value) if isinstance(e, Const) else float(evaluate(e, sizes))


def bytes_of(b: Buffer, sizes: Mapping[str, int]) -> float:
    """The bytes of a buffer."""
    return b.dtype.bits / 8 * prod(value_of(d, sizes) for d in b.shape)


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


class Nest:
    """A block with the loops around it, in numbers."""

    def __init__(
        self, func: Function, loops: tuple[Loop, ...], block: Block, sizes: Mapping[str, int]
    ) -> None:
        self.loops, self.block = loops, block
        origin = {**sizes, **{x.var.name: 0 for x in loops}}
        self.trips = [max(1.0, value_of(x.extent, origin)) for x in loops]
        self.points = float(prod(self.trips))
        self.needed = float(prod(max(1.0, value_of(i.extent, origin)) for i in block.iters))
        self.needed = self.needed if block.iters else self.points
        self.cost = operations(block.value) + (block.combiner is not None)
        self._loads = reads(block)
        self.reads = len(self._loads)
        self.lanes = self.trips[-1] if loops and loops[-1].kind == "vector" else 1.0
        chunks = [t for x, t in zip(loops, self.trips, strict=True) if x.kind == "parallel"]
        self.chunks = float(prod(chunks)) if chunks else 0.0
        self.bits = max(8, block.value.dtype.bits)
        self.in_code = 0
        for x in reversed(loops):
            if x.kind not in ("vector", "unrolled"):
                break
            self.in_code += 1
        self.kinds = self._kinds_of_loops()
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
            for t, own in zip(self.trips[first:], self.kinds[first:], strict=True)
            if kind in ("", own)
        ]
        return float(prod(chosen))

    def _accesses(self, func: Function, origin: Mapping[str, int]) -> list[_Access]:
        b, count = self.block, len(self.loops)
        every = [(b.buffer, b.indices), *dict.fromkeys((x.buffer, x.indices) for x in self._loads)]
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
    """The value of an index; the kinds that most are made of without any ceremony."""
    match e:
        case Const(value):
            return value
        case Var(name):
            return env[name]
        case n.Add(a, b):
            return _index(a, env) + _index(b, env)
        case n.Mul(a, b):
            return _index(a, env) * _index(b, env)
        case n.Sub(a, b):
            return _index(a, env) - _index(b, env)
        case n.FloorDiv(a, Const(b)) if b:
            return _index(a, env) // b
        case n.FloorMod(a, Const(b)) if b:
            return _index(a, env) % b
        case _:
            return evaluate_array(e, env)
