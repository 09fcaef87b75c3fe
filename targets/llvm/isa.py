"""Instruction sets: what LLVM's generic operations do not say, and what a CPU cannot do by itself.

Code calls nothing outside of itself and the pool. What LLVM would make a call of the C library of,
because the CPU has no instruction for it, is written out here and in ``operations``:

- without fused multiply-add, ``fma`` goes through float64 (or two float64), which rounds the same
  but for rare cases; sums of products are a multiplication and an addition;
- without instructions that round to integers, adding and subtracting 2^23 (or 2^52) does it;
- float16 without conversions, and bfloat16 always, are converted by integer arithmetic on their
  bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import DType

# What the CPUs that a name stands for have, where nothing else is known of them.
_USUAL: Final[dict[str, frozenset[str]]] = {
    "avx2": frozenset({"f16c", "fma", "sse4.1"}),
    "avx512": frozenset({"f16c", "fma", "sse4.1"}),
    "neon": frozenset({"neon"}),
}

# By lanes of the result.
_PAIRS: Final = {
    4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512",
}  # fmt: skip


@dataclass(frozen=True)
class Isa:
    """An instruction set by name; the widest float vectors have ``lanes`` of f32.

    ``features`` are LLVM's; None: those that the name promises.
    """

    name: str = "generic"
    lanes: int = 4
    features: frozenset[str] | None = None

    def _has(self, feature: str) -> bool:
        known = _USUAL.get(self.name, frozenset()) if self.features is None else self.features
        return self.name == "neon" or feature in known

    @property
    def fma(self) -> bool:
        """Whether there is a fused multiply-add."""
        return self._has("fma")

    @property
    def masks(self) -> bool:
        """Whether masked loads and stores are as fast as others."""
        return self.name == "avx512"

    @property
    def rounds(self) -> bool:
        """Whether there are instructions that round floats to integers."""
        return self._has("sse4.1")

    @property
    def halves(self) -> bool:
        """Whether there are conversions of float16."""
        return self._has("f16c")

    def pairs(self, lanes: int) -> str | None:
        """The intrinsic that multiplies 2 * ``lanes`` i16 and adds neighbours up in i32."""
        if not self.name.startswith("avx") or (lanes == 16 and self.name != "avx512"):
            return None
        return _PAIRS.get(lanes)

    def extreme(
        self, greatest: bool, dtype: DType, lanes: int
    ) -> tuple[str, tuple[str, ...]] | None:
        """The intrinsic for "x if x > y else y", and its further operands.

        None: compare and select. On x86 the intrinsic keeps LLVM from making a masked store of a
        select that is stored over its own operand, which is many times slower.
        """
        op = "max" if greatest else "min"
        if not self.name.startswith("avx") or dtype.name not in ("f32", "f64"):
            return None
        kind = "ps" if dtype.name == "f32" else "pd"
        width = lanes * dtype.bits
        if width == 128:
            return (f"llvm.x86.sse.{op}.ps" if kind == "ps" else f"llvm.x86.sse2.{op}.pd"), ()
        if width == 256:
            return f"llvm.x86.avx.{op}.{kind}.256", ()
        if width == 512 and self.name == "avx512":
            return f"llvm.x86.avx512.{op}.{kind}.512", ("i32 4",)
        return None
