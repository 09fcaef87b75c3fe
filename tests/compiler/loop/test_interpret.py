"""The interpreter: right values, and nothing undefined passes."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from planish.compiler.dtypes import ALL, DType
from planish.compiler.errors import InternalError, TypeCheckError
from planish.compiler.expr.nodes import Var
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse

from .programs import PROGRAMS, Program, functions, matmul, name


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_programs_give_numpys_answer(program: Program):
    arrays = program.arrays()
    found = interpret(program.function, arrays)
    for a, b in zip(found, program.answers(arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_both_speeds_agree_exactly(program: Program):
    arrays = program.arrays()
    fast, slow = (interpret(program.function, arrays, vectorize=v) for v in (True, False))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(a, b)


@given(functions())
def test_both_speeds_agree_on_random_functions(func: Function):
    rng = np.random.default_rng(0)
    size = {"n": 4}
    inputs = [
        rng.standard_normal([size["n"] if isinstance(d, Var) else int(d.value) for d in b.shape])  # type: ignore[attr-defined]
        .astype(np.float32)
        for b in func.inputs
    ]  # fmt: skip
    fast, slow = (interpret(func, inputs, vectorize=v) for v in (True, False))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(a, b)


TILED = """\
def matmul(A: f32[6, 5], B: f32[5, n], *, C: f32[6, n]):
    for io in bind(2, "block.x"):
        for jo in parallel((n + 3) // 4):
            for k in serial(5):
                for ii in unrolled(3):
                    for ji in vector(4):
                        with block("C", i0=spatial(6, io * 3 + ii), i1=spatial(n, jo * 4 + ji), r0=reduce(5, k), init=f32(0.0), where=jo * 4 + ji < n):
                            C[i0, i1] += A[i0, r0] * B[r0, i1]"""


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("columns", [1, 4, 7])
def test_tiles_with_a_guard(columns: int, vectorize: bool):
    program = matmul(6, 5, Var("n"), n=columns)
    arrays = program.arrays()
    (found,) = interpret(parse(TILED), arrays, vectorize=vectorize)
    np.testing.assert_array_equal(found, interpret(program.function, arrays)[0])


def run(text: str, *arrays: object, vectorize: bool = True, **symbols: int) -> np.ndarray:
    inputs = [np.asarray(a, np.float32) for a in arrays]
    return interpret(parse(text), inputs, symbols, vectorize=vectorize)[0]


both = pytest.mark.parametrize("vectorize", [True, False], ids=["grids", "points"])


@both
def test_a_scan_reads_what_it_wrote(vectorize: bool):
    text = """\
def scan(x: f32[n], *, y: f32[n]):
    for i in serial(n):
        with block("y", i0=spatial(n, i)):
            y[i0] = select(i0 == 0, f32(0.0), y[i0 - 1]) + x[i0]"""
    assert run(text, range(20), vectorize=vectorize)[-1] == 190


@both
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x[i0] +", "x[i0 + 1] +", r"block y: x\[20\] is outside x\[20\]"),
        ("y[i0] =", "y[i0 + 1] =", r"block y: y\[20\] is outside y\[20\]"),
        ("y[i0] =", "y[i0 - 1] =", r"block y: y\[-1\] is outside y\[20\]"),
        ("spatial(n, i)", "spatial(n, i + 1)", "block y: i0 is 20 of 20"),
        ("serial(n)", "serial(n - 1)", r"y\[19\] is not written"),
        ("+ f32(1.0)", "+ T[i0]", r"block y: T\[0\] is read but was never written"),
        ("y[i0] =", "y[i0] +=", r"block y: y\[0\] is updated but was never written"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str, vectorize: bool):
    text = """\
def f(x: f32[n], *, y: f32[n]):
    T = buffer(f32[n], "global")
    for i in serial(n):
        with block("y", i0=spatial(n, i)):
            y[i0] = x[i0] + f32(1.0)"""
    assert old in text
    with pytest.raises(InternalError, match=message):
        run(text.replace(old, new), range(20), vectorize=vectorize)


@both
def test_a_side_that_is_not_chosen_is_not_loaded(vectorize: bool):
    text = """\
def f(x: f32[n], *, y: f32[n + 2]):
    T = buffer(f32[n], "local")
    for i in serial(n):
        with block("T", i0=spatial(n, i), where=i < 5):
            T[i0] = x[i0]
    for i in serial(n + 2):
        with block("y", i0=spatial(n + 2, i)):
            y[i0] = select(i0 < n, select(i0 < 5, T[i0], x[i0]), f32(-1.0))"""
    np.testing.assert_array_equal(run(text, range(20), vectorize=vectorize)[-3:], [19, -1, -1])
    with pytest.raises(InternalError, match=r"T\[5\] is read but was never written"):
        run(text.replace("select(i0 < 5", "select(i0 < 6"), range(20), vectorize=vectorize)


@both
def test_a_temporary_is_unwritten_in_each_iteration(vectorize: bool):
    text = """\
def f(x: f32[4, 9], *, y: f32[4, 9]):
    T = buffer(f32[9], "local")
    for i in serial(4):
        if CONDITION:
            for j in serial(9):
                with block("T", i0=spatial(4, i), i1=spatial(9, j)):
                    T[i1] = x[i0, i1]
        for j in serial(9):
            with block("y", i0=spatial(4, i), i1=spatial(9, j)):
                y[i0, i1] = T[i1]"""
    x = np.arange(36).reshape(4, 9)
    np.testing.assert_array_equal(
        run(text.replace("CONDITION", "0 <= i"), x, vectorize=vectorize), x
    )
    with pytest.raises(
        InternalError, match=r"block y: T\[0\] is read but was never written .*i0=1"
    ):
        run(text.replace("CONDITION", "i < 1"), x, vectorize=vectorize)


@both
@pytest.mark.parametrize("binding", ["k", "8 - k", "(k + 3) % 9"])
def test_the_first_update_is_where_reduce_iterators_are_zero(binding: str, vectorize: bool):
    text = f"""\
def f(x: f32[2, 9], *, y: f32[2]):
    for k in serial(9):
        for i in serial(2):
            with block("y", i0=spatial(2, i), r0=reduce(9, {binding}), init=f32(0.0)):
                y[i0] += x[i0, r0]"""
    x = np.arange(18).reshape(2, 9)
    if binding == "k":
        np.testing.assert_array_equal(run(text, x, vectorize=vectorize), x.sum(1))
    else:
        with pytest.raises(InternalError, match="updated but was never written"):
            run(text, x, vectorize=vectorize)


@both
def test_elements_that_no_update_reaches_are_the_starting_value(vectorize: bool):
    """Lanes of a reduction of 5 elements in steps of 4 by 8 lanes."""
    text = """\
def f(x: f32[n], *, y: f32[9, 8]):
    for l in serial(9):
        for k in serial(4):
            for j in serial(8):
                with block("y", i0=spatial(9, l), i1=spatial(8, j), r0=reduce(4, k), init=f32(0.5), where=k * 8 + j < n and WHERE):
                    y[i0, i1] += x[r0 * 8 + i1]"""
    every = text.replace(" and WHERE", "")
    found = run(every, [1] * 5, vectorize=vectorize)
    np.testing.assert_array_equal(found, [[1.5] * 5 + [0.5] * 3] * 9)
    with pytest.raises(InternalError, match=r"y\[0, 7\] is not written"):
        run(text.replace("WHERE", "j < 7"), [1] * 5, vectorize=vectorize)


@both
def test_a_reduction_over_nothing_is_the_starting_value(vectorize: bool):
    program = matmul(3, Var("n"), 4)
    a, b = np.ones((3, 0), np.float32), np.ones((0, 4), np.float32)
    (found,) = interpret(program.function, [a, b], vectorize=vectorize)
    np.testing.assert_array_equal(found, np.zeros((3, 4)))


@both
def test_a_reduction_may_be_done_again(vectorize: bool):
    """In tiles that overlap."""
    text = """\
def f(x: f32[10, 9], *, y: f32[10]):
    for to in serial(3):
        for k in serial(9):
            for ti in serial(4):
                with block("y", i0=spatial(10, to * 3 + ti), r0=reduce(9, k), init=f32(0.0)):
                    y[i0] += x[i0, r0]"""
    x = np.arange(90).reshape(10, 9)
    np.testing.assert_array_equal(run(text, x, vectorize=vectorize), x.sum(1))


@both
def test_a_reduction_without_start_continues(vectorize: bool):
    text = """\
def f(x: f32[2, 9], *, y: f32[2]):
    for i in serial(2):
        with block("start", i0=spatial(2, i)):
            y[i0] = f32(100.0)
        for k in serial(9):
            with block("y", i0=spatial(2, i), r0=reduce(9, k)):
                y[i0] = max(y[i0], x[i0, r0])"""
    x = [[1] * 9, [200] * 9]
    np.testing.assert_array_equal(run(text, x, vectorize=vectorize), [100, 200])


@both
def test_a_scalar_result(vectorize: bool):
    text = """\
def f(x: f32[9], *, y: f32[()]):
    for k in serial(9):
        with block("y", r0=reduce(9, k), init=f32(1.0), where=k < 8):
            y[()] *= x[r0]"""
    assert run(text, [2] * 9, vectorize=vectorize) == 256


@both
def test_blocks_without_iterators_see_the_loops(vectorize: bool):
    text = """\
def f(x: f32[9, n], *, y: f32[n, 9]):
    for i in serial(9):
        for j in serial(n):
            if i < n:
                with block("y"):
                    y[j, i] = x[i, j]
            else:
                with block("z"):
                    y[j, i] = f32(0.0)"""
    x = np.ones((9, 8))
    assert run(text, x, vectorize=vectorize).sum() == 64


@both
def test_a_condition_in_a_nest(vectorize: bool):
    text = """\
def f(x: f32[10], *, y: f32[10]):
    for io in serial(4):
        for ii in serial(3):
            if io * 3 + ii < 10:
                with block("y", i0=spatial(10, io * 3 + ii)):
                    y[i0] = x[i0]"""
    np.testing.assert_array_equal(run(text, range(10), vectorize=vectorize), np.arange(10))


@both
@pytest.mark.parametrize("dtype", [t for t in ALL.values() if t.kind not in "bc"], ids=str)
@pytest.mark.parametrize(
    "update", ["y[()] += {}", "y[()] *= {}", "y[()] = max(y[()], {})", "y[()] = min(y[()], {})"]
)
def test_every_dtype(dtype: DType, update: str, vectorize: bool):
    text = f"""\
def f(x: {dtype}[9], *, y: {dtype}[()]):
    for k in serial(9):
        with block("y", r0=reduce(9, k), init={dtype}(3)):
            {update.format("x[r0]")}"""
    x = np.arange(2, 11).astype(dtype.numpy)
    (found,) = interpret(parse(text), [x], vectorize=vectorize)
    step = (
        np.add
        if "+=" in update
        else np.multiply
        if "*=" in update
        else np.maximum
        if "max" in update
        else np.minimum
    )
    expected = x.dtype.type(3)
    with np.errstate(all="ignore"):
        for v in x:
            expected = step(expected, v)
    wide = dtype.computed.numpy
    np.testing.assert_array_equal(found.astype(wide), np.asarray(expected).astype(wide))


@both
def test_bools_are_combined(vectorize: bool):
    text = """\
def f(x: bool[9], *, y: bool[()]):
    for k in serial(9):
        with block("y", r0=reduce(9, k), init=False):
            y[()] = max(y[()], x[r0])"""
    x = np.zeros(9, np.bool_)
    assert not interpret(parse(text), [x], vectorize=vectorize)[0]
    x[4] = True
    assert interpret(parse(text), [x], vectorize=vectorize)[0]


@both
def test_nan_is_kept(vectorize: bool):
    text = """\
def f(x: f32[9], *, y: f32[()]):
    for k in serial(9):
        with block("y", r0=reduce(9, k), init=f32('-inf')):
            y[()] = max(y[()], x[r0])"""
    assert np.isnan(run(text, [1, np.nan, *range(7)], vectorize=vectorize))


def test_large_nests_are_done_in_parts(monkeypatch: pytest.MonkeyPatch):
    from planish.compiler.loop import interpret as module

    program = matmul(6, 5, 7)
    arrays = program.arrays()
    expected = interpret(program.function, arrays)[0]
    monkeypatch.setattr(module, "MOST", 40)
    np.testing.assert_array_equal(interpret(program.function, arrays)[0], expected)


def test_inputs_must_fit():
    func = matmul(6, 5, Var("n")).function
    a, b = np.zeros((6, 5), np.float32), np.zeros((5, 7), np.float32)
    assert interpret(func, [a, b])[0].shape == (6, 7)
    with pytest.raises(TypeCheckError, match="2 inputs, not 1"):
        interpret(func, [a])
    with pytest.raises(TypeCheckError, match=r"B is f32\[5, n\], not float64"):
        interpret(func, [a, b.astype(np.float64)])
    with pytest.raises(TypeCheckError, match=r"B has shape \[4, 7\], not \[5, 7\]"):
        interpret(func, [a, b[:4]])
    with pytest.raises(TypeCheckError, match=r"B has shape \[5, 7\], not \[5, 8\]"):
        interpret(func, [a, b], {"n": 8})


def test_symbols_that_are_no_extent_are_given():
    text = """\
def f(x: f32[9], *, y: f32[m]):
    symbols(m, shift)
    for i in serial(m):
        with block("y", i0=spatial(m, i)):
            y[i0] = x[i0 + shift]"""
    np.testing.assert_array_equal(run(text, range(9), m=3, shift=2), [2, 3, 4])
    with pytest.raises(TypeCheckError, match="no value for shift"):
        run(text, range(9), m=3)
