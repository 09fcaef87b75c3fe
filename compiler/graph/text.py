"""Graphs as text: a subset of Python that parses back.

    def mlp(x: f32[n, 784]) -> (y,):
        names(inputs=("x:0",), outputs=("probabilities",))
        assume(1 <= n)
        w: f32[784, 10] = constant("w")
        b: f32[10] = constant([0.5, -1.0, ...])
        y: f32[n, 10] = relu(t, slope=0.1)  # /model/Relu
        p, q = split[f32[n, 5], f32[n, 5]](y, sizes=(5, 5), axis=1)
        def then(a: f32[n, 5]) -> (r,):
            r: f32[n, 5] = relu(a)
        def other(a: f32[n, 5]) -> (a,):
            pass
        z: f32[n, 5] = if_(c, p, then=then, other=other)

A large constant stands by its name; its array is given to ``parse``. The names that the user knows
inputs and outputs by stand where they are not the values' own. What follows # is the node's origin.
Graphs that are attributes of a node are functions that stand before it; what their large constants
are called begins with their names (``then.w``).
"""

from __future__ import annotations

import ast
import keyword
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import EVERY, F32, I64, STRING, DType, from_numpy
from planish.compiler.errors import InternalError, ParseError, PlanishError
from planish.compiler.expr import text as expr_text
from planish.compiler.expr.nodes import Const, Expr, dtype_named
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import operator
from planish.compiler.packings import KINDS, Packing
from planish.compiler.texts import as_strings

from .ir import Array, Content, Graph, Node, TensorType, Value, checked_content, content_of
from .verify import verify

MAX_INLINE: Final = 16  # elements of a constant that are written out


# ----------------------------------------------------------------------------------- printing


def show(graph: Graph) -> str:
    """The graph as text."""
    return "\n".join(_lines(graph, graph.name, "")) + "\n"


def large_constants(graph: Graph) -> dict[str, Array]:
    """The arrays that ``parse`` needs for the text of a graph, by name."""
    out = dict(graph.defaults)
    _collect(graph, "", out)
    return out


def _collect(graph: Graph, prefix: str, out: dict[str, Array]) -> None:
    out.update((prefix + v.name, a) for v, a in graph.constants.items() if a.size > MAX_INLINE)
    for inner, name in _graph_names(graph).items():
        _collect(inner, f"{prefix}{name}.", out)


def _graph_names(graph: Graph) -> dict[Graph, str]:
    """The subgraphs of a graph's nodes with names that are unique among them."""
    out: dict[Graph, str] = {}
    taken: set[str] = set()
    for inner in (g for node in graph.nodes for g in node.op.graphs.values()):
        if inner in out:
            continue
        name, k = inner.name, 1
        while name in taken:
            name, k = f"{inner.name}_{k}", k + 1
        taken.add(name)
        out[inner] = name
    return out


def _lines(graph: Graph, name: str, prefix: str) -> Iterator[str]:
    inputs = ", ".join(f"{v.name}: {show_type(v.type)}" for v in graph.inputs)
    outputs = ", ".join(v.name for v in graph.outputs)
    comma = "," if len(graph.outputs) == 1 else ""
    yield f"def {name}({inputs}) -> ({outputs}{comma}):"
    for line in _body(graph, prefix):
        yield f"    {line}"


def _body(graph: Graph, prefix: str) -> Iterator[str]:
    names = []
    if graph.input_names != tuple(v.name for v in graph.inputs):
        names.append(f"inputs={graph.input_names!r}")
    if graph.output_names != tuple(v.name for v in graph.outputs):
        names.append(f"outputs={graph.output_names!r}")
    if names:
        yield f"names({', '.join(names)})"
    for condition in graph.constraints:
        yield f"assume({condition})"
    for name, array in graph.defaults.items():
        inner = f", {_numbers(array)}" if array.size <= MAX_INLINE else ""
        yield f"default({name!r}{inner})"
    for p in graph.packings:
        yield f"packed({p.name!r}, {p.kind!r}, {p.dtype}, {p.shape!r}, output={p.output})"
    for value, array in graph.constants.items():
        inner = _numbers(array) if array.size <= MAX_INLINE else repr(prefix + value.name)
        yield f"{value.name}: {show_type(value.type)} = constant({inner})"
    graphs = _graph_names(graph)
    shown: set[Graph] = set()
    for node in graph.nodes:
        for g in node.op.graphs.values():
            if g not in shown:
                shown.add(g)
                yield from _lines(g, graphs[g], f"{prefix}{graphs[g]}.")
        yield show_node(node, graphs)
    if (
        not graph.constants
        and not graph.nodes
        and not graph.defaults
        and not names
        and not graph.packings
    ):
        yield "pass"


