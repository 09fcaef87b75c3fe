"""Attention as ONNX Runtime's operators spell it: heads, what changes scores, rotated positions.

Scores, softmax and values are nodes of their own here; the graph's pass composes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import Tanh
from planish.compiler.ops.compare import GreaterOrEqual
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Range, Where
from planish.compiler.ops.elementwise import Add, Div, Mul, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Concat, Expand, Reshape, ShapeOf, Split, Transpose
from planish.compiler.ops.softmax import Softmax
from planish.compiler.ops.unary import Sqrt

from .elementwise import step
from .reader import NodeReader

ONE: Final = as_expr(1)
_LOWEST: Final = float(np.finfo(np.float32).min)  # so that a query without keys has no NaN


@dataclass(frozen=True)
class Scoring:
    """What is done to products of queries and keys before their softmax, in this order.

    ``scale`` of 0 is one by the size of heads; beyond ``softcap`` scores do not grow, unless it is
    0; each of ``added`` is added; where one of ``kept`` is false a key does not count. ``sink`` is
    a score for each head (with an axis of one query and one key) that takes weight from the others.
    """

    scale: float = 0.0
    softcap: float = 0.0
    added: tuple[Value, ...] = ()
    kept: tuple[Value, ...] = ()
    sink: Value | None = None


def counted(r: NodeReader, name: str) -> int:
    """An attribute that says how many heads there are."""
    count = int(r.required(name))
    if count < 1:
        raise r.fail(f"attribute {name} is {count}, not at least 1")
    return count


def part_of(r: NodeReader, width: Expr, count: int, what: str) -> Expr:
    """``width / count``, which must be whole."""
    if isinstance(width, Const) and int(width.value) % count:
        raise r.fail(f"{what}: {width} is not a multiple of {count}")
    return normal(n.floordiv(width, count))


def parted(r: NodeReader, x: Value, heads: int) -> Value:
    """[batch, rows, heads * size] as [batch, rows, heads, size]."""
    if x.type.rank != 3:
        raise r.fail(f"{x!r} must have three axes: batch, sequence and hidden")
    batch, rows, width = x.type.shape
    size = part_of(r, width, heads, f"{x!r} has no whole heads")
    return step(r, Reshape((batch, rows, as_expr(heads), size)), x)


def heads_first(r: NodeReader, x: Value) -> Value:
    """[batch, rows, heads, size] as [batch, heads, rows, size], or back."""
    return step(r, Transpose((0, 2, 1, 3)), x)


def joined(r: NodeReader, x: Value) -> Value:
    """[batch, heads, rows, size] as the node's [batch, rows, heads * size]."""
    batch, heads, rows, size = x.type.shape
    return r.one(Reshape((batch, rows, normal(heads * size))), heads_first(r, x))


def number(r: NodeReader, value: float, like: Value) -> Value:
    """A number in a value's dtype."""
    return r.constant(np.array(value).astype(like.type.dtype.numpy))


def scaled(r: NodeReader, q: Value, k: Value, scale: float) -> Value:
    """The products of queries and keys (in floats of 32 bits at least) by a scale."""
    scores = step(r, MatMul(False, True), q, k)
    if scores.type.dtype.bits < 32:
        scores = step(r, Cast(F32), scores)
    size = q.type.shape[-1]
    if scale:
        return step(r, Mul(), scores, number(r, scale, scores))
    if isinstance(size, Const):
        return step(r, Mul(), scores, number(r, max(int(size.value), 1) ** -0.5, scores))
    rank = q.type.rank
    told = step(r, Cast(scores.type.dtype), step(r, ShapeOf(rank - 1, rank), q))
    return step(r, Div(), scores, step(r, Sqrt(), told))


