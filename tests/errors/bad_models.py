"""Models that cannot be compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import planish

from .cases import FLOAT, case, floats, ints, layer, model, node, refused

SQUARE = np.ones((3, 3), np.float32)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


# --------------------------------------------------------------------------------------- files

refused("empty_bytes", lambda: b"")
refused("text", lambda: b"hello, this is no model")
refused("truncated_in_the_middle", lambda: layer().SerializeToString()[:300])
refused("truncated_at_the_end", lambda: layer().SerializeToString()[:-1])
refused("length_beyond_the_end", lambda: b"\x3a\xff\xff\xff\xff\x0f")
refused("number_without_an_end", lambda: b"\x08" + b"\xff" * 20)
refused("file_nested_too_deeply", lambda: nested(5000))
refused("no_graph", lambda: onnx.ModelProto(ir_version=8).SerializeToString())


def field(number: int, data: bytes) -> bytes:
    """A part of a message, as protobuf writes it."""
    out, size = bytes([number << 3 | 2]), len(data)
    while size >= 0x80:
        out, size = out + bytes([size & 0x7F | 0x80]), size >> 7
    return out + bytes([size]) + data


def nested(depth: int) -> bytes:
    """A file of a graph in an attribute of a node of a graph, again and again."""
    data = b""
    for _ in range(depth):
        data = field(1, field(5, field(6, data)))  # GraphProto.node, NodeProto.attribute, .g
    return field(7, data)


@case
def missing_file(folder: Path) -> object:
    return planish.compile(folder / "none.onnx")


@case
def directory(folder: Path) -> object:
    return planish.compile(folder)


@case
def text_file(folder: Path) -> object:
    (folder / "notes.onnx").write_text("hello")
    return planish.compile(folder / "notes.onnx")


@case
def path_with_a_zero(folder: Path) -> object:
    return planish.compile("a\0b.onnx")


@case
def number_as_model(folder: Path) -> object:
    return planish.compile(7)


@case
def nothing_as_model(folder: Path) -> object:
    return planish.compile(None)


@case
def module_file_as_model(folder: Path) -> object:
    planish.compile(layer()).save(folder / "layer.planish")
    return planish.compile(folder / "layer.planish")


def newer_format() -> onnx.ModelProto:
    out = layer()
    out.ir_version = 1000
    return out


refused("newer_format", newer_format)

# ------------------------------------------------------------------------------- names and order

refused(
    "cycle",
    lambda: model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]),
)
refused("node_that_reads_itself", lambda: model(node("Add", "x y", "y")))
refused("input_that_nothing_makes", lambda: model(node("Add", "x other", "y")))
refused("output_that_nothing_makes", lambda: model(node("Relu"), outputs="z"))
refused("no_outputs", lambda: model(node("Relu"), outputs=""))
refused("made_twice", lambda: model([node("Relu"), node("Sigmoid")]))
refused("two_inputs_of_one_name", lambda: model(node("Relu"), [floats(2), floats(3)]))
refused("two_outputs_of_one_name", lambda: model(node("Relu"), outputs="y y"))
refused("input_without_a_name", lambda: model(node("Relu"), [floats(2), floats(2, name="")]))
refused("output_that_is_an_initialiser_too", lambda: model(node("Relu"), constants={"y": SQUARE}))


def two_initialisers() -> onnx.ModelProto:
    out = model(node("Add", "x w", "y"), [floats(3, 3)], constants={"w": SQUARE})
    out.graph.initializer.append(out.graph.initializer[0])
    return out


refused("two_initialisers_of_one_name", two_initialisers)


def not_utf8() -> bytes:
    return layer().SerializeToString().replace(b"product", b"pr\xff\xfe\xfdct")


refused("name_that_is_not_utf8", not_utf8)

# ------------------------------------------------------------------------------------- operators

refused("unknown_operator", lambda: model(node("Frobnicate")))
refused("unknown_operator_of_a_known_domain", lambda: model(
    node("Frob", domain="com.microsoft"), domains={"com.microsoft": 1}))  # fmt: skip
refused("domain_without_an_opset", lambda: model(node("FusedGelu", domain="my.own")))
refused("no_opset", lambda: _without_opset())
refused("opset_from_the_future", lambda: model(node("Relu"), opset=99))
refused("operator_that_came_later", lambda: model(node("Gelu"), opset=13))
refused("unread_attribute", lambda: model(node("Relu", speed=3)))
refused("attribute_of_another_kind", lambda: model(node("Softmax", axis="last")))
refused("too_many_inputs", lambda: model(node("Relu", "x x")))
refused("too_few_inputs", lambda: model(node("Add", "x")))
refused("too_many_outputs", lambda: model(node("Relu", "x", "y z")))
refused("required_input_left_out", lambda: model(node("MatMul", "x -")))
refused("required_attribute_left_out", lambda: model(node("Concat", "x x")))
refused("loop_operator", lambda: model(
    node("Loop", "- - x", "y", body=helper.make_graph([], "body", [], []))))  # fmt: skip


def _without_opset() -> onnx.ModelProto:
    out = model(node("Relu"))
    del out.opset_import[:]
    return out


def attribute_twice() -> onnx.ModelProto:
    out = model(node("Softmax", axis=1))
    out.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    return out


refused("attribute_given_twice", attribute_twice)


def calls_itself() -> onnx.ModelProto:
    function = helper.make_function(
        "my.own", "Again", ["x"], ["y"], [node("Again", domain="my.own")],
        [helper.make_opsetid("my.own", 1)],
    )  # fmt: skip
    return model(node("Again", domain="my.own"), domains={"my.own": 1}, functions=[function])


refused("function_that_calls_itself", calls_itself)


def branches() -> onnx.ModelProto:
    out = [onnx.ValueInfoProto(name="r")]
    short = helper.make_graph([node("Relu", "x", "r")], "short", [], out)
    long = helper.make_graph([node("Flatten", "x", "r")], "long", [], out)
    choice = node("If", "c", "y", then_branch=short, else_branch=long)
    return model(choice, [floats(2), helper.make_tensor_value_info("c", TensorProto.BOOL, [])])


refused("branches_of_different_ranks", branches)

# ------------------------------------------------------------------------------ types and shapes

refused("operands_of_two_dtypes", lambda: model(node("Add", "x k"), [floats(2), ints(2)]))
refused("dtype_that_an_operator_lacks", lambda: model(node("Sigmoid", "k"), [ints(2)]))
refused("index_that_is_a_float", lambda: model(node("Gather", "x x")))
refused("shapes_that_do_not_broadcast", lambda: model(
    node("Add", "x z"), [floats(2, 3), floats(2, 4, name="z")]))  # fmt: skip
refused("inner_dimensions", lambda: model(
    node("MatMul", "x w"), [floats(2, 4)], constants={"w": SQUARE}))  # fmt: skip
refused("product_of_a_scalar", lambda: model(node("MatMul", "x w"), [floats()],
                                             constants={"w": SQUARE}))  # fmt: skip
refused("gemm_of_rank_3", lambda: model(node("Gemm", "x w"), [floats(2, 3, 3)],
                                        constants={"w": SQUARE}))  # fmt: skip
refused("convolution_of_rank_2", lambda: model(node("Conv", "x w"), constants={"w": SQUARE}))
refused("channels_of_a_convolution", lambda: model(
    node("Conv", "x w"), [floats(1, 4, 8, 8)],
    constants={"w": np.ones((8, 3, 3, 3), np.float32)}))  # fmt: skip
refused("groups_of_a_convolution", lambda: model(
    node("Conv", "x w", group=3), [floats(1, 4, 8, 8)],
    constants={"w": np.ones((8, 1, 3, 3), np.float32)}))  # fmt: skip
refused("kernel_larger_than_the_image", lambda: model(
    node("Conv", "x w"), [floats(1, 3, 4, 4)],
    constants={"w": np.ones((8, 3, 7, 7), np.float32)}))  # fmt: skip
refused("pads_of_a_convolution", lambda: model(
    node("Conv", "x w", pads=[1, 1]), [floats(1, 3, 8, 8)],
    constants={"w": np.ones((8, 3, 3, 3), np.float32)}))  # fmt: skip
refused("strides_of_zero", lambda: model(
    node("MaxPool", kernel_shape=[2, 2], strides=[0, 1]), [floats(1, 3, 8, 8)]))  # fmt: skip
refused("axis_of_a_softmax", lambda: model(node("Softmax", axis=2)))
refused("axis_of_a_concat", lambda: model(node("Concat", "x x", axis=-3)))
refused("dimensions_of_a_concat", lambda: model(
    node("Concat", "x z", axis=0), [floats(2, 3), floats(2, 4, name="z")]))  # fmt: skip
refused("axes_of_a_sum", lambda: model(node("ReduceSum", "x a"), constants={"a": i64(5)}))
refused("permutation", lambda: model(node("Transpose", perm=[0, 0])))
refused("squeeze_of_another_size_than_1", lambda: model(
    node("Squeeze", "x a"), constants={"a": i64(0)}))  # fmt: skip
refused("step_of_zero", lambda: model(
    node("Slice", "x zero one zero zero"), constants={"zero": i64(0), "one": i64(1)}))  # fmt: skip
refused("number_of_pads", lambda: model(node("Pad", "x p"), constants={"p": i64(1, 1)}))
refused("sizes_of_a_split", lambda: model(
    node("Split", "x s", "y z"), outputs="y z", constants={"s": i64(1, 2)}))  # fmt: skip
refused("expand_to_another_shape", lambda: model(
    node("Expand", "x s"), constants={"s": i64(2, 4)}))  # fmt: skip
refused("reshape_to_another_number_of_elements", lambda: model(
    node("Reshape", "x s"), constants={"s": i64(4, 2)}))  # fmt: skip
refused("reshape_with_two_open_dimensions", lambda: model(
    node("Reshape", "x s"), constants={"s": i64(-1, -1)}))  # fmt: skip
refused("reshape_to_a_negative_dimension", lambda: model(
    node("Reshape", "x s"), constants={"s": i64(-2, 3)}))  # fmt: skip
refused("equation", lambda: model(node("Einsum", "x x", equation="ij,jk->iq")))
refused("resize_to_nothing_given", lambda: model(node("Resize"), [floats(1, 1, 4, 4)]))
refused("statistics_without_training", lambda: model(
    node("BatchNormalization", "x a a a a", "y m v"), [floats(2, 3)],
    constants={"a": np.ones(3, np.float32)}))  # fmt: skip
refused("scales_that_do_not_fit", lambda: model(
    node("QuantizeLinear", "x s"), [floats(2, 3)],
    constants={"s": np.ones(2, np.float32)}))  # fmt: skip
refused("one_label_that_is_a_name", lambda: model(
    node("LinearClassifier", "x", "label scores", domain="ai.onnx.ml", coefficients=[1.0],
         classlabels_strings=["a"]), [floats(2, 1)], outputs="scores",
    domains={"ai.onnx.ml": 1}))  # fmt: skip
refused("inputs_too_large_for_memory", lambda: model(node("Relu"), [floats(2**40, 2**20)]))
refused("result_too_large_for_memory", lambda: model(
    node("ConstantOfShape", "s"), constants={"s": i64(2**40, 8)}))  # fmt: skip
refused("result_of_more_elements_than_numbers", lambda: model(
    node("Expand", "x s"), [floats(1, 1)], constants={"s": i64(2**62, 2**62)}))  # fmt: skip


def negative_dimension() -> onnx.ModelProto:
    out = model(node("Relu"))
    out.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -2
    return out


refused("negative_dimension", negative_dimension)


def other_output_type() -> onnx.ModelProto:
    out = model(node("Relu"))
    out.graph.output[0].CopyFrom(ints(2, 3, name="y"))
    return out


refused("output_of_another_dtype_than_declared", other_output_type)

# ---------------------------------------------------------------------------- inputs and tensors


def typed(code: int, op: str = "Identity", **attributes: Any) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", code, [2])]
    return model(node(op, **attributes), inputs, opset=28)


refused("complex_arithmetic", lambda: typed(TensorProto.COMPLEX64, "Neg"))
refused("arithmetic_on_strings", lambda: typed(TensorProto.STRING, "Neg"))
refused("cast_to_complex", lambda: typed(FLOAT, "Cast", to=TensorProto.COMPLEX64))
refused("cast_by_an_unknown_round_mode", lambda: typed(
    FLOAT, "Cast", to=TensorProto.FLOAT8E8M0, round_mode="odd"))  # fmt: skip
refused("bits_of_another_width", lambda: typed(FLOAT, "BitCast", to=TensorProto.FLOAT16))
refused("input_of_an_unknown_type", lambda: typed(99))
refused("input_without_a_type", lambda: model(node("Relu"), [onnx.ValueInfoProto(name="x")]))
refused("input_without_a_rank", lambda: model(
    node("Relu"), [helper.make_tensor_value_info("x", FLOAT, None)]))  # fmt: skip
MAP = onnx.TypeProto.Map(key_type=onnx.TensorProto.INT64, value_type=floats().type)
refused("map_input", lambda: model(
    node("Relu"), [helper.make_value_info("x", onnx.TypeProto(map_type=MAP))]))  # fmt: skip


def tensor(**changes: Any) -> onnx.ModelProto:
    weight = numpy_helper.from_array(SQUARE, "w")
    for name, value in changes.items():
        if name == "dims":
            del weight.dims[:]
            weight.dims.extend(value)
        else:
            setattr(weight, name, value)
    return model(node("Add", "x w"), [floats(3, 3)], constants={"w": weight})


refused("initialiser_of_too_few_bytes", lambda: tensor(raw_data=bytes(20)))
refused("initialiser_of_another_shape", lambda: tensor(dims=[3, 4]))
refused("initialiser_of_a_negative_shape", lambda: tensor(dims=[-3, -3]))
refused("initialiser_too_large_for_memory", lambda: tensor(dims=[2**40, 2**40]))
refused("initialiser_of_text", lambda: tensor(data_type=TensorProto.STRING))
refused("initialiser_of_an_unknown_type", lambda: tensor(data_type=77))


def default_of_another_shape() -> onnx.ModelProto:
    return model(
        node("Add", "x w"), [floats(3, 3), floats(3, 4, name="w")], constants={"w": SQUARE}
    )


refused("default_of_another_shape", default_of_another_shape)


def external(location: str, **facts: int) -> onnx.ModelProto:
    out = tensor()
    weight = out.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **facts}.items():
        weight.external_data.add(key=key, value=str(value))
    return out


def outside(name: str, location: str, size: int | None = 36, **facts: int) -> None:
    """A case of a model whose weight lies in another file, of so many bytes."""

    def run(folder: Path) -> object:
        if size is not None:
            (folder / "weights.bin").write_bytes(bytes(size))
        (folder / "m.onnx").write_bytes(external(location, **facts).SerializeToString())
        return planish.compile(folder / "m.onnx")

    run.__name__ = name
    case(run)


outside("external_data_that_are_missing", "weights.bin", None)
outside("external_data_outside_of_the_folder", "../weights.bin")
outside("external_data_at_an_absolute_path", "/etc/passwd")
outside("external_data_that_are_too_short", "weights.bin", 30)
outside("external_data_beyond_the_end", "weights.bin", offset=4096)
outside("external_data_of_another_length", "weights.bin", length=4)
outside("external_data_at_a_negative_place", "weights.bin", offset=-4)
refused("external_data_of_a_model_in_memory", lambda: external("weights.bin"))
