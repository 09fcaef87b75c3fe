"""ONNX models as graphs.

Nothing is skipped: a node whose operator, version, attribute or input is not understood is an error
that names it. Operators without a handler expand through their function's body, from the model or
from ONNX.
"""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnx.defs

from planish.compiler.dtypes import I64
from planish.compiler.errors import ImportModelError, PlanishError, TypeCheckError
from planish.compiler.expr.nodes import Const, Expr, Var, const
from planish.compiler.graph.ir import (
    Array,
    Graph,
    GraphBuilder,
    TensorType,
    Value,
    identifier,
    symbol_name,
)
from planish.compiler.graph.verify import verify
from planish.compiler.packings import Packing

from . import functions
from .boundary import packed_input, packed_output, packing_of
from .branches import Parted, decide, part, settled
from .choices import Choices
from .control import CONTROL
from .items import ITEMS, Item
from .protos import DecodeError, check_node, load, sorted_nodes
from .reader import HANDLERS, UNDECLARED, NodeReader, Undecided
from .scopes import MAX_DEPTH, Frame, Scope, label_of, own_label
from .tensors import MAX_BYTES, checked_shape, decode, dense, dtype_of, text

if TYPE_CHECKING:
    from .control import Rest

# An attribute of first versions: which inputs' memory a runtime may overwrite. It has no meaning.
_OVERWRITTEN: Final = "consumed_inputs"


def import_model(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto, dims: Mapping[str, int] | None = None
) -> Graph:
    """The graph of a model: a path, the bytes of a file, or a loaded model.

    ``dims`` gives symbolic dimensions of the inputs a number: by the model's names, or as they are
    printed, as identifiers.

    Errors: ParseError if it is no ONNX file; ImportModelError naming what is not understood in it;
    TypeCheckError for ``dims`` that it does not have.
    """
    load_handlers()
    model = load(source)
    folder = None
    if isinstance(source, (str, os.PathLike)):
        folder = Path(source).parent
    try:
        graph = Importer(model, folder, dict(dims or {})).run()
    except (RecursionError, DecodeError) as error:  # the latter of a part that is copied
        raise ImportModelError("the model is nested too deeply") from error
    except MemoryError as error:
        raise ImportModelError("the model does not fit into memory") from error
    except Parted as error:
        raise settled(error) from error
    verify(graph)
    return graph


