"""Attention of a single query, where a model leaves the number of queries open.

One query after another, against keys that are kept, is how decoders are run. A block of rows is the
wrong kernel then: bringing keys into order costs it more than the scores do. So there are two ways
to compute the group of an attention, and the sizes of a call choose.
"""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import BOOL
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Var, free_vars
from planish.compiler.ops.attention import Attention
from planish.compiler.ops.compare import IsNaN
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.softmax import Softmax

from .canonicalize import canonicalize
from .fuse import Group
from .ir import Graph, GraphBuilder, Node, Replacement, Value, rewrite
from .subgraphs import substituted


def single_query(group: Group) -> tuple[Var, Graph] | None:
    """The size that tells the number of queries, and the group's graph for it being 1.

    None if it is not open, or if it tells the number of keys too: one key needs no choice.
    """
    found = [x for x in group.nodes if isinstance(x.op, Attention)]
    if len(found) != 1:
        return None
    q, k = found[0].operands[:2]
    rows, keys = q.type.shape[-2], k.type.shape[-1]
    if not isinstance(rows, Var) or set(free_vars(keys)) <= {rows}:
        return None
    one = substituted(as_graph(group), {rows: n.const(1, rows.dtype)})
    return rows, canonicalize(rewrite(one, _written_out))


def as_graph(group: Group) -> Graph:
    """The group as a graph of its own."""
    names = [[v.name for v in values] for values in (group.inputs, group.outputs)]
    inputs, outputs = map(tuple, names)
    return Graph("group", group.inputs, group.outputs, group.nodes, {}, (), inputs, outputs)


def _written_out(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
    """Attention as scores, their softmax, and a product with the values; in its wide dtype."""
    op = node.op
    if not isinstance(op, Attention):
        return None
    q, k, v, *masks = (x for x in inputs if x is not None)
    narrow, wide = q.type.dtype, q.type.dtype.computed
    if wide is not narrow:
        q, k, v = (b.one(Cast(wide), x) for x in (q, k, v))
    scores = b.one(MatMul(), q, k, name="scores", origin=node.origin)
    dtype = scores.type.dtype
    if op.scale != 1:
        scores = b.one(Mul(), scores, b.constant(np.array(op.scale, dtype.numpy), "scale"))
    for mask in masks:
        if mask.type.dtype is BOOL:
            masked = b.constant(np.array(op.masked, dtype.numpy), "masked")
            scores = b.one(Where(), mask, scores, masked)
        else:
            mask = mask if mask.type.dtype is dtype else b.one(Cast(dtype), mask)
            scores = b.one(Add(), scores, mask)
    weights = b.one(Softmax(), scores, name="weights", origin=node.origin)
    if op.empty_is_zero:
        zero = b.constant(np.array(0, dtype.numpy), "zero")
        weights = b.one(Where(), b.one(IsNaN(), weights), zero, weights)
    name = node.outputs[0].name
    if wide is narrow:
        return b.one(MatMul(), weights, v, name=name, origin=node.origin)
    found = b.one(MatMul(), weights, v, name="wide", origin=node.origin)
    return b.one(Cast(narrow), found, name=name, origin=node.origin)
