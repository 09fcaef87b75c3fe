"""Whether a graph is one: run after every pass in tests, and on what an importer made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from planish.compiler.dtypes import BOOL, I64, from_numpy
from planish.compiler.errors import InternalError, PlanishError
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars
from planish.compiler.expr.sizes import same

from .ir import Graph, Node, TensorType, Value, check_strings, collecting_assumptions
from .subgraphs import bound_in


def verify(graph: Graph) -> None:
    """Check everything that is always true of a graph.

    Every value is made once and before it is used, names are unique, types are what the operators'
    shape rules give, constants have their types, and dimensions, known contents, attributes and
    constraints are over the symbols of the inputs, or over those that a node has bound before. So
    it is inside of subgraphs, which may use the symbols of the graphs around them.

    Errors: InternalError naming the node or value.
    """
    _Verifier(graph).run()


class _Verifier:
    def __init__(self, graph: Graph, symbols: frozenset[Var] = frozenset()) -> None:
        self.graph = graph
        self.symbols = symbols | frozenset(graph.symbols)
        self.names: set[str] = set()
        self.made: set[Value] = set()

    def fail(self, message: str, node: object = None) -> InternalError:
        return InternalError(message, op="verify", node=None if node is None else repr(node))

    def run(self) -> None:
        g = self.graph
        for value in g.inputs:
            self.make(value, value)
        for value, array in g.constants.items():
            self.make(value, value)
            shape = tuple(d.value if isinstance(d, Const) else None for d in value.type.shape)
            if from_numpy(array.dtype) is not value.type.dtype or array.shape != shape:
                raise self.fail(f"the constant is {array.dtype}{list(array.shape)}", value)
        for node in g.nodes:
            self.node(node)
        for value in g.outputs:
            if value not in self.made:
                raise self.fail("the output is not made", value)
        for condition in g.constraints:
            if condition.dtype is not BOOL:
                raise self.fail(f"the constraint {condition} is no condition")
            self.over_symbols((condition,), condition)
        self.user_names()

    def user_names(self) -> None:
        g = self.graph
        if len(g.input_names) != len(g.inputs) or len(g.output_names) != len(g.outputs):
            raise self.fail("inputs or outputs and the user's names of them differ in number")
        if len(set(g.input_names)) < len(g.input_names):
            raise self.fail(f"two inputs have the same name: {list(g.input_names)}")
        by_name = dict(zip(g.input_names, g.inputs, strict=True))
        for name, array in g.defaults.items():
            value = by_name.get(name)
            if value is None:
                raise self.fail(f"there is a default for {name}, which is no input")
            if array.ndim != value.type.rank or from_numpy(array.dtype) is not value.type.dtype:
                raise self.fail(f"the default is {array.dtype}{list(array.shape)}", value)

    def make(self, value: Value, where: object) -> None:
        if value in self.made:
            raise self.fail(f"{value.name} is made twice", where)
        if value.name in self.names:
            raise self.fail(f"two values are called {value.name}", where)
        self.made.add(value)
        self.names.add(value.name)
        self.type(value.type, where)
        content = value.content
        if content is not None:
            if not value.type.dtype.is_discrete or value.type.size != len(content):
                raise self.fail(f"{len(content)} elements are known of {value!r}", where)
            kind = BOOL if value.type.dtype is BOOL else I64
            if any(e.dtype is not kind for e in content):
                raise self.fail(f"the known content of {value!r} is not all {kind}", where)
            self.over_symbols(content, where)

    def type(self, type: TensorType, where: object) -> None:
        for d in type.shape:
            if d.dtype is not I64 or (isinstance(d, Const) and d.value < 0):
                raise self.fail(f"{d} is no dimension", where)
        self.over_symbols(type.shape, where)

    def over_symbols(self, exprs: Iterable[Expr], where: object) -> None:
        for e in exprs:
            if isinstance(e, (Const, Var)) and (isinstance(e, Const) or e in self.symbols):
                continue
            for v in free_vars(e):
                if v not in self.symbols:
                    raise self.fail(f"{v} in {e} is no symbol of the inputs", where)

    def node(self, node: Node) -> None:
        for value in node.operands:
            if value not in self.made:
                raise self.fail(f"{value.name} is used before it is made", node)
        for symbol in node.op.binds:
            if symbol in self.symbols:
                raise self.fail(f"{symbol} is bound twice", node)
        self.symbols |= frozenset(node.op.binds)
        for f in fields(node.op):
            self.over_symbols(_expressions(getattr(node.op, f.name)), node)
        for graph in node.op.graphs.values():
            around = self.symbols | (node.op.inside - frozenset(bound_in(graph)))
            _Verifier(graph, around).run()
        types = [None if v is None else v.type for v in node.inputs]
        try:
            with collecting_assumptions([]):
                check_strings(node.op, types)
                found = node.op.infer(*types)
        except PlanishError as error:
            raise self.fail(f"its shape rule says: {error.message}", node) from error
        wanted = found if isinstance(found, tuple) else (found,)
        if len(wanted) != len(node.outputs):
            raise self.fail(f"it gives {len(wanted)} values", node)
        for value, type in zip(node.outputs, wanted, strict=True):
            fits = value.type.dtype is type.dtype and value.type.rank == type.rank
            if not fits or not all(map(same, value.type.shape, type.shape)):
                raise self.fail(f"{value.name} is {value.type}, its shape rule gives {type}", node)
            self.make(value, node)


def _expressions(value: Any) -> Iterable[Expr]:
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
