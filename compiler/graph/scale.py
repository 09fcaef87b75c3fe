"""Products and sums with constants by channel, put into the weights of the contraction in front.

``conv(x, w) * s + t`` is ``conv(x, w * s) + t``, and so for a batch normalisation, which is such a
product and sum: that is also what becomes of one that follows nothing of the kind. A number that an
operand of a product of matrices is multiplied by goes behind the product, where it costs nothing.
What is folded differs from its parts by roundings only; scales and biases are worked out in
float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planish.compiler.dtypes import F32, F64
from planish.compiler.ops.attention import Attention
from planish.compiler.ops.channel_normalization import BatchNorm
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.matmul import MatMul

from .dce import eliminate_dead
from .ir import Array, Graph, GraphBuilder, Node, Replacement, Value, rewrite
from .match import Surroundings, same_type

# Bytes of weights that are copied although others need them as they are.
MAX_SHARED: Final = 1 << 20
# Numbers from here to 1 go behind a product: what overflows then is within this of overflowing.
LEAST: Final = 2.0**-10


def fold_scales(graph: Graph) -> Graph:
    """The graph with channel-wise scales and shifts in weights and biases."""
    return _settled(graph, _Folding)


def _settled(graph: Graph, step: type[_Folding] | type[_Numbers]) -> Graph:
    while True:
        new = rewrite(graph, step(graph).visit)
        if new is graph:
            return graph
        graph = eliminate_dead(new)


@dataclass(frozen=True)
class Linear:
    """``op(x, weight) + bias``: the node of ``op``, with the arrays."""

    node: Node
    weight: Array
    bias: Array | None
    channel: int  # the axis of the channels in the result


class _Folding:
    def __init__(self, graph: Graph) -> None:
        self.s = Surroundings(graph)

    def visit(self, b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        found = self.affine(node)
        if found is None:
            return self.product_and_sum(b, node) if isinstance(node.op, BatchNorm) else None
        linear, scale, shift = found
        x, weight = linear.node.operands[:2]
        if scale is not None:
            weight = b.constant(self.scaled(linear, scale), weight.name)
        bias = 0.0 if linear.bias is None else linear.bias.astype(np.float64)
        bias = np.asarray(bias * (1.0 if scale is None else scale) + shift)
        return self.build(b, node, linear, b.now(x), weight, bias)

    def build(
        self,
        b: GraphBuilder,
        node: Node,
        linear: Linear,
        x: Value,
        weight: Value,
        bias: Array,
    ) -> Value:
        out, op = node.outputs[0], linear.node.op
        dtype = out.type.dtype.numpy
        none = linear.bias is None and not bias.any()
        shape = out.type.shape[linear.channel]
        width = bias.size if bias.ndim else int(getattr(shape, "value", 1))
        if isinstance(op, MatMul):
            y = b.one(op, x, weight, name=linear.node.outputs[0].name, origin=linear.node.origin)
            if none:
                return y
            c = b.constant(bias.astype(dtype), f"{_name(linear)}_bias")
            return b.one(Add(), y, c, name=out.name, origin=node.origin)
        full = np.broadcast_to(bias, (width,)).astype(dtype)
        given = None if none else b.constant(full, f"{_name(linear)}_bias")
        return b.one(op, x, weight, given, name=out.name, origin=node.origin)

    def product_and_sum(self, b: GraphBuilder, node: Node) -> Replacement:
        """A batch normalisation of known parameters, as what it is."""
        assert isinstance(node.op, BatchNorm)
        x, out = node.inputs[0], node.outputs[0]
        arrays = [self.s.array(v) for v in node.inputs[1:5]]
        known = [a for a in arrays if a is not None and a.dtype == out.type.dtype.numpy]
        if x is None or len(known) < 4 or not node.op.spatial or x.type.rank < 2:
            return None
        behind = 0 if node.op.channels_last else x.type.rank - 2
        scale, shift = (
            b.constant(v.astype(known[0].dtype).reshape(-1, *[1] * behind), out.name)
            for v in slope_and_shift(node.op, known)
        )
        y = b.one(Mul(), b.now(x), scale, name=out.name, origin=node.origin)
        return b.one(Add(), y, shift, name=out.name, origin=node.origin)

    # ------------------------------------------------------------------------------ what is there

    def linear(self, v: Value | None) -> Linear | None:
        """The contraction with constant weights (and bias) that makes a value read only once."""
        node = self.s.maker(v, "conv", "conv_transpose", "matmul", "add")
        if node is None or v is None or not self.s.alone(v) or not v.type.dtype.is_float:
            return None
        if node.op.name == "add":
            for k in (0, 1):
                bias = self.s.array(node.inputs[1 - k])
                y = node.inputs[k]
                inner = self.linear(y) if bias is not None else None
                if inner is None or y is None or not isinstance(inner.node.op, MatMul):
                    continue
                if inner.bias is not None or not same_type(y.type, v.type):
                    continue
                vector = per_channel(bias, v, inner.channel)
                if vector is not None:
                    return Linear(inner.node, inner.weight, vector, inner.channel)
            return None
        weight = self.s.array(node.inputs[1])
        rank = v.type.rank
        if weight is None:
            return None
        if isinstance(node.op, MatMul):
            return Linear(node, weight, None, rank - 1) if weight.ndim == 2 else None
        assert isinstance(node.op, Conv | ConvTranspose)
        given = node.inputs[2] if len(node.inputs) > 2 else None
        bias = self.s.array(given)
        if given is not None and bias is None:
            return None
        return Linear(node, weight, bias, rank - 1 if node.op.channels_last else 1)

    def affine(self, node: Node) -> tuple[Linear, Array | None, Array] | None:
        """A node as a linear one times a scale plus a shift, for each channel."""
        if isinstance(node.op, BatchNorm):
            return self.batch_norm(node)
        if node.op.name not in ("mul", "div", "add", "sub") or len(node.inputs) != 2:
            return None
        for k in (0, 1):
            array, v = self.s.array(node.inputs[1 - k]), node.inputs[k]
            if array is None or v is None or (k == 1 and node.op.name in ("div", "sub")):
                continue
            if not same_type(v.type, node.outputs[0].type):
                continue
            linear = self.linear(v)
            vector = None if linear is None else per_channel(array, v, linear.channel)
            if linear is None or vector is None:
                continue
            wide = vector.astype(np.float64)
            if node.op.name in ("add", "sub"):
                if isinstance(linear.node.op, MatMul) and linear.bias is None:
                    return None  # that is how it stands
                return linear, None, wide if node.op.name == "add" else -wide
            if node.op.name == "div":
                with np.errstate(all="ignore"):
                    wide = np.asarray(1 / wide)
            return (linear, wide, np.zeros(())) if self.may_scale(linear, wide) else None
        return None

    def batch_norm(self, node: Node) -> tuple[Linear, Array | None, Array] | None:
        assert isinstance(node.op, BatchNorm)
        linear = self.linear(node.inputs[0])
        arrays = [self.s.array(v) for v in node.inputs[1:5]]
        if linear is None or not node.op.spatial or any(a is None for a in arrays):
            return None
        rank = node.outputs[0].type.rank
        if linear.channel != (rank - 1 if node.op.channels_last else 1):
            return None
        scale, shift = slope_and_shift(node.op, [a for a in arrays if a is not None])
        return (linear, scale, shift) if self.may_scale(linear, scale) else None

    def may_scale(self, linear: Linear, scale: Array) -> bool:
        """Whether new weights take the place of old ones; infinite scales would not do the same."""
        weight = linear.node.operands[1]
        shared = weight in self.s.outputs or len(self.s.readers[weight]) > 1
        return bool(np.isfinite(scale).all()) and (not shared or linear.weight.nbytes <= MAX_SHARED)

    @staticmethod
    def scaled(linear: Linear, scale: Array) -> Array:
        """The weights, times the scale of their output channel."""
        op, w = linear.node.op, linear.weight
        if scale.ndim == 0:
            return np.asarray(w * scale.astype(w.dtype))
        if isinstance(op, MatMul):
            along: tuple[int, ...] = (-1, 1) if op.transpose_b else (1, -1)
        elif isinstance(op, Conv):
            along = (-1,) if op.channels_last else (-1, *[1] * (w.ndim - 1))
        else:
            assert isinstance(op, ConvTranspose)
            return _scaled_transpose(op, w, scale)
        return np.asarray(w * scale.astype(w.dtype).reshape(along))


def _scaled_transpose(op: ConvTranspose, w: Array, scale: Array) -> Array:
    """Weights of [c, oc / groups, ...] or [..., c, oc / groups]: each group has c / groups of c."""
    last = op.channels_last
    front = np.moveaxis(w, (-2, -1), (0, 1)) if last else w
    inputs, each = front.shape[:2]
    rest = (1,) * (front.ndim - 2)
    split = front.reshape(op.groups, inputs // op.groups, each, *front.shape[2:])
    out = split * scale.astype(w.dtype).reshape(op.groups, 1, each, *rest)
    out = out.reshape(front.shape)
    return np.asarray(np.moveaxis(out, (0, 1), (-2, -1)) if last else out)


def slope_and_shift(op: BatchNorm, parameters: list[Array]) -> tuple[Array, Array]:
    """A batch normalisation as a product and a sum, in float64."""
    gamma, beta, mean, variance = (p.astype(np.float64) for p in parameters)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + op.epsilon)
        return scale, np.asarray(beta - mean * scale)


def per_channel(array: Array | None, v: Value, channel: int) -> Array | None:
    """A constant that broadcasts to ``v`` as one number, or one for each channel."""
    if array is None or array.ndim > v.type.rank:
        return None
    if array.size == 1:
        return array.reshape(())
    axis = channel - (v.type.rank - array.ndim)
    if axis < 0 or array.shape[axis] != array.size:
        return None
    return array.reshape(-1)


def _name(linear: Linear) -> str:
    return linear.node.operands[1].name


# ------------------------------------------------------------------------------------ numbers


def put_numbers_behind(graph: Graph) -> Graph:
    """The graph with numbers that operands of products are multiplied by behind the products."""
    return _settled(graph, _Numbers)


@dataclass(frozen=True)
class Scaled:
    """``x * number``."""

    x: Value
    number: float


class _Numbers:
    def __init__(self, graph: Graph) -> None:
        self.s = Surroundings(graph)

    def visit(self, b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        if isinstance(node.op, MatMul | Attention):
            return self.number_behind(b, node)
        found = self.two_numbers(node)
        if found is None:
            return None
        c = b.constant(np.array(found.number, found.x.type.dtype.numpy), "scale")
        return b.one(Mul(), b.now(found.x), c, name=node.outputs[0].name, origin=node.origin)

    def scaled_value(self, v: Value | None) -> Scaled | None:
        """A value that is another one times a finite number, and that nobody else reads."""
        node = self.s.maker(v, "mul", "div")
        if node is None or v is None or not self.s.alone(v) or v.type.dtype not in (F32, F64):
            return None
        return self.scaled_node(node)

    def scaled_node(self, node: Node) -> Scaled | None:
        for k in (1, 0):
            number, x = self.s.scalar(node.inputs[k]), node.inputs[1 - k]
            if number is None or x is None or not same_type(x.type, node.outputs[0].type):
                continue
            if node.op.name == "div":
                if k == 0 or number == 0:
                    return None
                number = 1 / number
            return Scaled(x, number) if np.isfinite(number) else None
        return None

    def two_numbers(self, node: Node) -> Scaled | None:
        """x * a * b as x * (a * b)."""
        if node.op.name not in ("mul", "div") or node.outputs[0].type.dtype not in (F32, F64):
            return None
        outer = self.scaled_node(node)
        inner = None if outer is None else self.scaled_value(outer.x)
        if outer is None or inner is None:
            return None
        if any(not LEAST <= abs(x) <= 1 / LEAST for x in (outer.number, inner.number)):
            return None
        return Scaled(inner.x, float(outer.x.type.dtype.numpy.type(outer.number * inner.number)))

    def number_behind(self, b: GraphBuilder, node: Node) -> Replacement:
        """matmul(a * c, b) as matmul(a, b) * c; a transpose may be between.

        So of queries and keys, whose number becomes the scale of attention.
        """
        inputs = list(node.inputs)
        number = 1.0
        for k, v in enumerate(node.inputs[:2]):
            move = self.s.maker(v, "transpose")
            if move is not None and v is not None and not self.s.alone(v):
                continue
            found = self.scaled_value(v if move is None else move.inputs[0])
            if found is None or not LEAST <= abs(found.number) <= 1:
                continue
            number *= found.number
            x = b.now(found.x)
            inputs[k] = x if move is None else b.one(move.op, x, name=x.name, origin=move.origin)
        if inputs == list(node.inputs):
            return None
        out = node.outputs[0]
        data = [None if v is None else b.now(v) for v in inputs]
        if isinstance(node.op, Attention):
            op = replace(node.op, scale=node.op.scale * number)
            return b.one(op, *data, name=out.name, origin=node.origin)
        y = b.one(node.op, *data, name=out.name, origin=node.origin)
        c = b.constant(np.array(number, out.type.dtype.numpy), "scale")
        return b.one(Mul(), y, c, name=out.name, origin=node.origin)
