"""Which local buffers get slots in the call's scratch, and how large."""

from __future__ import annotations

import pytest

from planish.compiler.loop.ir import Function
from planish.compiler.loop.slots import STACK_BYTES, backing, with_slots
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify


def rows(columns: str) -> Function:
    """Rows that pass through a local buffer."""
    return parse(f"""
def f(x: f32[40, {columns}], *, y: f32[40, {columns}]):
    t = buffer(f32[40, {columns}], "local")
    for i in parallel(40):
        for j in serial({columns}):
            with block("t", i0=spatial(40, i), i1=spatial({columns}, j)):
                t[i0, i1] = x[i0, i1]
        for j in serial({columns}):
            with block("y", i0=spatial(40, i), i1=spatial({columns}, j)):
                y[i0, i1] = t[i0, i1]
""")


@pytest.mark.parametrize(
    ("columns", "size"),
    [
        ("100", None),  # one row of it is small
        (str(STACK_BYTES // 4), None),
        (str(STACK_BYTES // 4 + 1), str(STACK_BYTES + 64)),
        ("n", "(n * 4 + 63) // 64 * 64"),
    ],
)
def test_slots(columns: str, size: str | None) -> None:
    func = rows(columns)
    found = with_slots(func, 2)
    if size is None:
        assert found is func
        return
    slots = found.buffers[backing("t")]
    assert slots.scope == "global"
    assert [str(d) for d in slots.shape] == ["4", size]
    assert parse(show(verify(found))) == found


def test_one_thread_needs_one_slot() -> None:
    assert [str(d) for d in with_slots(rows("n"), 1).buffers[backing("t")].shape][0] == "1"


def test_functions_without_local_buffers_are_left_alone() -> None:
    func = parse("""
def f(x: f32[4], *, y: f32[4]):
    for i in serial(4):
        with block("y", i0=spatial(4, i)):
            y[i0] = x[i0]
""")
    assert with_slots(func, 2) is func


def test_what_lives_on_a_stack_fits_there_together() -> None:
    """The smallest buffers do, as long as there is room."""
    part = STACK_BYTES // 4 // 2 - 16
    func = parse(f"""
def f(x: f32[8, {part}], *, y: f32[8, {part}]):
    a = buffer(f32[8, {part}], "local")
    b = buffer(f32[8, {part}], "local")
    c = buffer(f32[8, 16], "local")
    for i in parallel(8):
        for j in serial({part}):
            with block("a", i0=spatial(8, i), i1=spatial({part}, j)):
                a[i0, i1] = x[i0, i1]
        for j in serial({part}):
            with block("b", i0=spatial(8, i), i1=spatial({part}, j)):
                b[i0, i1] = a[i0, i1] * a[i0, i1]
        for j in serial(16):
            with block("c", i0=spatial(8, i), i1=spatial(16, j)):
                c[i0, i1] = a[i0, i1] + b[i0, i1]
        for j in serial({part}):
            with block("y", i0=spatial(8, i), i1=spatial({part}, j)):
                y[i0, i1] = a[i0, i1] + b[i0, i1] + c[i0, j % 16]
""")
    found = with_slots(func, 2).buffers
    assert backing("a") not in found
    assert backing("c") not in found
    assert (backing("b") in found) is (2 * 4 * part + 64 > STACK_BYTES)
    wide = parse(show(func).replace(str(part), str(part + 17)))
    assert backing("b") in with_slots(wide, 2).buffers
