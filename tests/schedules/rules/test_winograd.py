"""Convolutions by Winograd's tiles: every point of the space is right, and what is not offered."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from planish.compiler.dtypes import F32, F64
from planish.compiler.expr.nodes import Var, as_expr
from planish.compiler.graph.prepack import formed
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, Loop, constant, walk
from planish.compiler.loop.lower import lower
from planish.compiler.machine import Machine
from planish.compiler.ops.convolution import Conv
from planish.compiler.pipeline import LOOP_PASSES, run
from planish.schedules.choices import Choices
from planish.schedules.moves.winograd import is_inexact
from planish.schedules.rules import default_schedule, schedule
from planish.schedules.schedule import Schedule, replay
from planish.schedules.space import Space

from .convolutions import CASES, WEIGHTS, Case, convolution
from .test_rules import MACHINES, WATCHED, means


def tiled(func: Function, machine: Machine, threads: int, **given: int) -> Schedule:
    return schedule(func, machine, threads, WEIGHTS, Choices({"rule": "winograd", **given}))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_are_right(case: Case, size: int):
    func = case.function()
    s = tiled(func, MACHINES[size // 4], size // 2, size=size)
    assert any(step.move == "winograd" for step in s.trace)
    means(func, s, case.arrays(func), WATCHED, 1e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_points_are_right(case: Case):
    func, pick = case.function(), Random(str(case))
    arrays = case.arrays(func)
    for threads in (1, 2):
        space = Space(func, pick.choice(MACHINES), threads, WEIGHTS)
        point = space.point({"rule": "winograd"})
        some = [point, space.mutated(point, pick), space.random(pick), space.random(pick)]
        for p in {p.schedule.text(): p for p in some if p is not None}.values():
            means(func, p.schedule, arrays, WATCHED, 1e-4)


def test_what_threads_share_as_one_loop_does_not_keep_more():
    func = Case(1, 56, 56, 64, 64).function()
    given = {"tiles": 8, "tile": (1, 1, 16), "share": "panels", "parallel.2": 2}
    s = schedule(func, MACHINES[0], 2, WEIGHTS, Choices({"rule": "winograd", "size": 2, **given}))
    parallel = [
        x.var.name for x in walk(s.func.body) if isinstance(x, Loop) and x.kind == "parallel"
    ]
    assert parallel[-1].count("_v") == 3  # blocks of tiles, and panels
    kept = [b for b in run(s.func, LOOP_PASSES).temps if b.scope == "register"]
    assert kept and all(math.prod(map(constant, b.shape)) <= 1 << 10 for b in kept)


def test_where_tiles_pay_they_are_the_default():
    func = Case(1, 28, 28, 64, 64).function()
    for machine in MACHINES:
        space = Space(func, machine, 2, WEIGHTS)
        assert space.default().decisions["rule"] == "winograd"
        assert is_inexact(space.default().schedule.trace)
        assert space.plain().decisions["rule"] == "contraction"


def test_strict_does_without():
    func = Case(1, 28, 28, 64, 64).function()
    s = default_schedule(func, MACHINES[0], 1, WEIGHTS, strict=True)
    assert not is_inexact(s.trace)
    assert not any(step.move == "winograd" for step in s.trace)


def rules_for(func: Function, machine: Machine = MACHINES[0]) -> tuple[object, ...]:
    return Space(func, machine, 1, WEIGHTS).default().options["rule"]


@pytest.mark.parametrize(
    "op",
    [
        Conv((2, 2), (1, 1), (1, 1, 1, 1), 1, True),
        Conv((1, 1), (2, 2), (2, 2, 2, 2), 1, True),
        Conv((1, 1), (1, 1), (1, 1, 1, 1), 2, True),
        Conv((1, 1), (1, 1), (1, 1, 1, 1), 8, True),
    ],
    ids=["strides", "dilations", "groups", "depthwise"],
)
def test_other_convolutions_are_refused(op: Conv):
    assert "winograd" not in rules_for(Case(1, 9, 9, 8, 8).function(op=op))


def test_what_else_is_refused():
    case = Case(1, 9, 9, 8, 8)
    assert "winograd" in rules_for(case.function())
    assert "winograd" not in rules_for(case.function(F64))
    assert "winograd" not in rules_for(case.function(), Machine("generic", 16, 16, False))
    assert "winograd" not in rules_for(Case(1, 9, 9, 1, 8).function())
    assert "winograd" not in rules_for(Case(1, 2, 2, 8, 8).function())
    assert "winograd" not in rules_for(convolution((1, Var("n"), 9, 8), 8))
    assert "winograd" not in rules_for(convolution((Var("n"), 9, 9, 8), 8))
    free = Space(case.function(), MACHINES[0], 1).default()
    assert "winograd" not in free.options["rule"]


@pytest.mark.parametrize(("size", "most"), [(2, 1.0), (4, 3.0)])
def test_how_exact_sums_are(size: int, most: float):
    """Root mean square and largest error, over those of plain float32 sums in any order."""
    case = Case(1, 12, 12, 96, 16)
    func, rng = case.function(), np.random.default_rng(3)
    x = np.maximum(rng.standard_normal((1, 12, 12, 96)), 0).astype(np.float32)
    w = (rng.standard_normal((3, 3, 96, 16)) * np.sqrt(2 / (9 * 96))).astype(np.float32)
    exact = Conv((1, 1), (1, 1), (1, 1, 1, 1), 1, True).reference(
        x.astype(np.float64), w.astype(np.float64)
    )
    (plain,) = interpret(func, [x, w])
    s = tiled(func, MACHINES[0], 1, size=size)
    forms = s.forms()
    (found,) = interpret(s.func, [x, formed(w, forms[1])])
    errors = [np.abs(y - exact) for y in (found, plain)]
    assert np.sqrt(np.mean(errors[0] ** 2)) <= most * np.sqrt(np.mean(errors[1] ** 2))
    assert errors[0].max() <= most * errors[1].max()


def test_weights_that_others_read_stay():
    x, w = te.placeholder((1, 8, 8, 4), F32), te.placeholder((3, 3, 4, 4), F32, "w")
    y = Conv((1, 1), (1, 1), (1, 1, 1, 1), 1, True).compute(x, w)
    out = te.compute(y.shape, lambda *at: y[at] * w[as_expr(0), as_expr(0), as_expr(0), at[3]])
    func = canonical(lower("f", [x, w], [out]))
    s = default_schedule(func, MACHINES[0], 1, WEIGHTS)
    assert replay(func, s.trace).func == s.func
    assert not any(step.move == "winograd" for step in s.trace)