@cache
def load_handlers() -> None:
    """Import the modules that register handlers."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


class Importer:
    """One import."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, dims: dict[str, int]) -> None:
        self.model, self.folder, self.dims = model, folder, dims
        self.frame = Frame(GraphBuilder(identifier(_text_or(model.graph.name, "graph"))))
        self.symbols: dict[str, Expr] = {}  # by the model's names
        self.printed: dict[str, str] = {}  # model's name of a symbol: the one that is printed
        self.taken_symbols: set[str] = set()
        self.used_dims: set[str] = set()
        self.functions = functions.by_key(model.functions)
        self.choices = Choices()

    @property
    def builder(self) -> GraphBuilder:
        return self.frame.builder

    # ------------------------------------------------------------------------- the graph

    def run(self) -> Graph:
        graph = self.model.graph
        opsets = _opsets(self.model.opset_import)
        scope = Scope({}, opsets, self.frame)
        self.collect_tensors(graph, scope)
        self.make_inputs(graph, scope)
        wanted = [text(out.name, "an output's name") for out in graph.output]
        for k, name in enumerate(wanted):
            if name in wanted[:k]:
                raise ImportModelError(
                    f"two outputs are called {name!r}",
                    hint="give one another name, by an Identity",
                )
        results = self.run_nodes(graph.node, scope, wanted, "an output of the graph")
        outputs, names = [], []
        for out, name, value in zip(graph.output, wanted, results, strict=True):
            if value is None:
                raise ImportModelError(f"output {name!r} is not given")
            if isinstance(value, Value) and out.type.WhichOneof("value") != "optional_type":
                self.check_output(out, value)
                outputs.append(value)
                names.append(name)
                continue
            packing, parts = packed_output(self, out, value)
            self.builder.packings.append(packing)
            outputs += parts
            names += packing.parts
        if not outputs:
            raise ImportModelError("the graph has no outputs")
        return self.builder.finish(outputs, names, self.input_names)

    def check_output(self, info: onnx.ValueInfoProto, value: Value) -> None:
        """Check the declared dtype; shapes are not believed, as exporters get them wrong."""
        kind = info.type.tensor_type.elem_type
        if kind and dtype_of(kind, f"output {info.name!r}") is not value.type.dtype:
            declared = dtype_of(kind, "")
            raise ImportModelError(
                f"output {info.name!r} is declared as {declared} but is {value.type.dtype}"
            )

    def collect_tensors(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            name = text(tensor.name, "an initialiser's name")
            if name in scope.tensors:
                raise ImportModelError(f"two initialisers are called {name!r}")
            scope.tensors[name] = tensor
        for sparse in graph.sparse_initializer:
            name = text(sparse.values.name, "an initialiser's name")
            if name in scope.tensors:
                raise ImportModelError(f"two initialisers are called {name!r}")
            scope.tensors[name] = sparse
        if "" in scope.tensors:
            raise ImportModelError("an initialiser has no name")
        for info in (*graph.value_info, *graph.output):
            tensor_type = info.type.tensor_type
            if info.type.WhichOneof("value") == "tensor_type" and tensor_type.HasField("shape"):
                scope.ranks[text(info.name, "a value's name")] = len(tensor_type.shape.dim)

    def make_inputs(self, graph: onnx.GraphProto, scope: Scope) -> None:
        self.check_extents()
        self.input_names: list[str] = []
        self.named = {d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim}
        seen: set[str] = set()
        kinds = []
        for info in graph.input:
            name = text(info.name, "an input's name")
            if not name or name in seen:
                raise ImportModelError(
                    f"two inputs are called {name!r}" if name else "an input has no name"
                )
            seen.add(name)
            if name in scope.tensors and self.model.ir_version < 4:
                continue  # then every initialiser was an input too, and none could be given
            kinds.append((name, self.input_type(info)))
        self.check_dims()
        for name, type in kinds:
            if isinstance(type, Packing):
                scope.names[name] = packed_input(self, type)
                continue
            value = self.builder.input(name, type)
            scope.names[name] = value
            self.input_names.append(name)
            if (tensor := scope.tensors.pop(name, None)) is not None:
                array = self.array(tensor, f"initialiser {name!r}")
                self.check_default(name, type, array)
                self.builder.defaults[name] = array

    def check_default(self, name: str, type: TensorType, array: Array) -> None:
        fits = array.dtype == type.dtype.numpy and array.ndim == type.rank
        for d, extent in zip(type.shape, array.shape, strict=False):
            fits = fits and (not isinstance(d, Const) or d.value == extent)
        if not fits:
            raise ImportModelError(
                f"input {name!r} is {type}, its initialiser {array.dtype}{list(array.shape)}"
            )

    def input_type(self, info: onnx.ValueInfoProto) -> TensorType | Packing:
        where = f"input {info.name!r}"
        if info.type.WhichOneof("value") in ("sequence_type", "optional_type", "map_type"):
            return packing_of(info, where)
        if info.type.WhichOneof("value") != "tensor_type":
            kind = (info.type.WhichOneof("value") or "without a type").replace("_type", "")
            raise ImportModelError(f"{where} is no tensor ({kind}), which is not supported")
        tensor = info.type.tensor_type
        dtype = dtype_of(tensor.elem_type, where)
        if not tensor.HasField("shape"):
            raise ImportModelError(
                f"the rank of {where} is not given",
                hint="declare its dimensions in the model; those that are open may have names",
            )
        shape = [self.dimension(d, info.name, k) for k, d in enumerate(tensor.shape.dim)]
        checked_shape([int(d.value) for d in shape if isinstance(d, Const)], dtype.bytes, where)
        if len(shape) > 32:
            raise ImportModelError(f"{where} has {len(shape)} dimensions")
        return TensorType(dtype, tuple(shape))

    def dimension(self, dim: onnx.TensorShapeProto.Dimension, name: str, k: int) -> Expr:
        if dim.HasField("dim_value") and dim.dim_value != -1:  # -1: some exporters' "unknown"
            if dim.dim_value < 0:
                raise ImportModelError(f"dimension {k} of input {name!r} is {dim.dim_value}")
            return const(dim.dim_value, I64)
        symbol = text(dim.dim_param, f"a dimension of input {name!r}")
        if symbol in ("", "?"):  # nothing says that two of these are equal
            symbol = f"{name}_{k}"
            while symbol in self.symbols:
                symbol += "_"
        if symbol not in self.symbols:
            printed = self.printed[symbol] = self.fresh_symbol(symbol)
            size = self.given_size(symbol, printed)
            self.symbols[symbol] = Var(printed) if size is None else const(size, I64)
        return self.symbols[symbol]

    def given_size(self, symbol: str, printed: str) -> int | None:
        """What ``dims`` says of a symbol, by its name in the model or as it is printed."""
        names = [symbol] if printed in self.named else [symbol, printed]
        sizes = {name: int(self.dims[name]) for name in names if name in self.dims}
        self.used_dims |= sizes.keys()
        if len(set(sizes.values())) > 1:
            said = " and ".join(f"{name!r} {size}" for name, size in sizes.items())
            raise TypeCheckError(f"one dimension is given two sizes: {said}")
        return next(iter(sizes.values()), None)

    def fresh_symbol(self, name: str) -> str:
        base = out = symbol_name(name)
        k = 1
        while out in self.taken_symbols:
            out, k = f"{base}_{k}", k + 1
        self.taken_symbols.add(out)
        return out

    def check_dims(self) -> None:
        for name in self.dims:
            if name not in self.used_dims:
                known = ", ".join(self.printed.values()) or "none"
                raise TypeCheckError(
                    f"the inputs have no dimension {name!r}", hint=f"symbolic dimensions: {known}"
                )

    def check_extents(self) -> None:
        for name, extent in self.dims.items():
            whole = isinstance(extent, Integral) and not isinstance(extent, bool)
            if not whole or not 0 <= extent <= MAX_BYTES:
                raise TypeCheckError(f"dimension {name!r} cannot be {extent!r}")

    # ------------------------------------------------------------------------- names

    def array(self, tensor: onnx.TensorProto | onnx.SparseTensorProto, where: str) -> Array:
        if isinstance(tensor, onnx.SparseTensorProto):
            return dense(tensor, where, self.folder)
        return decode(tensor, where, self.folder)

    def lookup(self, name: str, scope: Scope, what: str) -> Item | None:
        """What a name means; initialisers become constants when they are first asked for."""
        at: Scope | None = scope
        while at is not None:
            if name not in at.names and name in at.tensors:
                array = self.array(at.tensors[name], f"initialiser {name!r}")
                at.names[name] = at.frame.builder.constant(array, name)
            if name in at.names:
                item = at.names[name]
                return None if item is None else self.frame.take(item, at.frame)
            at = at.parent
        raise ImportModelError(f"{what} is {name!r}, which nothing makes")

    def bind(self, name: str, value: Item, scope: Scope) -> None:
        scope.names[name] = value

    # ------------------------------------------------------------------------- nodes

    def run_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        scope: Scope,
        wanted: Sequence[str],
        what: str,
        after: Rest = list,
    ) -> list[Item | None]:
        """What ``after`` makes of the ``wanted`` names, which are ``what``, when all nodes are."""
        scope.nodes = nodes
        made: set[str] = set()
        for node in nodes:
            check_node(node)
            for name in node.output:
                if name and (name in made or scope.holds(name)):
                    raise ImportModelError(
                        f"{name!r} is made twice", op=node.op_type, node=label_of(node, scope)
                    )
                made.add(name)
        order = sorted_nodes(nodes)
        for k, node in enumerate(order):
            try:
                self.run_node(node, scope)
            except Parted as error:
                if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
                    raise _in_node(settled(error), node, scope) from error
                return self.part(node, order[k + 1 :], scope, wanted, what, after)
            except PlanishError as error:
                raise _in_node(error, node, scope) from error
        return after([self.lookup(name, scope, what) for name in wanted])

    def part(
        self,
        node: onnx.NodeProto,
        following: Sequence[onnx.NodeProto],
        scope: Scope,
        wanted: Sequence[str],
        what: str,
        after: Rest,
    ) -> list[Item | None]:
        """As ``run_nodes``, with the nodes that follow an If in each of its branches."""

        def rest(results: list[Item | None]) -> list[Item | None]:
            inner = Scope(
                dict(zip(node.output, results, strict=False)), scope.opsets, self.frame, scope,
                depth=scope.depth + 1, label=scope.label, ranks=scope.ranks,
            )  # fmt: skip
            if inner.depth >= MAX_DEPTH:
                raise ImportModelError("the model is nested too deeply")
            return self.run_nodes(following, inner, wanted, what, after)

        try:
            return part(self, node, self.inputs_of(node, scope), scope, rest)
        except PlanishError as error:
            raise _in_node(error, node, scope) from error

    def inputs_of(self, node: onnx.NodeProto, scope: Scope) -> list[Item | None]:
        return [
            self.lookup(name, scope, f"input {k}") if name else None
            for k, name in enumerate(node.input)
        ]

    def run_node(self, node: onnx.NodeProto, scope: Scope) -> None:
        inputs = self.inputs_of(node, scope)
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type, node.overload)
        if key in self.functions:
            function = self.functions[key]
            results = self.call(function, node, inputs, scope)
        elif (name := f"{domain}.{node.op_type}" if domain else node.op_type) in CONTROL:
            results = CONTROL[name](self, node, inputs, scope)
        else:
            results = self.apply(node, domain, inputs, scope)
        results += [None] * (len(node.output) - len(results))
        for k, (name, value) in enumerate(zip(node.output, results, strict=False)):
            if not name:
                continue
            if value is None:
                raise ImportModelError(f"output {k} ({name!r}) is not supported")
            if isinstance(value, Value):
                self.check_size(value)
            self.bind(name, value, scope)

    def check_size(self, value: Value) -> None:
        # Of no elements too: numpy and the passes multiply parts of a shape.
        known = math.prod(int(d.value) or 1 for d in value.type.shape if isinstance(d, Const))
        if known * value.type.dtype.bytes > MAX_BYTES:
            raise ImportModelError(f"{value!r} is larger than any memory")

    def apply(
        self, node: onnx.NodeProto, domain: str, inputs: list[Item | None], scope: Scope
    ) -> list[Item | None]:
        """An operator of ONNX: by its handler, or by the body that ONNX gives it."""
        opset = scope.opsets.get(domain, UNDECLARED.get(domain))
        if opset is None:
            where = f"domain {domain!r}" if domain else "ONNX"
            raise ImportModelError(
                f"the model does not say which opset of {where} it uses",
                hint=f"its opset_import must have one of the domain {domain!r}",
            )
        schema = functions.schema(node.op_type, opset, domain)
        entry = HANDLERS.get((domain, node.op_type))
        withdrawn = schema is not None and schema.deprecated and entry is None
        # Some operators of ONNX Runtime pass for ONNX's: they have a handler, and no schema.
        handled = entry is not None and opset in entry.versions
        if (schema is None and domain == "" and not handled) or withdrawn:
            raise ImportModelError(
                f"there is no operator {node.op_type} in opset {opset}",
                hint=functions.when(node.op_type, domain),
            )
        if schema is not None:
            functions.check_against(schema, node)
            types = [v.type if isinstance(v, Value) else None for v in inputs]
            functions.check_types(node.op_type, opset, domain, types)
        if entry is not None:
            version = schema.since_version if schema is not None else opset
            if version not in entry.versions:
                known = ", ".join(map(str, sorted(entry.versions)))
                raise ImportModelError(
                    f"version {version} of {node.op_type} (opset {opset}) is not supported",
                    hint=f"known versions: {known}",
                )
            reader = NodeReader(
                node, version, inputs, self.builder, self.folder, self.fresh_symbol, scope.ranks.get
            )
            if schema is not None and _OVERWRITTEN in schema.attributes:
                reader.attribute(_OVERWRITTEN)
            try:
                with self.builder.assuming(reader.label):
                    found = entry.handle(reader)
            except Undecided as several:
                return decide(self, several, node, domain, inputs, scope)
            except (ArithmeticError, IndexError, ValueError) as error:
                if isinstance(error, PlanishError):
                    raise
                raise ImportModelError(f"the node is malformed: {error}") from error
            reader.finish()
            return [found] if isinstance(found, ITEMS) else list(found)
        if schema is not None:
            body = functions.body_of(schema, node, opset, types)
            if body is not None:
                return self.call(body, node, inputs, scope)
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        if schema is not None and (schema.has_function or schema.has_context_dependent_function):
            given = ", ".join("none" if i is None else repr(i) for i in inputs)
            raise ImportModelError(f"ONNX's definition of it has no form for these inputs: {given}")
        raise ImportModelError(
            f"operator {name} (opset {opset}) is not supported",
            hint=functions.hint_for(domain),
        )

    def call(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: list[Item | None],
        scope: Scope,
    ) -> list[Item | None]:
        """The results of a function's body in place of the node."""
        if scope.depth >= MAX_DEPTH:
            raise ImportModelError(
                f"function {function.name} is nested too deeply, or calls itself"
            )
        if len(inputs) > len(function.input):
            raise ImportModelError(f"function {function.name} takes {len(function.input)} inputs")
        padded = inputs + [None] * (len(function.input) - len(inputs))
        names = [text(n, "an input of a function") for n in function.input]
        inner = Scope(
            dict(zip(names, padded, strict=True)),
            {**scope.opsets, **_opsets(function.opset_import)},
            self.frame,
            depth=scope.depth + 1,
            label=label_of(node, scope),
        )
        names = [text(n, "an output of a function") for n in function.output]
        wanted = [n for n, asked in zip(names, node.output, strict=False) if asked]
        nodes = functions.with_attributes(function, node)
        found = iter(self.run_nodes(nodes, inner, wanted, f"an output of {function.name}"))
        return [
            next(found) if asked else None for _, asked in zip(names, node.output, strict=False)
        ]


