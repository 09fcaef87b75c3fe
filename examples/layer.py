"""A small model to begin with: ``python examples/layer.py`` writes model.onnx and in.npz.

It is one layer, y = relu(x @ w + b), for any number of rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS, INPUTS, OUTPUTS = 4, 16, 8


def layer() -> onnx.ModelProto:
    """The model."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((INPUTS, OUTPUTS), dtype=np.float32)
    b = rng.standard_normal(OUTPUTS, dtype=np.float32).round(2)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", INPUTS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUTPUTS])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(folder: Path) -> None:
    """Write the model, and inputs for it."""
    onnx.save(layer(), folder / "model.onnx")
    x = np.random.default_rng(1).standard_normal((ROWS, INPUTS), dtype=np.float32)
    np.savez(folder / "in.npz", x=x)


if __name__ == "__main__":
    write(Path())
