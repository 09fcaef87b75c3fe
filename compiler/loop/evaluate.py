"""Stages without reductions evaluated by numpy: fast, in parts that stay in the caches.

What depends on constants only is worked out so when a model is compiled. The oracle is
``interpret``, which trusts nothing and takes its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.errors import InternalError
from planish.compiler.expr.evaluate import evaluate_array
from planish.compiler.expr.nodes import TRUE

from .ir import Block, Function, blocks, constant

Array: TypeAlias = np.ndarray[Any, Any]

AT_ONCE: Final = 1 << 18  # elements of a part


def is_evaluable(func: Function) -> bool:
    """Whether each block computes all of a buffer of known size, element by element."""
    return not func.symbols and all(_is_stage(func, b) for b in blocks(func.body))


def _is_stage(func: Function, b: Block) -> bool:
    extents = tuple(i.extent for i in b.iters)
    return (
        b.combiner is None
        and b.where is TRUE
        and b.indices == tuple(i.var for i in b.spatial)
        and extents == func.buffers[b.buffer].shape
        and all(constant(e) is not None for e in extents)
    )


def evaluate_function(func: Function, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a function of stages for its inputs.

    Errors: InternalError if it has a block of another kind.
    """
    if not is_evaluable(func):
        raise InternalError("not a function of plain stages", op="evaluate", node=func.name)
    values = {b.name: x for b, x in zip(func.inputs, inputs, strict=True)}
    for b in blocks(func.body):
        values[b.buffer] = _stage(b, values, func.buffers[b.buffer].dtype.numpy)
    return tuple(values[b.name] for b in func.results)


def _stage(b: Block, values: dict[str, Array], dtype: Any) -> Array:
    """All of a block's buffer, cut along its longest dimension."""
    shape = [int(constant(i.extent) or 0) for i in b.iters]
    out = np.empty(shape, dtype)
    if not out.size:
        return out
    cut = int(np.argmax(shape))
    step = max(1, AT_ONCE * shape[cut] // out.size)
    axes = [np.arange(d, dtype=np.int64) for d in shape]
    names = [i.var.name for i in b.iters]
    for first in range(0, shape[cut], step):
        part = [x[first : first + step] if k == cut else x for k, x in enumerate(axes)]
        env = dict(zip(names, np.ix_(*part), strict=True))
        where = tuple(
            slice(first, first + step) if k == cut else slice(None) for k in range(len(shape))
        )
        out[where] = evaluate_array(b.value, env, values)
    return out


__all__ = ["evaluate_function", "is_evaluable"]
