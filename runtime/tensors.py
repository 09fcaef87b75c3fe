"""Arrays as safetensors, each at a multiple of 64 bytes.

The format allows no gaps, so what fills them is tensors of bytes of their own, called ``pad.N``.
Any reader of safetensors finds the arrays; ours maps them without copying. Of a dtype for which the
format has no name, or one of fewer than 8 bits, which it packs, the bytes are stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from planish.compiler.calling import ALIGNMENT
from planish.compiler.dtypes import ALL, DType, from_numpy
from planish.compiler.errors import ParseError

from .memory import Array

_NAMES: Final = {
    **{name: name.upper() for name, t in ALL.items() if t.bits in (8, 16, 32, 64)},
    "bool": "BOOL",
    "f8e4m3fn": "F8_E4M3",
    "f8e4m3fnuz": "F8_E4M3FNUZ",
    "f8e5m2": "F8_E5M2",
    "f8e5m2fnuz": "F8_E5M2FNUZ",
    "f8e8m0": "F8_E8M0",
}
_DTYPES: Final = {theirs: ALL[ours] for ours, theirs in _NAMES.items()}
_PAD: Final = "pad."
_MOST_HEADER: Final = 64 << 20  # bytes


def encode(arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """The arrays as pieces of a file."""
    header: dict[str, Any] = {}
    pieces: list[bytes | memoryview] = []
    position = 0
    for name, given in arrays.items():
        array = given if from_numpy(given.dtype).name in _NAMES else bytes_of(given)
        size = array.nbytes
        header[name] = {
            "dtype": _NAMES[from_numpy(array.dtype).name],
            "shape": list(array.shape),
            "data_offsets": [position, position + size],
        }
        if size:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        position += size
        if gap := -position % ALIGNMENT:
            header[f"{_PAD}{len(header)}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [position, position + gap],
            }
            pieces.append(bytes(gap))
            position += gap
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def bytes_of(array: Array) -> Array:
    """An array's bytes, with a dimension more if an element has several."""
    shape = array.shape if array.dtype.itemsize == 1 else (*array.shape, array.dtype.itemsize)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(shape)


def of_bytes(array: Array, dtype: DType) -> Array:
    """What ``bytes_of`` was given, if this is what it made of an array of the dtype."""
    if dtype.name in _NAMES or array.dtype != np.uint8:
        return array
    shape = array.shape if dtype.bytes == 1 else array.shape[:-1]
    if dtype.bytes > 1 and array.shape[-1:] != (dtype.bytes,):
        return array
    return array.reshape(-1).view(dtype.numpy).reshape(shape)


def decode(data: memoryview) -> dict[str, Array]:
    """The arrays in a file's bytes, as read-only views of them.

    Errors: ParseError if it is not what ``encode`` writes.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_MOST_HEADER, len(data) - 8):
        raise ParseError("the weights are damaged: their header is cut off")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
        entries = [(n, e["dtype"], e["shape"], e["data_offsets"]) for n, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ParseError("the weights are damaged: their header is no JSON of tensors") from error
    body = data[8 + length :]
    out: dict[str, Array] = {}
    expected = 0
    for name, kind, shape, offsets in entries:
        dtype = _DTYPES.get(kind) if isinstance(kind, str) else None
        size = _size(dtype, shape)
        if dtype is None or size is None or offsets != [expected, expected + size]:
            raise ParseError(f"the weights are damaged: {name} does not fit", node=repr(offsets))
        expected += size
        if expected > len(body):
            raise ParseError(f"the weights are damaged: {name} lies beyond their end")
        if not name.startswith(_PAD):
            view = body[expected - size : expected]
            out[name] = np.frombuffer(view, dtype.numpy).reshape(shape)
    if expected != len(body):
        raise ParseError("the weights are damaged: something lies behind them")
    return out


def _size(dtype: DType | None, shape: Any) -> int | None:
    """Bytes of a tensor, or None if this is no dtype or shape."""
    if dtype is None or not isinstance(shape, list) or len(shape) > 64:
        return None
    size = dtype.bytes
    for d in shape:
        if isinstance(d, bool) or not isinstance(d, int) or not 0 <= d < 1 << 48:
            return None
        size *= d
    return size if size < 1 << 60 else None
