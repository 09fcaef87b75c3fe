"""The graph: an immutable program of operators on typed values.

A value is made once: by the graph's inputs, as a constant, or by a node. Nodes stand in an order in
which every value is made before it is used. A type is a dtype and a tuple of dimensions; a
dimension is an ``i64`` expression over *symbols* (variables), each at least 0 and bound by the
shapes of the inputs, or by a node that reads them from data. Small integer and bool tensors may
carry their known ``content``, element by element, as ``i64`` or bool expressions over the same
symbols.

``constraints`` are conditions on symbols under which the graph is right; a call checks them.
``reasons`` names the node that relies on a condition, where that is known.
Identity of values and nodes is by object; passes build new graphs and share what did not change.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import BOOL, I64, STRING, DType, from_numpy
from planish.compiler.errors import InternalError, PlanishError, TypeCheckError
from planish.compiler.expr.nodes import (
    Const,
    Expr,
    Le,
    Like,
    Var,
    as_expr,
    const,
    eq,
    free_vars,
    le,
    walk,
)
from planish.compiler.expr.sizes import normal, same
from planish.compiler.packings import Packing
from planish.compiler.texts import as_strings, holds_strings

if TYPE_CHECKING:
    from planish.compiler.ops.base import Op

Array: TypeAlias = npt.NDArray[Any]
Content: TypeAlias = tuple[Expr, ...]

MAX_CONTENT: Final = 256  # elements: known contents are shapes, axes and the like


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and dimensions."""

    dtype: DType
    shape: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int | None:
        """The number of elements, if it is known."""
        out = 1
        for d in self.shape:
            if not isinstance(d, Const):
                return None
            out *= int(d.value)
        return out

    def with_shape(self, shape: Iterable[Like]) -> TensorType:
        return TensorType(self.dtype, tuple(as_expr(d) for d in shape))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


