from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.errors import InternalError
from planish.compiler.graph.prepack import relayout


def scattered(array: np.ndarray, dims: list[str], shape: list[int]) -> np.ndarray:
    """The same, element by element in Python."""
    out = np.zeros(shape, array.dtype)
    for at in itertools.product(*map(range, array.shape)):
        names = {f"d{k}": i for k, i in enumerate(at)}
        out[tuple(eval(d, {}, names) for d in dims)] = array[at]
    return out


def numbers(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "dims", "wanted"),
    [
        ((3, 4), ["d0", "d1"], [3, 4]),
        ((3, 4), ["d1", "d0"], [4, 3]),
        ((5, 7), ["d1 // 4", "d0", "d1 % 4"], [2, 5, 4]),  # panels, with zeros at the end
        ((5, 8), ["d1 // 4", "d0", "d1 % 4"], [2, 5, 4]),
        ((6, 5, 7), ["d0 // 4", "d2 // 3", "d1", "d0 % 4", "d2 % 3"], [2, 3, 5, 4, 3]),
        ((2, 3), ["d0 * 3 + d1"], [6]),
        ((2, 3), ["d1 + 1", "d0"], [5, 2]),
        ((4, 3), ["d0 // 2", "d0 % 4 // 2", "d0 % 2", "d1"], [2, 2, 2, 3]),
        ((4, 6), ["d0 // 2", "d1", "d0 % 2"], [3, 6, 2]),  # more room than it takes
        ((4, 6), ["d1 // 2", "d0", "d1 % 3"], [3, 4, 3]),
        ((0, 4), ["d1 // 2", "d0", "d1 % 2"], [2, 0, 2]),
        ((), [], []),
        ((3,), ["d0 // 8", "d0 % 8"], [1, 8]),
    ],
)
def test_forms(shape: tuple[int, ...], dims: list[str], wanted: list[int]) -> None:
    array = numbers(*shape)
    found = relayout(array, dims, wanted)
    assert found.flags.c_contiguous
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, scattered(array, dims, wanted))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(1, 5), st.data())
def test_blocks_of_any_size(shape: list[int], width: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(shape) - 1))
    dims = [f"d{k}" if k != at else f"d{k} // {width}" for k in range(len(shape))]
    extents = [d if k != at else -(-d // width) for k, d in enumerate(shape)]
    order = data.draw(st.permutations(range(len(shape) + 1)))
    dims, extents = [*dims, f"d{at} % {width}"], [*extents, width]
    dims, extents = [dims[k] for k in order], [extents[k] for k in order]
    array = numbers(*shape)
    np.testing.assert_array_equal(relayout(array, dims, extents), scattered(array, dims, extents))


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_, np.float16])
def test_any_dtype(dtype: type) -> None:
    array = numbers(5, 3).astype(dtype)
    for dims, shape in ((["d1", "d0 // 2", "d0 % 2"], [3, 3, 2]), (["d0 + d1"], [7])):
        assert relayout(array[:1], dims, shape).dtype == dtype


def test_what_is_not_contiguous() -> None:
    array = numbers(6, 8)[::2, ::-1]
    found = relayout(array, ["d1 // 4", "d0", "d1 % 4"], [2, 3, 4])
    np.testing.assert_array_equal(found[1, :, 3], array[:, 7])


def test_a_form_that_is_too_small_is_a_fault() -> None:
    with pytest.raises(InternalError, match="leaves the extent 3"):
        relayout(numbers(2, 4), ["d0", "d1 + 0"], [2, 3])
