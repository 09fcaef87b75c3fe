"""Hints for targets: what is refused, and that they change nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Loop, walk
from planish.compiler.loop.text import parse, show
from planish.compiler.pipeline import LOOP_PASSES, run
from planish.schedules.moves import buffers as B
from planish.schedules.moves import hints as H
from planish.schedules.moves import loops as L
from planish.schedules.schedule import Schedule

from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("hints"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


DOT = parse(
    """\
def f(x: u8[5, 24], w: i8[20, 24], *, y: i32[5, 20]):
    for m in serial(5):
        for i in serial(20):
            for k in serial(24):
                with block("y", m=spatial(5, m), i=spatial(20, i), k=reduce(24, k), init=i32(0)):
                    y[m, i] += cast(x[m, k], i32) * cast(w[i, k], i32)"""
)


def test_an_intrinsic_is_found_in_any_form_of_its_operands():
    text = show(DOT).replace("u8", "i8")
    s = L.split(L.split(Schedule(parse(text)), "y.i", 4), "y.k", 4)
    s = L.reorder(s, "y", ("m", "i_0", "k_0", "i_1", "k_1"))
    plain = H.tensorize(s, "y.i_1", "sdot_128")
    assert plain.loop("y.i_1").hint == "sdot_128"
    packed = B.layout(s, "w", ("d0 // 4", "d1 // 4", "d0 % 4", "d1 % 4"), (5, 6, 4, 4))
    assert H.tensorize(packed, "y.i_1", "sdot_128").loop("y.i_1").hint == "sdot_128"


def test_hints_pass_through_the_passes_and_mean_nothing():
    s = L.parallel(H.tensorize(wide(), "y.i_1", "vpdpbusd_256"), "y.m")
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 9, (5, 24), np.uint8), rng.integers(-9, 9, (24, 24), np.int8)]
    wanted = arrays[0].astype(np.int32) @ arrays[1].astype(np.int32).T
    np.testing.assert_array_equal(interpret(s.func, arrays)[0], wanted)
    done = run(s.func, LOOP_PASSES)
    np.testing.assert_array_equal(interpret(done, arrays)[0], wanted)
    assert [x.hint for x in walk(done.body) if isinstance(x, Loop) and x.hint] == ["vpdpbusd_256"]
    assert parse(show(s.func)) == s.func


def wide() -> Schedule:
    s = Schedule(parse(show(DOT).replace("20", "24")))
    s = L.split(L.split(s, "y.i", 8), "y.k", 4)
    return L.reorder(s, "y", ("m", "i_0", "k_0", "i_1", "k_1"))
