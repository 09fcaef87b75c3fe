"""Memory of calls: aligned arrays, addresses, and blocks for outputs that are used again.

The pages of a fresh large array cost as much as many kernels. So the memory of a large output
comes back here when the caller has dropped the array and every view of it, and serves the next
one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planish.compiler.calling import ALIGNMENT

Array: TypeAlias = npt.NDArray[Any]

LARGE: Final = 64 << 10  # bytes: from here on an output is a block; malloc serves smaller ones well


def aligned_empty(size: int) -> npt.NDArray[np.uint8]:
    """So many bytes at an aligned address, not initialised."""
    whole = np.empty(size + ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


def aligned_copy(array: Array) -> Array:
    """The array, contiguous and at an aligned address; itself if it already is."""
    if array.flags.c_contiguous and array.size and array.ctypes.data % ALIGNMENT == 0:
        return array
    out = aligned_empty(array.nbytes).view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def _slow_address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _find_address() -> Callable[[Array], int]:
    """The fastest way to an array's address.

    numpy's ABI has it right behind the object's head, where C extensions read it by an inlined
    macro; through ``array.ctypes`` it takes ten times as long. It is tried here, not assumed.
    """
    head, at = object.__basicsize__, ctypes.c_void_p.from_address
    probes = [np.arange(5.0), np.zeros((3, 4), np.int8)[1:, 2:], np.empty((0, 2)), np.array(1)]
    if all(at(id(a) + head).value == _slow_address(a) for a in probes):
        return lambda array: at(id(array) + head).value or 0
    return _slow_address


address_of: Final = _find_address()


_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


def free(address: int) -> None:
    """Give back what malloc gave to a call."""
    _free(address)


class _Allocated:
    """Memory from malloc as an array's base: it is freed when no array uses it any more."""

    __slots__ = ("__array_interface__", "_address")

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        _free(self._address)


def spread(shape: Iterable[int], itemsize: int) -> int:
    """The bytes of an array if none of its dimensions were 0: what numpy asks to fit 63 bits."""
    return math.prod((max(d, 1) for d in shape), start=itemsize)


def owning(address: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """The array at an address that malloc gave, which it frees at its end."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    base = _Allocated(address, size)
    return np.ndarray(shape, dtype, buffer=np.asarray(base))


class _Lease:
    """Memory on loan as an array's base: it goes back when no array uses it any more."""

    __slots__ = ("__array_interface__", "_blocks", "_memory")

    def __init__(self, blocks: Blocks, memory: npt.NDArray[np.uint8], size: int) -> None:
        self._blocks, self._memory = blocks, memory
        self.__array_interface__ = {
            "data": (memory.ctypes.data, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._blocks.give(self._memory)


class Blocks:
    """Memory for large outputs. What is kept is at most twice what one call has asked for.

    There is no lock: a lease may end in a garbage collection at any point. Each step is one
    operation on the dictionary, and who takes a block that another has just taken looks for
    another.
    """

    def __init__(self) -> None:
        self._kept: dict[int, npt.NDArray[np.uint8]] = {}
        self.limit = 0

    def allow(self, size: int) -> None:
        """Expect calls that give so many bytes of large outputs."""
        if 2 * size > self.limit:
            self.limit = 2 * size

    def take(self, shape: tuple[int, ...], dtype: Any, size: int) -> Array:
        """An array that is not initialised, of ``size`` bytes."""
        memory = None
        while memory is None:
            fits = [b for b in list(self._kept.values()) if size <= b.nbytes <= size + size // 4]
            if not fits:
                memory = aligned_empty(size)
                break
            memory = self._kept.pop(id(min(fits, key=lambda b: b.nbytes)), None)
        flat = np.asarray(_Lease(self, memory, size))
        return np.ndarray(shape, dtype, buffer=flat)

    def give(self, memory: npt.NDArray[np.uint8]) -> None:
        """Have the memory of an array that nobody uses any more."""
        self._kept[id(memory)] = memory
        excess = self.bytes - self.limit
        for key in list(self._kept) if excess > 0 else ():
            if excess > 0 and (dropped := self._kept.pop(key, None)) is not None:
                excess -= dropped.nbytes

    @property
    def bytes(self) -> int:
        """Bytes kept for outputs to come."""
        return sum(b.nbytes for b in list(self._kept.values()))

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
