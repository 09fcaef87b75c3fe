"""Softmax and normalisations of all versions against ONNX Runtime or ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_harness
import pytest
from one_node import check, model_of, node_of

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.ops.sampling import f32

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_softmax(op_type: str, opset: int, axis: int | None) -> None:
    if opset < 11 and axis is not None and axis < 0:
        pytest.skip("axes count from the front only")
    given = {} if axis is None else {"axis": axis}
    check(op_type, [f32(2, 3, 4)], opset, **given)
    if op_type != "Hardmax":  # which ONNX Runtime has in float32 only
        check(op_type, [f32(2, 3, 4).astype(np.float64)], opset, **given)


def test_softmax_of_large_numbers() -> None:
    check("Softmax", [f32(3, 40, low=-1000.0, high=1000.0)], 13)


def test_softmax_with_an_axis_out_of_range_is_an_error() -> None:
    model = model_of("Softmax", [f32(2, 3)], 13, axis=1)
    model.graph.node[0].attribute[0].i = 5
    with pytest.raises(PlanishError, match="axis 5"):
        import_model(model)


@pytest.mark.parametrize("axis", [None, 1, -1, -2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_layer_normalization(axis: int | None, bias: bool, outputs: int) -> None:
    shape = (4,) if axis in (None, -1) else (3, 4)
    inputs: list[Array | None] = [f32(2, 3, 4), f32(*shape)]
    if bias:
        inputs.append(f32(*shape, low=0.0))
    given = {} if axis is None else {"axis": axis}
    check("LayerNormalization", inputs, 17, outputs, **given, epsilon=1e-3)


def test_layer_normalization_of_float16() -> None:
    half = np.float16
    inputs: list[Array | None] = [f32(2, 16).astype(half), f32(16).astype(half)]
    check("LayerNormalization", inputs, 17, stash_type=1)
    check("LayerNormalization", inputs, 17, 3)


def test_layer_normalization_by_an_unknown_dtype_is_an_error() -> None:
    with pytest.raises(ImportModelError, match="stash_type"):
        import_model(model_of("LayerNormalization", [f32(2, 4), f32(4)], 17, stash_type=7))


@pytest.mark.parametrize("axis", [None, 1])
def test_rms_normalization(axis: int | None) -> None:
    given = {} if axis is None else {"axis": axis}
    inputs: list[Array | None] = [f32(2, 3, 4), f32(*((3, 4) if axis else (4,)))]
    check("RMSNormalization", inputs, 23, oracle="reference", **given)
    check("RMSNormalization", inputs, 23, oracle="reference", epsilon=0.1, **given)


def batch(*shape: int) -> list[Array | None]:
    c = shape[1]
    return [f32(*shape), f32(c), f32(c, high=2.0), f32(c, low=-1.0), f32(c, low=0.2)]


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (2, 3, 4), (1, 2, 3, 2, 2)])
def test_batch_normalization(opset: int, shape: tuple[int, ...]) -> None:
    check("BatchNormalization", batch(*shape), opset)
    check("BatchNormalization", batch(*shape), opset, epsilon=1e-2, momentum=0.5)


def test_batch_normalization_of_each_element() -> None:
    parameters: list[Array | None] = [f32(3, 4, low=v) for v in (-1.0, -2.0, -0.5, 0.1)]
    check("BatchNormalization", [f32(2, 3, 4), *parameters], 7, spatial=0)
    check("BatchNormalization", batch(2, 3, 4), 7, spatial=1)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (6, 3)])
def test_batch_normalization_in_training(shape: tuple[int, ...]) -> None:
    inputs = batch(*shape)
    x, scale, bias, mean, variance = (a for a in inputs if a is not None)
    axes = (0, *range(2, len(shape)))
    wide = [-1, *[1] * (len(shape) - 2)]
    own = [x.mean(axes), x.var(axes)]
    y = (x - own[0].reshape(wide)) / np.sqrt(own[1].reshape(wide) + np.float32(1e-5))
    y = y * scale.reshape(wide) + bias.reshape(wide)
    running = [
        old * np.float32(0.75) + new * np.float32(0.25)
        for old, new in zip((mean, variance), own, strict=True)
    ]
    given = {f"x{k}": a for k, a in enumerate(inputs) if a is not None}
    mode = {"training_mode": 1}
    for opset, attributes in ((6, {}), (9, {}), (14, mode), (15, mode)):
        count = 3 if opset >= 14 else 5
        made = node_of("BatchNormalization", inputs, count, momentum=0.75, **attributes)
        want = [y, *running, *own][:count]
        onnx_harness.check(made, given, opset=opset, want=want, tolerance=2e-5)


def test_running_statistics_need_training() -> None:
    with pytest.raises(ImportModelError, match="training_mode is 0"):
        import_model(model_of("BatchNormalization", batch(2, 3, 4), 15, 3))


@pytest.mark.parametrize("opset", [7, 22])
def test_instance_normalization(opset: int) -> None:
    for shape in ((2, 3, 4, 5), (2, 3, 6)):
        inputs: list[Array | None] = [f32(*shape), f32(3), f32(3, low=0.0)]
        check("InstanceNormalization", inputs, opset)
        check("InstanceNormalization", inputs, opset, epsilon=1e-2)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(opset: int, groups: int) -> None:
    n = groups if opset < 21 else 6
    inputs: list[Array | None] = [f32(2, 6, 4, 5), f32(n), f32(n, low=0.0)]
    which = "reference" if opset < 21 else "runtime"
    check("GroupNormalization", inputs, opset, num_groups=groups, oracle=which)
    check("GroupNormalization", inputs, opset, num_groups=groups, epsilon=0.1, oracle=which)


def test_groups_that_do_not_divide_the_channels_are_an_error() -> None:
    with pytest.raises(PlanishError, match="4 groups do not divide"):
        import_model(
            model_of("GroupNormalization", [f32(2, 6, 3), f32(6), f32(6)], 21, num_groups=4)
        )


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("p", [None, 1, 2])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_lp_normalization(opset: int, p: int | None, axis: int | None) -> None:
    given = {k: v for k, v in {"p": p, "axis": axis}.items() if v is not None}
    x = f32(3, 4)
    x[1] = 0
    check("LpNormalization", [x], opset, **given)


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("axes", [None, (0, 2, 3), (2, 3)])
def test_mean_variance_normalization(opset: int, axes: tuple[int, ...] | None) -> None:
    given = {} if axes is None else {"axes": axes}
    check("MeanVarianceNormalization", [f32(2, 3, 4, 5)], opset, **given)


@pytest.mark.parametrize("opset", [7, 13])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(opset: int, size: int) -> None:
    check("LRN", [f32(2, 7, 3, 2)], opset, size=size)
    check("LRN", [f32(2, 7, 3, 2)], opset, size=size, alpha=0.5, beta=0.6, bias=2.0)


def test_lrn_of_an_even_size() -> None:
    # ONNX's reference goes over as many channels as there are images.
    check("LRN", [f32(7, 7, 3, 2)], 13, size=4, alpha=0.5, oracle="reference")
