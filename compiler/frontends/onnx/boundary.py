"""Inputs and outputs of models that are sequences or optionals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Var, as_expr
from planish.compiler.graph.ir import Value, tensor
from planish.compiler.packings import MAP_KEYS, MOST_RANK, ROW, Packing

from .items import (
    Elements,
    Form,
    Item,
    KnownOptional,
    Maps,
    PackedOptional,
    PackedSequence,
    form_of,
)
from .packing import Packer
from .tensors import dtype_of, text

if TYPE_CHECKING:
    from .importer import Importer


def packing_of(info: onnx.ValueInfoProto, where: str, output: bool = False) -> Packing:
    """An input or output as it is declared; only numbers among its dimensions hold for all.

    Errors: ImportModelError for what is neither a tensor, nor a sequence of tensors, nor an
    optional one of these.
    """
    if info.type.WhichOneof("value") == "map_type":
        return _map_of(info.type.map_type, text(info.name, "a name"), where)
    kind, words = info.type, []
    for word in ("optional", "sequence"):
        if kind.WhichOneof("value") == f"{word}_type":
            kind = getattr(kind, f"{word}_type").elem_type
            words.append(word)
    if kind.WhichOneof("value") != "tensor_type":
        found = (kind.WhichOneof("value") or "a thing without a type").replace("_type", "")
        raise ImportModelError(f"{where} is {' '.join(words)} of {found}, which is not supported")
    shape = None
    if kind.tensor_type.HasField("shape"):
        dims = kind.tensor_type.shape.dim
        if len(dims) > MOST_RANK:
            raise ImportModelError(f"{where} has tensors of more than {MOST_RANK} axes")
        shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None
                      for d in dims)  # fmt: skip
    dtype = dtype_of(kind.tensor_type.elem_type, where)
    return Packing(text(info.name, "a name"), " ".join(words), dtype, shape, output)


def _map_of(kind: onnx.TypeProto.Map, name: str, where: str) -> Packing:
    key = dtype_of(kind.key_type, f"a key of {where}")
    if key.name not in MAP_KEYS or kind.value_type.WhichOneof("value") != "tensor_type":
        raise ImportModelError(f"{where} is a map of another kind than from strings or i64")
    dtype = dtype_of(kind.value_type.tensor_type.elem_type, where)
    return Packing(name, f"map from {key}", dtype)


def packed_input(imp: Importer, packing: Packing) -> Item:
    """The inputs of the graph that one of the model is."""
    for part in packing.parts:
        if part in imp.input_names:
            raise ImportModelError(f"two inputs are called {part!r}")
    b = imp.builder
    b.packings.append(packing)
    imp.input_names += packing.parts
    if packing.key is not None:
        count = Var(imp.fresh_symbol(f"{packing.name}_count"))
        kinds = zip(packing.parts, (packing.key, packing.dtype), strict=True)
        return Maps(*(b.input(part, tensor(dtype, count)) for part, dtype in kinds))
    elements, count = (Var(imp.fresh_symbol(f"{packing.name}_{w}")) for w in ("elements", "count"))
    name = packing.name
    values = b.input(f"{name}_values", tensor(packing.dtype, elements))
    shapes = b.input(f"{name}_shapes", tensor(I64, count, ROW))
    known = Elements()
    if packing.shape is not None:
        known = Elements(tuple(None if d is None else as_expr(d) for d in packing.shape))
    sequence = PackedSequence(values, shapes, known)
    if packing.kind == "sequence":
        return sequence
    if packing.kind == "optional":
        return PackedOptional(sequence)
    return PackedOptional(sequence, b.input(f"{name}_present", tensor(BOOL)))


def packed_output(
    imp: Importer, info: onnx.ValueInfoProto, item: Item
) -> tuple[Packing, tuple[Value, ...]]:
    """How the user gets an output that is no tensor, and the outputs of the graph that it is."""
    name = text(info.name, "an output's name")
    if isinstance(item, Maps):
        kind = f"{'maps' if item.has_many else 'map'} from {item.keys.type.dtype}"
        return Packing(name, kind, item.values.type.dtype, None, True), (item.keys, item.values)
    packer = Packer(imp.builder, imp.fresh_symbol, name)
    form = form_of(item)
    declared = info.type.WhichOneof("value")
    if declared == "optional_type":
        of_sequence = info.type.optional_type.elem_type.WhichOneof("value") == "sequence_type"
        wanted = "optional sequence" if of_sequence else "optional"
        form = form.joined(Form(wanted, form.dtype))
    elif isinstance(item, KnownOptional | PackedOptional) and declared == "sequence_type":
        item = packer.element(item, None)
        form = form_of(item)
    if form.kind == "known":
        form = Form("packed", form.dtype, form.elements)
    kind = "sequence" if form.kind == "packed" else form.kind
    code = _declared_dtype(info)
    if code and dtype_of(code, f"output {name!r}") is not form.dtype:
        raise ImportModelError(
            f"output {name!r} is declared as {dtype_of(code, '')} but is {form.dtype}"
        )
    return Packing(name, kind, form.dtype, None, True), packer.as_form(item, form)


def _declared_dtype(info: onnx.ValueInfoProto) -> int:
    kind = info.type
    while kind.WhichOneof("value") in ("optional_type", "sequence_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    return int(kind.tensor_type.elem_type)
