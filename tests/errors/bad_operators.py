"""Operators whose inputs, shapes or attributes do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .cases import FLOAT, floats, ints, model, node, refused


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def port(name: str, kind: int, *dims: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def wrong(
    name: str,
    operator: str,
    inputs: str,
    ports: list[onnx.ValueInfoProto] | None = None,
    constants: dict[str, Any] | None = None,
    outputs: str = "y",
    opset: int = 23,
    domain: str = "",
    version: int = 1,
    **attributes: Any,
) -> None:
    """A case of a model of one node."""
    domains = {domain: version} if domain else None
    if domain:
        attributes["domain"] = domain
    refused(name, lambda: model(
        node(operator, inputs, outputs, **attributes), ports or (), constants=constants,
        outputs=outputs.split()[-1], opset=opset, domains=domains))  # fmt: skip


# -------------------------------------------------------------------------- products, convolutions

IMAGE = [floats(1, 4, 8, 8)]
wrong("batches_of_a_product", "MatMul", "x z", [floats(2, 3, 4), floats(3, 4, 5, name="z")])
wrong("bias_of_a_gemm", "Gemm", "x w b", [floats(2, 4)], {"w": f32(4, 5), "b": f32(4)})
wrong("bias_of_a_convolution", "Conv", "x w b", IMAGE, {"w": f32(6, 4, 3, 3), "b": f32(4)})
wrong("weights_of_another_rank", "Conv", "x w", IMAGE, {"w": f32(6, 4, 3)})
wrong("kernel_shape_of_other_weights", "Conv", "x w", IMAGE, {"w": f32(6, 4, 3, 3)},
      kernel_shape=[5, 5])  # fmt: skip
wrong("unknown_padding", "Conv", "x w", IMAGE, {"w": f32(6, 4, 3, 3)}, auto_pad="SOME")
wrong("groups_of_zero", "Conv", "x w", IMAGE, {"w": f32(6, 4, 3, 3)}, group=0)
wrong("channels_of_a_transposed_convolution", "ConvTranspose", "x w", IMAGE, {"w": f32(3, 4, 3, 3)})
wrong("dilation_that_no_place_can_hold", "Conv", "x w", IMAGE, {"w": f32(6, 4, 3, 3)},
      dilations=[1 << 61, 1], pads=[1 << 61, 0, 1 << 61, 0])  # fmt: skip
wrong("stride_of_a_window_that_no_place_can_hold", "MaxPool", "x", IMAGE,
      kernel_shape=[3, 3], strides=[1, 1 << 31])  # fmt: skip
wrong("channels_around_that_no_place_can_hold", "LRN", "x", IMAGE, size=(1 << 62) + 1)
wrong("pads_that_no_place_can_hold", "Pad", "x p", IMAGE, {"p": i64(*(0, 0, 1 << 62, 0) * 2)})
wrong("open_length_of_index_tuples", "GatherND", "x k", [floats(4, 4), ints(2, "r")])
wrong("sizes_that_no_array_can_have", "Reshape", "x s", [floats(1, "n")],
      {"s": i64(1 << 32, 1 << 32, 0)}, allowzero=1)  # fmt: skip
wrong("offsets_of_a_deformed_convolution", "DeformConv", "x w o", IMAGE,
      {"w": f32(6, 4, 3, 3), "o": f32(1, 17, 6, 6)})  # fmt: skip
wrong("pooling_without_a_window", "MaxPool", "x", IMAGE)
wrong("pooling_of_another_rank", "AveragePool", "x", IMAGE, kernel_shape=[2])
wrong("pooling_of_integers", "AveragePool", "k", [ints(1, 1, 4, 4)], kernel_shape=[2, 2])

# -------------------------------------------------------------------- recurrent networks, attention

SERIES = [floats(5, 2, 3)]
wrong("weights_of_an_lstm", "LSTM", "x w r", SERIES, {"w": f32(1, 16, 4), "r": f32(1, 16, 4)},
      hidden_size=4)  # fmt: skip
wrong("recurrence_of_a_gru", "GRU", "x w r", SERIES, {"w": f32(1, 12, 3), "r": f32(1, 16, 4)},
      hidden_size=4)  # fmt: skip
wrong("unknown_direction", "RNN", "x w r", SERIES, {"w": f32(1, 4, 3), "r": f32(1, 4, 4)},
      hidden_size=4, direction="sideways")  # fmt: skip
wrong("unknown_activation", "RNN", "x w r", SERIES, {"w": f32(1, 4, 3), "r": f32(1, 4, 4)},
      hidden_size=4, activations=["Sine"])  # fmt: skip
wrong("state_of_an_lstm", "LSTM", "x w r - - h", SERIES,
      {"w": f32(1, 16, 3), "r": f32(1, 16, 4), "h": f32(1, 3, 4)}, hidden_size=4)  # fmt: skip
wrong("heads_that_do_not_divide", "Attention", "x x x", [floats(1, 6, 10)], q_num_heads=3,
      kv_num_heads=3)  # fmt: skip
wrong("keys_of_another_width", "Attention", "x k v",
      [floats(1, 2, 6, 8), floats(1, 2, 6, 4, name="k"), floats(1, 2, 6, 8, name="v")])  # fmt: skip
wrong("queries_per_key", "Attention", "x k k", [floats(1, 3, 6, 8), floats(1, 2, 6, 8, name="k")])
wrong("mask_of_another_length", "Attention", "x x x m",
      [floats(1, 2, 6, 8), floats(6, 5, name="m")])  # fmt: skip
wrong("rotation_of_an_odd_width", "RotaryEmbedding", "x c c", [floats(1, 2, 4, 7)],
      {"c": f32(1, 4, 3)})  # fmt: skip

# ------------------------------------------------------------------------------- normalisations

wrong("axis_of_a_layer_normalization", "LayerNormalization", "x s", constants={"s": f32(3)}, axis=4)
wrong("scale_of_a_layer_normalization", "LayerNormalization", "x s", constants={"s": f32(4)})
wrong("statistics_of_a_batch", "BatchNormalization", "x s s m s", IMAGE,
      {"s": f32(4), "m": f32(5)})  # fmt: skip
wrong("groups_of_a_normalization", "GroupNormalization", "x s s", IMAGE, {"s": f32(4)},
      num_groups=3)  # fmt: skip
wrong("scale_of_instances", "InstanceNormalization", "x s s", IMAGE, {"s": f32(3)})

# ----------------------------------------------------------------------------- indices and shapes

wrong(
    "index_deeper_than_the_tensor", "GatherND", "x k", constants={"k": np.zeros((1, 3), np.int64)}
)
wrong("index_of_another_rank", "GatherElements", "x k", constants={"k": i64(0)})
wrong("updates_of_another_shape", "ScatterND", "x k u", constants={
    "k": np.zeros((2, 1), np.int64), "u": f32(2, 2)})  # fmt: skip
wrong("unknown_reduction", "ScatterElements", "x k x", constants={
    "k": np.zeros((2, 3), np.int64)}, reduction="median")  # fmt: skip
wrong("axis_of_a_gather", "Gather", "x k", constants={"k": i64(0)}, axis=2)
wrong("constant_index_out_of_range", "Gather", "x k", constants={"k": i64(0, 7)})
wrong("more_than_there_are", "TopK", "x k", constants={"k": i64(4)}, outputs="y z")
wrong("depth_that_is_negative", "OneHot", "k d v", [ints(2)], {"d": i64(-3), "v": f32(2)})
wrong("axis_of_a_running_sum", "CumSum", "x a", constants={"a": np.array(2, np.int64)})
wrong("triangle_of_a_vector", "Trilu", "x", [floats(3)])
wrong("number_of_repeats", "Tile", "x k", constants={"k": i64(2)})
wrong("repeats_that_are_negative", "Tile", "x k", constants={"k": i64(2, -1)})
wrong("unknown_way_of_padding", "Pad", "x k", constants={"k": i64(1, 1, 1, 1)}, mode="mirror")
wrong("crop_of_more_than_there_is", "Pad", "x k", constants={"k": i64(0, -2, 0, -2)})
wrong("blocks_that_do_not_divide", "DepthToSpace", "x", [floats(1, 6, 4, 4)], blocksize=4)
wrong("blocks_of_zero", "SpaceToDepth", "x", IMAGE, blocksize=0)
wrong("range_without_a_step", "Range", "a b z", [floats()], {
    "a": np.array(0), "b": np.array(5), "z": np.array(0)})  # fmt: skip
wrong("axis_out_of_a_flat_shape", "Flatten", "x", axis=3)
wrong("axes_twice", "Unsqueeze", "x a", constants={"a": i64(1, 1)})
wrong("equation_of_other_ranks", "Einsum", "x x", equation="ijk,jk->i")
wrong("equation_of_other_operands", "Einsum", "x", equation="ij,jk->ik")
wrong("equation_that_is_none", "Einsum", "x", equation="i%->i")
wrong("parts_of_a_split", "Split", "x", outputs="y z", num_outputs=4)
wrong("mask_of_a_choice", "Where", "x x x")
wrong("mask_of_another_length_than_the_axis", "Compress", "x m", constants={
    "m": np.ones((2, 2), bool)}, axis=0)  # fmt: skip
wrong("shape_of_floats", "Reshape", "x s", constants={"s": f32(2)})
wrong("scalar_that_is_a_vector", "ConstantOfShape", "k", [ints(2)],
      value=helper.make_tensor("v", FLOAT, [2], [1.0, 2.0]))  # fmt: skip

# ----------------------------------------------------------------------------- images, boxes, sound

wrong("unknown_interpolation", "Resize", "x - s", IMAGE, {"s": f32(4)}, mode="lanczos")
wrong("scales_and_sizes", "Resize", "x - s k", IMAGE, {"s": f32(4), "k": i64(1, 4, 8, 8)})
wrong("scale_of_zero", "Resize", "x - s", IMAGE, {"s": np.array([1, 1, 0, 1], np.float32)})
wrong("scales_of_another_rank", "Resize", "x - s", IMAGE, {"s": f32(3)})
wrong("unknown_coordinates", "Resize", "x - s", IMAGE, {"s": f32(4)},
      coordinate_transformation_mode="polar")  # fmt: skip
wrong(
    "grid_of_another_rank", "GridSample", "x z", [floats(1, 4, 8, 8), floats(1, 5, 5, 3, name="z")]
)
wrong("boxes_of_three_numbers", "NonMaxSuppression", "b s", [
    floats(1, 6, 3, name="b"), floats(1, 1, 6, name="s")])  # fmt: skip
wrong("boxes_without_an_image", "RoiAlign", "x b k", [
    *IMAGE, floats(6, 4, name="b"), ints(5)])  # fmt: skip
wrong("axis_of_a_transform", "DFT", "x - a", [floats(2, 8, 1)], {"a": np.array(5, np.int64)})
wrong("signal_of_three_parts", "DFT", "x", [floats(2, 8, 3)])
wrong("frame_longer_than_the_signal", "STFT", "x s - l", [floats(1, 16, 1)], {
    "s": np.array(4, np.int64), "l": np.array(32, np.int64)})  # fmt: skip

# ------------------------------------------------------------------------------------------ dtypes

wrong("zero_point_of_another_dtype", "DequantizeLinear", "k s z",
      [port("k", TensorProto.INT8, 2, 3)],
      {"s": np.array(1, np.float32), "z": np.array(0, np.uint8)})  # fmt: skip
wrong("precision_that_is_no_float", "QuantizeLinear", "x s", [floats(2, 3)],
      {"s": np.array(1, np.float32)}, precision=TensorProto.UINT8)  # fmt: skip
wrong("product_of_floats_as_integers", "MatMulInteger", "x x", [floats(3, 3)])
wrong("bounds_of_another_dtype", "Clip", "x a", constants={"a": np.array(0.0)})
wrong("exponent_of_text", "Mod", "x x")
wrong("unknown_shift", "BitShift", "k k", [port("k", TensorProto.UINT8, 2)], direction="UP")
wrong("cast_to_an_unknown_type", "Cast", "x", to=99)
wrong("cast_to_no_type", "Cast", "x", to=0)
wrong("constant_of_nothing", "Constant", "")
wrong("constant_of_two_values", "Constant", "", value_int=1, value_float=2.0)
wrong("logic_of_numbers", "And", "x x")
wrong("root_of_integers", "Sqrt", "k", [ints(2)])

# ----------------------------------------------------------------------------- classical models

TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}  # fmt: skip


def tree(name: str, **changes: Any) -> None:
    wrong(name, "TreeEnsembleRegressor", "x", domain="ai.onnx.ml", **{**TREE, **changes})


tree("tree_that_branches_to_nowhere", nodes_truenodeids=[7, 0, 0])
tree("tree_in_a_circle", nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
     nodes_falsenodeids=[2, 0, 0])  # fmt: skip
tree("tree_of_unequal_lists", nodes_values=[0.5])
tree("tree_of_an_unknown_mode", nodes_modes=["BRANCH_MAYBE", "LEAF", "LEAF"])
tree("tree_of_a_missing_feature", nodes_featureids=[9, 0, 0])
wrong("coefficients_that_do_not_fit", "LinearRegressor", "x", domain="ai.onnx.ml",
      coefficients=[1.0, 2.0], targets=1)  # fmt: skip
wrong("keys_without_values", "LabelEncoder", "k", [ints(2)], domain="ai.onnx.ml",
      keys_int64s=[1, 2], values_int64s=[1], version=2)  # fmt: skip
