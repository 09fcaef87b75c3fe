"""From a graph to a program: groups, their loops, their schedules, and where everything lives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.expr.simplify import simplify
from planish.compiler.graph.fuse import Group, Kinds, fuse, singletons
from planish.compiler.graph.ir import Array, Graph, Node, Value
from planish.compiler.graph.memory import Lifetime, aligned, arena, pack
from planish.compiler.graph.prepack import relayout
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.loop.slots import with_slots
from planish.compiler.loop.text import show
from planish.compiler.machine import Machine
from planish.compiler.ops.control import If
from planish.compiler.ops.shape import Reshape
from planish.compiler.program import Branch, Place, Port, Program, Step
from planish.runtime.memory import aligned_copy
from planish.schedules.rules import default_schedule
from planish.schedules.schedule import Schedule

Arrays: TypeAlias = Mapping[Value, Array]
# A form of a constant: where each of its elements goes, and the shape of the whole.
Layout: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]

_HEAVY: Final = ("contraction", "reduction")
_PROBE: Final = 64  # bytes of two arrays that are compared before all are


def compile_graph(
    graph: Graph, machine: Machine, threads: int = 1, optimize: bool = True
) -> Program:
    """The program of a graph: fused and scheduled, or with ``optimize=False`` node by node."""
    return _Assembly(graph, _Kernels(machine, threads, optimize), _Constants()).program()


# ------------------------------------------------------------------------------------- functions


def lower_group(group: Group, known: Arrays, name: str = "f") -> Function:
    """The loops of a group; known values of one element become part of them."""
    (first, *others) = group.nodes
    if not first.op.is_expression:
        if others:
            raise InternalError("an opaque node is fused", op="lower", node=repr(first))
        types = [None if v is None else v.type for v in first.inputs]
        return first.op.build(*types).with_(name=name)
    parameters = set(group_inputs(group, known))
    tensors: dict[Value, te.Tensor] = {}
    for v in group.inputs:
        if v in parameters:
            tensors[v] = te.placeholder(v.type.shape, v.type.dtype, _identifier(v.name))
        else:
            number = n.const(known[v].reshape(-1)[0].item(), v.type.dtype)
            tensors[v] = te.compute(v.type.shape, lambda *_, c=number: c, "c")
    for node in group.nodes:
        found = node.op.compute(*(None if v is None else tensors[v] for v in node.inputs))
        outs = found if isinstance(found, tuple) else (found,)
        tensors.update(zip(node.outputs, outs, strict=True))
    inputs = [tensors[v] for v in group.inputs if v in parameters]
    return lower(name, inputs, [tensors[v] for v in group.outputs])


def group_inputs(group: Group, known: Arrays) -> tuple[Value, ...]:
    """The values that the group's function takes, in order."""
    if not group.nodes[0].op.is_expression:
        return group.nodes[0].operands
    return tuple(v for v in group.inputs if v not in known or known[v].size != 1)


def group_label(group: Group, kinds: Kinds) -> str:
    """What the group's function is called: as its contraction or reduction, or its first node."""
    first, *others = group.nodes
    heavy = [x for x in group.nodes if kinds(x) == group.kind] if others else []
    return (heavy[0] if heavy and group.kind in _HEAVY else first).op.name


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)[-40:] or "x"


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A scheduled function; ``layouts`` are the forms in which it wants constant parameters."""

    func: Function
    trace: str
    layouts: Mapping[int, tuple[Layout, ...]]


class _Kernels:
    """Makes the kernels of a program; functions that are equal up to names share one."""

    def __init__(self, machine: Machine, threads: int, optimize: bool) -> None:
        self.machine, self.threads, self.optimize = machine, threads, optimize
        self._made: dict[tuple[str, frozenset[str]], _Kernel] = {}

    def __iter__(self) -> Iterator[_Kernel]:
        return iter(self._made.values())

    def kernel(self, func: Function, constant: Sequence[bool], label: str) -> _Kernel:
        """The kernel of a function; ``constant`` says which of its inputs are known."""
        func = canonical(func)
        constants = frozenset(p.name for p, c in zip(func.inputs, constant, strict=True) if c)
        key = show(func), constants
        found = self._made.get(key)
        if found is None:
            s = Schedule(func)
            if self.optimize:
                s = default_schedule(func, self.machine, self.threads, constants)
            scheduled = with_slots(s.func, self.threads)
            named = scheduled.with_(name=f"{_identifier(label)}_{len(self._made)}")
            found = self._made[key] = _Kernel(named, s.text(), _layouts(s, constants))
        return found


def _layouts(s: Schedule, constants: frozenset[str]) -> dict[int, tuple[Layout, ...]]:
    """The forms that a schedule gave to parameters, in the order in which it did, by position."""
    positions = {p.name: k for k, p in enumerate(s.func.params)}
    out: dict[int, tuple[Layout, ...]] = {}
    for step in s.trace:
        match step.arguments:
            case (str(name), tuple(dims), tuple(shape)) if step.move == "layout":
                if name not in positions:
                    continue
                if name not in constants:
                    raise InternalError(f"{name} is no constant, but is laid out", op="lower")
                form = tuple(map(str, dims)), tuple(int(str(d)) for d in shape)
                out[positions[name]] = (*out.get(positions[name], ()), form)
    return out


# ------------------------------------------------------------------------------------- constants


class _Constants:
    """The constants of a program: each form of an array once, however many values have it."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._places: dict[tuple[Any, ...], list[tuple[Array, Place]]] = {}

    def place(self, array: Array, layouts: tuple[Layout, ...]) -> Place:
        """Where an array is, in the form that comes of the layouts."""
        key = (array.dtype, array.shape, layouts)
        alike = self._places.setdefault(key, [])
        for other, place in alike:
            if _same_bits(array, other):
                return place
        form = array
        for dims, shape in layouts:
            form = relayout(form, dims, shape)
        place = Place("constant", len(self.arrays))
        self.arrays.append(aligned_copy(form))
        alike.append((array, place))
        return place


