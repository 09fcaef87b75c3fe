"""Reductions of all versions against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_node import check, model_of
from onnx_harness import check as check_graph

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model, load_handlers
from planish.compiler.frontends.onnx.reader import HANDLERS
from planish.compiler.ops.sampling import bools, f32, ints

Array = np.ndarray[Any, Any]
SIMPLE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
COMPOSITE = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
REDUCE = SIMPLE + COMPOSITE


def opsets(op_type: str) -> list[int]:
    load_handlers()
    return sorted({max(7, v) for v in HANDLERS["", op_type].versions})


def oracle(opset: int) -> str:
    return "reference" if opset > 22 else "runtime"


def run(
    op_type: str, x: Array, opset: int, axes: tuple[int, ...] | None, **attributes: Any
) -> None:
    """Check with the axes where the version has them."""
    since = 13 if op_type == "ReduceSum" else 18
    inputs: list[Array | None] = [x]
    if opset < since:
        if axes is not None:
            attributes["axes"] = axes
        check(op_type, inputs, opset, **attributes)
        return
    if axes is not None:
        inputs.append(np.array(axes, np.int64))
    check(op_type, inputs, opset, constants=(1,), oracle=oracle(opset), **attributes)


@pytest.mark.parametrize(("op_type", "opset"), [(name, o) for name in REDUCE for o in opsets(name)])
@pytest.mark.parametrize("axes", [None, (1,), (0, 2)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce(op_type: str, opset: int, axes: tuple[int, ...] | None, keepdims: int) -> None:
    run(op_type, f32(2, 3, 4, low=0.5), opset, axes, keepdims=keepdims)


@pytest.mark.parametrize("op_type", REDUCE)
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_axes_may_count_from_the_back(op_type: str, opset: int) -> None:
    run(op_type, f32(2, 3, 4, low=0.5), opset, (-1, 0))


@pytest.mark.parametrize("op_type", REDUCE)
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("axes", [None, ()])
def test_no_axes(op_type: str, noop: int, axes: tuple[int, ...] | None) -> None:
    inputs: list[Array | None] = [f32(2, 3, low=0.5)]
    if axes is not None:
        inputs.append(np.array(axes, np.int64))
    if noop and op_type in COMPOSITE:
        pytest.skip("tested below")
    check(op_type, inputs, 18, constants=(1,), noop_with_empty_axes=noop)


@pytest.mark.parametrize("op_type", COMPOSITE)
def test_over_no_axes_what_is_not_reduction_is_still_done(op_type: str) -> None:
    """By ONNX's text; ONNX Runtime gives the input itself."""
    x = f32(2, 3, low=0.5)
    model = model_of(op_type, [x], 18, noop_with_empty_axes=1)
    wanted = {
        "ReduceL1": np.abs(x),
        "ReduceL2": np.abs(x),
        "ReduceLogSum": np.log(x),
        "ReduceLogSumExp": x,
        "ReduceSumSquare": x * x,
    }[op_type]
    check_graph(model, {"x0": x}, want=[wanted])


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_reduce_of_other_dtypes(op_type: str, dtype: str) -> None:
    opset = 18 if op_type != "ReduceSum" else 13
    run(op_type, ints(3, 5, low=-9, high=9).astype(dtype), opset, (1,))


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_reduce_of_bools(op_type: str) -> None:
    run(op_type, bools(3, 4), 20, (1,))


@pytest.mark.parametrize("op_type", REDUCE)
def test_reduce_of_a_scalar(op_type: str) -> None:
    run(op_type, f32(low=0.5), 18, None)


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"])
def test_reduce_of_nothing(op_type: str) -> None:
    run(op_type, f32(3, 0), 18, (1,))


def test_axes_out_of_range_are_an_error() -> None:
    model = model_of("ReduceSum", [f32(2, 3), np.array([0])], 18, constants=(1,))
    model.graph.initializer[0].raw_data = np.array([2]).tobytes()
    with pytest.raises(PlanishError, match="axis 2"):
        import_model(model)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("opset", [7, 11, 12, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdims", [None, 0])
@pytest.mark.parametrize("last", [None, 0, 1])
def test_arg(
    op_type: str, opset: int, axis: int | None, keepdims: int | None, last: int | None
) -> None:
    if (opset < 11 and axis == -1) or (opset < 12 and last is not None):
        pytest.skip("this version has no such attribute")
    given = {"axis": axis, "keepdims": keepdims, "select_last_index": last}
    x = ints(3, 4, 5, low=0, high=3).astype(np.float32)
    check(op_type, [x], opset, **{k: v for k, v in given.items() if v is not None})
