"""The moves, by what they change."""

from . import buffers, caches, hints, iterators, loops, reductions, stages, stores

__all__ = [
    "buffers", "caches", "hints", "iterators", "loops", "reductions", "stages", "stores",
]  # fmt: skip