def attended(r: NodeReader, q: Value, k: Value, v: Value, how: Scoring) -> tuple[Value, Value]:
    """softmax(scores) v along the last two axes, and the scores; other axes broadcast."""
    scores = scaled(r, q, k, how.scale)
    if how.softcap:
        cap = number(r, how.softcap, scores)
        scores = step(r, Mul(), step(r, Tanh(), step(r, Div(), scores, cap)), cap)
    for bias in how.added:
        same = bias.type.dtype is scores.type.dtype
        bias = bias if same else step(r, Cast(scores.type.dtype), bias)
        scores = step(r, Add(), scores, bias)
    for keep in how.kept:
        scores = step(r, Where(), keep, scores, number(r, _LOWEST, scores))
    weights = _weights(r, scores, how.sink)
    if weights.type.dtype is not v.type.dtype:
        weights = step(r, Cast(v.type.dtype), weights)
    return step(r, MatMul(), weights, v), scores


def _weights(r: NodeReader, scores: Value, sink: Value | None) -> Value:
    if sink is None:
        return step(r, Softmax(), scores)
    shape = scores.type.shape
    same = sink.type.dtype is scores.type.dtype
    sink = sink if same else step(r, Cast(scores.type.dtype), sink)
    column = step(r, Expand((*shape[:-1], ONE)), sink)
    weights = step(r, Softmax(), step(r, Concat(-1), scores, column))
    return front(r, weights, shape)


def front(r: NodeReader, x: Value, shape: tuple[Expr, ...]) -> Value:
    """The first elements of each axis."""
    zeros = (as_expr(0),) * len(shape)
    return step(r, Slice(zeros, (1,) * len(shape), shape), x)


def counting(r: NodeReader, count: Expr) -> Value:
    """0, 1 ... as integers of 64 bits."""
    return step(r, Range(as_expr(0), ONE, count))


def causal(r: NodeReader, rows: Expr, columns: Expr, past: Expr) -> Value:
    """[rows, columns]: whether a key is not behind the query, ``past`` keys being before all."""
    first = step(r, Range(past, ONE, rows))
    return step(r, GreaterOrEqual(), step(r, Reshape((rows, ONE)), first), counting(r, columns))


# ------------------------------------------------------------------------------------ positions


def rotated(
    r: NodeReader, x: Value, cos: Value, sin: Value, positions: Value, interleaved: bool
) -> Value:
    """Pairs of numbers in [batch, rows, heads, size] turned by the angle of a row's position.

    ``cos`` and ``sin`` are tables [position, pairs]; positions are [rows] or [batch, rows]. A pair
    is two neighbours, or one of the first half and one of the second; what is behind all pairs
    stays. A position out of the tables reads their nearest row.
    """
    pairs, size = cos.type.shape[-1], x.type.shape[-1]
    rotary = normal(pairs * 2)
    rest = normal(size - rotary)
    head, tail = x, None
    if not (isinstance(rest, Const) and rest.value == 0):
        head, tail = r.builder.apply(Split((rotary, rest), -1), x, origin=r.label)
    turns = []
    for table in (cos, sin):
        found = step(r, Gather(0), table, positions)
        turns.append(step(r, Reshape((*found.type.shape[:-1], ONE, pairs)), found))
    before = x.type.shape[:-1]
    if interleaved:
        two = step(r, Reshape((*before, pairs, as_expr(2))), head)
        a, b = (
            step(r, Reshape((*before, pairs)), v)
            for v in r.builder.apply(Split((ONE, ONE), -1), two, origin=r.label)
        )
    else:
        a, b = r.builder.apply(Split((pairs, pairs), -1), head, origin=r.label)
    c, s = turns
    first = step(r, Sub(), step(r, Mul(), a, c), step(r, Mul(), b, s))
    second = step(r, Add(), step(r, Mul(), b, c), step(r, Mul(), a, s))
    if interleaved:
        first, second = (step(r, Reshape((*before, pairs, ONE)), v) for v in (first, second))
        out = step(r, Reshape((*before, rotary)), step(r, Concat(-1), first, second))
    else:
        out = step(r, Concat(-1), first, second)
    return out if tail is None else step(r, Concat(-1), out, tail)


def tables(r: NodeReader, cos: int, sin: int) -> tuple[Value, Value]:
    """The inputs with cosines and sines [position, pairs]."""
    found = r.input(cos), r.input(sin)
    for v in found:
        if v.type.rank != 2:
            raise r.fail(f"{v!r} must be [positions, pairs]")
    return found
