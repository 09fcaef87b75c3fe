"""Stages by numpy, in parts: as the interpreter has them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.errors import InternalError
from planish.compiler.loop import evaluate
from planish.compiler.loop.evaluate import evaluate_function, is_evaluable
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse

STAGES = parse("""\
def f(x: f32[3, 7], *, C: f32[7, 2, 3]):
    T = buffer(f64[7, 3], "global")
    for i in serial(7):
        for j in serial(3):
            with block("T", i0=spatial(7, i), i1=spatial(3, j)):
                T[i0, i1] = cast(x[i1, i0], f64) * f64(3.0)
    for i in serial(7):
        for j in serial(2):
            for k in serial(3):
                with block("C", i0=spatial(7, i), i1=spatial(2, j), i2=spatial(3, k)):
                    C[i0, i1, i2] = cast(select(i1 == 0, T[i0, i2], T[6 - i0, i2]), f32)
""")


@pytest.mark.parametrize("at_once", [1, 4, 17, 1 << 18])
def test_stages(at_once: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluate, "AT_ONCE", at_once)
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    for found, wanted in zip(evaluate_function(STAGES, [x]), interpret(STAGES, [x]), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


SUM = """\
def f(x: f32[8], *, C: f32[1]):
    for i in serial(1):
        for k in serial(8):
            with block("C", i0=spatial(1, i), r0=reduce(8, k), init=f32(0.0)):
                C[i0] += x[r0]
"""
BACK = """\
def f(x: f32[8], *, C: f32[8]):
    for i in serial(8):
        with block("C", i0=spatial(8, i)):
            C[7 - i0] = x[i0]
"""
PART = """\
def f(x: f32[8], *, C: f32[8]):
    for i in serial(8):
        with block("C", i0=spatial(8, i), where=i < 4):
            C[i0] = x[i0]
"""


@pytest.mark.parametrize("text", [SUM, BACK, PART], ids=["sum", "back", "part"])
def test_what_is_refused(text: str):
    func = parse(text)
    assert not is_evaluable(func)
    with pytest.raises(InternalError, match="not a function of plain stages"):
        evaluate_function(func, [np.zeros(8, np.float32)])
