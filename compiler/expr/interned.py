"""Hash-consed nodes: equal structure is the same object."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar, Final


def _key(value: Any) -> Any:
    """What decides identity: 0.0 and -0.0 differ, 1 and True and 1.0 differ, NaN equals NaN."""
    kind = type(value)
    if kind is float:
        return value.hex()
    if kind is int or kind is bool:
        return (kind, value)
    if kind is tuple:
        return tuple(map(_key, value))
    return value


_KEYED: Final = frozenset({float, int, bool, tuple})


class Interned(type):
    """Metaclass: building a node that exists gives the one that exists."""

    __match_args__: tuple[str, ...]
    __dataclass_fields__: dict[str, Any]
    _live: ClassVar[dict[Any, weakref.ref[Any]]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    @staticmethod
    def alive() -> int:
        """How many nodes there are."""
        return len(Interned._live)

    def __call__(cls, *args: Any) -> Any:
        if len(args) < len(cls.__match_args__):  # defaults are part of the identity
            fields = cls.__dataclass_fields__
            args += tuple(fields[name].default for name in cls.__match_args__[len(args) :])
        key = (cls, *[_key(a) if type(a) in _KEYED else a for a in args])
        ref = Interned._live.get(key)
        if ref is not None and (node := ref()) is not None:
            return node
        with Interned._lock:
            ref = Interned._live.get(key)
            if ref is not None and (node := ref()) is not None:
                return node
            node = super().__call__(*args)
            Interned._live[key] = weakref.ref(node, lambda dead: _forget(key, dead))
            return node


def _forget(key: Any, dead: weakref.ref[Any]) -> None:
    with Interned._lock:
        if Interned._live.get(key) is dead:
            del Interned._live[key]
