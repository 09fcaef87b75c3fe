"""What of a loop's body may run ahead."""

# ruff: noqa: E501 (lines of tables)

from __future__ import annotations

import pytest

from planish.compiler.loop.ir import Loop, walk
from planish.compiler.loop.pipelining import ahead
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify

TEXT = """\
def f(x: f32[4, 8], *, C: f32[5, 8], D: f32[8]):
    T = buffer(f32[8], "local")
    U = buffer(f32[8], "local")
    for j in serial(8):
        with block("C0", j=spatial(8, j)):
            C[0, j] = x[0, j]
    for i in serial(4):
        for j in serial(8):
            with block("T", i=spatial(4, i), j=spatial(8, j)):
                T[j] = x[i, j]
        for j in serial(8):
            with block("U", j=spatial(8, j)):
                U[j] = T[7 - j] * f32(2.0)
        for j in serial(8):
            with block("C", i=spatial(4, i), j=spatial(8, j)):
                C[i + 1, j] = U[j]
    for j in serial(8):
        with block("D", j=spatial(8, j)):
            D[j] = C[4, j]"""


@pytest.mark.parametrize(
    ("old", "new", "count", "reason"),
    [
        ("", "", 2, ""),
        ("U[j] = T[7 - j]", "U[j] = C[0, j]", 0, "U uses C, which the loop writes"),
        ("D[j] = C[4, j]", "D[j] = U[j]", 1, ""),
        ("D[j] = C[4, j]", "D[j] = T[j]", 0, "no statement in front of others fills a buffer of the loop"),
        ("U = buffer(f32[8], \"local\")", "U = buffer(f32[8], \"global\")", 1, ""),
        ("T[j] = x[i, j]", "T[j] = C[0, j]", 0, "T uses C, which the loop writes"),
    ],
)  # fmt: skip
def test_ahead(old: str, new: str, count: int, reason: str):
    func = verify(parse(TEXT.replace(old, new) if old else TEXT))
    loop = next(s for s in walk(func.body) if isinstance(s, Loop) and s.var.name == "i")
    assert ahead(func, loop) == (count, reason)


def test_parts_of_a_loop_share_what_each_would_fill():
    text = TEXT.replace("in serial(4)", "in serial(3)")
    start, part, rest = text.partition("    for i in")
    body, end = (part + rest).split('    for j in serial(8):\n        with block("D"')
    again = body.replace("i in serial(3)", "i in serial(1)")
    again = again.replace("spatial(4, i)", "spatial(4, i + 3)")
    func = verify(
        parse(f'{start}{body}{again}    for j in serial(8):\n        with block("D"{end}')
    )
    for loop in walk(func.body):
        if isinstance(loop, Loop) and loop.var.name == "i":
            assert ahead(func, loop)[0] == 0
