"""Functions as text and back, and equality up to names."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import pytest
from hypothesis import given

from planish.compiler.dtypes import F32, I32
from planish.compiler.errors import ParseError
from planish.compiler.expr.nodes import Const, Load, Var, maximum
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop
from planish.compiler.loop.text import canonical, parse, show, show_head, show_statement

from .programs import PROGRAMS, Program, functions, matmul, name, renamed

EVERYTHING = """\
def f(A: f32[64, 32], B: f32[32, n], s: f32[()], *, C: f32[64, n], D: i32[64]):
    T = buffer(f32[64, n], "global")
    R = buffer(f32[4, 8], "register")
    for i in parallel(64):
        for j in vector(48):
            for k in serial(32):
                with block("C", i0=spatial(64, i), i1=spatial(n, j), r0=reduce(32, k), init=f32(0.0), where=j < n):
                    C[i0, i1] += A[i0, r0] * B[r0, i1]
        if i < 3:
            with block("T", i0=spatial(64, i)):
                T[i0, 0] = s[()]
        else:
            pass
    for b in bind(64, "block.x"):
        with block("M", i0=spatial(64, b)):
            T[i0, 0] = max(T[i0, 0], f32(1.0))
        with block("N", i0=spatial(64, b), combiner=None):
            T[i0, 0] = min(T[i0, 0], f32(1.0))
        with block("P", i0=spatial(64, b)):
            T[i0, 0] *= f32(2.0)
        with block("D", i0=spatial(64, b)):
            D[i0] = i32(-1)"""


def test_everything_round_trips():
    func = parse(EVERYTHING)
    assert show(func) == EVERYTHING
    assert parse(show(func)) == func
    combiners = [s.combiner for s in func.body.body[1].body.body]
    assert combiners == ["max", None, "prod", None]
    assert func.symbols == (Var("n"),)


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_programs_round_trip(program: Program):
    assert parse(show(program.function)) == program.function


@given(functions())
def test_random_functions_round_trip(func: Function):
    assert parse(show(func)) == func


def test_a_statement_shows_alone():
    loop = matmul().function.body
    assert show_head(loop) == "for i0 in serial(6):"
    assert show_statement(loop).splitlines()[-1].strip() == "C[i0, i1] += A[i0, r0] * B[r0, i1]"


def test_symbols_that_shapes_do_not_imply_are_written():
    func = matmul(6, 5, Var("n")).function.with_(symbols=(Var("s"), Var("n")))
    assert "    symbols(s, n)" in show(func).splitlines()
    assert parse(show(func)) == func


def test_a_loop_variable_has_the_dtype_of_its_extent():
    i, i0 = Var("i", I32), Var("i0", I32)
    extent = Const(4, I32)
    block = Block("C", (Iter(i0, extent, "spatial", i),), "C", (i0,), Load("x", (i0,), F32))
    params = (Buffer("x", F32, (Const(4),)), Buffer("C", F32, (Const(4),)))
    func = Function("f", params, 1, (), (), Loop(i, extent, block))
    assert parse(show(func)) == func


def test_a_store_that_looks_like_an_update_stays_a_store():
    i = Var("i")
    target = Load("C", (i,), F32)
    block = Block("C", (Iter(i, Const(4), "spatial", i),), "C", (i,), maximum(target, 0.0))
    func = Function("f", (Buffer("C", F32, (Const(4),)),), 1, (), (), Loop(i, Const(4), block))
    assert parse(show(func)) == func


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "line 1: not one function"),
        ("def f(A: f32[2]):\n    for i in range(2):\n        pass", "line 2: there is no kind of"),
        ("def f(A: f32[2]):\n    while 1:\n        pass", "line 2: not a statement"),
        ("def f(A: f99[2]):\n    pass", "line 1: not a type: f99[2]"),
        ("def f(A):\n    pass", "line 1: A has no type"),
        ("def f(A: f32[2], *args):\n    pass", "line 1: parameters are names"),
        ("def f(A: f32[2]):\n    with block('A'):\n        A[0] = B[0]", "line 3: there is no buffer B"),
        ("def f(A: f32[2]):\n    with block('A'):\n        A[0] -= f32(1.0)", "line 3: a block holds"),
        ("def f(A: f32[2]):\n    with block('A', x=3):\n        A[0] = f32(1.0)", "line 2: a block has"),
        ("def f(A: f32[2]):\n    B = buffer(f32[2], 'lost')\n    pass", "line 2: there is no scope"),
        ("def f(A: f32[2]):\n    A = buffer(f32[2], 'local')\n    pass", "line 2: there are two"),
        ("def f(A: f32[2]):\n  for i in serial(2, 3):\n    pass", "line 2: not a loop over"),
        ("def f(A: f32[2]):\n    if 1 < f32(2.0):\n        pass", "line 2: operands are i64 and f32"),
        ("def f(A: f32[2]:\n    pass", "line 1"),
    ],
)  # fmt: skip
def test_bad_text_names_the_line(text: str, message: str):
    with pytest.raises(ParseError) as error:
        parse(text)
    assert error.value.message.startswith(message)
    assert error.value.node


# ------------------------------------------------------------------------------------ canonical


def test_canonical():
    assert show(canonical(matmul(6, 5, Var("n")).function)) == (
        """\
def f(b0: f32[6, 5], b1: f32[5, n0], *, b2: f32[6, n0]):
    for v0 in serial(6):
        for v1 in serial(n0):
            for v2 in serial(5):
                with block("s0", i0=spatial(6, v0), i1=spatial(n0, v1), i2=reduce(5, v2), init=f32(0.0)):
                    b2[i0, i1] += b0[i0, i2] * b1[i2, i1]"""
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_canonical_is_settled(program: Program):
    once = canonical(program.function)
    assert canonical(once) == once


@given(functions())
def test_names_do_not_matter_to_canonical(func: Function):
    assert canonical(renamed(func, "_")) == canonical(func)
    assert parse(show(canonical(func))) == canonical(func)


def test_structure_matters_to_canonical():
    assert canonical(matmul(6, 5, 7).function) != canonical(matmul(6, 5, 8).function)


def test_temporary_buffers_are_named_by_use():
    text = """\
def f(x: f32[2], *, y: f32[2]):
    {0} = buffer(f32[2], "global")
    {1} = buffer(f32[2], "local")
    for i in serial(2):
        with block("T", i0=spatial(2, i)):
            T[i0] = x[i0]
        with block("U", i0=spatial(2, i)):
            U[i0] = T[i0]"""
    types = {"T": "global", "U": "local"}
    a = text.format("T", "U")
    b = text.replace('"global"', '"x"').replace('"local"', '"global"').replace('"x"', '"local"')
    assert types and canonical(parse(a)) == canonical(parse(b.format("U", "T")))


def test_a_bound_block_sees_the_loops():
    text = """\
def f(x: f32[2], *, y: f32[2]):
    for i in serial(2):
        with block("y"):
            y[i] = x[i]"""
    func = parse(text)
    assert show(func) == text
    assert show(canonical(func)).splitlines()[-1].strip() == "b1[v0] = b0[v0]"
