"""Scratch buffers are cut down to what is used of them at a time."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.errors import CodegenError
from planish.compiler.loop.compact import compact
from planish.compiler.loop.decompose import bind
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify, verify_stored

# (declaration and body before, after), of f(x: f32[n, 32], *, C: f32[n, 32])
TABLE = {
    "a tile": (
        """\
    T = buffer(f32[n, 32], "SCOPE")
    for i in serial(n):
        for j_0 in serial(4):
            for j in serial(8):
                with block("T"):
                    T[i, j_0 * 8 + j] = x[i, j_0 * 8 + j]
            for j in serial(8):
                with block("C"):
                    C[i, j_0 * 8 + j] = T[i, j_0 * 8 + (j + 3) % 8]""",
        """\
    T = buffer(f32[1, 8], "SCOPE")
    for i in serial(n):
        for j_0 in serial(4):
            for j in serial(8):
                with block("T"):
                    T[0, j] = x[i, j_0 * 8 + j]
            for j in serial(8):
                with block("C"):
                    C[i, j_0 * 8 + j] = T[0, (j + 3) % 8]""",
    ),
    "loops of one name and other extents": (
        """\
    T = buffer(f32[n, 32], "SCOPE")
    for i in serial(n):
        for j in serial(32):
            with block("T"):
                T[i, j % 16 * 2 + j // 16] = x[i, j]
        for j in serial(16):
            with block("C"):
                C[i, j] = T[i, j % 16 * 2]
        for j in serial(16):
            with block("D"):
                C[i, j + 16] = T[i, j % 16 * 2 + 1]""",
        """\
    T = buffer(f32[1, 32], "SCOPE")
    for i in serial(n):
        for j in serial(32):
            with block("T"):
                T[0, j % 16 * 2 + j // 16] = x[i, j]
        for j in serial(16):
            with block("C"):
                C[i, j] = T[0, j * 2]
        for j in serial(16):
            with block("D"):
                C[i, j + 16] = T[0, j * 2 + 1]""",
    ),
    "windows with a border": (
        """\
    T = buffer(f32[n, 34], "SCOPE")
    for i in serial(n):
        for j_0 in serial(4):
            for t in serial(10):
                with block("T"):
                    T[i, j_0 * 8 + t] = select(0 < j_0 * 8 + t and j_0 * 8 + t < 33, x[i, j_0 * 8 + t - 1], f32(0.0))
            for j in serial(8):
                with block("C"):
                    C[i, j_0 * 8 + j] = T[i, j_0 * 8 + j] + T[i, j_0 * 8 + j + 2]""",
        """\
    T = buffer(f32[1, 10], "SCOPE")
    for i in serial(n):
        for j_0 in serial(4):
            for t in serial(10):
                with block("T"):
                    T[0, t] = select(0 < j_0 * 8 + t and j_0 * 8 + t < 33, x[i, j_0 * 8 + t - 1], f32(0.0))
            for j in serial(8):
                with block("C"):
                    C[i, j_0 * 8 + j] = T[0, j] + T[0, j + 2]""",
    ),
    "extents that are read": (
        """\
    T = buffer(f32[n, 32], "SCOPE")
    k = buffer(i64[n], "global")
    for i in serial(n):
        with block("k"):
            k[i] = 31
        for j in serial(32):
            with block("T"):
                T[i, j] = x[i, j]
        for j in serial(k[i] + 1):
            with block("C"):
                C[i, j] = T[i, j]""",
        """\
    T = buffer(f32[1, 32], "SCOPE")
    k = buffer(i64[n], "global")
    for i in serial(n):
        with block("k"):
            k[i] = 31
        for j in serial(32):
            with block("T"):
                T[0, j] = x[i, j]
        for j in serial(k[i] + 1):
            with block("C"):
                C[i, j] = T[0, j]""",
    ),
    "conditions read as well": (
        """\
    T = buffer(f32[n, 32], "SCOPE")
    for i in serial(n):
        for j in serial(32):
            with block("T"):
                T[i, j] = x[i, j]
        for j in serial(32):
            with block("C0"):
                C[i, j] = f32(0.0)
            with block("C", where=f32(0.0) < T[i, j]):
                C[i, j] = T[i, j]""",
        """\
    T = buffer(f32[1, 32], "SCOPE")
    for i in serial(n):
        for j in serial(32):
            with block("T"):
                T[0, j] = x[i, j]
        for j in serial(32):
            with block("C0"):
                C[i, j] = f32(0.0)
            with block("C", where=f32(0.0) < T[0, j]):
                C[i, j] = T[0, j]""",
    ),
}  # fmt: skip


def of(body: str, scope: str) -> Function:
    text = f"def f(x: f32[n, 32], *, C: f32[n, 32]):\n{body}"
    return parse(text.replace("SCOPE", scope))


@pytest.mark.parametrize("scope", ["local", "register"])
@pytest.mark.parametrize("name", TABLE)
def test_compact(name: str, scope: str):
    before, after = (of(body, scope) for body in TABLE[name])
    found = compact(verify(before))
    assert show(verify_stored(found)) == show(after)
    array = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    np.testing.assert_array_equal(interpret(found, (array,)), interpret(before, (array,)))


def test_global_buffers_are_left_alone():
    func = of(TABLE["a tile"][0], "global")
    assert compact(func) is func


def test_what_is_compact_is_the_same_object():
    func = of(TABLE["a tile"][1], "local")
    assert compact(func) is func


def test_a_buffer_that_nothing_uses_goes():
    func = parse(
        """\
def f(x: f32[4], *, C: f32[4]):
    T = buffer(f32[4], "local")
    for i in serial(4):
        with block("C"):
            C[i] = x[i]"""
    )
    assert compact(func).temps == ()


def test_registers_of_unknown_number_are_an_error():
    func = parse(
        """\
def f(x: f32[n], *, C: f32[n]):
    T = buffer(f32[n], "register")
    for i in serial(n):
        with block("T", i0=spatial(n, i)):
            T[i0] = x[i0]
    for i in serial(n):
        with block("C", i0=spatial(n, i)):
            C[i0] = T[n - 1 - i0]"""
    )
    with pytest.raises(CodegenError) as caught:
        compact(bind(func))
    assert str(caught.value) == (
        "compact: T is kept in registers, but its size is not constant\n"
        "    T: f32[n]\n"
        "  hint: compute it inside of a loop, or keep it in local memory"
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_part_that_grows_with_a_loop_is_taken_whole(n: int):
    func = parse(
        """\
def f(x: f32[n, 8], *, C: f32[n, 8]):
    T = buffer(f32[n, 8], "local")
    for i in serial(n):
        for j in serial(i + 1):
            for k in serial(8):
                with block("T"):
                    T[j, k] = x[j, k] * f32(2.0)
        for k in serial(8):
            with block("C"):
                C[i, k] = T[i // 2, k]"""
    )
    array = np.random.default_rng(0).standard_normal((n, 8)).astype(np.float32)
    found = compact(func)
    np.testing.assert_array_equal(interpret(found, (array,)), interpret(func, (array,)))
