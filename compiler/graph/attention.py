"""Attention as one operator, where exported models spell out scores, softmax and values.

Scores are a product of queries and keys, then what changes them one by one: a number that they are
multiplied by, masks that are added, or that choose between the scores and a number. Casts to wider
floats may stand between, and reshapes that part or join heads: masks and values are brought to the
heads of the product then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planish.compiler.dtypes import BF16, F16, F32, F64, DType
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.ops.attention import Attention
from planish.compiler.ops.base import Op, is_one
from planish.compiler.ops.compare import Not
from planish.compiler.ops.elementwise import Mul
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Reshape, Transpose
from planish.compiler.ops.softmax import Softmax
from planish.compiler.ops.unary import Neg

from .axes import blocks
from .ir import Graph, Node, Replacement, Value
from .match import Rules, Site, same_shape

ATTENTION: Final = Rules("attention")
MIN_ROWS: Final = (
    8  # queries for which a block of rows is worth its loops, if their number is known
)
FLOATS: Final = (F16, BF16, F32, F64)

Shape = tuple[Expr, ...]


def compose_attention(graph: Graph) -> Graph:
    """The graph with attention composed wherever nothing in it is read from outside."""
    return ATTENTION.run(graph)


@dataclass(frozen=True)
class Mask:
    """A value that changes scores: after ``change``, seen as of a shape."""

    value: Value
    shape: Shape
    change: Op | None = None

    def make(self, site: Site) -> Value:
        v = self.value if self.change is None else site.make(self.change, self.value)
        return _view(site, v, self.shape)


@dataclass(frozen=True)
class Scores:
    """Scores that are ``q @ k * number``, changed by masks in their order.

    ``shape`` is that of the product as it is to be: q and k are seen with its leading axes if
    ``parted``. The scores may be a view of the product, of another shape.
    """

    q: Value
    k: Value
    transpose_k: bool
    shape: Shape
    parted: bool = False
    number: float = 1.0
    masks: tuple[Mask, ...] = ()
    masked: float | None = None

    def operand(self, site: Site, v: Value) -> Value:
        """q or k with the leading axes of the product."""
        return _view(site, v, (*self.shape[:-2], *v.type.shape[-2:])) if self.parted else v


@ATTENTION.rule("matmul")
def composed(site: Site, node: Node) -> Replacement:
    """softmax(q @ k * number + mask) @ v -> attention(q * number, k, v, mask)"""
    assert isinstance(node.op, MatMul)
    weights, v = node.operands
    heads = weights.type.shape
    found = _weights(site, weights)
    if found is None:
        return None
    empty_is_zero, weights = found
    softmax = site.maker(weights, "softmax")
    if node.op.transpose_a or softmax is None or not isinstance(softmax.op, Softmax):
        return None
    (value,) = softmax.operands
    rank = value.type.rank
    if rank < 2 or softmax.op.over(rank) != (rank - 1,):
        return None
    scores = _scores(site, value)
    if scores is None or not _is_worth_it(scores):
        return None
    seen = _seen(v.type.shape, heads, scores.shape)
    q, k = scores.q, scores.k
    if seen is None or not q.type.dtype is k.type.dtype is v.type.dtype:
        return None
    q, k, v = scores.operand(site, q), scores.operand(site, k), _view(site, v, seen)
    op = Attention(empty_is_zero=empty_is_zero)
    if scores.masked is not None:
        op = replace(op, masked=scores.masked)
    if scores.number != 1 and q.type.dtype is F32:
        q = _scaled(site, q, scores.number)
    else:
        op = replace(op, scale=scores.number)
    k = _transposed(site, k) if scores.transpose_k else k
    v = _transposed(site, v) if node.op.transpose_b else v
    out = site.make(op, q, k, v, *(m.make(site) for m in scores.masks))
    return _view(site, out, node.outputs[0].type.shape)


def _is_worth_it(scores: Scores) -> bool:
    rows, columns = (int(d.value) if isinstance(d, Const) else None for d in scores.shape[-2:])
    return (rows is None or rows >= MIN_ROWS) and columns != 0


def _weights(site: Site, value: Value) -> tuple[bool, Value] | None:
    """Whether NaN is replaced by 0 in weights, and what softmax gives; casts and views aside."""
    value = _bare(site, value)
    plain = _without_empty_rows(site, value)
    if plain is not None:
        return True, plain
    return (False, value) if site.alone(value) else None


def _bare(site: Site, value: Value) -> Value:
    """Weights before casts, and before views of all heads together."""
    while (node := site.maker(value, "cast", "reshape")) is not None and site.alone(value):
        (x,) = node.operands
        if x.type.dtype not in FLOATS or not same_shape(x.type.shape[-2:], value.type.shape[-2:]):
            break
        value = x
    return value


def _without_empty_rows(site: Site, value: Value) -> Value | None:
    """The value before NaN is replaced by 0 in it, if that is done."""
    chosen = site.maker(value, "where")
    if chosen is None or not site.alone(value):
        return None
    condition, zero, plain = chosen.operands
    test = site.maker(condition, "is_nan")
    array = site.array(zero)
    if test is None or test.operands[0] is not plain or array is None or np.any(array != 0):
        return None
    readers = {id(r) for r in site.readers.get(plain, ())}
    only = readers == {id(test), id(chosen)} and plain not in site.outputs
    return plain if only and site.alone(condition) else None


# ------------------------------------------------------------------------------------- scores


def _scores(site: Site, value: Value) -> Scores | None:
    """The scores that a value is, if nobody else reads it or what it is made of."""
    node = site.maker(value)
    if node is None or not site.alone(value) or value.type.dtype not in FLOATS:
        return None
    find = _FOUND.get(node.op.name)
    return None if find is None else find(site, node, value)


def _product(_: Site, node: Node, value: Value) -> Scores | None:
    op = node.op
    if not isinstance(op, MatMul) or op.transpose_a:
        return None
    q, k = node.operands
    return Scores(q, k, op.transpose_b, value.type.shape)


def _cast(site: Site, node: Node, value: Value) -> Scores | None:
    """A cast to wider floats, in which no score overflows."""
    (x,) = node.operands
    return _scores(site, x) if _holds(value.type.dtype, x.type.dtype) else None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a float dtype has all numbers of another one."""
    return wide is narrow or wide is F64 or (wide is F32 and narrow is not F64)


