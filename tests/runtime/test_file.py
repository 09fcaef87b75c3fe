from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import planish
from planish.compiler.dtypes import ALL
from planish.compiler.errors import ParseError
from planish.compiler.graph.ir import Array
from planish.runtime.archive import (
    CHUNK_BYTES,
    check_chunks,
    checksums,
    read_archive,
    write_archive,
)
from planish.runtime.file import load, save
from planish.runtime.module import Module
from planish.runtime.tensors import decode, encode, of_bytes

from .twice import expected

X = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)


@pytest.fixture(scope="session")
def saved(module: Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "twice.planish"
    module.save(path)
    return path


def test_a_loaded_module_gives_the_same(module: Module, saved: Path) -> None:
    again = load(saved)
    np.testing.assert_array_equal(again(X)[0], module(X)[0])
    shift = np.float32([3, 4])
    np.testing.assert_allclose(again.run({"x": X, "shift": shift})["y"], expected(X, (3, 4)), 1e-6)
    assert again.interface == module.interface
    assert repr(again) == repr(module)


def test_saving_again_gives_the_same_bytes(module: Module, saved: Path, tmp_path: Path) -> None:
    module.save(tmp_path / "a.planish")
    load(saved).save(tmp_path / "b.planish")
    assert (tmp_path / "a.planish").read_bytes() == saved.read_bytes()
    assert (tmp_path / "b.planish").read_bytes() == saved.read_bytes()


def test_a_module_may_be_saved_over_its_own_file(saved: Path, tmp_path: Path) -> None:
    place = tmp_path / "own.planish"
    place.write_bytes(saved.read_bytes())
    module = load(place)
    module.save(place)
    np.testing.assert_allclose(module(X)[0], expected(X), 1e-6)
    assert os.listdir(tmp_path) == ["own.planish"]


def test_any_zip_program_and_safetensors_can_read_it(module: Module, saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
        manifest = json.loads(archive.read("manifest.json"))
        tensors = safetensors.numpy.load(archive.read("weights.safetensors"))
    assert manifest["interface"]["arena_bytes"] == "n * 16 + 64"
    for k, constant in enumerate(module.constants):
        np.testing.assert_array_equal(tensors[f"constant.{k}"], constant)
    np.testing.assert_array_equal(tensors["default.shift"], np.zeros(2))


def test_weights_are_mapped_and_aligned(saved: Path) -> None:
    module = load(saved)
    for constant in module.constants:
        assert constant.ctypes.data % 64 == 0
        assert not constant.flags.owndata
        assert not constant.flags.writeable


def test_threads_are_remembered(build: Callable[..., Module], tmp_path: Path) -> None:
    build(threads=1).save(tmp_path / "one.planish")
    assert load(tmp_path / "one.planish").threads == 1


def test_every_truncation_is_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    broken = tmp_path / "broken.planish"
    for size in [*range(0, len(whole), 64), len(whole) - 1]:
        broken.write_bytes(whole[:size])
        with pytest.raises(ParseError):
            load(broken)


def test_a_longer_file_is_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "long.planish").write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(ParseError):
        load(tmp_path / "long.planish")


def test_flipped_bits_never_give_a_wrong_number(saved: Path, tmp_path: Path) -> None:
    """Each ends in an error, or changed nothing that matters (padding, say)."""
    whole = saved.read_bytes()
    broken = tmp_path / "broken.planish"
    rng = np.random.default_rng(0)
    refused = 0
    for bit in rng.integers(0, 8 * len(whole), 600).tolist():
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        broken.write_bytes(changed)
        try:
            module = load(broken)
        except ParseError:
            refused += 1
        else:
            np.testing.assert_allclose(module(X)[0], expected(X), 1e-6)
    assert refused > 500


def test_flipped_bits_in_the_directories(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    members = read_archive(memoryview(whole))
    inside = {k for m in members.values() for k in range(m.start, m.end)}
    broken = tmp_path / "broken.planish"
    for byte in range(len(whole)):
        if byte in inside:
            continue
        changed = bytearray(whole)
        changed[byte] ^= 1 << byte % 8
        broken.write_bytes(changed)
        try:
            module = load(broken)
        except ParseError:
            continue
        np.testing.assert_allclose(module(X)[0], expected(X), 1e-6)


def rewrite(saved: Path, place: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """A file that is well-formed but for what ``change`` does to its members."""
    whole = memoryview(saved.read_bytes())
    members = {n: bytes(whole[m.start : m.end]) for n, m in read_archive(whole).items()}
    change(members)
    place.write_bytes(b"".join(write_archive([(n, [data]) for n, data in members.items()])))
    return place


def manifest(members: dict[str, bytes], *path: Any, to: Any) -> None:
    """Change one place of the manifest."""
    contents = json.loads(members["manifest.json"])
    *way, last = path
    at = contents
    for step in way:
        at = at[step]
    at[last] = to
    members["manifest.json"] = json.dumps(contents).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("entry.o"), "no module file"),
        (lambda m: m.update({"../../evil": b""}), "no module file"),
        (lambda m: m.update({"manifest.json": b"{"}), "no JSON"),
        (lambda m: m.update({"manifest.json": b"[" * 100_000}), "no JSON"),
        (lambda m: m.update({"manifest.json": b"[]"}), "no object"),
        (lambda m: m.update({"manifest.json": b"{}"}), "no proper format"),
        (lambda m: manifest(m, "format", to="cake"), "no module file"),
        (lambda m: manifest(m, "schema", to=6), "has schema 6, .* newer planish"),
        (lambda m: manifest(m, "schema", to=0), "has schema 0, .* compile the model again"),
        (lambda m: manifest(m, "target", "features", to=["sse3", "warp"]), "this one lacks warp"),
        (lambda m: manifest(m, "target", "triple", to="riscv64-linux-gnu"), "lacks .* riscv64"),
        (lambda m: manifest(m, "interface", "arena_bytes", to="__import__('os')"), "planish|dtype"),
        (lambda m: manifest(m, "interface", "arena_bytes", to="(" * 9999), "expression"),
        (lambda m: manifest(m, "interface", "arena_bytes", to="n." * 30_000), "too long"),
        (lambda m: manifest(m, "interface", "arena_bytes", to="m * 4"), "not integer arithmetic"),
        (lambda m: manifest(m, "interface", "arena_bytes", to=1 << 70), "no size"),
        (lambda m: manifest(m, "interface", "arena_bytes", to=None), "no proper arena_bytes"),
        (lambda m: manifest(m, "interface", "symbols", to=["k"]), "no input has the size k"),
        (lambda m: manifest(m, "interface", "constants", to=2), "weights are not those"),
        (lambda m: manifest(m, "interface", "inputs", 0, "dtype", to="f12"), "no dtype f12"),
        (lambda m: manifest(m, "interface", "inputs", to=3), "no proper inputs"),
        (lambda m: manifest(m, "interface", "steps", to=[["f"]]), "a step"),
        (lambda m: manifest(m, "members", to={}), "no checksums"),
        (lambda m: m.update({"weights.safetensors": m["weights.safetensors"][:-64]}), "damaged"),
        (lambda m: m.update({"kernels.o": m["kernels.o"][:100]}), "object code|not what"),
        (lambda m: m.update({"kernels.o": b"\x7fELF" + bytes(500)}), "object code|not what"),
    ],
)
def test_what_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], Any], message: str
) -> None:
    with pytest.raises(ParseError, match=f"(?s){message}"):
        load(rewrite(saved, tmp_path / "changed.planish", change))


