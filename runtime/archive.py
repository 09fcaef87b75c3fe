"""The container of module files: a zip of stored members at aligned places, read strictly.

Any zip program can open one. Written, it has no time stamps and each member's bytes begin at a
multiple of 64. Read, it must be exactly that: members one after the other from the first byte on,
nothing compressed, nothing between or behind them, both directories in agreement. So a file that
was cut, changed or made to deceive is refused before anything in it is looked at.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from planish.compiler.calling import ALIGNMENT
from planish.compiler.errors import ParseError

CHUNK_BYTES: Final = 4 << 20  # of which a large member's checksums are
MOST_MEMBERS: Final = 64

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
_END: Final = struct.Struct("<4s4H2IH")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR: Final = struct.Struct("<4sIQI")
_PADDING_ID: Final = 0xD935  # of an extra field that only aligns, as Android's zipalign writes it
_ZIP64_ID: Final = 1
_FULL: Final = 0xFFFFFFFF
_TIME, _DATE = 0, 0x21  # midnight of 1980-01-01, where zip's time begins
_MODE: Final = (0o100644 << 16, 3)  # a plain file, made by Unix


@dataclass(frozen=True)
class Member:
    """A member: where its bytes are, and their CRC-32."""

    name: str
    start: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        return self.start + self.size


def write_archive(
    members: Iterable[tuple[str, Sequence[bytes | memoryview]]],
) -> Iterable[bytes | memoryview]:
    """The file's bytes in pieces; a member is its name and its pieces."""
    position = 0
    directory: list[bytes] = []
    for name, pieces in members:
        size = sum(memoryview(p).nbytes for p in pieces)
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        encoded = name.encode("ascii")
        wide = size >= _FULL
        extra = struct.pack("<2H2Q", _ZIP64_ID, 16, size, size) if wide else b""
        head = _LOCAL.size + len(encoded) + len(extra) + 4
        padding = -(position + head) % ALIGNMENT
        extra += struct.pack("<2H", _PADDING_ID, padding) + bytes(padding)
        short = _FULL if wide else size
        common = (45 if wide else 10, 0, 0, _TIME, _DATE, crc, short, short, len(encoded))
        yield _LOCAL.pack(b"PK\3\4", *common, len(extra)) + encoded + extra
        yield from pieces
        directory.append(_directory_entry(encoded, common, size, position))
        position += head + padding + size
    central = b"".join(directory)
    yield central
    if position >= _FULL:
        count = len(directory)
        yield _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(central), position)
        yield _LOCATOR.pack(b"PK\6\7", 0, position + len(central), 1)
    yield _END.pack(
        b"PK\5\6", 0, 0, len(directory), len(directory), len(central), min(position, _FULL), 0
    )


def _directory_entry(name: bytes, common: tuple[int, ...], size: int, position: int) -> bytes:
    wide = [n for n in (size, size) if size >= _FULL] + [position] * (position >= _FULL)
    extra = struct.pack(f"<2H{len(wide)}Q", _ZIP64_ID, 8 * len(wide), *wide) if wide else b""
    version, *rest = common
    mode, system = _MODE
    head = _CENTRAL.pack(
        b"PK\1\2", system << 8 | 45, 45 if wide else version, *rest, len(extra), 0, 0, 0, mode,
        min(position, _FULL),
    )  # fmt: skip
    return head + name + extra


def read_archive(data: memoryview) -> dict[str, Member]:
    """The members of a file, by name. Only the structure is checked: see ``check``.

    Errors: ParseError saying what is wrong.
    """
    try:
        return _read(data)
    except struct.error as error:
        raise _damaged("it ends in the middle of a record") from error


def _read(data: memoryview) -> dict[str, Member]:
    if len(data) < 4 or bytes(data[:4]) != b"PK\3\4":
        raise ParseError("this is no module file")
    count, start, end = _end_record(data)
    out: dict[str, Member] = {}
    position, expected = start, 0
    for _ in range(count):
        found = _CENTRAL.unpack_from(data, position)
        signature, _, _, flags, method, _, _, crc, packed, size, n, m, c, disk, _, _, local = found
        position += _CENTRAL.size
        raw = bytes(data[position : position + n])
        extra = bytes(data[position + n : position + n + m])
        position += n + m + c
        if signature != b"PK\1\2" or flags or method or c or disk or position > end:
            raise _damaged("its directory is not one of ours")
        size, packed, local = _wide(extra, size, packed, local)
        if size != packed or local != expected:
            raise _damaged("its members do not lie one after the other")
        member = _member(data, raw, local, size, crc)
        if member.name in out or member.end > start:
            raise _damaged(f"the member {member.name} is not where it should be")
        out[member.name] = member
        expected = member.end
    if position != end or expected != start:
        raise _damaged("there is something that belongs to no member")
    return out


