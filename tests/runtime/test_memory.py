from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from planish.runtime.memory import (
    ALIGNMENT,
    Blocks,
    _slow_address,
    address_of,
    aligned_copy,
    aligned_empty,
)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 100_000])
def test_aligned_empty(size: int) -> None:
    array = aligned_empty(size)
    assert array.nbytes == size
    assert size == 0 or array.ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1:],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array(3, np.int8),
        np.zeros((0, 4), np.float16),
        np.array([True, False]),
    ],
)
def test_aligned_copy(array: np.ndarray) -> None:
    copy = aligned_copy(array)
    assert copy.flags.c_contiguous
    assert copy.size == 0 or copy.ctypes.data % ALIGNMENT == 0
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(copy, array)
    assert copy.size == 0 or aligned_copy(copy) is copy


def test_addresses() -> None:
    whole = np.arange(100.0)
    for array in (whole, whole[3:], whole[::-1], whole.reshape(10, 10)[2:, 5:], np.array(1)):
        assert address_of(array) == _slow_address(array)


def taken(blocks: Blocks, count: int) -> np.ndarray:
    return blocks.take((count,), np.float32, 4 * count)


def test_blocks_are_used_again() -> None:
    blocks = Blocks()
    blocks.allow(4000)
    array = taken(blocks, 1000)
    place = array.ctypes.data
    assert place % ALIGNMENT == 0
    assert blocks.bytes == 0
    del array
    assert blocks.bytes >= 4000
    assert taken(blocks, 1000).ctypes.data == place


def test_a_view_keeps_its_block() -> None:
    blocks = Blocks()
    blocks.allow(4000)
    view = taken(blocks, 1000)[10:20].reshape(2, 5)
    gc.collect()
    assert blocks.bytes == 0
    assert not np.may_share_memory(view, taken(blocks, 1000))


def test_blocks_of_about_the_size_do() -> None:
    blocks = Blocks()
    blocks.allow(4000)
    place = taken(blocks, 1000).ctypes.data
    assert taken(blocks, 900).ctypes.data == place  # not much is wasted
    other = taken(blocks, 100)
    assert other.ctypes.data != place
    assert taken(blocks, 1100).ctypes.data != place  # it would not fit


def test_what_is_kept_is_bounded() -> None:
    blocks = Blocks()
    blocks.allow(4000)
    held = [taken(blocks, 1000) for _ in range(20)]
    held.clear()
    assert 4000 <= blocks.bytes <= 8000 + ALIGNMENT
    blocks.clear()
    assert blocks.bytes == 0


def test_threads_never_get_the_same_block() -> None:
    blocks = Blocks()
    blocks.allow(40_000)
    wrong: list[int] = []

    def work(mark: int) -> None:
        for _ in range(500):
            array = taken(blocks, 200)
            array[...] = mark
            if not (array == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
