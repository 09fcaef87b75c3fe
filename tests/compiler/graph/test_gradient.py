"""Gradients by rule against differences of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planish.compiler.graph.gradient_windows  # noqa: F401 - whose rules are tried too
from planish.compiler.dtypes import F64, from_numpy
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.gradient import RULES, gradients
from planish.compiler.graph.ir import GraphBuilder, Value, tensor
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.activations import LeakyRelu, Relu, Sigmoid, Softplus, Tanh
from planish.compiler.ops.base import Op
from planish.compiler.ops.channel_normalization import BatchNorm
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, Max, Min, Mul, Sub
from planish.compiler.ops.global_pooling import GlobalAveragePool
from planish.compiler.ops.indexing import Gather, GatherElements, Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.pooling import AveragePool, MaxPool
from planish.compiler.ops.power import Pow
from planish.compiler.ops.reduction import ReduceMean, ReduceSum
from planish.compiler.ops.shape import Concat, Expand, Reshape, Split, Transpose
from planish.compiler.ops.softmax import LogSoftmax, Softmax
from planish.compiler.ops.unary import Abs, Cos, Erf, Exp, Log, Neg, Reciprocal, Sin, Sqrt, Tan

Array = Any
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Array:
    return np.asarray(RNG.uniform(0.3, 1.7, shape) * RNG.choice([-1.0, 1.0], shape))


def positive(*shape: int) -> Array:
    return RNG.uniform(0.3, 1.7, shape)


def dims(*shape: int) -> tuple[Any, ...]:
    return tuple(map(as_expr, shape))


def distinct(*shape: int) -> Array:
    """Numbers of which the greatest stays the greatest when all move a little."""
    return RNG.permutation(int(np.prod(shape))).reshape(shape) / 4


MASK = np.array([[True], [False]])
UNARY = (Neg, Abs, Exp, Reciprocal, Sin, Cos, Tanh, Sigmoid, Softplus, Erf, Relu)
CASES: list[tuple[Op, list[Array]]] = [
    *((kind(), [numbers(2, 3)]) for kind in UNARY),
    *((kind(), [positive(2, 3)]) for kind in (Log, Sqrt)),
    (LeakyRelu(0.3), [numbers(2, 3)]),
    *((kind(), [numbers(2, 3), numbers(3)]) for kind in (Add, Sub, Mul, Div, Max, Min)),
    *((kind(), [numbers(2, 1), numbers(1, 3)]) for kind in (Add, Sub, Mul, Div)),
    (Mul(), [numbers(), numbers(2, 2)]),
    (Pow(), [positive(2, 3), numbers(3)]),
    (Pow(), [positive(2, 3), np.array(3)]),
    (Where(), [MASK, numbers(2, 3), numbers(3)]),
    (Cast(F64), [numbers(2, 3)]),
    (ReduceSum((1,), True), [numbers(2, 3)]),
    (ReduceSum(None, False), [numbers(2, 3)]),
    (ReduceMean((0, 2), False), [numbers(2, 3, 2)]),
    (Softmax((-1,)), [numbers(2, 3)]),
    (LogSoftmax((0, 1)), [numbers(2, 3)]),
    *((MatMul(a, b), [numbers(*((3, 2) if a else (2, 3))), numbers(*((4, 3) if b else (3, 4)))])
      for a in (False, True) for b in (False, True)),
    (MatMul(True, True), [numbers(2, 1, 3, 2), numbers(5, 4, 3)]),
    (Reshape(dims(3, 2)), [numbers(2, 3)]),
    (Expand(dims(4, 2, 3)), [numbers(2, 1)]),
    (Transpose((2, 0, 1)), [numbers(2, 3, 4)]),
    (Concat(1), [numbers(2, 3), numbers(2, 1), numbers(2, 2)]),
    (Split(dims(1, 2), 1), [numbers(2, 3)]),
    (Slice(dims(1, 0), (1, 1), dims(2, 3)), [numbers(4, 3)]),
    (Slice(dims(4, 0), (-2, 3), dims(2, 2)), [numbers(6, 5)]),
    (Slice(dims(3), (1,), dims(0)), [numbers(3)]),
    (Pad(dims(1, 0), dims(2, 1), "constant"), [numbers(2, 3), numbers()]),
    (Pad(dims(-1, 2), dims(0, -1), "constant"), [numbers(2, 3)]),
    (Gather(1), [numbers(2, 3, 2), np.array([[2, 0], [-1, 2]])]),
    (Gather(0), [numbers(3), np.array(1)]),
    (GatherElements(1), [numbers(2, 3), np.array([[2, 2], [-3, 1]])]),
    (Conv((1, 1), (1, 1), (1, 1, 1, 1)), [numbers(2, 3, 4, 5), numbers(2, 3, 3, 3), numbers(2)]),
    (Conv((2, 3), (1, 2), (0, 1, 2, 0)), [numbers(1, 2, 7, 8), numbers(3, 2, 3, 2)]),
    (Conv((2,), (1,), (1, 0), 2), [numbers(2, 4, 6), numbers(6, 2, 2), numbers(6)]),
    (Conv((1, 2), (1, 1), (1, 1, 0, 1), 3), [numbers(1, 3, 4, 4), numbers(3, 1, 3, 3)]),
    (Conv((1,), (1,), (-1, 0)), [numbers(1, 2, 5), numbers(2, 2, 2)]),
    (ConvTranspose((2, 1), (1, 2), (0, 1, 1, 0), (1, 0)),
     [numbers(2, 2, 3, 4), numbers(2, 3, 3, 2), numbers(3)]),
    (ConvTranspose((3,), (1,), (1, 0), (2,), 2), [numbers(1, 4, 3), numbers(4, 1, 2)]),
    (MaxPool((2, 2), (2, 1), (1, 1), (0, 1, 1, 0)), [distinct(2, 2, 4, 3)]),
    (MaxPool((3,), (2,), (2,), (1, 0), True), [distinct(1, 2, 8)]),
    (AveragePool((2, 2), (2, 1), (1, 1), (0, 1, 1, 0)), [numbers(2, 2, 4, 3)]),
    (AveragePool((3, 2), (2, 2), (1, 1), (1, 0, 1, 1), True, False, True), [numbers(1, 2, 5, 6)]),
    (AveragePool((3,), (2,), (2,), (1, 0), True), [numbers(1, 2, 8)]),
    (GlobalAveragePool(), [numbers(2, 3, 2, 2)]),
    (BatchNorm(0.1), [numbers(2, 3, 2), numbers(3), numbers(3), numbers(3), positive(3)]),
    (BatchNorm(spatial=False),
     [numbers(2, 3, 2), *(numbers(3, 2) for _ in range(3)), positive(3, 2)]),
    (LayerNorm(-1, 0.1), [numbers(2, 3, 4), numbers(4), numbers(3, 4)]),
    (LayerNorm(1), [numbers(2, 3, 4)]),
]  # fmt: skip


def sides(op: Op, arrays: list[Array]) -> tuple[list[Array], list[Array]]:
    """The gradients of a weighted sum of an operator's outputs, by rule and by differences."""
    b = GraphBuilder("f")
    xs = [b.input(f"x{k}", tensor(from_numpy(a.dtype), *a.shape)) for k, a in enumerate(arrays)]
    total: Value | None = None
    for k, y in enumerate(b.apply(op, *xs)):
        shape = [int(d.value) for d in y.type.shape]  # type: ignore[attr-defined]
        weights = np.random.default_rng(k).uniform(0.5, 2.0, shape)
        part = b.one(ReduceSum(None, False), b.one(Mul(), y, b.constant(weights)))
        total = part if total is None else b.one(Add(), total, part)
    assert total is not None
    wanted = [k for k, a in enumerate(arrays) if a.dtype.kind == "f"]
    made = gradients(b, list(b.nodes), total, [xs[k] for k in wanted])
    graph = b.finish([total, *made])

    def value(arrays: list[Array]) -> list[Array]:
        return list(run_reference(graph, {f"x{k}": a for k, a in enumerate(arrays)}))

    by_rule = value(arrays)[1:]
    by_difference = []
    for k in wanted:
        slope = np.zeros_like(arrays[k])
        for at in np.ndindex(*arrays[k].shape):
            ends = []
            for step in (-1e-6, 1e-6):
                moved = arrays[k].copy()
                moved[at] += step
                ends.append(value([moved if j == k else a for j, a in enumerate(arrays)])[0])
            slope[at] = (ends[1] - ends[0]) / 2e-6
        by_difference.append(slope)
    return by_rule, by_difference


