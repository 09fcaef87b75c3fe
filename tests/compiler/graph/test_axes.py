from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.expr.nodes import as_expr
from planish.compiler.expr.sizes import numbers
from planish.compiler.graph.axes import (
    after,
    blocks,
    inverse,
    only_ones_move,
    reshape_of_transpose,
    transpose_of_reshape,
)

DIMS = st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=5)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape and another one of as many elements: axes joined, split and squeezed."""
    shape = draw(DIMS)
    out: list[int] = []
    for d in shape:
        choice = draw(st.integers(0, 3))
        if choice == 0 and out:
            out[-1] *= d
        elif choice == 1 and d % 2 == 0:
            out += [2, d // 2]
        elif choice == 2:
            out += [1, d]
        else:
            out.append(d)
    return tuple(shape), tuple(out)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


def dims(shape: tuple[int, ...]) -> tuple[object, ...]:
    return tuple(map(as_expr, shape))


@given(reshapes(), st.randoms())
def test_reshape_of_transpose(shapes: tuple[tuple[int, ...], tuple[int, ...]], rng) -> None:  # type: ignore[no-untyped-def]
    transposed, shape = shapes
    perm = list(range(len(transposed)))
    rng.shuffle(perm)
    source = tuple(transposed[perm.index(k)] for k in range(len(perm)))
    found = reshape_of_transpose(dims(source), tuple(perm), dims(shape))
    if found is None:
        return
    new, left = found
    x = numbered(source)
    wanted = x.transpose(perm).reshape(shape)
    np.testing.assert_array_equal(x.reshape(numbers(new)).transpose(left), wanted)


@given(reshapes(), st.randoms())
def test_transpose_of_reshape(shapes: tuple[tuple[int, ...], tuple[int, ...]], rng) -> None:  # type: ignore[no-untyped-def]
    source, shape = shapes
    perm = list(range(len(shape)))
    rng.shuffle(perm)
    found = transpose_of_reshape(dims(source), dims(shape), tuple(perm))
    if found is None:
        return
    first, new = found
    x = numbered(source)
    wanted = x.reshape(shape).transpose(perm)
    np.testing.assert_array_equal(x.transpose(first).reshape(numbers(new)), wanted)


def test_what_can_be_seen_through() -> None:
    heads = reshape_of_transpose(dims((2, 5, 3, 4)), (0, 2, 1, 3), dims((2, 3, 20)))
    assert heads is None  # rows and columns are apart in memory
    heads = reshape_of_transpose(dims((1, 5, 3, 4)), (0, 2, 1, 3), dims((3, 5, 4)))
    assert heads == (dims((5, 3, 4)), (1, 0, 2))
    assert transpose_of_reshape(dims((6, 4)), dims((2, 3, 4)), (1, 0, 2)) is None
    assert transpose_of_reshape(dims((6, 4)), dims((2, 3, 4)), (2, 0, 1)) == (
        (1, 0),
        dims((4, 2, 3)),
    )


def test_permutations() -> None:
    perm, x = (2, 0, 3, 1), numbered((2, 3, 4, 5))
    assert after(inverse(perm), perm) == after(perm, inverse(perm)) == (0, 1, 2, 3)
    twice = x.transpose(perm).transpose((1, 0, 2, 3))
    np.testing.assert_array_equal(twice, x.transpose(after((1, 0, 2, 3), perm)))
    assert only_ones_move((0, 2, 1), dims((3, 1, 4)))
    assert not only_ones_move((0, 2, 1), dims((3, 2, 4)))
    assert blocks(dims((2, 1, 12)), dims((2, 3, 1, 4))) == [((0,), (0,)), ((2,), (1, 3))]
