"""Hints for targets: what is refused, and that they change nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planish.compiler.errors import CodegenError
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Loop, walk
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.compiler.pipeline import LOOP_PASSES, run
from planish.schedules.moves import buffers as B
from planish.schedules.moves import caches as C
from planish.schedules.moves import hints as H
from planish.schedules.moves import loops as L
from planish.schedules.moves import stages as S
from planish.schedules.schedule import Schedule

from .randomly import attempt
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


@given(st.integers(0, 1 << 32), st.integers(1, 15))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_whatever_moves_follow_hints_stay_true(seed: int, attempts: int):
    """The verifier asks; the passes drop what their parts of loops no longer are."""
    s = H.tensorize(wide(), "y.i_1", "vpdpbusd_256")
    s = S.compute_at(C.cache_read(s, "w", "y", "local"), "w_cache", "y.i_0")
    s = H.pipeline(s, "y.i_0", 2)
    assert [x.hint for x in walk(s.func.body) if isinstance(x, Loop) and x.hint] == [
        "pipeline(2)", "vpdpbusd_256"
    ]  # fmt: skip
    pick = random.Random(seed)
    for _ in range(attempts):
        s = attempt(s, pick)
    func = verify(s.func)
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(0, 9, (5, 24), np.uint8), rng.integers(-9, 9, (24, 24), np.int8)]
    wanted = arrays[0].astype(np.int32) @ arrays[1].astype(np.int32).T
    for p in LOOP_PASSES:
        try:
            func = p.run(func)
        except CodegenError:  # of registers that are too many is said here
            break
        p.check(func)
    np.testing.assert_array_equal(interpret(func, arrays)[0], wanted)
