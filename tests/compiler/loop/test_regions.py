"""Boxes of what statements touch, against the enumeration of all instances."""

from __future__ import annotations

from hypothesis import given

from planish.compiler.expr.nodes import Const, Var
from planish.compiler.loop.ir import Function, Loop, walk
from planish.compiler.loop.regions import footprint, region
from planish.compiler.loop.sites import sites
from planish.compiler.loop.text import parse

from .instances import MATMUL, iterations, loops, nests, value
from .programs import conv


def box(func: Function, loop: str, buffer: str, kind: str = "any") -> str:
    return str(region(loops(func)[loop].body, func.buffers[buffer], (), kind))


def test_regions_of_a_tile():
    assert box(MATMUL, "io", "A") == "((io * 8, 8), (0, 32))"
    assert box(MATMUL, "jo", "B") == "((0, 32), (jo * 8, 8))"
    assert box(MATMUL, "k", "A") == "((io * 8, 8), (k, 1))"
    assert box(MATMUL, "k", "C") == "((io * 8, 8), (jo * 8, 8))"
    assert box(MATMUL, "k", "C", "read") == "None"
    assert region(MATMUL.body, MATMUL.buffers["B"]) == MATMUL_B
    assert region(MATMUL.body, MATMUL.buffers["A"], (Var("io"),)) == (
        (Var("io") * 8, Const(8)),
        (Const(0), Const(32)),
    )
    assert footprint(loops(MATMUL)["k"].body, MATMUL.buffers["C"]) is Const(64)


MATMUL_B = ((Const(0), Const(32)), (Const(0), Var("n")))


def test_the_window_of_a_convolution():
    func = conv().function
    (tile,) = [
        s
        for s in walk(func.body)
        if isinstance(s, Loop) and s.var.name == "i3" and isinstance(s.body, Loop)
    ]
    assert str(region(tile.body, func.buffers["pad"], (), "read")) == (
        "((i0, 1), (0, 3), (i2, 3), (i3, 3))"
    )
    assert str(region(tile, func.buffers["pad"])) == "((i0, 1), (0, 3), (i2, 3), (0, 7))"


def test_indices_that_are_not_known_may_be_anything():
    func = parse(
        """\
def f(x: f32[9, 7], to: i64[8], *, y: f32[8]):
    for i in serial(8):
        with block("y", i0=spatial(8, i)):
            y[i0] = x[to[i0], i0 // 2 % 3]"""
    )
    assert str(region(func.body, func.buffers["x"])) == "((0, 9), (0, 3))"
    assert region(func.body, func.buffers["x"], (), "write") is None


@given(nests())
def test_regions_hold_what_is_touched(func: Function):
    outer = func.body
    assert isinstance(outer, Loop)
    for buffer in func.temps:
        found = region(outer.body, buffer)
        touched = [
            (env, tuple(v(env) for v in at))
            for s in sites(func.body)
            for a in s.accesses
            if a.buffer == buffer.name
            for at in [[value(i) for i in a.indices]]
            for env in iterations(s)
        ]
        if found is None:
            assert not touched
            continue
        bounds = [(value(lo), value(extent)) for lo, extent in found]
        for env, indices in touched:
            for i, (lo, extent) in zip(indices, bounds, strict=True):
                assert lo(env) <= i < lo(env) + extent(env) or i < 0
