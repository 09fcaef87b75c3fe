"""What is closed at the end of ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Something with a ``close`` that may be called more than once."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
