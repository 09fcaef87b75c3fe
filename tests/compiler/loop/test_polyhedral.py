"""What loops may be done in another order, against the enumeration of all instances."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.expr.nodes import Var
from planish.compiler.loop import polyhedral
from planish.compiler.loop.ir import Function, Loop, Stmt, walk
from planish.compiler.loop.polyhedral import carried, fused, reduces, reordered
from planish.compiler.loop.sites import sites
from planish.compiler.loop.text import parse

from .instances import MATMUL, SCAN, TWO, loops, meetings, nests

# --------------------------------------------------------------------------------- known answers


def test_tiles_of_a_matmul_are_independent():
    for loop in loops(MATMUL).values():
        assert carried(MATMUL, loop) is None


def test_reduces_is_about_the_loop_itself():
    found = {v for v, loop in loops(MATMUL).items() if reduces(loop) is not None}
    assert found == {"k"}


def test_a_scan_is_carried_by_its_loop_only():
    found = carried(SCAN, loops(SCAN)["i"])
    assert found is not None
    assert str(found) == "C touches C at the same element in different iterations of i"
    assert carried(SCAN, loops(SCAN)["j"]) is None


def test_a_skewed_dependence_forbids_the_exchange():
    text = """\
def skew(A: f32[9, 9], *, C: f32[9, 9]):
    for i in serial(8):
        for j in serial(8):
            with block("C", i0=spatial(8, i), i1=spatial(8, j)):
                C[i0 + 1, i1] = C[i0, i1 + 1] + A[i0, i1]"""
    func = parse(text)
    chain = list(loops(func).values())
    order = [Var("j"), Var("i")]
    assert reordered(func, chain, order) is not None
    assert reordered(func, chain, [Var("i"), Var("j")]) is None
    straight = parse(text.replace("i1 + 1]", "i1]"))
    assert reordered(straight, list(loops(straight).values()), order) is None


def test_a_reduction_may_be_done_in_any_order():
    chain = list(loops(MATMUL).values())
    for order in itertools.permutations([x.var for x in chain]):
        assert reordered(MATMUL, chain, order) is None


@pytest.mark.parametrize(("read", "legal"), [("i1", True), ("n - 1 - i1", False), ("0", True)])
def test_loops_are_fused_if_nothing_is_read_before_it_is_written(read: str, legal: bool):
    func = parse(TWO.replace("READ", read))
    first, second = [s for s in walk(func.body) if isinstance(s, Loop) and s.var.name == "j"]
    assert (fused(func, first, second) is None) is legal


def test_a_buffer_of_the_loop_is_no_dependence_of_it():
    text = """\
def f(x: f32[8, 4], *, y: f32[8, 4]):
    T = buffer(f32[4], "global")
    for i in serial(8):
        for j in serial(4):
            with block("T", i0=spatial(8, i), i1=spatial(4, j)):
                T[i1] = x[i0, i1]
        for j in serial(4):
            with block("y", i0=spatial(8, i), i1=spatial(4, j)):
                y[i0, i1] = T[i1]"""
    shared, own = parse(text), parse(text.replace('"global"', '"local"'))
    assert carried(shared, loops(shared)["i"]) is not None
    assert carried(own, loops(own)["i"]) is None


@pytest.mark.parametrize("extent", ["n", "7"])
def test_a_fused_and_split_loop_is_independent(extent: str):
    func = parse(
        """\
