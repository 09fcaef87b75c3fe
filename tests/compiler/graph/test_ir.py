"""Building graphs: names, contents, conditions, rewriting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planish.compiler.dtypes import BOOL, F32, I32, I64
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, const
from planish.compiler.graph.ir import (
    MAX_CONTENT,
    GraphBuilder,
    Node,
    Replacement,
    Value,
    assume,
    collecting_assumptions,
    identifier,
    rewrite,
    tensor,
    unify,
)
from planish.compiler.graph.verify import verify
from planish.compiler.ops.activations import Relu
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.shape import Concat, Reshape, ShapeOf, Split

N, M = Var("n"), Var("m")


def numbers(*values: int) -> tuple[Expr, ...]:
    return tuple(as_expr(v) for v in values)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a", "a"),
        ("/m/a.b:0", "m_a_b_0"),
        ("", "v"),
        ("::", "v"),
        ("0x", "_0x"),
        ("in", "in_"),
        ("é", "v"),
    ],
)
def test_identifiers(name: str, wanted: str) -> None:
    assert identifier(name) == wanted and wanted.isidentifier()


def test_names_are_made_unique() -> None:
    b = GraphBuilder()
    assert [b.fresh(name) for name in ("a", "a", "a_1", "a", "")] == [
        "a",
        "a_1",
        "a_1_1",
        "a_2",
        "v",
    ]


def test_types_are_inferred_and_normal() -> None:
    b = GraphBuilder()
    x, y = b.input("x", tensor(F32, 1 + N, 3)), b.input("y", tensor(F32, N + 1, 3))
    z = b.one(Concat(1), x, y, name="z")
    assert str(z.type) == "f32[n + 1, 6]" and not b.constraints


def test_contents_follow_shapes() -> None:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N, 4, M))
    s = b.one(ShapeOf(), x)
    assert s.content == (N, Const(4, I64), M)
    parts = b.apply(Split(numbers(1, 2)), s)
    assert [p.content for p in parts] == [(N,), (Const(4, I64), M)]
    doubled = b.one(Add(), parts[0], parts[0])
    assert doubled.content == (n.mul(N, 2),)
    joined = b.one(Concat(0), doubled, b.constant(np.array([7])))
    assert joined.content == (n.mul(N, 2), Const(7, I64))
    assert b.one(Reshape(()), parts[0]).content == (N,)


def test_contents_are_of_whole_numbers_that_fit() -> None:
    b = GraphBuilder()
    top = b.constant(np.array([2**31 - 1], np.int32))
    assert top.content == (const(2**31 - 1, I64),)
    assert b.one(Add(), top, top).content != (const(2**32 - 2, I64),)
    assert b.one(Cast(F32), top).content is None
    assert b.constant(np.array([True, False])).content == (Const(True, BOOL), Const(False, BOOL))
    assert b.constant(np.zeros(MAX_CONTENT + 1, np.int64)).content is None
    assert b.constant(np.zeros(2, np.float32)).content is None


def test_errors_name_the_node() -> None:
    b = GraphBuilder()
    x, y = b.input("x", tensor(F32, 2)), b.input("y", tensor(I32, 2))
    with pytest.raises(TypeCheckError, match="operands are f32 and i32") as caught:
        b.one(Add(), x, y, origin="/layer/Add")
    assert caught.value.node == "add(x: f32[2], y: i32[2])  # /layer/Add"


def test_constants_do_not_change() -> None:
    b = GraphBuilder()
    array = np.zeros(3, np.float32)
    value = b.constant(array[1:])
    array[:] = 1
    np.testing.assert_array_equal(b.constants[value], [0, 0])
    assert not b.constants[value].flags.writeable


def test_equal_dimensions() -> None:
    sink: list[Expr] = []
    with collecting_assumptions(sink):
        assert unify(as_expr(3), as_expr(3), "") is as_expr(3)
        assert unify(N + 1, 1 + N, "") is n.add(N, 1)
        assert not sink
        assert unify(N, as_expr(3), "") is as_expr(3)
        assert unify(N * M, M, "") is M
    assert list(map(str, sink)) == ["n == 3", "m * n == m"]
    with pytest.raises(TypeCheckError, match="they differ: 2 and 3"):
        unify(as_expr(2), as_expr(3), "they differ")


def test_conditions_are_kept_once_and_the_strongest() -> None:
    sink: list[Expr] = []
    with collecting_assumptions(sink):
        for condition in (
            n.le(1, N),
            n.lt(2, N),
            n.le(2, N),
            n.le(1, N * 4),
            n.eq(M, N),
            n.eq(N, M),
        ):
            assume(condition)
        assume(n.le(0, M))
        with pytest.raises(TypeCheckError):
            assume(n.lt(N, 0))
    assert list(map(str, sink)) == ["3 <= n", "n == m"]


def test_symbols_and_uses() -> None:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N, M))
    y = b.one(Add(), x, x)
    g = b.finish([y])
    assert g.symbols == (N, M)
    assert g.producers()[y].op == Add()
    assert g.uses() == {x: [g.nodes[0]] * 2}
    assert list(g.values()) == [x, y]


def example() -> tuple[GraphBuilder, Value]:
    b = GraphBuilder()
    x = b.input("x", tensor(F32, N))
    return b, b.one(Relu(), b.one(Relu(), b.one(Add(), x, x)))


def rewritten(
    visit: Callable[[GraphBuilder, Node, tuple[Value | None, ...]], Replacement],
) -> list[str]:
    b, y = example()
    g = rewrite(b.finish([y]), visit)
    verify(g)
    return [node.op.name for node in g.nodes]


def test_rewrite() -> None:
    b, y = example()
    g = b.finish([y])
    assert rewrite(g, lambda b, node, inputs: None) is g

    def once(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        made = next((m for m in b.nodes if m.outputs[0] is inputs[0]), None)
        same = made is not None and made.op == node.op == Relu()
        return inputs[0] if same else None

    def twice(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        return b.one(Relu(), b.one(node.op, *inputs)) if node.op == Add() else None

    assert rewritten(once) == ["add", "relu"]
    assert rewritten(twice) == ["add", "relu", "relu", "relu"]
