"""What the verifier lets pass, and what it says of the rest."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import pytest
from hypothesis import given

from planish.compiler.dtypes import F32
from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Const, Var
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Seq
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify, verify_stored

from .programs import PROGRAMS, Program, functions, matmul, name


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_programs_are_well_formed(program: Program):
    func = program.function
    assert verify(func) is func


@given(functions())
def test_random_functions_are_well_formed(func: Function):
    verify(func)


def body(text: str, head: str = "A: f32[8, n], *, C: f32[8, n]") -> Function:
    lines = "\n".join("    " + line for line in text.strip("\n").splitlines())
    return parse(f"def f({head}):\n{lines}")


STORE = 'with block("C", i0=spatial(8, i), i1=spatial(n, j)):\n            C[i0, i1] = A[i0, i1]'
GOOD = f"""
for i in parallel(8):
    for j in serial(n):
        {STORE}
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "node"),
    [
        ("serial(n)", "serial(m)", "m is not known here", "for j in serial(m):"),
        ("A[i0, i1]", "A[i0, j]", "j is not known here", "with block"),
        ("A[i0, i1]", "A[i0]", "A has rank 2, not 1", "with block"),
        ("C[i0, i1] =", "C[i0] =", "C has rank 2, not 1", "with block"),
        ("C[i0, i1] =", "A[i0, i1] =", "the input A is written", "with block"),
        ("A[i0, i1]", "i0", "i64 goes into C, f32", "with block"),
        ("A[i0, i1]", "A[i0, f32(1.0)]", "an index of A is f32", "with block"),
        ("spatial(8, i)", "spatial(8, k)", "k is not known here", "with block"),
        ("spatial(8, i)", "spatial(8, i + 1)", "i0 leaves its extent", "with block"),
        ("spatial(8, i)", "spatial(8, i - 1)", "i0 leaves its extent", "with block"),
        ("spatial(n, j)", "spatial(n, j + 1)", "i1 leaves its extent", "with block"),
        ("spatial(n, j)", "spatial(n - 1, j)", "i1 leaves its extent", "with block"),
        ("spatial(8, i)", "spatial(0, i)", "the extent 0 is not positive", "with block"),
        ("spatial(8, i)", "reduce(8, i)", "reduce iterators, and no combiner", "with block"),
        ("i1=spatial(n, j)", "i1=spatial(n, j), init=f32(0.0)", "a starting value, and no", "with block"),
        ("C[i0, i1] =", "C[i0, i1] +=", None, None),
        ("parallel(8)", "parallel(0)", "the extent 0 is not positive", "for i in parallel(0):"),
        ("parallel(8)", "parallel(f32(8.0))", "an extent is f32", "for i in parallel(f32(8.0)):"),
        ("serial(n)", "vector(n)", "a vector loop of symbolic extent", "for j in vector(n):"),
        ("for j in serial(n)", "for i in serial(n)", "i has a meaning already", "for i in serial(n):"),
        ("i1=spatial(n, j)", "i1=spatial(n, j), where=i", "where is not bool", "with block"),
        ("i1=spatial(n, j)", "n=spatial(n, j)", "n is a symbol", "with block"),
        ('block("C"', 'block(""', "a block without a proper name", "with block"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(old: str, new: str, message: str | None, node: str | None):
    verify(body(GOOD))
    assert old in GOOD
    func = body(GOOD.replace(old, new))
    if message is None:
        verify(func)
        return
    with pytest.raises(InternalError) as error:
        verify(func)
    assert error.value.message.startswith(message)
    assert error.value.node is not None
    assert error.value.node.startswith(node)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "for i in vector(8):\n    for j in parallel(8):\n        pass",
            "a parallel loop in a vector",
        ),
        (
            'for i in bind(2, "thread.x"):\n    for j in bind(2, "thread.x"):\n        pass',
            "thread.x is bound",
        ),
        ("if n:\n    pass", "the condition is not bool"),
        ('T = buffer(f32[m], "local")\npass', "m is not known here"),
        ('T = buffer(f32[2], "param")\npass', "param is no scope of a temporary"),
        (
            'for i in serial(8):\n    with block("C", i0=spatial(8, i), i0_=spatial(n, 0), r0=reduce(8, i), init=f32(0.0)):\n        C[r0, i0_] += A[i0, i0_]',
            "r0 is not known here",
        ),
        (
            'for i in serial(8):\n    with block("C", i0=spatial(8, i), r0=reduce(n, 0), init=i0):\n        C[i0, 0] += A[i0, r0]',
            "init is i64, not f32",
        ),
    ],
)
def test_more_that_is_wrong(text: str, message: str):
    with pytest.raises(InternalError) as error:
        verify(body(text))
    assert error.value.message.startswith(message)


