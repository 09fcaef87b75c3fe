"""Operators of ONNX Runtime's own domain against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_harness import check, compare, expected, model_of

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32, ints
from planish.operators import needs

DOMAIN = "com.microsoft"


def model(
    op_type: str,
    inputs: str,
    given: Mapping[str, Array],
    outputs: str = "y",
    constants: str = "",
    symbolic: bool = False,
    domain: str = DOMAIN,
    **attributes: Any,
) -> onnx.ModelProto:
    names = ["" if n == "-" else n for n in inputs.split()]
    wanted = ["" if n == "-" else n for n in outputs.split()]
    made = helper.make_node(op_type, names, wanted, domain=domain, **attributes)
    known = {n: given[n] for n in constants.split()}
    free = {n: a for n, a in given.items() if n not in known}
    return model_of(made, free, constants=known, domains={DOMAIN: 1}, symbolic=symbolic)


def compared(
    op_type: str, inputs: str, given: Mapping[str, Array], constants: str = "", **rest: Any
) -> None:
    free = {n: a for n, a in given.items() if n not in constants.split()}
    want = expected(model(op_type, inputs, given, constants=constants, **rest), free)
    for symbolic in (False, True):
        made = model(op_type, inputs, given, constants=constants, symbolic=symbolic, **rest)
        check(made, free, want=want, tolerance=2e-5)


def byte(*shape: int, dtype: str = "uint8") -> Array:
    low = 0 if dtype == "uint8" else -128
    return ints(*shape, low=low, high=low + 256, dtype=dtype)


def number(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


SCALES = {
    "sa": number(0.02), "za": number(120, "uint8"), "sb": number(0.03), "zb": number(99, "uint8"),
    "sy": number(0.0507), "zy": number(131, "uint8"),
}  # fmt: skip


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_binary(op_type: str) -> None:
    compared(op_type, "a sa za b sb zb sy zy", {"a": byte(3, 4), "b": byte(4), **SCALES})


@pytest.mark.parametrize(
    ("op_type", "attributes"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2})]
)
def test_unary(op_type: str, attributes: dict[str, Any]) -> None:
    scales = {**SCALES, "sy": number(0.004)} if op_type == "QLinearSigmoid" else SCALES
    given = {k: v for k, v in scales.items() if "b" not in k}
    known = " ".join(given)
    compared(op_type, "a sa za sy zy", {"a": byte(3, 40), **given}, known, **attributes)


@pytest.mark.parametrize("last", [0, 1])
def test_pool(last: int) -> None:
    given = {k: v for k, v in SCALES.items() if "b" not in k}
    compared("QLinearGlobalAveragePool", "a sa za sy zy", {"a": byte(2, 3, 4, 5), **given},
             channels_last=last)  # fmt: skip


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_average_pool(last: int, dtype: str) -> None:
    scales = {"sa": number(0.02), "za": number(100, dtype), "sy": number(0.0307)}
    given = {"a": byte(2, 3, 6, 7, dtype=dtype), **scales, "zy": number(10, dtype)}
    if last:
        given["a"] = np.ascontiguousarray(given["a"].transpose(0, 2, 3, 1))
    windows: dict[str, Any] = {"kernel_shape": [3, 2], "channels_last": last}
    known = "sa za sy zy"
    compared("QLinearAveragePool", "a sa za sy zy", given, known, **windows)
    windows |= {"strides": [2, 2], "pads": [1, 1, 1, 0]}
    compared("QLinearAveragePool", "a sa za sy zy", given, known, ceil_mode=1, **windows)
    compared("QLinearAveragePool", "a sa za sy zy", given, known, count_include_pad=1, **windows)


@pytest.mark.parametrize("axis", [{"opset": 13}, {"opset": 13, "axis": 1}, {"opset": 12}])
def test_softmax(axis: dict[str, Any]) -> None:
    scales = {"sa": number(0.05), "za": number(100, "uint8"), "sy": number(1 / 256)}
    given = {"a": byte(2, 3, 5), **scales, "zy": number(0, "uint8")}
    compared("QLinearSoftmax", "a sa za sy zy", given, "sa za sy zy", **axis)


def test_where() -> None:
    given = {"c": ints(6, low=0, high=2).astype(bool), "a": byte(2, 6), "b": byte(6), **SCALES}
    compared("QLinearWhere", "c a sa za b sb zb sy zy", given, " ".join(SCALES))


def test_mean() -> None:
    """Which ONNX Runtime has no kernel for."""
    given = {"a": byte(2, 3, 4), **{k: v for k, v in SCALES.items() if "b" not in k}}
    numbers = (given["a"].astype(np.float32) - 120) * np.float32(0.02)
    for axes, keep in (([1], 1), ([-1, 0], 0)):
        mean = numbers.mean(tuple(axes), keepdims=bool(keep))
        want = np.clip(np.rint(mean / np.float32(0.0507)) + 131, 0, 255).astype(np.uint8)
        made = model("QLinearReduceMean", "a sa za sy zy", given, axes=axes, keepdims=keep)
        check(made, given, want=[want])


def test_max_pool() -> None:
    windows: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for dtype in ("uint8", "int8"):
        compared("NhwcMaxPool", "a", {"a": byte(2, 6, 7, 3, dtype=dtype)}, ceil_mode=1, **windows)
        compared("NhwcMaxPool", "a", {"a": byte(2, 6, 7, 3, dtype=dtype)}, kernel_shape=[2, 2],
                 dilations=[2, 1], auto_pad="VALID")  # fmt: skip


def test_concat() -> None:
    given = {"a": byte(2, 3), "b": byte(2, 4), **SCALES}
    compared("QLinearConcat", "sy zy a sa za b sb zb", given, " ".join(SCALES), axis=1)


A, B = f32(3, 8), byte(8, 5, dtype="int8")


@pytest.mark.parametrize("scale", [number(0.02), f32(5, low=0.01, high=0.03)])
@pytest.mark.parametrize("bias", [False, True])
def test_products_as_numbers(scale: Array, bias: bool) -> None:
    tail = " c" if bias else ""
    given = {"a": A, "b": B, "s": scale, "z": np.full(scale.shape, 3, "int8"), "c": f32(5)}
    if not bias:
        del given["c"]
    compared("DynamicQuantizeMatMul", f"a b s z{tail}", given)
    given = {**given, "a": byte(3, 8), "sa": number(0.1), "za": number(90, "uint8")}
    compared("MatMulIntegerToFloat", f"a b sa s za z{tail}", given)


@pytest.mark.parametrize("flips", [(0, 0), (1, 1)])
@pytest.mark.parametrize("whole", [False, True])
def test_qgemm(flips: tuple[int, int], whole: bool) -> None:
    a, b = byte(3, 8), byte(8, 5, dtype="int8")
    a, b = (np.ascontiguousarray(v.T) if f else v for v, f in zip((a, b), flips, strict=True))
    given = {
        "a": a, "sa": number(0.02), "za": number(120, "uint8"), "b": b, "sb": number(0.03),
        "zb": number(5, "int8"), "c": ints(5, low=-900, high=900, dtype="int32"),
    }  # fmt: skip
    names = "a sa za b sb zb c"
    if whole:
        given |= {"sy": number(0.05), "zy": number(131, "uint8")}
        names += " sy zy"
    compared("QGemm", names, given, transA=flips[0], transB=flips[1], alpha=1.0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("width", [32, 56])
def test_matmul_nbits(bits: int, zeros: bool, width: int) -> None:
    rows, block = 5, 16
    blocks = -(-width // block)
    given = {
        "x": f32(3, width), "b": byte(rows, blocks, block * bits // 8),
        "s": f32(rows * blocks, low=0.01, high=0.03),
    }  # fmt: skip
    names = "x b s"
    if zeros:
        given["z"] = byte(rows, -(-blocks * bits // 8))
        names += " z"
    compared("MatMulNBits", names, given, "b s z" if zeros else "b s", K=width, N=rows, bits=bits,
             block_size=block)  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_bnb4(kind: int) -> None:
    """ONNX Runtime's kernel for CPUs gives chance numbers unless B is transposed."""
    given = {"x": f32(3, 33), "b": byte(83), "s": f32(11, low=0.1)}
    sizes = {"K": 33, "N": 5, "block_size": 16, "quant_type": kind}
    compared("MatMulBnb4", "x b s", given, "b s", **sizes)
    one = {**given, "x": np.eye(33, dtype=np.float32)}
    made = model("MatMulBnb4", "x b s", one, constants="b s", **sizes)
    (weights,) = expected(made, {"x": one["x"]})
    given["x"] = f32(3, 5)
    made = model("MatMulBnb4", "x b s", given, constants="b s", transB=0, **sizes)
    check(made, {"x": given["x"]}, want=[given["x"] @ weights.T])


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(bits: int, zeros: bool) -> None:
    places = np.array([[0, 4, 9], [2, -1, -6]])  # two of them out of range
    given = {"t": byte(5, 80 * bits // 8), "i": places, "s": f32(5, 5, low=0.1)}
    if zeros:
        given["z"] = byte(5, -(-5 * bits // 8))
    compared("GatherBlockQuantized", "t i s z" if zeros else "t i s", given,
             "t s z" if zeros else "t s", bits=bits, block_size=16)  # fmt: skip


@pytest.mark.parametrize("along", [0, 1, -1])
def test_gather_block_quantized_of_four_bits(along: int) -> None:
    """Zero points of 0 unless they are given; also along the axis of the blocks."""
    small = ml_dtypes.int4
    given = {
        "t": ints(3, 32, 4, low=-8, high=8).astype(small), "i": np.array([0, 2, -1]),
        "s": f32(3, 2, 4, low=0.1), "z": ints(3, 2, 4, low=-8, high=8).astype(small),
    }  # fmt: skip
    table = given["t"].astype(np.float32) - np.repeat(given["z"].astype(np.float32), 16, 1)
    table = table * np.repeat(given["s"], 16, 1)
    made = model("GatherBlockQuantized", "t i s z", given, constants="t s z", block_size=16,
                 gather_axis=along, quantize_axis=1)  # fmt: skip
    free = {"i": given["i"]}
    compare(expected(made, free), [np.take(table, given["i"], along)])
    check(made, free, want=[np.take(table, given["i"], along)])


@pytest.mark.parametrize(
    ("op_type", "names"),
    [
        ("Gelu", "x"),
        ("BiasGelu", "x b"),
        ("FastGelu", "x"),
        ("FastGelu", "x b"),
        ("QuickGelu", "x"),
    ],
)
def test_gelu(op_type: str, names: str) -> None:
    given = {"x": f32(3, 5), "b": f32(5)}
    compared(op_type, names, {n: given[n] for n in names.split()})


@pytest.mark.parametrize("flips", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1}])
@pytest.mark.parametrize("batches", [{}, {"transBatchA": 1, "transBatchB": 1}])
def test_fused_matmul(flips: dict[str, int], batches: dict[str, int]) -> None:
    a = f32(2, 4, 3) if "transA" in flips else f32(2, 3, 4)
    b = f32(2, 5, 4) if "transB" in flips else f32(2, 4, 5)
    if batches:
        a, b = (np.ascontiguousarray(v.transpose(1, 0, 2)) for v in (a, b))
    compared("FusedMatMul", "a b", {"a": a, "b": b}, alpha=0.5, **flips, **batches)


@pytest.mark.parametrize(
    "activation",
    [
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_params": [0.125]},
        {"activation": "HardSigmoid", "activation_params": [0.25, 0.5]},
        {"activation": "Clip", "activation_params": [-0.5, 0.75]},
        {"activation": "HardSwish"},
    ],
)
def test_fused_conv(activation: dict[str, Any]) -> None:
    given = {"x": f32(1, 4, 5, 5), "w": f32(6, 2, 3, 3), "b": f32(6)}
    sizes: dict[str, Any] = {"group": 2, "pads": [1] * 4}
    compared("FusedConv", "x w b", given, constants="w b", **sizes, **activation)
    if activation["activation"] == "Relu":
        given["z"] = f32(1, 6, 5, 5)
        compared("FusedConv", "x w b z", given, constants="w b", **sizes, **activation)


@pytest.mark.parametrize(
    "activation",
    [{"activation": "Tanh"}, {"activation": "LeakyRelu", "activation_alpha": 0.125}],
)
def test_fused_gemm(activation: dict[str, Any]) -> None:
    given = {"x": f32(3, 4), "w": f32(5, 4), "b": f32(5)}
    compared("FusedGemm", "x w b", given, transB=1, alpha=0.5, beta=2.0, **activation)


def test_further_products() -> None:
    """Of which ONNX Runtime has but the first for CPUs."""
    given = {"a": f32(3, 4), "b": f32(5, 4), "c": f32(5)}
    compared("TransposeMatMul", "a b", given, transB=1, alpha=0.5)
    y = given["a"] @ given["b"].T
    made = model("FusedMatMulActivation", "a b", given, transB=1, activation="HardSigmoid",
                 activation_beta=0.25)  # fmt: skip
    check(made, given, want=[np.clip(0.2 * y + 0.25, 0, 1)])
    sums = {"x": y, "c": given["c"]}
    (want,) = expected(model("FastGelu", "x c", sums), sums)
    given["b"] = np.ascontiguousarray(given["b"].T)
    check(model("GemmFastGelu", "a b c", given), given, want=[want])


def test_convolutions_with_channels_behind() -> None:
    """Their weights are in ONNX's order. ONNX Runtime has only that of integers for CPUs."""
    given = {"x": f32(2, 5, 6, 4), "w": f32(6, 2, 3, 3), "b": f32(6), "z": f32(2, 5, 6, 6)}
    front = {n: np.ascontiguousarray(a.transpose(0, 3, 1, 2)) if n in "xz" else a
             for n, a in given.items()}  # fmt: skip
    sizes: dict[str, Any] = {"group": 2, "pads": [1] * 4, "activation": "Relu"}
    (want,) = expected(model("FusedConv", "x w b z", front, constants="w b", **sizes),
                       {n: front[n] for n in "xz"})  # fmt: skip
    made = model("NhwcFusedConv", "x w b z", given, constants="w b", **sizes)
    check(made, {n: given[n] for n in "xz"}, want=[want.transpose(0, 2, 3, 1)])
    behind = {**given, "w": np.ascontiguousarray(given["w"].transpose(0, 2, 3, 1))}
    sizes.pop("activation")
    del front["z"], behind["z"]
    (want,) = expected(model("FusedConv", "x w b", front, constants="w b", **sizes),
                       {"x": front["x"]})  # fmt: skip
    made = model("NhwcConv", "x w b", behind, constants="w b", **sizes)
    check(made, {"x": given["x"]}, want=[want.transpose(0, 2, 3, 1)])
    for last in (0, 1):
        whole = {**SCALES, "x": byte(2, 6, 6, 6), "w": byte(4, 3, 3, 3, dtype="int8"),
                 "zb": number(0, "int8")}  # fmt: skip
        compared("QLinearConv", "x sa za w sb zb sy zy", whole, "sa za w sb zb sy zy", group=2,
                 channels_last=last, strides=[2, 1])  # fmt: skip


def test_an_unknown_activation_is_named() -> None:
    given = {"x": f32(3, 4), "w": f32(4, 5)}
    with pytest.raises(PlanishError, match="activation Frob is not supported"):
        import_model(model("FusedGemm", "x w", given, activation="Frob"))


X = {"x": f32(2, 3, 8), "skip": f32(2, 3, 8, low=-1.0), "g": f32(8), "beta": f32(8), "b": f32(8)}


@pytest.mark.parametrize("names", ["x skip g", "x skip g beta", "x skip g beta b"])
def test_skip_layer_normalization(names: str) -> None:
    given = {n: X[n] for n in names.split()}
    compared("SkipLayerNormalization", names, given, outputs="y - - sum", epsilon=1e-5)


@pytest.mark.parametrize("names", ["x skip g", "x skip g b"])
def test_skip_simplified_layer_normalization(names: str) -> None:
    given = {n: X[n] for n in names.split()}
    compared("SkipSimplifiedLayerNormalization", names, given, outputs="y - - sum", epsilon=1e-5)


def test_simplified_layer_normalization() -> None:
    given = {"x": X["x"], "g": X["g"]}
    compared("SimplifiedLayerNormalization", "x g", given, domain="", epsilon=1e-5)


def test_quantize_and_back() -> None:
    given = {"x": f32(3, 4), "s": f32(3, low=0.1), "z": byte(3)}
    compared("QuantizeLinear", "x s z", given, axis=0)
    compared("DequantizeLinear", "x s z", {**given, "x": byte(3, 4)}, axis=0)


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(PlanishError, match=r"com\.microsoft\.Nothing"):
        import_model(model("Nothing", "x", {"x": f32(3)}))


def test_the_domain_need_not_be_declared() -> None:
    """It has one version, and ONNX Runtime doesn't ask for it."""
    given = {"x": f32(3)}
    made = model("Gelu", "x", given)
    kept = [entry for entry in made.opset_import if entry.domain != DOMAIN]
    del made.opset_import[:]
    made.opset_import.extend(kept)
    check(made, given, want=expected(model("Gelu", "x", given), given), tolerance=2e-5)
    assert needs(made.SerializeToString()).supported
