"""Convolutions of 3 x 3 taps with what comes behind them, as functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F32, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.ops.convolution import Conv


@dataclass(frozen=True)
class Case:
    """A convolution, and what comes behind it: a bias, something that is added, a relu."""

    batch: int
    rows: int
    columns: int
    inputs: int
    outputs: int
    pad: int = 1
    behind: str = ""

    def function(self, dtype: DType = F32, op: Conv | None = None) -> Function:
        shape = (self.batch, self.rows, self.columns, self.inputs)
        return convolution(shape, self.outputs, self.pad, self.behind, dtype, op)

    def arrays(self, func: Function, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        shapes = [[int(str(d)) for d in b.shape] for b in func.inputs]
        return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def convolution(
    shape: tuple[int | Expr, ...],
    outputs: int,
    pad: int = 1,
    behind: str = "",
    dtype: DType = F32,
    op: Conv | None = None,
) -> Function:
    """Channels last; the second parameter is the weights."""
    op = op or Conv((1, 1), (1, 1), (pad, pad, pad, pad), 1, True)
    x = te.placeholder(shape, dtype)
    c = shape[3]
    assert isinstance(c, int)
    w = te.placeholder((3, 3, c // op.groups, outputs), dtype, "w")
    y = op.compute(x, w)
    more = [te.placeholder((outputs,), dtype, "b")] if "bias" in behind else []
    if more:
        y = te.compute(y.shape, lambda i, j, k, o, y=y: y[i, j, k, o] + more[0][o])
    if "sum" in behind:
        other = te.placeholder(y.shape, dtype, "r")
        more.append(other)
        y = te.compute(y.shape, lambda *at, y=y: y[at] + other[at])
    if "relu" in behind:
        zero = n.const(0.0, dtype)
        y = te.compute(y.shape, lambda *at, y=y: n.maximum(zero, y[at]))
    return canonical(lower("f", [x, w, *more], [y]))


CASES = [
    Case(1, 6, 6, 4, 4),
    Case(2, 5, 7, 3, 5, 1, "bias relu"),
    Case(1, 9, 4, 2, 17, 0, "bias sum"),
    Case(1, 3, 13, 17, 2, 1, "sum relu"),
    Case(2, 8, 8, 16, 16, 0),
    Case(1, 1, 9, 3, 3, 1, "bias"),
]
WEIGHTS = frozenset({"b1"})
