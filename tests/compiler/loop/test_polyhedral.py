"""Dependences, legality and regions, against the enumeration of all instances."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Load, Var, as_expr
from planish.compiler.expr.text import show as show_expr
from planish.compiler.loop import polyhedral
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, seq, walk
from planish.compiler.loop.polyhedral import (
    carried,
    conflicting,
    dependences,
    footprint,
    fused,
    legal_order,
    reduces,
    region,
    reordered,
)
from planish.compiler.loop.sites import Site, joined, sites
from planish.compiler.loop.text import parse, show

from .programs import conv, layer_norm, matmul, reshape, softmax

MATMUL = parse(
    """\
def matmul(A: f32[64, 32], B: f32[32, n], *, C: f32[64, n]):
    for io in parallel(8):
        for jo in serial((n + 7) // 8):
            for k in serial(32):
                for ii in unrolled(8):
                    for ji in vector(8):
                        with block("C", i0=spatial(64, io * 8 + ii), i1=spatial(n, jo * 8 + ji), r0=reduce(32, k), init=f32(0.0), where=jo * 8 + ji < n):
                            C[i0, i1] += A[i0, r0] * B[r0, i1]"""
)
SCAN = parse(
    """\
def scan(A: f32[n, 4], *, C: f32[n + 1, 4]):
    for i in serial(n):
        for j in serial(4):
            with block("C", i0=spatial(n, i), i1=spatial(4, j)):
                C[i0 + 1, i1] = C[i0, i1] + A[i0, i1]"""
)


def loops(func: Function) -> dict[str, Loop]:
    """The loops by name (the last of a name)."""
    return {s.var.name: s for s in walk(func.body) if isinstance(s, Loop)}


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


TWO = """\
def two(x: f32[8, n], *, y: f32[8, n]):
    T = buffer(f32[8, n], "global")
    for i in serial(8):
        for j in serial(n):
            with block("T", i0=spatial(8, i), i1=spatial(n, j)):
                T[i0, i1] = x[i0, i1] * f32(2.0)
        for j in serial(n):
            with block("y", i0=spatial(8, i), i1=spatial(n, j)):
                y[i0, i1] = T[i0, READ] + x[i0, i1]"""


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


# ------------------------------------------------------------------------------------- legality


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


# -------------------------------------------------------------------------------------- regions


def box(func: Function, loop: str, buffer: str, kind: str = "any") -> str:
    return str(region(loops(func)[loop].body, func.buffers[buffer], (), kind))


def test_regions_of_a_tile():
    assert box(MATMUL, "io", "A") == "((io * 8, 8), (0, 32))"
    assert box(MATMUL, "jo", "B") == "((0, 32), (jo * 8, 8))"
    assert box(MATMUL, "k", "A") == "((io * 8, 8), (k, 1))"
    assert box(MATMUL, "k", "C") == "((io * 8, 8), (jo * 8, 8))"
    assert box(MATMUL, "k", "C", "read") == "None"
    assert region(MATMUL.body, MATMUL.buffers["B"]) == MATMUL_B
    assert region(MATMUL.body, MATMUL.buffers["A"], (Var("io"),)) == (
        (Var("io") * 8, Const(8)),
        (Const(0), Const(32)),
    )
    assert footprint(loops(MATMUL)["k"].body, MATMUL.buffers["C"]) is Const(64)


MATMUL_B = ((Const(0), Const(32)), (Const(0), Var("n")))


def test_the_window_of_a_convolution():
    func = conv().function
    (tile,) = [
        s
        for s in walk(func.body)
        if isinstance(s, Loop) and s.var.name == "i3" and isinstance(s.body, Loop)
    ]
    assert str(region(tile.body, func.buffers["pad"], (), "read")) == (
        "((i0, 1), (0, 3), (i2, 3), (i3, 3))"
    )
    assert str(region(tile, func.buffers["pad"])) == "((i0, 1), (0, 3), (i2, 3), (0, 7))"


def test_indices_that_are_not_known_may_be_anything():
    func = parse(
        """\
def f(x: f32[9, 7], to: i64[8], *, y: f32[8]):
    for i in serial(8):
        with block("y", i0=spatial(8, i)):
            y[i0] = x[to[i0], i0 // 2 % 3]"""
    )
    assert str(region(func.body, func.buffers["x"])) == "((0, 9), (0, 3))"
    assert region(func.body, func.buffers["x"], (), "write") is None


# ---------------------------------------------------------------------------------- enumeration


@st.composite
def _programs(draw: st.DrawFn) -> Function:
    """Two blocks under a few loops of constant extent, with affine and almost affine indices."""
    names = [Var(v) for v in "ijk"[: draw(st.integers(1, 3))]]
    extents = {v: draw(st.integers(1, 4)) for v in names}
    inner = Var("l")
    extents[inner] = draw(st.integers(1, 3))

    def index(known: list[Var]) -> Expr:
        out: Expr = as_expr(draw(st.integers(0, 2)))
        for v in draw(st.lists(st.sampled_from(known), max_size=3)):
            out = out + v * draw(st.sampled_from([1, 2, 4, -1]))
        kind = draw(st.sampled_from(["plain", "plain", "quotient", "rest"]))
        if kind == "quotient":
            return out // draw(st.integers(2, 4))
        return out % draw(st.integers(2, 4)) if kind == "rest" else out

    def block(name: str, known: list[Var]) -> Block:
        iters = tuple(Iter(v, Const(extents[v]), "spatial", v) for v in known)
        rank = 2
        value = n.add(Load("T", tuple(index(known) for _ in range(rank)), F32), n.const(1.0, F32))
        to = draw(st.sampled_from(["T", "U"]))
        where = draw(st.sampled_from([n.TRUE, n.lt(known[0], 2), n.ne(known[-1], 1)]))
        return Block(name, iters, to, tuple(index(known) for _ in range(rank)), value, where=where)

    first: Stmt = block("a", names)
    second: Stmt = block("b", [*names, inner])
    second = Loop(inner, Const(extents[inner]), second)
    body = seq(first, second) if draw(st.booleans()) else second
    for v in reversed(names):
        body = Loop(v, Const(extents[v]), body)
    shape = (Const(64), Const(64))
    temps = (Buffer("T", F32, shape, "global"), Buffer("U", F32, shape, draw(_SCOPES)))
    return Function("f", (), 0, (), temps, body)


_SCOPES = st.sampled_from(["global", "local"])


Env = dict[str, int]


def _value(e: Expr) -> Callable[[Env], int]:
    """The text of an expression is Python."""
    code = compile(show_expr(e), "index", "eval")
    return lambda env: int(eval(code, {"min": min, "max": max}, env))


def _iterations(s: Site) -> Iterator[Env]:
    where = _value(s.block.where)
    names = [x.var.name for x in s.loops]
    for values in itertools.product(*(range(int(x.extent.value)) for x in s.loops)):  # type: ignore[attr-defined]
        env = dict(zip(names, values, strict=True))
        if where(env):
            yield env


def _meetings(func: Function) -> Iterator[tuple[Site, Env, Site, Env, str]]:
    """All pairs of instances in conflict, in both orders."""
    for s, t in itertools.product(sites(func.body), repeat=2):
        for a, b in conflicting(s, t):
            elements: dict[tuple[int, ...], list[Env]] = {}
            at = [_value(i) for i in b.indices]
            for q in _iterations(t):
                elements.setdefault(tuple(v(q) for v in at), []).append(q)
            at = [_value(i) for i in a.indices]
            for p in _iterations(s):
                for q in elements.get(tuple(v(p) for v in at), ()):
                    yield s, p, t, q, a.buffer


@given(_programs())
def test_carried_agrees_with_enumeration(func: Function):
    scopes = {b.name: b.scope for b in func.temps}
    for loop in [s for s in walk(func.body) if isinstance(s, Loop)]:
        inside = [s for s in sites(func.body) if loop in s.loops]
        users = {
            b: [s for s in sites(func.body) if b in {a.buffer for a in s.accesses}] for b in scopes
        }
        found = False
        for s, p, t, q, buffer in _meetings(func):
            if s not in inside or t not in inside:
                continue
            if scopes[buffer] == "local" and all(u in inside for u in users[buffer]):
                continue
            around = s.loops[: s.loops.index(loop)]
            same = all(p[x.var.name] == q[x.var.name] for x in around)
            found |= same and p[loop.var.name] != q[loop.var.name]
        assert (carried(func, loop) is not None) is found


@given(_programs(), st.randoms(use_true_random=False))
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
        for _, p, _, q, buffer in _meetings(func)
        if buffer not in private
    )
    assert (reordered(func, chain, order) is not None) is found


