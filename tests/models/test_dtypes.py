"""Models that move elements of every dtype: compiled, plain, saved and loaded, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import planish
from planish.compiler.dtypes import ALL, BOOL, DType
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.frontends.onnx.tensors import DTYPES
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import large_constants, parse, show

CODES = {dtype: code for code, dtype in DTYPES.items()}


def numbers(dtype: DType, *shape: int) -> Array:
    """Any bits, but those of NaN and infinities."""
    rng = np.random.default_rng(sum(shape))
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.bits <= 8:
        bits = rng.integers(0, 1 << dtype.bits, shape).astype(np.uint8)
        found = np.asarray(bits.view(dtype.numpy))
        nan = ~np.isfinite(found) if dtype.is_float else np.zeros(shape, np.bool_)
        return np.asarray(np.where(nan, np.ones((), np.uint8), bits)).view(dtype.numpy)
    wide = rng.standard_normal(shape) * 100
    if dtype.kind == "c":
        return (wide + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    return np.abs(wide).astype(dtype.numpy) if dtype.kind == "u" else wide.astype(dtype.numpy)


def i64(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, onnx.TensorProto.INT64, [len(values)], values)


OPSET = onnx.defs.onnx_opset_version()


def takes(op: str, dtype: DType) -> bool:
    """Whether ONNX lets an operator move elements of a dtype."""
    name = f"tensor({onnx.TensorProto.DataType.Name(CODES[dtype]).lower()})"
    return any(name in port.types for port in onnx.defs.get_schema(op, OPSET).inputs)


def model_of(dtype: DType, constant: Array, raw: bool) -> onnx.ModelProto:
    """Every way to move elements of x [a, 6]; c is a constant, d an input with a default."""
    node = helper.make_node
    whole = "joined" if takes("Concat", dtype) else "x"
    part = "left" if takes("Split", dtype) else "x"
    nodes = [
        node("Identity", ["x"], ["identity"]),
        node("Reshape", ["x", "flat"], ["reshaped"]),
        node("Transpose", ["x"], ["transposed"], perm=[1, 0]),
        node("Concat", ["x", "c", "d"], ["joined"], axis=0),
        node("Gather", [whole, "indices"], ["gathered"], axis=1),
        node("Slice", [whole, "from", "to", "axes", "steps"], ["sliced"]),
        node("Split", ["x"], ["left", "right"], axis=1, num_outputs=2),
        node("Expand", [part, "wide"], ["expanded"]),
        node("Tile", ["c", "twice"], ["tiled"]),
        node("Pad", ["x", "pads", "fill"], ["padded"]),
        node("Pad", ["c", "pads"], ["edges"], mode="edge"),
        node("Where", ["flags", "x", "fill"], ["chosen"]),
        node("Unsqueeze", ["x", "axes"], ["deeper"]),
        node("Squeeze", ["deeper", "axes"], ["shallow"]),
        node("GatherElements", ["c", "places"], ["picked"], axis=1),
    ]
    nodes = [n for n in nodes if takes(n.op_type, dtype)]
    if raw:
        known = numpy_helper.from_array(constant, "c")
    else:
        known = helper.make_tensor("c", CODES[dtype], constant.shape, constant.ravel())
    initialisers = [
        known,
        numpy_helper.from_array(constant[1:], "d"),
        numpy_helper.from_array(np.asarray(constant[0, 0]), "fill"),
        i64("flat", 2, -1), i64("indices", 5, 0, -2), i64("from", -1), i64("to", -100),
        i64("axes", 1), i64("steps", -2), i64("wide", 2, 1, 1), i64("twice", 2, 2),
        i64("pads", 1, 0, 0, 2),
        numpy_helper.from_array(np.array([[0, 5, -1], [2, 2, 1]]), "places"),
    ]  # fmt: skip
    read = {name for n in nodes for name in n.input}
    outputs = [o for n in nodes for o in n.output if o not in read or o == "joined"]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", CODES[dtype], ["a", 6]),
            helper.make_tensor_value_info("flags", onnx.TensorProto.BOOL, ["a", 6]),
            helper.make_tensor_value_info("d", CODES[dtype], [1, 6]),
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        initialisers,
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset])


def same(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("dtype", [d for d in ALL.values() if takes("Identity", d)], ids=str)
def test_elements_are_moved(dtype: DType, tmp_path: Path) -> None:
    constant = numbers(dtype, 2, 6)
    model = model_of(dtype, constant, raw=True)
    flags = numbers(BOOL, 4, 6)
    inputs: dict[str, Any] = {"x": numbers(dtype, 4, 6), "flags": flags}
    graph = import_model(model)
    names = graph.output_names
    results = run_reference(graph, inputs | {"d": constant[1:]})
    wanted = dict(zip(names, results, strict=True))
    if takes("Transpose", dtype):
        np.testing.assert_array_equal(wanted["transposed"].T, inputs["x"])
    if takes("Concat", dtype):
        parts = (inputs["x"], constant, constant[1:])
        assert wanted["joined"].tobytes() == b"".join(a.tobytes() for a in parts)
    assert show(parse(show(graph), large_constants(graph))) == show(graph)
    for optimize in (True, False):
        module = planish.compile(model.SerializeToString(), optimize=optimize)
        same(module.run(inputs), wanted)
    module.save(tmp_path / "moved.planish")
    loaded = planish.load(tmp_path / "moved.planish")
    same(loaded.run(inputs), wanted)
    assert loaded.defaults["d"].dtype == dtype.numpy
    places = {k: np.empty_like(v) for k, v in wanted.items()}
    module.run(inputs, out=places)
    same(places, wanted)
    if dtype.bits != 6:  # onnx itself takes no lists of these
        typed = import_model(model_of(dtype, constant, raw=False))
        results = run_reference(typed, inputs | {"d": constant[1:]})
        same(dict(zip(names, results, strict=True)), wanted)