def _in_node(error: PlanishError, node: onnx.NodeProto, scope: Scope) -> ImportModelError:
    """The error as one of the model, with the node named."""
    lines = [label_of(node, scope)]
    if isinstance(error, ImportModelError) and error.node and error.op:
        if not scope.label or error.node != own_label(node):
            return error
        return ImportModelError(error.message, op=error.op, node=lines[0], hint=error.hint)
    if error.node and error.node != lines[0]:
        lines.append(error.node)
    kind = Parted if isinstance(error, Parted) else ImportModelError
    return kind(error.message, op=error.op or node.op_type, node="\n".join(lines), hint=error.hint)


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    out: dict[str, int] = {}
    newest = onnx.defs.onnx_opset_version()
    for entry in imports:
        domain = text(entry.domain, "a domain")
        domain = "" if domain == "ai.onnx" else domain
        if domain in out and out[domain] != entry.version:
            of = f"domain {domain!r}" if domain else "ONNX"
            raise ImportModelError(f"opsets {out[domain]} and {entry.version} of {of} are used")
        if domain == "" and not 1 <= entry.version <= newest:
            raise ImportModelError(
                f"opset {entry.version} is not known", hint=f"the newest known one is {newest}"
            )
        out[domain] = entry.version
    return out


def _text_or(value: Any, default: str) -> str:
    return value if isinstance(value, str) and value else default