def _times_number(site: Site, node: Node, value: Value) -> Scores | None:
    x, y = node.operands
    if node.op.name == "mul" and site.scalar(x) is not None:
        x, y = y, x
    number, found = site.scalar(y), _operand(site, x, value)
    if not number or found is None or found.masks or found.number != 1:
        return None
    number = 1 / number if node.op.name == "div" else number
    return replace(found, number=number) if np.isfinite(number) else None


def _plus_mask(site: Site, node: Node, value: Value) -> Scores | None:
    x, mask = node.operands
    found = _operand(site, x, value)
    if found is None and node.op.name == "add":
        found, mask = _operand(site, mask, value), x
    change = Neg() if node.op.name == "sub" else None
    return None if found is None else _masked(found, mask, change, value)


def _chosen_by_mask(site: Site, node: Node, value: Value) -> Scores | None:
    condition, x, other = node.operands
    change: Op | None = None
    found = _operand(site, x, value)
    if found is None:
        found, other, change = _operand(site, other, value), x, Not()
    number = site.scalar(other)
    if found is None or number is None or found.masked not in (None, number):
        return None
    return _masked(replace(found, masked=number), condition, change, value)


def _operand(site: Site, x: Value, result: Value) -> Scores | None:
    """An operand's scores, if it has the shape of the result."""
    return _scores(site, x) if same_shape(x.type.shape, result.type.shape) else None


def _masked(scores: Scores, mask: Value, change: Op | None, value: Value) -> Scores | None:
    seen = _seen(mask.type.shape, value.type.shape, scores.shape)
    if seen is None:
        return None
    return replace(scores, masks=(*scores.masks, Mask(mask, seen, change)))


def _reshaped(site: Site, node: Node, value: Value) -> Scores | None:
    """Scores with heads parted or joined: queries and keys too, if both have all of them."""
    (x,) = node.operands
    before, after = x.type.shape, value.type.shape
    if min(len(before), len(after)) < 2 or not same_shape(before[-2:], after[-2:]):
        return None
    found = _scores(site, x)
    if found is None or not same_shape(found.shape, before):
        return found
    full = found.parted or all(
        same_shape(v.type.shape[:-2], before[:-2]) for v in (found.q, found.k)
    )
    shapes = [_seen(m.shape, before, after) for m in found.masks]
    if not full or None in shapes:
        return found
    masks = tuple(replace(m, shape=d) for m, d in zip(found.masks, shapes, strict=True) if d)
    return replace(found, shape=after, parted=True, masks=masks)


_FOUND: Final = {
    "matmul": _product,
    "cast": _cast,
    "mul": _times_number,
    "div": _times_number,
    "add": _plus_mask,
    "sub": _plus_mask,
    "where": _chosen_by_mask,
    "reshape": _reshaped,
}


# -------------------------------------------------------------------------------------- shapes


def _seen(shape: Shape, before: Shape, after: Shape) -> Shape | None:
    """The shape as of which what broadcasts to ``before`` broadcasts to ``after``.

    The two have the same elements in one order; the last two axes stay as they are.
    """
    if same_shape(before, after):
        return shape
    ones = (as_expr(1),) * (len(before) - len(shape))
    heads = (*ones, *shape[:-2]) if len(shape) > 1 else ones[1:]
    if len(heads) != len(before) - 2:
        return None
    out = [as_expr(1)] * (len(after) - 2)
    left = {k for k, d in enumerate(heads) if not is_one(d)}
    for ins, outs in blocks(before[:-2], after[:-2]):
        if left.isdisjoint(ins):
            continue
        if not all(same_shape((heads[k],), (before[k],)) for k in ins):
            return None
        left.difference_update(ins)
        for k in outs:
            out[k] = after[k]
    return None if left else (*out, *shape[-2:])


def _view(site: Site, v: Value, shape: Shape) -> Value:
    return v if same_shape(v.type.shape, shape) else site.make(Reshape(shape), v)


def _transposed(site: Site, v: Value) -> Value:
    rank = v.type.rank
    return site.make(Transpose((*range(rank - 2), rank - 1, rank - 2)), v)


def _scaled(site: Site, q: Value, number: float) -> Value:
    """Queries times a number; a transpose stays next to the product that reads through it."""
    c = site.constant(np.array(number, np.float32), "scale")
    moved = site.maker(q, "transpose")
    if moved is None:
        return site.make(Mul(), q, c)
    return site.make(moved.op, site.make(Mul(), moved.operands[0], c))
