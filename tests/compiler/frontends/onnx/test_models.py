"""Whole networks: imported and run by the operators' references, against ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_harness import round_trip

from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "models"

# A few seconds together; the others have more weights, or take longer in numpy.
SMALL = (
    "gru", "gru_ts", "lstm_ts", "mlp", "mlp_dyn", "mobilenet_v2_ts", "mobilenet_v3_small",
    "mobilenet_v3_small_raw", "unet2d", "unet2d_ts",
)  # fmt: skip
LARGE = (
    "bert_base", "bert_base_dyn", "bert_base_raw", "bert_base_ts", "convnext_tiny",
    "efficientnet_b0", "gpt2", "gpt2_decode", "gpt2_dyn", "llama_decode", "llama_small",
    "llama_small_dyn",
    "llama_small_raw", "lstm", "minilm", "mobilenet_v2", "resnet18", "resnet18_dyn", "resnet18_raw",
    "resnet18_ts", "resnet50", "resnet50_dyn", "vit_b_16", "whisper_tiny_encoder",
)  # fmt: skip

# A change of its input by 1e-7 moves the outputs of this one by 2e-2, in any runtime.
TOLERANCE = {"efficientnet_b0": 1e-1}


def fill() -> Any:
    """The module that makes full models of weightless ones."""
    spec = importlib.util.spec_from_file_location("fill", FOLDER / "fill.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the models are not there")
@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(name, marks=pytest.mark.long) for name in LARGE)]
)
def test_network(name: str) -> None:
    import onnxruntime as ort

    module = fill()
    model: onnx.ModelProto = module.load(name)
    inputs = module.inputs(model)
    graph = import_model(model)
    round_trip(graph)
    want = ort.InferenceSession(model.SerializeToString()).run(None, inputs)
    for a, b in zip(run_reference(graph, inputs), want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        scale = np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE.get(name, 1e-4) * scale)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the models are not there")
@pytest.mark.parametrize("name", ["mlp_dyn", pytest.param("resnet18_dyn", marks=pytest.mark.long)])
def test_network_of_another_batch(name: str) -> None:
    import onnxruntime as ort

    module = fill()
    model = module.load(name)
    graph = import_model(model)
    session = ort.InferenceSession(model.SerializeToString())
    for batch in (1, 3):
        inputs = module.inputs(model, batch=batch)
        for a, b in zip(run_reference(graph, inputs), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())
