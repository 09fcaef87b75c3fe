"""Inputs and outputs of a graph that are several to it and one to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import DType

MOST_RANK: Final = 8  # of a tensor in a sequence of which only a call knows the length
ROW: Final = 1 + MOST_RANK  # integers that say the shape of one
_PARTS: Final = {
    "sequence": ("values", "shapes"),
    "optional": ("values", "shapes"),
    "optional sequence": ("values", "shapes", "present"),
}
KINDS: Final = tuple(_PARTS)


@dataclass(frozen=True)
class Packing:
    """A sequence of tensors, an optional tensor, or an optional sequence.

    It is the inputs, or outputs, of the names ``parts``: all elements of all tensors one after the
    other; a row of integers for each, its rank and its dimensions with ones behind them; and
    whether an optional sequence is there. ``shape`` is what all tensors have (a dimension is None
    if it is any), or None for any.
    """

    name: str
    kind: str
    dtype: DType
    shape: tuple[int | None, ...] | None = None
    output: bool = False

    @property
    def default(self) -> bool:
        """There is none."""
        return False

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part}" for part in _PARTS[self.kind])

    def __str__(self) -> str:
        dims = ["..."] if self.shape is None else ["?" if d is None else str(d) for d in self.shape]
        return f"{self.name}: {self.kind} of {self.dtype}[{', '.join(dims)}]"
