"""Where the bad inputs are collected: each is a function that tries to use one.

A function takes an empty folder and gives what is to raise an error; its name says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

import planish

Array: TypeAlias = npt.NDArray[Any]
Case: TypeAlias = Callable[[Path], object]

CASES: Final[dict[str, Case]] = {}


def case(function: Case) -> Case:
    """Collect a case, under its function's name."""
    name = function.__name__
    assert name not in CASES, name
    CASES[name] = function
    return function


def refused(name: str, make: Callable[[], onnx.ModelProto | bytes], **options: Any) -> None:
    """A case of a model that ``planish.compile`` refuses."""
    assert name not in CASES, name
    CASES[name] = lambda _: planish.compile(make(), **options)


# ------------------------------------------------------------------------------------- models

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def node(op: str, inputs: str = "x", outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, and ``-`` stands for one that is left out."""
    names = [["" if n == "-" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"the_{op.lower()}", **attributes)


def floats(*dims: int | str | None, name: str = "x") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, dims)


def ints(*dims: int | str | None, name: str = "k") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, INT64, dims)


def model(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    *,
    outputs: str = "y",
    opset: int = 20,
    constants: dict[str, Any] | None = None,
    domains: dict[str, int] | None = None,
    **options: Any,
) -> onnx.ModelProto:
    """A model with the input ``x: f32[2, 3]`` unless others are given."""
    graph = helper.make_graph(
        [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes),
        "net",
        list(inputs) or [floats(2, 3)],
        [onnx.ValueInfoProto(name=n) for n in outputs.split()],
        [
            a if isinstance(a, TensorProto) else numpy_helper.from_array(np.asarray(a), name)
            for name, a in (constants or {}).items()
        ],
    )
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **options)


def layer(rows: int | str = "batch") -> onnx.ModelProto:
    """A model that is right: y = relu(x @ w + b), and k + 1 for an integer input."""
    rng = np.random.default_rng(0)
    return model(
        [
            node("MatMul", "x w", "product"),
            node("Add", "product b", "sum"),
            node("Relu", "sum", "y"),
            node("Add", "k one", "z"),
        ],
        [floats(rows, 16), ints(rows, name="k")],
        outputs="y z",
        constants={
            "w": rng.standard_normal((16, 8), dtype=np.float32),
            "b": rng.standard_normal(8, dtype=np.float32),
            "one": np.array(1, np.int64),
        },
    )
