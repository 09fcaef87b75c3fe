"""Pieces of the work of a program, before it is known where their values are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planish.compiler.calling import HostFunction
from planish.compiler.dtypes import STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Graph, Value
from planish.compiler.graph.memory import aligned
from planish.compiler.ops.host import HostOp
from planish.compiler.ops.sizes import Sizes
from planish.compiler.program import Host, Place

from .inner import Inner
from .lowering import Constants, Kernel


@dataclass(frozen=True, eq=False)
class Call:
    """A kernel applied to values, before it is known where they are."""

    kernel: Kernel
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: tuple[Expr, ...]
    origin: tuple[str, ...]
    conditions: tuple[Expr, ...] = ()  # under which no extent is negative

    @property
    def scratch_bytes(self) -> Expr:
        """What the kernel's temporaries take."""
        func = self.kernel.func
        values = dict(zip(func.symbols, self.symbols, strict=True))
        sizes = (aligned(n.substitute(t.bytes, values)) for t in func.temps if t.scope == "global")
        return sum(sizes, n.as_expr(0))


@dataclass(frozen=True, eq=False)
class SizesWork:
    """A node that binds symbols."""

    op: Sizes
    inputs: tuple[Value, ...]
    origin: tuple[str, ...]
    outputs: tuple[Value, ...] = ()
    scratch_bytes: Expr = n.as_expr(0)


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


Work: TypeAlias = "Call | Inner | SizesWork | HostWork"


def texts_of(graph: Graph, constants: Constants, has_hosts: bool) -> tuple[str, ...]:
    """The strings of the model, those of defaults too; nothing if it has none to do with."""
    for array in graph.defaults.values():
        constants.stored(array)
    ports = (*graph.inputs, *graph.outputs)
    needed = has_hosts or any(v.type.dtype is STRING for v in ports) or len(constants.texts) > 1
    return constants.texts.texts if needed else ()


__all__ = ["Call", "HostWork", "SizesWork", "Work", "texts_of"]
