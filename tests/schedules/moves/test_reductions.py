"""Moves on reductions: what is refused, and edges of what is legal."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse, show
from planish.schedules.moves import loops as L
from planish.schedules.moves import reductions as R
from planish.schedules.schedule import Schedule

from .programs import softmax
from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("reductions"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


@pytest.mark.parametrize("columns", [1, 5, 7, 8, 16, 17])
@pytest.mark.parametrize("loop", ["r0_0", "r0_1"])
def test_a_tail_is_left_out_of_the_parts(columns: int, loop: str):
    program = softmax(2, columns)
    s = Schedule(program.function)
    for block in ("top", "total"):
        s = L.split(s, f"{block}.r0", 8)
        s = R.rfactor(s, f"{block}.{loop}", "register")
    arrays = program.arrays()
    found, wanted = interpret(s.func, arrays), program.answers(arrays)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)


STARTED = """\
def f(x: f32[3, 8], b: f32[3], *, C: f32[3]):
    for i in serial(3):
        for k in serial(8):
            with block("C", i0=spatial(3, i), r0=reduce(8, k), init=START, where=WHERE):
                C[i0] COMBINE x[i0, r0]"""


@pytest.mark.parametrize("where", ["k < 5", "i < 2", "i < 2 and k < 5", "i + k < 6", "0 < k"])
@pytest.mark.parametrize("combine", ["+=", "*="])
@pytest.mark.parametrize("start", ["f32(2.0)", "b[i0]"])
def test_a_start_of_its_own_counts_once(start: str, combine: str, where: str):
    text = STARTED.replace("START", start).replace("COMBINE", combine)
    text = text.replace("WHERE", where)
    if "i <" in where:  # the rest of the result is written by another block
        text = text.replace(
            "    for i", '    for i in serial(3):\n        with block("C0", i0=spatial(3, i)):\n'
            "            C[i0] = f32(7.0)\n    for i", 1
        )  # fmt: skip
    func = parse(text)
    s = R.rfactor(Schedule(func), "C.k")
    again = R.rfactor(L.split(Schedule(func), "C.k", 3), "C.k_0", "register")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(d).astype(np.float32) for d in ((3, 8), (3,))]
    for found in (s, again):
        np.testing.assert_allclose(
            interpret(found.func, arrays)[0], interpret(func, arrays)[0], rtol=1e-5
        )


def test_parts_of_parts():
    program = softmax(2, 24)
    s = L.split(Schedule(program.function), "total.r0", 8)
    s = L.reorder(s, "total", ("r0_1", "r0_0"))
    s = R.rfactor(s, "total.r0_1")
    s = R.rfactor(L.split(s, "total_rf.r0_0", 2), "total_rf.r0_0_1")
    assert 'with block("total_rf_rf"' in show(s.func)
    arrays = program.arrays()
    np.testing.assert_allclose(interpret(s.func, arrays)[0], program.answers(arrays)[0], rtol=1e-6)