def test_verify_compares_hashes(saved: Path, tmp_path: Path) -> None:
    load(saved, verify=True)
    place = rewrite(
        saved,
        tmp_path / "other.planish",
        lambda m: manifest(m, "members", "entry.o", "sha256", to="0" * 64),
    )
    load(place)
    with pytest.raises(ParseError, match="entry.o is not what was written"):
        load(place, verify=True)


@pytest.mark.parametrize("contents", [b"", b"PK", b"PK\3\4", b"\x08\x07model", bytes(1000)])
def test_other_files(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "other").write_bytes(contents)
    with pytest.raises(ParseError, match="other"):
        load(tmp_path / "other")


def test_files_that_are_not_there(module: Module, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="cannot be read: No such file"):
        load(tmp_path / "none.planish")
    with pytest.raises(ParseError, match="cannot be read: Is a directory"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ParseError, match="pipe is no file"):
        load(tmp_path / "pipe")
    with pytest.raises(ParseError, match="cannot be written"):
        save(module, tmp_path / "no" / "folder.planish")


def test_a_compressed_zip_is_refused(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "z", "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ParseError):
        load(tmp_path / "z")


def test_tensors_round_trip() -> None:
    import ml_dtypes

    rng = np.random.default_rng(1)
    arrays = {
        "scalar": np.array(3, np.int64),
        "empty": np.zeros((0, 3), np.float32),
        "bits": rng.integers(0, 2, 7).astype(np.bool_),
        "half": rng.standard_normal((3, 5)).astype(np.float16),
        "brain": rng.standard_normal((3, 5)).astype(ml_dtypes.bfloat16),
        "strided": rng.standard_normal((6, 4))[::2],
        "complex": (rng.standard_normal(3) + 2j).astype(np.complex64),
        "float8": rng.standard_normal((3, 5)).astype(ml_dtypes.float8_e4m3fn),
        "power": np.ones(3, ml_dtypes.float8_e8m0fnu),
    }
    data = b"".join(bytes(p) for p in encode(arrays))
    again = decode(memoryview(data))
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].tobytes() == array.tobytes()
    assert {name for name, _ in safetensors.deserialize(data)} >= set(arrays)


