"""Element types, by their short names: ``f32``, ``i64``, ``bool`` ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from .errors import TypeCheckError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type; ``kind`` is ``f`` (float), ``i`` (signed), ``u`` (unsigned) or ``b``.

    There is one object of each: compare with ``is``.
    """

    name: str
    kind: str
    bits: int

    def __reduce__(self) -> str:
        return self.name.upper()  # the object of that name in this module, when unpickled too

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Bytes that an element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Signed or unsigned integer, not bool."""
        return self.kind in "iu"

    @property
    def numpy(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return found

    @property
    def min(self) -> int:
        """Least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int:
        """Greatest value of an integer type."""
        return (1 << (self.bits - (self.kind == "i"))) - 1


BOOL: Final = DType("bool", "b", 1)
I8, I16, I32, I64 = (DType(f"i{n}", "i", n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{n}", "u", n) for n in (8, 16, 32, 64))
F16, F32, F64 = (DType(f"f{n}", "f", n) for n in (16, 32, 64))
BF16: Final = DType("bf16", "f", 16)

ALL: Final = {t.name: t for t in (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64)}

_NUMPY: Final[dict[str, Any]] = {
    "bool": np.bool_,
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    "bf16": ml_dtypes.bfloat16,
}
_FROM_NUMPY: Final = {np.dtype(v): ALL[k] for k, v in _NUMPY.items()}


def from_numpy(dtype: Any) -> DType:
    """The element type of a numpy dtype.

    Errors: TypeCheckError if there is none.
    """
    found = _FROM_NUMPY.get(np.dtype(dtype))
    if found is None:
        raise TypeCheckError(f"arrays of {np.dtype(dtype)} are not supported", op="dtype")
    return found
