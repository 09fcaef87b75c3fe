"""Steps of optimisers, and counts of n-grams, against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_harness import by_reference, check, expected, model_of, node

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.ops.sampling import f32, ints

DOMAIN = "ai.onnx.preview.training"
RATE = np.array(0.1, np.float32)


def optimised(op_type: str, kinds: str, parameters: int, steps: int, **attributes: Any) -> None:
    inputs = {"r": RATE, "t": np.array(steps)}
    for kind in kinds:
        for k in range(parameters):
            # What is kept of squares is not negative.
            inputs[f"{kind}{k}"] = f32(3, k + 2, low=0.0 if kind == "h" else -3.0)
    outputs = [f"{kind}{k}_new" for kind in kinds if kind != "g" for k in range(parameters)]
    made = helper.make_node(op_type, list(inputs), outputs, domain=DOMAIN, **attributes)
    model = model_of(made, inputs, domains={DOMAIN: 1})
    want = [a.astype(np.float32) for a in by_reference(model, inputs)]  # some it gives wider
    check(model, inputs, want=want)


@pytest.mark.parametrize("parameters", [1, 2])
@pytest.mark.parametrize("steps", [0, 3])
def test_adagrad(parameters: int, steps: int) -> None:
    optimised("Adagrad", "xgh", parameters, steps, norm_coefficient=0.01, decay_factor=0.1)
    optimised("Adagrad", "xgh", parameters, steps, epsilon=1e-3)


@pytest.mark.parametrize("parameters", [1, 2])
@pytest.mark.parametrize("steps", [0, 3])
def test_adam(parameters: int, steps: int) -> None:
    optimised("Adam", "xgvh", parameters, steps, norm_coefficient=0.01, alpha=0.8, beta=0.9)
    optimised("Adam", "xgvh", parameters, steps, norm_coefficient_post=0.02)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("steps", [0, 3])
def test_momentum(mode: str, steps: int) -> None:
    optimised("Momentum", "xgv", 2, steps, mode=mode, norm_coefficient=0.01, alpha=0.9, beta=0.8)


def test_tensors_of_each_kind() -> None:
    inputs = {"r": RATE, "t": np.array(0), "x": f32(3), "g": f32(3)}
    made = helper.make_node("Adagrad", list(inputs), ["y", "z"], domain=DOMAIN)
    with pytest.raises(PlanishError, match="2 tensors are not 3 for each parameter"):
        import_model(model_of(made, inputs, domains={DOMAIN: 1}))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("shape", [(9,), (3, 9)])
def test_tfidf(mode: str, skips: int, lengths: tuple[int, int], shape: tuple[int, ...]) -> None:
    x = ints(*shape, low=0, high=3)
    made = node(
        "TfIdfVectorizer", "x", mode=mode, max_skip_count=skips, min_gram_length=lengths[0],
        max_gram_length=lengths[1], ngram_counts=[0, 2, 6], ngram_indexes=[3, 0, 1, 4, 2],
        pool_int64s=[1, 2, 0, 1, 2, 2, 0, 1, 1], weights=[0.5, 1.5, 2.0, 0.25, 3.0],
    )  # fmt: skip
    want = expected(model_of(made, {"x": x}), {"x": x})
    check(made, {"x": x}, want=want)
