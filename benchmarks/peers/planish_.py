"""planish for a harness that measures runtimes side by side: see ../README.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

import planish

Array = npt.NDArray[Any]


def version() -> str:
    """What is measured here."""
    return planish.__version__


def compile(onnx_path: str, threads: int) -> Callable[[Sequence[Array]], list[Array]]:
    """The model as a function from its inputs, in graph order, to its outputs."""
    module = planish.compile(onnx_path, threads=threads, logs=[])
    return lambda inputs: list(module(*inputs))


def runner(onnx_path: str) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """The model as a function from arrays by input name to arrays by output name."""
    return planish.compile(str(onnx_path)).run
