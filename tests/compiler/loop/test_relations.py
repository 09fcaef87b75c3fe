"""Dependences as relations, and whether reorderings respect them."""

from __future__ import annotations

import pytest
from hypothesis import given

from planish.compiler.expr.nodes import Var
from planish.compiler.loop.ir import Function
from planish.compiler.loop.relations import dependences, legal_order
from planish.compiler.loop.text import parse, show

from .instances import MATMUL, SCAN, TWO, meetings, nests
from .programs import conv, layer_norm, matmul, reshape, softmax


def test_dependences_of_softmax():
    found = [(d.kind, d.source, d.sink, d.buffer) for d in dependences(softmax().function)]
    assert found == [
        ("flow", "top", "e", "top"),
        ("flow", "e", "total", "e"),
        ("flow", "e", "y", "e"),
        ("flow", "total", "y", "total"),
    ]


def test_dependences_of_a_scan():
    found = [(d.kind, d.source, d.sink) for d in dependences(SCAN)]
    assert found == [("flow", "C", "C")]


def test_a_function_is_in_its_own_order():
    for program in (matmul(), softmax(), conv(), layer_norm(), reshape()):
        assert legal_order(program.function, program.function) is None


def test_tiling_is_legal():
    before = matmul(64, 32, Var("n")).function
    assert legal_order(before, MATMUL) is None
    assert legal_order(before, MATMUL, {"n": 16}) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("jo * 8 + ji < n", "jo * 8 + ji + 1 < n", "instances of C are left out"),
        ("serial(32)", "serial(31)", "instances of C are left out"),
        ("reduce(32, k)", "reduce(32, k // 2)", "instances of C are left out"),
        ("unrolled(8)", "unrolled(9)", "instances of C run more than once"),
    ],
)
def test_every_instance_runs_once(old: str, new: str, message: str):
    after = parse(show(MATMUL).replace(old, new))
    found = legal_order(matmul(64, 32, Var("n")).function, after)
    assert found is not None
    assert found.message.startswith(message)


def test_stages_in_the_wrong_order_are_found():
    func = softmax().function
    assert isinstance(func.body, ir_seq := type(func.body))
    top, e, total, y = func.body.body  # type: ignore[union-attr]
    found = legal_order(func, func.with_(body=ir_seq((top, total, e, y))))
    assert found is not None
    assert found.message == "total no longer comes after e (flow, e)"
    fine = func.with_(body=ir_seq((top, e, total, y)))
    assert legal_order(func, fine) is None


def test_a_stage_may_be_computed_where_it_is_used():
    before = parse(TWO.replace("READ", "i1"))
    after = parse(
        """\
def two(x: f32[8, n], *, y: f32[8, n]):
    T = buffer(f32[8, n], "local")
    for i in parallel(8):
        for j in serial(n):
            with block("T", i0=spatial(8, i), i1=spatial(n, j)):
                T[i0, i1] = x[i0, i1] * f32(2.0)
            with block("y", i0=spatial(8, i), i1=spatial(n, j)):
                y[i0, i1] = T[i0, i1] + x[i0, i1]"""
    )
    assert legal_order(before, after) is None
    late = parse(TWO.replace("READ", "n - 1 - i1"))
    assert legal_order(late, after) is not None


@given(nests())
def test_dependences_agree_with_enumeration(func: Function):
    expected = set()
    for s, p, t, q, buffer in meetings(func):
        shared = [x for x in s.loops if x in t.loops]
        now = tuple(p[x.var.name] for x in shared)
        then = tuple(q[x.var.name] for x in shared)
        inner = tuple(p[x.var.name] for x in s.loops), tuple(q[x.var.name] for x in t.loops)
        before = s.steps[-1] < t.steps[-1] if s is not t else inner[0] < inner[1]
        if now < then or (now == then and before):
            expected.add((s.block.name, t.block.name, buffer))
    assert {(d.source, d.sink, d.buffer) for d in dependences(func)} == expected
