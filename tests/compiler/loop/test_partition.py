"""Whole tiles are split from cut ones, for every size."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.expr.nodes import TRUE
from planish.compiler.loop.decompose import bind, decompose
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, nests
from planish.compiler.loop.partition import partition
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.tidy import tidy
from planish.compiler.loop.verify import verify

TABLE = {
    "a loop is cut": (
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in serial(4):
        for i_1 in vector(8):
            with block("C", where=i_0 * 8 + i_1 < 30):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in serial(3):
        for i_1 in vector(8):
            with block("C"):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]
    for i_1 in vector(8):
        with block("C", where=i_1 < 6):
            C[24 + i_1] = x[24 + i_1]""",
    ),
    "of unknown length": (
        """\
def f(x: f32[n], *, C: f32[n]):
    for i_0 in serial((n + 7) // 8):
        for i_1 in vector(8):
            with block("C", where=i_0 * 8 + i_1 < n):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
        """\
def f(x: f32[n], *, C: f32[n]):
    for i_0 in serial(n // 8):
        for i_1 in vector(8):
            with block("C"):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]
    if n // 8 < (n + 7) // 8:
        for i_1 in vector(8):
            with block("C", where=i_1 < n % 8):
                C[n // 8 * 8 + i_1] = x[n // 8 * 8 + i_1]""",
    ),
    "tiles of registers for each height": (
        """\
def f(x: f32[n], *, C: f32[n]):
    for i_0 in serial((n + 2) // 3):
        for i_1 in unrolled(3):
            with block("C", where=i_0 * 3 + i_1 < n):
                C[i_0 * 3 + i_1] = x[i_0 * 3 + i_1]""",
        """\
def f(x: f32[n], *, C: f32[n]):
    for i_0 in serial(n // 3):
        for i_1 in unrolled(3):
            with block("C"):
                C[i_0 * 3 + i_1] = x[i_0 * 3 + i_1]
    if n // 3 < (n + 2) // 3:
        if n % 3 == 2:
            for i_1 in unrolled(3):
                with block("C", where=i_1 < 2):
                    C[n // 3 * 3 + i_1] = x[n // 3 * 3 + i_1]
        else:
            if n % 3 == 1:
                for i_1 in unrolled(3):
                    with block("C", where=i_1 < 1):
                        C[n // 3 * 3 + i_1] = x[n // 3 * 3 + i_1]""",
    ),
    "a parallel loop gets a test": (
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in parallel(4):
        for i_1 in unrolled(8):
            with block("C", where=i_0 * 8 + i_1 < 30):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in parallel(4):
        if i_0 < 3:
            for i_1 in unrolled(8):
                with block("C"):
                    C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]
        else:
            for i_1 in unrolled(8):
                with block("C", where=i_1 < 6):
                    C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
    ),
    "a serial loop inside gets an end": (
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in parallel(4):
        for i_1 in serial(8):
            with block("C", where=i_0 * 8 + i_1 < 30):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
        """\
def f(x: f32[30], *, C: f32[30]):
    for i_0 in parallel(4):
        for i_1 in serial(min(30 - i_0 * 8, 8)):
            with block("C"):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
    ),
    "blocks without the condition run on": (
        """\
def f(x: f32[30], *, C: f32[30], D: f32[6]):
    for i_0 in serial(6):
        with block("D"):
            D[i_0] = x[i_0]
        for i_1 in vector(8):
            with block("C", where=i_0 * 8 + i_1 < 30):
                C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
        """\
def f(x: f32[30], *, C: f32[30], D: f32[6]):
    for i_0 in serial(6):
        if i_0 < 3:
            with block("D"):
                D[i_0] = x[i_0]
            for i_1 in vector(8):
                with block("C"):
                    C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]
        else:
            if i_0 == 3:
                with block("D"):
                    D[i_0] = x[i_0]
                for i_1 in vector(8):
                    with block("C", where=i_1 < 6):
                        C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]
            else:
                with block("D"):
                    D[i_0] = x[i_0]
                for i_1 in vector(8):
                    with block("C", where=False):
                        C[i_0 * 8 + i_1] = x[i_0 * 8 + i_1]""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_partition(name: str):
    before, after = map(parse, TABLE[name])
    found = partition(verify(before))
    assert show(verify(found)) == show(after)
    sizes = range(1, 20) if before.symbols else [30]
    for n in sizes:
        same(before, found, n)


def same(before: Function, after: Function, n: int) -> None:
    array = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    for x, y in zip(interpret(after, (array,)), interpret(before, (array,)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_what_has_no_conditions_is_the_same_object():
    func = parse(TABLE["a loop is cut"][0].replace(", where=i_0 * 8 + i_1 < 30", ""))
    assert partition(func) is func


NESTED = """\
def f(x: f32[N], *, C: f32[N], S: f32[N]):
    T = buffer(f32[N], "local")
    for a in OUTER((N + AB - 1) // AB):
        for t in serial(AB):
            with block("T", i0=spatial(N, a * AB + t), where=a * AB + t < N):
                T[i0] = x[i0] * f32(2.0)
        for b in MIDDLE(A):
            for c in INNER(B):
                with block("C", i0=spatial(N, a * AB + b * B + c), where=a * AB + b * B + c < N):
                    C[i0] = T[i0]
            for c in INNER(B):
                for k in serial(3):
                    with block("S", i0=spatial(N, a * AB + b * B + c), r0=reduce(3, k), init=f32(1.0), where=a * AB + b * B + c < N):
                        S[i0] += T[i0] * cast(r0, f32)"""


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("outer", ["serial", "parallel"])
@pytest.mark.parametrize(("middle", "inner"), [("serial", "vector"), ("unrolled", "serial"), ("unrolled", "unrolled"), ("serial", "serial")])  # fmt: skip
def test_every_remainder(outer: str, middle: str, inner: str, symbolic: bool):
    for n in range(1, 18):
        text = NESTED.replace("AB", "8").replace("A", "2").replace("B", "4")
        if inner == "vector":  # only around one block
            text = text.replace("                for k in serial(3):\n", "").replace(
                "reduce(3, k)", "reduce(1, 0)"
            )
            text = text.replace(
                '                    with block("S"', '                with block("S"'
            ).replace("                        S[i0]", "                    S[i0]")
        text = text.replace("OUTER", outer).replace("MIDDLE", middle).replace("INNER", inner)
        func = bind(decompose(verify(parse(text.replace("N", "n" if symbolic else str(n))))))
        found = partition(func)
        verify(found)
        same(func, found, n)
        verify(tidy(found))
        same(func, tidy(found), n)


PRODUCT = """\
def f(x: f32[M], w: f32[K], *, C: f32[M]):
    T = buffer(f32[M], "register")
    for i_0 in HOW((M + 3) // 4):
        for k_0 in serial((K + 7) // 8):
            for k_1 in unrolled(8):
                for u in unrolled(4):
                    with block("T", i0=spatial(M, i_0 * 4 + u), r0=reduce(K, k_0 * 8 + k_1), init=f32(0.0), where=i_0 * 4 + u < M and k_0 * 8 + k_1 < K):
                        T[i0] += x[i0] * w[r0]
        for u in unrolled(4):
            with block("C", i0=spatial(M, i_0 * 4 + u), where=i_0 * 4 + u < M):
                C[i0] = T[i0]"""


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize(("rows", "heights"), [("m", (1, 2, 3)), ("m * 6", (2,)), ("m * 4", ())])
def test_only_sums_are_made_for_each_height(kind: str, rows: str, heights: tuple[int, ...]):
    text = PRODUCT.replace("HOW", kind).replace("M", f"({rows})").replace("K", "k")
    text = text.replace("):\n", "):\n    symbols(m, k)\n", 1)
    func = bind(decompose(verify(parse(text))))
    found = tidy(partition(func))
    verify(found)
    sums = [loops for loops, b in nests(found.body) if b.name == "T"]
    repeated = [
        loops for loops in sums if any(x.var.name == "k_1" and x.kind == "unrolled" for x in loops)
    ]
    assert len(repeated) == 1  # the whole tile, and there only whole steps
    assert len(sums) == 2 + len(heights)
    assert len([b for _, b in nests(found.body) if b.name == "C"]) == 1 + bool(heights)
    rng = np.random.default_rng(0)
    for m in range(1, 7):
        for k in (1, 7, 8, 9, 16, 21):
            x = rng.standard_normal(eval(rows, {"m": m})).astype(np.float32)
            w = rng.standard_normal(k).astype(np.float32)
            sizes = {"m": m, "k": k}
            for a, b in zip(
                interpret(found, (x, w), sizes), interpret(func, (x, w), sizes), strict=True
            ):
                np.testing.assert_array_equal(a, b)


FUSED = """\
def f(x: f32[N, 7], *, C: f32[N, 7]):
    for f in HOW(((N + 3) // 4) * 2):
        for u in unrolled(4):
            for v in vector(4):
                with block("C", i0=spatial(N, f // 2 * 4 + u), i1=spatial(7, f % 2 * 4 + v), where=f // 2 * 4 + u < N and f % 2 * 4 + v < 7):
                    C[i0, i1] = x[i0, i1]"""


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("n", range(1, 10))
def test_fused_loops(kind: str, n: int):
    for size in (str(n), "n"):
        func = bind(parse(FUSED.replace("N", size).replace("HOW", kind)))
        found = tidy(partition(func))
        verify(found)
        array = np.random.default_rng(n).standard_normal((n, 7)).astype(np.float32)
        np.testing.assert_array_equal(interpret(found, (array,)), interpret(func, (array,)))
        assert whole_tiles(found) or n < 4


def whole_tiles(func: Function) -> bool:
    """Whether some tile tests nothing in its unrolled and vector loops."""
    return any(
        b.where is TRUE for loops, b in nests(func.body) if any(x.kind == "vector" for x in loops)
    )


@st.composite
def guarded(draw: st.DrawFn) -> tuple[str, int]:
    """A loop over tiles with blocks under conditions that are alike, or not."""
    factor = draw(st.integers(1, 6))
    count = draw(st.integers(1, 6))
    size = draw(st.integers(1, 40))
    symbolic = draw(st.booleans())
    lines = [f"def f(x: f32[40], *, {', '.join(f'C{k}: f32[64]' for k in range(3))}):"]
    if symbolic:
        lines.append("    symbols(n)")
    n = "n" if symbolic else str(size)
    lines += ["    for z in serial(64):"]
    for k in range(3):
        lines += [f'        with block("z{k}"):', f"            C{k}[z] = f32(0.0)"]
    lines.append(f"    for i in {draw(st.sampled_from(['serial', 'parallel']))}({count}):")
    for k in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["serial", "unrolled", "unrolled"]))
        inner = draw(st.integers(1, 6))
        scale = draw(st.sampled_from([factor, factor, factor, 2]))
        offset = draw(st.sampled_from([0, 0, 0, 1, 3]))
        where = draw(st.sampled_from([
            f"i * {scale} + u < {n}", f"i * {scale} + u < {n}", f"i * {scale} + u + {offset} < {n}",
            f"i * {scale} < {n}", f"i * {scale} + u * 2 < {n}", f"u < {n}", "0 <= i",
            f"i * {scale} + u < {n} and i * {scale} + u <= 5", f"{n} <= i + u",
        ]))  # fmt: skip
        lines += [
            f"        for u in {kind}({inner}):",
            f'            with block("C{k}", where={where}):',
            f"                C{k}[i * 6 + u] = x[i + u] + f32({float(k)})",
        ]
    return "\n".join(lines), size


@given(guarded())
def test_random_conditions(case: tuple[str, int]):
    text, size = case
    func = verify(parse(text))
    found = partition(func)
    verify(found)
    array = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    wanted = interpret(func, (array,), {"n": size})
    for p in (found, tidy(found)):
        for x, y in zip(interpret(p, (array,), {"n": size}), wanted, strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_condition_that_no_cut_decides_is_left():
    """The condition is found once, but is none of those that the guard would settle."""
    func = parse(
        """\
def f(x: f32[6, 6], *, y: f32[6]):
    for i in serial(6):
        with block("y0"):
            y[i] = f32(0.0)
    for j in serial(6):
        for i in unrolled(6):
            with block("y", where=j <= i):
                y[i] += x[i, j]"""
    )
    func = verify(func)
    found = verify(partition(func))
    array = np.arange(36, dtype=np.float32).reshape(6, 6)
    np.testing.assert_array_equal(interpret(found, (array,))[0], interpret(func, (array,))[0])
