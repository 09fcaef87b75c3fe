"""Products of matrices of which only parts are read, as products by the parts of the weights.

A model that joins the weights of queries, keys and values gets one wide product and takes it apart.
Three products read the same rows three times, but store each part by itself: what follows reads it
in order, and can be an epilogue.
"""

from __future__ import annotations

from typing import Final

from planish.compiler.expr.nodes import Const
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Reshape

from .axes import blocks
from .ir import Array, Graph, Node, Replacement, Value
from .match import Rules, Site, same_shape
from .scale import per_channel

PARTS: Final = Rules("parts")
MAX_PARTS: Final = 8
LEAST_COLUMNS: Final = 32  # of a part: less would leave registers unused


def split_products(graph: Graph) -> Graph:
    """The graph with constant weights cut where their products are."""
    return PARTS.run(graph)


@PARTS.rule("slice")
def part_of_product(s: Site, node: Node) -> Replacement:
    """slice(x @ w + b) -> x @ slice(w) + slice(b), if only slices are read"""
    source = node.inputs[0]
    view = s.maker(source, "reshape")
    y = source if view is None else view.inputs[0]
    if source is None or y is None or y in s.outputs or source in s.outputs:
        return None
    if view is not None and len(s.readers[y]) > 1:
        return None
    readers = s.readers[source]
    cuts = [columns(r, y, source) for r in readers]
    if len(readers) > MAX_PARTS or any(cut is None for cut in cuts):
        return None
    mine = columns(node, y, source)
    product, bias = _product(s, y)
    if product is None or mine is None:
        return None
    weight = s.array(product.inputs[1])
    assert weight is not None
    start, stop = mine
    op = product.op
    assert isinstance(op, MatMul)
    cut = weight[start:stop] if op.transpose_b else weight[:, start:stop]
    out = s.make(op, product.inputs[0], s.constant(cut, node.outputs[0].name))
    if bias is not None:
        whole = bias if bias.size == 1 else bias[start:stop]
        out = s.make(Add(), out, s.constant(whole, node.outputs[0].name))
    shape = node.outputs[0].type.shape
    return out if same_shape(out.type.shape, shape) else s.make(Reshape(shape), out)


def _product(s: Site, y: Value) -> tuple[Node | None, Array | None]:
    """The product by constant weights that makes a value, and the bias of its columns."""
    nothing: tuple[None, None] = None, None
    bias: Array | None = None
    node = s.maker(y, "matmul", "add")
    if node is not None and node.op.name == "add":
        for k in (0, 1):
            array, x = s.array(node.inputs[1 - k]), node.inputs[k]
            bias = per_channel(array, y, y.type.rank - 1)
            if bias is not None and x is not None and s.alone(x):
                inner = s.maker(x, "matmul")
                if inner is None or not same_shape(x.type.shape, y.type.shape):
                    return nothing
                node = inner
                break
        else:
            return nothing
    if node is None or not isinstance(node.op, MatMul):
        return nothing
    weight = node.inputs[1]
    array = s.array(weight)
    if weight is None or array is None or array.ndim != 2 or len(s.readers[weight]) > 1:
        return nothing
    return node, bias


def columns(node: Node, y: Value, source: Value) -> tuple[int, int] | None:
    """The columns of ``y`` that a slice of a view of it takes, if it takes all rows of a run."""
    if not isinstance(node.op, Slice) or any(step != 1 for step in node.op.steps):
        return None
    groups = [g for g in blocks(y.type.shape, source.type.shape) if y.type.rank - 1 in g[0]]
    if len(groups) != 1 or groups[0][0] != (y.type.rank - 1,):
        return None
    first, *rest = groups[0][1]
    whole = source.type.shape
    for k, (size, d) in enumerate(zip(node.op.shape, whole, strict=True)):
        if k != first and not same_shape((size,), (d,)):
            return None
    inner = 1
    for k in rest:
        if not isinstance(whole[k], Const):
            return None
        inner *= int(whole[k].value)  # type: ignore[attr-defined]
    start, size = node.op.starts[first], node.op.shape[first]
    if not isinstance(start, Const) or not isinstance(size, Const):
        return None
    low, high = int(start.value) * inner, int(start.value + size.value) * inner
    return (low, high) if high - low >= LEAST_COLUMNS else None
