from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.program import Place, Program, Step, slot_layout
from planish.targets.llvm.entry import entry_ir
from planish.targets.llvm.native import NativeCode, load_object, object_code
from planish.targets.llvm.symbols import MAIN, PROFILE
from planish.targets.llvm.target import host

A, B = Var("a"), Var("b")
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PROFILED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

# Writes its symbol, the offset of its scratch and the number of threads.
RECORD = """
define void @record(ptr %to, ptr %base, i64 %symbol, ptr %scratch, ptr %pool, i64 %threads) {
  store i64 %symbol, ptr %to
  %start = ptrtoint ptr %base to i64
  %end = ptrtoint ptr %scratch to i64
  %offset = sub i64 %end, %start
  %to.1 = getelementptr i64, ptr %to, i64 1
  store i64 %offset, ptr %to.1
  %to.2 = getelementptr i64, ptr %to, i64 2
  store i64 %threads, ptr %to.2
  %to.3 = getelementptr i64, ptr %to, i64 3
  store ptr %pool, ptr %to.3
  ret void
}
"""


def program(*sizes: Expr) -> Program:
    """One step for each size: its value goes to output k."""
    steps = tuple(
        Step(
            "record",
            (Place("output", k), Place("arena")),
            (size,),
            Place("arena", 0, Const(8, I64)),
        )
        for k, size in enumerate(sizes)
    )
    ports: Any = tuple(range(len(sizes)))
    return Program("record", (), ports, (A, B), {}, steps, (), Const(0, I64))


def compiled(whole: Program) -> NativeCode:
    objects = (
        object_code(RECORD, host()),
        object_code(entry_ir(whole), host(), level=0),
    )
    return load_object(objects, (MAIN, PROFILE))


def call(whole: Program, a: int, b: int, code: NativeCode | None = None) -> np.ndarray:
    code = code or compiled(whole)
    layout = slot_layout(whole)
    out = np.zeros((max(1, len(whole.steps)), 4), np.int64)
    arena = np.zeros(64, np.int64)
    slots = np.zeros(layout.words, np.int64)
    slots[layout.POOL], slots[layout.THREADS], slots[layout.ARENA] = 77, 5, arena.ctypes.data
    for k in range(len(whole.steps)):
        slots[layout.output(k)] = out[k].ctypes.data
    slots[layout.symbol(0)], slots[layout.symbol(1)] = a, b
    ENTRY(code.address(MAIN))(slots.ctypes.data)
    return out


# Size, and what it is in Python.
SIZES = [
    (n.add(A, B), lambda a, b: a + b),
    (n.sub(A, B), lambda a, b: a - b),
    (n.mul(A, B), lambda a, b: a * b),
    (n.floordiv(A, B), lambda a, b: a // b if b else 0),
    (n.floormod(A, B), lambda a, b: a % b if b else 0),
    (n.div(A, B), lambda a, b: int(np.trunc(a / b)) if b else 0),
    (n.floordiv(A, 8), lambda a, b: a // 8),
    (n.floormod(A, 8), lambda a, b: a % 8),
    (n.div(A, 8), lambda a, b: int(np.trunc(a / 8))),
    (n.floordiv(A, 7), lambda a, b: a // 7),
    (n.floormod(A, 7), lambda a, b: a % 7),
    (n.floordiv(A, -3), lambda a, b: a // -3),
    (n.floormod(A, -3), lambda a, b: a % -3),
    (n.minimum(A, B), lambda a, b: min(a, b)),
    (n.maximum(A, B), lambda a, b: max(a, b)),
    (n.select(n.lt(A, B), A, B), lambda a, b: a if a < b else b),
    (n.select(n.le(A, B), 1, 2), lambda a, b: 1 if a <= b else 2),
    (n.select(n.eq(A, B), 1, 2), lambda a, b: 1 if a == b else 2),
    (n.select(n.ne(A, B), 1, 2), lambda a, b: 1 if a != b else 2),
    (n.select(n.all_of(n.lt(A, 3), n.lt(B, 3)), 1, 2), lambda a, b: 1 if a < 3 and b < 3 else 2),
    (n.select(n.any_of(n.lt(A, 3), n.lt(B, 3)), 1, 2), lambda a, b: 1 if a < 3 or b < 3 else 2),
    (n.select(n.not_(n.eq(A, B)), 1, 2), lambda a, b: 1 if a != b else 2),
    (n.cast(n.lt(A, B), I64), lambda a, b: int(a < b)),
    (n.floordiv(n.add(n.mul(A, 4), 63), 64), lambda a, b: (a * 4 + 63) // 64),
]
ALL = program(*(size for size, _ in SIZES))


@pytest.fixture(scope="module")
def code() -> NativeCode:
    return compiled(ALL)


numbers = st.integers(-5, 5) | st.integers(-(1 << 20), 1 << 20)


@given(a=numbers, b=numbers)
def test_sizes_are_what_they_are_in_python(code: NativeCode, a: int, b: int) -> None:
    out = call(ALL, a, b, code)
    assert out[:, 0].tolist() == [meaning(a, b) for _, meaning in SIZES]


@given(a=numbers, b=numbers)
def test_sizes_in_the_runtime_agree(a: int, b: int) -> None:
    from planish.compiler.expr.compiled import compile_sizes

    found = compile_sizes(("a", "b"), tuple(size for size, _ in SIZES))(a, b)
    assert list(found) == [meaning(a, b) for _, meaning in SIZES]


def test_slots_reach_the_kernel() -> None:
    (row,) = call(program(A), 9, 0)
    assert row.tolist() == [9, 8, 5, 77]


def test_a_program_may_have_no_steps() -> None:
    call(program(), 1, 2)


def test_the_profile_has_a_time_for_each_step() -> None:
    whole = program(A, B, A)
    code = compiled(whole)
    layout = slot_layout(whole)
    out, arena = np.zeros((3, 4), np.int64), np.zeros(64, np.int64)
    slots = np.zeros(layout.words, np.int64)
    slots[layout.ARENA] = arena.ctypes.data
    for k in range(3):
        slots[layout.output(k)] = out[k].ctypes.data
    slots[layout.symbol(0)], slots[layout.symbol(1)] = 4, 6
    times = np.full(4, -1, np.int64)
    PROFILED(code.address(PROFILE))(slots.ctypes.data, times.ctypes.data)
    assert out[:, 0].tolist() == [4, 6, 4]
    assert (times[:3] >= 0).all()
    assert times[3] == -1


@pytest.mark.parametrize(
    "size",
    [Var("c"), n.cast(Const(0.5, F32) * n.cast(A, F32), I64), n.Load("x", (A,), I64)],
    ids=["another symbol", "a float", "an element"],
)
def test_what_is_no_size(size: Expr) -> None:
    with pytest.raises(CodegenError, match="a size"):
        entry_ir(program(size))


def test_a_function_called_in_two_ways() -> None:
    step = program(A).steps[0]
    other = Step("record", step.arguments[:1], step.symbols, step.scratch)
    whole = Program("x", (), (0,), (A, B), {}, (step, other), (), Const(0, I64))  # type: ignore[arg-type]
    with pytest.raises(CodegenError, match="different numbers of arguments"):
        entry_ir(whole)
