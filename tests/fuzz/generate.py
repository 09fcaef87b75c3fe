"""Cases: single nodes of every operator and version, changed cases of ONNX's own, and graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from planish.compiler.conversion import converted
from planish.compiler.dtypes import from_numpy
from planish.compiler.frontends.onnx.importer import load_handlers
from planish.compiler.frontends.onnx.reader import HANDLERS

from . import layers  # noqa: F401 - it registers builders
from .builders import BUILDERS
from .case import Array, Case, initializers, with_constants
from .judge import RANDOM
from .layers import IDIOMS
from .maker import NEWEST, Broken, Impossible, Maker
from .values import MOST, SIZES, Draw, dtypes_of, is_float, is_int, specials

OUTSIDE: Final = 24  # the newest opset that ONNX Runtime knows
_GRAPH_OPS: Final = (
    "Add", "Sub", "Mul", "Div", "Max", "Min", "Where", "Clip", "Cast", "Softmax", "TopK",
    "ArgMax", "CumSum", "Transpose", "Transpose", "Reshape", "Reshape", "Squeeze", "Unsqueeze",
    "Expand", "Tile", "Slice", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements",
    "ScatterElements", "ScatterND", "Trilu", "MatMul", "MatMul", "Gemm", "Conv", "Conv",
    "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization",
    "InstanceNormalization", "LayerNormalization", "Resize", "DepthToSpace", "Flatten", "Shape",
    "Relu", "Sigmoid", "Exp", "Neg", "Abs", "Sqrt", "Round", "Erf", "Greater", "Equal", "PRelu",
    "ReduceMax", "ReduceMean", "ReduceSum", "ReduceL2", "ReduceProd", "ReduceLogSumExp", "Pow",
    "NonZero", "Compress", "Mod", "Identity", "Not", "And", "Less", *IDIOMS,
)  # fmt: skip


@cache
def versions() -> dict[str, list[Any]]:
    """The schemas of ai.onnx that we have handlers for, or that have a definition, by operator."""
    load_handlers()
    out: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        known = ("", schema.name) in HANDLERS or schema.has_function
        if schema.domain == "" and known and schema.name in BUILDERS:
            out.setdefault(schema.name, []).append(schema)
    return {name: sorted(some, key=lambda s: s.since_version) for name, some in sorted(out.items())}


def case_of(number: Callable[[int, int], int], with_suite: bool = True) -> Case:
    """A case, drawn; ``with_suite``: also from ONNX's own, which take seconds to make."""
    draw = Draw(number)
    kind = draw.number(0, 9)
    if kind < 3:
        case = one_node(draw)
    elif kind < 6 and with_suite:
        case = from_suite(draw)
    else:
        case = graph(draw)
    if draw.number(0, 2) == 0:
        case = symbolic(draw, case)
    return case


# ---------------------------------------------------------------------------------- single nodes


def one_node(draw: Draw) -> Case:
    name = draw.choice(list(versions()))
    schemas = versions()[name]
    schema = draw.choice(schemas)
    later = [s.since_version for s in schemas if s.since_version > schema.since_version]
    last = (later[0] if later else NEWEST + 1) - 1
    opset = min(last, max(schema.since_version, OUTSIDE)) if draw.number(0, 4) else last
    if schema.deprecated:
        opset = schemas[0].since_version
    builder, least, most = BUILDERS[name]
    for _ in range(8):
        m = Maker(draw, opset)
        position = 1 if name == "Where" and schema.inputs else 0
        kinds = dtypes_of(sorted(schema.inputs[position].types)) if schema.inputs else []
        usual = [k for k in kinds if k == np.float32]
        dtype = draw.choice(usual if usual and draw.one_in(2) else kinds or [np.dtype("f4")])
        x = m.input(draw.array(dtype, draw.shape(least, most)))
        m.values.append(x)
        try:
            builder(m, x)
        except Broken:
            return m.case()
        except Impossible:
            continue
        m.values.remove(x)
        return m.case()
    return graph(draw)


# ------------------------------------------------------------------------------------- graphs


def graph(draw: Draw) -> Case:
    """Two to eight nodes, connected by type."""
    opset = draw.choice([13, 17, 18, 19, 20, 21, 22, 23, OUTSIDE, 11, 9, NEWEST])
    m = Maker(draw, opset)
    kinds = [np.float32] * 6 + [np.float64, np.float16, np.int32, np.int64, np.bool_, np.uint8]
    for _ in range(draw.number(1, 2)):
        kind = "plain" if draw.number(0, 3) else "any"
        x = m.input(draw.array(draw.choice(kinds), draw.shape(0, 4, 800), kind))
        m.values.append(x)
    wanted = draw.number(2, 8)
    for _ in range(4 * wanted):
        if len(m.nodes) >= wanted:
            break
        name = draw.choice(_GRAPH_OPS)
        builder, least, most = BUILDERS[name]
        before = len(m.nodes), len(m.values)
        try:
            x = m.some(least, most)
            if name.startswith("idiom") and not is_float(x.dtype):
                continue
            builder(m, x)
        except Broken:
            break
        except Impossible:
            if name.startswith("idiom"):
                continue
            del m.nodes[before[0] :], m.values[before[1] :]
    if not m.nodes:
        m.add("Identity", [m.values[0]])
    return _used(m.case())


