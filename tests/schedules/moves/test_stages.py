"""Moves on stages: what is refused, and edges of what is legal."""

from __future__ import annotations

import pytest

from planish.compiler.errors import ScheduleError
from planish.compiler.loop import ir
from planish.compiler.loop.text import parse, show
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .programs import conv, transposes, windows
from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("stages"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


def test_inline_goes_into_all_readers_and_their_indices():
    func = parse(
        """\
def f(x: f32[8], to: i64[8], *, C: f32[8], D: f32[8]):
    T = buffer(i64[8], "global")
    for i in serial(8):
        with block("T", i0=spatial(8, i)):
            T[i0] = to[i0] % 8
    for i in serial(8):
        with block("C", i0=spatial(8, i)):
            C[i0] = x[T[T[i0]]]
    for i in serial(8):
        with block("D", i0=spatial(8, i), where=T[i] < 4):
            D[i0] = x[i0]"""
    )
    s = S.inline(Schedule(func), "T")
    assert show(s.func).splitlines()[1:] == [
        "    for i in serial(8):",
        '        with block("C", i0=spatial(8, i)):',
        "            C[i0] = x[to[to[i0] % 8] % 8]",
        "    for i in serial(8):",
        '        with block("D", i0=spatial(8, i), where=to[i] % 8 < 4):',
        "            D[i0] = x[i0]",
    ]


def test_a_stage_that_was_split_can_still_be_inlined_or_moved():
    """Its conditions only say that its iterators are in their extents."""
    s = L.split(Schedule(windows().function), "p.i1", 4)
    assert "p" not in [b.name for b in ir.blocks(S.inline(s, "p").func.body)]
    s = L.fuse(Schedule(transposes().function), "y.i0", "i1")
    s = L.split(s, "y.i0_i1", 4)
    assert str(s.block("y").where) == "i0_i1_0 * 4 + i0_i1_1 < 18"
    assert [x.var.name for x in S.compute_at(s, "y", "z.i0").loops("y")] == ["i0", "y_i0"]


def test_compute_at_takes_the_box_of_all_readers():
    with pytest.raises(ScheduleError, match="y reads p outside of the loop"):
        S.compute_at(Schedule(windows().function), "p", "w.i0")
    s = Schedule(windows().function)
    for stage in ("s", "w", "p"):
        s = S.compute_at(s, stage, "y.i0", "local")
    assert [b.name for b in ir.blocks(s.func.body)] == ["p", "w", "s", "y"]
    assert [str(x.extent) for x in s.loops("p")] == ["4", "7"]


def test_compute_at_of_windows_is_cut_at_the_end():
    s = L.split(Schedule(conv().function), "relu.i0", 3)
    s = S.compute_at(s, "conv", "relu.i0_0", "local")
    s = S.compute_at(s, "pad", "conv.i0_0", "local")
    loops = [(x.var.name, str(x.extent)) for x in s.loops("pad")]
    assert loops == [("i0_0", "2"), ("pad_i0", "5"), ("pad_i1", "7"), ("pad_i2", "2")]
    assert str(s.block("pad").where) == "i0_0 * 3 + pad_i0 < 6"
    assert s.func.buffers["pad"].scope == "local"


def test_a_result_is_computed_where_all_of_it_is_read():
    func = parse(
        """\
def f(x: f32[n], *, T: f32[n], C: f32[n]):
    for i in serial(n):
        with block("T", i0=spatial(n, i)):
            T[i0] = x[i0]
    for i in serial(n):
        with block("C", i0=spatial(n, i)):
            C[i0] = T[n - 1 - i0]"""
    )
    s = S.compute_at(Schedule(func), "T", "C.i")
    assert [x.var.name for x in s.loops("T")] == ["i"]


def test_a_stage_moves_within_a_loop_that_carries_a_state():
    func = parse(
        """\
def f(x: f32[4, 8], *, C: f32[4, 8]):
    h = buffer(f32[5, 8], "global")
    T = buffer(f32[4, 8], "global")
    for i in serial(8):
        with block("h0", i0=spatial(8, i)):
            h[0, i0] = f32(0.0)
    for t in serial(4):
        for i in serial(8):
            with block("T", i0=spatial(4, t), i1=spatial(8, i)):
                T[i0, i1] = h[i0, i1] + x[i0, i1]
        for i in serial(8):
            with block("C", i0=spatial(4, t), i1=spatial(8, i)):
                C[i0, i1] = T[i0, i1]
        for i in serial(8):
            with block("h", i0=spatial(4, t), i1=spatial(8, i)):
                h[i0 + 1, i1] = x[i0, i1]"""
    )
    s = S.compute_at(Schedule(func), "T", "C.i", "register")
    assert [x.var.name for x in s.loops("T")] == ["t", "i"]
    assert "T" not in [b.name for b in ir.blocks(S.inline(Schedule(func), "T").func.body)]