def show_type(type: TensorType) -> str:
    """A type as text; a scalar's is ``f32[()]``."""
    return f"{type.dtype}[{', '.join(map(str, type.shape)) or '()'}]"


def show_node(node: Node, graphs: Mapping[Graph, str] | None = None) -> str:
    """A node as a line of text; ``graphs`` are names of its subgraphs other than their own."""
    args = ["None" if v is None else v.name for v in node.inputs]
    for f in fields(node.op):
        value = getattr(node.op, f.name)
        if f.default is MISSING or not _same(value, f.default):
            if isinstance(value, Graph):
                args.append(f"{f.name}={(graphs or {}).get(value, value.name)}")
            else:
                args.append(f"{f.name}={show_attribute(value)}")
    call = f"({', '.join(args)})"
    op = f"{node.op.name}_" if keyword.iskeyword(node.op.name) else node.op.name
    if len(node.outputs) == 1:
        (v,) = node.outputs
        line = f"{v.name}: {show_type(v.type)} = {op}{call}"
    else:
        names = ", ".join(v.name for v in node.outputs)
        types = ", ".join(show_type(v.type) for v in node.outputs)
        line = f"{names} = {op}[{types}]{call}"
    origin = "".join(c if c.isprintable() else " " for c in node.origin).strip()
    return f"{line}  # {origin}" if origin else line


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and not isinstance(a, Expr) and repr(a) == repr(b))


