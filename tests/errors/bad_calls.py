"""Calls of a module that do not fit it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import planish
from planish.runtime.module import Module

from .cases import CASES, Array, floats, ints, layer, model, node

X = np.ones((2, 16), np.float32)
K = np.ones(2, np.int64)
VAST = np.broadcast_to(np.int64(1), 1 << 50)


@cache
def compiled() -> Module:
    return planish.compile(layer())


@cache
def pair() -> Module:
    """x [n, n + m] and z [m], added along the last m columns: sizes that depend on each other."""
    nodes = [node("Concat", "x z", "both", axis=0), node("Reshape", "both s", "y")]
    made = model(
        nodes,
        [floats("n", 4), floats("m", 4, name="z")],
        constants={"s": np.array([-1, 8], np.int64)},
    )
    return planish.compile(made)


@cache
def gathering() -> Module:
    """Elements of x [n] at the places k [m]."""
    return planish.compile(model(node("Gather", "x k"), [floats("n"), ints("m")]))


@cache
def by_data() -> Module:
    """x [6] in the shape k, which the call tells."""
    return planish.compile(model(node("Reshape", "x k"), [floats(6), ints(2)]))


@cache
def shaped() -> Module:
    """x [n, 16] in the shape k, which the call tells."""
    return planish.compile(model(node("Reshape", "x k"), [floats("n", 16), ints(3)]))


@cache
def filled() -> Module:
    """Ones in the shape k, which the call tells."""
    return planish.compile(model(node("ConstantOfShape", "k"), [ints(3)]))


@cache
def reduced() -> Module:
    """x [2, 3] reduced along an axis that the call tells."""
    return planish.compile(model(node("ReduceSum", "x k"), [floats(2, 3), ints(1)]))


@cache
def reading() -> Module:
    """The numbers that the strings x [2] are."""
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    return planish.compile(model(node("Cast", "x", to=TensorProto.INT64), [text]))


def call(name: str, *arguments: Any, module: Callable[[], Module] = compiled) -> None:
    assert name not in CASES, name
    CASES[name] = lambda _: module()(*arguments)


def run(name: str, inputs: Any, **options: Any) -> None:
    assert name not in CASES, name
    CASES[name] = lambda _: compiled().run(inputs, **options)


call("too_few_arguments", X)
call("too_many_arguments", X, K, K)
call("argument_of_another_dtype", X.astype(np.float64), K)
call("argument_of_another_byte_order", X.astype(">f4"), K)
call("argument_of_text", np.array(["a", "b"]), K)
call("argument_of_objects", np.array([None, 1]), K)
call("element_that_is_no_string", np.array(["1", 2], object), module=reading)
call("element_that_is_not_utf_8", np.array(["1", b"\xff"], object), module=reading)
call("string_that_is_no_number", np.array(["1", "two"]), module=reading)
call("string_out_of_range", np.array(["1", "1e99"]), module=reading)
call("argument_that_is_a_list", X.tolist(), K)
call("argument_that_is_nothing", None, K)
call("argument_that_is_text", "x", K)
call("argument_of_lower_rank", X[0], K)
call("argument_of_higher_rank", X[None], K)
call("argument_of_another_shape", X[:, :15], K)
call("sizes_that_two_inputs_have", X, np.ones(3, np.int64))
call("condition_on_sizes", X[:1, :4], X[:2, :4], module=pair)
call("elements_of_nothing", X[0, :0], K, module=gathering)
call("sizes_of_nothing_that_no_array_can_have", X[:0], np.array([1 << 40, 1 << 40, 0]),
     module=shaped)  # fmt: skip
call("argument_too_large_for_memory", np.broadcast_to(np.float32(1), (1 << 50, 16)), VAST)
run("missing_name", {"x": X})
run("unknown_name", {"x": X, "k": K, "w": X})
run("inputs_that_are_a_list", [X, K])
run("output_array_of_another_shape", {"x": X, "k": K}, out={"y": X, "z": K})
run("output_that_is_missing", {"x": X, "k": K}, out={"y": X})
run("output_that_is_unknown", {"x": X, "k": K}, out={"y": X, "q": K})
run("outputs_that_are_a_list", {"x": X, "k": K}, out=[X, K])

CASES["output_that_is_a_number"] = lambda _: compiled()(X, K, out=5)  # type: ignore[arg-type]
CASES["output_that_is_read_only"] = lambda _: compiled()(X, K, out=(read_only(X[:, :8]), K))


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


# ------------------------------------------------------------------------------ kinds of arrays

F32 = np.float32
call("argument_that_is_one_number", 1.0, K)
call("argument_of_records", np.zeros(2, [("a", F32), ("b", F32)]), K)
call("argument_of_dates", np.zeros((2, 16), "datetime64[s]"), K)
call("argument_of_complex_numbers", X.astype(np.complex64), K)
call("argument_of_narrower_integers", X, K.astype(np.int32))
call("argument_of_bools", X, K.astype(bool))
call("argument_of_no_rows", X[:0], K)
CASES["outputs_that_are_too_few"] = lambda _: compiled()(X, K, out=(X[:, :8].copy(),))
CASES["output_that_is_a_list"] = lambda _: compiled()(X, K, out=([0.0], K))
CASES["output_that_only_data_sizes"] = lambda _: filled()(np.ones(3, np.int64), out=(X,))


class Elsewhere:
    """An array that says that it lies on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> object:
        raise BufferError("the array lies on another device")


