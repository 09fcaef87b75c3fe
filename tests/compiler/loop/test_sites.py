"""Sites, accesses and what follows from indices."""

from __future__ import annotations

from planish.compiler.expr.nodes import TRUE, Var
from planish.compiler.loop.ir import Loop, blocks
from planish.compiler.loop.sites import accesses, joined, sites, start_where
from planish.compiler.loop.text import parse

from .instances import MATMUL
from .programs import softmax


def test_joined_indices():
    f, k, m = Var("f"), Var("k"), Var("m")
    assert f in joined((f // 4, f % 4)).values()
    assert f in joined((f // k, f % k)).values()
    assert f in joined((f // (k * m), f // m % k, f % m)).values()
    assert f in joined((f // (m * k * 3), f // (m * 3) % k, f // 3 % m, f % 3)).values()
    assert f not in joined((f // 4, f % 3)).values()


def test_accesses_are_in_terms_of_loops():
    (site,) = sites(MATMUL.body)
    assert [(a.buffer, a.kind, str(a.indices)) for a in site.accesses] == [
        ("C", "update", "(io * 8 + ii, jo * 8 + ji)"),
        ("A", "read", "(io * 8 + ii, k)"),
        ("B", "read", "(k, jo * 8 + ji)"),
    ]
    assert accesses(site.block) is site.accesses


def test_steps_order_sites():
    found = sites(softmax().function.body)
    assert [s.block.name for s in found] == ["top", "e", "total", "y"]
    assert sorted(found, key=lambda s: s.steps) == list(found)
    assert all(len(s.steps) == len(s.loops) + 1 for s in found)


def test_sites_know_their_conditions():
    func = parse(
        """\
def f(*, y: f32[4]):
    for i in serial(4):
        if i < 2:
            with block("a", i0=spatial(4, i)):
                y[i0] = f32(1.0)
        else:
            with block("b", i0=spatial(4, i)):
                y[i0] = f32(2.0)"""
    )
    assert [(str(c), holds) for s in sites(func.body) for c, holds in s.guards] == [
        ("i < 2", True),
        ("i < 2", False),
    ]
    assert isinstance(func.body, Loop)


def test_a_start_does_not_depend_on_loops_that_only_reduce():
    text = """\
def f(x: f32[n], *, y: f32[8]):
    for k in serial(4):
        for j in serial(8):
            with block("y", i0=spatial(8, j), r0=reduce(4, k), init=f32(0.0), where=WHERE):
                y[i0] += x[r0 * 8 + i0]"""

    def start(where: str) -> object:
        (block,) = blocks(parse(text.replace("WHERE", where)).body)
        return start_where(block)

    assert start("k * 8 + j < n") is TRUE
    assert str(start("k < 3 and j < 7 and 2 < n")) == "j < 7 and 2 < n"
