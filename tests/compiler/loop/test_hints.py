"""Hints of loops: which hold, that the verifier finds the others, and that passes drop them."""

from __future__ import annotations

import pytest

from planish.compiler.errors import InternalError
from planish.compiler.loop.decompose import bind, decompose
from planish.compiler.loop.hints import is_marked, stale, without_stale
from planish.compiler.loop.ir import Function
from planish.compiler.loop.partition import partition
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.tidy import tidy
from planish.compiler.loop.verify import verify

TILE = """\
def f(x: f32[30, 8], *, C: f32[30]):
    T = buffer(f32[8], "local")
    for i in serial(30, hint="pipeline(2)"):
        for j in serial(8):
            with block("T", i=spatial(30, i), j=spatial(8, j)):
                T[j] = x[i, j]
        for k in serial(8):
            with block("C", i=spatial(30, i), k=reduce(8, k), init=f32(0.0)):
                C[i] += T[k]"""
DOT = """\
def f(x: u8[16], w: i8[8, 16], *, y: i32[8]):
    for k_0 in serial(4):
        for i in serial(8, hint="vpdpbusd_256"):
            for k_1 in serial(4):
                with block("y", i0=spatial(8, i), r0=reduce(16, k_0 * 4 + k_1), init=i32(0)):
                    y[i0] += cast(x[r0], i32) * cast(w[i0, r0], i32)"""


@pytest.mark.parametrize("text", [TILE, TILE.replace("pipeline(2)", "pipeline(3)"), DOT])
def test_hints_that_hold(text: str):
    func = verify(parse(text))
    assert stale(func) is None and is_marked(func.body)
    assert without_stale(func) is func
    assert is_marked(verify(bind(decompose(func))).body)


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        (TILE, "pipeline(2)", "pipeline(1)", "1 stages overlap nothing"),
        (TILE, "pipeline(2)", "pipeline", "there is no intrinsic pipeline"),
        (TILE, "i in serial(30, ", "i in unrolled(30, ", "the loop is unrolled"),
        (TILE, '"local"', '"global"', "no statement in front of others fills a buffer of the loop"),
        (DOT, "vpdpbusd_256", "wmma", "there is no intrinsic wmma"),
        (DOT, "vpdpbusd_256", "sdot_128", "the nest is not what sdot_128 does"),
        (DOT, "k_1 in serial", "k_1 in vector", "the nest is not what vpdpbusd_256 does"),
        (DOT, "k_0 in serial(4)", "k_0 in serial(1)", "the nest is not what vpdpbusd_256 does"),
    ],
)
def test_the_verifier_finds_hints_that_do_not_hold(text: str, old: str, new: str, reason: str):
    text = text.replace(old, new)
    if "serial(1)" in new:  # then the starting value is of the nest itself
        text = text.replace("k_0 * 4 + k_1", "k_1").replace("16", "4")
    func = parse(text)
    with pytest.raises(InternalError) as error:
        verify(func)
    assert error.value.message.endswith(f" does not hold: {reason}")
    plain = verify(without_stale(func))
    assert not is_marked(plain.body) and plain == unmarked(func)


def unmarked(func: Function) -> Function:
    lines = show(func).splitlines()
    return parse("\n".join(f"{x.partition(', hint=')[0]}):" if "hint=" in x else x for x in lines))


def test_parts_of_a_pipelined_loop_are_not_marked():
    """Each part would have to own the buffer that both fill."""
    func = parse(
        """\
def f(x: f32[30], *, C: f32[30]):
    T = buffer(f32[8], "local")
    for i in serial(4, hint="pipeline(2)"):
        for j in vector(8):
            with block("T", i=spatial(30, i * 8 + j), j=spatial(8, j), where=i * 8 + j < 30):
                T[j] = x[i]
        for j in vector(8):
            with block("C", i=spatial(30, i * 8 + j), j=spatial(8, j), where=i * 8 + j < 30):
                C[i] = T[j]"""
    )
    parts = partition(bind(verify(func)))
    assert is_marked(func.body) and not is_marked(verify(parts).body)
    whole = parse(show(func).replace("30", "32"))
    assert is_marked(verify(partition(bind(verify(whole)))).body)


def test_what_is_left_of_a_pipelined_loop_is_not_marked():
    text = TILE.replace("init=f32(0.0)", "init=f32(0.0), where=k < 0")
    func = bind(decompose(verify(parse(text))))
    assert is_marked(func.body)
    left = parse(show(func).replace('block("C_init")', 'block("C_init", where=i < 0)'))
    assert not is_marked(verify(tidy(verify(left))).body)
