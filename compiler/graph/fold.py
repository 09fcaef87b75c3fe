"""Compute at compile time what depends on constants only.

Integer, shape and copying operators are evaluated by their numpy references, and so are the float
operators that IEEE 754 defines to the last bit: a folded constant equals the computed one. What is
left of operators on constants needs our own kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

import numpy as np

from planish.compiler.errors import PlanishError
from planish.compiler.expr.nodes import Const, Expr, free_vars
from planish.compiler.ops.base import Op

from .ir import Array, Graph, GraphBuilder, Node, Replacement, Value, rewrite
from .subgraphs import symbols_of

# Exact for elements of any dtype.
EXACT: Final = frozenset({
    "transpose", "reshape", "expand", "concat", "split", "slice", "pad", "tile", "where",
    "gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd",
    "top_k", "trilu", "one_hot", "shape", "size",
    "constant_of_shape", "full_like", "cast", "bitcast", "is_nan", "is_inf",
    "add", "sub", "mul", "div", "neg", "abs", "sqrt", "reciprocal", "min", "max", "relu", "clip",
    "sign", "floor", "ceil", "round",
    "equal", "greater", "less", "greater_or_equal", "less_or_equal",
    "logical_not", "logical_and", "logical_or", "logical_xor",
    "reduce_max", "reduce_min", "argmax", "argmin",
})  # fmt: skip
# Exact for integers.
WHOLE: Final = frozenset({
    "range", "mod", "pow", "cumsum", "cumprod", "scan_along", "matmul",
    "reduce_sum", "reduce_prod", "reduce_l1", "reduce_sum_square",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bit_shift",
})  # fmt: skip
SOURCES: Final = frozenset({"range", "constant_of_shape"})  # they read nothing
MAX_GROWTH: Final = 1 << 20  # bytes that folding may add to the constants beyond what it reads


def fold_constants(graph: Graph) -> Graph:
    """The graph with what is known replaced by constants."""

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        known = _from_content(b, node)
        if known is not None:
            return known
        if not is_exact(node):
            return None
        arrays = [None if v is None else b.constants.get(v) for v in inputs]
        if any(a is None and v is not None for a, v in zip(arrays, inputs, strict=True)):
            return None
        if not is_closed(node) or growth(node.outputs, arrays) > MAX_GROWTH:
            return None
        try:
            with np.errstate(all="ignore"):
                found = node.op.reference(*arrays)
        except (PlanishError, ArithmeticError, IndexError, ValueError):
            return None  # numpy refuses, as an index too large: the kernel holds it inside
        outs: tuple[Array, ...] = found if isinstance(found, tuple) else (found,)
        return tuple(
            b.constant(np.asarray(a), v.name) for a, v in zip(outs, node.outputs, strict=True)
        )

    return rewrite(graph, visit)


def is_exact(node: Node) -> bool:
    """Whether the reference gives what our kernels do, bit for bit."""
    if not node.operands and node.op.name not in SOURCES:
        return False
    if node.op.name in EXACT:
        return True
    values = (*node.operands, *node.outputs)
    return node.op.name in WHOLE and not any(v.type.dtype.is_float for v in values)


def is_closed(node: Node) -> bool:
    """Whether a node's results and attributes are free of symbols."""
    dims = (d for v in node.outputs for d in v.type.shape)
    return all(isinstance(d, Const) for d in dims) and not any(_symbols(node.op))


def _symbols(op: Op) -> Iterable[bool]:
    yield from (bool(symbols_of(graph)) for graph in op.graphs.values())
    for f in fields(op):
        value: Any = getattr(op, f.name)
        for item in value if isinstance(value, tuple) else (value,):
            yield isinstance(item, Expr) and not isinstance(item, Const) and bool(free_vars(item))


def growth(outputs: Iterable[Value], arrays: Iterable[Array | None]) -> int:
    """The bytes by which results exceed what they are made of."""
    size = sum((v.type.size or 0) * v.type.dtype.bytes for v in outputs)
    return size - sum(a.nbytes for a in arrays if a is not None)


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
