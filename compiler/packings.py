"""Inputs and outputs of a graph that are several to it and one to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import I64, STRING, DType

MOST_RANK: Final = 8  # of a tensor in a sequence of which only a call knows the length
ROW: Final = 1 + MOST_RANK  # integers that say the shape of one
MAP_KEYS: Final = {"string": STRING, "i64": I64}
_PARTS: Final = {
    "sequence": ("values", "shapes"),
    "optional": ("values", "shapes"),
    "optional sequence": ("values", "shapes", "present"),
    **{f"{maps} from {key}": ("keys", "values") for maps in ("map", "maps") for key in MAP_KEYS},
}
KINDS: Final = tuple(_PARTS)


@dataclass(frozen=True)
class Packing:
    """A sequence of tensors, an optional tensor, an optional sequence, a map, or several maps.

    It is the inputs, or outputs, of the names ``parts``: all elements of all tensors one after the
    other; a row of integers for each, its rank and its dimensions with ones behind them; and
    whether an optional sequence is there. ``shape`` is what all tensors have (a dimension is None
    if it is any), or None for any. A map is its keys and its values; several maps have the same
    keys, and a row of values each.
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

    @property
    def key(self) -> DType | None:
        """What the keys of maps are; None if it is none."""
        return MAP_KEYS.get(self.kind.partition("from ")[2])

    @property
    def has_many(self) -> bool:
        """Whether it is several maps."""
        return self.kind.startswith("maps ")

    def __str__(self) -> str:
        if self.key is not None:
            return f"{self.name}: {self.kind} to {self.dtype}"
        dims = ["..."] if self.shape is None else ["?" if d is None else str(d) for d in self.shape]
        return f"{self.name}: {self.kind} of {self.dtype}[{', '.join(dims)}]"
