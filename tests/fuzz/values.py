"""What is drawn: numbers, choices, and arrays with a liking for what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import ml_dtypes
import numpy as np
from onnx import helper

from .case import Array

T = TypeVar("T")

SIZES: Final = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)
MOST: Final = 3000  # elements of an array


class Draw:
    """Draws from one function, that gives a number from a least to a greatest one."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self.number = number

    def choice(self, items: Sequence[T]) -> T:
        return items[self.number(0, len(items) - 1)]

    def one_in(self, count: int) -> bool:
        return self.number(0, count - 1) == count - 1

    def some(self, items: Sequence[T]) -> list[T]:
        return [item for item in items if self.number(0, 1)]

    def order(self, count: int) -> list[int]:
        rest = list(range(count))
        return [rest.pop(self.number(0, len(rest) - 1)) for _ in range(count)]

    def size(self) -> int:
        return 0 if self.one_in(40) else self.choice(SIZES)

    def shape(self, least: int = 0, most: int = 5, elements: int = MOST) -> list[int]:
        rank = self.number(least, most)
        out: list[int] = []
        for k in range(rank):
            left = elements // max(1, math.prod(out)) if math.prod(out) else elements
            out.append(min(self.size(), max(1, int(left ** (1 / (rank - k))) * 2)))
        return out

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.number(0, 1 << 16))

    def smaller(self, shape: Sequence[int]) -> list[int]:
        """A shape that broadcasts to this one."""
        out = [1 if self.one_in(4) else d for d in shape]
        return out[self.number(0, len(out)) if self.one_in(3) else 0 :]

    # ------------------------------------------------------------------------------- arrays

    def array(self, dtype: Any, shape: Sequence[int], kind: str = "any") -> Array:
        """``kind``: any, plain (no infinities or extremes), positive, unit (-1 to 1)."""
        dtype = np.dtype(dtype)
        rng = self.generator()
        shape = tuple(shape)
        if dtype.kind == "O":
            words = np.array(["", "a", "b", "Ab", "zz", "\u00e4", "1", "-2.5"], object)
            return np.asarray(words[rng.integers(0, 8, shape)], object).reshape(shape)
        if dtype.kind == "b":
            return np.asarray(rng.integers(0, 2, shape)).astype(bool)
        if is_int(dtype):
            return self._integers(dtype, shape, kind, rng)
        return self._floats(dtype, shape, kind, rng)

    def _integers(self, dtype: Any, shape: Any, kind: str, rng: Any) -> Array:
        info = ml_dtypes.iinfo(dtype)
        low, high = max(int(info.min), -4), min(int(info.max), 6)
        if kind == "positive":
            low = 1
        out = np.asarray(rng.integers(low, high, shape, endpoint=True)).astype(dtype)
        if kind == "any" and self.one_in(4):
            extremes = [info.min, info.max, info.max - 1, info.min + 1, 0]
            out = _sprinkled(out, np.array([int(e) for e in extremes], dtype), rng)
        return out

    def _floats(self, dtype: Any, shape: Any, kind: str, rng: Any) -> Array:
        style = self.number(0, 7)
        if style < 4 or kind == "unit":
            data = rng.uniform(-1, 1, shape) if kind == "unit" else rng.standard_normal(shape)
        elif style < 6:  # small numbers, of which several are equal
            data = rng.integers(-3, 3, shape, endpoint=True) / self.choice([1, 1, 2])
        elif style == 6:
            data = np.full(shape, self.choice([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-3]))
        else:
            data = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
        if kind == "positive":
            data = np.abs(data) + 0.25
        with np.errstate(all="ignore"):
            out = np.asarray(data).astype(dtype)
            if dtype.kind == "c":
                return out + np.asarray(rng.standard_normal(shape) * 1j).astype(dtype)
            if kind == "any" and self.one_in(6):
                out = _sprinkled(out, specials(dtype), rng)
        return out

    def index(self, dtype: Any, shape: Sequence[int], extent: int, wild: bool = True) -> Array:
        """Indices of a dimension, negative ones too, seldom some that are out of range."""
        rng = self.generator()
        beyond = 3 if wild and self.one_in(12) else 0
        low, high = -extent - beyond, extent - 1 + beyond
        if self.one_in(2):
            low = 0
        return np.asarray(rng.integers(low, max(low, high), tuple(shape), endpoint=True)).astype(
            dtype
        )


def is_int(dtype: Any) -> bool:
    return np.dtype(dtype).name.startswith(("int", "uint"))


def is_float(dtype: Any) -> bool:
    dtype = np.dtype(dtype)
    return not is_int(dtype) and dtype.kind not in "bOc"


def specials(dtype: Any) -> Array:
    info = ml_dtypes.finfo(dtype)
    values = [0.0, -0.0, 1.0, float(info.max), float(info.min), float(info.smallest_subnormal)]
    values += [float("nan"), float("inf"), -float("inf"), float(info.tiny), 0.5, -2.5, 1.5]
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)


def _sprinkled(array: Array, values: Array, rng: Any) -> Array:
    flat = array.reshape(-1).copy()
    if flat.size:
        places = rng.integers(0, flat.size, max(1, flat.size // 6))
        flat[places] = values[rng.integers(0, len(values), places.size)]
    return flat.reshape(array.shape)


def dtypes_of(kinds: Sequence[str]) -> list[np.dtype[Any]]:
    """The dtypes of ONNX's names of types: "tensor(float)" and the like."""
    out = []
    for kind in kinds:
        if kind.startswith("tensor("):
            name = kind[7:-1]
            code = {"float": 1, "double": 11, "string": 8}.get(name)
            if code is None:
                code = _CODES.get(name)
            if code == 8:
                out.append(np.dtype(object))
            elif code is not None:
                out.append(helper.tensor_dtype_to_np_dtype(code))
    return out


_CODES: Final = {
    helper.tensor_dtype_to_string(code)[len("TensorProto.") :].lower(): code
    for code in helper.get_all_tensor_dtypes()
}