def show_attribute(value: Any) -> str:
    """An attribute's value as text."""
    match value:
        case tuple():
            inner = ", ".join(map(show_attribute, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case float():
            return _number(value)
        case Expr() | DType():
            return str(value)
        case None | bool() | int() | str():
            return repr(value)
        case _:
            raise InternalError(f"an attribute is {type(value).__name__}", op="show")


def _number(x: Any) -> str:
    if isinstance(x, complex):
        return f"complex({_number(x.real)}, {_number(x.imag)})"
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return repr(x)


def _numbers(array: Array) -> str:
    dtype = from_numpy(array.dtype)
    items = array.ravel().tolist()
    if dtype.is_float:
        items = [float(x) if dtype is not F32 else float(str(x)) for x in array.ravel()]
    texts = [_number(x) for x in items]
    # A text by itself is the name of a large constant.
    return texts[0] if array.ndim == 0 and dtype is not STRING else f"[{', '.join(texts)}]"


# ----------------------------------------------------------------------------------- parsing


def parse(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph that ``text`` says; ``constants`` are arrays of what is not written out, by name.

    Errors: ParseError naming the line.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a graph: {error}") from error
    match tree.body:
        case [ast.FunctionDef() as function]:
            graph = _Parser(text, constants or {}).graph(function)
        case _:
            raise ParseError("a graph is one function definition")
    try:
        verify(graph)
    except InternalError as error:
        raise ParseError(error.message, op="parse", node=error.node) from error
    return graph


class _Parser:
    def __init__(self, text: str, arrays: Mapping[str, Array]) -> None:
        self.lines = text.splitlines()
        self.arrays = arrays
        self.values: dict[str, Value] = {}
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []
        self.constraints: list[Expr] = []
        self.defaults: dict[str, Array] = {}
        self.packings: list[Packing] = []
        self.names: dict[str, tuple[str, ...]] = {}
        self.graphs: dict[str, Graph] = {}
        self.scope = expr_text.Scope()

    def fail(self, message: str, at: ast.AST) -> ParseError:
        line = getattr(at, "lineno", 0)
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return ParseError(message, node=f"{line}: {text}" if text else None)

    def graph(self, function: ast.FunctionDef) -> Graph:
        inputs = []
        for arg in function.args.args:
            if arg.annotation is None:
                raise self.fail(f"the type of {arg.arg} is missing", arg)
            inputs.append(self.make(arg.arg, self.type_of(arg.annotation), arg))
        self.input_types = {v.name: v.type for v in inputs}
        for statement in function.body:
            try:
                self.statement(statement)
            except ParseError:
                raise
            except PlanishError as error:
                raise self.fail(error.message, statement) from error
            except RecursionError as error:
                raise self.fail("it is nested too deeply", statement) from error
        outputs = tuple(self.value(e) for e in self.items(function.returns, function))
        return Graph(
            function.name,
            tuple(inputs),
            outputs,
            tuple(self.nodes),
            self.constants,
            tuple(self.constraints),
            self.names.get("inputs", tuple(v.name for v in inputs)),
            self.names.get("outputs", tuple(v.name for v in outputs)),
            self.defaults,
            tuple(self.packings),
        )

    def items(self, tree: ast.expr | None, at: ast.AST) -> list[ast.expr]:
        if not isinstance(tree, ast.Tuple):
            raise self.fail("the outputs are a tuple of names", at)
        return tree.elts

    def make(
        self, name: str, type: TensorType, at: ast.AST, content: Content | None = None
    ) -> Value:
        if name in self.values:
            raise self.fail(f"{name} is made twice", at)
        value = self.values[name] = Value(name, type, content)
        return value

    def value(self, tree: ast.expr) -> Value:
        if not isinstance(tree, ast.Name) or tree.id not in self.values:
            raise self.fail(f"there is no value {ast.unparse(tree)}", tree)
        return self.values[tree.id]

    def type_of(self, tree: ast.expr) -> TensorType:
        match tree:
            case ast.Subscript(ast.Name(name), index) if name in EVERY:
                dims = index.elts if isinstance(index, ast.Tuple) else [index]
                shape = tuple(self.expression(d) for d in dims)
                if all(d.dtype is I64 for d in shape):
                    return TensorType(EVERY[name], shape)
        raise self.fail(f"{ast.unparse(tree)} is no type", tree)

    def expression(self, tree: ast.expr) -> Expr:
        return expr_text.from_ast(tree, self.scope)

    # ------------------------------------------------------------------------- statements

    def statement(self, tree: ast.stmt) -> None:
        match tree:
            case ast.Pass():
                pass
            case ast.FunctionDef(name):
                if name in self.graphs:
                    raise self.fail(f"there are two graphs {name}", tree)
                inner = _Parser("", self.arrays)
                inner.lines = self.lines
                self.graphs[name] = inner.graph(tree)
            case ast.Expr(ast.Call(ast.Name("names"), [], keywords)):
                for k in keywords:
                    self.names[str(k.arg)] = tuple(map(str, self.literal(k.value)))
            case ast.Expr(ast.Call(ast.Name("assume"), [condition], [])):
                self.constraints.append(self.expression(condition))
            case ast.Expr(ast.Call(ast.Name("default"), [ast.Constant(str(name)), *rest], [])):
                self.default(name, rest, tree)
            case ast.Expr(ast.Call(ast.Name("packed"), args, [ast.keyword("output", output)])):
                self.packings.append(self.packing(args, output, tree))
            case ast.AnnAssign(ast.Name(name), kind, ast.Call(ast.Name("constant"), [inner], [])):
                type = self.type_of(kind)
                array = self.array(type, inner)
                self.constants[self.make(name, type, tree, content_of(array))] = array
            case ast.AnnAssign(ast.Name(name), kind, ast.Call(ast.Name(op), args, keywords)):
                self.node(tree, [name], [self.type_of(kind)], op, args, keywords)
            case ast.Assign([target], ast.Call(ast.Subscript(ast.Name(op), types), args, keywords)):
                many = target.elts if isinstance(target, ast.Tuple) else [target]
                kinds = types.elts if isinstance(types, ast.Tuple) else [types]
                names = [t.id for t in many if isinstance(t, ast.Name)]
                self.node(tree, names, [self.type_of(k) for k in kinds], op, args, keywords)
            case _:
                raise self.fail("not a statement of a graph", tree)

    def packing(self, args: list[ast.expr], output: ast.expr, tree: ast.stmt) -> Packing:
        match args:
            case [ast.Constant(str(name)), ast.Constant(str(kind)), ast.Name(dtype), shape] if (
                kind in KINDS and dtype in EVERY
            ):
                dims = self.literal(shape)
                if dims is None or isinstance(dims, tuple):
                    return Packing(name, kind, EVERY[dtype], dims, bool(self.literal(output)))
        raise self.fail("this is no packed input or output", tree)

    def default(self, name: str, rest: list[ast.expr], tree: ast.stmt) -> None:
        inputs = list(self.input_types)
        user = self.names.get("inputs", tuple(inputs))
        if name not in user:
            raise self.fail(f"there is no input {name}", tree)
        type = self.input_types[inputs[user.index(name)]]
        if rest:
            array = self.array(type, rest[0])
        elif name in self.arrays:
            array = self.arrays[name]
        else:
            raise self.fail(f"the default of {name} is not given", tree)
        self.defaults[name] = array

    def literal(self, tree: ast.expr) -> Any:
        """A Python value, with inf and nan."""
        match tree:
            case ast.Name("inf" | "nan" as name):
                return float(name)
            case ast.UnaryOp(ast.USub(), ast.Name("inf")):
                return -math.inf
            case ast.Tuple(items) | ast.List(items):
                return tuple(self.literal(i) for i in items)
            case ast.Call(ast.Name("complex"), [real, imaginary], []):
                return complex(self.literal(real), self.literal(imaginary))
        try:
            return ast.literal_eval(tree)
        except (ValueError, TypeError, SyntaxError, MemoryError) as error:
            raise self.fail(f"{ast.unparse(tree)} is no number, text or tuple", tree) from error

    def array(self, type: TensorType, tree: ast.expr) -> Array:
        value = self.literal(tree)
        if isinstance(value, str):
            if value not in self.arrays:
                raise self.fail(f"the constant {value} is not given", tree)
            return self.arrays[value]
        shape = [int(d.value) for d in type.shape if isinstance(d, Const)]
        try:
            if type.dtype is STRING:
                array = as_strings(np.array(value, object)).reshape(shape)
            else:
                array = np.array(value, type.dtype.computed.numpy).reshape(shape)
                array = converted(array, type.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.fail(f"not a constant of {type}: {error}", tree) from error
        array.flags.writeable = False
        return array

    def node(
        self,
        tree: ast.stmt,
        names: list[str],
        types: list[TensorType],
        op_name: str,
        args: list[ast.expr],
        keywords: list[ast.keyword],
    ) -> None:
        try:
            bare = op_name.removesuffix("_")
            cls = operator(bare if keyword.iskeyword(bare) else op_name)
        except ParseError as error:
            raise self.fail(error.message, tree) from error
        if len(names) != len(types):
            raise self.fail(f"{len(names)} values of {len(types)} types", tree)
        inputs = tuple(
            None if isinstance(a, ast.Constant) and a.value is None else self.value(a) for a in args
        )
        op = self.operator(cls, keywords, tree)
        known_inputs = tuple(None if v is None else v.content for v in inputs)
        contents = op.known(
            tuple(None if v is None else v.type for v in inputs), known_inputs, tuple(types)
        )
        outputs = tuple(
            self.make(n, t, tree, checked_content(t, c))
            for n, t, c in zip(names, types, contents, strict=False)
        )
        self.nodes.append(Node(op, inputs, outputs, self.origin(tree)))

    def origin(self, tree: ast.stmt) -> str:
        line = self.lines[(tree.end_lineno or 1) - 1].encode()
        rest = line[tree.end_col_offset or 0 :].decode("utf-8", "replace").strip()
        return rest[1:].strip() if rest.startswith("#") else ""

    def operator(self, cls: type[Op], keywords: list[ast.keyword], tree: ast.stmt) -> Op:
        known_fields = {f.name: f for f in fields(cls)}
        values = {}
        for k in keywords:
            if k.arg not in known_fields:
                raise self.fail(f"{cls.name} has no attribute {k.arg}", tree)
            values[k.arg] = self.attribute(k.value, kinds_of(cls.name)[str(k.arg)])
        try:
            return cls(**values)
        except TypeError as error:
            raise self.fail(f"{cls.name}: {error}", tree) from error

    def attribute(self, tree: ast.expr, kinds: frozenset[type]) -> Any:
        """An attribute's value; the field's annotation tells expressions from numbers."""
        match tree:
            case ast.Tuple(items):
                return tuple(self.attribute(i, kinds) for i in items)
            case ast.Constant(None | str() as value):
                return value
            case ast.Name(name) if Graph in kinds:
                if name not in self.graphs:
                    raise self.fail(f"there is no graph {name}", tree)
                return self.graphs[name]
            case ast.Name(name) if DType in kinds:
                return dtype_named(name)
        if Expr not in kinds:
            return self.literal(tree)
        found = self.expression(tree) if not is_float(tree) else None
        if found is None or (isinstance(found, Const) and found.type is I64 and int in kinds):
            return self.literal(tree)
        return found


def is_float(tree: ast.expr) -> bool:
    """Whether this is a float written out."""
    match tree:
        case ast.UnaryOp(ast.USub(), inner):
            return is_float(inner)
        case ast.Constant(value):
            return isinstance(value, float)
        case _:
            return isinstance(tree, ast.Name) and tree.id in ("inf", "nan")


@cache
def kinds_of(name: str) -> dict[str, frozenset[type]]:
    """The classes that each attribute of an operator is made of."""
    hints = typing.get_type_hints(operator(name))
    return {key: frozenset(_leaves(hint)) for key, hint in hints.items()}


def _leaves(hint: Any) -> Iterator[type]:
    inner = typing.get_args(hint)
    if inner:
        for h in inner:
            yield from _leaves(h)
    elif isinstance(hint, type):
        yield hint


__all__ = ["large_constants", "parse", "show", "show_attribute", "show_node", "show_type"]
