"""Machines as data: what schedules and kernels have to fit into.

An instruction set follows from an architecture and the names of features, as LLVM spells them;
caches and cores of the machine at hand come from the system, those of another are the defaults.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class InstructionSet:
    """A level of vector instructions: the features that make it, and what it offers.

    ``pairs``: products of 16-bit integers are added up in pairs, in lanes of 32 bits.
    """

    name: str
    architectures: tuple[str, ...]
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    fma: bool
    pairs: bool = False


# The first that an architecture and its features fulfil.
INSTRUCTION_SETS: Final = (
    InstructionSet(
        "avx512",
        ("x86_64",),
        ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"),
        64,
        32,
        True,
        pairs=True,
    ),
    InstructionSet("avx2", ("x86_64",), ("avx2", "fma"), 32, 16, True, pairs=True),
    InstructionSet("generic", ("x86_64",), (), 16, 16, False),
    InstructionSet("neon", ("aarch64", "arm64"), ("neon",), 16, 32, True),
    InstructionSet("generic", (), (), 16, 16, False),
)


@dataclass(frozen=True)
class Machine:
    """A machine; ``l1_bytes`` and ``l2_bytes`` are those of one core, ``l3_bytes`` are shared."""

    isa: str
    vector_bytes: int
    vector_registers: int
    fma: bool
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    l3_bytes: int = 8 << 20
    cores: int = 1
    pairs: bool = False

    def lanes(self, element_bytes: int) -> int:
        """Elements in a vector register."""
        return max(1, self.vector_bytes // element_bytes)


def instruction_set(architecture: str, features: frozenset[str]) -> InstructionSet:
    """The best level that an architecture with these features has."""
    for isa in INSTRUCTION_SETS:
        fits = not isa.architectures or architecture in isa.architectures
        if fits and features.issuperset(isa.features):
            return isa
    raise AssertionError("the last one fits all")


def machine_with(architecture: str, features: frozenset[str]) -> Machine:
    """A machine of which only the instructions are known."""
    isa = instruction_set(architecture, features)
    return Machine(
        isa.name, isa.vector_bytes, isa.vector_registers, isa.fma, cores=4, pairs=isa.pairs
    )


def host_machine(architecture: str, features: frozenset[str]) -> Machine:
    """The machine at hand, restricted to these features."""
    isa = instruction_set(architecture, features)
    l1, l2, l3 = cache_bytes()
    return Machine(
        isa.name, isa.vector_bytes, isa.vector_registers, isa.fma, l1, l2, l3, cores(), isa.pairs
    )


def cores() -> int:
    """How many cores the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, int, int]:
    """The sizes of the three levels of data caches, with defaults where the system does not say."""
    found: dict[int, int] = {}
    for index in sorted(root.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
        digits = size.rstrip("KMG")
        if kind in ("Data", "Unified") and digits.isdecimal():
            found[level] = int(digits) * scale
    default = Machine("generic", 16, 16, False)
    l1, l2 = found.get(1, default.l1_bytes), found.get(2, default.l2_bytes)
    return l1, l2, found.get(3, max(default.l3_bytes if not found else l2, l2))
