"""Operators of ONNX Runtime among ONNX's own, against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_harness import check, model_of, node

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.ops.sampling import f32


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Affine", {"alpha": 2.0, "beta": -0.5}),
        ("Affine", {}),
        ("Scale", {"scale": 0.5}),
        ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0, 3.0]}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("Crop", {"border": [1, 2, 1, 0]}),
        ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 2]}),
    ],
)
@pytest.mark.parametrize("opset", [7, 9])
def test_withdrawn_operators(op_type: str, attributes: dict[str, Any], opset: int) -> None:
    check(node(op_type, "x", **attributes), {"x": f32(2, 3, 6, 5)}, opset=opset)


@pytest.mark.parametrize("opset", [9, 12, 16])
@pytest.mark.parametrize("inputs", ["x s", "x s b"])
def test_layer_normalization_in_older_opsets(opset: int, inputs: str) -> None:
    """Which the optimiser of ONNX Runtime puts there."""
    given = {"x": f32(2, 3, 8), "s": f32(8), "b": f32(8, low=0.0)}
    given = {n: given[n] for n in inputs.split()}
    check(node("LayerNormalization", inputs, axis=-1, epsilon=1e-6), given, opset=opset)


def test_a_layout_for_one_machine() -> None:
    made = helper.make_node("ReorderOutput", ["x"], ["y"], domain="com.microsoft.nchwc", channels=3)
    model = model_of(made, {"x": np.zeros((1, 8, 2, 2), np.float32)},
                     domains={"com.microsoft.nchwc": 1})  # fmt: skip
    with pytest.raises(PlanishError, match="ReorderOutput .* is not supported") as caught:
        import_model(model)
    assert "ORT_ENABLE_EXTENDED" in str(caught.value)
