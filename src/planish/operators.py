"""Which operators there are, and whether those that a model needs are among them.

An operator of ONNX has several forms, each named by the opset in which it began. A form is handled,
or expanded into others by the definition that ONNX gives it, or missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from planish.compiler.errors import PlanishError
from planish.conformance import TARGETS, conformance

if TYPE_CHECKING:
    import onnx

How: TypeAlias = Literal["handled", "expanded", "function", "missing"]


# Domains of which nothing is supported, and why.
REFUSED: Final = {"ai.onnx.preview.training": "training is not supported"}


@dataclass(frozen=True)
class OnnxOperator:
    """An operator of ONNX: its forms, by what is done with them.

    ``handled`` ones have kernels of their own, ``expanded`` ones are replaced by ONNX's definition;
    ``why`` others are missing. Of ``cases`` of ONNX's tests some are ``passed``, by target.
    """

    name: str
    handled: tuple[int, ...]
    expanded: tuple[int, ...]
    missing: tuple[int, ...]
    why: str
    cases: int
    passed: dict[str, int]


@dataclass(frozen=True)
class OwnOperator:
    """An operator of planish: what it is, and whose definition it follows."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True)
class Need:
    """A form of an operator that a model has; ``why`` it is missing, if it is.

    Of ``cases`` of ONNX's tests of the operator so many are ``passed``, compiled for this machine.
    """

    operator: str
    version: int | None
    how: How
    nodes: int
    why: str = ""
    cases: int = 0
    passed: int = 0


@dataclass(frozen=True)
class Needs:
    """All that a model needs, and the error that importing it ends in, if it does."""

    opsets: dict[str, int]
    operators: tuple[Need, ...]
    error: str

    @property
    def supported(self) -> bool:
        return not self.error


def onnx_operators() -> tuple[OnnxOperator, ...]:
    """The operators of the installed ONNX, by name."""
    import onnx.defs

    from planish.compiler.frontends.onnx.importer import load_handlers
    from planish.compiler.frontends.onnx.reader import HANDLERS

    load_handlers()
    forms: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        forms.setdefault((schema.domain, schema.name), []).append(schema)
    names = sorted({*forms, *HANDLERS}, key=lambda key: (key[0], key[1].lower()))
    out = []
    for key in names:
        entry = HANDLERS.get(key)
        versions = frozenset() if entry is None else entry.versions
        by_how: dict[str, list[int]] = {"handled": [], "expanded": [], "missing": []}
        for schema in sorted(forms.get(key, ()), key=lambda s: int(s.since_version)):
            if not schema.deprecated or entry is not None:
                by_how[_how(schema, entry is not None, versions)].append(schema.since_version)
        if key not in forms:  # ONNX does not define what others add
            by_how["handled"] = sorted(versions)
        if any(by_how.values()):
            out.append(_described(*key, *(tuple(v) for v in by_how.values())))
    return tuple(out)


def _described(
    domain: str,
    name: str,
    handled: tuple[int, ...],
    expanded: tuple[int, ...],
    missing: tuple[int, ...],
) -> OnnxOperator:
    """An operator with what ONNX's tests say of it."""
    label = f"{domain}.{name}" if domain else name
    score = conformance().operator(label)
    why = ""
    if missing:
        why = REFUSED.get(domain, "") or (score.reason if not handled and not expanded else "")
        why = why or "there is no kernel, and no definition that has one"
    passed = {target: score.passed(target) for target in TARGETS}
    return OnnxOperator(label, handled, expanded, missing, why, score.cases, passed)


def _how(schema: Any, has_handler: bool, versions: frozenset[int]) -> How:
    from planish.compiler.frontends.onnx.control import CONTROL

    if has_handler:
        return "handled" if schema.since_version in versions else "missing"
    if (f"{schema.domain}.{schema.name}" if schema.domain else schema.name) in CONTROL:
        return "handled"
    names = _definition(schema)
    known = bool(names) and all(_form(name, opset) != "missing" for name, opset in names)
    return "expanded" if known else "missing"


def _form(name: str, opset: int) -> How:
    """What is done with an operator in an opset of ONNX."""
    return _support("", name, {"": opset})[1]


def _definition(schema: Any) -> list[tuple[str, int]]:
    """The operators in an ONNX operator's definition, with their opsets; nothing if it has none.

    Some definitions depend on the node: then it is that of one with no more inputs and attributes
    than it needs.
    """
    import onnx

    body = onnx.FunctionProto()
    try:
        if schema.has_function:
            body = schema.function_body
        elif schema.has_context_dependent_function:
            node, types = _sample(schema)
            version = max(schema.context_dependent_function_opset_versions)
            make = schema.get_context_dependent_function_with_opset_version
            body.ParseFromString(make(version, node.SerializeToString(), types))
    except (RuntimeError, ValueError, TypeError):
        return []
    opset = _opsets(body.opset_import).get("", schema.since_version)
    return [(node.op_type, opset) for node in _walk(body.node)]


