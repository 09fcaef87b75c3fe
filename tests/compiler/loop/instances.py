"""Loops around blocks at random, and the enumeration of all their instances."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

from planish.compiler.dtypes import F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Load, Var, as_expr
from planish.compiler.expr.text import show as show_expr
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, seq, walk
from planish.compiler.loop.polyhedral import conflicting
from planish.compiler.loop.sites import Site, sites
from planish.compiler.loop.text import parse

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


def loops(func: Function) -> dict[str, Loop]:
    """The loops by name (the last of a name)."""
    return {s.var.name: s for s in walk(func.body) if isinstance(s, Loop)}


@st.composite
def nests(draw: st.DrawFn) -> Function:
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

    def indices(known: list[Var]) -> tuple[Expr, ...]:
        if draw(st.integers(0, 3)):
            return index(known), index(known)
        whole, c = index(known), draw(st.integers(2, 4))
        return whole // c, whole % c

    def block(name: str, known: list[Var]) -> Block:
        iters = tuple(Iter(v, Const(extents[v]), "spatial", v) for v in known)
        value = n.add(Load("T", indices(known), F32), n.const(1.0, F32))
        to = draw(st.sampled_from(["T", "U"]))
        where = draw(st.sampled_from([n.TRUE, n.lt(known[0], 2), n.ne(known[-1], 1)]))
        return Block(name, iters, to, indices(known), value, where=where)

    first: Stmt = block("a", names)
    second: Stmt = block("b", [*names, inner])
    second = Loop(inner, Const(extents[inner]), second)
    body = seq(first, second) if draw(st.booleans()) else second
    for v in reversed(names):
        body = Loop(v, Const(extents[v]), body)
    shape = (Const(64), Const(64))
    temps = (Buffer("T", F32, shape, "global"), Buffer("U", F32, shape, draw(SCOPES)))
    return Function("f", (), 0, (), temps, body)


SCOPES = st.sampled_from(["global", "local"])


Env = dict[str, int]


def value(e: Expr) -> Callable[[Env], int]:
    """The text of an expression is Python."""
    code = compile(show_expr(e), "index", "eval")
    return lambda env: int(eval(code, {"min": min, "max": max}, env))


def iterations(s: Site) -> Iterator[Env]:
    where = value(s.block.where)
    names = [x.var.name for x in s.loops]
    for values in itertools.product(*(range(int(x.extent.value)) for x in s.loops)):  # type: ignore[attr-defined]
        env = dict(zip(names, values, strict=True))
        if where(env):
            yield env


def meetings(func: Function) -> Iterator[tuple[Site, Env, Site, Env, str]]:
    """All pairs of instances in conflict, in both orders."""
    for s, t in itertools.product(sites(func.body), repeat=2):
        for a, b in conflicting(s, t):
            elements: dict[tuple[int, ...], list[Env]] = {}
            at = [value(i) for i in b.indices]
            for q in iterations(t):
                elements.setdefault(tuple(v(q) for v in at), []).append(q)
            at = [value(i) for i in a.indices]
            for p in iterations(s):
                for q in elements.get(tuple(v(p) for v in at), ()):
                    yield s, p, t, q, a.buffer
