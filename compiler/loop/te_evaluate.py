"""Tensor expressions evaluated by numpy: each stage over its whole index grid.

An oracle for the operators' ``compute``: simple, and generous with memory (each index of each load
is an array).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import DType
from planish.compiler.errors import InternalError
from planish.compiler.expr.evaluate import evaluate as scalar
from planish.compiler.expr.evaluate import evaluate_array
from planish.compiler.expr.nodes import Expr, Var

from . import te

Array: TypeAlias = np.ndarray[Any, Any]

_REDUCE: Final[dict[str, np.ufunc]] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def evaluate(
    outputs: tuple[te.Tensor, ...],
    inputs: Mapping[te.Tensor, Array],
    symbols: Mapping[Var, int] | None = None,
) -> tuple[Array, ...]:
    """The values of ``outputs`` for those of the placeholders and of the symbolic dimensions.

    Errors: InternalError for a load out of bounds, or a stage whose type is not what it says.
    """
    sizes = {v.name: k for v, k in (symbols or {}).items()}
    values: dict[str, Array] = {}
    for tensor in te.stages(*outputs):
        if tensor in inputs:
            values[tensor.name] = inputs[tensor]
        elif tensor.body is None:
            raise InternalError(f"{tensor.name} has no value", op="te")
        else:
            values[tensor.name] = _stage(tensor, tensor.body, values, sizes)
    return tuple(values[t.name] for t in outputs)


def _stage(
    tensor: te.Tensor, body: Expr, values: Mapping[str, Array], sizes: Mapping[str, int]
) -> Array:
    extents = (*tensor.shape, *(e for _, e in tensor.reduce_axes))
    shape = tuple(int(scalar(e, sizes)) for e in extents)
    if 0 in shape:
        elements = np.zeros(shape, tensor.dtype.numpy)
    else:
        variables = (*tensor.axes, *(v for v, _ in tensor.reduce_axes))
        grid = np.ix_(*(np.arange(k, dtype=np.int64) for k in shape))
        env = {**sizes, **{v.name: g for v, g in zip(variables, grid, strict=True)}}
        elements = np.broadcast_to(evaluate_array(body, env, values), shape)
    if elements.dtype != tensor.dtype.numpy:
        raise InternalError(f"{tensor.name} is {elements.dtype}, not {tensor.dtype}", op="te")
    if tensor.combiner is None or not tensor.reduce_axes:
        return np.ascontiguousarray(elements).reshape(shape)
    return _reduced(tensor.combiner, elements, len(tensor.shape), tensor.dtype)


def _reduced(combiner: str, elements: Array, rank: int, dtype: DType) -> Array:
    axes = tuple(range(rank, elements.ndim))
    start = np.asarray(te.COMBINERS[combiner](dtype).value).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        return np.asarray(
            _REDUCE[combiner].reduce(elements, axis=axes, initial=start[()], dtype=elements.dtype)
        )
