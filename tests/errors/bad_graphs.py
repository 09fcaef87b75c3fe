"""Graphs within graphs, functions and sequences that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .cases import FLOAT, INT64, floats, ints, model, node, refused

BOOL = TensorProto.BOOL


def port(name: str, kind: int = FLOAT, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def graph(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: str,
    **constants: Any,
) -> onnx.GraphProto:
    values = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    return helper.make_graph(nodes, "inner", inputs, made, values)


# ------------------------------------------------------------------------------------- branches


def choice(then: onnx.GraphProto, other: onnx.GraphProto, outputs: str = "y") -> onnx.ModelProto:
    chosen = node("If", "c", outputs, then_branch=then, else_branch=other)
    return model(chosen, [floats(2, 3), port("c", BOOL)], outputs=outputs)


RELU = graph([node("Relu", "x", "r")], [], "r")
refused("condition_that_is_a_float", lambda: model(
    node("If", "x", then_branch=RELU, else_branch=RELU), [floats()]))  # fmt: skip
refused("one_branch_only", lambda: model(
    node("If", "c", then_branch=RELU), [floats(2), port("c", BOOL)]))  # fmt: skip
refused("branches_of_different_dtypes", lambda: choice(
    RELU, graph([node("Cast", "x", "r", to=INT64)], [], "r")))  # fmt: skip
refused("branches_of_different_numbers", lambda: choice(
    RELU, graph([node("Relu", "x", "r")], [], "r r2", r2=1), "y z"))  # fmt: skip
refused("branch_with_inputs", lambda: choice(
    graph([node("Relu", "q", "r")], [floats(2, name="q")], "r"), RELU))  # fmt: skip
refused("name_of_another_branch", lambda: choice(RELU, graph([node("Neg", "r", "q")], [], "q")))
refused("fault_within_a_branch", lambda: choice(
    RELU, graph([node("MatMul", "x x", "q")], [], "q")))  # fmt: skip

# -------------------------------------------------------------------------------------- loops


def loop(body: onnx.GraphProto, inputs: str = "n - x", outputs: str = "y") -> onnx.ModelProto:
    ports = [floats(2, 3), ints(name="n"), port("c", BOOL)]
    return model(node("Loop", inputs, outputs, body=body), ports, outputs=outputs)


def body(
    nodes: list[onnx.NodeProto], outputs: str = "on a2", *carried: onnx.ValueInfoProto
) -> onnx.GraphProto:
    inputs = [port("k", INT64), port("on", BOOL), *(carried or [port("a", FLOAT, 2, 3)])]
    return graph(nodes, inputs, outputs)


refused("carried_value_of_another_dtype", lambda: loop(
    body([node("Cast", "a", "a2", to=INT64)])))  # fmt: skip
refused("carried_value_of_another_rank", lambda: loop(body([node("Flatten", "a", "b"),
        node("Reshape", "b m", "a2"), node("Constant", "", "m", value_ints=[-1])])))  # fmt: skip
refused("condition_of_a_body_that_is_a_float", lambda: loop(
    body([node("Relu", "a", "a2"), node("ReduceSum", "a", "s", keepdims=0)], "s a2")))  # fmt: skip
refused("body_of_too_few_outputs", lambda: loop(body([node("Relu", "a", "a2")], "on")))
refused("body_of_too_few_inputs", lambda: loop(
    graph([], [port("k", INT64), port("on", BOOL)], "on")))  # fmt: skip
refused("number_of_times_that_is_a_float", lambda: loop(body([node("Relu", "a", "a2")]), "x - x"))
refused("loop_without_a_body", lambda: model(node("Loop", "n - x"), [floats(2), ints(name="n")]))
refused("fault_within_a_loop", lambda: loop(body([node("MatMul", "a a", "a2")])))
refused("rows_that_a_scan_lacks", lambda: model(
    node("Scan", "x z", body=graph([node("Add", "p q", "r")],
         [port("p", FLOAT, 3), port("q", FLOAT, 3)], "r"), num_scan_inputs=2),
    [floats(4, 3), floats(5, 3, name="z")]))  # fmt: skip
refused("axis_of_a_scan", lambda: model(
    node("Scan", "x", body=graph([node("Relu", "p", "r")], [port("p", FLOAT, 3)], "r"),
         num_scan_inputs=1, scan_input_axes=[2]), [floats(4, 3)]))  # fmt: skip
refused("inputs_of_a_scan", lambda: model(
    node("Scan", "x", body=graph([node("Relu", "p", "r")], [port("p", FLOAT, 3)], "r"),
         num_scan_inputs=3), [floats(4, 3)]))  # fmt: skip
refused("graphs_nested_too_deeply", lambda: nested(300))


def nested(depth: int) -> onnx.ModelProto:
    """Branches within branches, made in place: no file can be nested as deeply."""
    out = choice(RELU, RELU)
    inner = out.graph.node[0]
    for k in range(depth):
        branch = inner.attribute[0].g
        branch.output[0].name = f"r{k}"
        del branch.node[:]
        inner = branch.node.add(op_type="If", input=["c"], output=[f"r{k}"], name="inner")
        for name in ("then_branch", "else_branch"):
            attribute = inner.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
            attribute.g.CopyFrom(RELU)
    return out


# ------------------------------------------------------------------------------------ functions


def called(nodes: list[onnx.NodeProto], inputs: str = "x", **attributes: Any) -> onnx.ModelProto:
    """A model that calls a function of one input ``p`` and one output ``q``."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.own", 1)]
    function = helper.make_function("my.own", "Own", ["p"], ["q"], nodes, opsets)
    call = node("Own", inputs, domain="my.own", **attributes)
    return model(call, domains={"my.own": 1}, functions=[function])