def _sample(schema: Any) -> tuple[onnx.NodeProto, list[bytes]]:
    """A node of an operator, and the types of its inputs."""
    from onnx import TensorProto, helper

    inputs = [port.name for port in schema.inputs[: schema.min_input]]
    outputs = [port.name for port in schema.outputs[: schema.min_output]]
    node = helper.make_node(schema.name, inputs, outputs)
    for name, attribute in schema.attributes.items():
        if attribute.required and attribute.type.name == "INT":
            node.attribute.append(helper.make_attribute(name, 1))
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [4] * 4)
    return node, [kind.SerializeToString()] * len(inputs)


def own_operators() -> tuple[OwnOperator, ...]:
    """The operators of planish, by name."""
    from planish.compiler.ops.base import Op
    from planish.compiler.ops.registry import load_operators

    load_operators()
    out = []
    for name, kind in sorted(Op.registry.items()):
        lines = [line.strip() for line in (kind.__doc__ or "").splitlines()]
        summary = " ".join(lines[: lines.index("")] if "" in lines else lines)
        source = next((line for line in lines if line.startswith("Source: ")), "")
        out.append(OwnOperator(name, summary, source.removeprefix("Source: ").rstrip(".")))
    return tuple(out)


# --------------------------------------------------------------------------------- of a model


def needs(source: Path | bytes) -> Needs:
    """What a model needs.

    Errors: ParseError or ImportModelError if it cannot be read at all.
    """
    from planish.compiler.frontends.onnx.importer import import_model, load_handlers
    from planish.compiler.frontends.onnx.protos import load

    load_handlers()
    model = load(source)
    census = _Census(model)
    census.count(model.graph.node, census.opsets)
    try:
        import_model(source)
        error = ""
    except PlanishError as found:
        error = str(found)
    operators = sorted(census.found.values(), key=lambda n: (n.operator, n.version or 0))
    return Needs(census.opsets, tuple(operators), error)


@dataclass
class _Census:
    """Counts the nodes of a model, those of branches and called functions included."""

    model: onnx.ModelProto
    found: dict[tuple[str, str, int | None], Need] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opsets = _opsets(self.model.opset_import)
        self.functions = {(_domain(f.domain), f.name): f for f in self.model.functions}
        self.called: set[tuple[str, str]] = set()

    def count(self, nodes: Iterable[onnx.NodeProto], opsets: dict[str, int]) -> None:
        for node in _walk(nodes):
            domain = _domain(node.domain)
            key = domain, node.op_type
            if key in self.functions:
                self.add(domain, node.op_type, None, "function")
                if key not in self.called:
                    self.called.add(key)
                    function = self.functions[key]
                    self.count(function.node, {**opsets, **_opsets(function.opset_import)})
            else:
                self.add(domain, node.op_type, *_support(domain, node.op_type, opsets))

    def add(self, domain: str, name: str, version: int | None, how: How, why: str = "") -> None:
        key = domain, name, version
        label = f"{domain}.{name}" if domain else name
        before = self.found[key].nodes if key in self.found else 0
        score = conformance().operator(label)
        passed = score.passed(TARGETS[0])
        self.found[key] = Need(label, version, how, before + 1, why, score.cases, passed)


def _walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        for a in node.attribute:
            for graph in [a.g] if a.HasField("g") else a.graphs:
                todo += graph.node


def _support(domain: str, name: str, opsets: dict[str, int]) -> tuple[int | None, How, str]:
    """The form of an operator that a model means, what is done with it, and why nothing."""
    from planish.compiler.frontends.onnx.functions import schema as schema_of
    from planish.compiler.frontends.onnx.reader import HANDLERS, UNDECLARED

    opset = opsets.get(domain, UNDECLARED.get(domain))
    if opset is None:
        return None, "missing", "the model does not say which opset it uses"
    schema = schema_of(name, opset, domain)
    entry = HANDLERS.get((domain, name))
    if schema is None:
        if entry is not None and opset in entry.versions:
            return opset, "handled", ""
        return None, "missing", f"opset {opset} has no such operator"
    versions = frozenset() if entry is None else entry.versions
    how = _how(schema, entry is not None, versions)
    why = ""
    if how == "missing":
        known = ", ".join(map(str, sorted(versions)))
        why = f"only the forms of opsets {known} are supported" if known else "not supported"
    return schema.since_version, how, why


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(entry.domain): entry.version for entry in imports}
