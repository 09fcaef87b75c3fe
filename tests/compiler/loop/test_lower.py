"""Tensor expressions to naive loops."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import pytest

from planish.compiler.dtypes import F32
from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Var
from planish.compiler.loop import te
from planish.compiler.loop.ir import Loop, blocks, nests
from planish.compiler.loop.lower import lower
from planish.compiler.loop.text import show
from planish.compiler.loop.verify import verify

from .programs import PROGRAMS, Program, matmul, name, same_twice, softmax


def test_matmul():
    assert show(matmul(6, 5, Var("n")).function) == (
        """\
def matmul(A: f32[6, 5], B: f32[5, n], *, C: f32[6, n]):
    for i0 in serial(6):
        for i1 in serial(n):
            for r0 in serial(5):
                with block("C", i0=spatial(6, i0), i1=spatial(n, i1), r0=reduce(5, r0), init=f32(0.0)):
                    C[i0, i1] += A[i0, r0] * B[r0, i1]"""
    )


def test_stages_stand_in_order_and_inner_ones_are_temporary():
    func = softmax().function
    assert [b.name for b in blocks(func.body)] == ["top", "e", "total", "y"]
    assert [(b.name, b.scope) for b in func.temps] == [
        ("top", "global"), ("e", "global"), ("total", "global"),
    ]  # fmt: skip
    assert [b.name for b in func.inputs] == ["x"]
    assert [b.name for b in func.results] == ["y"]


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_loops_bear_the_names_of_axes(program: Program):
    func = verify(program.function)
    for loops, block in nests(func.body):
        assert [x.var for x in loops] == [i.var for i in block.iters]
        assert block.name == block.buffer
        assert all(i.binding is i.var for i in block.iters)


def test_names_do_not_depend_on_what_was_made_before():
    assert softmax().function == softmax().function


def test_an_output_that_is_an_input_or_stands_twice_is_a_copy():
    func = same_twice().function
    assert [b.name for b in func.results] == ["y", "x_1", "y_1"]
    assert show(func).count("y_1[i0] = y[i0]") == 1


def test_names_are_made_identifiers_and_unique():
    a, b = te.placeholder((2,), F32, "input.1"), te.placeholder((2,), F32, "input.1")
    c = te.compute((2,), lambda i: a[i] + b[i], "lambda")
    d = te.compute((2,), lambda i: c[i] * 2.0, "i0")
    func = verify(lower("f", [a, b], [d]))
    assert [*func.buffers] == ["input_1", "input_1_1", "t_i0", "t_lambda"]


def test_symbols_are_in_order_of_use():
    m, s = Var("m"), Var("shift")
    x = te.placeholder((m, Var("n")), F32, "x")
    y = te.compute((m,), lambda i: x[i, s], "y")
    assert lower("f", [x], [y]).symbols == (m, Var("n"), s)


def test_a_reduction_over_nothing_is_its_starting_value():
    x = te.placeholder((2, 0), F32, "x")
    y = te.reduce("max", (2,), (0,), lambda i, r: x[i, r], "y")
    func = verify(lower("f", [x], [y]))
    assert "y[i0] = f32('-inf')" in show(func)
    assert isinstance(func.body, Loop)


def test_nothing_is_computed_of_a_tensor_without_elements():
    x = te.placeholder((0, 3), F32, "x")
    y = te.compute((0, 3), lambda i, j: x[i, j], "y")
    assert show(verify(lower("f", [x], [y]))).endswith("pass")


def test_a_stage_among_the_inputs_is_given():
    x = te.placeholder((2,), F32, "x")
    y = te.compute((2,), lambda i: x[i] + 1.0, "y")
    z = te.compute((2,), lambda i: y[i] * 2.0, "z")
    func = lower("f", [y], [z])
    assert [*func.buffers] == ["y", "z"]


def test_a_placeholder_that_is_not_given_is_an_error():
    x = te.placeholder((2,), F32, "x")
    y = te.compute((2,), lambda i: x[i] + 1.0, "y")
    with pytest.raises(InternalError, match="not among the inputs"):
        lower("f", [], [y])
