"""Kernels of transposed convolutions made a multiple of the stride, with zeros.

Then every output position meets the same number of taps, and the operator is a plain sum of
products for each of its phases; otherwise each product needs a test whether its tap exists.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import add
from typing import Final

import numpy as np

from planish.compiler.ops.convolution import ConvTranspose

from .ir import Graph, GraphBuilder, Node, Replacement, Value, rewrite

MOST_ADDED: Final = 1 << 24  # zeros: for large strides they could take all memory


def even_phases(graph: Graph) -> Graph:
    """The graph with constant kernels of transposed convolutions padded at their ends."""

    def visit(b: GraphBuilder, node: Node, inputs: tuple[Value | None, ...]) -> Replacement:
        op = node.op
        if not isinstance(op, ConvTranspose) or any(d != 1 for d in op.dilations):
            return None
        weights = inputs[1]
        array = None if weights is None else b.constants.get(weights)
        if array is None or weights is None:
            return None
        rank = len(op.strides)
        first = 0 if op.channels_last else 2
        kernel = array.shape[first : first + rank]
        more = [-k % s for k, s in zip(kernel, op.strides, strict=True)]
        rest = array.size // (math.prod(kernel) or 1)
        if not any(more) or rest * math.prod(map(add, kernel, more)) - array.size > MOST_ADDED:
            return None
        before, after = op.pads[:rank], op.pads[rank:]
        pads = (*before, *(p + m for p, m in zip(after, more, strict=True)))
        widths = [(0, 0)] * array.ndim
        widths[first : first + rank] = [(0, m) for m in more]
        padded = b.constant(np.pad(array, widths), weights.name)
        return b.one(
            replace(op, pads=pads),
            inputs[0],
            padded,
            *inputs[2:],
            name=node.outputs[0].name,
            origin=node.origin,
        )

    return rewrite(graph, visit)
