"""What names mean while a model is read, and the graphs that are being built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import onnx

from planish.compiler.graph.ir import GraphBuilder, Value

from .items import Item, of_tensors, tensors

MAX_DEPTH: Final = 100  # of functions and branches within each other
_SHOWN: Final = 8  # nodes within each other that an error names
_INSIDE: Final = " / "

Names: TypeAlias = "dict[str, Item | None]"


@dataclass(eq=False)
class Frame:
    """A graph that is being built; ``taken`` is what it takes from the one around it, by value."""

    builder: GraphBuilder
    parent: Frame | None = None
    taken: dict[Value, Value] = field(default_factory=dict)

    def take(self, item: Item, home: Frame) -> Item:
        """What stands here for an item of ``home``, which is this graph or one around it."""
        if self is home or self.parent is None:
            return item
        return of_tensors(item, tuple(self._value(v, home) for v in tensors(item)))

    def _value(self, item: Value, home: Frame) -> Value:
        if self is home or self.parent is None:
            return item
        outer = self.parent._value(item, home)
        if outer not in self.taken:
            array = self.parent.builder.constants.get(outer)
            if array is not None:
                self.taken[outer] = self.builder.constant(array, outer.name)
            else:
                self.taken[outer] = Value(self.builder.fresh(outer.name), outer.type, outer.content)
        return self.taken[outer]


@dataclass
class Scope:
    """What names mean in a graph, a branch or a function's body."""

    names: Names
    opsets: Mapping[str, int]
    frame: Frame
    parent: Scope | None = None
    tensors: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = field(default_factory=dict)
    depth: int = 0
    label: str = ""  # of the node that this is inside of
    ranks: dict[str, int] = field(default_factory=dict)  # as declared, by name
    nodes: Sequence[onnx.NodeProto] = ()

    def holds(self, name: str) -> bool:
        return name in self.names or name in self.tensors


def own_label(node: onnx.NodeProto) -> str:
    """What a node is called: by its name, or else its first output."""
    return node.name or next(iter(node.output), "") or str(node.op_type)


def label_of(node: onnx.NodeProto, scope: Scope) -> str:
    """What errors call a node: its name and operator, behind those of what it is inside of."""
    own = own_label(node)
    own = f"{own} ({node.op_type})" if own != node.op_type else own
    path = [*scope.label.split(_INSIDE), own] if scope.label else [own]
    if len(path) > _SHOWN:
        path = [*path[: _SHOWN // 2], "...", *path[-(_SHOWN // 2) :]]
    return _INSIDE.join(path)
