"""Copies of buffers: what is refused, and edges of what is legal."""

from __future__ import annotations

import pytest

from planish.compiler.loop.text import parse, show
from planish.schedules.moves import caches as C
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .programs import RECURRENT, dense
from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("caches"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


def test_the_copy_in_a_shared_loop_keeps_its_condition():
    s = S.compute_at(Schedule(dense().function), "dot", "relu.i0")
    s = L.split(s, "relu.i0", 4)
    s = C.cache_write(s, "dot", "register")
    assert [x.var.name for x in s.loops("dot")] == ["i0_0", "i0_1", "i1"]
    assert str(s.block("dot").where) == "i0_0 * 4 + i0_1 < 5"


def test_a_block_in_a_loop_that_carries_a_state_can_have_caches():
    s = C.cache_write(Schedule(RECURRENT), "hr", "register")
    assert [x.var.name for x in s.loops("hr")] == ["t", "i", "j"]
    s = C.cache_read(s, "r", "hr_cache", "local")
    assert show(s.func).splitlines()[9:13] == [
        "    for i0 in serial(3):",
        "        for i1 in serial(3):",
        '            with block("r_cache", i0=spatial(3, i0), i1=spatial(3, i1)):',
        "                r_cache[i0, i1] = r[i0, i1]",
    ]


def test_other_readers_go_on_to_read_the_buffer():
    func = parse(
        """\
def f(x: f32[8], *, C: f32[8], D: f32[8]):
    for i in serial(8):
        with block("C", i0=spatial(8, i)):
            C[i0] = x[i0]
    for i in serial(8):
        with block("D", i0=spatial(8, i)):
            D[i0] = x[i0]"""
    )
    s = C.cache_read(Schedule(func), "x", "D", "global")
    assert [str(s.block(b).value) for b in ("C", "D")] == ["x[i0]", "x_cache[i0]"]
