"""The moves, by what they change."""

from . import iterators, loops, reductions, stages, stores

__all__ = ["iterators", "loops", "reductions", "stages", "stores"]
