"""Element types, by their short names: ``f32``, ``i64``, ``bool`` ...

Types of fewer than 8 bits (``i4``, ``u2``, ``f6e2m3``, ``f4e2m1`` ...) take one byte an element in
memory: the bits stand at its low end, and those above are not looked at. Complex numbers (``c64``,
``c128``) are moved, never computed with. So are strings: what kernels see of one is a number that
stands for it (``planish.compiler.texts``), the same for equal strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from .errors import TypeCheckError


@dataclass(frozen=True, slots=True)
class Layout:
    """How a float's bits are read: a sign, ``exponent`` and ``mantissa`` bits, and what is special.

    ``ieee``: the greatest exponent is for infinities and NaN. ``fn``: no infinities, NaN where all
    bits but the sign are set. ``fnuz``: no infinities, no negative zero; its bits are the one NaN.
    ``finite``: numbers only. ``scale``: powers of two, without a sign and zero; all ones are NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str = "ieee"

    @property
    def top(self) -> int:
        """The bits of the greatest finite number."""
        ones = (1 << (self.exponent + self.mantissa)) - 1
        match self.special:
            case "ieee":
                return ones - (1 << self.mantissa)
            case "fn" | "scale":
                return ones - 1
            case _:
                return ones

    @property
    def least(self) -> int:
        """The exponent of the least positive number."""
        return -self.bias if self.special == "scale" else 1 - self.bias - self.mantissa

    @property
    def largest(self) -> float:
        """The greatest finite number."""
        exponent, mantissa = divmod(self.top, 1 << self.mantissa)
        return float((1 + mantissa / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))

    @property
    def has_infinities(self) -> bool:
        return self.special == "ieee"

    @property
    def has_nan(self) -> bool:
        return self.special != "finite"

    @property
    def has_negative_zero(self) -> bool:
        return self.special not in ("fnuz", "scale")


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type.

    ``kind`` is ``f`` (float), ``i`` (signed), ``u`` (unsigned), ``b`` (bool), ``c`` (complex) or
    ``s`` (string).
    There is one object of each: compare with ``is``.
    """

    name: str
    kind: str
    bits: int
    layout: Layout | None = None  # of a float

    def __reduce__(self) -> str:
        return self.name.upper()  # the object of that name in this module, when unpickled too

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Bytes that an element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def alignment(self) -> int:
        """Bytes that an element's address is a multiple of."""
        return min(self.bytes, 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer, not bool."""
        return self.kind in "iu"

    @property
    def is_discrete(self) -> bool:
        """Integer or bool: what contents that are known at compile time are of."""
        return self.kind in "iub"

    @property
    def is_packed(self) -> bool:
        """Whether files hold several elements in a byte."""
        return 1 < self.bits < 8

    @property
    def computed(self) -> DType:
        """The dtype that elements are computed in; the results are converted back."""
        if self.is_float:
            return self if self.bits >= 32 else F32
        if self.is_packed:
            return I8 if self.kind == "i" else U8
        return self

    @property
    def storage(self) -> DType:
        """The dtype that kernels see: of strings, numbers that stand for them."""
        return I64 if self.kind == "s" else self

    @property
    def numpy(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return found

    @property
    def lowest(self) -> float | int:
        """The value that every maximum is at least: an infinity where there are those."""
        if self.layout is None:
            return self.min
        if self.layout.special == "scale":
            return 2.0**self.layout.least
        return -self.greatest

    @property
    def greatest(self) -> float | int:
        """The value that every minimum is at most."""
        if self.layout is None:
            return self.max
        return float("inf") if self.layout.has_infinities else self.layout.largest

    @property
    def min(self) -> int:
        """Least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int:
        """Greatest value of an integer type."""
        return (1 << (self.bits - (self.kind == "i"))) - 1


def _float(name: str, *layout: Any) -> DType:
    found = Layout(*layout)
    sign = found.special != "scale"
    return DType(name, "f", sign + found.exponent + found.mantissa, found)


BOOL: Final = DType("bool", "b", 1)
I2, I4, I8, I16, I32, I64 = (DType(f"i{n}", "i", n) for n in (2, 4, 8, 16, 32, 64))
U2, U4, U8, U16, U32, U64 = (DType(f"u{n}", "u", n) for n in (2, 4, 8, 16, 32, 64))
F16, F32, F64 = _float("f16", 5, 10, 15), _float("f32", 8, 23, 127), _float("f64", 11, 52, 1023)
BF16: Final = _float("bf16", 8, 7, 127)
F8E4M3FN, F8E4M3FNUZ = _float("f8e4m3fn", 4, 3, 7, "fn"), _float("f8e4m3fnuz", 4, 3, 8, "fnuz")
F8E5M2, F8E5M2FNUZ = _float("f8e5m2", 5, 2, 15), _float("f8e5m2fnuz", 5, 2, 16, "fnuz")
F8E8M0: Final = _float("f8e8m0", 8, 0, 127, "scale")
F6E2M3, F6E3M2 = _float("f6e2m3", 2, 3, 1, "finite"), _float("f6e3m2", 3, 2, 3, "finite")
F4E2M1: Final = _float("f4e2m1", 2, 1, 1, "finite")
C64, C128 = DType("c64", "c", 64), DType("c128", "c", 128)
STRING: Final = DType("string", "s", 64)  # arrays of numpy hold objects, each a str

FLOAT8: Final = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ)

ALL: Final = {
    t.name: t
    for t in (
        BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64,
        F4E2M1, F6E2M3, F6E3M2, *FLOAT8, F8E8M0, F16, BF16, F32, F64, C64, C128,
    )
}  # fmt: skip

EVERY: Final = {**ALL, STRING.name: STRING}  # those of tensors; ``ALL``: those of kernels

_NUMPY: Final[dict[str, Any]] = {
    "bool": np.bool_,
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"c{n}": f"complex{n}" for n in (64, 128)},
    "bf16": ml_dtypes.bfloat16,
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "u2": ml_dtypes.uint2,
    "u4": ml_dtypes.uint4,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "string": np.object_,
}
_FROM_NUMPY: Final = {np.dtype(v): EVERY[k] for k, v in _NUMPY.items()}


def from_numpy(dtype: Any) -> DType:
    """The element type of a numpy dtype.

    Errors: TypeCheckError if there is none.
    """
    found = _FROM_NUMPY.get(np.dtype(dtype))
    if found is None:
        raise TypeCheckError(f"arrays of {np.dtype(dtype)} are not supported", op="dtype")
    return found


@cache
def exact(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` is a value of ``target``."""
    a, b = source.layout, target.layout
    if source is target:
        return True
    if target is BOOL or not {source.kind, target.kind}.isdisjoint("cs"):
        return False
    if source is BOOL:
        return b is None or b.special != "scale"
    if b is None:
        return a is None and target.min <= source.min and source.max <= target.max
    if a is None:
        digits, largest = source.bits - (source.kind == "i"), max(source.max, -source.min)
        return digits <= b.mantissa + 1 and largest <= b.largest and b.special != "scale"
    return (
        a.mantissa <= b.mantissa
        and a.least >= b.least
        and a.largest <= b.largest
        and (b.special != "scale" or a.special == "scale")
        and b.has_infinities >= a.has_infinities
        and b.has_nan >= a.has_nan
        and b.has_negative_zero >= a.has_negative_zero
    )