def _end_record(data: memoryview) -> tuple[int, int, int]:
    """The number of members, and where the directory begins and ends."""
    at = len(data) - _END.size
    if at < 0 or bytes(data[at : at + 4]) != b"PK\5\6":
        raise _damaged("its end is missing")
    _, disk, other, here, count, size, start, comment = _END.unpack_from(data, at)
    if start == _FULL:
        at -= _LOCATOR.size
        signature, _, record, _ = _LOCATOR.unpack_from(data, max(at, 0))
        if signature != b"PK\6\7" or record != at - _END64.size:
            raise _damaged("its end is missing")
        at = record
        _, _, _, _, disk, other, here, count, size, start = _END64.unpack_from(data, at)
    if disk or other or comment or here != count or not 0 < count <= MOST_MEMBERS:
        raise _damaged("its directory is not one of ours")
    if start + size != at:
        raise _damaged("its directory is not where it should be")
    return count, start, at


def _wide(extra: bytes, size: int, packed: int, local: int) -> tuple[int, int, int]:
    """Numbers of more than 32 bits stand in the extra field."""
    wanted = [n == _FULL for n in (size, packed, local)]
    if not any(wanted):
        if extra:
            raise _damaged("its directory is not one of ours")
        return size, packed, local
    values = struct.unpack(f"<2H{sum(wanted)}Q", extra)
    if values[:2] != (_ZIP64_ID, 8 * sum(wanted)):
        raise _damaged("its directory is not one of ours")
    rest = iter(values[2:])
    out = [next(rest) if w else n for w, n in zip(wanted, (size, packed, local), strict=True)]
    return out[0], out[1], out[2]


def _member(data: memoryview, raw: bytes, local: int, size: int, crc: int) -> Member:
    """The member whose header is at ``local``; both records of it must agree."""
    signature, _, flags, method, _, _, its_crc, packed, its_size, n, m = _LOCAL.unpack_from(
        data, local
    )
    begin = local + _LOCAL.size
    start = begin + n + m
    short = min(size, _FULL)
    if (signature, flags, method, its_crc, packed, its_size) != (
        b"PK\3\4",
        0,
        0,
        crc,
        short,
        short,
    ):
        raise _damaged("its directories do not agree")
    if bytes(data[begin : begin + n]) != raw or start % ALIGNMENT:
        raise _damaged("its directories do not agree")
    try:
        name = raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise _damaged("the name of a member is not one of ours") from error
    return Member(name, start, size, crc)


def _damaged(what: str) -> ParseError:
    return ParseError(
        f"the module file is damaged: {what}",
        hint="compile the model again, or copy the file again",
    )


def check(data: memoryview, member: Member) -> memoryview:
    """A member's bytes, if they are what was written.

    Errors: ParseError naming the member.
    """
    view = data[member.start : member.end]
    if zlib.crc32(view) != member.crc:
        raise _damaged(f"{member.name} is not what was written")
    return view


def checksums(pieces: Iterable[bytes | memoryview]) -> list[int]:
    """The CRC-32 of every ``CHUNK_BYTES`` of a member given in pieces."""
    out: list[int] = []
    crc = filled = 0
    for piece in pieces:
        view = memoryview(piece).cast("B") if not isinstance(piece, bytes) else memoryview(piece)
        while len(view):
            part, view = view[: CHUNK_BYTES - filled], view[CHUNK_BYTES - filled :]
            crc, filled = zlib.crc32(part, crc), filled + len(part)
            if filled == CHUNK_BYTES:
                out.append(crc)
                crc = filled = 0
    return [*out, crc] if filled else out


def check_chunks(data: memoryview, member: Member, sums: Sequence[int], threads: int) -> memoryview:
    """A large member's bytes, if they have these checksums; several threads look at them.

    Errors: ParseError naming the member.
    """
    view = data[member.start : member.end]
    count = -(-len(view) // CHUNK_BYTES)
    bad: list[int] = [0] if len(sums) != count else []

    def look(first: int) -> None:
        for k in range(first, count, threads):
            if bad or zlib.crc32(view[k * CHUNK_BYTES : (k + 1) * CHUNK_BYTES]) != sums[k]:
                bad.append(k)
                return

    threads = max(1, min(threads, count // 4))
    helpers = [threading.Thread(target=look, args=(k,)) for k in range(1, threads)]
    for helper in helpers:
        helper.start()
    look(0)
    for helper in helpers:
        helper.join()
    if bad:
        raise _damaged(f"{member.name} is not what was written")
    return view
