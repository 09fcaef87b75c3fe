"""The program of a graph: the steps that run its kernels, and where every value lives.

Graphs within the graph become steps that hold others. A value whose size the inputs' shapes tell
has its place in the arena, or in the part of it that the step around has; one whose size only data
tells is allocated before it is made and released after it was last read. What a loop carries is on
the heap as well: a new value takes the old one's place by its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from planish.compiler.calling import HostFunction
from planish.compiler.dtypes import BOOL
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.expr.simplify import simplify
from planish.compiler.graph.fuse import Group, Kinds, fuse, singletons
from planish.compiler.graph.ir import Array, Graph, Node, Value, tensor
from planish.compiler.graph.memory import Lifetime, arena, pack
from planish.compiler.graph.prepack import Form
from planish.compiler.graph.single import as_graph, single_query
from planish.compiler.loop import te
from planish.compiler.loop.lower import lower
from planish.compiler.machine import Machine
from planish.compiler.ops.control import If, Loop
from planish.compiler.ops.host import HostOp
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.sizes import Sizes
from planish.compiler.program import (
    Allocate,
    AnyStep,
    Bind,
    Check,
    Failure,
    Place,
    Port,
    Program,
    Release,
    Step,
)

from .inner import CONDITION, LOOP_BYTES, Around, Inner, LoopSteps, branch
from .lowering import (
    Arrays,
    Chooser,
    Constants,
    Kernels,
    extent_conditions,
    group_inputs,
    group_label,
    lower_group,
)
from .names import Names
from .work import Call, HostWork, SizesWork, Work, texts_of


def compile_graph(
    graph: Graph,
    machine: Machine,
    threads: int = 1,
    optimize: bool = True,
    scheduled: bool = True,
    tuned: Chooser = lambda *_: None,
    strict: bool = False,
) -> Program:
    """The program of a graph: fused and scheduled, or with ``optimize=False`` node by node.

    Without ``scheduled`` the kernels' loops stay plain; ``tuned`` knows better schedules than the
    default ones for some functions. ``strict``: sums are plain sums.
    """
    kernels = Kernels(machine, threads, optimize, scheduled, tuned, strict)
    return assembled(graph, kernels)


def assembled(graph: Graph, kernels: Kernels) -> Program:
    """The program of a graph, of kernels that are then there to be looked at."""
    return _Assembly(graph, _Common(kernels, graph)).program()


class _Common:
    """What the graphs within each other have in common."""

    def __init__(self, kernels: Kernels, graph: Graph) -> None:
        self.kernels, self.constants = kernels, Constants()
        self.given = frozenset(graph.symbols)  # those that the inputs' shapes tell
        self.names = Names(graph)
        self.bound: dict[Var, None] = {}
        self.heap = 0
        self.failures: dict[Failure, int] = {}
        self.hosts: list[HostFunction] = []
        self.conditions: dict[Expr, str] = {}  # of kernels, to check before the call: for a node

    def place(self) -> Place:
        """A new array on the heap."""
        self.heap += 1
        return Place("heap", self.heap - 1)

    def failure(self, message: str, origin: str = "", about: Iterable[Expr] = ()) -> int:
        """The index of a failure; ``about``: whose symbols tell what is wrong."""
        found = Failure(message, origin, self.names.about(n.free_vars(*about)))
        return self.failures.setdefault(found, len(self.failures))

    def is_given(self, *sizes: Expr) -> bool:
        """Whether sizes are known as soon as the inputs' shapes are."""
        return all(v in self.given for v in n.free_vars(*sizes))


