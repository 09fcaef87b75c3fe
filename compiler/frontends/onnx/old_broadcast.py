"""Broadcasting of opsets before 7: of the second operand only, and only where it is asked for."""

from __future__ import annotations

from planish.compiler.expr.nodes import Const, as_expr
from planish.compiler.graph.ir import Value, unify
from planish.compiler.ops.shape import Reshape

from .reader import NodeReader

SINCE = 7  # the opset from which operands broadcast as numpy's do


def second_operand(r: NodeReader) -> Value:
    """Input 1 such that numpy's broadcasting gives the shape of input 0."""
    x, y = r.input(0), r.input(1)
    if r.version >= SINCE:
        return y
    broadcast, axis = r.attribute("broadcast", 0), r.attribute("axis")
    if not broadcast:
        if x.type.rank != y.type.rank:
            raise r.fail(f"{x!r} and {y!r} differ in rank, and broadcast is 0")
        return fitted(r, x, y, 0)
    if y.type.size == 1 and y.type.rank <= x.type.rank:
        return y
    behind = x.type.rank - y.type.rank if axis is None else int(axis)
    if not 0 <= behind <= x.type.rank - y.type.rank:
        where = "" if axis is None else f" from axis {axis}"
        raise r.fail(f"{y!r} does not broadcast to {x!r}{where}")
    return fitted(r, x, y, behind)


def per_channel(r: NodeReader, x: Value, slope: Value) -> Value:
    """A value for each channel (axis 1), or one for all, such that it broadcasts to x."""
    if slope.type.rank != 1 or slope.type.size == 1 or x.type.rank < 2:
        return slope
    return fitted(r, x, slope, 1)


def fitted(r: NodeReader, x: Value, y: Value, first: int) -> Value:
    """y over the axes of x from ``first`` on, whose extents it must have (or 1)."""
    for k, d in enumerate(y.type.shape):
        if not (isinstance(d, Const) and d.value == 1):
            unify(d, x.type.shape[first + k], f"{y!r} does not broadcast to {x!r}")
    after = x.type.rank - first - y.type.rank
    if not after:
        return y
    return r.builder.one(Reshape((*y.type.shape, *[as_expr(1)] * after)), y, origin=r.label)
