"""Layers and former operators of ONNX Runtime's domain: by numpy, and by it where it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_harness import check, compare, expected
from test_microsoft import compared, model

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32


def numpy_gives(
    op_type: str, inputs: str, given: dict[str, Array], want: list[Array], outputs: str = "y",
    runtime: bool = False, tolerance: float = 2e-5, **attributes: Any,
) -> None:  # fmt: skip
    given = {n: given[n] for n in inputs.split() if n != "-"}
    for symbolic in (False, True):
        if symbolic and any(1 in a.shape for a in given.values()):
            continue  # a symbol is taken not to be 1
        made = model(op_type, inputs, given, outputs, symbolic=symbolic, **attributes)
        check(made, given, want=want, tolerance=tolerance)
    if runtime:
        made = model(op_type, inputs, given, outputs, **attributes)
        compare(expected(made, given), want, tolerance)


IDS = np.array([[1, 2, 3], [4, 0, 1]], np.int32)
WORDS = {
    "i": IDS, "s": np.array([[0, 1, 0], [1, 0, 1]], np.int32), "w": f32(5, 8), "p": f32(7, 8),
    "e": f32(2, 8), "g": f32(8), "b": f32(8, low=0.0),
    "m": np.array([[1, 1, 0], [0, 2, 0]], np.int32),
    "at": np.array([[3, 2, 1], [0, 1, 6]], np.int32),
}  # fmt: skip


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_embed_layer_normalization(segments: bool, mask: bool, places: bool) -> None:
    total = WORDS["w"][IDS] + WORDS["p"][WORDS["at"] if places else np.arange(3)]
    total = total + WORDS["e"][WORDS["s"]] if segments else total
    deviation = total - total.mean(-1, keepdims=True)
    y = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-5)
    y = y * WORDS["g"] + WORDS["b"]
    counts = np.array([2, 0] if mask else [0, 0], np.int32)
    names = ["i", "s", "w", "p", "e", "g", "b", "m" if mask else "-", "at" if places else "-"]
    inputs = " ".join(n if segments or n not in "se" else "-" for n in names)
    numpy_gives("EmbedLayerNormalization", inputs, WORDS, [y, counts, total], "y c t", True,
                epsilon=1e-5)  # fmt: skip


@pytest.mark.parametrize("segments", [False, True])
def test_quantized_embed_layer_normalization(segments: bool) -> None:
    tables = {k: v for k, v in WORDS.items() if k in "wpegb"}
    given = {k: WORDS[k] for k in "ism"}
    whole = {k: np.clip(np.rint(v * 60) + 120, 0, 255).astype(np.uint8) for k, v in tables.items()}
    scales = {f"{k}s": np.array(0.02 + 0.001 * at, np.float32) for at, k in enumerate(tables)}
    zeros = {f"{k}z": np.array(118 + at, np.uint8) for at, k in enumerate(tables)}
    given |= {**whole, **scales, **zeros}
    w, p, e, g, b = (
        (whole[k].astype(np.float32) - zeros[f"{k}z"]) * scales[f"{k}s"] for k in "wpegb"
    )
    total = w[IDS] + p[np.arange(3)] + (e[WORDS["s"]] if segments else 0)
    deviation = total - total.mean(-1, keepdims=True)
    y = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-5) * g + b
    names = [
        "i",
        "s",
        "w",
        "p",
        "e",
        "g",
        "b",
        "m",
        "ws",
        "ps",
        "es",
        "gs",
        "bs",
        "wz",
        "pz",
        "ez",
        "gz",
        "bz",
    ]
    inputs = " ".join(n if segments or n[0] not in "se" else "-" for n in names)
    counts = np.array([2, 0], np.int32)
    numpy_gives("QEmbedLayerNormalization", inputs, given, [y, counts], "y c", True, epsilon=1e-5)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def grouped(x: Array, groups: int, scale: Array, bias: Array) -> Array:
    """Channels behind."""
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, spread = (f(parts, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    return np.asarray(((parts - mean) / np.sqrt(spread + 1e-5)).reshape(x.shape) * scale + bias)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last: int, activation: int) -> None:
    """Which ONNX Runtime has for GPUs only."""
    given = {
        "x": f32(2, 4, 5, 8),
        "g": f32(8),
        "b": f32(8, low=0.0),
        "skip": f32(2, 8),
        "c": f32(8),
    }
    wide = f32(2, 4, 5, 8, low=-3.0)
    attributes = {"groups": 2, "activation": activation, "channels_last": last}

    def shown(x: Array) -> Array:
        return x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))

    def of(x: Array) -> list[Array]:
        y = grouped(x, 2, given["g"], given["b"])
        return [shown(silu(y) if activation else y)]

    seen = {**given, "x": shown(given["x"]), "wide": shown(wide)}
    numpy_gives("GroupNorm", "x g b", seen, of(given["x"]), **attributes)
    total = given["x"] + given["skip"][:, None, None] + given["c"]
    want = [*of(total), shown(total)]
    numpy_gives("SkipGroupNorm", "x g b skip c", seen, want, "y s", **attributes)
    numpy_gives("SkipGroupNorm", "x g b wide", seen, of(given["x"] + wide), **attributes)


@pytest.mark.parametrize("both", [False, True])
def test_relative_position_bias(both: bool) -> None:
    """As T5 has it; ONNX Runtime has it for GPUs only."""
    given = {"t": f32(32, 3), "q": np.array([40]), "k": np.array([40])}
    want = np.zeros((1, 3, 40, 40), np.float32)
    count = 16 if both else 32
    for q in range(40):
        for k in range(40):
            far = abs(q - k) if both else max(q - k, 0)
            if far >= count // 2:
                grown = np.log(far / (count / 2)) / np.log(21 / (count / 2)) * count / 2
                far = min(count // 2 + int(grown), count - 1)
            want[0, :, q, k] = given["t"][far + (count if both and k > q else 0)]
    for constants in ("t", "t q k"):
        free = {n: a for n, a in given.items() if n not in constants.split()}
        made = model("RelativePositionBias", "t q k", given, constants=constants, max_distance=21,
                     is_bidirectional=int(both))  # fmt: skip
        check(made, free, want=[want])
    with pytest.raises(PlanishError, match="max_distance 4 for a table of 32 rows"):
        import_model(model("RelativePositionBias", "t q k", given, max_distance=4))


def test_sums_with_a_bias() -> None:
    """Which ONNX Runtime has for GPUs only."""
    given = {"x": f32(2, 3, 8), "b": f32(8), "s": f32(2, 3, 8, low=-1.0)}
    total = given["x"] + given["b"]
    numpy_gives("BiasAdd", "x b s", given, [total + given["s"]])
    made = model("Gelu", "x", {"x": total[..., 4:]})
    (gelu,) = expected(made, {"x": np.ascontiguousarray(total[..., 4:])})
    numpy_gives("BiasSplitGelu", "x b", given, [total[..., :4] * gelu])
    e = np.exp(given["x"] + given["b"])
    want = e / e.sum(axis=(1, 2), keepdims=True)
    numpy_gives("BiasSoftmax", "x b", given, [want], is_inner_broadcast=0, axis=1)
    want = e / e.sum(axis=2, keepdims=True)
    numpy_gives("BiasSoftmax", "x b", given, [want], is_inner_broadcast=0, axis=-1)


def test_operators_that_came_into_onnx() -> None:
    compared("Trilu", "x", {"x": f32(3, 4)}, upper=0)
    compared("GatherND", "x k", {"x": f32(3, 4), "k": np.array([[2], [0]])}, constants="k")
    compared("GridSample", "x k", {"x": f32(1, 2, 4, 5), "k": f32(1, 3, 3, 2)}, mode="bicubic")


def test_pad() -> None:
    x = f32(2, 3)
    compared("Pad", "x p", {"x": x, "p": np.array([0, 1, 1, 0])}, constants="p")
    given = {"x": x, "p": np.array([[0, 1, -1, 0]]), "v": np.array([7], np.float32)}
    compared("Pad", "x p v", given, constants="p")
    compared("Pad", "x p v", given, constants="p v")
    compared("Pad", "x p", {"x": x, "p": np.array([0, 2, 1, 0])}, constants="p", mode="edge")
    compared("Pad", "x p", {"x": x, "p": np.array([0, 2, 1, 0])}, constants="p", mode="reflect")


def test_range() -> None:
    given = {"a": np.array(1, np.float32), "b": np.array([5.5], np.float32)}
    given["d"] = np.array(-1.5, np.float32)
    compared("Range", "a b", given, constants="a b")
    compared("Range", "b a d", given)
    whole = {"a": np.array(1), "b": np.array(5)}
    compared("Range", "a b", whole)


def test_unique() -> None:
    """In the order in which they come."""
    given = {"x": np.array([2, 1, 1, 3, 4, 3], np.float32)}
    want = [
        np.array([2, 1, 3, 4], np.float32),
        np.array([0, 1, 1, 2, 3, 2]),
        np.array([1, 2, 2, 1]),
    ]
    numpy_gives("Unique", "x", given, want, "y i n", True)


def test_expand_dims() -> None:
    for axis in (0, 1, 2, -1, -3):
        compared(
            "ExpandDims", "x a", {"x": f32(2, 3), "a": np.array(axis, np.int32)}, constants="a"
        )
    with pytest.raises(PlanishError, match="out of range for rank 3"):
        given = {"x": f32(2, 3), "a": np.array(3, np.int32)}
        import_model(model("ExpandDims", "x a", given, constants="a"))


def test_distances() -> None:
    given = {"a": f32(3, 4), "b": f32(5, 4)}
    for metric in ({}, {"metric": "euclidean"}, {"metric": "sqeuclidean"}):
        compared("CDist", "a b", given, **metric)
    with pytest.raises(PlanishError, match="metric cityblock is not supported"):
        import_model(model("CDist", "a b", given, metric="cityblock"))


def test_inverse() -> None:
    compared("Inverse", "x", {"x": f32(2, 3, 4, 4)})
    compared("Inverse", "x", {"x": np.array([[0, 2], [4, 0]], np.float32)})


@pytest.mark.parametrize("length", [2, 8, 30])
def test_real_transforms(length: int) -> None:
    """Which ONNX Runtime has for GPUs only."""
    x = f32(3, length)
    wide = np.fft.rfft(x)
    parts = np.stack([wide.real, wide.imag], -1).astype(np.float32)
    attributes = {"onesided": 1, "normalized": 0, "signal_ndim": 1}
    numpy_gives("Rfft", "x", {"x": x}, [parts], **attributes)
    numpy_gives("Irfft", "x", {"x": parts}, [x], **attributes)
    with pytest.raises(PlanishError, match="normalized is 1"):
        import_model(model("Rfft", "x", {"x": x}, normalized=1))


def test_transposed_convolution_with_pads_as_data() -> None:
    given = {"x": f32(1, 2, 4, 5), "w": f32(2, 3, 3, 3), "p": np.array([1, 0, 2, 1]), "b": f32(3)}
    sizes: dict[str, Any] = {"strides": [2, 2], "output_padding": [1, 1]}
    for constants in ("w p b", "w b"):
        free = {n: a for n, a in given.items() if n not in constants.split()}
        made = model("ConvTransposeWithDynamicPads", "x w p b", given, constants=constants, **sizes)
        check(made, free, want=expected(made, free), tolerance=2e-5)
    with pytest.raises(PlanishError, match="auto_pad is SAME_UPPER"):
        import_model(
            model("ConvTransposeWithDynamicPads", "x w p", {n: given[n] for n in "xwp"},
                  auto_pad="SAME_UPPER")
        )  # fmt: skip