class _Assembly:
    """Puts the program of a graph together, or the steps of a subgraph.

    ``known`` are the arrays of inputs of a subgraph that are constants around it, ``open`` the
    outputs for which it has to allocate memory; it does that anyway if only data tells their size.
    ``is_choice``: the graph is one of several for a group, among which sizes choose.
    """

    def __init__(
        self,
        graph: Graph,
        common: _Common,
        known: Arrays | None = None,
        open: Iterable[int] = (),
        is_choice: bool = False,
    ) -> None:
        self.graph, self.common = graph, common
        unsized = {k for k, v in enumerate(graph.outputs) if not self._sized(v)}
        self.open = unsized.union(open)
        self.kernels, self.constants = common.kernels, common.constants
        stored = {v: self.constants.stored(a) for v, a in graph.constants.items()}
        self.arrays: Arrays = {**stored, **(known or {})}
        self.known: dict[Value, Array] = dict(self.arrays)
        self.kinds = Kinds()
        self.is_choice = is_choice
        self.singles: dict[Var, Value] = {}  # whether a size is 1
        self._source: dict[Value, Value] = {}  # what a view is a view of
        self._conditions: tuple[dict[Var, int], dict[int, list[Expr]]] | None = None

    def program(self) -> Program:
        graph, common, reasons = self.graph, self.common, self.graph.reasons
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
            {
                **{c: reasons.get(c, "") for c in graph.constraints if common.is_given(c)},
                **{c: reasons.get(c, why) for c, why in common.conditions.items()},
            },
            graph.defaults,
            {k.func.name: k.schedule for k in self.kernels},
            tuple(common.bound),
            common.heap,
            tuple(common.failures),
            graph.packings,
            tuple(common.hosts),
            texts_of(graph, self.constants, bool(common.hosts)),
        )

    def steps(self) -> tuple[tuple[AnyStep, ...], Expr]:
        """The steps of the graph, and the bytes of their arena."""
        groups = fuse(self.graph) if self.kernels.optimize else singletons(self.graph)
        work: list[Work] = []
        for group in groups:
            (first, *_) = group.nodes
            if group.kind == "view":
                self._view(first)
            elif isinstance(first.op, Sizes):
                self._view(first)
                work.append(SizesWork(first.op, first.operands, _origin(first)))
            elif isinstance(first.op, HostOp):
                work.append(HostWork(first.op, first.operands, first.outputs, _origin(first)))
            elif isinstance(first.op, If | Loop):
                work.append(self._inner(first, first.op))
            else:
                work += self._choice(group) if self.kernels.optimize else [self._call(group)]
        outputs, copies = self._outputs()
        work += copies
        places, last, arena_bytes, scratch = self._places(work, outputs)
        steps: list[AnyStep] = list(self._checks())
        done: dict[int, list[Value]] = {}  # what is read last by each piece of work
        for v, k in last.items():
            done.setdefault(k, []).append(v)
        for k, (w, s) in enumerate(zip(work, scratch, strict=True)):
            steps += self._around(w, s, places, done.get(k, ()))
        return tuple(steps), arena_bytes

    # ------------------------------------------------------------------------------ other graphs

    def _inner(self, node: Node, op: If | Loop) -> Inner:
        graphs = op.branches if isinstance(op, If) else (op.body,)
        given = node.inputs[1:]
        numbered = len(graphs[0].inputs) - len(given)  # inputs that the loop itself gives
        parts, sizes = [], []
        self.common.bound.update(dict.fromkeys(op.binds))
        for graph in graphs:
            known = {
                inner: self.known[v]
                for k, (inner, v) in enumerate(zip(graph.inputs[numbered:], given, strict=True))
                if v in self.known and not (isinstance(op, Loop) and k < op.carried)
            }
            if isinstance(op, If):
                open = {k for k, v in enumerate(node.outputs) if not self._sized(v)}
            else:
                open = set(range(1, 1 + len(node.outputs)))
            steps, size = _Assembly(graph, self.common, known, open).steps()
            parts.append(steps)
            sizes.append(size)
        # Where a branch does not run its sizes may be anything.
        size = simplify(reduce(n.maximum, sizes, n.as_expr(0)))
        if isinstance(op, Loop):
            size = simplify(size + LOOP_BYTES)
        return Inner(op, node.inputs, node.outputs, tuple(parts), size, _origin(node))

    def _choice(self, group: Group) -> Iterator[Work]:
        """The call of a group's kernel, or the choice between that and kernels for one query."""
        found = None if self.is_choice else single_query(group)
        if found is None:
            yield self._call(group)
            return
        rows, one = found
        if rows not in self.singles:
            self.singles[rows] = Value(f"{rows}_is_1", tensor(BOOL))
            yield self._test(n.eq(rows, 1), self.singles[rows])
        op = If(one, as_graph(group))
        known = [
            {inner: self.known[v] for inner, v in pairs if v in self.known}
            for pairs in (zip(g.inputs, group.inputs, strict=True) for g in op.branches)
        ]
        open = {k for k, v in enumerate(group.outputs) if not self._sized(v)}
        sides = [
            _Assembly(g, self.common, arrays, open, is_choice=True).steps()
            for g, arrays in zip(op.branches, known, strict=True)
        ]
        size = simplify(reduce(n.maximum, (size for _, size in sides)))
        parts = tuple(steps for steps, _ in sides)
        inputs = (self.singles[rows], *group.inputs)
        yield Inner(op, inputs, group.outputs, parts, size, _origin(group.nodes[-1]))

    def _test(self, condition: Expr, to: Value) -> Call:
        """The call that computes a condition on sizes."""
        func = lower("test", [], [te.compute((), lambda: condition, "holds")])
        return Call(self.kernels.kernel(func, (), "test"), (), (to,), func.symbols, (to.name,))

    def _sized(self, v: Value) -> bool:
        """Whether the inputs' shapes tell a value's size."""
        return self.common.is_given(*v.type.shape)

    # ------------------------------------------------------------------------------------- groups

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

    def _call(self, group: Group, label: str = "") -> Call:
        func = lower_group(group, self.known)
        conditions = tuple(extent_conditions(func))
        given = [c for c in conditions if self.common.is_given(c)]
        for condition in given:
            self.common.conditions.setdefault(condition, _origin(group.nodes[-1])[0])
        inputs = group_inputs(group, self.known)
        constant = [v in self.known for v in inputs]
        return Call(
            self.kernels.kernel(func, constant, label or group_label(group, self.kinds)),
            inputs,
            group.outputs,
            func.symbols,
            tuple(dict.fromkeys(x.origin or x.outputs[0].name for x in group.nodes)),
            tuple(c for c in conditions if c not in (*given, *self.graph.constraints)),
        )

    def _outputs(self) -> tuple[dict[Value, Place], list[Call]]:
        """Where outputs are made; calls that copy those that nothing can make in place.

        These are inputs, constants, views of them, and what is an output already.
        """
        # What loops make is moved about.
        nodes = (node for node in self.graph.nodes if not isinstance(node.op, Loop))
        made = {v for node in nodes for v in node.outputs}
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

    # ------------------------------------------------------------------------------------- memory

    def _places(
        self, work: Sequence[Work], outputs: Mapping[Value, Place]
    ) -> tuple[dict[Value, Place], dict[Value, int], Expr, list[Place]]:
        """Where values are, when each is read last, the arena's bytes, where work has its scratch.

        Inputs are never read last, since whoever gives them keeps them.
        """
        places = {v: Place("input", k) for k, v in enumerate(self.graph.inputs)} | {**outputs}
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for k, w in enumerate(work):
            for v in map(self.source, (*w.outputs, *(v for v in w.inputs if v is not None))):
                if v not in places and v not in self.arrays:
                    first.setdefault(v, k)
                    last[v] = k
        moving = {v for w in work if _is_loop(w) for v in w.outputs}
        places |= {v: self.common.place() for v in first if v in moving or not self._sized(v)}
        fixed = [v for v in first if v not in places]
        lifetimes = [
            Lifetime(n.product(v.type.shape) * v.type.dtype.bytes, first[v], last[v]) for v in fixed
        ]
        given = [self.common.is_given(w.scratch_bytes) for w in work]
        lifetimes += [Lifetime(w.scratch_bytes, k, k) for k, w in enumerate(work) if given[k]]
        offsets, arena_bytes = pack(lifetimes)
        places |= {v: arena(offset) for v, offset in zip(fixed, offsets, strict=False)}
        rest = iter(offsets[len(fixed) :])
        scratch = [arena(next(rest)) if known else self.common.place() for known in given]
        return places, last, arena_bytes, scratch

    def _around(
        self,
        work: Work,
        scratch: Place,
        places: Mapping[Value, Place],
        done: Iterable[Value],
    ) -> Iterator[AnyStep]:
        """The steps of a piece of work, and those that allocate before it and release after it.

        Nothing after it reads what is ``done``.
        """
        for condition in work.conditions if isinstance(work, Call) else ():
            yield self._check(condition, work.origin[0])
        for v in work.outputs:
            inside = isinstance(work, Inner) and (_is_loop(work) or not self._sized(v))
            if not inside and self._allocates(v, places[v]):
                yield self._allocation(v, places[v], work.origin[0])
        if scratch.kind == "heap":
            size = work.scratch_bytes
            message = "there is no room for what is computed"
            failure = self.common.failure(message, work.origin[0], [size])
            yield Allocate(scratch, (size,), 1, failure)
        match work:
            case Call():
                yield self._step(work, places, scratch)
            case SizesWork(op, (x,), origin):
                yield from self._bind(op, x, places, origin)
            case HostWork(op=op, origin=origin):
                self.common.hosts.append(work.function)
                failure = self.common.failure(f"{op.name} fails", origin[0])
                index = len(self.common.hosts) - 1
                yield work.step(index, lambda v: self._place(v, places), failure)
            case Inner(If() as op):
                yield branch(work, op, self._around_of(places, scratch))
                yield from self._checks(op.binds)
            case Inner(Loop() as op):
                around = self._around_of(places, scratch)
                yield from self._loop(LoopSteps(work, op, around), places)
                yield from self._checks(op.binds)
        if scratch.kind == "heap":
            yield Release(scratch.index)
        for v in done:
            if places[v].kind == "heap":
                yield Release(places[v].index)

    def _allocates(self, v: Value, place: Place) -> bool:
        """Whether the memory for a value is allocated by who makes it."""
        if place.kind == "output":
            return place.index in self.open
        return place.kind == "heap"

    def _allocation(self, v: Value, place: Place, origin: str) -> Allocate:
        shape = v.type.shape
        shown = Value(v.name, v.type.with_shape(map(self.common.names.shown, shape)))
        message = f"there is no room for {shown!r}, or one of its sizes is negative"
        failure = self.common.failure(message, origin, shape)
        return Allocate(place, shape, v.type.dtype.bytes, failure)

    # -------------------------------------------------------------------------------------- steps

    def _step(self, call: Call, places: Mapping[Value, Place], scratch: Place) -> Step:
        forms = call.kernel.forms
        arguments = [self._place(v, places, forms.get(k, ())) for k, v in enumerate(call.inputs)]
        arguments += [places[v] for v in call.outputs]
        name = call.kernel.func.name
        return Step(name, tuple(arguments), call.symbols, scratch, origin=call.origin)

    def _place(
        self, v: Value, places: Mapping[Value, Place], forms: tuple[Form, ...] = ()
    ) -> Place:
        """Where a value is read."""
        if v in self.known:
            return self.constants.place(self.known[v], forms)
        if (source := self.source(v)) in self.arrays:  # a view of unknown shape
            return self.constants.place(self.arrays[source], ())
        return places[source]

    def _bind(
        self, op: Sizes, x: Value, places: Mapping[Value, Place], origin: tuple[str, ...]
    ) -> Iterator[AnyStep]:
        symbols = op.binds
        self.common.bound.update(dict.fromkeys(symbols))
        failure = self.common.failure(op.failure, origin[0], () if op.error else symbols)
        place = self._place(x, places)
        yield Bind(place, x.type.dtype, symbols, op.signed, failure, origin=origin)
        yield from self._checks(symbols)

    def _checks(self, new: tuple[Var, ...] | None = None) -> Iterator[Check]:
        """Checks of the conditions that can be checked as soon as these symbols are known.

        None: when the graph begins.
        """
        if self._conditions is None:
            self._conditions = self._conditions_by_binding()
        at, conditions = self._conditions
        newest = max((at[v] for v in new or ()), default=-1)
        for condition in conditions.get(newest, ()):
            yield self._check(condition, self.graph.reasons.get(condition, ""))

    def _conditions_by_binding(self) -> tuple[dict[Var, int], dict[int, list[Expr]]]:
        """The node that binds each symbol, by number, and the conditions that each decides."""
        at = {v: k for k, node in enumerate(self.graph.nodes) for v in node.op.binds}
        found: dict[int, list[Expr]] = {}
        for condition in self.graph.constraints:
            if not self.common.is_given(condition):  # else it is checked before the call
                newest = max((at.get(v, -1) for v in n.free_vars(condition)), default=-1)
                found.setdefault(newest, []).append(condition)
        return at, found

    def _check(self, condition: Expr, origin: str = "") -> Check:
        shown = self.common.names.shown(condition)
        message = f"the sizes do not fit: {shown} does not hold"
        return Check(condition, self.common.failure(message, origin, [condition]))

    def _copy(self, v: Value, to: Place, places: Mapping[Value, Place]) -> Step:
        """The step that copies a value."""
        copy = Value(v.name, v.type)
        node = Node(Reshape(v.type.shape), (v,), (copy,))
        call = self._call(Group((node,), (v,), (copy,), "injective"), "copy")
        return self._step(call, {**places, copy: to}, arena(n.as_expr(0)))

    def _around_of(self, places: Mapping[Value, Place], scratch: Place) -> Around:
        common = self.common
        return Around(
            places, scratch, lambda v: self._place(v, places), common.place, common.failure
        )

    def _loop(self, steps: LoopSteps, places: Mapping[Value, Place]) -> Iterator[AnyStep]:
        """A loop, and before it what it begins with."""
        yield from steps.sizes_before()
        for v, to, kind in zip(steps.initial, steps.now, steps.kinds, strict=True):
            yield self._allocation(kind, to, steps.work.origin[0])
            yield self._copy(v, to, places)
        asked = steps.work.inputs[0]
        if asked is None:
            asked = Value("true", tensor(BOOL))
            self.known[asked] = np.array(True)
        yield self._copy(asked, steps.around.scratch_at(CONDITION), places)
        yield steps.repeat()


def _is_loop(work: Work) -> bool:
    return isinstance(work, Inner) and isinstance(work.op, Loop)


def _origin(node: Node) -> tuple[str, ...]:
    return (node.origin or node.outputs[0].name,)


def _ports(names: Sequence[str], values: Sequence[Value]) -> tuple[Port, ...]:
    return tuple(Port(name, v.type) for name, v in zip(names, values, strict=True))
