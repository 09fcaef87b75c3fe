"""Copies of buffers: what is refused, and edges of what is legal."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.loop import ir
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse, show
from planish.schedules.moves import caches as C
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.moves import stores as N
from planish.schedules.schedule import Schedule

from .programs import RECURRENT, dense, windows
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


def test_a_copy_is_read_wherever_the_block_loads():
    func = parse(
        """\
def f(x: f32[8], to: i64[8], *, C: f32[8]):
    for i in serial(8):
        with block("C", i0=spatial(8, i)):
            C[i0] = f32(0.0)
    for i in serial(8):
        for k in serial(8):
            with block("D", i0=spatial(8, i), r0=reduce(8, k), init=cast(to[i0], f32),
                       where=to[k] < 4):
                C[i0] += x[min(max(to[r0], 0), 7)]"""
    )
    s = C.cache_read(Schedule(func), "to", "D", "local")
    assert {x.buffer for x in ir.loaded(s.block("D"))} == {"x", "to_cache"}
    arrays = [np.arange(8, dtype=np.float32), np.array([3, 9, -4, 0, 2, 5, 1, 7])]
    np.testing.assert_array_equal(interpret(s.func, arrays)[0], interpret(func, arrays)[0])


def test_a_buffer_that_only_a_condition_loads_can_have_a_cache():
    func = parse(
        """\
def f(x: f32[8], to: i64[8], *, C: f32[8]):
    for i in serial(8):
        with block("C", i0=spatial(8, i)):
            C[i0] = f32(0.0)
    for i in serial(8):
        with block("D", i0=spatial(8, i), where=to[i] < 4):
            C[i0] = x[i0]"""
    )
    s = C.cache_read(Schedule(func), "to", "D", "local")
    assert str(s.block("D").where) == "to_cache[i] < 4"


def test_what_goes_past_the_caches_is_the_copy():
    s = N.nontemporal(Schedule(dense().function), "relu")
    s = C.cache_write(s, "relu", "register")
    assert [(b.name, b.nontemporal) for b in ir.blocks(s.func.body)] == [
        ("dot", False), ("relu_cache", False), ("relu", True)
    ]  # fmt: skip


def test_a_stage_that_is_read_whole_where_it_is_computed_can_have_a_cache():
    s = S.compute_at(Schedule(windows().function), "s", "y.i0")
    s = S.compute_at(s, "w", "y.i0")
    s = C.cache_write(s, "w", "register")
    assert [x.var.name for x in s.loops("w")] == ["i0", "i1"]
    program = windows()
    arrays = program.arrays()
    np.testing.assert_array_equal(interpret(s.func, arrays)[0], program.answers(arrays)[0])
