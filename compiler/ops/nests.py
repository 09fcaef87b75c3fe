"""Loops of operators that are no tensor expressions, from the statements that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.loop.ir import Block, Buffer, Combiner, Iter, Loop, Seq, Stmt

Axes: TypeAlias = Sequence[tuple[Var, Expr]]  # variables with their extents


def within(axes: Axes, body: Stmt, kind: str = "serial") -> Stmt:
    """The body in a loop for each axis, the first outermost; ``kind`` is that of the first.

    Nothing, if one of them certainly has no iteration.
    """
    if any(isinstance(extent, Const) and extent.value == 0 for _, extent in axes):
        return Seq(())
    for position, (var, extent) in reversed(list(enumerate(axes))):
        body = Loop(var, extent, body, kind if position == 0 else "serial")
    return body


def store(
    name: str,
    buffer: Buffer,
    indices: Sequence[Expr],
    value: Expr,
    around: Axes,
    own: Axes = (),
) -> Stmt:
    """Store a value for each point of ``own``, within loops ``around`` that are there already."""
    iters = tuple(Iter(v, e, "spatial", v) for v, e in (*around, *own))
    return within(own, Block(name, iters, buffer.name, tuple(indices), value))


def reduce(
    name: str,
    buffer: Buffer,
    indices: Sequence[Expr],
    value: Expr,
    around: Axes,
    over: Axes,
    combiner: Combiner,
    init: Expr,
) -> Stmt:
    """Reduce a value over ``over`` into one element, within loops that are there already."""
    iters = (
        *(Iter(v, e, "spatial", v) for v, e in around),
        *(Iter(v, e, "reduce", v) for v, e in over),
    )
    block = Block(name, iters, buffer.name, tuple(indices), value, combiner, init)
    return within(over, block)


__all__ = ["Axes", "reduce", "store", "within"]
