"""Operators of vision models against other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_harness
import pytest
from one_node import check, model_of

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32

PADDINGS = ["zeros", "border", "reflection"]
OLD_NAMES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


# ------------------------------------------------------------------------------------ sampling


@pytest.mark.parametrize("opset", [16, 20, 22])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", OLD_NAMES)
def test_grid_sample(mode: str, padding: str, align: int, opset: int) -> None:
    named = OLD_NAMES[mode] if opset < 20 else mode
    inputs: list[Array | None] = [f32(2, 3, 4, 5), f32(2, 3, 4, 2, low=-1.6, high=1.6)]
    check(
        "GridSample", inputs, opset, mode=named, padding_mode=padding, align_corners=align
    )  # fmt: skip


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_grid_sample_of_volumes(mode: str, padding: str) -> None:
    inputs: list[Array | None] = [f32(2, 2, 3, 4, 5), f32(2, 2, 3, 4, 3, low=-1.6, high=1.6)]
    check("GridSample", inputs, 22, mode=mode, padding_mode=padding)


def test_grid_sample_reads_bilinear_and_zeros_by_default() -> None:
    for opset in (16, 20):
        check("GridSample", [f32(1, 2, 4, 5), f32(1, 3, 4, 2)], opset)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_affine_grid(size: tuple[int, ...], align: int) -> None:
    rank = len(size) - 2
    inputs: list[Array | None] = [f32(2, rank, rank + 1), np.array(size)]
    check("AffineGrid", inputs, 20, constants=(1,), oracle="reference", align_corners=align)
    step = onnx_harness.node("AffineGrid", "theta size", align_corners=align)
    given = {"theta": f32(2, rank, rank + 1), "size": np.array(size)}
    want = onnx_harness.by_reference(onnx_harness.model_of(step, given), given)
    onnx_harness.check(step, given, want=want, symbolic=False)


# ------------------------------------------------------------------------------------- regions


def regions(count: int, most: float) -> Array:
    """Regions [x1, y1, x2, y2] within an image, and one that leaves it."""
    corners = f32(count, 4, low=0, high=most)
    corners[:, 2:] = corners[:, :2] + corners[:, 2:] * np.float32(0.7)
    return corners


@pytest.mark.parametrize("opset", [10, 16, 22])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, ratio: int, opset: int) -> None:
    inputs: list[Array | None] = [f32(2, 3, 7, 9), regions(5, 9), np.array([1, 0, 1, 1, 0])]
    attributes: dict[str, Any] = {"mode": mode, "output_height": 3, "output_width": 2}
    check("RoiAlign", inputs, opset, sampling_ratio=ratio, spatial_scale=0.75, **attributes)
    if opset > 10:
        attributes["coordinate_transformation_mode"] = "output_half_pixel"
        check("RoiAlign", inputs, opset, **attributes)


def test_roi_align_of_no_regions() -> None:
    image = f32(1, 2, 4, 4)
    none: list[Array | None] = [image, np.zeros((0, 4), np.float32), np.zeros(0, np.int64)]
    check("RoiAlign", none, 16)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale: float) -> None:
    batches = np.array([[0], [1], [1], [0]], np.float32)
    rois = np.concatenate([batches, np.floor(regions(4, 8))], 1)
    inputs: list[Array | None] = [f32(2, 3, 7, 9), rois]
    check("MaxRoiPool", inputs, 10, pooled_shape=[3, 2], spatial_scale=scale)


# --------------------------------------------------------------------------------------- boxes


def boxes_and_scores() -> tuple[Array, Array]:
    corners = f32(2, 12, 4, low=0, high=3)
    return corners, f32(2, 3, 12, low=0, high=1)


@pytest.mark.parametrize("opset", [10, 11])
@pytest.mark.parametrize("centres", [0, 1])
@pytest.mark.parametrize("constants", [(), (2, 3, 4)])
@pytest.mark.parametrize("most", [0, 2, 100])
def test_non_max_suppression(
    most: int, constants: tuple[int, ...], centres: int, opset: int
) -> None:
    boxes, scores = boxes_and_scores()
    limits = np.array([most]), np.array([0.3], np.float32), np.array([0.25], np.float32)
    check(
        "NonMaxSuppression",
        [boxes, scores, *limits],
        opset,
        constants=constants,
        center_point_box=centres,
    )


def test_non_max_suppression_without_thresholds() -> None:
    boxes, scores = boxes_and_scores()
    check("NonMaxSuppression", [boxes, scores, np.array([5])], 11)
    check("NonMaxSuppression", [boxes, scores, np.array(5), None, np.array(0.5, np.float32)], 11)
    check("NonMaxSuppression", [boxes, scores], 11)


# -------------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize("opset", [19, 22])
@pytest.mark.parametrize("mask", [False, True])
def test_deform_conv(mask: bool, opset: int) -> None:
    x, w = f32(2, 4, 5, 6), f32(6, 2, 2, 3)
    offset = f32(2, 24, 3, 4)
    inputs: list[Array | None] = [x, w, offset, f32(6)]
    inputs.append(f32(2, 12, 3, 4) if mask else None)
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 2]}
    check(
        "DeformConv", inputs, opset, oracle="reference", group=2, offset_group=2, **attributes
    )  # fmt: skip


def test_col2im() -> None:
    x, image, block = f32(2, 12, 9), np.array([5, 6]), np.array([2, 3])
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 0, 1]}
    check("Col2Im", [x, image, block], 18, constants=(1, 2), **attributes)
    step = onnx_harness.node("Col2Im", "x image block", **attributes)
    given = {"x": x, "image": image, "block": block}
    onnx_harness.check(step, given, symbolic=False)


@pytest.mark.parametrize("opset", [9, 11, 22])
def test_max_unpool(opset: int) -> None:
    x, where = f32(1, 2, 2, 3), np.array([0, 7, 4, 12, 20, 23, 24, 31, 28, 36, 44, 47])
    inputs: list[Array | None] = [x, where.reshape(x.shape)]
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check("MaxUnpool", inputs, opset, oracle="reference", **attributes)
    for constants in ((), (2,)):
        check(
            "MaxUnpool",
            [*inputs, np.array([1, 2, 5, 7])],
            opset,
            constants=constants,
            oracle="reference",
            **attributes,
        )


@pytest.mark.parametrize("opset", [1, 7])
def test_first_versions_of_pools(opset: int) -> None:
    x = f32(2, 3, 6, 5)
    kind: Any = float if opset == 1 else int
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    check("LpPool", [x], opset, p=kind(3), **window)
    norm = (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    step = onnx_harness.node("GlobalLpPool", "x", p=kind(3))
    onnx_harness.check(step, {"x": x}, opset=opset, want=[norm])


# -------------------------------------------------------------------------------------- errors

IMAGE, ROIS = f32(1, 2, 4, 4), regions(2, 4)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "match"),
    [
        ("GridSample", [IMAGE, f32(1, 3, 3, 2)], {"mode": "bilinear"}, "no mode bilinear"),
        ("GridSample", [IMAGE, f32(1, 3, 3, 2)], {"padding_mode": "wrap"}, "no padding wrap"),
        ("GridSample", [IMAGE, f32(1, 3, 3, 3)], {}, "length of the grid's places"),
        ("GridSample", [IMAGE, f32(2, 3, 3, 2)], {}, "the batches differ"),
        ("GridSample", [f32(1, 2, 0, 4), f32(1, 3, 3, 2)], {}, "dimension of size 0"),
        ("RoiAlign", [IMAGE, ROIS, np.array([0])], {}, "differ in number"),
        ("RoiAlign", [IMAGE, ROIS[:, :3], np.array([0, 0])], {}, "wrong number of columns"),
        ("RoiAlign", [IMAGE, ROIS, np.array([0, 0])], {"mode": "sum"}, "no mode sum"),
        ("RoiAlign", [IMAGE, ROIS, np.array([0, 0])], {"output_width": 0}, "an output of 1 by 0"),
        ("MaxRoiPool", [IMAGE, f32(2, 5)], {"pooled_shape": [2]}, "two positive numbers"),
        ("NonMaxSuppression", [f32(1, 3, 4), f32(1, 2, 4)], {}, "boxes and scores differ"),
        ("NonMaxSuppression", [f32(1, 3, 5), f32(1, 2, 3)], {}, "a box has not four numbers"),
        (
            "NonMaxSuppression",
            [f32(1, 3, 4), f32(1, 2, 3)],
            {"center_point_box": 2},
            "must be 0 or 1",
        ),
        ("DeformConv", [IMAGE, f32(3, 2, 2, 2), f32(1, 9, 3, 3)], {}, "one number for each tap"),
        ("DeformConv", [IMAGE, f32(3, 3, 2, 2), f32(1, 8, 3, 3)], {}, "channels differ"),
        ("MaxUnpool", [IMAGE, np.zeros((1, 2, 4, 4), int)], {"kernel_shape": [2]}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_an_error(
    op_type: str, inputs: list[Array | None], attributes: dict[str, Any], match: str
) -> None:
    with pytest.raises(PlanishError, match=match):
        import_model(model_of(op_type, inputs, 22, **attributes))


def test_what_constants_do_not_fit_is_an_error() -> None:
    def refused(op_type: str, inputs: list[Array | None], match: str, opset: int = 20) -> None:
        constants = tuple(range(1, len(inputs)))
        with pytest.raises(ImportModelError, match=match):
            import_model(model_of(op_type, inputs, opset, constants=constants))

    refused("AffineGrid", [f32(1, 2, 3), np.array([1, 2, 3])], "has 3 numbers, not 4 or 5")
    refused("Col2Im", [f32(1, 5, 5), np.array([5, 5]), np.array([1, 2])], "no multiple")
    refused("Col2Im", [f32(1, 4, 5), np.array([5, 5]), np.array([2, 2])], "a column for each block")
