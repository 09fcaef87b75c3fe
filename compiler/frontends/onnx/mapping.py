"""SequenceMap: a graph for each place of sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from planish.compiler.errors import ImportModelError
from planish.compiler.expr import nodes as n
from planish.compiler.graph.ir import Value, assume

from .control import CONTROL, only, read_graph, repeat_any, tensors_of
from .items import Item, PackedSequence, ValueSequence
from .packing import Packer
from .protos import attribute_subgraphs
from .scopes import Scope
from .tensors import text

if TYPE_CHECKING:
    from .importer import Importer

_MOST_TIMES = 64  # that the graph is read for sequences of known length


def sequence_map(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """SequenceMap: as often as the first sequence is long; tensors are the same each time."""
    only(node, "body")
    graph = attribute_subgraphs(node).get("body")
    if graph is None:
        raise ImportModelError("attribute body is missing")
    if len(graph.input) != len(inputs) or not inputs or not graph.output:
        raise ImportModelError(f"{len(inputs)} inputs for a body that takes {len(graph.input)}")
    names = [text(i.name, "an input of the body") for i in graph.input]
    for item in inputs:
        if not isinstance(item, Value | ValueSequence | PackedSequence):
            raise ImportModelError(f"an input is {item!r}, not a sequence or a tensor")
    if isinstance(inputs[0], Value):
        raise ImportModelError(f"input 0 is {inputs[0]!r}, not a sequence")

    def read(given: Sequence[Item | None]) -> list[Value]:
        own = dict(zip(names, given, strict=True))
        found = read_graph(imp, "body", graph, node, scope, own)
        return tensors_of(found, "a result of the body")

    lists = [i for i in inputs if isinstance(i, ValueSequence | PackedSequence)]
    known = [i.items for i in lists if isinstance(i, ValueSequence)]
    count = len(known[0]) if known else 0
    if len(known) == len(lists) and 0 < count <= _MOST_TIMES:
        if any(len(items) != count for items in known):
            raise ImportModelError("the sequences differ in length")
        rows = [
            read([i.items[k] if isinstance(i, ValueSequence) else i for i in inputs])
            for k in range(count)
        ]
        return [ValueSequence(tuple(column)) for column in zip(*rows, strict=True)]
    return _by_loop(imp, node, inputs, graph, read)


def _by_loop(
    imp: Importer,
    node: onnx.NodeProto,
    inputs: Sequence[Item | None],
    graph: onnx.GraphProto,
    read: Callable[[Sequence[Item | None]], list[Value]],
) -> list[Item | None]:
    """A loop that reads the graph once, and puts what it gives behind what it gave before."""
    around = imp.frame
    label = next(filter(None, node.output), node.op_type)
    pack = Packer(imp.builder, imp.fresh_symbol, label)
    given = [pack.packed(i) if isinstance(i, ValueSequence | PackedSequence) else i for i in inputs]
    first, *others = (i for i in given if isinstance(i, PackedSequence))
    with imp.builder.assuming(node.name or label):
        for other in others:
            assume(n.eq(first.length, other.length))
    ranks = [_rank(i) for i in graph.input]
    empty: list[Item] = [ValueSequence(())] * len(graph.output)

    def body(
        number: Value, asked: Value, now: Sequence[Item]
    ) -> tuple[Value, Sequence[Item], Sequence[Value]]:
        assert number.content is not None
        (place,) = number.content
        own = Packer(imp.builder, imp.fresh_symbol, label)
        items: list[Item | None] = []
        for item, rank in zip(given, ranks, strict=True):
            assert item is not None
            mine = imp.frame.take(item, around)
            items.append(own.at(mine, place, rank) if isinstance(mine, PackedSequence) else mine)
        then: list[Item] = []
        for so_far, x in zip(now, read(items), strict=True):
            assert isinstance(so_far, ValueSequence | PackedSequence)
            if isinstance(so_far, ValueSequence):
                then.append(ValueSequence((*so_far.items, x)))
            else:
                then.append(own.insert(so_far, x, None))
        again = imp.builder.constant(np.array(True), "again")
        return again, then, ()

    return repeat_any(imp, node, first.length, None, empty, body)


def _rank(info: onnx.ValueInfoProto) -> int | None:
    """The declared rank of what the body takes."""
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return len(tensor.shape.dim)


CONTROL["SequenceMap"] = sequence_map
