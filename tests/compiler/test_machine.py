from __future__ import annotations

from pathlib import Path

from planish.compiler.machine import Machine, cache_bytes, host_machine, machine_with


def write_cache(root: Path, index: int, level: int, kind: str, size: str) -> None:
    folder = root / f"index{index}"
    folder.mkdir()
    for name, text in (("level", str(level)), ("type", kind), ("size", size)):
        (folder / name).write_text(text + "\n")


def test_caches_come_from_the_system(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, 1, "Data", "48K")
    write_cache(tmp_path, 1, 1, "Instruction", "64K")
    write_cache(tmp_path, 2, 2, "Unified", "2048K")
    write_cache(tmp_path, 3, 3, "Unified", "32M")
    assert cache_bytes(tmp_path) == (48 << 10, 2 << 20, 32 << 20)


def test_caches_have_defaults(tmp_path: Path) -> None:
    assert cache_bytes(tmp_path / "none") == (32 << 10, 512 << 10, 8 << 20)
    write_cache(tmp_path, 0, 2, "Unified", "what")
    write_cache(tmp_path, 1, 1, "Data", "16K")
    assert cache_bytes(tmp_path) == (16 << 10, 512 << 10, 512 << 10)


def test_lanes() -> None:
    machine = Machine("avx2", 32, 16, True)
    assert [machine.lanes(b) for b in (1, 2, 4, 8, 64)] == [32, 16, 8, 4, 1]


def test_the_best_instruction_set_is_taken() -> None:
    assert machine_with("x86_64", frozenset({"avx2", "fma", "avx512f"})).isa == "avx2"
    assert machine_with("x86_64", frozenset({"avx2"})).isa == "generic"
    assert host_machine("aarch64", frozenset({"neon"})).isa == "neon"
