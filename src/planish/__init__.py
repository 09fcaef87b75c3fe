"""planish: a tensor compiler.

``compile`` makes a module of a model, ``load`` reads one from a file. Importing this is cheap:
what a name stands for is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planish.version import __version__

if TYPE_CHECKING:
    from planish import onnx_backend
    from planish.build import compile
    from planish.compiler.errors import (
        CodegenError,
        ImportModelError,
        InternalError,
        ParseError,
        PlanishError,
        RuntimeFault,
        ScheduleError,
        TuningError,
        TypeCheckError,
    )
    from planish.runtime.file import load
    from planish.runtime.module import Module
    from planish.tuning import tune

__all__ = [
    "CodegenError",
    "ImportModelError",
    "InternalError",
    "Module",
    "ParseError",
    "PlanishError",
    "RuntimeFault",
    "ScheduleError",
    "TuningError",
    "TypeCheckError",
    "__version__",
    "compile",
    "load",
    "onnx_backend",
    "tune",
]

_HOMES = {
    "compile": "planish.build",
    "load": "planish.runtime.file",
    "Module": "planish.runtime.module",
    "tune": "planish.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planish' has no attribute {name!r}")
    from importlib import import_module

    if name == "onnx_backend":  # a module
        return import_module("planish.onnx_backend")
    found = getattr(import_module(_HOMES.get(name, "planish.compiler.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
