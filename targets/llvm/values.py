"""LLVM's types and constants as text."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import BOOL, DType
from planish.compiler.expr.nodes import Scalar

_TYPES: Final = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double", "bool": "i1"}


def scalar_type(dtype: DType) -> str:
    """The type of one element in a register."""
    return _TYPES.get(dtype.name) or f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The type of one element in memory, where a bool takes a byte."""
    return "i8" if dtype is BOOL else scalar_type(dtype)


def lanes_type(element: str, lanes: int) -> str:
    """A vector of ``lanes`` elements; the element itself for 0."""
    return f"<{lanes} x {element}>" if lanes else element


def type_suffix(element: str, lanes: int) -> str:
    """How intrinsics' names spell a type."""
    short = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)
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
    if not dtype.is_float:
        return str(int(value) - (1 << dtype.bits) if int(value) >= 1 << (dtype.bits - 1) else int(value))
    if dtype.name == "f16":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if dtype.name == "bf16":
        return f"0xR{np.asarray(value).astype(dtype.numpy).view(np.uint16):04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


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
