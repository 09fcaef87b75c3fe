from __future__ import annotations

import pytest

from planish.compiler.errors import ParseError
from planish.targets.llvm.target import CODE_FEATURES, CPUS, Llvm, host
from planish.targets.target import parse_target


@pytest.mark.parametrize(
    ("text", "isa", "vector_bytes", "registers", "fma"),
    [
        ("-mcpu=haswell -mtriple=x86_64-linux-gnu", "avx2", 32, 16, True),
        ("-mcpu=znver4 -mtriple=x86_64-linux-gnu", "avx512", 64, 32, True),
        ("-mcpu=nehalem -mtriple=x86_64-linux-gnu", "generic", 16, 16, False),
        ("-mcpu=cortex-a76 -mtriple=aarch64-linux-gnu", "neon", 16, 32, True),
        ("-mtriple=aarch64-linux-gnu", "neon", 16, 32, True),
        ("-mtriple=riscv64-linux-gnu", "generic", 16, 16, False),
        ("-mtriple=x86_64-linux-gnu -mattr=+avx,+avx2,+fma", "avx2", 32, 16, True),
    ],
)
def test_machines(text: str, isa: str, vector_bytes: int, registers: int, fma: bool) -> None:
    machine = parse_target(f"llvm {text}").machine
    assert machine.isa == isa
    assert machine.vector_bytes == vector_bytes
    assert machine.vector_registers == registers
    assert machine.fma is fma


@pytest.mark.parametrize(
    "text",
    ["llvm", "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu"],
)
def test_a_target_parses_back(text: str) -> None:
    target = parse_target(text)
    assert parse_target(str(target)) == target
    assert hash(parse_target(str(target))) == hash(target)


@pytest.mark.parametrize(
    "text",
    [
        "llvm -mcpu=core2 -mtriple=x86_64-linux-gnu -mattr=+ssse3",
        "llvm -mtriple=riscv64-linux-gnu -mattr=+v",
        "llvm -mtriple=x86_64-unknown-linux-musl -mattr=+avx2,+fma",
        "llvm -mtriple=aarch64-none-elf",
    ],
)
def test_what_llvm_knows_will_do(text: str) -> None:
    target = parse_target(text)
    assert isinstance(target, Llvm)
    assert target.llvm_machine() is not None


def test_the_host_lacks_nothing() -> None:
    here = host()
    assert here.is_host
    assert here.missing == ()
    assert here.machine.cores >= 1


def test_what_is_missing_is_named() -> None:
    here = host()
    lacking = Llvm(here.cpu, here.triple, (*here.features, "warp"))
    assert lacking.missing == ("warp",)
    other = "aarch64" if here.architecture == "x86_64" else "x86_64"
    (said,) = parse_target(f"llvm -mtriple={other}-linux-gnu").missing  # type: ignore[attr-defined]
    assert other in said
    (said,) = Llvm(here.cpu, f"{here.architecture}-apple-darwin", ()).missing
    assert "darwin" in said


def test_the_features_of_cpus_are_known() -> None:
    for architecture, cpus in CPUS.items():
        for features in cpus.values():
            assert set(features) <= set(CODE_FEATURES[architecture])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llvm -mcpu=cray1", "nothing is known of the CPU 'cray1'"),
        ("llvm -mfoo=1", "'-mfoo=1' is no option"),
        ("llvm -mcpu=", "'-mcpu=' is no option"),
        ("llvm -mcpu=haswell -mcpu=haswell", "is no option"),
        ("llvm -mattr=avx2", "'avx2' is no feature"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2,+foo", "'.foo' is no feature of x86_64"),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+avx2", "'.avx2' is no feature of aarch64"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=cray1 -mattr=+avx2", "'cray1' is not a recognized"),
        ("llvm -mtriple=riscv64-linux-gnu -mattr=+v,+foo", "'.foo' is not a recognized feature"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=neoverse-n1", "add -mtriple=aarch64-linux-gnu"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4", "add -mtriple=x86_64-linux-gnu"),
        ("llvm -mtriple=x86_64-pc-windows-msvc", "not Linux, .*\n.*\n.*-mtriple=x86_64-linux-gnu"),
    ],
)
def test_wrong_options(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_target(text)
