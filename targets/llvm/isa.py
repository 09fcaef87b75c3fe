"""Instruction sets: what LLVM's generic operations do not say."""

from __future__ import annotations

from dataclasses import dataclass

from planish.compiler.dtypes import DType


@dataclass(frozen=True)
class Isa:
    """An instruction set by name; the widest float vectors have ``lanes`` of f32."""

    name: str = "generic"
    lanes: int = 4

    def extreme(self, greatest: bool, dtype: DType, lanes: int) -> tuple[str, tuple[str, ...]] | None:
        """The intrinsic for "x if x > y else y" with its further operands, or None to compare and select.

        On x86 the intrinsic keeps LLVM from making a masked store of a select that is stored over its own
        operand, which is many times slower.
        """
        op = "max" if greatest else "min"
        if not self.name.startswith(("sse", "avx")) or dtype.name not in ("f32", "f64"):
            return None
        kind = "ps" if dtype.name == "f32" else "pd"
        width = lanes * dtype.bits
        if width == 128:
            return (f"llvm.x86.sse.{op}.ps" if kind == "ps" else f"llvm.x86.sse2.{op}.pd"), ()
        if width == 256 and self.name.startswith("avx"):
            return f"llvm.x86.avx.{op}.{kind}.256", ()
        if width == 512 and self.name == "avx512":
            return f"llvm.x86.avx512.{op}.{kind}.512", ("i32 4",)
        return None
