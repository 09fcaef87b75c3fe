"""Operators on signals against numpy and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_harness import by_reference, check, compare, model_of, node

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize(
    ("parts", "attributes"),
    [
        (1, {}),
        (2, {}),
        (2, {"inverse": 1}),
        (1, {"onesided": 1}),
        (2, {"inverse": 1, "onesided": 1}),
    ],
)
def test_dft(
    opset: int, length: int | None, axis: int, parts: int, attributes: dict[str, Any]
) -> None:
    x = f32(5, 6, 7, parts)
    constants = {} if length is None else {"n": np.array(length)}
    names = "x -" if length is None else "x n"
    if opset == 17:
        made = node("DFT", names.removesuffix(" -"), axis=axis, **attributes)
    else:
        constants["axis"] = np.array(axis)
        made = node("DFT", f"{names} axis", **attributes)
    model = model_of(made, {"x": x}, opset=opset, constants=constants)
    want = by_reference(model, {"x": x})
    check(made, {"x": x}, opset=opset, constants=constants, want=want)


def transform(x: Array, **attributes: Any) -> Array:
    graph = import_model(model_of(node("DFT", "x", axis=1, **attributes), {"x": x}, opset=17))
    return run_reference(graph, {"x": x})[0]


@pytest.mark.parametrize("size", [1, 2, 255, 257, 512, 1000, 1009, 2018, 2003, 4000])
def test_lengths(size: int) -> None:
    x = f32(2, size, 2)
    z = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    y = np.fft.fft(z, axis=1)
    compare([transform(x)], [np.stack([y.real, y.imag], -1).astype("float32")])
    y = np.fft.ifft(z, axis=1)
    compare([transform(x, inverse=1)], [np.stack([y.real, y.imag], -1).astype("float32")])
    y = np.fft.rfft(z.real, axis=1)
    wanted = np.stack([y.real, y.imag], -1).astype("float32")
    compare([transform(x[..., :1].copy(), onesided=1)], [wanted])
    if size > 1:
        half = wanted.astype(np.float64)
        y = np.fft.irfft(half[..., 0] + 1j * half[..., 1], axis=1)
        compare([transform(wanted, onesided=1, inverse=1)], [y[..., None].astype("float32")])


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("length", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(window: bool, length: bool, onesided: int) -> None:
    x = f32(2, 40, 1)
    constants: dict[str, Array] = {"step": np.array(6)}
    if window:
        constants["window"] = f32(16)
    if length:
        constants["length"] = np.array(16)
    names = f"x step {'window' if window else '-'} {'length' if length else '-'}"
    made = node("STFT", names, onesided=onesided)
    model = model_of(made, {"x": x}, constants=constants)
    check(made, {"x": x}, constants=constants, want=by_reference(model, {"x": x}))


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("attributes", [{}, {"periodic": 0}, {"output_datatype": 11}])
def test_windows(op_type: str, attributes: dict[str, Any]) -> None:
    made = node(op_type, "size", **attributes)
    constants = {"size": np.array(10, np.int32)}
    model = model_of(made, {}, constants=constants)
    check(made, {}, constants=constants, want=by_reference(model, {}), tolerance=1e-6)


@pytest.mark.parametrize("kind", [1, 11])
def test_mel_weight_matrix(kind: int) -> None:
    constants = {
        "bands": np.array(8), "length": np.array(64), "rate": np.array(8192),
        "low": np.array(100.0, "float32"), "high": np.array(4096.0, "float32"),
    }  # fmt: skip
    made = node("MelWeightMatrix", "bands length rate low high", output_datatype=kind)
    model = model_of(made, {}, constants=constants)
    check(made, {}, constants=constants, want=by_reference(model, {}))


@pytest.mark.parametrize(
    ("attributes", "shape", "message"),
    [
        ({"axis": 3}, (2, 5, 2), "axis 3 is out of range"),
        ({"axis": 2}, (2, 5, 2), "the last axis holds"),
        ({"onesided": 1}, (2, 5, 2), "2 parts is not real"),
        ({"onesided": 1, "inverse": 1}, (2, 5, 1), "1 parts is not complex"),
        ({}, (2, 5, 3), "neither real nor complex"),
    ],
)
def test_what_is_no_signal(attributes: dict[str, Any], shape: Any, message: str) -> None:
    with pytest.raises(PlanishError, match=message):
        import_model(model_of(node("DFT", "x", **attributes), {"x": f32(*shape)}, opset=17))
