"""Just enough of pictures for the demo: read a PNG, resize it, and draw it in a terminal."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.float32]  # [height, width], 0 is black and 1 is white

CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by PNG's colour type: grey, RGB, grey + alpha, RGB + alpha


def read_png(data: bytes) -> Picture:
    """The picture in a PNG file (8 bits a channel, not interlaced) in shades of grey."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("this is no PNG file")
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunks.append((kind, data[at + 8 : at + 8 + size]))
        at += size + 12
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or interlaced or colour not in CHANNELS:
        raise ValueError("only plain PNG files with 8 bits a channel are read here")
    packed = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    channels = CHANNELS[colour]
    rows = _unfilter(packed, height, width * channels, channels)
    pixels = np.frombuffer(rows, np.uint8).reshape(height, width, channels)
    if channels in (2, 4):
        pixels = pixels[..., :-1]
    return pixels.mean(axis=2, dtype=np.float32) / np.float32(255)


def _unfilter(packed: bytes, height: int, stride: int, step: int) -> bytes:
    """Undo PNG's row filters: each byte was stored as its difference from a guess."""
    out = bytearray()
    above = bytes(stride)
    for y in range(height):
        start = y * (stride + 1)
        guess = GUESSES[packed[start]]
        row = bytearray(packed[start + 1 : start + 1 + stride])
        for x in range(stride):
            left, corner = (row[x - step], above[x - step]) if x >= step else (0, 0)
            row[x] = (row[x] + guess(left, above[x], corner)) & 255
        out += row
        above = bytes(row)
    return bytes(out)


def _nearest(left: int, up: int, corner: int) -> int:
    """Paeth's guess: whichever neighbour is nearest to left + up - corner."""
    return min((left, up, corner), key=lambda near: abs(left + up - corner - near))


GUESSES = (
    lambda left, up, corner: 0,
    lambda left, up, corner: left,
    lambda left, up, corner: up,
    lambda left, up, corner: (left + up) // 2,
    _nearest,
)


def resize(picture: Picture, height: int, width: int) -> Picture:
    """The picture at another size, by linear interpolation between pixel centres."""
    tall = _stretch(picture, height)
    return _stretch(tall.T, width).T


def _stretch(rows: Picture, count: int) -> Picture:
    centres = (np.arange(count) + 0.5) * (len(rows) / count) - 0.5
    centres = np.clip(centres, 0, len(rows) - 1)
    first = np.minimum(centres.astype(int), len(rows) - 2)
    share = (centres - first).astype(np.float32)[:, None]
    return rows[first] * (1 - share) + rows[first + 1] * share


# The bit of each dot in a Braille character, which is four dots high and two wide.
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def draw(picture: Picture) -> str:
    """The picture's dark strokes in Braille characters, one dot a pixel."""
    paper = _around(picture.max(axis=0)).max(axis=1)
    black = _around(picture.min(axis=0)).min(axis=1)
    height, width = (-(-size // unit) for size, unit in zip(picture.shape, (4, 2), strict=True))
    ink = np.zeros((height * 4, width * 2), bool)
    ink[: picture.shape[0], : picture.shape[1]] = picture < (paper + black) / 2
    cells = ink.reshape(height, 4, width, 2).swapaxes(1, 2)
    codes = 0x2800 + (cells * DOTS).sum(axis=(2, 3))
    return "\n".join("".join(map(chr, row)) for row in codes)


def _around(columns: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Each column's value and its neighbours': over a photograph the light changes."""
    return np.lib.stride_tricks.sliding_window_view(np.pad(columns, 20, mode="edge"), 41)