def _used(case: Case) -> Case:
    """Without constants that nothing reads."""
    from .case import walk

    read = {i for n in walk(case.model.graph.node) for i in n.input}
    known = {n: a for n, a in initializers(case.model).items() if n in read}
    return case.with_model(with_constants(case.model, known))


# -------------------------------------------------------------------------------- ONNX's own cases


@cache
def suite() -> tuple[dict[str, list[tuple[onnx.ModelProto, list[Array]]]], dict[Any, list[Any]]]:
    """ONNX's cases by operator, and what values attributes have there."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    by_name: dict[str, list[Any]] = {}
    pool: dict[Any, list[Any]] = {}
    for test in found:
        model = test.model
        if model is None or not test.data_sets or "expanded" in test.name:
            continue
        inputs = [_array(x) for x in test.data_sets[0][0]]
        op = next(n for n in reversed(model.graph.node)) if model.graph.node else None
        plain = all(isinstance(a, np.ndarray) and a.size <= MOST for a in inputs)
        if op is None or op.op_type in RANDOM or not plain or op.domain not in ("", "ai.onnx.ml"):
            continue
        if any(i.type.WhichOneof("value") != "tensor_type" for i in model.graph.output):
            continue
        by_name.setdefault(op.op_type, []).append((model, inputs))
        for a in op.attribute:
            value = helper.get_attribute_value(a)
            some = pool.setdefault((op.op_type, a.name), [])
            if a.type <= 3 or 6 <= a.type <= 8:
                some.append(value)
    return dict(sorted(by_name.items())), pool


def _array(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return np.asarray(item) if isinstance(item, np.generic) else item


def from_suite(draw: Draw) -> Case:
    by_name, pool = suite()
    name = draw.choice(list(by_name))
    original, arrays = draw.choice(by_name[name])
    model = onnx.ModelProto()
    model.CopyFrom(original)
    nodes = [n for n in model.graph.node if n.op_type == name]
    node = nodes[-1]
    inputs = dict(zip([i.name for i in model.graph.input], arrays, strict=False))
    if draw.one_in(2):
        inputs = _resized(draw, inputs)
    schema = _schema(node, model)
    if schema is not None and draw.one_in(3):
        inputs = _retyped(draw, node, schema, inputs)
    if draw.one_in(2):
        _change_attribute(draw, node, schema, pool)
    if schema is not None and draw.one_in(5):
        _drop_optional(draw, node, schema)
    if draw.one_in(3):
        inputs = {n: _revalued(draw, a) for n, a in inputs.items()}
    read = {i for n in model.graph.node for i in n.input}
    inputs = {n: a for n, a in inputs.items() if n in read}
    known: dict[str, Array] = {}
    for n, a in inputs.items():
        if (is_int(a.dtype) and a.size < 20 and draw.one_in(2)) or draw.one_in(5):
            known[n] = a
    free = {n: a for n, a in inputs.items() if n not in known}
    constants = {**initializers(model), **known}
    ports = [
        helper.make_tensor_value_info(
            n, 8 if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for n, a in free.items()
    ]
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
    del model.graph.input[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.input.extend(ports)
    model.graph.output.extend(outputs or [onnx.ValueInfoProto(name="nothing")])
    model.ir_version = min(max(model.ir_version, 8), 10)
    return Case(with_constants(model, constants), (free,))


def _schema(node: onnx.NodeProto, model: onnx.ModelProto) -> Any:
    opsets = {o.domain: o.version for o in model.opset_import}
    try:
        return onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return None


def _is_shape(array: Array | None) -> bool:
    """Whether it looks like a shape, axes and the like, whose length is known as a rule."""
    return array is not None and array.dtype == np.int64 and array.ndim == 1 and array.size <= 8


def _resized(draw: Draw, inputs: dict[str, Array]) -> dict[str, Array]:
    """With some sizes others, the same ones everywhere; shapes, axes and the like stay."""
    sizes = sorted({d for a in inputs.values() for d in a.shape})
    to = {d: (0 if draw.one_in(12) else draw.choice(SIZES)) for d in sizes if draw.one_in(2)}
    out = {}
    for n, a in inputs.items():
        if _is_shape(a):
            out[n] = a
            continue
        shape = [to.get(d, d) for d in a.shape]
        out[n] = resized(a, shape) if np.prod(shape, initial=1) <= MOST else a
    return out


def resized(array: Array, shape: Any) -> Array:
    if array.dtype == object and not array.size:  # numpy would fill it up with numbers
        return np.full(shape, "", object)
    return np.resize(array, shape).astype(array.dtype)


def _retyped(draw: Draw, node: Any, schema: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    letters: dict[str, Any] = {}
    out = dict(inputs)
    for k, n in enumerate(node.input):
        if not schema.inputs:
            break
        port = schema.inputs[min(k, len(schema.inputs) - 1)]
        kinds = dtypes_of(sorted(port.types))
        if n in out and len(kinds) > 1 and out[n].dtype in kinds:
            kind = letters.setdefault(port.type_str, draw.choice(kinds))
            if (kind.kind == "O") == (out[n].dtype.kind == "O"):
                with np.errstate(all="ignore"):
                    out[n] = _as_kind(np.asarray(out[n]), kind)
    return out


def _as_kind(array: Array, kind: Any) -> Array:
    """The array in another dtype; numpy has no way from one kind of few bits to another."""
    if "O" in (array.dtype.kind, kind.kind):
        return array.astype(kind)
    return converted(array, from_numpy(kind))


def _change_attribute(draw: Draw, node: Any, schema: Any, pool: dict[Any, list[Any]]) -> None:
    names = sorted({*(a.name for a in node.attribute), *(schema.attributes if schema else ())})
    if not names:
        return
    name = draw.choice(names)
    kept = [a for a in node.attribute if a.name != name]
    old = next((a for a in node.attribute if a.name == name), None)
    if old is not None and (old.type in (4, 5) or old.type > 8):
        return
    some = pool.get((node.op_type, name), [])
    way = draw.number(0, 3)
    value: Any = None
    if way == 0 and some:
        value = draw.choice(some)
    elif old is not None and old.type == 2:
        value = draw.choice([0, 1, 2, old.i + 1, old.i - 1, -old.i])
    elif old is not None and old.type == 1:
        value = float(draw.choice([0.0, 1.0, -old.f, old.f / 2, 1e-5]))
    elif old is not None and old.type == 7 and old.ints:
        value = list(old.ints)
        value[draw.number(0, len(value) - 1)] = draw.number(-1, 4)
    elif old is None and schema and int(schema.attributes[name].type.value) == 2:
        value = draw.number(-1, 2)
    elif way == 1 and old is not None:
        value = None
    else:
        return
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def _drop_optional(draw: Draw, node: Any, schema: Any) -> None:
    places = [
        k
        for k, n in enumerate(node.input)
        if k < len(schema.inputs) and schema.inputs[k].option.name == "Optional" and n
    ]
    if places:
        node.input[draw.choice(places)] = ""
        while node.input and not node.input[-1]:
            del node.input[-1]


def _revalued(draw: Draw, array: Array) -> Array:
    if is_float(array.dtype) and array.size and draw.one_in(2):
        flat = array.reshape(-1).copy()
        some = specials(array.dtype)
        for _ in range(draw.number(1, 3)):
            flat[draw.number(0, flat.size - 1)] = some[draw.number(0, len(some) - 1)]
        return flat.reshape(array.shape)
    if is_int(array.dtype) and array.size and draw.one_in(4):
        flat = array.reshape(-1).copy()
        k = draw.number(0, flat.size - 1)
        change = draw.choice([-1, 1, 2, -3])
        flat[k] = np.array(int(flat[k]) + change).astype(array.dtype)
        return flat.reshape(array.shape)
    return array


# ------------------------------------------------------------------------------------- symbols


def symbolic(draw: Draw, case: Case) -> Case:
    """With symbols for some sizes of the inputs, and calls of other sizes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    shared = draw.number(0, 2) > 0
    places: dict[str, list[tuple[str, int]]] = {}
    for info in model.graph.input:
        if _is_shape(case.calls[0].get(info.name)):
            continue
        for k, dim in enumerate(info.type.tensor_type.shape.dim):
            symbol = f"d{dim.dim_value}" if shared else f"{info.name}_{k}"
            if draw.number(0, 2):
                places.setdefault(symbol, []).append((info.name, k))
                dim.dim_param = symbol
    calls = list(case.calls)
    for _ in range(2 if places else 0):
        sizes = {s: draw.choice((0, *SIZES)) for s in places if draw.one_in(2)}
        call = {}
        for n, a in calls[0].items():
            shape = list(a.shape)
            for symbol, size in sizes.items():
                for name, k in places[symbol]:
                    if name == n:
                        shape[k] = size
            call[n] = resized(a, shape) if np.prod(shape, initial=1) <= 2 * MOST else a
        calls.append(call)
    return Case(model, tuple(calls))


__all__ = ["Case", "case_of", "graph", "one_node"]
