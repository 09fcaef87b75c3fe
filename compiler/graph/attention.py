"""Attention as one operator, where exported models spell out scores, softmax and values."""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32
from planish.compiler.expr.nodes import Const
from planish.compiler.ops.attention import Attention
from planish.compiler.ops.elementwise import Mul
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Reshape, Transpose
from planish.compiler.ops.softmax import Softmax

from .ir import Graph, Node, Replacement, Value
from .match import Rules, Site, same_shape

ATTENTION = Rules("attention")
MIN_ROWS = 8  # queries for which a block of rows is worth its loops; sizes must be known


def compose_attention(graph: Graph) -> Graph:
    """The graph with attention composed wherever nothing in it is read from outside."""
    return ATTENTION.run(graph)


@ATTENTION.rule("matmul")
def attention(site: Site, node: Node) -> Replacement:
    """Compose softmax(q @ k * number + mask) @ v; the number goes to the queries."""
    if node.op != MatMul():
        return None
    weights, v = node.operands
    empty_is_zero, weights = _without_empty_rows(site, weights)
    softmax = site.maker(weights, "softmax")
    if softmax is None or not site.alone(weights) and not empty_is_zero:
        return None
    (scores,) = softmax.operands
    if not isinstance(softmax.op, Softmax) or softmax.op.over(scores.type.rank) != (
        scores.type.rank - 1,
    ):
        return None
    mask: Value | None = None
    if (added := site.maker(scores, "add")) is not None and site.alone(scores):
        first, second = added.operands
        product = first if site.maker(first, "matmul", "mul") is not None else second
        mask = second if product is first else first
        if not same_shape(product.type.shape, scores.type.shape):
            return None
        scores = product
    number, scores = _number(site, scores)
    product_node = site.maker(scores, "matmul")
    if product_node is None or not site.alone(scores) or scores.type.dtype is not F32:
        return None
    rows, columns = (d.value if isinstance(d, Const) else 0 for d in scores.type.shape[-2:])
    if rows < MIN_ROWS or columns < 1:
        return None
    op = product_node.op
    if not isinstance(op, MatMul) or op.transpose_a:
        return None
    q, k = product_node.operands
    if number is not None:
        q = _scaled(site, q, number)
    if op.transpose_b:
        rank = k.type.rank
        k = site.make(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
    return site.make(Attention(empty_is_zero), q, k, v, mask)


def _number(site: Site, scores: Value) -> tuple[Value | None, Value]:
    """The number that scores are multiplied by, and the scores before that."""
    node = site.maker(scores, "mul")
    if node is None or not site.alone(scores):
        return None, scores
    for number, plain in (node.operands, node.operands[::-1]):
        array = site.array(number)
        if (
            array is not None
            and array.size == 1
            and same_shape(plain.type.shape, scores.type.shape)
        ):
            return number, plain
    return None, scores


def _scaled(site: Site, q: Value, number: Value) -> Value:
    """Queries times a number; a transpose stays next to the product that reads through it."""
    moved = site.maker(q, "transpose")
    number = site.make(Reshape(()), number)
    if moved is None:
        return site.make(Mul(), q, number)
    return site.make(moved.op, site.make(Mul(), moved.operands[0], number))


def _without_empty_rows(site: Site, value: Value) -> tuple[bool, Value]:
    """Whether NaN is replaced by 0 in the value, and the value before that."""
    chosen = site.maker(value, "where")
    if chosen is None or not site.alone(value):
        return False, value
    condition, zero, plain = chosen.operands
    test = site.maker(condition, "is_nan")
    array = site.array(zero)
    if test is None or test.operands[0] is not plain or array is None or np.any(array != 0):
        return False, value
    readers = {id(r) for r in site.readers.get(plain, ())}
    only = readers == {id(test), id(chosen)} and plain not in site.outputs
    return (True, plain) if only and site.alone(condition) else (False, value)
