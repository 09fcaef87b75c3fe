"""One-node models, and imported graphs against other runtimes: for the tests of handlers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array, Graph
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import large_constants, parse, show
from planish.compiler.graph.verify import verify

Inputs: TypeAlias = Mapping[str, Array]

NEWEST_OF_RUNTIME = 24  # opsets beyond are compared with onnx.reference


def model_of(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Inputs,
    *,
    opset: int = 20,
    constants: Inputs | None = None,
    outputs: Sequence[str] | None = None,
    symbolic: bool = False,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of some nodes with inputs like these; ``symbolic``: with dimensions of any size."""
    many = [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes)
    shapes = {
        name: [f"{name}_d{k}" for k in range(a.ndim)] if symbolic else list(a.shape)
        for name, a in inputs.items()
    }
    if outputs is None:
        read = {i for n in many for i in n.input}
        outputs = [o for n in many for o in n.output if o and o not in read]
    graph = helper.make_graph(
        many,
        "g",
        [
            helper.make_tensor_value_info(name, code_of(a), shapes[name])
            for name, a in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()],
    )
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d, v) for d, v in (domains or {}).items()),
    ]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    model.ir_version = min(model.ir_version, 10)
    return model


def code_of(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def expected(model: onnx.ModelProto, inputs: Inputs) -> list[Array]:
    """The outputs by ONNX Runtime, or by onnx.reference for what it does not know."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    if max(o.version for o in model.opset_import if o.domain == "") <= NEWEST_OF_RUNTIME:
        try:
            session = ort.InferenceSession(
                typed_outputs(model).SerializeToString(), options, ["CPUExecutionProvider"]
            )
        except (
            ort.capi.onnxruntime_pybind11_state.NotImplemented,
            ort.capi.onnxruntime_pybind11_state.InvalidGraph,
        ):
            pass
        else:
            return list(session.run(None, dict(inputs)))
    return by_reference(model, inputs)


def by_reference(model: onnx.ModelProto, inputs: Inputs) -> list[Array]:
    """The outputs by onnx.reference."""
    from onnx.reference import ReferenceEvaluator

    return [np.asarray(x) for x in ReferenceEvaluator(model).run(None, dict(inputs))]


def typed_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its outputs' element types, which ONNX Runtime wants."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = import_model(model)
    for info, value in zip(copy.graph.output, graph.outputs, strict=True):
        code = helper.np_dtype_to_tensor_dtype(value.type.dtype.numpy)
        info.type.tensor_type.elem_type = code
    return copy


def check(
    model_or_node: onnx.ModelProto | onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Inputs,
    *,
    constants: Inputs | None = None,
    opset: int = 20,
    want: Sequence[Array] | None = None,
    tolerance: float = 1e-5,
    symbolic: bool = True,
) -> Graph:
    """Import, run by the operators' references and compare; the graph, for further questions.

    ``want`` is what another runtime gives, if not given. ``symbolic``: the same once more with
    every dimension of the inputs a symbol. The graph's text must parse back.
    """
    if isinstance(model_or_node, onnx.ModelProto):
        models = [model_or_node]
    else:
        kinds = (False, True) if symbolic and any(a.ndim for a in inputs.values()) else (False,)
        models = [
            model_of(model_or_node, inputs, opset=opset, constants=constants, symbolic=kind)
            for kind in kinds
        ]
    if want is None:
        want = expected(models[0], inputs)
    for model in models:
        graph = import_model(model)
        verify(graph)
        round_trip(graph)
        compare(run_reference(graph, inputs), want, tolerance)
    return import_model(models[0])


def round_trip(graph: Graph) -> None:
    """The graph's text parses back to the same text."""
    text = show(graph)
    arrays = large_constants(graph)
    assert show(parse(text, arrays)) == text


def compare(got: Sequence[Array], want: Sequence[Array], tolerance: float = 1e-5) -> None:
    """Same dtypes, shapes, and values within ``tolerance`` of the largest; integers exactly."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        b = np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.kind in "biuO" or not a.size:
            np.testing.assert_array_equal(a, b)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite])
        scale = max(1.0, np.abs(y[finite]).max(initial=0.0))
        if a.dtype.itemsize == 2:
            tolerance = max(tolerance, 1e-2)
        np.testing.assert_allclose(x[finite], y[finite], rtol=0, atol=tolerance * scale)


def node(op_type: str, inputs: str, outputs: str = "out", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, and ``-`` stands for one that is left out."""
    split = lambda text: ["" if t == "-" else t for t in text.split()]  # noqa: E731
    return helper.make_node(op_type, split(inputs), split(outputs), **attributes)


__all__ = [
    "TensorProto", "by_reference", "check", "code_of", "compare", "expected", "model_of", "node",
    "round_trip", "typed_outputs",
]  # fmt: skip
