"""What the runtime computes in a program: calls of its functions, and the strings of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planish.compiler.calling import HostFunction
from planish.compiler.dtypes import STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Graph, Value
from planish.compiler.ops.host import HostOp
from planish.compiler.program import Host, Place

from .lowering import Constants


@dataclass(frozen=True, eq=False)
class HostWork:
    """A node that the runtime computes, before it is known where its values are."""

    op: HostOp
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: tuple[str, ...]
    scratch_bytes: Expr = n.as_expr(0)

    @property
    def function(self) -> HostFunction:
        """What is called."""
        inputs, outputs = (
            tuple((v.type.dtype, v.type.rank) for v in some) for some in (self.inputs, self.outputs)
        )
        return HostFunction(self.op.name, self.op.attributes, inputs, outputs, self.origin[0])

    def step(self, index: int, place: Callable[[Value], Place], failure: int) -> Host:
        """The call of the ``index``-th function that there is."""
        inputs, outputs = (
            tuple((place(v), v.type) for v in some) for some in (self.inputs, self.outputs)
        )
        return Host(self.op.name, index, inputs, outputs, failure, origin=self.origin)


def texts_of(graph: Graph, constants: Constants, has_hosts: bool) -> tuple[str, ...]:
    """The strings of the model, those of defaults too; nothing if it has none to do with."""
    for array in graph.defaults.values():
        constants.stored(array)
    ports = (*graph.inputs, *graph.outputs)
    needed = has_hosts or any(v.type.dtype is STRING for v in ports) or len(constants.texts) > 1
    return constants.texts.texts if needed else ()


__all__ = ["HostWork", "texts_of"]
