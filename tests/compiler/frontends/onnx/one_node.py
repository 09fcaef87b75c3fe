"""Nodes on lists of arrays: the positions of ``onnx_harness`` instead of its names."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_harness
from onnx import helper

from planish.compiler.graph.ir import Array

Arrays = list[Array | None]


def model_of(
    op_type: str,
    inputs: Arrays,
    opset: int,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """The node on these inputs; None is one left out; ``constants`` are initialisers."""
    node = node_of(op_type, inputs, outputs, **attributes)
    given, known = named(inputs, constants)
    return onnx_harness.model_of(node, given, opset=opset, constants=known)


def node_of(op_type: str, inputs: Arrays, outputs: int, **attributes: Any) -> onnx.NodeProto:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    return helper.make_node(op_type, names, [f"y{k}" for k in range(outputs)], **attributes)


def named(inputs: Arrays, constants: tuple[int, ...]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs and the initialisers by name."""
    arrays = {k: a for k, a in enumerate(inputs) if a is not None}
    given = {f"x{k}": a for k, a in arrays.items() if k not in constants}
    return given, {f"x{k}": a for k, a in arrays.items() if k in constants}


def check(
    op_type: str,
    inputs: Arrays,
    opset: int,
    outputs: int = 1,
    constants: tuple[int, ...] = (),
    oracle: str = "runtime",
    **attributes: Any,
) -> None:
    """Import and compare with ``oracle``: "runtime" (ONNX Runtime) or "reference" (ONNX's own)."""
    given, known = named(inputs, constants)
    want = None
    if oracle == "reference":
        model = model_of(op_type, inputs, opset, outputs, constants, **attributes)
        want = onnx_harness.by_reference(model, given)
    node = node_of(op_type, inputs, outputs, **attributes)
    onnx_harness.check(
        node,
        given,
        constants=known,
        opset=opset,
        want=want,
        tolerance=2e-5,
        # A symbol is taken not to be 1: such a dimension would not broadcast.
        symbolic=all(1 not in a.shape for a in given.values()),
    )