@pytest.mark.parametrize(("op", "arrays"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_rule(op: Op, arrays: list[Array]) -> None:
    for found, wanted in zip(*sides(op, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_every_rule_is_tried() -> None:
    assert {type(op) for op, _ in CASES} == set(RULES)


def test_what_is_used_twice_counts_twice() -> None:
    b = GraphBuilder("f")
    x = b.input("x", tensor(F64, 2))
    y = b.one(Add(), b.one(Mul(), x, x), x)
    (dx,) = gradients(b, list(b.nodes), y, [x])
    (found,) = run_reference(b.finish([dx]), {"x": np.array([2.0, 3.0])})
    np.testing.assert_allclose(found, [5.0, 7.0])


def test_nothing_depends_on_it() -> None:
    b = GraphBuilder("f")
    x, z = b.input("x", tensor(F64, 2)), b.input("z", tensor(F64, 3))
    (dz,) = gradients(b, list(b.nodes), b.one(Exp(), x), [z])
    (found,) = run_reference(b.finish([dz]), {"x": np.ones(2), "z": np.ones(3)})
    np.testing.assert_array_equal(found, np.zeros(3))


def test_no_rule() -> None:
    b = GraphBuilder("f")
    x = b.input("x", tensor(F64, 2))
    y = b.one(Tan(), x, origin="the_tan")
    with pytest.raises(TypeCheckError, match="no gradient of tan is known\n.*tan"):
        gradients(b, list(b.nodes), y, [x])
