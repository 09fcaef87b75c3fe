"""Maps at the boundary of a module: dictionaries of Python.

The code knows a map as its keys and its values (``compiler/packings.py``), and maps that all have
the same keys as those, and a matrix of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planish.compiler.dtypes import STRING, DType
from planish.compiler.errors import TypeCheckError
from planish.compiler.packings import Packing
from planish.compiler.texts import array_of

from .interface import Array


def packed_map(value: Any, port: Packing, module: str) -> list[Array]:
    """The keys and values of a dictionary; keys that are numbers in ascending order.

    Errors: TypeCheckError naming what does not fit.
    """

    def refused(message: str) -> TypeCheckError:
        hint = f"the model declares {port}"
        return TypeCheckError(f"the input {port.name} {message}", op=module, hint=hint)

    if not isinstance(value, Mapping):
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise refused(f"is a {kind}, not a dictionary")
    assert port.key is not None
    for what, parts, dtype in (("key", value, port.key), ("value", value.values(), port.dtype)):
        for x in parts:
            if not _fits(x, dtype):
                raise refused(f"has the {what} {str(x)[:40]!r}, which is not of {dtype}")
    keys = list(value) if port.key is STRING else sorted(value)
    return [_array(keys, port.key), _array([value[k] for k in keys], port.dtype)]


def _fits(x: Any, dtype: DType) -> bool:
    if dtype is STRING:
        return isinstance(x, str)
    if isinstance(x, bool | np.bool_):
        return False
    whole = isinstance(x, int | np.integer)
    if dtype.is_float:
        return whole or isinstance(x, float | np.floating)
    return whole and dtype.min <= int(x) <= dtype.max


def _array(items: list[Any], dtype: DType) -> Array:
    if dtype is STRING:
        return array_of(map(str, items), (len(items),))
    return np.array(items, dtype.numpy)


def unpacked_maps(parts: Sequence[Array], port: Packing) -> Any:
    """A dictionary, or a list of them."""
    keys, values = parts
    names = keys.tolist()
    if not port.has_many:
        return dict(zip(names, values.tolist(), strict=True))
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]


__all__ = ["packed_map", "unpacked_maps"]
