"""Moves on loops: what is refused, and edges of what is legal."""

from __future__ import annotations

import itertools

import pytest

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.ir import Loop, walk
from planish.compiler.loop.relations import legal_order
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.schedules.moves import loops as L
from planish.schedules.schedule import Schedule, parse_trace, replay

from .programs import conv, dense, softmax
from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("loops"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


def kinds(s: Schedule, block: str) -> list[str]:
    return [x.kind for x in s.loops(block)]


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 8, 9, 30])
def test_split_keeps_every_instance(factor: int):
    before = dense(30, 6, 9).function
    after = L.split(Schedule(before), "dot.i0", factor)
    assert legal_order(before, after.func) is None
    assert ("where" in show(after.func)) is (30 % factor != 0)


def test_split_of_a_loop_that_blocks_share_reaches_all_of_them():
    func = parse(
        """\
def f(x: f32[6], *, C: f32[6], D: f32[6]):
    for i in serial(6):
        with block("C", i0=spatial(6, i)):
            C[i0] = x[i0]
        for j in serial(i + 1):
            with block("D", i0=spatial(6, i), r0=reduce(6, j), init=f32(0.0)):
                D[i0] += x[r0]"""
    )
    after = L.split(Schedule(func), "C.i", 4)
    assert show(after.func).splitlines()[1:] == [
        "    for i_0 in serial(2):",
        "        for i_1 in serial(4):",
        '            with block("C", i0=spatial(6, i_0 * 4 + i_1), where=i_0 * 4 + i_1 < 6):',
        "                C[i0] = x[i0]",
        "            for j in serial(i_0 * 4 + i_1 + 1):",
        '                with block("D", i0=spatial(6, i_0 * 4 + i_1), r0=reduce(6, j), '
        "init=f32(0.0), where=i_0 * 4 + i_1 < 6):",
        "                    D[i0] += x[r0]",
    ]


def test_all_orders_of_a_reduction_are_legal():
    before = dense(3, 4, 5).function
    for order in itertools.permutations(("i0", "i1", "r0")):
        after = L.reorder(Schedule(before), "dot", order)
        assert [x.var.name for x in after.loops("dot")] == list(order)
        assert legal_order(before, after.func) is None


def test_loops_that_are_not_named_keep_their_places():
    s = L.reorder(Schedule(conv().function), "conv", ("r2", "i0"))
    assert [x.var.name for x in s.loops("conv")] == ["r2", "i1", "i2", "r0", "r1", "i0"]


def test_reorder_of_one_loop_is_nothing():
    s = Schedule(dense().function)
    assert L.reorder(s, "dot", ("r0",)).func is s.func


def test_an_independent_dimension_of_a_scan_is_free():
    func = parse(
        """\
def f(x: f32[8, 8], *, C: f32[9, 8]):
    for i in serial(8):
        for j in serial(8):
            with block("C", i0=spatial(8, i), i1=spatial(8, j)):
                C[i0 + 1, i1] = C[i0, i1] + x[i0, i1]"""
    )
    s = Schedule(func)
    assert kinds(L.vectorize(s, "C.j"), "C") == ["serial", "vector"]
    swapped = L.reorder(s, "C", ("j", "i"))
    assert kinds(L.parallel(swapped, "C.j"), "C") == ["parallel", "serial"]
    with pytest.raises(ScheduleError, match="C touches C at the same element"):
        L.vectorize(swapped, "C.i")


def test_lanes_of_a_reduction_fold():
    s = L.split(Schedule(softmax(3, 16).function), "total.r0", 8)
    assert kinds(L.vectorize(s, "total.r0_1"), "total")[-1] == "vector"


def test_a_loop_of_shared_scratch_may_be_a_thread_axis_but_not_parallel():
    func = parse(
        """\
def f(x: f32[4, 8], *, C: f32[4, 8]):
    T = buffer(f32[4, 8], "local")
    for b in serial(4):
        for i in serial(8):
            with block("T", i0=spatial(4, b), i1=spatial(8, i)):
                T[i0, i1] = x[i0, i1]
        for i in serial(8):
            with block("C", i0=spatial(4, b), i1=spatial(8, i)):
                C[i0, i1] = T[i0, 7 - i1]"""
    )
    s = Schedule(func)
    with pytest.raises(ScheduleError, match="used outside of i as well"):
        L.parallel(s, "T.i")
    s = L.bind(L.bind(s, "T.i", "thread.x"), "C.i", "thread.x")
    s = L.bind(s, "C.b", "block.x")
    found = [x.kind for x in walk(s.func.body) if isinstance(x, Loop)]
    assert found == ["block.x", "thread.x", "thread.x"]


CAPPED = """\
def f(x: f32[2, 8], *, y: f32[2]):
    for i in serial(2):
        with block("y0", i=spatial(2, i)):
            y[i] = f32(0.0)
    for i in serial(2):
        for j in serial(8):
            with block("y", i0=spatial(2, i), r0=reduce(8, j), where=y[i] < f32(3.0)):
                y[i0] += x[i0, r0]"""
MARKED = """\
def f(x: f32[8], *, y: f32[8]):
    for i in serial(8):
        with block("y0", i=spatial(8, i)):
            y[i] = x[i]
    for i in serial(2):
        for j in serial(4):
            with block("y", i0=spatial(2, i), i1=spatial(4, j), where=y[7 - (i * 4 + j)] > f32(0)):
                y[i0 * 4 + i1] = f32(-1.0)"""


@pytest.mark.parametrize(
    ("text", "trace"),
    [
        (CAPPED, 'vectorize("y.j")'),
        (CAPPED, 'rfactor("y.j", "local")'),
        (MARKED, 'reorder("y", ("j", "i"))'),
        (MARKED, 'parallel("y.i")'),
    ],
)
def test_a_condition_that_loads_what_the_block_stores_counts(text: str, trace: str):
    with pytest.raises(ScheduleError):
        replay(verify(parse(text)), parse_trace(trace))