def _same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays of one dtype and shape hold the same bytes."""
    if a is b:
        return True
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return bool((x[:_PROBE] == y[:_PROBE]).all() and (x == y).all())


# --------------------------------------------------------------------------------------- program


@dataclass(frozen=True, eq=False)
class _Call:
    """A kernel applied to values, before it is known where they are."""

    kernel: _Kernel
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: tuple[Expr, ...]
    origin: tuple[str, ...]

    @property
    def scratch_bytes(self) -> Expr:
        """What the kernel's temporaries take."""
        func = self.kernel.func
        values = dict(zip(func.symbols, self.symbols, strict=True))
        sizes = (aligned(n.substitute(t.bytes, values)) for t in func.temps if t.scope == "global")
        return sum(sizes, n.as_expr(0))


@dataclass(frozen=True, eq=False)
class _Choice:
    """A node that runs one of two graphs: the steps of both.

    Places in the steps are as if each graph were a program of its own, except for constants.
    """

    inputs: tuple[Value, ...]  # the condition, then what the branches take
    outputs: tuple[Value, ...]
    sides: tuple[tuple[Step | Branch, ...], tuple[Step | Branch, ...]]
    scratch_bytes: Expr  # the arena of either
    origin: tuple[str, ...]


_Work: TypeAlias = "_Call | _Choice"


