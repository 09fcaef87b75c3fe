"""Resize and Upsample of all versions against other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_harness import Inputs, check, expected, model_of, node

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def resize(
    x: Array,
    opset: int,
    scales: Any = None,
    sizes: Any = None,
    roi: Any = None,
    want: Any = None,
    symbolic: bool = True,
    **attributes: Any,
) -> None:
    constants: dict[str, Array] = {}
    if opset == 10:
        constants["scales"] = floats(*scales)
        step = node("Resize", "x scales", **attributes)
        return check_both(step, x, constants, opset, want, symbolic)
    names = ["x", "-", "-", "-"]
    for k, (name, value) in enumerate((("roi", roi), ("scales", scales), ("sizes", sizes)), 1):
        if value is not None:
            constants[name] = floats(*value) if name != "sizes" else np.array(value, np.int64)
        elif opset == 11 and name != "sizes":  # an empty tensor is one that is left out
            constants[name] = floats()
        else:
            continue
        names[k] = name
    while names[-1] == "-":
        names.pop()
    return check_both(
        node("Resize", " ".join(names), **attributes), x, constants, opset, want, symbolic
    )


def check_both(
    step: Any, x: Array, constants: Inputs, opset: int, want: Any, symbolic: bool
) -> None:
    check(
        step,
        {"x": x},
        constants=constants,
        opset=opset,
        want=None if want is None else [want],
        symbolic=symbolic,
        tolerance=5e-5,
    )


@pytest.mark.parametrize("opset", [11, 19])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("scales", [(2, 3), (0.5, 0.6), (1, 2.6), (1.5, 1 / 3)])
def test_nearest(scales: tuple[float, float], coordinate: str, rounding: str, opset: int) -> None:
    given = {"coordinate_transformation_mode": coordinate, "nearest_mode": rounding}
    resize(f32(1, 2, 6, 5), opset, scales=(1, 1, *scales), **given)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("scales", [(2, 3), (0.5, 0.6), (1, 2.6), (1.5, 1 / 3)])
def test_interpolation(scales: tuple[float, float], coordinate: str, opset: int, mode: str) -> None:
    given = {"coordinate_transformation_mode": coordinate, "mode": mode}
    resize(f32(1, 2, 6, 5), opset, scales=(1, 1, *scales), **given)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("sizes", [(12, 10), (3, 7), (1, 1), (6, 4)])
def test_sizes(sizes: tuple[int, int], coordinate: str, mode: str) -> None:
    given = {"coordinate_transformation_mode": coordinate, "mode": mode}
    resize(f32(1, 2, 6, 5), 19, sizes=(1, 2, *sizes), symbolic=False, **given)


def test_half_pixel_for_nearest() -> None:
    given = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    for rounding in ROUNDINGS:
        resize(f32(1, 2, 6, 5), 11, scales=(1, 1, 2, 0.6), nearest_mode=rounding, **given)


@pytest.mark.parametrize("a", [-0.75, -0.5])
@pytest.mark.parametrize("exclude", [0, 1])
def test_cubic(a: float, exclude: int) -> None:
    given = {"mode": "cubic", "cubic_coeff_a": a, "exclude_outside": exclude}
    resize(f32(1, 1, 5, 4), 13, scales=(1, 1, 2.5, 0.7), **given)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0.2, 0.1, 0.8, 1.0), (-0.3, 0.0, 0.7, 1.3)])
def test_crop(roi: tuple[float, ...], mode: str) -> None:
    given = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    full = (0, 0, *roi[:2], 1, 1, *roi[2:])
    resize(f32(1, 2, 6, 5), 13, sizes=(1, 2, 4, 7), roi=full, mode=mode, symbolic=False, **given)
    axes = {"axes": [2, 3]}
    resize(f32(1, 2, 6, 5), 18, sizes=(4, 7), roi=roi, mode=mode, symbolic=False, **axes, **given)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("scales", [(0.5, 0.6), (0.3, 2.0)])
def test_antialias(scales: tuple[float, float], exclude: int, mode: str) -> None:
    for coordinate in ("half_pixel", "asymmetric"):
        given = {"coordinate_transformation_mode": coordinate, "exclude_outside": exclude}
        resize(f32(1, 2, 8, 7), 18, scales=(1, 1, *scales), mode=mode, antialias=1, **given)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(3, 9), (14, 6), (7, 8)])
def test_aspect(sizes: tuple[int, int], policy: str) -> None:
    given = {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
    resize(f32(1, 2, 7, 8), 18, sizes=sizes, symbolic=policy == "stretch", **given)
    given["axes"] = [3, 2]
    resize(f32(1, 2, 7, 8), 18, sizes=sizes, mode="linear", symbolic=False, **given)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("shape", [(1, 2, 5), (1, 1, 3, 4, 2)])
def test_other_ranks(shape: tuple[int, ...], mode: str) -> None:
    scales = (1, 1, 2.5, 0.5, 2)[: len(shape)]
    resize(f32(*shape), 13, scales=scales, mode=mode)
    resize(f32(*shape), 13, sizes=(1, shape[1], 7, 3, 3)[: len(shape)], mode=mode, symbolic=False)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 3), (0.5, 0.6), (1, 2.6), (1.5, 0.4)])
def test_version_10(scales: tuple[float, float], mode: str) -> None:
    resize(f32(1, 2, 6, 5), 10, scales=(1, 1, *scales), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 3), (1, 2.6), (1, 1)])
def test_upsample(scales: tuple[float, float], mode: str) -> None:
    x, full = f32(1, 2, 6, 5), (1.0, 1.0, *map(float, scales))
    check(node("Upsample", "x", mode=mode, scales=full), {"x": x}, opset=7, tolerance=5e-5)
    constants = {"s": floats(*full)}
    step = node("Upsample", "x s", mode=mode)
    check(step, {"x": x}, constants=constants, opset=9, tolerance=5e-5)


def test_other_dtypes() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4)
    resize(x, 13, scales=(1, 1, 2, 2))
    resize(f32(1, 1, 3, 4).astype(np.float16), 13, scales=(1, 1, 2, 2), mode="linear")
    resize(
        f32(1, 1, 3, 4) > 0,
        18,
        scales=(1, 1, 2, 2),
        want=np.kron(f32(1, 1, 3, 4) > 0, np.ones((2, 2), bool)),
    )


def test_sizes_that_follow_from_shapes() -> None:
    """As exporters write it: twice the height and width of another input, at any size."""
    steps = [
        node("Shape", "like", "shape"),
        node("Slice", "shape two four", "tail"),
        node("Mul", "tail factor", "wanted"),
        node("Shape", "x", "own"),
        node("Slice", "own zero two", "head"),
        node("Concat", "head wanted", "sizes", axis=0),
        node("Resize", "x - - sizes", mode="nearest"),
    ]
    ends = {"zero": [0], "two": [2], "four": [4], "factor": [2]}
    constants = {k: np.array(v, np.int64) for k, v in ends.items()}
    inputs = {"x": f32(1, 2, 3, 4), "like": f32(1, 1, 3, 4)}
    check(steps, inputs, constants=constants, opset=13)


def test_what_does_not_change_is_nothing() -> None:
    step = node("Resize", "x - s", mode="linear")
    model = model_of(step, {"x": f32(1, 2, 3)}, constants={"s": floats(1, 1, 1)}, symbolic=True)
    assert not import_model(model).nodes


@pytest.mark.parametrize(
    ("attributes", "constants", "match"),
    [
        ({"mode": "area"}, {"scales": floats(1, 1, 2)}, "no mode area"),
        ({"nearest_mode": "up"}, {"scales": floats(1, 1, 2)}, "no rounding up"),
        (
            {"coordinate_transformation_mode": "middle"},
            {"scales": floats(1, 1, 2)},
            "no coordinate transformation middle",
        ),
        ({}, {"scales": floats(1, 2)}, "must have 3 numbers"),
        ({}, {"scales": floats(1, 1, -2)}, "must be positive"),
        ({}, {"scales": floats(1, 1, np.nan)}, "must be positive"),
        ({}, {"scales": floats(1, 1, 3e38)}, r"the scale \S*e\+38, is larger than any memory"),
        ({}, {"sizes": np.array([1, 2])}, "must have 3 numbers"),
        ({}, {"sizes": np.array([1, 2, -3])}, "cannot have -3 elements"),
        ({"axes": [3]}, {"sizes": np.array([1])}, "out of range"),
        ({}, {}, "either scales or sizes"),
        (
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            {"sizes": np.array([1, 2, 3])},
            "roi",
        ),
        ({"keep_aspect_ratio_policy": "loose"}, {"sizes": np.array([1, 2, 3])}, "policy loose"),
    ],
)
def test_what_does_not_fit_is_an_error(
    attributes: dict[str, Any], constants: dict[str, Array], match: str
) -> None:
    names = " ".join(k if k in constants else "-" for k in ("scales", "sizes"))
    step = node("Resize", f"x - {names}", name="culprit", **attributes)
    model = model_of(step, {"x": f32(1, 2, 3)}, constants=constants)
    with pytest.raises(PlanishError, match=match) as error:
        import_model(model)
    assert isinstance(error.value, ImportModelError)
    assert "culprit" in str(error.value)


@pytest.mark.parametrize("coordinate", ["half_pixel", "asymmetric", "tf_crop_and_resize"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_and_roi_may_be_data(mode: str, coordinate: str) -> None:
    inputs = {"x": f32(1, 2, 6, 5), "scales": floats(1, 1, 1.7, 0.6)}
    names = "x - scales"
    if coordinate == "tf_crop_and_resize":
        inputs["roi"] = floats(0, 0, 0.2, 0.3, 1, 1, 0.9, 0.8)
        names = "x roi scales"
    step = node("Resize", names, mode=mode, coordinate_transformation_mode=coordinate)
    check(step, inputs, opset=13, tolerance=5e-5, symbolic=False)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_sizes_may_be_data(antialias: int, policy: str) -> None:
    for size in ((3, 4), (9, 2)):
        inputs = {"x": f32(1, 2, 6, 5), "sizes": np.array(size)}
        step = node(
            "Resize", "x - - sizes", mode="linear", axes=[2, 3], antialias=antialias,
            keep_aspect_ratio_policy=policy,
        )  # fmt: skip
        check(step, inputs, opset=18, tolerance=5e-5, symbolic=False)


def test_upsample_by_data() -> None:
    inputs = {"x": f32(1, 2, 3, 4), "scales": floats(1, 1, 2, 1.5)}
    check(node("Upsample", "x scales", mode="linear"), inputs, opset=9, symbolic=False)


def test_first_upsample() -> None:
    for mode, other in (("nearest", "nearest"), ("bilinear", "linear")):
        step = node("Upsample", "x", mode=mode, height_scale=2.0, width_scale=1.5)
        x = f32(1, 2, 3, 4)
        twin = node("Upsample", "x", mode=other, scales=[1.0, 1.0, 2.0, 1.5])
        want = expected(model_of(twin, {"x": x}, opset=7), {"x": x})
        check(step, {"x": x}, opset=1, want=want)
