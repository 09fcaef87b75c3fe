"""Starting values become blocks of their own; iterators become loops."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from planish.compiler.errors import InternalError
from planish.compiler.loop.decompose import bind, decompose
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, blocks
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify

from .programs import functions

# (the body before, the body after), of f(A: f32[4, 6], *, C: f32[4])
TABLE = {
    "in front of the outermost reducing loop": (
        """\
    for i in serial(4):
        for k in serial(6):
            with block("C", i0=spatial(4, i), r0=reduce(6, k), init=f32(0.0)):
                C[i0] += A[i0, r0]""",
        """\
    for i in serial(4):
        with block("C_init", i0=spatial(4, i)):
            C[i0] = f32(0.0)
        for k in serial(6):
            with block("C", i0=spatial(4, i), r0=reduce(6, k)):
                C[i0] += A[i0, r0]""",
    ),
    "with the spatial loops inside, of their kind": (
        """\
    for k_0 in serial(3):
        for i_0 in unrolled(2):
            for k_1 in serial(2):
                for i_1 in vector(2):
                    with block("C", i0=spatial(4, i_0 * 2 + i_1), r0=reduce(6, k_0 * 2 + k_1), init=f32(0.0)):
                        C[i0] += A[i0, r0]""",
        """\
    for i_0 in unrolled(2):
        for i_1 in vector(2):
            with block("C_init", i0=spatial(4, i_0 * 2 + i_1)):
                C[i0] = f32(0.0)
    for k_0 in serial(3):
        for i_0 in unrolled(2):
            for k_1 in serial(2):
                for i_1 in vector(2):
                    with block("C", i0=spatial(4, i_0 * 2 + i_1), r0=reduce(6, k_0 * 2 + k_1)):
                        C[i0] += A[i0, r0]""",
    ),
    "conditions of the reduction are dropped, others kept": (
        """\
    for i_0 in serial(2):
        for i_1 in serial(3):
            for k in serial(8):
                if k < 7:
                    if i_1 < 4:
                        with block("C", i0=spatial(4, i_0 * 3 + i_1), r0=reduce(6, k), init=f32(1.0), where=i_0 * 3 + i_1 < 4 and k < 6):
                            C[i0] *= A[i0, r0]""",
        """\
    for i_0 in serial(2):
        for i_1 in serial(3):
            if i_1 < 4:
                with block("C_init", i0=spatial(4, i_0 * 3 + i_1), where=i_0 * 3 + i_1 < 4):
                    C[i0] = f32(1.0)
            for k in serial(8):
                if k < 7:
                    if i_1 < 4:
                        with block("C", i0=spatial(4, i_0 * 3 + i_1), r0=reduce(6, k), where=i_0 * 3 + i_1 < 4 and k < 6):
                            C[i0] *= A[i0, r0]""",
    ),
    "a loop that is spatial and reduces goes into the start": (
        """\
    for f in serial(24):
        with block("C", i0=spatial(4, f // 6), r0=reduce(6, f % 6), init=f32(0.0)):
            C[i0] += A[i0, r0]""",
        """\
    for f in serial(24):
        with block("C_init", i0=spatial(4, f // 6)):
            C[i0] = f32(0.0)
    for f in serial(24):
        with block("C", i0=spatial(4, f // 6), r0=reduce(6, f % 6)):
            C[i0] += A[i0, r0]""",
    ),
    "a reduction of one point starts where it stands": (
        """\
    for i in serial(4):
        with block("C", i0=spatial(4, i), r0=reduce(1, 0), init=f32(0.0)):
            C[i0] += A[i0, r0]""",
        """\
    for i in serial(4):
        with block("C_init", i0=spatial(4, i)):
            C[i0] = f32(0.0)
        with block("C", i0=spatial(4, i), r0=reduce(1, 0)):
            C[i0] += A[i0, r0]""",
    ),
    "each branch has its own": (
        """\
    for i in serial(4):
        if i < 2:
            for k in serial(6):
                with block("C", i0=spatial(4, i), r0=reduce(6, k), init=f32(0.0)):
                    C[i0] += A[i0, r0]
        else:
            for k in serial(6):
                with block("C", i0=spatial(4, i), r0=reduce(6, k), init=f32(-1.0)):
                    C[i0] = max(C[i0], A[i0, r0])""",
        """\
    for i in serial(4):
        if i < 2:
            with block("C_init", i0=spatial(4, i)):
                C[i0] = f32(0.0)
            for k in serial(6):
                with block("C", i0=spatial(4, i), r0=reduce(6, k)):
                    C[i0] += A[i0, r0]
        else:
            with block("C_init", i0=spatial(4, i)):
                C[i0] = f32(-1.0)
            for k in serial(6):
                with block("C", i0=spatial(4, i), r0=reduce(6, k)):
                    C[i0] = max(C[i0], A[i0, r0])""",
    ),
}  # fmt: skip


def of(body: str) -> Function:
    return parse(f"def f(A: f32[4, 6], *, C: f32[4]):\n{body}")


@pytest.mark.parametrize("name", TABLE)
def test_decompose(name: str):
    before, after = map(of, TABLE[name])
    found = decompose(verify(before))
    assert show(verify(found)) == show(after)
    (array,) = (np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32),)
    np.testing.assert_array_equal(interpret(found, (array,)), interpret(before, (array,)))


def test_what_has_nothing_to_do_is_the_same_object():
    func = of(TABLE["each branch has its own"][1])
    assert decompose(func) is func
    assert bind(bind(func)) is not func
    bound = bind(func)
    assert bind(bound) is bound


def test_a_parallel_loop_that_reduces_is_a_fault():
    func = of(
        TABLE["in front of the outermost reducing loop"][0].replace("k in serial", "k in parallel")
    )
    with pytest.raises(InternalError, match="a parallel loop reduces"):
        decompose(func)


def test_bind_puts_loops_for_iterators():
    func = of(
        """\
    for i in serial(2):
        for k in serial(3):
            with block("C", i0=spatial(4, i * 2), i1=spatial(6, k * 2), where=i < k):
                C[i0] = A[i0, i1]"""
    )
    assert show(bind(func)).splitlines()[3:] == [
        '            with block("C", where=i < k):',
        "                C[i * 2] = A[i * 2, k * 2]",
    ]


@given(functions())
def test_random_functions_keep_their_meaning(func: Function):
    sizes = {"n": 5}
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([5 if d in func.symbols else int(str(d)) for d in b.shape]).astype("f4")
        for b in func.inputs
    ]
    wanted = run(func, arrays, sizes)
    for p in (decompose, bind):
        func = p(func)
        verify(func)
        if wanted is not None:
            found = interpret(func, arrays, sizes)
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(x, y)
    assert all(b.init is None and not b.iters for b in blocks(func.body))


def run(func: Function, arrays: list[np.ndarray], sizes: dict[str, int]) -> object:  # type: ignore[type-arg]
    """The results; None of a function that reads what is not written, or leaves a result out."""
    try:
        return interpret(func, arrays, sizes if func.symbols else {})
    except InternalError:
        return None
