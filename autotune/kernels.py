"""Candidates as code: a scheduled function as a module of its own, on data of its task.

This runs in the processes that measure, which may crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from planish.compiler.dtypes import I8, DType
from planish.compiler.errors import TuningError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.graph.memory import aligned, arena
from planish.compiler.graph.prepack import relayout
from planish.compiler.loop.slots import with_slots
from planish.compiler.program import Place, Port, Program, Step
from planish.runtime.interface import interface_of
from planish.runtime.memory import aligned_copy
from planish.runtime.module import Module
from planish.schedules.schedule import Schedule, Trace, replay

from .tasks import Task

# In a model, weights come from farther away than in a loop around one kernel: as many copies of
# them are used in turn as are larger than the caches, but not more than this together.
MOST_COPIED: Final = 96 << 20
LEAST_SECONDS: Final = 2e-3  # of one time that is reported: the mean of so many runs
MOST_RUNS: Final = 64
LEAST_ROUNDS: Final = 2
ENOUGH_SECONDS: Final = 0.1  # for the times of a candidate: slow ones are measured less often
# The largest difference from the default schedule's answer, of its largest value, by bytes of an
# element: sums are made in another order.
TOLERANCE: Final = {1: 0.13, 2: 2e-2, 4: 2e-4, 8: 1e-10}


def program_of(s: Schedule, threads: int) -> Program:
    """A program of one step. For each symbol there is an input more, which is as long as that."""
    func = with_slots(s.func, threads).with_(name="kernel")
    inputs = [Port(f"size_{v.name}", TensorType(I8, (v,))) for v in func.symbols]
    first = len(inputs)
    inputs += [Port(b.name, TensorType(b.dtype, b.shape)) for b in func.inputs]
    outputs = [Port(b.name, TensorType(b.dtype, b.shape)) for b in func.results]
    places = [Place("input", first + k) for k in range(len(func.inputs))]
    places += [Place("output", k) for k in range(len(outputs))]
    step = Step("kernel", tuple(places), func.symbols, arena(n.as_expr(0)))
    room = sum((aligned(t.bytes) for t in func.temps if t.scope == "global"), n.as_expr(0))
    return Program(
        "candidate", tuple(inputs), tuple(outputs), func.symbols, {"kernel": func}, (step,),
        (), room,
    )  # fmt: skip


def compiled(task: Task, s: Schedule) -> Module:
    """The module of a candidate.

    Errors: CodegenError if it cannot be compiled.
    """
    program = program_of(s, task.threads)
    return Module(
        interface_of(program), task.target.code(program), program.constants, threads=task.threads
    )


def arrays_of(task: Task) -> list[Array]:
    """Numbers for a task's inputs: the same ones each time."""
    rng = np.random.default_rng(0)
    sizes = dict(zip((v.name for v in task.func.symbols), task.sizes, strict=True))
    out = []
    for b in task.func.inputs:
        shape = [int(evaluate(d, sizes)) for d in b.shape]
        out.append(aligned_copy(_numbers(rng, shape, b.dtype)))
    return out


def _numbers(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> Array:
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype.numpy)
    return rng.standard_normal(shape, np.float32).astype(dtype.numpy)


class Bench:
    """A task ready to be measured: its data, and the answer of its default schedule."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sizes = [np.zeros(s, np.int8) for s in task.sizes]
        self.arrays = arrays_of(task)
        self.known = [k for k, b in enumerate(task.func.inputs) if b.name in task.constants]
        self.answer = Candidate(self, task.space.default().schedule.trace).run()

    @property
    def bytes(self) -> int:
        """Bytes of its data."""
        return sum(a.nbytes for a in (*self.arrays, *self.answer))

    @property
    def copies(self) -> int:
        """How many copies of the constants are used in turn."""
        size = sum(self.arrays[k].nbytes for k in self.known)
        if not size:
            return 1
        far = min(2 * self.task.target.machine.l3_bytes, MOST_COPIED)
        return max(1, min(MOST_RUNS, far // size))

    def check(self, found: Sequence[Array]) -> str:
        """What is wrong with an answer; "" if it is right."""
        for k, (x, y) in enumerate(zip(found, self.answer, strict=True)):
            if x.dtype.kind in "biuc":
                if not np.array_equal(x, y):
                    return f"result {k} differs"
                continue
            a, b = x.astype(np.float64), y.astype(np.float64)
            finite = np.isfinite(b)
            if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(
                a[~finite], b[~finite], equal_nan=True
            ):
                return f"result {k} is not finite at other places"
            largest = float(np.abs(b[finite]).max(initial=0))
            error = float(np.abs(a[finite] - b[finite]).max(initial=0))
            if error > TOLERANCE[x.dtype.itemsize] * max(largest, 1e-30):
                return f"result {k} differs by {error:.3g}, where the largest is {largest:.3g}"
        return ""


class Candidate:
    """A schedule of a task as code, with the task's data in the form that it wants."""

    def __init__(self, bench: Bench, trace: Trace) -> None:
        task = bench.task
        s = replay(task.func, trace)
        layouts = s.layouts()
        if free := [k for k in layouts if k not in bench.known]:
            names = " ".join(task.func.inputs[k].name for k in free)
            raise TuningError(f"{names} cannot be laid out: it is no constant")
        self.module = compiled(task, s)
        formed = list(bench.arrays)
        for k, forms in layouts.items():
            for dims, shape in forms:
                formed[k] = relayout(formed[k], dims, shape)
        copies = [[aligned_copy(formed[k]) for k in bench.known] for _ in range(bench.copies - 1)]
        self._rounds = [[*bench.sizes, *map(aligned_copy, formed)]]
        for some in copies:
            inputs = list(self._rounds[0])
            for k, array in zip(bench.known, some, strict=True):
                inputs[len(bench.sizes) + k] = array
            self._rounds.append(inputs)
        self._next = 0

    def run(self) -> tuple[Array, ...]:
        """The answer."""
        return tuple(self.module(*self._rounds[0]))

    def once(self) -> float:
        """The time of one run, in seconds."""
        inputs = self._rounds[self._next]
        self._next = (self._next + 1) % len(self._rounds)
        (step,) = self.module.profile(inputs, 1)
        return step.best_seconds

    def seconds(self) -> float:
        """The mean time of so many runs that it can be measured."""
        spent, count = 0.0, 0
        while count < MOST_RUNS and spent < LEAST_SECONDS:
            spent += self.once()
            count += 1
        return spent / count


def measure(candidate: Candidate, rounds: int, limit: float) -> tuple[list[float], bool]:
    """Times of a candidate, at most ``rounds``; only one, and True, if it is beyond the limit."""
    first = candidate.once()
    if first > 2 * limit:  # the first run finds nothing in the caches
        first = min(first, candidate.once())
    if first > limit:
        return [first], True
    enough = max(LEAST_ROUNDS, min(rounds, int(ENOUGH_SECONDS / max(first, LEAST_SECONDS))))
    return [candidate.seconds() for _ in range(enough)], False


def in_turn(a: Candidate, b: Candidate, rounds: int) -> tuple[list[float], list[float]]:
    """Times of two candidates measured in turn, so that what disturbs them disturbs both."""
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(rounds):
        for which in (0, 1) if k % 2 == 0 else (1, 0):
            times[which].append((a, b)[which].seconds())
    return times