refused("inputs_of_a_function", lambda: called([node("Relu", "p", "q")], inputs="x x"))
refused("attribute_of_a_function", lambda: called([node("Relu", "p", "q")], alpha=1.0))
refused("output_that_a_function_lacks", lambda: called([node("Relu", "p", "other")]))
refused("fault_within_a_function", lambda: called([node("MatMul", "p p", "q")]))
refused("function_that_is_missing", lambda: model(
    node("Own", domain="my.own"), domains={"my.own": 1}))  # fmt: skip


def defined_twice() -> onnx.ModelProto:
    out = called([node("Relu", "p", "q")])
    out.functions.append(out.functions[0])
    return out


refused("function_defined_twice", defined_twice)


def two_opsets() -> onnx.ModelProto:
    out = model(node("Relu"))
    out.opset_import.append(helper.make_opsetid("", 13))
    return out


refused("two_opsets_of_a_domain", two_opsets)

# ------------------------------------------------------------------------------------ sequences

PARTS = node("SplitToSequence", "x", "parts", axis=0)
refused("element_that_a_sequence_lacks", lambda: model(
    [PARTS, node("SequenceAt", "parts five")], constants={"five": 5}))  # fmt: skip
refused("element_of_another_dtype", lambda: model(
    [PARTS, node("SequenceInsert", "parts k", "more"), node("ConcatFromSequence", "more", axis=0)],
    [floats(2, 3), ints(1, 3)]))  # fmt: skip
refused("sequence_where_a_tensor_is_wanted", lambda: model([PARTS, node("Relu", "parts")]))
refused("tensor_where_a_sequence_is_wanted", lambda: model(node("SequenceLength", "x")))
refused("sequence_of_nothing_joined", lambda: model(
    [node("SequenceEmpty", "", "none"), node("ConcatFromSequence", "none", axis=0)]))  # fmt: skip
refused("elements_that_do_not_join", lambda: model(
    [node("SequenceConstruct", "x z", "all"), node("ConcatFromSequence", "all", axis=0)],
    [floats(2, 3), floats(2, 4, name="z")]))  # fmt: skip
refused("element_of_an_empty_optional", lambda: model(
    [node("Optional", "", "o", type=floats(2).type), node("OptionalGetElement", "o")]))  # fmt: skip
refused("sizes_of_a_sequence", lambda: model(
    [node("SplitToSequence", "x s", "parts", axis=0), node("SequenceLength", "parts")],
    constants={"s": np.array([1, 3])}))  # fmt: skip