call("argument_on_another_device", Elsewhere(), K)
CASES["pickling_a_module"] = lambda _: pickle.dumps(compiled())


# ------------------------------------------------------------------------------------ sequences


@cache
def of_lists() -> Module:
    """The element k of a sequence of f32[2]."""
    ports = [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2]), ints()]
    return planish.compile(model(node("SequenceAt", "s k"), ports))


PAIR, FIRST = np.ones(2, F32), np.array(0)
call("sequence_that_is_an_array", PAIR, FIRST, module=of_lists)
call("sequence_of_another_dtype", [PAIR, PAIR.astype(np.float64)], FIRST, module=of_lists)
call("sequence_of_another_shape", [PAIR, np.ones(3, F32)], FIRST, module=of_lists)
call("sequence_of_lists", [[1.0, 2.0]], FIRST, module=of_lists)
call("sequence_that_is_nothing", None, FIRST, module=of_lists)
call("place_behind_a_sequence", [PAIR, PAIR], np.array(2), module=of_lists)
call("place_in_an_empty_sequence", [], FIRST, module=of_lists)

# --------------------------------------------------------------------------------- what data tells

SIX = np.ones(6, np.float32)
call("shape_of_data_that_does_not_fit", SIX, np.array([4, 2]), module=by_data)
call("shape_of_data_with_a_negative_size", SIX, np.array([-3, -2]), module=by_data)
call("shape_of_data_too_large", np.array([1 << 40, 1 << 40, 8]), module=filled)
call("shape_of_data_too_large_for_memory", np.array([1 << 22, 1 << 22, 1]), module=filled)


def told(
    name: str, operator: str, ports: list[onnx.ValueInfoProto], *arguments: Any, **attributes: Any
) -> None:
    """A case of a node whose sizes the last of its inputs tell."""
    names, outputs = " ".join(p.name for p in ports), "y z" if operator == "TopK" else "y"

    @cache
    def module() -> Module:
        return planish.compile(model(node(operator, names, outputs, **attributes), ports, opset=18))

    call(name, *arguments, module=module)


SQUARE = np.ones((2, 3), F32)
ROWS = floats(2, 3)
told("more_of_data_than_there_are", "TopK", [ROWS, ints(1)], SQUARE, np.array([4]))
told("repeats_of_data", "Tile", [ROWS, ints(2)], SQUARE, np.array([2, -1]))
told("shape_of_data_that_does_not_broadcast", "Expand", [ROWS, ints(2)], SQUARE, np.array([2, 2]))
told("parts_of_data", "Split", [ROWS, ints(1)], SQUARE, np.array([3]))
told("pads_of_data", "Pad", [ROWS, ints(4)], SQUARE, np.array([0, -4, 0, 0]))
told("sizes_of_data_of_an_image", "Resize", [floats(1, 1, 2, 2), floats(0, name="r"),
     floats(0, name="q"), ints(4)], np.ones((1, 1, 2, 2), F32), PAIR[:0], PAIR[:0],
     np.array([1, 1, -2, 4]))  # fmt: skip
told("step_of_data", "Range", [ints(name="a"), ints(name="b"), ints(name="c")],
     np.array(0), np.array(5), np.array(0))  # fmt: skip
told("depth_of_data", "OneHot", [ints(2), ints(name="d"), floats(2, name="v")],
     K, np.array(-2), PAIR)  # fmt: skip
call("axis_of_data_out_of_range", SIX.reshape(2, 3), np.array([2]), module=reduced)
