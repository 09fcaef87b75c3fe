"""Which branches of an If fit what follows: found out once, and known when that is read again.

What follows an If whose branches give different ranks is read in each of them to see where it can
be, and then for good. Ifs among what follows are decided in the first of these readings; the second
goes by it. Otherwise each If would double the work for those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Choice:
    """The branches of an If that fit, and what was decided on Ifs within each of them, in order."""

    label: str
    within: dict[int, list[Choice]] = field(default_factory=dict)


class Choices:
    """What was decided in the present reading so far, and what in one before it."""

    def __init__(self) -> None:
        self._made: list[Choice] = []
        self._before: list[Choice] = []

    def add(self, choice: Choice) -> None:
        """Note what was decided."""
        self._made.append(choice)

    def again(self, label: str) -> Choice | None:
        """What was decided on the next If in the reading before, if that is the same If."""
        if not self._before:
            return None
        found = self._before.pop(0)
        if found.label != label:  # the readings differ: nothing else of the one before is asked
            self._before = []
            return None
        self.add(found)
        return found

    def reading(
        self, read: Callable[[], T], before: Sequence[Choice] = ()
    ) -> tuple[T, list[Choice]]:
        """What a reading gives that goes by one before it, and what was decided in it."""
        around = self._made, self._before
        self._made, self._before = [], list(before)
        try:
            return read(), self._made
        finally:
            self._made, self._before = around


__all__ = ["Choice", "Choices"]