class _Assembly:
    """Puts the program of a graph together, or the steps of a subgraph.

    ``known`` are the arrays of inputs of a subgraph that are constants around it.
    """

    def __init__(
        self, graph: Graph, kernels: _Kernels, constants: _Constants, known: Arrays | None = None
    ) -> None:
        self.graph, self.kernels, self.constants = graph, kernels, constants
        self.arrays: Arrays = {**graph.constants, **(known or {})}
        self.known: dict[Value, Array] = dict(self.arrays)
        self.kinds = Kinds()
        self._source: dict[Value, Value] = {}  # what a view is a view of

    def program(self) -> Program:
        graph = self.graph
        steps, arena_bytes = self.steps()
        return Program(
            graph.name,
            _ports(graph.input_names, graph.inputs),
            _ports(graph.output_names, graph.outputs),
            graph.symbols,
            {k.func.name: k.func for k in self.kernels},
            steps,
            tuple(self.constants.arrays),
            arena_bytes,
            graph.constraints,
            graph.defaults,
            {k.func.name: k.trace for k in self.kernels},
        )

    def steps(self) -> tuple[tuple[Step | Branch, ...], Expr]:
        """The steps of the graph, and the bytes of their arena."""
        groups = fuse(self.graph) if self.kernels.optimize else singletons(self.graph)
        work: list[_Work] = []
        for group in groups:
            (first, *_) = group.nodes
            if group.kind == "view":
                self._view(first)
            elif isinstance(first.op, If):
                work.append(self._choice(first, first.op))
            else:
                work.append(self._call(group))
        outputs, copies = self._outputs()
        work += copies
        places, arena_bytes, scratch = self._places(work, outputs)
        steps = tuple(self._step(w, places, s) for w, s in zip(work, scratch, strict=True))
        return steps, arena_bytes

    def _choice(self, node: Node, op: If) -> _Choice:
        inputs = node.operands
        sides = []
        for graph in op.branches:
            given = zip(graph.inputs, inputs[1:], strict=True)
            known = {inner: self.known[v] for inner, v in given if v in self.known}
            sides.append(_Assembly(graph, self.kernels, self.constants, known).steps())
        (then, then_bytes), (other, other_bytes) = sides
        return _Choice(
            inputs,
            node.outputs,
            (then, other),
            simplify(n.maximum(then_bytes, other_bytes)),
            (node.origin or node.outputs[0].name,),
        )

    def source(self, v: Value) -> Value:
        """The value whose memory this one has."""
        return self._source.get(v, v)

    def _view(self, node: Node) -> None:
        """A node that gives the same elements in the same order, and so takes no code."""
        (v,) = node.operands
        (out,) = node.outputs
        self._source[out] = self.source(v)
        shape = out.type.shape
        if v in self.known and all(isinstance(d, Const) for d in shape):
            numbers = [int(d.value) for d in shape if isinstance(d, Const)]
            self.known[out] = self.known[v].reshape(numbers)

    def _call(self, group: Group, label: str = "") -> _Call:
        func = lower_group(group, self.known)
        inputs = group_inputs(group, self.known)
        constant = [v in self.known for v in inputs]
        return _Call(
            self.kernels.kernel(func, constant, label or group_label(group, self.kinds)),
            inputs,
            group.outputs,
            func.symbols,
            tuple(dict.fromkeys(x.origin or x.outputs[0].name for x in group.nodes)),
        )

    def _outputs(self) -> tuple[dict[Value, Place], list[_Call]]:
        """Where outputs are made; calls that copy those that nothing can make in place.

        These are inputs, constants, views of them, and what is an output already.
        """
        made = {v for node in self.graph.nodes for v in node.outputs}
        places: dict[Value, Place] = {}
        copies = []
        for k, v in enumerate(self.graph.outputs):
            source = self.source(v)
            if source not in made or source in places:
                copy = Value(v.name, source.type)
                node = Node(Reshape(source.type.shape), (source,), (copy,))
                group = Group((node,), (source,), (copy,), "injective")
                copies.append(self._call(group, "copy"))
                source = copy
            places[source] = Place("output", k)
        return places, copies

    def _places(
        self, calls: Sequence[_Work], outputs: Mapping[Value, Place]
    ) -> tuple[dict[Value, Place], Expr, list[Place]]:
        """Where values are, the arena's bytes, and where each call has its scratch."""
        places = {v: Place("input", k) for k, v in enumerate(self.graph.inputs)} | {**outputs}
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for k, call in enumerate(calls):
            for v in map(self.source, (*call.outputs, *call.inputs)):
                if v not in places and v not in self.arrays:
                    first.setdefault(v, k)
                    last[v] = k
        lifetimes = [
            Lifetime(n.product(v.type.shape) * v.type.dtype.bytes, first[v], last[v]) for v in first
        ]
        lifetimes += [Lifetime(c.scratch_bytes, k, k) for k, c in enumerate(calls)]
        offsets, arena_bytes = pack(lifetimes)
        scratch = [arena(offset) for offset in offsets[len(first) :]]
        places |= {v: arena(offset) for v, offset in zip(first, offsets, strict=False)}
        return places, arena_bytes, scratch

    def _step(self, work: _Work, places: Mapping[Value, Place], scratch: Place) -> Step | Branch:
        if isinstance(work, _Choice):
            return self._branch(work, places, scratch)
        layouts = work.kernel.layouts
        arguments = [self._place(v, places, layouts.get(k, ())) for k, v in enumerate(work.inputs)]
        arguments += [places[v] for v in work.outputs]
        return Step(work.kernel.func.name, tuple(arguments), work.symbols, scratch, work.origin)

    def _place(
        self, v: Value, places: Mapping[Value, Place], layouts: tuple[Layout, ...] = ()
    ) -> Place:
        """Where a value is read."""
        if v in self.known:
            return self.constants.place(self.known[v], layouts)
        if (source := self.source(v)) in self.arrays:  # a view of unknown shape
            return self.constants.place(self.arrays[source], ())
        return places[source]

    def _branch(self, choice: _Choice, places: Mapping[Value, Place], scratch: Place) -> Branch:
        condition, *inputs = choice.inputs

        def place(inner: Place) -> Place:
            """Where a place of a branch is in this graph."""
            match inner.kind:
                case "input":
                    outer = self._place(inputs[inner.index], places)
                case "output":
                    outer = places[choice.outputs[inner.index]]
                case "arena":
                    outer = scratch
                case "constant":
                    return inner
            return replace(outer, offset=simplify(outer.offset + inner.offset))

        then, other = (tuple(_moved(s, place) for s in side) for side in choice.sides)
        return Branch(self._place(condition, places), then, other, choice.origin)


def _moved(step: Step | Branch, place: Callable[[Place], Place]) -> Step | Branch:
    """The step of a branch with its places as the graph around it has them."""
    if isinstance(step, Branch):
        then, other = (tuple(_moved(s, place) for s in side) for side in (step.then, step.other))
        return replace(step, condition=place(step.condition), then=then, other=other)
    return replace(step, arguments=tuple(map(place, step.arguments)), scratch=place(step.scratch))


def _ports(names: Sequence[str], values: Sequence[Value]) -> tuple[Port, ...]:
    return tuple(Port(name, v.type) for name, v in zip(names, values, strict=True))
