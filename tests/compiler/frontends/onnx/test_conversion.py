"""Cast, CastLike and BitCast: ONNX's own cases, options, versions and refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conformance.suites import cases
from onnx_harness import TensorProto, check, compare, model_of, node, round_trip

from planish.compiler.conversion import converted
from planish.compiler.dtypes import F8E5M2, F8E8M0
from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

E5M2, E8M0 = TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E8M0


@pytest.mark.parametrize("op", ["Cast", "CastLike", "BitCast"])
def test_cases_of_onnx(op: str) -> None:
    chosen = [c for c in cases("node") if c.operator == op and "expanded" not in c.name]
    assert chosen
    for case in chosen:
        model, data = case.load()
        assert isinstance(model, onnx.ModelProto)
        graph = import_model(model)
        round_trip(graph)
        for inputs, outputs in data:
            compare(
                run_reference(graph, dict(zip(graph.input_names, inputs, strict=True))), outputs
            )


def test_the_first_version_names_the_dtype() -> None:
    x = np.array([1.5, -2.5], np.float32)
    model = model_of(node("Cast", "x", to="INT32"), {"x": x}, opset=5)
    (found,) = run_reference(import_model(model), {"x": x})
    assert found.dtype == np.int32 and found.tolist() == [1, -2]
    model = model_of(node("Cast", "x", to="INT33"), {"x": x}, opset=5)
    with pytest.raises(ImportModelError, match="attribute to is 'INT33', which is no element type"):
        import_model(model)


@pytest.mark.parametrize("opset", [19, 21, 23, 24, 25, 28])
@pytest.mark.parametrize("saturate", [0, 1])
def test_saturation(opset: int, saturate: int) -> None:
    x = np.array([57344.0, 61440, 1e9, -np.inf, np.nan, -0.0], np.float32)
    top = 57344.0
    want = [[top, np.inf, np.inf, -np.inf], [top, top, top, -top]][saturate]
    like = np.ones(1, F8E5M2.numpy)
    for one in (
        node("Cast", "x", to=E5M2, saturate=saturate),
        node("CastLike", "x like", saturate=saturate),
    ):
        check(
            one,
            {"x": x},
            constants={"like": like} if one.op_type == "CastLike" else None,
            opset=opset,
            want=[np.array([*want, np.nan, -0.0]).astype(F8E5M2.numpy)],
        )


def test_saturation_of_the_same_dtype() -> None:
    x = np.array([np.inf, -np.inf, 3, np.nan], np.float32).astype(F8E5M2.numpy)
    model = model_of(node("Cast", "x", to=E5M2), {"x": x}, opset=25)
    (found,) = run_reference(import_model(model), {"x": x})
    np.testing.assert_array_equal(found.astype(np.float32), [57344, -57344, 3, np.nan])


ROUNDED = {
    "up": [2.0**-127, 2.0**-127, 1.0, 2.0, 2.0, 2.0**127, 2.0**127, 2.0**127],
    "down": [2.0**-127, 2.0**-127, 1.0, 1.0, 1.0, 2.0**127, 2.0**127, 2.0**127],
    "nearest": [2.0**-127, 2.0**-127, 1.0, 1.0, 2.0, 2.0**127, 2.0**127, 2.0**127],
}


@pytest.mark.parametrize("mode", ROUNDED)
def test_powers_of_two(mode: str) -> None:
    """As ONNX's table says; what it leaves open (negative numbers) is NaN."""
    x = np.array([0.0, 1e-40, 1.0, 1.25, 1.5, 2.0**127, 1.5 * 2.0**127, np.inf, np.nan, -1.0])
    x = x.astype(np.float32)
    want = np.array([*ROUNDED[mode], np.nan, np.nan])
    check(
        node("Cast", "x", to=E8M0, round_mode=mode),
        {"x": x},
        opset=25,
        want=[converted(want, F8E8M0)],
    )
    nan = {"up": [0, 6, 7, 8, 9], "down": [0, 1, 7, 8, 9], "nearest": [0, 1, 6, 7, 8, 9]}[mode]
    want[nan] = np.nan
    check(
        node("Cast", "x", to=E8M0, round_mode=mode, saturate=0),
        {"x": x},
        opset=25,
        want=[converted(want, F8E8M0)],
    )


def test_bits_of_complex_numbers() -> None:
    x = np.array([1 + 2j, -0.5j], np.complex64)
    one = node("BitCast", "x", to=TensorProto.UINT64)
    check(one, {"x": x}, opset=26, want=[x.view(np.uint64)])


REFUSED = [
    (node("Cast", "x", to=E8M0, round_mode="odd"), "no round mode odd"),
    (node("Cast", "x", to=E5M2, saturate=2), "attribute saturate is 2"),
    (node("Cast", "x", to=TensorProto.COMPLEX64), "f32 is not converted to c64"),
    (node("BitCast", "x", to=TensorProto.FLOAT16), "f32 has 32 bits, f16 16"),
    (node("BitCast", "x", to=TensorProto.INT4), "f32 has 32 bits, i4 4"),
]


@pytest.mark.parametrize(("one", "message"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refused(one: onnx.NodeProto, message: str) -> None:
    """Alike for inputs, and for constants, which are converted during the import."""
    x = {"x": np.ones(3, np.float32)}
    with pytest.raises(ImportModelError, match=message):
        import_model(model_of(one, x, opset=28))
    with pytest.raises(ImportModelError, match=message):
        import_model(model_of(one, {}, constants=x, opset=28))


def test_complex_numbers_are_not_computed_with() -> None:
    x = np.ones(20, np.complex64)
    with pytest.raises(ImportModelError, match="which opset 25 does not allow"):
        import_model(model_of(node("Add", "x x"), {"x": x}, opset=25))
