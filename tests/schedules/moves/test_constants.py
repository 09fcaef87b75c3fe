"""What is computed ahead: what is refused, and that a form is the same for all functions alike."""

from __future__ import annotations

import pytest

from planish.compiler.loop.text import parse
from planish.schedules.moves.constants import precompute
from planish.schedules.schedule import Schedule

from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("constants"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


def test_a_form_does_not_depend_on_names():
    text = """\
def f({x}: f32[4], {w}: f32[4], *, C: f32[4]):
    W = buffer(f32[4], "global")
    for i in serial(4):
        with block("W", i0=spatial(4, i)):
            W[i0] = {w}[i0] * f32(2.0)
    for i in serial(4):
        with block("C", i0=spatial(4, i)):
            C[i0] = {x}[i0] * W[i0]
"""
    forms = [
        precompute(Schedule(parse(text.format(x=x, w=w))), "W").forms() for x, w in ("ab", "vu")
    ]
    assert forms[0] == forms[1]
    assert len({hash(f[1]) for f in forms}) == 1
