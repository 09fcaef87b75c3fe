"""Empty tensors and scalars through every operator of ONNX: as its cases have them, but smaller.

A case's inputs get 0 elements along one axis, or along all axes of a size, or become scalars. Such
a model may be refused; if it is not, the native code gives what numpy does, optimised or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
import pytest
from conformance.suites import Case, cases

import planish
from planish.compiler.errors import InternalError, PlanishError, RuntimeFault
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

# numpy says so of means of nothing.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Arrays = list[np.ndarray]

PARTS: Final = 8
RANDOM: Final = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
)
MOST: Final = 4  # variants of a kind


def variants(arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    sizes = dict.fromkeys(d for a in arrays for d in a.shape if d > 1)
    for size in [*sizes][:MOST]:
        yield (
            f"no {size}",
            [none(a, [k for k, d in enumerate(a.shape) if d == size]) for a in arrays],
        )
    axes = [(k, axis) for k, a in enumerate(arrays) for axis in range(a.ndim)]
    for k, axis in axes[:MOST]:
        changed = [none(a, [axis]) if j == k else a for j, a in enumerate(arrays)]
        yield f"none along axis {axis} of input {k}", changed
    if all(a.size for a in arrays):
        yield "scalars", [scalar(a) for a in arrays]
        for k in range(len(arrays) if len(arrays) > 1 else 0):
            yield f"input {k} a scalar", [scalar(a) if j == k else a for j, a in enumerate(arrays)]


def none(array: np.ndarray, axes: list[int]) -> np.ndarray:
    return array[tuple(slice(0 if k in axes else None) for k in range(array.ndim))]


def scalar(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1)[:1].reshape(())


def everything() -> Iterator[tuple[str, onnx.ModelProto, Arrays]]:
    """Of each operator's first case whose inputs are tensors all variants."""
    seen: set[str] = set()
    for case in cases("node"):
        if case.operator in seen or case.operator in RANDOM or "_expanded" in case.name:
            continue
        found = tensors(case)
        if found is None:
            continue
        seen.add(case.operator)
        model, arrays = found
        for what, changed in variants(arrays):
            yield f"{case.name}: {what}", resized(model, changed), changed


def tensors(case: Case) -> tuple[onnx.ModelProto, Arrays] | None:
    model, sets = case.load()
    assert isinstance(model, onnx.ModelProto)
    arrays = sets[0][0]
    if not all(
        isinstance(a, np.ndarray | np.generic) and a.dtype.kind not in "OUS" for a in arrays
    ):
        return None
    whole = len(arrays) == len(model.graph.input) and len(arrays) > 0
    return (model, [np.asarray(a) for a in arrays]) if whole else None


def resized(model: onnx.ModelProto, arrays: Arrays) -> onnx.ModelProto:
    """The model with inputs of these shapes."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for port, array in zip(out.graph.input, arrays, strict=True):
        del port.type.tensor_type.shape.dim[:]
        for d in array.shape:
            port.type.tensor_type.shape.dim.add(dim_value=d)
    for port in out.graph.output:
        if port.type.WhichOneof("value") == "tensor_type":
            port.type.tensor_type.ClearField("shape")
    return out


def tried(name: str, model: onnx.ModelProto, arrays: Arrays) -> bool:
    """Whether the model runs; then it gives the same in all ways."""
    inputs = dict(zip((p.name for p in model.graph.input), arrays, strict=True))
    found: list[list[Any]] = []
    try:
        for optimize in (True, False):
            module = planish.compile(model, threads=1, optimize=optimize)
            found.append(list(module.run(inputs).values()))
    except InternalError:
        raise
    except PlanishError:
        return False
    graph = import_model(model)
    if not graph.packings:
        try:
            found.append(list(run_reference(graph, inputs)))
        except RuntimeFault as error:
            raise AssertionError(f"{name}: {error}") from error
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            if isinstance(a, np.ndarray):
                assert (a.shape, a.dtype) == (b.shape, b.dtype), name
                same = a.astype(np.complex128), b.astype(np.complex128)
                np.testing.assert_allclose(*same, rtol=1e-3, atol=1e-4, err_msg=name)
    return True


@pytest.fixture(scope="module")
def models() -> list[tuple[str, onnx.ModelProto, Arrays]]:
    return list(everything())


def test_some(models: list[tuple[str, onnx.ModelProto, Arrays]]) -> None:
    results = [tried(*some) for some in models[::40]]
    assert sum(results) > len(results) // 3


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_all(part: int, models: list[tuple[str, onnx.ModelProto, Arrays]]) -> None:
    results = [tried(*some) for some in models[part::PARTS]]
    assert sum(results) > len(results) // 2
