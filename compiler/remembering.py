"""What is worked out once for expressions and pieces of programs, and kept until it is forgotten.

Expressions live as long as anything refers to them, and what is kept does. A process that compiles
one model after the other would hold the pieces of all of them up to the sum of all limits, which is
gigabytes; so after a model everything is forgotten if much more is alive than was after the last
time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, ParamSpec, TypeVar

from .expr.interned import Interned

P = ParamSpec("P")
T = TypeVar("T")

_FEW: Final = 1 << 16  # expressions alive that are not worth forgetting anything
_clear: Final[list[Callable[[], None]]] = []
_lock: Final = threading.Lock()


def remembered(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have a function keep its last ``most`` results."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        keeping = lru_cache(most)(function)
        when_forgetting(keeping.cache_clear)
        return keeping  # type: ignore[return-value]  # typeshed drops the parameters

    return decorate


def table() -> dict[Any, Any]:
    """A dictionary that is emptied when everything is forgotten: by any thread, at any time."""
    out: dict[Any, Any] = {}
    when_forgetting(out.clear)
    return out


def when_forgetting(clear: Callable[[], None]) -> None:
    """Have something done when everything is forgotten."""
    _clear.append(clear)


def forget() -> None:
    """Forget everything that was kept."""
    for clear in _clear:
        clear()


class _Tidying:
    """Forgets when twice as much is alive as after the last time."""

    def __init__(self) -> None:
        self.limit = _FEW

    def __call__(self) -> None:
        with _lock:
            if Interned.alive() > self.limit:
                forget()
                self.limit = max(_FEW, 2 * Interned.alive())


tidy: Final = _Tidying()
