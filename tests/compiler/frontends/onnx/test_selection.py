"""Handlers of operators that write at chosen places, or choose what to keep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx_harness import check, expected, model_of, node

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.ops.sampling import bools, f32, ints


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def op_names(nodes: object) -> list[str]:
    return [x.op.name for x in nodes]  # type: ignore[attr-defined]


@pytest.mark.parametrize("opset", [7, 9])
def test_top_k_by_attribute(opset: int) -> None:
    x = {"x": f32(3, 7)}
    want = [np.sort(x["x"], 0)[::-1][:2], np.argsort(-x["x"], 0)[:2]]
    check(node("TopK", "x", "v i", k=2, axis=0), x, opset=opset, want=want)


@pytest.mark.parametrize("opset", [10, 11, 24])
def test_top_k(opset: int) -> None:
    for k, axis in itertools.product((1, 4), (0, -1)):
        inputs = {"x": f32(4, 4, 5)}
        check(node("TopK", "x k", "v i", axis=axis), inputs, constants={"k": i64(k)}, opset=opset)
        made = node("TopK", "x k", "v i", axis=axis)
        check(made, {**inputs, "k": i64(k)}, opset=opset, symbolic=False)
    if opset >= 11:
        for dtype in ("float32", "int64"):
            inputs = {"x": ints(30, low=0, high=9).astype(dtype)}
            made = node("TopK", "x k", "v i", largest=0, sorted=1)
            check(made, inputs, constants={"k": i64(12)}, opset=opset)
        made, inputs = (
            node("TopK", "x k", "v i", sorted=0),
            {"x": f32(9)},
        )
        # No order is asked for, so this one is right.
        want = [np.sort(inputs["x"])[::-1], np.argsort(-inputs["x"])]
        check(made, inputs, constants={"k": i64(9)}, opset=opset, want=want)


def test_top_k_of_too_many_is_refused() -> None:
    model = model_of(node("TopK", "x k", "v i"), {"x": f32(3)}, constants={"k": i64(4)})
    with pytest.raises(PlanishError, match="4 elements of 3"):
        import_model(model)


@pytest.mark.parametrize(("op_type", "opset"), [("Scatter", 9), ("Scatter", 10)])
def test_scatter(op_type: str, opset: int) -> None:
    inputs = {"x": f32(4, 5), "i": ints(1, 5, low=0, high=4), "u": f32(1, 5)}
    check(node(op_type, "x i u"), inputs, opset=opset)
    check(node(op_type, "x i u", axis=1), {**inputs, "i": i64(3, 1, 0, 2, 4)[None]}, opset=opset)


@pytest.mark.parametrize("opset", [11, 13, 16, 18])
def test_scatter_elements(opset: int) -> None:
    inputs = {"x": f32(4, 5), "i": i64(3, -1, 0, -4, 2)[None], "u": f32(1, 5)}
    check(node("ScatterElements", "x i u"), inputs, opset=opset)
    known = {11: [], 13: [], 16: ["none", "add", "mul"], 18: ["none", "add", "mul", "min", "max"]}
    for reduction in known[opset]:
        inputs = {"x": f32(3, 4), "i": ints(3, 9, low=-4, high=4), "u": f32(3, 9)}
        if reduction == "none":
            inputs = {**inputs, "i": i64(1, 3, 0)[:, None], "u": f32(3, 1)}
        made = node("ScatterElements", "x i u", axis=1, reduction=reduction)
        check(made, inputs, opset=opset)
    if opset == 16:
        model = model_of(node("ScatterElements", "x i u", reduction="max"), inputs, opset=opset)
        with pytest.raises(ImportModelError, match="no reduction max"):
            import_model(model)


@pytest.mark.parametrize("opset", [11, 13, 16, 18])
def test_scatter_nd(opset: int) -> None:
    inputs = {"x": f32(4, 5, 3), "i": i64(3, -1, 0)[:, None], "u": f32(3, 5, 3)}
    check(node("ScatterND", "x i u"), inputs, opset=opset, symbolic=False)
    inputs = {"x": f32(4, 5, 3), "i": i64(3, -1, 0, 2)[:, None].reshape(2, 2), "u": f32(2, 3)}
    check(node("ScatterND", "x i u"), inputs, opset=opset, symbolic=False)
    known = {11: [], 13: [], 16: ["add", "mul"], 18: ["add", "mul", "min", "max"]}
    for reduction in known[opset]:
        inputs = {"x": ints(4, 2), "i": ints(6, 1, low=-4, high=4), "u": ints(6, 2)}
        made = node("ScatterND", "x i u", reduction=reduction)
        check(made, inputs, opset=opset, symbolic=False)


def test_tensor_scatter() -> None:
    inputs = {"x": f32(2, 3, 6, 4), "u": f32(2, 3, 2, 4), "w": i64(4, 0)}
    check(node("TensorScatter", "x u w"), inputs, opset=24)
    check(node("TensorScatter", "x u w", mode="linear", axis=-2), inputs, opset=24)
    inputs["w"] = i64(5, 1)
    check(node("TensorScatter", "x u w", mode="circular", axis=2), inputs, opset=24)
    del inputs["w"]
    check(node("TensorScatter", "x u"), inputs, opset=24)


@pytest.mark.parametrize("opset", [10, 28])
def test_reverse_sequence(opset: int) -> None:
    inputs = {"x": f32(5, 3, 2), "l": i64(5, 1, 3)}
    check(node("ReverseSequence", "x l"), inputs, opset=opset)
    inputs = {"x": f32(3, 5), "l": i64(5, 1, 3)}
    made = node("ReverseSequence", "x l", batch_axis=0, time_axis=1)
    check(made, inputs, opset=opset)


@pytest.mark.parametrize("opset", [9, 13])
def test_nonzero(opset: int) -> None:
    for x in (ints(3, 4, low=-1, high=2), bools(9), np.zeros(3, np.float32), f32(2, 2, 2)):
        check(node("NonZero", "x"), {"x": x}, opset=opset)


def test_nonzero_of_what_is_known() -> None:
    x = ints(3, 4, low=-1, high=2)
    model = model_of(node("NonZero", "c"), {}, constants={"c": x}, opset=13)
    count = np.count_nonzero(x)
    assert str(import_model(model).outputs[0].type) == f"i64[2, {count}]"


@pytest.mark.parametrize("opset", [9, 11, 28])
def test_compress(opset: int) -> None:
    for count, given in ((5, {"axis": 1}), (3, {"axis": 1}), (4, {"axis": -2}), (20, {}), (7, {})):
        inputs = {"x": f32(4, 5), "c": bools(count)}
        check(node("Compress", "x c", **given), inputs, opset=opset)


@pytest.mark.parametrize("opset", [11, 28])
def test_unique(opset: int) -> None:
    outputs = "y indices inverse counts"
    for is_sorted, given in itertools.product((0, 1), ({}, {"axis": 0}, {"axis": -1})):
        made = node("Unique", "x", outputs, sorted=is_sorted, **given)
        inputs = {"x": ints(6, 3, low=0, high=2).astype(np.float32)}
        check(made, inputs, opset=opset, want=expected(model_of(made, inputs, opset=11), inputs))
    check(node("Unique", "x", "y - inverse"), {"x": ints(20, low=0, high=5)}, opset=opset)
    check(node("Unique", "x"), {"x": ints(2, 3, 4, low=0, high=5)}, opset=opset)


def test_cumprod() -> None:
    for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, -1)):
        made = node("CumProd", "x a", exclusive=exclusive, reverse=reverse)
        for given in ({"constants": {"a": np.array(axis)}}, {}):
            inputs = {"x": f32(3, 5)} if given else {"x": f32(3, 5), "a": np.array(axis)}
            check(made, inputs, opset=26, **given)


@pytest.mark.parametrize("opset", [11, 14])
def test_cumsum_along_an_axis_of_the_data(opset: int) -> None:
    for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, 1, -1, -2)):
        made = node("CumSum", "x a", exclusive=exclusive, reverse=reverse)
        check(made, {"x": f32(3, 5), "a": np.array(axis)}, opset=opset)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_one_hot_of_a_depth_of_the_data(dtype: str) -> None:
    inputs = {"i": ints(2, 3, low=-5, high=6), "d": np.array([4], dtype), "v": f32(2)}
    check(node("OneHot", "i d v"), inputs, opset=11, symbolic=False)


def test_what_is_chosen_goes_on() -> None:
    """The symbols of counted extents flow through what follows."""
    nodes = [
        node("NonZero", "x", "places"),
        node("Transpose", "places", "t"),
        node("GatherND", "x t", "found"),
        node("TopK", "found k", "v at"),
        node("Unique", "x", "y"),
        node("Shape", "y", "s"),
    ]
    inputs = {"x": ints(5, 6, low=0, high=4)}
    check(nodes, inputs, constants={"k": i64(3)}, opset=13, symbolic=False)
