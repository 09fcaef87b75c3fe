"""Code as nested levels of basic blocks: what does not change in a loop is emitted outside of it.

A level is the inside of a function, of a loop or of a branch. While an inner level is being built,
the outer ones remain open: an instruction that depends on outer variables only is appended there,
before the branch into the inner level, and is found again in that level's cache. So addresses and
index arithmetic stand in the outermost loop they can, without a pass that looks for them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from .values import Val

Loaded: TypeAlias = "tuple[tuple[Val, ...], Val]"


@dataclass(slots=True)
class Level:
    """One depth: the code of its blocks so far, the label of the last, and what it has computed."""

    label: str
    lines: list[str] = field(default_factory=list)
    cache: dict[Hashable, str] = field(default_factory=dict)
    # What was loaded, and under which guards; the buffer's name stands first.
    loaded: dict[tuple[Hashable, ...], list[Loaded]] = field(default_factory=dict)


class Builder:
    """Text of one LLVM function's body."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.levels = [Level("entry")]
        self._names = 0

    @property
    def depth(self) -> int:
        """The number of the innermost level."""
        return len(self.levels) - 1

    @property
    def level(self) -> Level:
        return self.levels[-1]

    def name(self, hint: str = "v") -> str:
        self._names += 1
        return f"%{hint}{self._names}"

    def label(self, hint: str) -> str:
        self._names += 1
        return f"{hint}{self._names}"

    def line(self, text: str, level: int = -1) -> None:
        self.levels[level].lines.append("  " + text)

    def emit(self, text: str, level: int = -1) -> str:
        """An instruction that gives a value; its name."""
        name = self.name()
        self.levels[level].lines.append(f"  {name} = {text}")
        return name

    def once(self, level: int, text: str) -> str:
        """The same for a pure instruction: emitted at most once for a level."""
        cache = self.levels[level].cache
        found = cache.get(text)
        if found is None:
            found = cache[text] = self.emit(text, level)
        return found

    def start(self, label: str) -> None:
        """Begin another basic block of the innermost level."""
        self.level.lines.append(f"{label}:")
        self.level.label = label

    def push(self, label: str) -> Level:
        level = Level(label)
        self.levels.append(level)
        return level

    def pop(self) -> Level:
        return self.levels.pop()


@dataclass
class ModuleText:
    """One LLVM module: definitions, and declarations made on first use."""

    parts: list[str] = field(default_factory=list)
    declared: dict[str, str] = field(default_factory=dict)
    metadata: str = ""
    zero_bytes: int = 64

    def declare(self, name: str, result: str, *arguments: str) -> str:
        """Declare a function; its name."""
        if name not in self.declared:
            self.declared[name] = f"declare {result} @{name}({', '.join(arguments)})"
        return name

    def zeros(self, size: int) -> str:
        """So many bytes of zeros: where a load that must not happen reads instead."""
        self.zero_bytes = max(self.zero_bytes, size)
        return "@planish_zeros"

    def nontemporal(self) -> str:
        """The metadata that marks a store past the caches."""
        self.metadata = "!0 = !{i32 1}"
        return "!0"

    def text(self) -> str:
        array = f"[{self.zero_bytes} x i8] zeroinitializer"
        zeros = f"@planish_zeros = internal constant {array}, align 64"
        return "\n".join([zeros, *self.declared.values(), "", *self.parts, self.metadata]) + "\n"