def f(x: f32[8, N], *, y: f32[8, N]):
    for fo in parallel((8 * N + 15) // 16):
        for fi in vector(16):
            with block("y", i0=spatial(8, (fo * 16 + fi) // N), i1=spatial(N, (fo * 16 + fi) % N), where=fo * 16 + fi < 8 * N):
                y[i0, i1] = x[i0, i1]""".replace("N", extent)
    )
    for loop in loops(func).values():
        assert carried(func, loop) is None


def test_three_fused_loops_are_independent():
    func = parse(
        """\
def f(x: f32[k, m, n], *, y: f32[k, m, n]):
    for f in parallel(k * m * n):
        with block("y", i0=spatial(k, f // (m * n)), i1=spatial(m, f // n % m), i2=spatial(n, f % n)):
            y[i0, i1, i2] = x[i0, i1, i2]"""
    )
    assert carried(func, loops(func)["f"]) is None


def test_unknown_indices_are_taken_to_meet():
    func = parse(
        """\
def f(x: f32[8], to: i64[8], *, y: f32[8]):
    for i in serial(8):
        with block("y", i0=spatial(8, i)):
            y[to[i0]] = x[i0]"""
    )
    assert carried(func, loops(func)["i"]) is not None


def test_conditions_are_seen():
    text = """\
def f(x: f32[8], *, y: f32[8]):
    for i in serial(8):
        if i < 4:
            with block("a", i0=spatial(8, i)):
                y[i0] = x[i0]
        else:
            with block("b", i0=spatial(8, i)):
                y[i0 + SHIFT] = x[i0]"""
    apart, meeting = parse(text.replace("SHIFT", "0")), parse(text.replace("SHIFT", "(-1)"))
    assert carried(apart, loops(apart)["i"]) is None
    assert carried(meeting, loops(meeting)["i"]) is not None


STEPS = """\
def f(x: f32[8, n], k: i64[8, n], *, y: f32[8, n]):
    for i in serial(8):
        for j in serial(n):
            with block("zero", i0=spatial(8, i), i1=spatial(n, j)):
                y[i0, i1] = f32(0.0)
        for j in serial(n):
            if f32(0.0) < y[READ, j]:
                with block("y"):
                    y[ROW, k[i, j]] = x[i, j]"""


@pytest.mark.parametrize(
    ("row", "read", "legal"),
    [("i", "i", True), ("k[i, 0]", "i", False), ("i", "(i + 1) % 8", False), ("i", "7", False)],
)
def test_plain_statements_meet_where_their_indices_may(row: str, read: str, legal: bool):
    """Rows are independent if they are told apart by what is known; conditions read, too."""
    func = parse(STEPS.replace("ROW", row).replace("READ", read))
    rows, inner = func.body, [x for x in walk(func.body) if isinstance(x, Loop)][2]
    assert isinstance(rows, Loop)
    assert (carried(func, rows) is None) is legal
    assert carried(func, inner) is not None


def test_extents_that_are_read_are_seen():
    text = """\
def f(k: i64[9], *, y: i64[9]):
    for i in serial(9):
        with block("y"):
            y[i] = k[i]
        for j in serial(y[READ]):
            with block("more"):
                y[i] = y[i] + j"""
    apart, meeting = parse(text.replace("READ", "i")), parse(text.replace("READ", "0"))
    assert carried(apart, loops(apart)["i"]) is None
    assert carried(meeting, loops(meeting)["i"]) is not None


# ---------------------------------------------------------------------------------- enumeration


@given(nests())
def test_carried_agrees_with_enumeration(func: Function):
    scopes = {b.name: b.scope for b in func.temps}
    for loop in [s for s in walk(func.body) if isinstance(s, Loop)]:
        inside = [s for s in sites(func.body) if loop in s.loops]
        users = {
            b: [s for s in sites(func.body) if b in {a.buffer for a in s.accesses}] for b in scopes
        }
        found = False
        for s, p, t, q, buffer in meetings(func):
            if s not in inside or t not in inside:
                continue
            if scopes[buffer] == "local" and all(u in inside for u in users[buffer]):
                continue
            around = s.loops[: s.loops.index(loop)]
            same = all(p[x.var.name] == q[x.var.name] for x in around)
            found |= same and p[loop.var.name] != q[loop.var.name]
        assert (carried(func, loop) is not None) is found


@given(nests(), st.randoms(use_true_random=False))
def test_reordered_agrees_with_enumeration(func: Function, random: object):
    chain: list[Loop] = []
    s: Stmt = func.body
    while isinstance(s, Loop):
        chain.append(s)
        s = s.body
    order = [x.var for x in chain]
    random.shuffle(order)  # type: ignore[attr-defined]
    private = {b.name for b in func.temps if b.scope == "local"}
    found = any(
        tuple(p[x.var.name] for x in chain) < tuple(q[x.var.name] for x in chain)
        and tuple(q[v.name] for v in order) < tuple(p[v.name] for v in order)
        for _, p, _, q, buffer in meetings(func)
        if buffer not in private
    )
    assert (reordered(func, chain, order) is not None) is found


def test_answers_come_quickly():
    fresh = parse(TWO.replace("READ", "n - i1"))
    chain = [s for s in walk(fresh.body) if isinstance(s, Loop)]
    start = time.perf_counter()
    for loop in chain:
        polyhedral.carried(fresh, loop)
    assert (time.perf_counter() - start) / len(chain) < 0.1  # a few milliseconds on an idle machine
