"""Module files that cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import planish
from planish.runtime.archive import checksums, read_archive, write_archive

from .cases import CASES, case, layer


@cache
def saved() -> bytes:
    """A module file that is right."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.planish"
        planish.compile(layer(), threads=1).save(path)
        return path.read_bytes()


def changed(name: str, change: Callable[[bytearray], bytes | bytearray]) -> None:
    """A case of a file whose bytes are changed."""
    assert name not in CASES, name

    def load(folder: Path) -> object:
        (folder / "layer.planish").write_bytes(change(bytearray(saved())))
        return planish.load(folder / "layer.planish")

    CASES[name] = load


def rewritten(name: str, change: Callable[[dict[str, bytes]], Any]) -> None:
    """A case of a well-formed file with other members."""

    def rewrite(data: bytearray) -> bytes:
        view = memoryview(data)
        members = {n: bytes(view[m.start : m.end]) for n, m in read_archive(view).items()}
        change(members)
        return b"".join(write_archive([(n, [part]) for n, part in members.items()]))

    changed(name, rewrite)


def manifest(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    """Change places of the manifest; ``__`` separates the steps of the way there."""

    def change(members: dict[str, bytes]) -> None:
        contents = json.loads(members["manifest.json"])
        for path, value in changes.items():
            *way, last = path.split("__")
            at = contents
            for key in way:
                at = at[int(key)] if key.isdecimal() else at[key]
            at[last] = value
        members["manifest.json"] = json.dumps(contents).encode()

    return change


def replaced(name: str, contents: bytes | None) -> Callable[[dict[str, bytes]], None]:
    """Other contents in a member (None: those of the kernels), as if they had been written."""

    def change(members: dict[str, bytes]) -> None:
        members[name] = members["kernels.o"] if contents is None else contents
        said = json.loads(members["manifest.json"])
        if "crc32" in said["members"][name]:
            said["members"][name]["crc32"] = checksums([members[name]])
        members["manifest.json"] = json.dumps(said).encode()

    return change


def flip(where: str) -> Callable[[bytearray], bytearray]:
    """Change one bit in the middle of a member."""

    def change(data: bytearray) -> bytearray:
        member = read_archive(memoryview(data))[where]
        data[(member.start + member.end) // 2] ^= 4
        return data

    return change


changed("module_file_that_is_empty", lambda _: b"")
changed("module_file_that_is_text", lambda _: b"hello, this is no module")
changed("module_file_with_another_magic", lambda data: b"QK" + data[2:])
changed("module_file_cut_in_the_middle", lambda data: data[: len(data) // 2])
changed("module_file_cut_at_the_end", lambda data: data[:-1])
changed("module_file_with_something_behind_it", lambda data: data + b"\0")
changed("flipped_bit_in_the_manifest", flip("manifest.json"))
changed("flipped_bit_in_the_code", flip("kernels.o"))
changed("flipped_bit_in_the_weights", flip("weights.safetensors"))
rewritten("module_file_without_a_member", lambda m: m.pop("entry.o"))
rewritten("module_file_with_another_member", lambda m: m.update({"virus.exe": b""}))
rewritten("module_file_of_a_newer_planish", manifest(schema=99))
rewritten("module_file_of_an_older_planish", manifest(schema=0))
rewritten("module_file_of_another_program", manifest(format="cake"))
rewritten("manifest_without_an_interface", lambda m: m.update({"manifest.json": b"{}"}))
rewritten("manifest_that_is_no_json", lambda m: m.update({"manifest.json": b"{"}))
rewritten("manifest_with_an_unknown_dtype", manifest(interface__inputs__0__dtype="f33"))
rewritten("manifest_with_a_program_as_a_size", manifest(
    interface__inputs__0__shape=["__import__('os').system('false')", 16]))  # fmt: skip
rewritten("manifest_with_a_negative_size", manifest(interface__outputs__0__shape=[-1, 8]))
rewritten("manifest_with_a_size_that_nothing_has", manifest(interface__symbols=["batch", "other"]))
rewritten("manifest_of_fewer_constants", manifest(interface__constants=0))
rewritten("manifest_of_a_negative_arena", manifest(interface__arena_bytes=-64))
rewritten("manifest_without_a_target", manifest(target={}))
rewritten("manifest_with_other_features", manifest(target__features="all"))
rewritten("manifest_with_a_million_features", manifest(target__features=["sse3"] * 1_000_000))
rewritten("manifest_of_many_constants", manifest(interface__constants=200_000_000))
rewritten("manifest_of_fewer_constants_than_none", manifest(interface__constants=-1))
rewritten("manifest_with_schedules_of_numbers", manifest(provenance__schedules=[1]))
rewritten("code_that_is_none", replaced("kernels.o", b"\x7fELF, but no more"))
rewritten("code_without_an_entry", replaced("entry.o", None))
rewritten("weights_that_are_none", replaced("weights.safetensors", b"\xff" * 64))
rewritten(
    "module_file_for_another_processor",
    manifest(target__cpu="futuron9", target__isa="avx2048", target__features=["avx", "warp"]),
)
rewritten(
    "module_file_for_another_architecture",
    manifest(target__cpu="c908", target__isa="rvv", target__triple="riscv64-linux-gnu"),
)


@case
def missing_module_file(folder: Path) -> object:
    return planish.load(folder / "none.planish")


@case
def directory_as_module_file(folder: Path) -> object:
    return planish.load(folder)


@case
def model_as_module_file(folder: Path) -> object:
    (folder / "layer.onnx").write_bytes(layer().SerializeToString())
    return planish.load(folder / "layer.onnx")


@case
def save_into_a_folder_that_is_missing(folder: Path) -> object:
    return planish.compile(layer()).save(folder / "none" / "layer.planish")


@case
def calling_a_module_for_another_machine(folder: Path) -> object:
    import numpy as np

    target = "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu"
    module = planish.compile(layer(), target=target)
    return module(np.ones((2, 16), np.float32), np.ones(2, np.int64))
