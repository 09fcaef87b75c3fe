"""Operators that the runtime computes, by a function of its own: what no loops express.

What such an operator is called is the name of the function; its attributes but for sizes are what
the function is told before the first call (see ``planish.runtime.host``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from planish.compiler.calling import Plain
from planish.compiler.dtypes import DType
from planish.compiler.expr.nodes import Expr

from .base import Op


@dataclass(frozen=True)
class HostOp(Op):
    """An operator that compiled code calls the runtime for."""

    takes_strings: ClassVar[bool] = True

    @property
    def attributes(self) -> tuple[tuple[str, Plain], ...]:
        """The attributes as plain data."""
        pairs = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return tuple((name, _plain(x)) for name, x in pairs if not isinstance(x, Expr))


def _plain(value: Any) -> Plain:
    return value.name if isinstance(value, DType) else value


__all__ = ["HostOp"]
