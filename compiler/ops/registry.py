"""All operators by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from planish.compiler.errors import ParseError

from .base import Op


@cache
def load_operators() -> None:
    """Import every module of operators, so that ``Op.registry`` is complete."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def operator(name: str) -> type[Op]:
    """The operator's class.

    Errors: ParseError if there is none.
    """
    if name not in Op.registry:
        load_operators()
    if name not in Op.registry:
        raise ParseError(f"there is no operator {name}")
    return Op.registry[name]
