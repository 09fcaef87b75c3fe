"""Calls of a module that do not fit it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

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
def filled() -> Module:
    """Ones in the shape k, which the call tells."""
    return planish.compile(model(node("ConstantOfShape", "k"), [ints(3)]))


@cache
def reduced() -> Module:
    """x [2, 3] reduced along an axis that the call tells."""
    return planish.compile(model(node("ReduceSum", "x k"), [floats(2, 3), ints(1)]))


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
call("argument_that_is_a_list", X.tolist(), K)
call("argument_that_is_nothing", None, K)
call("argument_that_is_text", "x", K)
call("argument_of_lower_rank", X[0], K)
call("argument_of_higher_rank", X[None], K)
call("argument_of_another_shape", X[:, :15], K)
call("sizes_that_two_inputs_have", X, np.ones(3, np.int64))
call("condition_on_sizes", X[:1, :4], X[:2, :4], module=pair)
call("elements_of_nothing", X[0, :0], K, module=gathering)
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


# --------------------------------------------------------------------------------- what data tells

SIX = np.ones(6, np.float32)
call("shape_of_data_that_does_not_fit", SIX, np.array([4, 2]), module=by_data)
call("shape_of_data_with_a_negative_size", SIX, np.array([-3, -2]), module=by_data)
call("shape_of_data_too_large", np.array([1 << 40, 1 << 40, 8]), module=filled)
call("shape_of_data_too_large_for_memory", np.array([1 << 22, 1 << 22, 1]), module=filled)
call("axis_of_data_out_of_range", SIX.reshape(2, 3), np.array([2]), module=reduced)
