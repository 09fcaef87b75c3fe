"""Candidates as code: a scheduled function as a module of its own, on data of its task.

This runs in the processes that measure, which may crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np

from planish.compiler.dtypes import BOOL, I8, DType
from planish.compiler.errors import TuningError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.graph.memory import aligned, arena
from planish.compiler.graph.prepack import Form, formed
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.loop.slots import with_slots
from planish.compiler.machine import Machine
from planish.compiler.program import AnyStep, Branch, Place, Port, Program, Step
from planish.compiler.remembering import remembered
from planish.runtime.interface import interface_of
from planish.runtime.memory import aligned_copy, aligned_empty
from planish.runtime.module import Module
from planish.schedules.choices import Choices
from planish.schedules.rules import schedule
from planish.schedules.schedule import Schedule, Trace, replay

from .tasks import Task

# In a model, a function finds the results of others in the caches of all threads, and its weights
# farther away. So what it reads is written before each run, by all threads, and as many copies of
# the weights are used in turn as are larger than the caches, but not more than this together.
MOST_COPIED: Final = 96 << 20
MOST_COPIES: Final = 64
RUNS: Final = 8  # of a call; the first one, after which the threads are awake, does not count
SLOW_SECONDS: Final = 1e-2  # of a run: what is that slow is measured by single runs
KEPT_FORMS: Final = 96 << 20  # bytes of constants in forms that other candidates may want too
ENOUGH_SECONDS: Final = 3e-2  # for the times of a candidate: slow ones are measured less often
LEAST_ROUNDS: Final = 2
# The largest difference from the default schedule's answer, of its largest value, by bytes of an
# element: sums are made in another order.
TOLERANCE: Final = {1: 0.13, 2: 2e-2, 4: 2e-4, 8: 1e-10}


def program_of(task: Task, s: Schedule) -> Program:
    """A program that runs a schedule of a task so many times as ``RUNS``, or once.

    Its inputs: for each symbol one that is as long as that; a byte, which is 0 if one run is
    wanted; the task's inputs that are no constants; the constants of each run. Before each run
    what is no constant is copied to where the function reads it.
    """
    func = with_slots(s.func, task.threads).with_(name="kernel")
    inputs = [Port(f"size_{v.name}", TensorType(I8, (v,))) for v in func.symbols]
    again = Place("input", len(inputs))
    inputs.append(Port("again", TensorType(BOOL, ())))
    room = n.as_expr(0)
    functions = {"kernel": func}
    copies: list[Step] = []
    arguments: dict[int, Place] = {}
    nowhere = arena(n.as_expr(0))
    for k, b in enumerate(func.inputs):
        if b.name in task.constants:
            continue
        inputs.append(Port(b.name, TensorType(b.dtype, b.shape)))
        arguments[k] = arena(room)
        source = Place("input", len(inputs) - 1)
        copy = _copying(b.dtype, b.shape, task.machine, task.threads).with_(name=f"copy_{k}")
        functions[copy.name] = copy
        copies.append(Step(copy.name, (source, arguments[k]), copy.symbols, nowhere))
        room = room + aligned(b.bytes)
    outputs = [Port(b.name, TensorType(b.dtype, b.shape)) for b in func.results]
    results = [Place("output", k) for k in range(len(outputs))]
    steps: list[AnyStep] = []
    for run in range(RUNS):
        for k, b in enumerate(func.inputs):
            if b.name in task.constants:
                inputs.append(Port(f"{b.name}_{run}", TensorType(b.dtype, b.shape)))
                arguments[k] = Place("input", len(inputs) - 1)
        places = *(arguments[k] for k in range(len(func.inputs))), *results
        kernel = Step("kernel", places, func.symbols, arena(room))
        every = [(*copies,), (kernel,)]
        steps += (*copies, kernel) if run == 0 else [Branch(again, some, ()) for some in every]
    scratch = sum((aligned(t.bytes) for t in func.temps if t.scope == "global"), n.as_expr(0))
    return Program(
        "candidate", tuple(inputs), tuple(outputs), func.symbols, functions, tuple(steps), (),
        room + scratch,
    )  # fmt: skip


@remembered(64)
def _copying(dtype: DType, shape: tuple[Expr, ...], machine: Machine, threads: int) -> Function:
    """A function that copies an array by all threads, into their caches."""
    x = te.placeholder(shape, dtype)
    choices = Choices({"past caches": 0})
    return schedule(lower("copy", [x], [x]), machine, threads, frozenset(), choices).func


def compiled(task: Task, s: Schedule) -> Module:
    """The module of a candidate.

    Errors: CodegenError if it cannot be compiled.
    """
    program = program_of(task, s)
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


def _copied(array: Array) -> Array:
    """The same elements elsewhere, at an aligned address."""
    out = aligned_empty(array.nbytes).view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


class Bench:
    """A task ready to be measured: its data, and the answer of its default schedule."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.sizes = [np.zeros(s, np.int8) for s in task.sizes]
        self.arrays = arrays_of(task)
        self.known = [k for k, b in enumerate(task.func.inputs) if b.name in task.constants]
        self._forms: dict[tuple[int, tuple[Form, ...]], Array] = {}
        self.answer = Candidate(self, task.space.default().schedule.trace).run()

    @property
    def bytes(self) -> int:
        """Bytes of its data."""
        return sum(a.nbytes for a in (*self.arrays, *self.answer))

    def formed(self, k: int, forms: tuple[Form, ...]) -> Array:
        """An input that is known, brought into one form after the other."""
        if not forms:
            return self.arrays[k]
        found = self._forms.pop((k, forms), None)
        if found is None:
            found = formed(self.formed(k, forms[:-1]), forms[-1:])
        self._forms[k, forms] = found  # the last that is given up
        while sum(a.nbytes for a in self._forms.values()) > KEPT_FORMS:
            del self._forms[next(iter(self._forms))]
        return found

    def forget_forms(self) -> None:
        """Give back what is only of use for more candidates."""
        self._forms.clear()

    def copies(self, known: Sequence[Array]) -> int:
        """How many copies of the constants are used in turn."""
        size = sum(x.nbytes for x in known)
        if not size:
            return 1
        far = min(2 * self.task.machine.l3_bytes, MOST_COPIED)
        return max(1, min(MOST_COPIES, far // size))

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
        forms = s.forms()
        if free := [k for k in forms if k not in bench.known]:
            names = " ".join(task.func.inputs[k].name for k in free)
            raise TuningError(f"{names} cannot be given another form: it is no constant")
        self.module = compiled(task, s)
        others = [a for k, a in enumerate(bench.arrays) if k not in bench.known]
        self._first = [*bench.sizes, np.zeros((), np.bool_), *others]
        self._again = len(bench.sizes)
        known = [bench.formed(k, tuple(forms.get(k, ()))) for k in bench.known]
        self._constants = [[_copied(a) for a in known] for _ in range(bench.copies(known))]
        self._next = 0
        self._kernels = [
            k for k, step in enumerate(self.module.interface.steps) if step.function == "kernel"
        ]
        step = self._kernels[0] + 1
        self._timed = list(range(step + 1, len(self.module.interface.steps), 2))
        self._results: list[Array] | None = None  # where they are written, once it has run

    def run(self) -> tuple[Array, ...]:
        """The answer."""
        self._results = [x.copy() for x in self.module(*self._inputs(again=False))]
        return tuple(x.copy() for x in self._results)

    def once(self) -> float:
        """The time of one run, in seconds; the threads may have to be woken for it."""
        steps = self.module.profile(self._inputs(again=False), 1, self._results)
        return steps[self._kernels[0]].best_seconds

    def seconds(self) -> float:
        """The median time of a few runs, one after the other."""
        steps = self.module.profile(self._inputs(again=True), 1, self._results)
        return median(steps[k].best_seconds for k in self._timed)

    def _inputs(self, again: bool) -> list[Array]:
        """What the module takes; the next copies of the constants are used."""
        inputs: list[Array] = list(self._first)
        inputs[self._again] = np.array(again)
        for run in range(RUNS):
            inputs += self._constants[(self._next + run) % len(self._constants)]
        self._next += RUNS if again else 1
        return inputs


def measure(candidate: Candidate, rounds: int, limit: float) -> tuple[list[float], bool]:
    """Times of a candidate, at most ``rounds``; only one, and True, if it is beyond the limit."""
    first = candidate.once()
    if first > 2 * limit:  # the first run finds nothing in the caches
        first = min(first, candidate.once())
    if first > limit:
        return [first], True
    if first > SLOW_SECONDS:
        return [candidate.once() for _ in range(LEAST_ROUNDS)], False
    enough = max(LEAST_ROUNDS, min(rounds, int(ENOUGH_SECONDS / (RUNS * first))))
    return [candidate.seconds() for _ in range(enough)], False


def in_turn(a: Candidate, b: Candidate, rounds: int) -> tuple[list[float], list[float]]:
    """Times of two candidates measured in turn, so that what disturbs them disturbs both."""
    times: tuple[list[float], list[float]] = ([], [])
    slow = max(a.once(), b.once()) > SLOW_SECONDS
    for k in range(rounds):
        for which in (0, 1) if k % 2 == 0 else (1, 0):
            candidate = (a, b)[which]
            times[which].append(candidate.once() if slow else candidate.seconds())
    return times
