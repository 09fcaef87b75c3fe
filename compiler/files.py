"""Files: what kind one is, and how one is written as a whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from .errors import ParseError

MANIFEST: Final = "manifest.json"
HEAD_BYTES: Final = 30 + len(MANIFEST)  # of a zip, up to the end of its first member's name
ZIP: Final = b"PK\3\4"


def is_module(head: bytes | memoryview) -> bool:
    """Whether a file that begins like this is a module file: a zip that begins with a manifest."""
    head = bytes(head[:HEAD_BYTES])
    return head.startswith(ZIP) and head.endswith(MANIFEST.encode())


def why(error: OSError | ValueError) -> str:
    """What the system has against a file, in its words."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def is_pipe(path: Path) -> bool:
    """Whether there is something that is neither a plain file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()


def read_file(path: Path) -> bytes:
    """The bytes of a file or of a pipe.

    Errors: ParseError if it cannot be read, or is a device, which may have no end.
    """
    try:
        with path.open("rb") as file:
            kind = os.fstat(file.fileno()).st_mode
            if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                raise ParseError(f"{path} cannot be read: it is a device")
            return file.read()
    except OSError as error:
        raise ParseError(f"{path} cannot be read: {why(error)}") from error


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to; one that was there stays until the new one is complete.

    A link is followed, and owner and mode of what was there are kept. What is no regular file, such
    as a pipe or a device, is written to as it is.

    Errors: OSError; nothing is left behind then.
    """
    target = Path(os.path.realpath(path))
    before = _status(path)
    # What /proc calls an open file need not lie where its link says.
    if before and not (stat.S_ISREG(before.st_mode) and _same(before, _status(target))):
        with open(path, "wb") as file:
            yield file
        return
    if before and not _may(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    temporary = target.with_name(f".{target.name[:40]}.{os.urandom(8).hex()}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            if before:
                _take_over(file, before)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def hindrance(path: str | os.PathLike[str]) -> str:
    """Why a file cannot be written, as far as that can be told before it is; empty if it can."""
    try:
        before = _status(path)
        target = Path(os.path.realpath(path))
        plain = before is None or stat.S_ISREG(before.st_mode)
        folder = os.stat(target.parent).st_mode if plain else stat.S_IFDIR
    except OSError as error:
        return why(error)
    if before and stat.S_ISDIR(before.st_mode):
        return os.strerror(errno.EISDIR)
    if not stat.S_ISDIR(folder):
        return os.strerror(errno.ENOTDIR)
    allowed = (before is None or _may(path, os.W_OK)) and (
        not plain or _may(target.parent, os.W_OK | os.X_OK)
    )
    return "" if allowed else os.strerror(errno.EACCES)


def _status(path: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _may(path: str | os.PathLike[str], mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _same(a: os.stat_result, b: os.stat_result | None) -> bool:
    return b is not None and os.path.samestat(a, b)


def _take_over(file: IO[Any], before: os.stat_result) -> None:
    with suppress(PermissionError):  # only some may give files away
        os.fchown(file.fileno(), before.st_uid, before.st_gid)
    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