def test_a_guard_keeps_an_iterator_in_its_extent():
    tiles = """
for io in serial((n + 3) // 4):
    for ii in vector(4):
        for i in serial(8):
            with block("C", i0=spatial(8, i), i1=spatial(n, io * 4 + ii), where=io * 4 + ii < n):
                C[i0, i1] = A[i0, i1]
"""
    verify(body(tiles))
    with pytest.raises(InternalError, match="i1 leaves its extent"):
        verify(body(tiles.replace(", where=io * 4 + ii < n", "")))


def test_a_condition_keeps_an_iterator_in_its_extent():
    text = """
for io in serial(3):
    for ii in vector(3):
        if io * 3 + ii < 8 and n > 0:
            with block("C", i0=spatial(8, io * 3 + ii), i1=spatial(n, 0)):
                C[i0, i1] = A[i0, i1]
"""
    verify(body(text))
    with pytest.raises(InternalError, match="i0 leaves its extent"):
        verify(body(text.replace("if io * 3 + ii < 8", "if io * 3 + ii < 9")))
    with pytest.raises(InternalError, match="i1 leaves its extent"):  # there may be no column
        verify(body(text.replace(" and n > 0", "")))


def test_what_cannot_be_decided_passes():
    verify(
        body(
            """
for f in serial(8 * n):
    with block("C", i0=spatial(8, f // n), i1=spatial(n, f % n)):
        C[i0, i1] = A[i0, i1]
"""
        )
    )


def test_declarations_are_distinct_names():
    func = matmul().function
    twice = func.with_(temps=(Buffer("A", F32, (Const(1),), "local"),))
    with pytest.raises(InternalError, match="A is declared twice"):
        verify(twice)
    with pytest.raises(InternalError, match="not an identifier"):
        verify(func.with_(name="a b"))
    with pytest.raises(InternalError, match="not an identifier"):
        verify(func.with_(temps=(Buffer("in", F32, (), "local"),)))
    with pytest.raises(InternalError, match="more results than parameters"):
        verify(func.with_(outputs=4))


def test_stored_registers_have_a_constant_shape():
    func = body('T = buffer(f32[n], "register")\npass')
    assert verify(func) is func
    with pytest.raises(InternalError, match="a register buffer's shape is not constant"):
        verify_stored(func)
    assert verify_stored(matmul().function) == matmul().function


def test_sequences_are_flat():
    block = next(iter([matmul().function.body]))
    with pytest.raises(InternalError, match="a sequence in a sequence"):
        verify(matmul().function.with_(body=Seq((Seq((block, block)), block))))
    with pytest.raises(InternalError, match="a sequence of one"):
        verify(matmul().function.with_(body=Seq((block,))))


def test_dtypes_of_iterators_agree():
    from planish.compiler.dtypes import I32

    i = Var("i", I32)
    iters = (Iter(Var("i0"), Const(2), "spatial", i),)
    block = Block("x", iters, "x", (Var("i0"),), Const(1))
    func = Function("f", (Buffer("x", F32, (Const(2),)),), 1, (), (), Loop(i, Const(2, I32), block))
    with pytest.raises(InternalError, match="i0 is i64, its extent i64, its value i32"):
        verify(func)
