"""Long runs of repeated steps become loops; short ones, and what chooses registers, stay."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.roll import roll
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify

TABLE = {
    "a loop that was split is one again": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for k_0 in serial((n + 3) // 4):
        for k_1 in unrolled(4):
            for i in unrolled(8):
                with block("C", where=k_0 * 4 + k_1 < n):
                    C[i] += x[k_0 * 4 + k_1, i]""",
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for k_1 in serial((n + 3) // 4 * 4):
        for i in unrolled(8):
            with block("C", where=k_1 < n):
                C[i] += x[k_1, i]""",
    ),
    "the innermost steps stay as far as there is room": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for a in unrolled(3):
        for b in unrolled(3):
            for i in unrolled(8):
                with block("C"):
                    C[i] += x[0, a * 3 + b + i]""",
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for a in serial(3):
        for b in unrolled(3):
            for i in unrolled(8):
                with block("C"):
                    C[i] += x[0, a * 3 + b + i]""",
    ),
    "few steps stay": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for k_0 in serial(4):
        for k_1 in unrolled(4):
            for i in unrolled(6):
                with block("C"):
                    C[i] += x[0, k_0 * 4 + k_1 + i]""",
        None,
    ),
    "other elements are no steps": (
        """\
def f(x: f32[n, 64], *, C: f32[64]):
    for i in unrolled(64):
        with block("C"):
            C[i] += x[0, i]""",
        None,
    ),
    "registers have to be known": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for i in unrolled(64):
        with block("C"):
            C[0] += R[i]""",
        None,
    ),
    "nor in conditions": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for i in unrolled(64):
        with block("C", where=R[i] < f32(1.0)):
            C[0] += f32(2.0)""",
        None,
    ),
    "loops that stay apart": (
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for a in serial(2):
        for b in unrolled(5):
            for i in unrolled(8):
                with block("C"):
                    C[i] += x[0, a * 7 + b + i]""",
        """\
def f(x: f32[n, 64], *, C: f32[8]):
    for a in serial(2):
        for b in serial(5):
            for i in unrolled(8):
                with block("C"):
                    C[i] += x[0, a * 7 + b + i]""",
    ),
}


def program(text: str) -> Function:
    """The program, its result starting as zeros."""
    head, _, rest = text.partition("\n")
    lines = ['    R = buffer(f32[64], "register")'] if "R[" in text else []
    lines += ["    for z in serial(8):", '        with block("Z"):', "            C[z] = f32(0.0)"]
    return verify(parse("\n".join([head, *lines, rest])))


@pytest.mark.parametrize("name", TABLE)
def test_roll(name: str):
    text, after = TABLE[name]
    before = program(text)
    body = roll(before.body, frozenset(b.name for b in before.temps))
    if after is None:
        assert body is before.body
        return
    found = verify(before.with_(body=body))
    assert show(found) == show(program(after))
    for n in range(1, 10):
        array = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        for x, y in zip(interpret(found, (array,)), interpret(before, (array,)), strict=True):
            np.testing.assert_array_equal(x, y)