@given(_programs())
def test_regions_hold_what_is_touched(func: Function):
    outer = func.body
    assert isinstance(outer, Loop)
    for buffer in func.temps:
        found = region(outer.body, buffer)
        touched = [
            (env, tuple(v(env) for v in at))
            for s in sites(func.body)
            for a in s.accesses
            if a.buffer == buffer.name
            for at in [[_value(i) for i in a.indices]]
            for env in _iterations(s)
        ]
        if found is None:
            assert not touched
            continue
        bounds = [(_value(lo), _value(extent)) for lo, extent in found]
        for env, indices in touched:
            for i, (lo, extent) in zip(indices, bounds, strict=True):
                assert lo(env) <= i < lo(env) + extent(env) or i < 0


@given(_programs())
def test_dependences_agree_with_enumeration(func: Function):
    expected = set()
    for s, p, t, q, buffer in _meetings(func):
        shared = [x for x in s.loops if x in t.loops]
        now = tuple(p[x.var.name] for x in shared)
        then = tuple(q[x.var.name] for x in shared)
        inner = tuple(p[x.var.name] for x in s.loops), tuple(q[x.var.name] for x in t.loops)
        before = s.steps[-1] < t.steps[-1] if s is not t else inner[0] < inner[1]
        if now < then or (now == then and before):
            expected.add((s.block.name, t.block.name, buffer))
    assert {(d.source, d.sink, d.buffer) for d in dependences(func)} == expected


def test_joined_indices():
    f, k, m = Var("f"), Var("k"), Var("m")
    assert f in joined((f // 4, f % 4)).values()
    assert f in joined((f // k, f % k)).values()
    assert f in joined((f // (k * m), f // m % k, f % m)).values()
    assert f in joined((f // (m * k * 3), f // (m * 3) % k, f // 3 % m, f % 3)).values()
    assert f not in joined((f // 4, f % 3)).values()


def test_answers_come_quickly():
    fresh = parse(TWO.replace("READ", "n - i1"))
    chain = [s for s in walk(fresh.body) if isinstance(s, Loop)]
    start = time.perf_counter()
    for loop in chain:
        polyhedral.carried(fresh, loop)
    assert (time.perf_counter() - start) / len(chain) < 0.1  # a few milliseconds on an idle machine
