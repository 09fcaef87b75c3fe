"""All models of a folder, compiled: against ONNX Runtime, at several sizes, optimised and not.

``PLANISH_MODELS`` names the folder. It holds NAME.onnx with sample inputs, NAME.npz, beside it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import planish
from planish.verify import compare

from .networks import Array

pytestmark = pytest.mark.long

FOLDER = Path(os.environ.get("PLANISH_MODELS", "/nowhere"))
NAMES = sorted(p.stem for p in FOLDER.glob("*.onnx") if p.with_suffix(".npz").exists())

TOLERANCE = 1e-4  # of the largest value
# A network that multiplies rounding errors is judged by how far ONNX Runtime is from itself,
# with and without its optimiser.
CONDITION = 4.0

every_model = pytest.mark.parametrize(
    "name", NAMES or [pytest.param("none", marks=pytest.mark.skip("PLANISH_MODELS is not set"))]
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """These models are large: one at a time."""
    yield
    gc.collect()


@lru_cache(1)
def samples(name: str) -> dict[str, Array]:
    with np.load(FOLDER / f"{name}.npz") as archive:
        return {k: archive[k] for k in archive.files}


@lru_cache(1)
def symbols(name: str) -> dict[str, list[tuple[str, int]]]:
    """The inputs and axes that have each symbolic size."""
    graph = onnx.load(str(FOLDER / f"{name}.onnx"), load_external_data=False).graph
    out: dict[str, list[tuple[str, int]]] = {}
    for info in graph.input:
        for axis, d in enumerate(info.type.tensor_type.shape.dim):
            if d.HasField("dim_param") and info.name in samples(name):
                out.setdefault(d.dim_param, []).append((info.name, axis))
    return out


def resized(name: str, sizes: Mapping[str, int]) -> dict[str, Array]:
    """The sample inputs, repeated or cut along their symbolic axes."""
    out = dict(samples(name))
    for symbol, size in sizes.items():
        for k, axis in symbols(name)[symbol]:
            out[k] = np.take(out[k], range(size), axis, mode="wrap")
    return out


def session(name: str, optimize: bool = True) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(FOLDER / f"{name}.onnx"), options, ["CPUExecutionProvider"])


def check(name: str, found: Mapping[str, Array], inputs: Mapping[str, Array], runner: Any) -> None:
    names = [o.name for o in runner.get_outputs()]
    wanted = dict(zip(names, runner.run(None, dict(inputs)), strict=True))
    off = [d for n in names if not (d := compare(n, found[n], wanted[n], TOLERANCE)).right]
    if not off:
        return
    again = dict(zip(names, session(name, False).run(None, dict(inputs)), strict=True))
    for d in off:
        condition = compare(d.name, again[d.name], wanted[d.name], TOLERANCE).error
        assert d.error <= CONDITION * condition, f"{d}; onnxruntime differs by {condition}"


@every_model
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_outputs(name: str, optimize: bool) -> None:
    module = planish.compile(FOLDER / f"{name}.onnx", optimize=optimize, logs=[])
    check(name, module.run(samples(name)), samples(name), session(name))


@every_model
def test_other_sizes(name: str) -> None:
    """One module serves all sizes that ONNX Runtime can serve; the rest are errors of ours."""
    sizes = {s: samples(name)[k].shape[axis] for s, ((k, axis), *_) in symbols(name).items()}
    if not sizes:
        pytest.skip("all sizes are fixed")
    module = planish.compile(FOLDER / f"{name}.onnx", logs=[])
    runner = session(name)
    served = 0
    for change in (lambda _: 1, lambda _: 3, lambda s: s + 1, lambda s: max(1, s // 2 - 1)):
        for only in (*sizes, None):
            now = {s: change(k) if only in (s, None) else k for s, k in sizes.items()}
            inputs = resized(name, now)
            try:
                runner.run(None, inputs)
            except Exception:  # noqa: BLE001 - whatever it says: it cannot
                continue
            check(name, module.run(inputs), inputs, runner)
            served += 1
    assert served
