"""Tensors of an ONNX model as arrays: raw bytes, typed fields, or a file beside the model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from planish.compiler import dtypes as t
from planish.compiler.dtypes import BOOL, DType
from planish.compiler.errors import ImportModelError
from planish.compiler.graph.ir import Array
from planish.compiler.texts import array_of

DTYPES: Final[dict[int, DType]] = {
    1: t.F32, 2: t.U8, 3: t.I8, 4: t.U16, 5: t.I16, 6: t.I32, 7: t.I64, 9: BOOL, 10: t.F16,
    11: t.F64, 12: t.U32, 13: t.U64, 14: t.C64, 15: t.C128, 16: t.BF16, 17: t.F8E4M3FN,
    18: t.F8E4M3FNUZ, 19: t.F8E5M2, 20: t.F8E5M2FNUZ, 21: t.U4, 22: t.I4, 23: t.F4E2M1,
    8: t.STRING, 24: t.F8E8M0, 25: t.U2, 26: t.I2, 27: t.F6E2M3, 28: t.F6E3M2,
}  # fmt: skip

MAX_BYTES: Final = 1 << 40  # of one tensor: none is larger, and nothing overflows


def dtype_of(code: int, where: str) -> DType:
    """The dtype of an ONNX element type.

    Errors: ImportModelError naming a type that there is none for.
    """
    if (found := DTYPES.get(code)) is not None:
        return found
    try:
        name = onnx.TensorProto.DataType.Name(code)
    except ValueError:
        raise ImportModelError(f"{where} has the unknown element type {code}") from None
    raise ImportModelError(f"{where} has elements of {name}, which are not supported")


def text(value: Any, what: str) -> str:
    """A name as text; protobuf gives bytes for what is not UTF-8.

    Errors: ImportModelError if it is not UTF-8.
    """
    if isinstance(value, str):
        return value
    raise ImportModelError(f"{what} {bytes(value)[:40]!r} is not UTF-8")


def decoded(data: Any, what: str) -> str:
    """A string of a model, which is stored as bytes.

    Errors: ImportModelError if it is not UTF-8.
    """
    try:
        return bytes(data).decode()
    except (UnicodeDecodeError, TypeError) as error:
        raise ImportModelError(f"{what}: {data[:40]!r} is not UTF-8") from error


def decode(tensor: onnx.TensorProto, where: str, folder: Path | None = None) -> Array:
    """The array of a tensor, without a copy where that is possible.

    Errors: ImportModelError if its data are not what its shape and type say.
    """
    dtype = dtype_of(tensor.data_type, where)
    shape, count = checked_shape(tensor.dims, dtype.bytes, where)
    if tensor.HasField("segment"):
        raise ImportModelError(f"{where} is a segment of a tensor, which is not supported")
    if dtype is t.STRING:
        return _strings(tensor, count, where).reshape(shape)
    size = stored_bytes(dtype, count)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw: Any = _external(tensor, size, where, folder)
    elif tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        return _typed(tensor, dtype, count, where).reshape(shape)
    if raw.size != size:
        raise ImportModelError(
            f"{where} has {raw.size} bytes of data, {list(shape)} of {dtype} takes {size}"
        )
    if dtype.is_packed:
        return unpacked(raw, dtype, count).reshape(shape)
    if dtype is BOOL:  # a byte may be any number
        flags: Array = np.not_equal(raw, 0)
        return flags.reshape(shape)
    if raw.ctypes.data % dtype.alignment:
        raw = raw.copy()
    array = raw.view(dtype.numpy.newbyteorder("<"))
    return np.asarray(array).astype(dtype.numpy, copy=False).reshape(shape)


def stored_bytes(dtype: DType, count: int) -> int:
    """Bytes that so many elements take in a file."""
    return -(-count * dtype.bits // 8) if dtype.is_packed else count * dtype.bytes


def unpacked(raw: Array, dtype: DType, count: int) -> Array:
    """Elements that lie in bytes one after the other, each one's low bits first."""
    period = 3 if dtype.bits == 6 else 1  # bytes that hold a whole number of elements
    data = np.zeros(-(-raw.size // period) * period, np.uint8)
    data[: raw.size] = raw
    words = np.zeros(data.size // period, np.uint32)
    for k in range(period):
        words |= data[k::period].astype(np.uint32) << (8 * k)
    shifts = np.arange(0, 8 * period, dtype.bits, dtype=np.uint32)
    bits = (words[:, None] >> shifts) & np.uint32((1 << dtype.bits) - 1)
    return bits.reshape(-1)[:count].astype(np.uint8).view(dtype.numpy)


def checked_shape(dims: Sequence[int], item: int, where: str) -> tuple[tuple[int, ...], int]:
    """The shape and the number of elements.

    Errors: ImportModelError for a negative dimension or one that no memory holds.
    """
    shape = tuple(dims)
    if any(d < 0 for d in shape):
        raise ImportModelError(f"{where} has the shape {list(shape)}")
    if len(shape) > 32:
        raise ImportModelError(f"{where} has {len(shape)} dimensions")
    count = 0 if 0 in shape else math.prod(shape)
    if count * item > MAX_BYTES or any(d > MAX_BYTES for d in shape):
        raise ImportModelError(f"{where} has the shape {list(shape)}, which no memory holds")
    return shape, count


def _strings(tensor: onnx.TensorProto, count: int, where: str) -> Array:
    data = tensor.string_data
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("raw_data"):
        raise ImportModelError(f"the strings of {where} do not lie in string_data")
    if len(data) != count:
        raise ImportModelError(
            f"{where} has {len(data)} strings, {list(tensor.dims)} takes {count}"
        )
    return array_of((decoded(s, where) for s in data), (count,))


_FIELDS: Final[dict[str, tuple[str, str]]] = {
    "f32": ("float_data", "float32"),
    "f64": ("double_data", "float64"),
    "i64": ("int64_data", "int64"),
    "u64": ("uint64_data", "uint64"),
    "u32": ("uint64_data", "uint64"),
    "c64": ("float_data", "float32"),
    "c128": ("double_data", "float64"),
}


def _typed(tensor: onnx.TensorProto, dtype: DType, count: int, where: str) -> Array:
    field, kind = _FIELDS.get(dtype.name, ("int32_data", "int32"))
    data = getattr(tensor, field)
    packed = dtype.is_packed and dtype.bits != 6
    length = stored_bytes(dtype, count) if packed else 2 * count if dtype.kind == "c" else count
    if len(data) != length:
        raise ImportModelError(
            f"{where} has {len(data)} numbers in {field}, {list(tensor.dims)} takes {length}"
        )
    wide = np.fromiter(data, kind, length)
    if packed:  # a byte in each number
        return unpacked(wide.astype(np.uint8), dtype, count)
    if dtype.bits == 6:
        return (wide & 0x3F).astype(np.uint8).view(dtype.numpy)
    if dtype.is_float and dtype.bits <= 16:  # the bits of the number
        return wide.astype(f"u{dtype.bytes}").view(dtype.numpy)
    if dtype.kind == "c":
        return wide.view(dtype.numpy)
    if dtype is BOOL:
        return np.asarray(np.not_equal(wide, 0))
    narrow = wide.astype(dtype.numpy, copy=False)
    if not dtype.is_float and not np.array_equal(narrow, wide):
        raise ImportModelError(f"{where} has numbers that are no {dtype}")
    return narrow


def _external(tensor: onnx.TensorProto, size: int, where: str, folder: Path | None) -> Array:
    """The bytes of a tensor that lie in a file, mapped into memory.

    The file must lie in the model's folder, as its location is written; it may be a link.
    """
    facts = {text(e.key, "a key"): text(e.value, "a value") for e in tensor.external_data}
    location = facts.get("location", "")
    if folder is None:
        raise ImportModelError(
            f"the data of {where} lie in the file {location!r}, but the model has no folder",
            hint="import the model by its path",
        )
    path = os.path.normpath(location)
    outside = os.path.isabs(path) or path.split(os.sep)[0] in ("..", ".", "")
    if outside or "\0" in location or "\\" in location:
        raise ImportModelError(
            f"the data of {where} lie outside of the model's folder: {location!r}"
        )
    file = folder / path
    try:
        offset = int(facts.get("offset", "0"))
        length = int(facts.get("length", str(size)))
        if not file.is_file():
            raise ImportModelError(f"the data of {where} lie in {location!r}, which is no file")
        available = file.stat().st_size
        if offset < 0 or length < 0 or offset + length > available:
            raise ImportModelError(
                f"{where} is {length} bytes at {offset} of {location!r}, which has {available}"
            )
        if length != size:
            raise ImportModelError(f"{where} has {length} bytes of data, its shape takes {size}")
        if not size:
            return np.zeros(0, np.uint8)
        return np.asarray(np.memmap(file, np.uint8, "r", offset, (size,)))
    except ValueError as error:
        if isinstance(error, ImportModelError):
            raise
        raise ImportModelError(f"where the data of {where} lie is malformed: {facts}") from error
    except OSError as error:
        raise ImportModelError(f"cannot read the data of {where}: {error}") from error


def dense(sparse: onnx.SparseTensorProto, where: str, folder: Path | None = None) -> Array:
    """A sparse tensor as a dense one.

    Errors: ImportModelError if it is malformed or larger than 1 GiB.
    """
    values, indices = decode(sparse.values, where, folder), decode(sparse.indices, where, folder)
    shape, count = checked_shape(sparse.dims, values.dtype.itemsize, where)
    if count * values.dtype.itemsize > 1 << 30:
        raise ImportModelError(f"{where} is sparse and has the shape {list(shape)}: too large")
    fits = values.ndim == 1 and indices.dtype == np.int64 and len(indices) == len(values)
    if (
        not fits
        or indices.ndim not in (1, 2)
        or (indices.ndim == 2 and indices.shape[1] != len(shape))
    ):
        raise ImportModelError(f"{where} is a malformed sparse tensor")
    extents = np.array(shape if indices.ndim == 2 else [count], np.int64)
    places = indices if indices.ndim == 2 else indices[:, None]
    if ((places < 0) | (places >= extents)).any():
        raise ImportModelError(f"{where} has an index outside of {list(shape)}")
    out = np.zeros(count, values.dtype)
    strides = np.array([math.prod(shape[k + 1 :]) for k in range(len(shape))], np.int64)
    out[places @ strides if indices.ndim == 2 else indices] = values
    return out.reshape(shape)
