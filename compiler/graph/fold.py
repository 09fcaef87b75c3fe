"""Compute at compile time what depends on constants only.

Integer, shape and copying operators are evaluated by their numpy references, and so are the float operators
that IEEE 754 defines to the last bit: a folded constant equals the computed one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from planish.compiler.expr.nodes import Const
from planish.compiler.ops.base import Op

from .ir import Array, Graph, GraphBuilder, Node, Replacement, Value, rewrite

EXACT: Final = frozenset({
    "transpose", "reshape", "expand", "concat", "split", "slice", "gather", "gather_elements", "gather_nd",
    "pad", "tile", "identity", "where", "constant_of_shape", "range", "trilu", "one_hot", "shape", "size",
    "add", "sub", "mul", "div", "neg", "abs", "sqrt", "reciprocal", "min", "max", "relu", "floor", "ceil", "round",
    "cast", "equal", "greater", "less", "greater_or_equal", "less_or_equal", "logical_not", "logical_and", "logical_or", "logical_xor", "sign",
    "is_nan", "clip",
})  # fmt: skip
MAX_GROWTH: Final = 1 << 20  # bytes that folding may add to the constants beyond what it reads


def fold_constants(graph: Graph) -> Graph:
    """The graph with what is known replaced by constants."""

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        known = _from_content(b, node)
        if known is not None:
            return known
        if node.op.name not in EXACT or not node.operands and node.op.name not in ("range", "constant_of_shape"):
            return None
        arrays = [None if v is None else b.constants.get(v) for v in inputs]
        if any(a is None and v is not None for a, v in zip(arrays, inputs, strict=True)):
            return None
        if not all(isinstance(d, Const) for v in node.outputs for d in v.type.shape):
            return None
        size = sum((v.type.size or 0) * v.type.dtype.bytes for v in node.outputs)
        if size > MAX_GROWTH + sum(a.nbytes for a in arrays if a is not None):
            return None
        if not _is_closed(node.op):
            return None
        with np.errstate(all="ignore"):
            found = node.op.reference(*arrays)
        outs: tuple[Array, ...] = found if isinstance(found, tuple) else (found,)
        return tuple(b.constant(np.asarray(a), v.name) for a, v in zip(outs, node.outputs, strict=True))

    return rewrite(graph, visit)


def _is_closed(op: Op) -> bool:
    """Whether the operator's attributes are numbers: no symbol is left in them."""
    from dataclasses import fields

    from planish.compiler.expr.nodes import Expr, free_vars

    for f in fields(op):
        value = getattr(op, f.name)
        items = value if isinstance(value, tuple) else (value,)
        if any(isinstance(x, Expr) and free_vars(x) for x in items):
            return False
    return True


def _from_content(b: GraphBuilder, node: Node) -> Replacement:
    """Outputs whose content is known to be constant."""
    outs = []
    for v in node.outputs:
        if v.content is None or not all(isinstance(e, Const) for e in v.content):
            return None
        if not all(isinstance(d, Const) for d in v.type.shape):
            return None
        shape = tuple(int(d.value) for d in v.type.shape if isinstance(d, Const))
        values = [e.value for e in v.content if isinstance(e, Const)]
        outs.append((np.array(values, v.type.dtype.numpy).reshape(shape), v.name))
    return tuple(b.constant(a, name) for a, name in outs)
