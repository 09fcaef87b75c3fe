"""What never runs goes, and expressions are simple."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.tidy import tidy
from planish.compiler.loop.verify import verify

from .programs import functions
from .test_decompose import run

# (the body before, the body after), of f(x: f32[n, 8], *, C: f32[n, 8])
TABLE = {
    "expressions": (
        """\
    for i in serial(n * 4 // 4):
        for j in serial(8):
            with block("C", where=i < n and j + 1 < 9):
                C[(i * 8 + j) // 8, (i * 8 + j) % 8] = x[i, j] + f32(0.0) * f32(1.0)""",
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C", where=i < n):
                C[i, j] = x[i, j] + f32(0.0)""",
    ),
    "blocks that never run": (
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C"):
                C[i, j] = x[i, j]
        for j in serial(8):
            with block("D", where=8 < j):
                C[i, j] = f32(0.0)""",
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C"):
                C[i, j] = x[i, j]""",
    ),
    "conditions that are known": (
        """\
    for i in serial(n):
        for j in serial(8):
            if j < 8:
                with block("C"):
                    C[i, j] = x[i, j]
            else:
                with block("D"):
                    C[i, j] = f32(0.0)
            if 8 < j:
                with block("E"):
                    C[i, j] = f32(1.0)""",
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C"):
                C[i, j] = x[i, j]""",
    ),
    "a branch that is empty": (
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C"):
                C[i, j] = x[i, j]
            if i < 4:
                with block("D", where=j < 0):
                    C[i, j] = f32(0.0)
            else:
                with block("E"):
                    C[i, j] = f32(1.0)""",
        """\
    for i in serial(n):
        for j in serial(8):
            with block("C"):
                C[i, j] = x[i, j]
            if 4 <= i:
                with block("E"):
                    C[i, j] = f32(1.0)""",
    ),
    "starting values of reductions stay": (
        """\
    for i in serial(n):
        for j in serial(8):
            for k in serial(4):
                with block("C", i0=spatial(n, i), i1=spatial(8, j), r0=reduce(4, k), init=f32(2.0),
                           where=4 <= k):
                    C[i0, i1] += x[i0, i1]""",
        """\
    for i in serial(n):
        for j in serial(8):
            for k in serial(4):
                with block("C", i0=spatial(n, i), i1=spatial(8, j), r0=reduce(4, k), init=f32(2.0),
                           where=4 <= k):
                    C[i0, i1] += x[i0, i1]""",
    ),
}  # fmt: skip


def of(body: str) -> Function:
    return parse(f"def f(x: f32[n, 8], *, C: f32[n, 8]):\n{body}")


@pytest.mark.parametrize("name", TABLE)
def test_tidy(name: str):
    before, after = map(of, TABLE[name])
    found = tidy(verify(before))
    assert show(verify(found)) == show(after)
    array = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    np.testing.assert_array_equal(interpret(found, (array,)), interpret(before, (array,)))


@pytest.mark.parametrize("name", TABLE)
def test_what_is_tidy_is_the_same_object(name: str):
    once = tidy(of(TABLE[name][0]))
    assert tidy(once) is once


def test_nothing_may_be_left():
    func = parse("def f():\n    for i in serial(4):\n        if i < 0:\n            pass")
    assert show(tidy(func)) == "def f():\n    pass"


@given(functions())
def test_random_functions_keep_their_meaning(func: Function):
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([5 if d in func.symbols else int(str(d)) for d in b.shape]).astype("f4")
        for b in func.inputs
    ]
    wanted = run(func, arrays, {"n": 5})
    found = tidy(func)
    verify(found)
    if wanted is not None:
        for x, y in zip(run(found, arrays, {"n": 5}), wanted, strict=True):  # type: ignore[call-overload]
            np.testing.assert_array_equal(x, y)


def test_a_size_may_be_0():
    """What a condition on a symbol guards is left out only where a loop has made sure of it."""
    text = """\
def f(x: f32[n], *, y: f32[1], z: f32[n]):
    if n < 1:
        with block("none"):
            y[0] = f32(0.0)
    else:
        with block("some"):
            y[0] = x[n - 1]
    for i in serial(n):
        if n < 1:
            with block("never"):
                z[i] = f32(0.0)
        else:
            with block("always"):
                z[i] = x[i]"""
    wanted = text[: text.index('        if n < 1:\n            with block("never"')]
    wanted += '        with block("always"):\n            z[i] = x[i]'
    assert show(tidy(parse(text))) == wanted
