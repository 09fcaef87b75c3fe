"""Instance and group normalisation of channels-last data, in terms of sums over the leading axes.

The operators themselves have their channels second. On channels-last data, means over the spatial
axes run along whole rows of channels; those over a group's channels are left for a handful of
numbers.
"""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, F64
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.ops.channel_normalization import GroupNorm, InstanceNorm
from planish.compiler.ops.elementwise import Add, Mul, Sub
from planish.compiler.ops.power import PowScalar
from planish.compiler.ops.reduction import ReduceMean
from planish.compiler.ops.shape import Expand, Reshape

from .ir import GraphBuilder, Node, Value


def normalized_by_channel(
    b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...], x: Value, perm: tuple[int, ...]
) -> Value | None:
    """The normalised ``x``, which is the node's operand before the transpose ``perm``.

    None if the channels are not its last axis, or the dtype asks for more precise moments.
    """
    op = node.op
    rank = x.type.rank
    scale, bias = inputs[1], inputs[2]
    assert isinstance(op, InstanceNorm | GroupNorm) and scale is not None and bias is not None
    if rank < 3 or perm[1] != rank - 1 or perm[0] != 0 or x.type.dtype not in (F32, F64):
        return None
    if scale.type.dtype is not x.type.dtype or bias.type.dtype is not x.type.dtype:
        return None
    make = _Maker(b, node, x)
    mean, square = make.moments(op.groups if isinstance(op, GroupNorm) else None)
    epsilon = make.number(op.epsilon)
    spread = make(PowScalar(-0.5), make(Add(), square, epsilon))
    groups = op.groups if isinstance(op, GroupNorm) and op.by_group else None
    scale, bias = (make.by_channel(v, groups) for v in (scale, bias))
    deviation = make(Sub(), x, mean)
    return make(Add(), make(Mul(), make(Mul(), deviation, spread), scale), bias)


class _Maker:
    def __init__(self, b: GraphBuilder, node: Node, x: Value) -> None:
        self.b, self.node, self.x = b, node, x
        self.channels = x.type.shape[-1]

    def __call__(self, op: object, *inputs: Value) -> Value:
        name = self.node.outputs[0].name
        return self.b.one(op, *inputs, name=name, origin=self.node.origin)  # type: ignore[arg-type]

    def number(self, value: float) -> Value:
        return self.b.constant(np.array(value, self.x.type.dtype.numpy), "epsilon")

    def moments(self, groups: int | None) -> tuple[Value, Value]:
        """Mean and variance as [n, 1 ..., c]."""
        axes = tuple(range(1, self.x.type.rank - 1))
        mean = self.shared(self(ReduceMean(axes, True), self.x), groups)
        deviation = self(Sub(), self.x, mean)
        square = self(ReduceMean(axes, True), self(Mul(), deviation, deviation))
        return mean, self.shared(square, groups)

    def shared(self, v: Value, groups: int | None) -> Value:
        """The mean of each group's channels, for each of them."""
        if groups is None:
            return v
        split = (*v.type.shape[:-1], as_expr(groups), self.each(groups))
        y = self(ReduceMean((len(split) - 1,), True), self(Reshape(split), v))
        return self(Reshape(v.type.shape), self(Expand(split), y))

    def each(self, groups: int) -> Expr:
        """The number of channels in a group."""
        if isinstance(self.channels, Const):
            return as_expr(int(self.channels.value) // groups)
        return self.channels // groups

    def by_channel(self, v: Value, groups: int | None) -> Value:
        """Parameters for channels (or groups) as [c]."""
        if groups is None:
            return v
        y = self(Reshape((as_expr(groups), as_expr(1))), v)
        return self(
            Reshape((self.channels,)), self(Expand((as_expr(groups), self.each(groups))), y)
        )
