"""Which nests are the meaning of an intrinsic."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import pytest

from planish.compiler.expr.bounds import Interval
from planish.compiler.loop.intrinsics import INTRINSICS, matches
from planish.compiler.loop.ir import Loop, walk
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify

DOT = """\
def f(x: u8[6, 8, 4], w: i8[3, 2, 8, 4], *, y: i32[6, 24]):
    for m in serial(6):
        for n in serial(3):
            for k in serial(2):
                for i in serial(8):
                    for j in serial(4):
                        with block("y", i0=spatial(6, m), i1=spatial(24, n * 8 + i), r0=reduce(8, k * 4 + j)):
                            y[i0, i1] += cast(x[i0, r0 // 4 * 4 + 3, r0 % 4], i32) * cast(w[i1 // 8, r0 // 4, i1 % 8, r0 % 4], i32)"""


def found(text: str, start: bool = True) -> list[str]:
    """The intrinsics that the loop ``i`` is, and the variables around."""
    func = verify(parse(text))
    loops = [s for s in walk(func.body) if isinstance(s, Loop)]
    nest = next(x for x in loops if x.var.name == "i")
    known = {x.var: Interval(0, int(str(x.extent)) - 1) for x in loops[: loops.index(nest)]}
    return [name for name, x in INTRINSICS.items() if matches(nest, x, known, start)]


def test_every_intrinsic_is_its_own_meaning():
    for name, x in INTRINSICS.items():
        verify(x.meaning)
        assert isinstance(x.meaning.body, Loop)
        assert [k for k, y in INTRINSICS.items() if matches(x.meaning.body, y, {})] == [name]


def test_tiles_may_lie_anywhere():
    assert found(DOT) == ["vpdpbusd_256"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("u8", "i8"),
        ("i in serial(8)", "i in serial(4)"),
        ("j in serial(4)", "j in serial(2)"),
        ("i in serial(8)", "i in unrolled(8)"),
        ("+= cast(x", "+= 2 * cast(x"),
        ("+= cast(x", "+= cast(i0, i32) * cast(x"),
        ("i32) * cast(w", "i32) + cast(w"),
        ("i1 % 8, r0 % 4]", "i1 % 8, (r0 + i1) % 4]"),
        ("i1 % 8, r0 % 4]", "i1 % 8, 0]"),
        ("reduce(8, k * 4 + j))", "reduce(8, k * 4 + j), where=m < 5)"),
        ("r0 // 4 * 4 + 3, r0 % 4]", "r0 % 4, r0 // 4]"),
    ],
)
def test_what_differs_does_not_match(old: str, new: str):
    text = DOT.replace(old, new).replace("2 * cast", "i32(2) * cast")
    assert found(text) == []


def test_rows_of_a_tile_may_be_apart_but_not_their_elements():
    apart = DOT.replace("w: i8[3, 2, 8, 4]", "w: i8[24, 8]")
    apart = apart.replace("w[i1 // 8, r0 // 4, i1 % 8, r0 % 4]", "w[i1, r0]")
    assert found(apart) == ["vpdpbusd_256"]
    assert (
        found(apart.replace("i8[24, 8]", "i8[24, 8, 2]").replace("w[i1, r0]", "w[i1, r0, 1]")) == []
    )
    assert found(apart.replace("i8[24, 8]", "i8[8, 24]").replace("w[i1, r0]", "w[r0, i1]")) == []


def test_a_start_matches_only_where_it_is_stored_elsewhere():
    text = DOT.replace("k * 4 + j))", "k * 4 + j), init=i32(0))")
    assert found(text) == []
    assert found(text, start=False) == ["vpdpbusd_256"]
