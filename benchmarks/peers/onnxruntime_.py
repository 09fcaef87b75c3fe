"""ONNX Runtime for a harness that measures runtimes side by side: see ../README.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]

Array = npt.NDArray[Any]


def version() -> str:
    """What is measured here."""
    return str(onnxruntime.__version__)


def compile(onnx_path: str, threads: int) -> Callable[[Sequence[Array]], list[Array]]:
    """The model as a function from its inputs, in graph order, to its outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(onnx_path, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return lambda inputs: list(session.run(None, dict(zip(names, inputs, strict=True))))
