"""LLVM's types and constants as text."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BOOL, DType
from planish.compiler.expr.nodes import Scalar

# Other floats, small integers and complex numbers are their bits: see ``operations``.
_TYPES: Final = {"f32": "float", "f64": "double", "bool": "i1"}


def scalar_type(dtype: DType) -> str:
    """The type of one element in a register."""
    return _TYPES.get(dtype.name) or f"i{8 * dtype.bytes}"


def memory_type(dtype: DType) -> str:
    """The type of one element in memory, where a bool takes a byte."""
    return "i8" if dtype is BOOL else scalar_type(dtype)


def lanes_type(element: str, lanes: int) -> str:
    """A vector of ``lanes`` elements; the element itself for 0."""
    return f"<{lanes} x {element}>" if lanes else element


def type_suffix(element: str, lanes: int) -> str:
    """How intrinsics' names spell a type."""
    short = {"float": "f32", "double": "f64"}.get(element, element)
    return f"v{lanes}{short}" if lanes else short


@dataclass(frozen=True, slots=True)
class Val:
    """A value in a register: its operand's text; ``lanes`` is 0 for a scalar."""

    text: str
    dtype: DType
    lanes: int = 0

    @property
    def type(self) -> str:
        return lanes_type(scalar_type(self.dtype), self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


def literal(value: Scalar, dtype: DType) -> str:
    """A constant of one element."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype.name in ("f32", "f64"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if dtype.computed is not dtype or dtype.kind == "c":
        plain = np.asarray(value, dtype.computed.numpy)
        bits = plain if dtype.kind == "c" else converted(plain, dtype)
        number = int.from_bytes(bits.tobytes(), "little")
    else:
        number = int(value)
    width = 8 * dtype.bytes
    return str(number - (1 << width) if number >= 1 << (width - 1) else number)


def is_nan(v: Val) -> bool:
    """Whether a value is a float constant that is NaN."""
    digits = v.text.removeprefix(f"splat ({scalar_type(v.dtype)} ").removesuffix(")")
    if not digits.startswith("0x"):
        return False
    return math.isnan(struct.unpack("<d", struct.pack("<Q", int(digits, 16)))[0])


def constant(value: Scalar, dtype: DType, lanes: int = 0) -> Val:
    """A constant, in every lane."""
    text = literal(value, dtype)
    if lanes:
        text = f"splat ({scalar_type(dtype)} {text})"
    return Val(text, dtype, lanes)


def ramp(dtype: DType, lanes: int) -> Val:
    """0, 1, 2 ... as a constant vector."""
    t = scalar_type(dtype)
    return Val("<" + ", ".join(f"{t} {k}" for k in range(lanes)) + ">", dtype, lanes)


def first_lanes(count: int, lanes: int) -> Val:
    """A constant condition that holds in the first ``count`` lanes."""
    parts = [f"i1 {'true' if k < count else 'false'}" for k in range(lanes)]
    return Val("<" + ", ".join(parts) + ">", BOOL, lanes)


def holds_first(v: Val) -> bool:
    """Whether a condition is a constant that holds in the first lane."""
    return v.text.startswith("<i1 true")
