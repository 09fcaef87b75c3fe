"""Files are written as a whole, or not at all, and nothing that is no file is replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from planish.compiler.errors import ParseError
from planish.compiler.files import hindrance, is_pipe, read_file, written_whole


def write(path: Path, data: bytes = b"new") -> None:
    with written_whole(path) as file:
        file.write(data)


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    write(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_modes_are_kept(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"old")
    place.chmod(mode)
    write(place)
    assert place.read_bytes() == b"new"
    assert stat.S_IMODE(place.stat().st_mode) == mode


def test_owners_are_kept(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    place = tmp_path / "a"
    place.write_bytes(b"old")
    os.chown(place, 1234, 4321)
    write(place)
    assert (place.stat().st_uid, place.stat().st_gid) == (1234, 4321)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    target.write_bytes(b"old")
    (tmp_path / "one").symlink_to("folder/target")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "new").symlink_to("folder/fresh")
    write(tmp_path / "two")
    write(tmp_path / "new", b"fresh")
    assert (tmp_path / "two").is_symlink() and (tmp_path / "one").is_symlink()
    assert target.read_bytes() == b"new"
    assert (tmp_path / "folder" / "fresh").read_bytes() == b"fresh"
    assert sorted(os.listdir(tmp_path)) == ["folder", "new", "one", "two"]
    assert sorted(os.listdir(tmp_path / "folder")) == ["fresh", "target"]


def test_a_device_is_written_to(full_device: Path) -> None:
    full = full_device
    link = full.with_name("link")
    link.symlink_to(full)
    for place in (full, link):
        with pytest.raises(OSError, match="No space left on device"):
            write(place)
    assert stat.S_ISCHR(full.stat().st_mode)
    assert link.is_symlink()
    assert sorted(os.listdir(full.parent)) == ["full", "link"]


def test_a_pipe_is_written_to_and_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_pipe(pipe)
    writer = threading.Thread(target=write, args=(pipe, b"through"))
    writer.start()
    assert read_file(pipe) == b"through"
    writer.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_open_file_that_has_no_name_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "gone").open("w+b") as file:
        (tmp_path / "gone").unlink()
        write(Path(f"/proc/self/fd/{file.fileno()}"))
        assert file.read() == b"new"
    assert os.listdir(tmp_path) == []


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), written_whole(place) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert place.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_long_names(tmp_path: Path) -> None:
    for name in ("n" * 255, "ä" * 127):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"


def test_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    place = tmp_path / "a"
    begin = threading.Barrier(8)
    failures: list[OSError] = []

    def go(k: int) -> None:
        try:
            begin.wait()
            for _ in range(20):
                with written_whole(place) as file:
                    for _ in range(10):
                        file.write(bytes([k]) * 1000)
                        file.flush()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=go, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    data = place.read_bytes()
    assert len(data) == 10_000 and len(set(data)) == 1
    assert os.listdir(tmp_path) == ["a"]


def test_what_may_not_be_written_is_not(shut_folder: Path) -> None:
    kept = shut_folder.parent / "kept"
    for place in (shut_folder / "a", shut_folder / "b" / "a", kept):
        assert hindrance(place) == "Permission denied", place
        with pytest.raises(PermissionError):
            write(place)
    with pytest.raises(ParseError, match="Permission denied"):
        read_file(shut_folder / "a")
    assert kept.read_bytes() == b"old"


def test_hindrances(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("none/file")
    assert hindrance(tmp_path / "new") == hindrance(tmp_path / "file") == ""
    assert hindrance(tmp_path) == "Is a directory"
    assert hindrance(tmp_path / "none" / "new") == "No such file or directory"
    assert hindrance(tmp_path / "dangling") == "No such file or directory"
    assert hindrance(tmp_path / "file" / "new") == "Not a directory"
    assert hindrance(tmp_path / "loop") == "Too many levels of symbolic links"
    assert hindrance(tmp_path / ("n" * 300)) == "File name too long"


def test_devices_are_not_read() -> None:
    with pytest.raises(ParseError, match="it is a device"):
        read_file(Path("/dev/zero"))
