"""Gradient of ai.onnx.preview.training: of a value of the graph that the node stands in.

The nodes between the variables and the value are read a second time, for what the node is given as
the variables; where that is the variables themselves, what comes twice is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx

from planish.compiler.errors import ImportModelError
from planish.compiler.graph.gradient import gradients
from planish.compiler.graph.ir import Value
from planish.compiler.ops.shape import Reshape

from .control import CONTROL, only
from .items import Item
from .protos import reads
from .scopes import Scope, label_of
from .training import DOMAIN

if TYPE_CHECKING:
    from .importer import Importer


def gradient(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """The gradients of the sum of y's elements with respect to xs, given xs and zs."""
    only(node, "xs", "zs", "y")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    xs, zs = (_names(attributes.get(name, [])) for name in ("xs", "zs"))
    (y,) = _names([attributes.get("y", b"")])
    if not xs or not y:
        raise ImportModelError("it needs the attributes xs and y")
    if len(set(xs + zs)) < len(xs + zs):
        raise ImportModelError(f"a variable is named twice among {xs} and {zs}")
    if len(inputs) != len(xs + zs):
        raise ImportModelError(f"it has {len(inputs)} inputs, and names {len(xs + zs)} variables")
    leaves: dict[str, Item | None] = {}
    for name, item in zip(xs + zs, inputs, strict=True):
        if not isinstance(item, Value):
            raise ImportModelError(f"{name!r} is {item!r}, not a tensor")
        # A value of its own: two variables may be given the same.
        leaves[name] = imp.builder.one(Reshape(item.type.shape), item, name=name)
    inner = Scope(
        leaves, scope.opsets, imp.frame, scope, depth=scope.depth + 1, label=label_of(node, scope)
    )
    before = len(imp.builder.nodes)
    imp.run_nodes(_between(scope.nodes, xs + zs, y), inner, (), "")
    found = imp.lookup(y, inner, "y")
    if not isinstance(found, Value):
        raise ImportModelError(f"y is {found!r}, not a tensor")
    variables = [v for name in xs if isinstance(v := leaves[name], Value)]
    return list(gradients(imp.builder, imp.builder.nodes[before:], found, variables))


def _names(given: Sequence[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in given]


def _between(nodes: Sequence[onnx.NodeProto], variables: list[str], y: str) -> list[onnx.NodeProto]:
    """The nodes that y depends on, up to the variables, which they do not make."""
    maker = {name: node for node in nodes for name in node.output if name}
    if y not in maker and y not in variables:
        raise ImportModelError(f"y is {y!r}, which no node beside it makes")
    needed: dict[int, onnx.NodeProto] = {}
    todo = [y]
    while todo:
        name = todo.pop()
        if name in variables or (node := maker.get(name)) is None or id(node) in needed:
            continue
        needed[id(node)] = node
        todo += reads(node)
        if node.domain == DOMAIN:  # a gradient's own value is read as well
            todo += _names([a.s for a in node.attribute if a.name == "y"])
    out = []
    for node in nodes:
        if id(node) in needed:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.output[:] = ["" if name in variables else name for name in node.output]
            out.append(copy)
    return out


CONTROL[f"{DOMAIN}.Gradient"] = gradient
