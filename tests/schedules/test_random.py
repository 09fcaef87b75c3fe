"""Random schedules mean what the function means, before and after every pass on loops.

As they were scheduled and in the end, they are watched for races.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planish.compiler.errors import CodegenError
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import show
from planish.compiler.loop.verify import verify
from planish.compiler.pipeline import LOOP_PASSES
from planish.schedules.schedule import Schedule, parse_trace, replay
from planish.schedules.trace import trace_from_json, trace_to_json

from .moves.programs import PROGRAMS, Program
from .moves.randomly import attempt, same
from .races import is_concurrent, watched

FEW = settings(max_examples=5, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=200, suppress_health_check=list(HealthCheck))


def schedule(program: Program, seed: int, attempts: int) -> Schedule:
    pick = random.Random(seed)
    s = Schedule(program.function)
    for _ in range(attempts):
        s = attempt(s, pick)
    return s


def check(program: Program, seed: int, attempts: int) -> None:
    s = schedule(program, seed, attempts)
    func = verify(s.func)
    stages = [func]
    for p in LOOP_PASSES:
        try:
            func = p.run(func)
        except CodegenError:  # of registers that are too many is said here
            break
        p.check(func)
        stages.append(func)
    for sized in program.sizes():
        inputs = sized.arrays(seed)
        wanted = sized.answers(inputs)
        for func in stages:
            watch = is_concurrent(func.body) and func in (stages[0], stages[-1])
            run = watched if watch else interpret
            same(func, inputs, sized.symbols, wanted, run)


seeds = st.integers(0, 1 << 32)


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@given(seeds, st.integers(1, 25))
@FEW
def test_a_random_schedule_means_the_same(program: Program, seed: int, attempts: int):
    check(program, seed, attempts)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@given(seeds, st.integers(1, 50))
@MANY
def test_many_random_schedules_mean_the_same(program: Program, seed: int, attempts: int):
    check(program, seed, attempts)


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@given(seeds)
@FEW
def test_a_trace_replays(program: Program, seed: int):
    s = schedule(program, seed, 15)
    again = replay(program.function, parse_trace(s.text()))
    assert show(again.func) == show(s.func)
    assert again.trace == s.trace == trace_from_json(trace_to_json(s.trace))