def tensor(dtype: DType, *shape: Like) -> TensorType:
    """The type of tensors of these dimensions."""
    return TensorType(dtype, tuple(as_expr(d) for d in shape))


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """What a node gives, an input or a constant; ``name`` is unique in the graph."""

    name: str
    type: TensorType
    content: Content | None = None

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """An operator applied to values; an input left out is None. ``origin``: the model's name."""

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origin: str = ""

    def __repr__(self) -> str:
        from .text import show_node

        return show_node(self)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are there."""
        return tuple(v for v in self.inputs if v is not None)


@dataclass(frozen=True, eq=False)
class Graph:
    """A program; see the module's text."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict)
    constraints: tuple[Expr, ...] = ()
    # The names under which the user knows inputs and outputs; a value may be several outputs.
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    # Inputs that have a default: the user may leave them out.
    defaults: Mapping[str, Array] = field(default_factory=dict)
    # Inputs and outputs that are several here and one to the user.
    packings: tuple[Packing, ...] = ()
    reasons: Mapping[Expr, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        from .text import show

        return show(self)

    def with_(self, **changes: Any) -> Graph:
        return replace(self, **changes)

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbolic dimensions of the inputs, in order of first use."""
        return free_vars(*(d for v in self.inputs for d in v.type.shape))

    def producers(self) -> dict[Value, Node]:
        """The node that makes each value."""
        return {v: n for n in self.nodes for v in n.outputs}

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order, once for each operand."""
        out: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.operands:
                out.setdefault(v, []).append(n)
        return out

    def values(self) -> Iterator[Value]:
        """Every value: inputs, constants, then what nodes make."""
        yield from self.inputs
        yield from self.constants
        for n in self.nodes:
            yield from n.outputs


class _Sink(NamedTuple):
    """Where conditions go, and why: the node that is being made."""

    conditions: list[Expr]
    reasons: dict[Expr, str]
    origin: str


_assumed: ContextVar[_Sink | None] = ContextVar("assumed", default=None)


def assume(condition: Expr, origin: str = "") -> None:
    """Record a condition on symbols that a shape rule relies on; a call of the module checks it.

    ``origin`` is the node that relies on it, if that is not the one that is being made.

    Errors: TypeCheckError if it certainly does not hold.
    """
    condition = normal(condition)
    if isinstance(condition, Const):
        if not condition.value:
            raise TypeCheckError("dimensions do not fit together")
        return
    if (sink := _assumed.get()) is not None and condition not in sink.conditions:
        found = sink.conditions
        if origin or sink.origin:
            sink.reasons.setdefault(condition, origin or sink.origin)
        match condition:
            case Le(Const(new), size):  # of several lower bounds of a size the greatest stays
                for k, other in enumerate(found):
                    if isinstance(other, Le) and other.rhs is size and isinstance(other.lhs, Const):
                        found[k] = condition if new > other.lhs.value else other
                        return
        found.append(condition)


@contextmanager
def collecting_assumptions(
    sink: list[Expr], reasons: dict[Expr, str] | None = None, origin: str = ""
) -> Iterator[None]:
    """Have ``assume`` append to ``sink``, and say in ``reasons`` that ``origin`` relies on it."""
    token = _assumed.set(_Sink(sink, {} if reasons is None else reasons, origin))
    try:
        yield
    finally:
        _assumed.reset(token)


def identifier(name: str) -> str:
    """A name as an identifier of Python, so that it can stand in the text of a graph."""
    out = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "v"
    return f"{out}_" if keyword.iskeyword(out) else f"_{out}" if out[0].isdigit() else out


AXES: Final = re.compile(r"[ir]\d+")  # the names of tensor expressions' axes


def symbol_name(name: str) -> str:
    """An identifier for a symbolic dimension: never one that an axis bears."""
    out = identifier(name)
    return f"dim_{out}" if AXES.fullmatch(out) else out


class GraphBuilder:
    """Makes a graph node by node, with names made unique and types inferred."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.constraints: list[Expr] = []
        self.reasons: dict[Expr, str] = {}
        self.defaults: dict[str, Array] = {}
        self.packings: list[Packing] = []
        self.replaced: dict[Value, Value] = {}
        self.sized: dict[
            tuple[Value, bool], Value
        ] = {}  # whose elements are symbols; signed or not
        self._names: set[str] = set()
        self._next: dict[str, int] = {}

    def now(self, value: Value) -> Value:
        """What stands for a value of the graph that is being rewritten."""
        return self.replaced.get(value, value)

    def fresh(self, name: str) -> str:
        """``name`` as an identifier, with a number behind it if that is taken."""
        name = identifier(name)
        if name not in self._names:
            self._names.add(name)
            return name
        k = self._next.get(name, 1)
        while (out := f"{name}_{k}") in self._names:
            k += 1
        self._next[name] = k + 1
        self._names.add(out)
        return out

    def input(self, name: str, type: TensorType) -> Value:
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def assuming(self, origin: str) -> AbstractContextManager[None]:
        """Have ``assume`` record conditions that a node relies on."""
        return collecting_assumptions(self.constraints, self.reasons, origin)

    def constant(self, array: Any, name: str = "c") -> Value:
        """A constant; contents of small integer ones are known."""
        array = np.asarray(array)
        if holds_strings(array):
            array = as_strings(array)
        if array.flags.writeable:
            array = array.copy() if array.base is not None else array
            array.flags.writeable = False
        dtype = from_numpy(array.dtype)
        type = TensorType(dtype, tuple(Const(int(d), I64) for d in array.shape))
        content = content_of(array)
        value = Value(self.fresh(name), type, content)
        self.constants[value] = array
        return value

    def apply(
        self, op: Op, *inputs: Value | None, names: Iterable[str] = (), origin: str = ""
    ) -> tuple[Value, ...]:
        """The outputs of ``op`` on these inputs.

        Errors: what the shape rule raises, with the node named.
        """
        types = [None if v is None else v.type for v in inputs]
        try:
            with self.assuming(origin):
                check_strings(op, types)
                found = op.infer(*types)
                out_types = found if isinstance(found, tuple) else (found,)
                out_types = tuple(_possible(t) for t in out_types)
                known = tuple(None if v is None else v.content for v in inputs)
                contents = op.known(tuple(types), known, out_types)
        except PlanishError as error:
            where = f"{op.name}({', '.join('none' if v is None else repr(v) for v in inputs)})"
            raise error.within(f"{where}  # {origin}" if origin else where) from error
        wanted = list(names) or [op.name] * len(out_types)
        wanted += [op.name] * (len(out_types) - len(wanted))
        outputs = tuple(
            Value(self.fresh(n), t, checked_content(t, c))
            for n, t, c in zip(wanted, out_types, contents, strict=False)
        )
        self.nodes.append(Node(op, tuple(inputs), outputs, origin))
        return outputs

    def one(self, op: Op, *inputs: Value | None, name: str = "", origin: str = "") -> Value:
        """The only output of ``op``."""
        (out,) = self.apply(op, *inputs, names=(name,) if name else (), origin=origin)
        return out

    def finish(
        self,
        outputs: Iterable[Value],
        output_names: Iterable[str] = (),
        input_names: Iterable[str] = (),
    ) -> Graph:
        outs = tuple(outputs)
        return Graph(
            self.name,
            tuple(self.inputs),
            outs,
            tuple(self.nodes),
            dict(self.constants),
            tuple(self.constraints),
            tuple(input_names) or tuple(v.name for v in self.inputs),
            tuple(output_names) or tuple(v.name for v in outs),
            dict(self.defaults),
            tuple(self.packings),
            dict(self.reasons),
        )


def check_strings(op: Op, types: Iterable[TensorType | None]) -> None:
    """Check that an operator on inputs of these types is defined for strings, if there are any.

    Errors: TypeCheckError.
    """
    if not op.takes_strings and any(t is not None and t.dtype is STRING for t in types):
        raise op.fail("is not defined for strings")


def _possible(type: TensorType) -> TensorType:
    """A type with its dimensions in normal form, none of which may be negative.

    Errors: TypeCheckError if one certainly is; where symbols decide, a condition is assumed.
    """
    out = type.with_shape(map(normal, type.shape))
    for d in out.shape:
        if isinstance(d, Const) and d.value < 0:
            raise TypeCheckError(f"the result would be {out}: a dimension is negative")
        assume(le(0, d))
    return out


def content_of(array: Array) -> Content | None:
    """The content of a constant: of small integer and bool ones whose numbers are all ``i64``."""
    dtype = from_numpy(array.dtype)
    if not dtype.is_discrete or array.size > MAX_CONTENT:
        return None
    if dtype is BOOL:
        return tuple(Const(bool(x), BOOL) for x in array.ravel())
    numbers = [int(x) for x in array.ravel()]
    return tuple(const(k, I64) for k in numbers) if all(k <= I64.max for k in numbers) else None


def checked_content(type: TensorType, content: Content | None) -> Content | None:
    """Known content in normal form; None if it is large or a number does not fit the dtype."""
    if content is None or len(content) > MAX_CONTENT or not type.dtype.is_discrete:
        return None
    found = tuple(map(normal, content))
    if type.dtype is not BOOL:
        for e in found:
            if isinstance(e, Const) and not type.dtype.min <= e.value <= type.dtype.max:
                return None
    return found


Replacement: TypeAlias = "Value | tuple[Value, ...] | None"


def rewrite(
    graph: Graph, visit: Callable[[GraphBuilder, Node, tuple[Value | None, ...]], Replacement]
) -> Graph:
    """Rebuild a graph node by node in order.

    ``visit(builder, node, inputs)`` sees each node with its new inputs and gives the values that
    stand for its outputs (made with the builder, or existing ones), or None to keep the node: then
    it must have made nothing. What it makes may take the names of the outputs. A node is kept too
    if the dimensions of the values are equal to those of the outputs only by what the graph
    assumes. The graph itself is given back if every node was kept.
    """
    b = GraphBuilder(graph.name)
    b._names.update(v.name for v in graph.values())
    b.inputs, b.constants = list(graph.inputs), dict(graph.constants)
    b.constraints, b.defaults = list(graph.constraints), dict(graph.defaults)
    b.reasons = dict(graph.reasons)
    new = b.replaced
    changed = False
    for node in graph.nodes:
        inputs = tuple(None if v is None else new.get(v, v) for v in node.inputs)
        b._names.difference_update(v.name for v in node.outputs)
        out = visit(b, node, inputs)
        if out is None or not _stands_for(out, node):
            b._names.update(v.name for v in node.outputs)
            if all(x is y for x, y in zip(inputs, node.inputs, strict=True)):
                b.nodes.append(node)
            else:
                b.nodes.append(replace(node, inputs=inputs))
            continue
        changed = True
        outs = out if isinstance(out, tuple) else (out,)
        new.update(zip(node.outputs, outs, strict=True))
    if not changed:
        return graph
    return graph.with_(
        nodes=tuple(b.nodes),
        constants=b.constants,
        constraints=tuple(b.constraints),
        reasons=b.reasons,
        outputs=tuple(new.get(v, v) for v in graph.outputs),
    )


def _stands_for(found: Value | tuple[Value, ...], node: Node) -> bool:
    """Whether values have the types of a node's outputs."""
    values = found if isinstance(found, tuple) else (found,)
    if len(values) != len(node.outputs):
        raise InternalError(f"{len(values)} values stand for {len(node.outputs)}", node=repr(node))
    for v, out in zip(values, node.outputs, strict=True):
        if v.type.dtype is not out.type.dtype or v.type.rank != out.type.rank:
            raise InternalError(f"{v!r} stands for {out!r}", node=repr(node))
        if not all(map(same, v.type.shape, out.type.shape)):
            return False
    return True


def unify(a: Expr, b: Expr, what: str) -> Expr:
    """Two dimensions that must be equal, as one: the simpler of them.

    Errors: TypeCheckError if they certainly differ.
    """
    if a is b or same(a, b):
        return a
    if isinstance(a, Const) and isinstance(b, Const):
        raise TypeCheckError(f"{what}: {a} and {b}")
    assume(eq(a, b))
    return min(a, b, key=lambda e: (not isinstance(e, Const), sum(1 for _ in walk(e))))
