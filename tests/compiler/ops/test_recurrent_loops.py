"""The loops of recurrent layers give what their references give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import I64, from_numpy
from planish.compiler.expr.nodes import Const, Var
from planish.compiler.graph.ir import Array, TensorType, tensor
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.compiler.ops.base import Op
from planish.compiler.ops.recurrent import Gru, Lstm, Rnn

Sample = tuple[Op, list[Array | None]]


def samples() -> Iterator[Any]:
    for cls in (Lstm, Gru, Rnn):
        for k, sample in enumerate(cls.samples()):
            yield pytest.param(sample, id=f"{cls.name}-{k}")


SAMPLES = list(samples())


def types_of(arrays: list[Array | None]) -> list[TensorType | None]:
    return [None if a is None else tensor(from_numpy(a.dtype), *a.shape) for a in arrays]


def check(op: Op, arrays: list[Array | None], types: list[TensorType | None], **sizes: int) -> None:
    func = verify(op.build(*types))
    assert parse(show(func)) == func
    symbols = {v: sizes[v.name] for v in func.symbols}
    found = interpret(func, [a for a in arrays if a is not None], symbols)
    for x, y in zip(found, op.reference(*arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sample", SAMPLES)
def test_loops_are_the_reference(sample: Sample) -> None:
    op, arrays = sample
    check(op, arrays, types_of(arrays))


@pytest.mark.parametrize("sample", SAMPLES)
def test_steps_and_batches_may_be_symbols(sample: Sample) -> None:
    """Even with names that the loops use themselves."""
    op, arrays = sample
    names = {4: Var("lens", I64), 2: Var("x", I64)}
    types: list[TensorType | None] = []
    for k, t in enumerate(types_of(arrays)):
        shape = () if t is None else t.shape
        free = [d.value if isinstance(d, Const) else 0 for d in shape]
        known = [names.get(int(v), v) if k != 1 else v for v in free]
        types.append(None if t is None else tensor(t.dtype, *known))
    check(op, arrays, types, lens=4, x=2)


def test_half_precision_carries_its_state_in_single() -> None:
    op, arrays = next(Gru.samples())
    x, r, *_ = arrays
    assert x is not None
    assert r is not None
    halves: list[Array | None] = [x.astype(np.float16), r.astype(np.float16), None, None, None]
    func = verify(op.build(*types_of(halves)))
    assert {b.dtype.name for b in func.temps} == {"f32"}
    found = interpret(func, [a for a in halves if a is not None], {})
    for a, b in zip(found, op.reference(*halves), strict=True):
        assert a.dtype == np.float16
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-3)
