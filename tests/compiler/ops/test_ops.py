"""Every sample of every operator: shape rule, tensor expression and reference agree."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import BOOL, I64, from_numpy
from planish.compiler.errors import PlanishError
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, const, substitute
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import (
    MAX_CONTENT,
    Array,
    Content,
    TensorType,
    collecting_assumptions,
    tensor,
)
from planish.compiler.loop import te
from planish.compiler.loop.te_evaluate import evaluate
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators

load_operators()

Sample = tuple[Op, list[Array | None]]


def samples() -> Iterator[Any]:
    for name, cls in sorted(Op.registry.items()):
        for k, (op, arrays) in enumerate(cls.samples()):
            yield pytest.param((op, arrays), id=f"{name}-{k}")


SAMPLES = list(samples())


def tuple_of(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def reference(op: Op, arrays: list[Array | None]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return tuple_of(op.reference(*arrays))


def types_of(arrays: list[Array | None]) -> list[TensorType | None]:
    return [None if a is None else tensor(from_numpy(a.dtype), *a.shape) for a in arrays]


# Relative and absolute (to the largest finite value) tolerance by the number of bytes.
TOLERANCE = {1: 0.0, 2: 2e-3, 4: 2e-6, 8: 1e-13}


def assert_close(found: Array, wanted: Array) -> None:
    """Equal for integers and bools; NaN and infinities at the same places."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "iubc":  # complex numbers are moved
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = TOLERANCE[wanted.dtype.itemsize] * (4 if wanted.dtype.name == "bfloat16" else 1)
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(y[np.isfinite(y)])
    scale = float(np.minimum(finite, 1e3).max()) if finite.size else 0.0
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def infer(op: Op, types: list[TensorType | None]) -> tuple[TensorType, ...]:
    return tuple_of(op.infer(*types))


@pytest.mark.parametrize("sample", SAMPLES)
def test_infer_is_the_type_of_the_reference(sample: Sample) -> None:
    op, arrays = sample
    results = reference(op, arrays)
    values = bound(op, results)
    found = [
        t.with_shape(substitute(d, values) for d in t.shape) for t in infer(op, types_of(arrays))
    ]
    assert found == [tensor(from_numpy(a.dtype), *a.shape) for a in results]


def bound(op: Op, results: tuple[Array, ...]) -> dict[Var, Expr]:
    """The numbers of the symbols that the operator binds."""
    return {v: as_expr(k) for v, k in op.bound(results).items()}


def run(
    op: Op, arrays: list[Array | None], types: list[TensorType | None], symbols: dict[Var, int]
) -> tuple[Array, ...]:
    places = [None if t is None else te.placeholder(t.shape, t.dtype) for t in types]
    outputs = tuple_of(op.compute(*places))
    given = {p: a for p, a in zip(places, arrays, strict=True) if p is not None and a is not None}
    return evaluate(outputs, given, symbols)


@pytest.mark.parametrize("sample", SAMPLES)
def test_compute_is_the_reference(sample: Sample) -> None:
    op, arrays = sample
    if not op.is_expression:
        pytest.skip("given by its loops")
    found = run(op, arrays, types_of(arrays), {})
    for x, y in zip(found, reference(op, arrays), strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("sample", SAMPLES)
def test_dimensions_may_be_symbols(sample: Sample) -> None:
    """With a symbol for each dimension but 1: the same values, or an error that says why not."""
    op, arrays = sample
    symbols: dict[Var, int] = {}
    types: list[TensorType | None] = []
    for k, t in enumerate(types_of(arrays)):
        shape: list[Expr] = []
        for axis, d in enumerate(t.shape if t else ()):
            if isinstance(d, Const) and d.value == 1:
                shape.append(d)
            else:
                assert isinstance(d, Const)
                symbols[var := Var(f"d{k}_{axis}")] = int(d.value)
                shape.append(var)
        types.append(None if t is None else tensor(t.dtype, *shape))
    values = {v: Const(k) for v, k in symbols.items()}
    conditions: list[Expr] = []
    try:
        with collecting_assumptions(conditions):
            inferred = infer(op, types)
            found = run(op, arrays, types, symbols) if op.is_expression else None
    except PlanishError as error:
        assert type(error).__name__ != "InternalError", error
        pytest.skip(error.message)
    assert all(substitute(c, values) for c in conditions), conditions
    wanted = reference(op, arrays)
    for t, a in zip(inferred, wanted, strict=True):
        assert tuple(substitute(d, values) for d in t.shape) == tensor(t.dtype, *a.shape).shape
    for x, y in zip(found or (), wanted if found else (), strict=True):
        assert_close(x, y)


def max_of(a: Array) -> int:
    return max(map(int, a.ravel()), default=0)


def content(a: Array | None) -> Content | None:
    if a is None or a.dtype.kind not in "iub" or a.size > MAX_CONTENT or max_of(a) > I64.max:
        return None
    return tuple(const(int(v), I64 if a.dtype.kind != "b" else BOOL) for v in a.ravel())


@pytest.mark.parametrize("sample", SAMPLES)
def test_known_contents_are_the_reference(sample: Sample) -> None:
    op, arrays = sample
    types = types_of(arrays)
    outputs = infer(op, types)
    known = op.known(tuple(types), tuple(content(a) for a in arrays), outputs)
    assert len(known) <= len(outputs)
    results = reference(op, arrays)
    values = bound(op, results)
    for found, a in zip(known, results, strict=False):
        if found is not None:
            assert tuple(normal(substitute(e, values)) for e in found) == content(a)


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_two_inputs_are_equal(sample: Sample) -> None:
    """Swapped inputs, or one that is taken for another, would not be seen."""
    op, arrays = sample
    given = [(k, a) for k, a in enumerate(arrays) if a is not None and a.size > 1]
    for (i, x), (j, y) in itertools.combinations(given, 2):
        if (x.shape, x.dtype) == (y.shape, y.dtype):
            same = repr(x.tolist()) == repr(y.tolist())
            assert not same, f"inputs {i} and {j} are equal: give one another seed"


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_operator_is_documented_and_plain_data(name: str) -> None:
    cls = Op.registry[name]
    assert cls.name == name
    assert cls.__doc__ is not None
    assert "Shape:" in cls.__doc__
    assert "Source:" in cls.__doc__
    found = list(cls.samples())
    assert found
    for op, _ in found:
        assert type(op) is cls
        assert hash(op) == hash(dataclasses.replace(op))
        assert op == dataclasses.replace(op)