def test_tensors_without_a_name_are_bytes() -> None:
    """The format packs elements of fewer than 8 bits, and has no complex numbers of 128."""
    arrays: dict[str, Array] = {
        name: np.ones((2, 3), ALL[name].numpy)
        for name in ("i2", "i4", "u2", "u4", "f4e2m1", "f6e2m3", "f6e3m2", "c128")
    }
    again = decode(memoryview(b"".join(bytes(p) for p in encode(arrays))))
    for name, array in arrays.items():
        assert again[name].dtype == np.uint8
        found = of_bytes(again[name], ALL[name])
        assert found.dtype == array.dtype and found.shape == array.shape
        assert found.tobytes() == array.tobytes()
        assert of_bytes(again[name][:0], ALL[name]).shape == (0, 3)
    other = np.zeros((2, 3), np.uint8)
    assert of_bytes(other, ALL["c128"]) is other


def test_checksums_of_chunks() -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(0, 256, 9 * CHUNK_BYTES + 5, dtype=np.uint8).tobytes()
    sums = checksums([data[:10], data[10 : CHUNK_BYTES + 3], data[CHUNK_BYTES + 3 :]])
    assert len(sums) == 10
    whole = b"".join(write_archive([("a", [data])]))
    member = read_archive(memoryview(whole))["a"]
    assert check_chunks(memoryview(whole), member, sums, 2) == data
    changed = bytearray(whole)
    changed[member.end - 1] ^= 1
    with pytest.raises(ParseError, match="not what was written"):
        check_chunks(memoryview(changed), member, sums, 2)


def test_large_archives_have_large_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bound of 32 bits lowered, the records for 64 are written and read."""
    from planish.runtime import archive

    members = [("a", [b"x" * 300]), ("b", [b"y" * 1000]), ("c", [b"z"])]
    monkeypatch.setattr(archive, "_FULL", 200)
    whole = b"".join(write_archive(members))
    found = read_archive(memoryview(whole))
    assert [whole[m.start : m.end] for m in found.values()] == [b"".join(p) for _, p in members]


def test_loading_imports_nothing_heavy(saved: Path) -> None:
    program = (
        "import sys, numpy, planish\n"
        f"module = planish.load({str(saved)!r})\n"
        "module(numpy.zeros((2, 4), numpy.float32))\n"
        "heavy = {'onnx', 'islpy', 'xgboost', 'rich', 'torch', 'planish.compiler.loop.ir',"
        " 'planish.compiler.graph.ir', 'argparse'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    place = str(Path(planish.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": place}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
