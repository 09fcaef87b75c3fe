"""The default schedule of every operator: well formed, replayed, and of the same meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import from_numpy
from planish.compiler.graph.ir import Array, tensor
from planish.compiler.graph.prepack import formed
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, blocks
from planish.compiler.loop.lower import lower
from planish.compiler.loop.relations import corresponding, legal_order
from planish.compiler.loop.text import show
from planish.compiler.loop.verify import verify
from planish.compiler.machine import Machine
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators
from planish.schedules.rules import default_schedule
from planish.schedules.schedule import Schedule, parse_trace, replay
from planish.schedules.space import Space

from ..followed import followed, numbered
from ..races import is_concurrent, points, watched

load_operators()

MACHINES = (Machine("avx512", 64, 32, True), Machine("avx2", 32, 16, True))
# Elements that a schedule may touch for being watched for races, point by point: the default one,
# and others.
WATCHED, ALSO_WATCHED = 4000, 600
FEW = 4  # samples of an operator that are tested always; the rest take their time


# Operators of subgraphs have no loops.
OPERATORS = {
    name: cls
    for name, cls in sorted(Op.registry.items())
    if next(iter(cls.samples()))[0].is_expression or cls.build is not Op.build
}


def samples() -> Iterator[Any]:
    for name, cls in OPERATORS.items():
        for k, (op, arrays) in enumerate(cls.samples()):
            marks = [pytest.mark.long] if k >= FEW else []
            yield pytest.param(
                op, arrays, MACHINES[k % 2], 1 + k % 3, id=f"{name}-{k}", marks=marks
            )


def loops_of(op: Op, arrays: list[Array | None]) -> Function:
    """The function of one operator."""
    if not op.is_expression:
        types = [None if x is None else tensor(from_numpy(x.dtype), *x.shape) for x in arrays]
        return canonical(op.build(*types))
    places = [None if x is None else te.placeholder(x.shape, from_numpy(x.dtype)) for x in arrays]
    found = op.compute(*places)
    outputs = found if isinstance(found, tuple) else (found,)
    return canonical(lower(op.name, [p for p in places if p is not None], outputs))


@pytest.mark.parametrize(("op", "arrays", "machine", "threads"), list(samples()))
def test_default_schedule(op: Op, arrays: list[Array | None], machine: Machine, threads: int):
    func = loops_of(op, arrays)
    means(func, default_schedule(func, machine, threads), arrays, WATCHED)


@pytest.mark.parametrize(("op", "arrays", "machine", "threads"), list(samples()))
def test_points_of_the_space(op: Op, arrays: list[Array | None], machine: Machine, threads: int):
    """The plain schedule, random ones, those beside the default one, and mixtures."""
    func = loops_of(op, arrays)
    pick = Random(op.name)
    space = Space(func, machine, threads, frozenset(p.name for p in func.inputs[1:]))
    default = space.default()
    some = [default, space.plain(), space.random(pick), space.mutated(default, pick)]
    some.append(space.crossed(some[1], some[2], pick) if some[1] and some[2] else None)
    without = replace(space, estimates=False)
    assert without.start().schedule.trace == some[1].schedule.trace
    for point in {p.schedule.text(): p for p in some if p is not None}.values():
        again = space.point(point.decisions)
        assert again.schedule.trace == point.schedule.trace
        assert again.options == point.options
        means(func, point.schedule, arrays, ALSO_WATCHED)


def means(
    func: Function,
    s: Schedule,
    arrays: Sequence[Array | None],
    most: int,
    tolerance: float = 1e-5,
) -> None:
    """A schedule is well formed, replays, and leaves the function's meaning as it is.

    It has no races either, if it touches at most so many elements.
    """
    verify(s.func)
    assert show(replay(func, parse_trace(s.text())).func) == show(s.func)
    inputs = [x for x in arrays if x is not None]
    forms = s.forms()
    given = [formed(x, forms.get(k, ())) for k, x in enumerate(inputs)]
    run = watched if is_concurrent(s.func.body) and points(s.func) <= most else interpret
    for found, wanted in zip(run(s.func, given), interpret(func, inputs), strict=True):
        assert found.dtype == wanted.dtype
        if wanted.dtype.kind in "iub":
            np.testing.assert_array_equal(found, wanted)
            continue
        bits = {1: 0.13, 2: 2e-2, 4: tolerance, 8: 1e-12}[wanted.dtype.itemsize]
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        scale = float(np.abs(b[np.isfinite(b)]).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=bits, atol=bits * scale, equal_nan=True)


@pytest.mark.parametrize("name", OPERATORS)
def test_default_schedule_keeps_the_order(name: str):
    """No dependence of the function is turned around, by the relations of all its instances.

    What is computed where it is read is no block any more: the order of the rest is compared with
    that once it is inlined, which the rules do first.
    """
    op, arrays = next(iter(OPERATORS[name].samples()))
    func = loops_of(op, arrays)
    trace = default_schedule(func, MACHINES[1], 2).trace
    inlines = [k for k, step in enumerate(trace) if step.move == "inline"]
    assert inlines == list(range(len(inlines)))
    less, rest = replay(func, trace[: len(inlines)]).func, trace[len(inlines) :]
    before, after = numbered(less), followed(less, rest)
    assert compared(numbered(func), numbered(less)) == {b.name for b in blocks(less.body)}
    assert compared(before, after) == {b.name for b in blocks(before.body)}


def compared(before: Function, after: Function) -> set[str]:
    """The blocks whose instances were found to be in a legal order."""
    assert legal_order(before, after) is None
    return corresponding(before, after)
