"""Traversals and properties of the loop IR."""

from __future__ import annotations

import pytest

from planish.compiler.dtypes import BF16, F32
from planish.compiler.expr.nodes import Const, Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, If, Loop, Seq, seq
from planish.compiler.loop.text import parse

from .programs import conv, matmul, softmax

J, N = Var("j"), Var("n")


def block(name: str) -> Block:
    return Block(name, (), "x", (), Const(1))


A, B, C = map(block, "ABC")


def test_a_buffer_knows_its_strides_and_size():
    buffer = Buffer("x", BF16, (Const(2), N, Const(4)))
    assert buffer.strides == (N * 4, Const(4), Const(1))
    assert buffer.bytes is Const(2) * N * 4 * 2
    assert Buffer("x", F32, ()).elements is Const(1)


def test_seq_flattens():
    assert seq(A) is A
    assert seq(A, seq(B, C)) == Seq((A, B, C))
    assert seq() == Seq(())


def test_children_and_back():
    for s in (A, Seq((A, B)), Loop(J, N, A), If(J < 3, A), If(J < 3, A, B)):
        assert ir.with_children(s, ir.children(s)) is s
    assert ir.with_children(If(J < 3, A, B), (B, A)) == If(J < 3, B, A)
    assert ir.with_children(Loop(J, N, A), (B,)) == Loop(J, N, B)


def test_walk_is_outer_first_in_order():
    s = Seq((Loop(J, N, A), If(J < 3, B, C)))
    assert list(ir.walk(s)) == [s, s.body[0], A, s.body[1], B, C]
    assert list(ir.blocks(s)) == [A, B, C]


def test_nests_have_the_loops_outermost_first():
    (loops, found), *_ = ir.nests(matmul().function.body)
    assert [x.var.name for x in loops] == ["i0", "i1", "r0"]
    assert found.name == "C"


def test_mapping_nothing_gives_the_same_object():
    body = conv().function.body
    assert ir.map_statements(body, lambda s: s) is body
    assert ir.map_blocks(body, lambda b: b) is body


def test_mapping_deletes():
    s = Seq((Loop(J, N, A), Loop(J, N, Seq((B, C)))))
    assert ir.map_statements(s, lambda x: None if x is A else x) == Loop(J, N, Seq((B, C)))
    assert ir.map_statements(s, lambda x: None if x is B else x) == Seq(
        (Loop(J, N, A), Loop(J, N, C))
    )
    assert ir.map_statements(s, lambda x: None if isinstance(x, Block) else x) is None


def test_mapping_replaces():
    body = softmax().function.body
    new = ir.map_blocks(body, lambda b: b.with_(name=b.name + "_"))
    assert [b.name for b in ir.blocks(new)] == ["top_", "e_", "total_", "y_"]


@pytest.mark.parametrize("kind", ["parameter", "temporary"])
def test_a_buffer_is_replaced_or_added(kind: str):
    func = softmax().function
    old = func.params[-1] if kind == "parameter" else func.temps[0]
    new = Buffer(old.name, F32, (Const(3),), old.scope)
    assert func.with_buffer(new).buffers[old.name] is new
    assert len(func.with_buffer(new).buffers) == len(func.buffers)
    added = Buffer("more", F32, (Const(3),), "local")
    assert func.with_buffer(added).temps[-1] is added


def test_inputs_and_results():
    func = matmul().function
    assert [b.name for b in func.inputs] == ["A", "B"]
    assert [b.name for b in func.results] == ["C"]
    assert [str(x.buffer) for x in ir.reads(next(ir.blocks(func.body)))] == ["A", "B"]


def test_a_function_without_results_has_inputs_only():
    func = parse("def f(x: f32[3]):\n    pass")
    assert func.results == ()
    assert len(func.inputs) == 1
