"""Pictures in files' formats: read by the runtime, with Pillow."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import I64, U8
from planish.compiler.errors import RuntimeFault
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, tensor

from .base import Op
from .host import HostOp

FORMATS: Final = ("RGB", "BGR", "Grayscale")


class _OfFile(HostOp):
    """An operator on the bytes of a file."""

    def check(self, x: TensorType) -> None:
        if x.dtype is not U8 or x.rank != 1:
            raise self.fail(f"a file is u8[n], not {x}")


@dataclass(frozen=True)
class ImageSize(_OfFile):
    """How many rows and columns the picture in a file has.

    Shape: file u8 [n] -> i64 [2].
    Source: ONNX ImageDecoder-20.
    """

    name = "image_size"

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        return tensor(I64, 2)

    def reference(self, x: Array) -> Array:
        return np.array(_pixels(x).shape[:2], np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [_bitmap(5, 3)]


@dataclass(frozen=True)
class ImageDecode(_OfFile):
    """The picture in a file, of so many ``rows`` and ``columns``.

    The last axis is red, green and blue (``RGB``), the same from the end (``BGR``), or the
    brightness alone (``Grayscale``).

    Shape: file u8 [n] -> u8 [rows, columns, 3 or 1].
    Errors: TypeCheckError for another format.
    Source: ONNX ImageDecoder-20.
    """

    name = "image_decode"

    rows: Expr
    columns: Expr
    format: str = "RGB"

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        if self.format not in FORMATS:
            raise self.fail(f"there is no format {self.format}", hint="one of " + " ".join(FORMATS))
        return tensor(U8, self.rows, self.columns, 1 if self.format == "Grayscale" else 3)

    def reference(self, x: Array) -> Array:
        pixels = _pixels(x)
        if self.format == "RGB":
            return pixels
        if self.format == "BGR":
            return pixels[:, :, ::-1].copy()
        weights = np.array([19595, 38470, 7471])  # of ITU-R 601-2 luma, as Pillow rounds it
        bright = (pixels.astype(np.int64) @ weights + 0x8000) >> 16
        return np.asarray(bright.astype(np.uint8)[:, :, None])

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        for format in FORMATS:
            yield cls(as_expr(5), as_expr(3), format), [_bitmap(5, 3)]
        yield cls(as_expr(1), as_expr(4)), [_bitmap(1, 4)]


def _bitmap(rows: int, columns: int) -> Array:
    """A file in the simplest of the formats."""
    pixels = np.random.default_rng(rows * columns).integers(0, 256, (rows, columns, 3), np.uint8)
    lines = np.zeros((rows, -(-3 * columns // 4) * 4), np.uint8)
    lines[:, : 3 * columns] = pixels[::-1, :, ::-1].reshape(rows, 3 * columns)
    head = struct.pack("<2sIHHI", b"BM", 54 + lines.size, 0, 0, 54)
    head += struct.pack("<IiiHHIIiiII", 40, columns, rows, 1, 24, 0, lines.size, 2835, 2835, 0, 0)
    return np.frombuffer(head + lines.tobytes(), np.uint8)


def _pixels(file: Array) -> Array:
    """The pixels of a bitmap; those of other files by Pillow."""
    data = file.tobytes()
    if data[:2] == b"BM" and data[14:18] == struct.pack("<I", 40) and data[28] == 24:
        columns, rows = struct.unpack("<ii", data[18:26])
        width = -(-3 * columns // 4) * 4
        lines = np.frombuffer(data, np.uint8, rows * width, 54).reshape(rows, width)
        return lines[::-1, : 3 * columns].reshape(rows, columns, 3)[:, :, ::-1].copy()
    from PIL import Image

    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise RuntimeFault(f"the picture cannot be read: {error}") from error


__all__ = ["FORMATS", "ImageDecode", "ImageSize"]
