"""Functions of the runtime that compiled code calls: what no loops express.

A program names a function and says what it is told beforehand; it is made once for each step of a
module. There are those that are registered here, and no others: a module file brings no code. A
function sees arrays, strings as arrays of objects, and gives arrays of the shapes that are wanted.

Whatever goes wrong in one ends the call with an error: nothing is raised through compiled code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.calling import HostFunction
from planish.compiler.dtypes import STRING, DType
from planish.compiler.errors import InternalError, PlanishError, RuntimeFault
from planish.compiler.texts import Texts

from .interface import Array

Made: TypeAlias = Callable[..., tuple[Array, ...]]

_CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_FUNCTIONS: Final[dict[str, Callable[..., Made]]] = {}


def host_function(name: str) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Register what makes a function of its attributes.

    The function takes arrays and the shapes of its results.
    """

    def register(make: Callable[..., Made]) -> Callable[..., Made]:
        _FUNCTIONS[name] = make
        return make

    return register


def made(wanted: HostFunction, module: str) -> Made:
    """The function that a module asks for.

    Errors: RuntimeFault if there is none, or what is missing for it.
    """
    from . import host_images, host_strings  # noqa: F401  # they register theirs

    make = _FUNCTIONS.get(wanted.name)
    if make is None:
        raise RuntimeFault(f"there is no function {wanted.name}", op=module, node=wanted.origin)
    try:
        return make(**dict(wanted.attributes))
    except PlanishError as error:
        raise RuntimeFault(
            error.message, op=module, node=wanted.origin or None, hint=error.hint
        ) from error
    except (TypeError, ValueError) as error:
        raise RuntimeFault(
            f"{wanted.name} cannot be made: {error}", op=module, node=wanted.origin or None
        ) from error


class Hosts:
    """What one running call needs of the runtime: its strings, and where compiled code calls."""

    def __init__(self, wanted: Sequence[HostFunction], functions: Sequence[Made]) -> None:
        self._wanted, self._functions = wanted, functions
        self.texts = Texts()
        self.error: BaseException | None = None

    def begin(self, texts: Texts) -> None:
        """A call begins, with these strings."""
        self.texts, self.error = texts, None

    def end(self) -> BaseException | None:
        """A call ends: what was wrong in a function, if anything was; its strings are dropped."""
        error, self.error, self.texts = self.error, None, _NO_TEXTS
        return error

    def call(self, index: int, words: int) -> int:
        """Do a step; 0 if it is done, else 1."""
        try:
            self._do(self._wanted[index], self._functions[index], words)
        except BaseException as error:  # noqa: BLE001  # it is raised when the code has returned
            self.error = error
            return 1
        return 0

    def _do(self, wanted: HostFunction, function: Made, words: int) -> None:
        table = (ctypes.c_int64 * wanted.words).from_address(words)
        rest = iter(table)
        inputs = [self._read(_memory(rest, dtype, rank), dtype) for dtype, rank in wanted.inputs]
        places = [_memory(rest, dtype, rank) for dtype, rank in wanted.outputs]
        found = function(*inputs, *(p.shape for p in places))
        for place, array, (dtype, _) in zip(places, found, wanted.outputs, strict=True):
            if array.shape != place.shape or array.dtype != dtype.numpy:
                raise InternalError(
                    f"{array.dtype}{list(array.shape)} is given, wanted {dtype}{list(place.shape)}",
                    op=wanted.name,
                )
            place[...] = self.texts.numbers(array) if dtype is STRING else array

    def _read(self, memory: Array, dtype: DType) -> Array:
        return self.texts.strings(memory) if dtype is STRING else memory


def entry(hosts: Hosts) -> tuple[Any, int]:
    """What compiled code calls, and its address; the code is there as long as the first is."""
    code = _CALL(hosts.call)
    return code, ctypes.cast(code, ctypes.c_void_p).value or 0


def _memory(words: Iterator[int], dtype: DType, rank: int) -> Array:
    """The array that the next words say."""
    address, *shape = (next(words) for _ in range(1 + rank))
    kind = dtype.storage.numpy
    size = kind.itemsize
    for d in shape:
        size *= d
    if not size:
        return np.empty(shape, kind)
    block = (ctypes.c_uint8 * size).from_address(address)
    return np.ctypeslib.as_array(block).view(kind).reshape(shape)


_NO_TEXTS: Final = Texts()

__all__ = ["Hosts", "Made", "entry", "host_function", "made"]
