"""What ONNX itself says of operators: versions, attributes, and the bodies of functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import onnx
import onnx.defs
from onnx.shape_inference import InferenceError

from planish.compiler.dtypes import DType
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Const
from planish.compiler.graph.ir import TensorType

from .protos import DecodeError, check_node
from .tensors import DTYPES, text

Key: TypeAlias = tuple[str, str, str]  # domain, name, overload

_BY_NAME: Final = {
    f"tensor({onnx.TensorProto.DataType.Name(code).lower()})": dtype
    for code, dtype in DTYPES.items()
}
_CODES = {dtype: code for code, dtype in DTYPES.items()}


@lru_cache(maxsize=4096)
def schema(op_type: str, opset: int, domain: str) -> Any | None:
    """What ONNX says of an operator in an opset, or None if it has none of the name."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except (onnx.defs.SchemaError, RuntimeError, TypeError):
        return None


def when(op_type: str, domain: str) -> str | None:
    """In which opsets there is an operator, for a hint; None if there never was one."""
    versions = [
        (s.since_version, bool(s.deprecated))
        for s in onnx.defs.get_all_schemas_with_history()
        if (s.domain, s.name) == (domain, op_type)
    ]
    if not versions:
        return None
    (first, _), (last, gone) = min(versions), max(versions)
    return (
        f"{op_type} is in opsets {first} to {last - 1}" if gone else f"it came with opset {first}"
    )


def hint_for(domain: str) -> str:
    """What to do about an operator of a domain that nobody knows here."""
    if domain in ("com.microsoft.nchwc", "com.ms.internal.nhwc"):
        return "ONNX Runtime laid this model out for one machine: have it use ORT_ENABLE_EXTENDED"
    return "`planish ops` prints those that are; a model may bring others as functions"


def check_against(schema: Any, node: onnx.NodeProto) -> None:
    """Check a node's attributes and numbers of inputs and outputs.

    Errors: ImportModelError naming what does not fit.
    """
    for what, names, least, most in (
        ("inputs", node.input, schema.min_input, schema.max_input),
        ("outputs", node.output, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            right = f"{least}" if least == most else f"{least} to {most}"
            raise ImportModelError(f"it has {len(names)} {what}, and must have {right}")
    for a in node.attribute:
        known = schema.attributes.get(a.name)
        if known is None:
            continue  # the handler's matter
        if int(known.type.value) != a.type:
            wanted = str(known.type).rsplit(".", 1)[-1].lower()
            raise ImportModelError(f"attribute {a.name} is no {wanted}")
    for name, known in schema.attributes.items():
        if known.required and all(a.name != name for a in node.attribute):
            raise ImportModelError(f"attribute {name} is missing")


@lru_cache(maxsize=4096)
def _accepted(op_type: str, opset: int, domain: str) -> tuple[tuple[str, frozenset[DType]], ...]:
    """Of each input, which others are of the same type (by a name), and what it may be."""
    found: Any = schema(op_type, opset, domain)
    ports = [] if found is None else found.inputs
    out = []
    for k, port in enumerate(ports):
        each = (
            k == len(ports) - 1 and port.option == port.option.Variadic and not port.is_homogeneous
        )
        dtypes = frozenset(_BY_NAME[kind] for kind in port.types if kind in _BY_NAME)
        out.append(("" if each else port.type_str, dtypes))
    return tuple(out)


def check_types(op_type: str, opset: int, domain: str, types: Sequence[TensorType | None]) -> None:
    """Check the element types of a node's tensors; None is an input that is none, or left out.

    Errors: ImportModelError naming the first that the operator does not take.
    """
    ports = _accepted(op_type, opset, domain)
    seen: dict[str, tuple[int, DType]] = {}
    for k, type in enumerate(types):
        if type is None or not ports:
            continue
        name, dtypes = ports[min(k, len(ports) - 1)]
        if type.dtype not in dtypes:
            known = ", ".join(sorted(map(str, dtypes)))
            raise ImportModelError(
                f"input {k} is {type}, which opset {opset} does not allow",
                hint=f"it may be {known}" if known else "it must not be a tensor",
            )
        first, dtype = seen.setdefault(name, (k, type.dtype)) if name else (k, type.dtype)
        if dtype is not type.dtype:
            raise ImportModelError(
                f"input {k} is {type}, and must be {dtype} like input {first}",
                hint="cast one of them",
            )


def by_key(protos: Iterable[onnx.FunctionProto]) -> dict[Key, onnx.FunctionProto]:
    """The functions that a model defines.

    Errors: ImportModelError for two of one name.
    """
    out: dict[Key, onnx.FunctionProto] = {}
    for f in protos:
        domain, name, overload = (
            text(x, "a function's name") for x in (f.domain, f.name, f.overload)
        )
        key = ("" if domain == "ai.onnx" else domain, name, overload)
        if key in out:
            raise ImportModelError(f"function {name} of {domain!r} is defined twice")
        out[key] = f
    return out


def with_attributes(function: onnx.FunctionProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes of a function's body with the attributes of a call filled in.

    Errors: ImportModelError for an attribute that the function does not have, or needs.
    """
    given = {a.name: a for a in function.attribute_proto}
    allowed = {*given, *function.attribute}
    for a in node.attribute:
        if a.name not in allowed:
            raise ImportModelError(f"attribute {a.name} is not one of function {function.name}")
        given[a.name] = a
    out = []
    for inner in function.node:
        check_node(inner)
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        _fill(copy, given)
        out.append(copy)
    return out


def _fill(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in given:  # left out and without a default: left out here too
                continue
            filled = onnx.AttributeProto()
            filled.CopyFrom(given[a.ref_attr_name])
            filled.name = a.name
            kept.append(filled)
            continue
        for graph in [a.g] if a.HasField("g") else a.graphs:
            for inner in graph.node:
                _fill(inner, given)
        copy = onnx.AttributeProto()
        copy.CopyFrom(a)
        kept.append(copy)
    del node.attribute[:]
    node.attribute.extend(kept)


def body_of(
    schema: Any, node: onnx.NodeProto, opset: int, types: Sequence[TensorType | None]
) -> onnx.FunctionProto | None:
    """The body that ONNX gives an operator, or None if it gives none."""
    body = onnx.FunctionProto()
    try:
        if versions := [v for v in schema.function_opset_versions if v <= opset]:
            body.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        elif versions := [
            v for v in schema.context_dependent_function_opset_versions if v <= opset
        ]:
            body.ParseFromString(
                schema.get_context_dependent_function_with_opset_version(
                    max(versions),
                    node.SerializeToString(),
                    [_type_proto(t).SerializeToString() for t in types],
                )
            )
        else:
            return None
    except (DecodeError, InferenceError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ImportModelError(f"it cannot be expanded: {error}") from error
    if not body.node:
        return None
    defaults: list[Any] = [
        a.default_value for a in schema.attributes.values() if a.default_value.type
    ]
    names = {a.name for a in body.attribute_proto}
    body.attribute_proto.extend(a for a in defaults if a.name not in names)
    names = {*body.attribute, *(a.name for a in body.attribute_proto)}
    body.attribute.extend(name for name in schema.attributes if name not in names)
    return body


def _type_proto(type: TensorType | None) -> onnx.TypeProto:
    out = onnx.TypeProto()
    if type is not None:
        out.tensor_type.elem_type = _CODES[type.dtype]
        for d in type.shape:
            dim = out.tensor_type.shape.dim.add()
            if isinstance(d, Const):
                dim.dim_value = int(d.value)
            else:
                dim.dim_param = str(d)
        out.tensor_type.shape.dim.extend([])
    return out
