"""Scan: a loop over slices of inputs that stacks slices of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from planish.compiler.dtypes import STRING
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Expr, as_expr, const
from planish.compiler.expr.sizes import normal, same
from planish.compiler.graph.ir import Value, unify
from planish.compiler.ops.creation import ConstantOfShape
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.shape import Reshape, Transpose

from .control import CONTROL, only, read_graph, repeat, tensors_of
from .items import Item
from .scopes import Scope
from .tensors import text

if TYPE_CHECKING:
    from .importer import Importer


def scan(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """Scan: a loop over slices of inputs that stacks slices of outputs."""
    if scope.opsets.get("", 0) < 9:
        return _batches(imp, node, inputs, scope)
    graph, count = _scan_body(node)
    given = tensors_of(inputs, "an input")
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    kept = len(graph.output) - len(states)
    get = {a.name: list(a.ints) for a in node.attribute}
    axes = get.get("scan_input_axes") or [0] * count
    backward = get.get("scan_input_directions") or [0] * count
    out_axes = get.get("scan_output_axes") or [0] * kept
    out_backward = get.get("scan_output_directions") or [0] * kept
    lists = (axes, backward), (out_axes, out_backward)
    for some, wanted in zip(lists, (count, kept), strict=True):
        if any(len(x) != wanted for x in some):
            raise ImportModelError(f"axes or directions are not {wanted}")
    results = _scan(imp, node, scope, graph, states, scanned, axes, backward)
    final, stacks = results[: len(states)], results[len(states) :]
    return [
        *final,
        *(
            _restacked(imp, v, axis, bool(back), node)
            for v, axis, back in zip(stacks, out_axes, out_backward, strict=True)
        ),
    ]


def _scan_body(node: onnx.NodeProto) -> tuple[onnx.GraphProto, int]:
    attributes = {a.name: a for a in node.attribute}
    only(
        node, "body", "num_scan_inputs", "scan_input_axes", "scan_input_directions",
        "scan_output_axes", "scan_output_directions", "directions",
    )  # fmt: skip
    if "body" not in attributes or "num_scan_inputs" not in attributes:
        raise ImportModelError("attribute body or num_scan_inputs is missing")
    graph, count = attributes["body"].g, attributes["num_scan_inputs"].i
    states = len(graph.input) - count
    if count < 1 or states < 0 or len(graph.output) < states:
        raise ImportModelError(f"the body takes {len(graph.input)}, of which {count} are slices")
    return graph, count


def _scan(
    imp: Importer,
    node: onnx.NodeProto,
    scope: Scope,
    graph: onnx.GraphProto,
    states: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backward: Sequence[int],
) -> tuple[Value, ...]:
    """The loop of a scan; what it keeps is stacked along the first axis."""
    if len(graph.input) != len(states) + len(scanned):
        raise ImportModelError(f"the body takes {len(graph.input)} values, not those of the node")
    around = imp.frame
    axes = [_axis(a, v.type.rank) for a, v in zip(axes, scanned, strict=True)]
    trip = scanned[0].type.shape[axes[0]]
    for v, axis in zip(scanned, axes, strict=True):
        trip = unify(trip, v.type.shape[axis], "the slices differ in number")
    names = [text(i.name, "an input of the body") for i in graph.input]

    def body(
        number: Value, _: Value, now: Sequence[Value]
    ) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        assert number.content is not None
        (k,) = number.content
        slices = []
        for v, axis, back in zip(scanned, axes, backward, strict=True):
            own = imp.frame.take(v, around)
            assert isinstance(own, Value)
            slices.append(_slice(imp, own, axis, normal(trip - 1 - k) if back else k))
        given = dict(zip(names, (*now, *slices), strict=True))
        found = tensors_of(
            read_graph(imp, "body", graph, node, scope, given), "a result of the body"
        )
        again = imp.builder.constant(np.array(True), "again")
        return again, found[: len(now)], found[len(now) :]

    return repeat(imp, node, trip, None, states, body)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ImportModelError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def _slice(imp: Importer, x: Value, axis: int, at: Expr) -> Value:
    """The slice of x at a place of an axis, which it has no more."""
    rest = tuple(d for k, d in enumerate(x.type.shape) if k != axis)
    if same(x.type.shape[axis], 0) and x.type.dtype is not STRING:
        # The body never runs, but what it makes has dtypes and shapes.
        return imp.builder.one(ConstantOfShape(rest, const(0, x.type.dtype)), name="slice")
    starts = tuple(at if k == axis else as_expr(0) for k in range(x.type.rank))
    shape = tuple(as_expr(1) if k == axis else d for k, d in enumerate(x.type.shape))
    part = imp.builder.one(Slice(starts, (1,) * x.type.rank, shape), x, name="slice")
    return imp.builder.one(Reshape(rest), part, name="slice")


def _restacked(imp: Importer, x: Value, axis: int, backward: bool, node: onnx.NodeProto) -> Value:
    """What was stacked along the first axis, along another, or backward."""
    rank = x.type.rank
    axis = _axis(axis, rank)
    if backward:
        starts = (normal(x.type.shape[0] - 1), *(as_expr(0) for _ in x.type.shape[1:]))
        steps = (-1,) + (1,) * (rank - 1)
        x = imp.builder.one(Slice(starts, steps, x.type.shape), x, origin=node.name)
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        x = imp.builder.one(Transpose(tuple(order)), x, origin=node.name)
    return x


def _batches(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """Scan of opset 8: for each batch on its own."""
    graph, count = _scan_body(node)
    if inputs and inputs[0] is not None:
        raise ImportModelError("sequence_lens of Scan-8 is not supported")
    given = tensors_of(inputs[1:], "an input")
    around = imp.frame
    backward = next((list(a.ints) for a in node.attribute if a.name == "directions"), [0] * count)
    if not given or len(backward) != count or any(v.type.rank < 1 for v in given):
        raise ImportModelError("the inputs have no batches")
    batch = given[0].type.shape[0]
    for v in given:
        batch = unify(batch, v.type.shape[0], "the batches differ in number")

    def body(
        number: Value, _: Value, now: Sequence[Value]
    ) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        assert number.content is not None
        own = [imp.frame.take(v, around) for v in given]
        parts = [_slice(imp, v, 0, number.content[0]) for v in own if isinstance(v, Value)]
        states, scanned = parts[: len(parts) - count], parts[len(parts) - count :]
        found = _scan(imp, node, scope, graph, states, scanned, [0] * count, backward)
        return imp.builder.constant(np.array(True), "again"), (), found

    return list(repeat(imp, node, batch, None, (), body))


CONTROL["Scan"] = scan
