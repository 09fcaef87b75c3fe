"""The moves, by what they change."""

from . import (
    buffers,
    caches,
    constants,
    hints,
    iterators,
    loops,
    reductions,
    stages,
    stores,
    winograd,
)

__all__ = [
    "buffers", "caches", "constants", "hints", "iterators", "loops", "reductions", "stages",
    "stores", "winograd",
]  # fmt: skip
