"""From a graph to a program: groups, their loops, their schedules, and where everything lives."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars
from planish.compiler.graph.fuse import Group, fuse, singletons
from planish.compiler.graph.ir import Array, Graph, Value
from planish.compiler.graph.memory import Lifetime, aligned, arena, pack
from planish.compiler.graph.prepack import relayout
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.machine import Machine
from planish.compiler.program import Place, Port, Program, Step
from planish.schedules.rules import default_schedule
from planish.schedules.schedule import Schedule, Trace


@dataclass(frozen=True)
class Kernel:
    """A scheduled function; ``layouts`` are the forms in which it wants constant parameters."""

    func: Function
    trace: Trace
    layouts: dict[int, tuple[tuple[str, ...], tuple[object, ...]]]


def lower_group(group: Group, graph: Graph, name: str) -> Function:
    """The loops of a group; scalar constants become part of them."""
    (first, *others) = group.nodes
    if not first.op.is_expression:
        if others:
            raise InternalError("an opaque node is fused", node=repr(first))
        types = [None if v is None else v.type for v in first.inputs]
        return first.op.build(*types).with_(name=name)
    known: dict[Value, te.Tensor] = {}
    inputs = []
    for v in group.inputs:
        constant = _scalar(graph, v)
        if constant is None:
            known[v] = te.placeholder(v.type.shape, v.type.dtype, _identifier(v.name))
            inputs.append(known[v])
        else:
            known[v] = te.compute(v.type.shape, lambda *_, c=constant: c, "c")
    for node in group.nodes:
        found = node.op.compute(*(None if v is None else known[v] for v in node.inputs))
        outs = found if isinstance(found, tuple) else (found,)
        known.update(zip(node.outputs, outs, strict=True))
    return lower(name, inputs, [known[v] for v in group.outputs])


def group_inputs(group: Group, graph: Graph) -> tuple[Value, ...]:
    """The values that the group's function takes."""
    if not group.nodes[0].op.is_expression:
        return tuple(v for v in group.nodes[0].inputs if v is not None)
    return tuple(v for v in group.inputs if _scalar(graph, v) is None)


def _scalar(graph: Graph, v: Value) -> Const | None:
    array = graph.constants.get(v)
    if array is None or array.size != 1:
        return None
    return n.const(array.reshape(-1)[0].item(), v.type.dtype)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)[-40:] or "x"


def compile_graph(
    graph: Graph, machine: Machine, threads: int = 1, optimize: bool = True
) -> Program:
    """The program of an optimised graph."""
    groups = fuse(graph) if optimize else singletons(graph)
    return _Assembly(graph, machine, threads, optimize).program(groups)


