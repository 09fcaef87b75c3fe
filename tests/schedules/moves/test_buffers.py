"""Forms and places of buffers: what is refused, and edges of what is legal."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.graph.prepack import relayout
from planish.compiler.loop.interpret import interpret
from planish.schedules.moves import buffers as B
from planish.schedules.schedule import Schedule

from .programs import Program, dense, transposes
from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("buffers"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


FORMS: list[tuple[tuple[str, ...], tuple[object, ...]]] = [
    (("d1", "d0"), (9, 6)),
    (("d0 * 9 + d1",), (54,)),
    (("d0 * 10 + d1",), (60,)),
    (("d1 * 6 + d0",), (54,)),
    (("d1 // 4", "d0", "d1 % 4"), (3, 6, 4)),
    (("d0 // 4", "d1 // 2", "d1 % 2", "d0 % 4"), (2, 5, 2, 4)),
    (("(d0 * 9 + d1) // 8", "(d0 * 9 + d1) % 8"), (7, 8)),
    (("5 - d0", "d1"), (6, 9)),
    (("d0 * 2", "d1 + 1"), (11, 10)),
]


@pytest.mark.parametrize(("dims", "shape"), FORMS)
def test_an_input_is_given_in_its_form(dims: tuple[str, ...], shape: tuple[object, ...]):
    program = dense()
    s = B.layout(Schedule(program.function), "B", dims, shape)
    a, b, bias = program.arrays()
    moved = np.zeros([int(str(d)) for d in shape], np.float32)
    for d0, d1 in np.ndindex(*b.shape):
        moved[tuple(eval(d, {"d0": d0, "d1": d1}) for d in dims)] = b[d0, d1]
    (found,) = interpret(s.func, (a, moved, bias))
    np.testing.assert_array_equal(found, program.answers((a, b, bias))[0])
    np.testing.assert_array_equal(moved, relayout(b, dims, list(moved.shape)))


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (("d0 * 12 + d1 * 4 + d2",), ("12 * n",)),
        (("d1 * n + d0", "d2"), ("3 * n", 4)),
        (("d0 // 8", "d1", "d2", "d0 % 8"), ("(n + 7) // 8", 3, 4, 8)),
        (("d2", "d1 * n + d0"), (4, "n * 3")),
    ],
)
@pytest.mark.parametrize("n", [1, 5, 8])
def test_a_temporary_buffer_of_symbolic_size(
    dims: tuple[str, ...], shape: tuple[object, ...], n: int
):
    from planish.compiler.expr.nodes import Var

    program = transposes(Var("n"), n=n)
    s = B.layout(Schedule(program.function), "y", dims, shape)
    same(program, s)


def same(program: Program, s: Schedule) -> None:
    arrays = program.arrays()
    found = interpret(s.func, arrays, program.symbols)
    for a, b in zip(found, program.answers(arrays), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("dim", "multiple", "more"), [(0, 1, 0), (1, 8, 0), (2, 4, 3)])
def test_padding_is_never_read(dim: int, multiple: int, more: int):
    program = transposes()
    s = B.pad(Schedule(program.function), "y", dim, multiple, more)
    shape = [6, 3, 4]
    shape[dim] = -(-shape[dim] // multiple) * multiple + more
    assert [str(d) for d in s.func.buffers["y"].shape] == [str(d) for d in shape]
    same(program, s)


def test_two_forms_one_after_the_other():
    program = transposes()
    s = B.layout(Schedule(program.function), "y", ("d1", "d0", "d2"), (3, 6, 4))
    s = B.layout(s, "y", ("d1 // 2", "d0", "d2", "d1 % 2"), (3, 3, 4, 2))
    assert str(s.block("y").indices) == "(i0 // 2, i1, i2, i0 % 2)"
    same(program, s)
