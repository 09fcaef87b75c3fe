"""Random operators: their distributions, and that a seed decides the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_harness import check, model_of, node

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32

LIKE = np.zeros((40, 50), np.float32)


def run(
    op_type: str,
    inputs: dict[str, Array] | None = None,
    outputs: int = 1,
    opset: int = 22,
    symbolic: bool = False,
    **attributes: Any,
) -> list[Array]:
    given = inputs or {}
    names = " ".join(f"{op_type}_{k}" for k in range(outputs))
    made = node(op_type, " ".join(given), names, **attributes)
    graph = import_model(model_of(made, given, opset=opset, symbolic=symbolic))
    return list(run_reference(graph, given))


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("dtype", [1, 10, 11])
def test_uniform(opset: int, dtype: int) -> None:
    (x,) = run("RandomUniform", opset=opset, shape=[40, 50], low=-1.0, high=3.0, dtype=dtype)
    assert x.shape == (40, 50)
    assert -1 <= x.min() < -0.9
    assert 2.9 < x.max() <= 3
    assert abs(x.astype(np.float64).mean() - 1) < 0.1


@pytest.mark.parametrize("symbolic", [False, True])
def test_normal(symbolic: bool) -> None:
    (x,) = run("RandomNormalLike", {"x": LIKE}, symbolic=symbolic, mean=2.0, scale=0.5, seed=3.0)
    (y,) = run("RandomNormal", shape=[40, 50], mean=2.0, scale=0.5, seed=3.0)
    np.testing.assert_array_equal(x, y)
    assert abs(x.mean() - 2) < 0.05
    assert abs(x.std() - 0.5) < 0.03
    assert abs(np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 0.1


def test_seeds_decide() -> None:
    first, again, other = (
        run("RandomUniformLike", {"x": LIKE}, seed=s)[0] for s in (1.0, 1.0, 2.0)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == other) < 0.01


def test_nodes_without_a_seed_differ() -> None:
    nodes = [node("RandomUniformLike", "x", name) for name in ("a", "b")]
    graph = import_model(model_of(nodes, {"x": LIKE}))
    a, b = run_reference(graph, {"x": LIKE})
    assert np.mean(a == b) < 0.01


@pytest.mark.parametrize("symbolic", [False, True])
def test_multinomial(symbolic: bool) -> None:
    odds = np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]], np.float32)
    with np.errstate(divide="ignore"):
        logs = np.log(odds)
    (x,) = run("Multinomial", {"x": logs}, symbolic=symbolic, sample_size=2000, dtype=7)
    assert x.dtype == np.int64
    for row, wanted in zip(x, odds, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / 2000, wanted, atol=0.04)


def test_bernoulli() -> None:
    p = np.full((40, 50), 0.3, np.float32)
    p[0], p[1] = 0, 1
    (x,) = run("Bernoulli", {"x": p}, dtype=9)
    assert x.dtype == bool
    assert not x[0].any()
    assert x[1].all()
    assert abs(x[2:].mean() - 0.3) < 0.04


@pytest.mark.parametrize("opset", [12, 22])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_dropout(opset: int, known: bool, training: bool) -> None:
    x = f32(40, 50)
    more = {"ratio": np.array(0.25, np.float32), "mode": np.array(training)}
    given = {"x": x} if known else {"x": x, **more}
    model = model_of(
        node("Dropout", "x ratio mode", "y mask", seed=5),
        given,
        opset=opset,
        constants=more if known else {},
    )
    y, mask = run_reference(import_model(model), given)
    assert mask.dtype == bool
    if training:
        np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
        assert abs(mask.mean() - 0.75) < 0.04
    else:
        np.testing.assert_array_equal(y, x)
        assert mask.all()


@pytest.mark.parametrize(("opset", "attributes"), [(1, {"consumed_inputs": [0]}), (6, {})])
def test_dropout_before_version_seven(opset: int, attributes: dict[str, Any]) -> None:
    x = f32(40, 50)
    y, mask = run("Dropout", {"x": x}, 2, opset, ratio=0.25, **attributes)
    np.testing.assert_allclose(y, np.where(mask > 0, x / 0.75, 0), rtol=1e-6)
    assert mask.dtype == x.dtype
    (same,) = run("Dropout", {"x": x}, 1, opset, is_test=1, **attributes)
    np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("k", [0, 1, -2, 9])
@pytest.mark.parametrize("dtype", [1, 9, 7])
def test_eye_like(k: int, dtype: int) -> None:
    check(node("EyeLike", "x", k=k, dtype=dtype), {"x": f32(4, 5)}, opset=9)


def test_a_shape_must_be_there() -> None:
    with pytest.raises(PlanishError, match="attribute shape is missing"):
        run("RandomNormal")
