"""Reshapes and broadcasts around products of matrices, out of the way of fusion.

A reshape between a contraction and what follows element by element goes below that: then it is a
view of the finished result. Transposed and repeated operands of a product are read where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.ops.base import is_one
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Reshape, Transpose
from planish.compiler.ops.softmax import Softmax

from .axes import Block, blocks
from .ir import Node, Replacement, Value
from .match import ELEMENTWISE, Rules, Site, is_elementwise, same_shape

VIEWS: Final = Rules("views")

HEAVY: Final = frozenset({
    "matmul", "conv", "conv_transpose", "einsum", "attention",
    "softmax", "layer_norm", "rms_norm", "max_pool", "average_pool",
})  # fmt: skip
DEPTH: Final = 16  # elementwise operators between a contraction and a reshape

Shape = Sequence[Expr]


# ------------------------------------------------------------------------------ elementwise


def weight(s: Site, v: Value | None) -> int:
    """How much a value gains from being fused with what follows it.

    2 for a heavy operator's result and what follows from one element by element, 1 for that of
    other elementwise operators.
    """
    maker = s.maker(v)
    if v is None or maker is None:
        return 0
    level = {v: maker}
    seen = {v}  # paths meet again and again: each value is looked at once
    for _ in range(DEPTH):
        if any(n.op.name in HEAVY or n.op.name.startswith("reduce_") for n in level.values()):
            return 2
        sources = {
            x
            for u, n in level.items()
            if is_elementwise(n.op)
            for x in n.operands
            if x not in seen and same_shape(x.type.shape, u.type.shape)
        }
        seen |= sources
        level = {x: n for x in sources if (n := s.maker(x)) is not None}
    return 1 if is_elementwise(maker.op) else 0


def _behind_reshape(s: Site, node: Node) -> Node | None:
    """The reshape in front of an elementwise node that is better behind it."""
    out = node.outputs[0].type.shape
    found: Node | None = None
    most = 0
    for v in dict.fromkeys(node.operands):
        if not same_shape(v.type.shape, out):
            continue
        inner = s.maker(v, "reshape")
        own = weight(s, v if inner is None else inner.inputs[0])
        if inner is not None and any(not is_elementwise(r.op) for r in s.readers[v]):
            own = 0
        if own > most:
            most, found = own, None if v in s.outputs else inner
        elif own == most and inner is None:
            found = None
    return found


@VIEWS.rule(ELEMENTWISE)
def push_reshape(s: Site, node: Node) -> Replacement:
    """f(reshape(x), y) -> reshape(f(x, reshape(y)))"""
    inner = _behind_reshape(s, node)
    if inner is None:
        return None
    (x,), (out,) = inner.inputs, node.outputs
    assert x is not None
    groups = blocks(x.type.shape, out.type.shape)
    inputs: list[Value] = []
    shapes: list[tuple[Expr, ...] | None] = []
    for v in node.operands:
        shape = _reshaped(v.type.shape, x.type.shape, out.type.shape, groups)
        if shape is None:
            return None
        if s.array(v) is not None and not all(isinstance(d, Const) for d in shape):
            return None  # a constant has no open sizes
        inputs.append(v)
        shapes.append(shape)
    if len(inputs) != len(node.inputs):
        return None
    data = [view(s, v, shape) for v, shape in zip(inputs, shapes, strict=True) if shape is not None]
    return s.make(Reshape(out.type.shape), s.make(node.op, *data))


def view(s: Site, v: Value, shape: tuple[Expr, ...]) -> Value:
    """A value seen as of a shape."""
    if same_shape(v.type.shape, shape):
        return v
    inner = s.maker(v, "reshape")
    source = v if inner is None else inner.inputs[0]
    assert source is not None
    return source if same_shape(source.type.shape, shape) else s.make(Reshape(shape), source)


def _reshaped(
    shape: Shape, before: Shape, after: Shape, groups: list[Block]
) -> tuple[Expr, ...] | None:
    """The shape that an operand of an elementwise operator on ``after`` has on ``before``."""
    if same_shape(shape, after):
        return tuple(before)
    if all(map(is_one, shape)):
        return ()
    wide = (*[as_expr(1)] * (len(after) - len(shape)), *shape)
    out = [as_expr(1)] * len(before)
    for ins, outs in groups:
        if all(is_one(wide[k]) for k in outs):
            continue
        if not all(same_shape((wide[k],), (after[k],)) for k in outs):
            return None
        for k in ins:
            out[k] = before[k]
    while out and len(out) > 1 and is_one(out[0]) and len(shape) < len(after):
        out.pop(0)
    return tuple(out)


@VIEWS.rule("softmax")
def push_reshape_of_rows(s: Site, node: Node) -> Replacement:
    """softmax(reshape(x)) -> reshape(softmax(x)), if rows stay rows"""
    assert isinstance(node.op, Softmax)
    inner = s.maker(node.inputs[0], "reshape")
    x, out = None if inner is None else inner.inputs[0], node.outputs[0].type
    if inner is None or x is None or not s.alone(inner.outputs[0]) or weight(s, x) < 2:
        return None
    if node.op.over(out.rank) != (out.rank - 1,) or x.type.rank < 1 or is_one(out.shape[-1]):
        return None
    if blocks(x.type.shape, out.shape)[-1] != ((x.type.rank - 1,), (out.rank - 1,)):
        return None
    return s.make(Reshape(out.shape), s.make(Softmax((-1,)), x))


# ---------------------------------------------------------------------------------- broadcasts


# The other operands (slope, scale, zero point) must broadcast to the first.
_SHAPED_BY_FIRST: Final = ("prelu", "requantize")


@VIEWS.rule(ELEMENTWISE)
def drop_expand(s: Site, node: Node) -> Replacement:
    """f(expand(x), y) -> f(x, y), if y has the shape of the result anyway"""
    inputs = list(node.operands)
    if len(inputs) != len(node.inputs) or len(inputs) < 2:
        return None
    out = node.outputs[0].type.shape
    for k, v in enumerate(inputs):
        inner = s.maker(v, "expand")
        if inner is None or (k == 0 and node.op.name in _SHAPED_BY_FIRST):
            continue
        x = inner.inputs[0]
        assert x is not None
        others = [u.type.shape for j, u in enumerate(inputs) if j != k]
        if _broadcasts(others, x.type.shape, out):
            inputs[k] = x
    return None if inputs == list(node.inputs) else s.make(node.op, *inputs)


def _broadcasts(others: list[tuple[Expr, ...]], shape: Shape, out: Shape) -> bool:
    """Whether shapes broadcast to ``out`` without anything that must be assumed."""
    if max(map(len, (*others, shape))) != len(out):
        return False
    for axis in range(1, len(out) + 1):
        dims = [x[-axis] for x in (*others, shape) if len(x) >= axis and not is_one(x[-axis])]
        if not dims and not is_one(out[-axis]):
            return False
        if not all(same_shape((d,), (out[-axis],)) for d in dims):
            return False
    return True


@VIEWS.rule("mul", "div")
def number_before_repeating(s: Site, node: Node) -> Replacement:
    """expand(x) * number -> expand(x * number), and so for a view of what is repeated"""
    for k in (0, 1) if node.op.name == "mul" else (0,):
        v, number = node.operands[k], node.operands[1 - k]
        seen = s.maker(v, "reshape")
        repeated = s.maker(v if seen is None else seen.operands[0], "expand")
        if repeated is None or s.scalar(number) is None or not s.alone(v):
            continue
        (x,), whole = repeated.operands, repeated.outputs[0]
        few = x.type.rank == whole.type.rank and not same_shape(x.type.shape, whole.type.shape)
        if few and s.alone(whole) and number.type.rank <= x.type.rank:
            y = s.make(repeated.op, s.make(node.op, x, number))
            return y if seen is None else s.make(seen.op, y)
    return None


# ------------------------------------------------------------------------------------ products


def _swapped(node: Node | None) -> Value | None:
    """What is transposed, if its last two axes change places."""
    if node is None or not isinstance(node.op, Transpose):
        return None
    rank = len(node.op.perm)
    if rank < 2 or node.op.perm != (*range(rank - 2), rank - 1, rank - 2):
        return None
    return node.inputs[0]


@VIEWS.rule("matmul")
def product_of_transposed(s: Site, node: Node) -> Replacement:
    """matmul(transpose(a), b) -> matmul(a, b, transpose_a=True), and the same for b"""
    assert isinstance(node.op, MatMul)
    a, b = (_swapped(s.maker(v, "transpose")) for v in node.inputs)
    if a is None and b is None:
        return None
    op = replace(
        node.op,
        transpose_a=node.op.transpose_a != (a is not None),
        transpose_b=node.op.transpose_b != (b is not None),
    )
    return s.make(op, a or node.inputs[0], b or node.inputs[1])


@VIEWS.rule("matmul")
def product_of_expanded(s: Site, node: Node) -> Replacement:
    """matmul(expand(a), b) -> matmul(a, b), if b has these batch axes anyway; and the same for b"""
    inputs = list(node.operands)
    out = node.outputs[0].type.shape
    for k, v in enumerate(inputs):
        inner = s.maker(v, "expand")
        if inner is None:
            continue
        x = inner.inputs[0]
        assert x is not None
        if x.type.rank < 2 or not same_shape(x.type.shape[-2:], v.type.shape[-2:]):
            continue
        others = [inputs[1 - k].type.shape[:-2]]
        if _broadcasts(others, x.type.shape[:-2], out[:-2]):
            inputs[k] = x
    return None if inputs == list(node.inputs) else s.make(node.op, *inputs)


@VIEWS.rule("matmul")
def product_of_repeated(s: Site, node: Node) -> Replacement:
    """matmul(a, reshape(expand(b))) -> reshape(matmul(reshape(a), b)): heads that share keys"""
    for k in (1, 0):
        v, other = node.inputs[k], node.inputs[1 - k]
        inner = s.maker(v, "reshape")
        repeated = None if inner is None else s.maker(inner.inputs[0], "expand")
        if v is None or other is None or repeated is None:
            continue
        x, whole = repeated.inputs[0], repeated.outputs[0].type.shape
        assert x is not None
        batch = v.type.shape[:-2]
        if not same_shape(other.type.shape[:-2], batch) or len(whole) < 3:
            continue
        if x.type.rank != len(whole) or not same_shape(whole[-2:], v.type.shape[-2:]):
            continue
        if not same_shape(x.type.shape[-2:], whole[-2:]):
            continue
        seen = view(s, other, (*whole[:-2], *other.type.shape[-2:]))
        y = s.make(node.op, *((seen, x) if k else (x, seen)))
        return s.make(Reshape(node.outputs[0].type.shape), y)
    return None
