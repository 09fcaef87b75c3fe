"""Constants brought into the form in which a schedule wants a parameter.

A form is either another order of the same elements, or what a function makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planish.compiler.errors import InternalError
from planish.compiler.expr.text import parse
from planish.compiler.loop.evaluate import evaluate_function
from planish.compiler.loop.ir import Function

from .ir import Array

_PART: Final = re.compile(r"d(\d+)(?: (//|%) (\d+))?")


@dataclass(frozen=True)
class Relayout:
    """The element ``d0, d1 ...`` at ``dims``, expressions over these, of an array of a shape."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Computed:
    """The one result of a function of one array."""

    func: Function


Form: TypeAlias = Relayout | Computed


def formed(array: Array, forms: Sequence[Form]) -> Array:
    """The array brought into one form after the other."""
    for form in forms:
        match form:
            case Relayout(dims, shape):
                array = relayout(array, dims, shape)
            case Computed(func):
                (array,) = evaluate_function(func, [array])
    return array


def relayout(array: Array, dims: Sequence[str], shape: Sequence[int]) -> Array:
    """The array with its element ``d0, d1 ...`` at ``dims``, expressions over these; else zeros."""
    parts = [_PART.fullmatch(d) for d in dims]
    if all(parts):
        out = _blocked(array, [(int(p[1]), p[2], int(p[3] or 0)) for p in parts if p], shape)
        if out is not None:
            return out
    return _scattered(array, dims, shape)


def _blocked(
    array: Array, parts: list[tuple[int, str | None, int]], shape: Sequence[int]
) -> Array | None:
    """Dimensions that are whole, or split in two by one factor: pad, reshape, transpose."""
    factors: dict[int, int] = {}
    for d, how, factor in parts:
        if how is not None and factors.setdefault(d, factor) != factor:
            return None
    split: list[int] = []
    place: dict[tuple[int, str | None], int] = {}
    pad = []
    for d, extent in enumerate(array.shape):
        c = factors.get(d, 0)
        if not c:
            place[d, None] = len(split)
            split.append(extent)
            pad.append((0, 0))
            continue
        blocks = -(-extent // c)
        place[d, "//"], place[d, "%"] = len(split), len(split) + 1
        split += [blocks, c]
        pad.append((0, blocks * c - extent))
    order = [place.get((d, how)) for d, how, _ in parts]
    if None in order or sorted(x for x in order if x is not None) != list(range(len(split))):
        return None
    padded = np.pad(array, pad) if any(p != (0, 0) for p in pad) else array
    out = padded.reshape(split).transpose([x for x in order if x is not None])
    if out.shape != tuple(shape):
        return None
    return np.ascontiguousarray(out)


def _scattered(array: Array, dims: Sequence[str], shape: Sequence[int]) -> Array:
    """Any other form, element by element."""
    from planish.compiler.expr.evaluate import evaluate_array

    grid = np.indices(array.shape, dtype=np.int64)
    env = {f"d{k}": grid[k] for k in range(array.ndim)}
    places = []
    for d, extent in zip(dims, shape, strict=True):
        at = np.broadcast_to(evaluate_array(parse(d), env, {}), array.shape)
        if at.size and (at.min() < 0 or at.max() >= extent):
            raise InternalError(f"{d} leaves the extent {extent}", op="prepack")
        places.append(at)
    out = np.zeros(tuple(shape), array.dtype)
    out[tuple(places)] = array
    return out
