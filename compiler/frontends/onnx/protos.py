"""Models as they are stored: loading, well-formed names, the order of nodes."""

from __future__ import annotations

import heapq
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx

from planish.compiler.errors import ImportModelError, ParseError
from planish.compiler.files import ZIP, is_module, read_file
from planish.compiler.given import as_path

from .tensors import text

# protobuf comes with onnx, which does not name this error itself.
DecodeError: Final[type[Exception]] = importlib.import_module("google.protobuf.message").DecodeError

MOST_BYTES: Final = (1 << 31) - 1  # of a message


def load(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The model of a path, of a file's bytes, or as it is.

    Errors: ParseError if it is none.
    """
    if isinstance(source, onnx.ModelProto):
        model, what = source, "this is"
    elif not isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        raise ImportModelError(
            f"what is of type {type(source).__name__} is no ONNX model",
            hint="give a path, the bytes of a file, or an onnx.ModelProto",
        )
    else:
        data, what = source, "these bytes are"
        if isinstance(data, (str, os.PathLike)):
            path = as_path(data, "compile")
            what = f"{path} is"
            _check_size(path)
            data = read_file(path)
        if bytes(data[:4]) == ZIP:
            kind = "a compiled module" if is_module(data) else "an archive"
            hint = "planish.load reads module files" if is_module(data) else None
            raise ParseError(f"{what} no ONNX model, but {kind}", hint=hint)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(bytes(data))
        except (DecodeError, ValueError, RecursionError) as error:
            raise ParseError(f"{what} no ONNX model, or only a part of one: {error}") from error
    if not model.HasField("graph"):
        raise ParseError(f"{what} no ONNX model: the graph is missing")
    if model.ir_version > onnx.IR_VERSION:
        raise ImportModelError(
            f"the model's format has version {model.ir_version}",
            hint=f"the newest known one is {onnx.IR_VERSION}",
        )
    return model


def _check_size(path: Path) -> None:
    """Check that protobuf can read so large a file."""
    try:
        size = path.stat().st_size if path.is_file() else 0
    except (OSError, ValueError):
        return  # reading it says why
    if size > MOST_BYTES:
        raise ParseError(
            f"{path} is no ONNX model: it has {size} bytes, and protobuf reads no more than "
            f"{MOST_BYTES}",
            hint="keep the weights in files beside it: "
            "onnx.save(model, path, save_as_external_data=True)",
        )


def check_node(node: onnx.NodeProto) -> None:
    """Check that names are text.

    Errors: ImportModelError naming what is not.
    """
    for what in ("op_type", "domain", "name", "overload"):
        text(getattr(node, what), f"a node's {what}")
    for name in (*node.input, *node.output):
        text(name, f"an input or output of {node.op_type}")
    seen: set[str] = set()
    for a in node.attribute:
        name = text(a.name, f"an attribute of {node.op_type}")
        text(a.ref_attr_name, f"an attribute of {node.op_type}")
        if name in seen:
            raise ImportModelError(
                f"attribute {name} is given twice", op=node.op_type, node=node.name
            )
        seen.add(name)


def attribute_subgraphs(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """The graphs among a node's attributes."""
    return {a.name: a.g for a in node.attribute if a.HasField("g")}


def reads(node: onnx.NodeProto) -> list[str]:
    """The names from around it that a node reads, or its subgraphs do.

    What a graph makes itself may be called like what is made around it, or by the node.
    """
    out = [name for name in node.input if name]
    todo = [(graph, frozenset[str]()) for graph in _subgraphs(node)]
    while todo:
        graph, around = todo.pop()
        made = [o for inner in graph.node for o in inner.output]
        made += [i.name for i in (*graph.input, *graph.initializer)]
        known = around.union(made, (t.values.name for t in graph.sparse_initializer))
        wanted = [name for inner in graph.node for name in inner.input if name]
        wanted += [o.name for o in graph.output]
        out += [name for name in wanted if name not in known]
        todo += [(g, known) for inner in graph.node for g in _subgraphs(inner)]
    return out


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]


def sorted_nodes(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes in an order in which names are made before they are read, the given one if that is.

    Errors: ImportModelError naming the nodes of a cycle.
    """
    maker = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    if all(j < k for k, some in enumerate(needs) for j in some):
        return list(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    waits = [len(some) for some in needs]
    for k, some in enumerate(needs):
        for j in some:
            readers[j].append(k)
    ready = [k for k, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for j in readers[k]:
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, j)
    if len(order) < len(nodes):
        raise ImportModelError(
            "nodes depend on each other in a circle", node=_cycle(nodes, needs, order)
        )
    return [nodes[k] for k in order]


def _cycle(nodes: Sequence[onnx.NodeProto], needs: list[set[int]], done: list[int]) -> str:
    finished = set(done)
    k = next(k for k in range(len(nodes)) if k not in finished)
    path: list[int] = []
    while k not in path:
        path.append(k)
        k = min(j for j in needs[k] if j not in finished)
    circle = path[path.index(k) :][::-1]
    names = [nodes[j].name or next(iter(nodes[j].output), "") for j in circle]
    return " -> ".join(f"{n} ({nodes[j].op_type})" for n, j in zip(names, circle, strict=True))
