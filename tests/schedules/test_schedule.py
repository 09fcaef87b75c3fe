"""Schedules, traces and what all moves have in common."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.errors import ParseError, ScheduleError
from planish.compiler.loop.text import parse, show
from planish.schedules.moves.loops import parallel, split
from planish.schedules.schedule import MOVES, Schedule, Step, parse_trace, replay
from planish.schedules.trace import show_trace, trace_from_json, trace_to_json

from .moves.programs import dense

COPY = parse(
    """\
def f(x: f32[30, 4], *, C: f32[30, 4]):
    for i in serial(30):
        for j in serial(4):
            with block("C", i0=spatial(30, i), i1=spatial(4, j)):
                C[i0, i1] = x[i0, i1]"""
)
TWICE = parse(
    """\
def f(x: f32[8], *, C: f32[8]):
    for i in serial(8):
        if i < 4:
            with block("C", i0=spatial(8, i)):
                C[i0] = x[i0]
        else:
            with block("C", i0=spatial(8, i)):
                C[i0] = f32(0.0)"""
)


def error(func: object) -> str:
    with pytest.raises(ScheduleError) as caught:
        func()  # type: ignore[operator]
    return str(caught.value)


# ---------------------------------------------------------------------------------------- names


def test_loops_and_blocks_are_found_by_name():
    s = Schedule(COPY)
    assert [x.var.name for x in s.loops("C")] == ["i", "j"]
    assert s.loop("C.j") is s.loops("C")[1]
    assert s.block("C").buffer == "C"


def test_what_is_not_there_is_an_error_that_says_what_is():
    s = Schedule(COPY)
    assert error(lambda: s.block("D")) == "there is no block D\n  hint: there are C"
    assert error(lambda: s.loop("C.k")) == (
        "there is no loop k around block C\n"
        "    for i in serial(30):\n"
        "        for j in serial(4):\n"
        '            with block("C", i0=spatial(30, i), i1=spatial(4, j)):\n'
        "                C[i0, i1] = x[i0, i1]\n"
        "  hint: there are i, j"
    )


def test_a_name_of_two_blocks_names_none():
    assert error(lambda: Schedule(TWICE).block("C")) == (
        "there are 2 blocks C\n  hint: there are C, C"
    )


# ---------------------------------------------------------------------------------------- moves


def test_moves_are_pure_and_recorded():
    before = Schedule(COPY)
    after = parallel(split(before, "C.i", 8), "C.i_0")
    assert before.func is COPY and not before.trace
    assert after.trace == (Step("split", ("C.i", 8)), Step("parallel", ("C.i_0",)))
    assert after.text() == "split('C.i', 8)\nparallel('C.i_0')"


def test_a_move_that_is_refused_changes_nothing():
    s = split(Schedule(COPY), "C.i", 8)
    with pytest.raises(ScheduleError):
        split(s, "C.i_0", 0)
    assert len(s.trace) == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("C.i",), ("C.i", "8"), ("C.i", 8.0), ("C.i", True), (3, 8), ("C.i", 8, 8), (("C.i",), 8)],
)
def test_arguments_are_checked(arguments: tuple[object, ...]):
    shown = ", ".join(map(repr, arguments))
    assert error(lambda: MOVES["split"](Schedule(COPY), *arguments)) == (
        f"split: it takes (path: str, factor: int)\n    split({shown})"
    )


def test_moves_take_no_keywords():
    assert error(lambda: MOVES["split"](Schedule(COPY), path="C.i", factor=8)) == (
        "split: moves take their arguments by position"
    )


def test_what_a_helper_raises_bears_the_name_of_the_move():
    found = error(lambda: MOVES["layout"](Schedule(dense().function), "dot", ("d0 +",), (4,)))
    assert found.startswith("layout: not an expression: ")


def test_errors_can_be_sent_to_another_process():
    with pytest.raises(ScheduleError) as caught:
        split(Schedule(COPY), "C.i", 0)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# --------------------------------------------------------------------------------------- traces

arguments = st.recursive(
    st.one_of(st.integers(-(1 << 40), 1 << 40), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
traces = st.lists(
    st.builds(Step, st.sampled_from(sorted(MOVES)), st.lists(arguments, max_size=4).map(tuple)),
    max_size=6,
).map(tuple)


@given(traces)
def test_traces_are_read_as_they_are_written(trace: tuple[Step, ...]):
    assert parse_trace(show_trace(trace)) == trace
    assert trace_from_json(trace_to_json(trace)) == trace


@pytest.mark.parametrize(
    "text",
    ["split(", "x = 3", "split", "s.split('C.i', 8)", "split('C.i', factor=8)", "split(*['C.i'])",
     "split('C.i', 8.0)", "split('C.i', True)", "split('C.i', None)", "split(('C.i'), [8])",
     "split('C.i', open('x'))", "split(" * 500, "\0"],
)  # fmt: skip
def test_what_is_no_trace_is_an_error(text: str):
    with pytest.raises(ParseError):
        parse_trace(text)


@pytest.mark.parametrize(
    "data",
    [{}, "split", [3], [[]], [[3]], ["split"], [["split", None]], [["split", 0.5]],
     [["split", True]], [["split", {"a": 1}]]],
)  # fmt: skip
def test_what_is_no_trace_in_json_is_an_error(data: object):
    with pytest.raises(ParseError):
        trace_from_json(data)


def test_a_trace_replays():
    s = parallel(split(Schedule(COPY), "C.i", 8), "C.i_0")
    again = replay(COPY, parse_trace(s.text()))
    assert again == s
    assert show(again.func) == show(s.func)


def test_a_trace_of_unknown_moves_does_not_replay():
    found = error(lambda: replay(COPY, (Step("twist", ("C.i",)),)))
    assert found.startswith("replay: there is no move twist\n  hint: one of bind, cache_read, ")


# -------------------------------------------------------------------------------- what is kept


def test_schedules_that_begin_alike_share_what_they_have_in_common():
    origin = Schedule(COPY, made={})
    first, second = (parallel(split(origin, "C.i", k), "C.i_0") for k in (5, 10))
    again = parallel(split(origin, "C.i", 5), "C.i_0")
    assert again is first
    assert first.func != second.func
    assert first == parallel(split(Schedule(COPY), "C.i", 5), "C.i_0")


def test_a_move_that_is_not_legal_stays_so():
    origin = Schedule(COPY, made={})
    found = {error(lambda: split(origin, "C.k", 5)) for _ in range(2)}
    assert found == {error(lambda: split(Schedule(COPY), "C.k", 5))}