class _Assembly:
    def __init__(self, graph: Graph, machine: Machine, threads: int, optimize: bool) -> None:
        self.graph, self.machine, self.threads, self.optimize = graph, machine, threads, optimize
        self.kernels: dict[str, tuple[str, Kernel]] = {}
        self.functions: dict[str, Function] = {}
        self.traces: dict[str, str] = {}
        self.constants: list[Array] = []
        self._constant_index: dict[tuple[Value, str], int] = {}
        self.root: dict[Value, Value] = {}
        self._lowered: dict[Group, Function] = {}

    # ------------------------------------------------------------------------------ kernels

    def lowered(self, group: Group) -> Function:
        found = self._lowered.get(group)
        if found is None:
            found = self._lowered[group] = lower_group(group, self.graph, "f")
        return found

    def kernel(self, group: Group) -> tuple[str, Kernel]:
        """The kernel of a group; groups that are equal up to names share one."""
        from planish.compiler.loop.text import canonical, show

        func = canonical(self.lowered(group))
        constants = frozenset(
            p.name
            for p, v in zip(func.inputs, group_inputs(group, self.graph), strict=True)
            if v in self.graph.constants
        )
        key = f"{show(func)}{sorted(constants)}"
        found = self.kernels.get(key)
        if found is None:
            name = f"{_identifier(group.nodes[0].op.name)}_{len(self.kernels)}"
            s = (
                default_schedule(func, self.machine, self.threads, constants)
                if self.optimize
                else Schedule(func)
            )
            layouts = {}
            index = {p.name: k for k, p in enumerate(func.params)}
            for step in s.trace:
                if step.move == "layout" and step.arguments[0] in index:
                    layouts[index[step.arguments[0]]] = step.arguments[1:3]
            done = Kernel(s.func.with_(name=name), s.trace, layouts)
            found = self.kernels[key] = name, done
            self.functions[name] = done.func
            self.traces[name] = s.text()
        return found

    def constant(self, v: Value, kernel: Kernel, position: int) -> Place:
        """A constant argument, in the form that the kernel wants."""
        layout = kernel.layouts.get(position)
        key = (v, repr(layout))
        index = self._constant_index.get(key)
        if index is None:
            array = self.graph.constants[v]
            if layout is not None:
                dims, shape = layout
                array = relayout(array, dims, [int(str(d)) for d in shape])
            index = self._constant_index[key] = len(self.constants)
            self.constants.append(np.ascontiguousarray(array))
        return Place("constant", index)

    # ------------------------------------------------------------------------------ program

    def program(self, groups: tuple[Group, ...]) -> Program:
        graph = self.graph
        steps: list[tuple[Group, str, Kernel]] = []
        for g in groups:
            if g.kind == "view":
                (node,) = g.nodes
                source = node.inputs[0]
                assert source is not None
                self.root[node.outputs[0]] = self.root.get(source, source)
            else:
                steps.append((g, *self.kernel(g)))
        copies = self._outputs()
        places, size, scratch = self._places(steps, len(copies))
        done: list[Step] = []
        for k, (g, name, kernel) in enumerate(steps):
            arguments = [
                self.constant(v, kernel, position) if r in graph.constants else places[r]
                for position, v in enumerate(group_inputs(g, graph))
                for r in (self.root.get(v, v),)
            ]
            arguments += [places[v] for v in g.outputs]
            values = self._symbols(g, kernel)
            done.append(
                Step(
                    name,
                    tuple(arguments),
                    values,
                    scratch[k],
                    tuple(x.origin or x.outputs[0].name for x in g.nodes),
                )
            )
        for v, index in copies:
            done.append(self._copy(v, index, places))
        return Program(
            graph.name,
            tuple(
                Port(name, v.type) for name, v in zip(graph.input_names, graph.inputs, strict=True)
            ),
            tuple(
                Port(name, v.type) for name, v in zip(graph.output_names, graph.outputs, strict=True)
            ),
            graph.symbols,
            self.functions,
            tuple(done),
            tuple(self.constants),
            size,
            graph.constraints,
            graph.defaults,
            self.traces,
        )

    def _symbols(self, group: Group, kernel: Kernel) -> tuple[Expr, ...]:
        """The values of a kernel's symbols: those that its group had, in the same order."""
        return tuple(self.lowered(group).symbols)

    def _outputs(self) -> list[tuple[Value, int]]:
        """Graph outputs that need a copy: those that a step cannot write in place."""
        made = {v for x in self.graph.nodes for v in x.outputs}
        self.output_of: dict[Value, int] = {}
        copies = []
        for k, v in enumerate(self.graph.outputs):
            r = self.root.get(v, v)
            if r in made and r not in self.output_of:
                self.output_of[r] = k
            else:
                copies.append((r, k))
        return copies

    def _places(
        self, steps: list[tuple[Group, str, Kernel]], copies: int
    ) -> tuple[dict[Value, Place], Expr, list[Place]]:
        graph = self.graph
        places = {v: Place("input", k) for k, v in enumerate(graph.inputs)}
        places |= {v: Place("output", k) for v, k in self.output_of.items()}
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for k, (g, _, _) in enumerate(steps):
            for v in g.outputs:
                if v not in places:
                    first[v] = last[v] = k
            for v in g.inputs:
                r = self.root.get(v, v)
                if r in first:
                    last[r] = k
        for v in graph.outputs:
            r = self.root.get(v, v)
            if r in first:
                last[r] = len(steps) + copies
        values = list(first)
        lifetimes = [
            Lifetime(n.product(v.type.shape) * v.type.dtype.bytes, first[v], last[v])
            for v in values
        ]
        for k, (g, _, kernel) in enumerate(steps):
            need: Expr = n.as_expr(0)
            renamed = dict(zip(kernel.func.symbols, self._symbols(g, kernel), strict=True))
            for t in kernel.func.temps:
                if t.scope == "global":
                    need = need + aligned(n.substitute(t.bytes, renamed))
            lifetimes.append(Lifetime(need, k, k))
        offsets, size = pack(lifetimes)
        for v, offset in zip(values, offsets, strict=False):
            places[v] = arena(offset)
        return places, size, [arena(o) for o in offsets[len(values) :]]

    def _copy(self, v: Value, index: int, places: dict[Value, Place]) -> Step:
        """A step that copies a value to a graph output."""
        from planish.compiler.loop.text import canonical, show

        source = te.placeholder(v.type.shape, v.type.dtype)
        func = canonical(lower("copy", [source], [source]))
        key = f"copy {show(func)}"
        found = self.kernels.get(key)
        if found is None:
            name = f"copy_{len(self.kernels)}"
            s = default_schedule(func, self.machine, self.threads, frozenset())
            found = self.kernels[key] = name, Kernel(s.func.with_(name=name), s.trace, {})
            self.functions[name] = found[1].func
            self.traces[name] = s.text()
        name, kernel = found
        if v in self.graph.constants:
            place = self.constant(v, kernel, 0)
        else:
            place = places[v]
        symbols: tuple[Var, ...] = free_vars(*v.type.shape)
        return Step(name, (place, Place("output", index)), symbols, arena(n.as_expr(0)), ("copy",))
