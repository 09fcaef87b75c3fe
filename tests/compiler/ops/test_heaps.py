"""Heaps find the first of an order, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import from_numpy
from planish.compiler.expr.nodes import Expr, Var, as_expr
from planish.compiler.graph.ir import tensor
from planish.compiler.loop.interpret import interpret
from planish.compiler.ops.heaps import levels
from planish.compiler.ops.steps import Routine
from planish.compiler.ops.topk import TopK


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, float("nan"), float("inf")]), max_size=12),
    st.integers(0, 12),
    st.booleans(),
    st.booleans(),
)
def test_the_first_of_any_order(numbers: list[float], k: int, largest: bool, known: bool) -> None:
    x = np.array(numbers, np.float32)
    k = min(k, x.size)
    op = TopK(as_expr(k), 0, largest)
    wanted = op.reference(x)
    size: Expr = as_expr(x.size) if known else Var("n")
    used = op if known else TopK(Var("k"), 0, largest)
    func = used.build(tensor(from_numpy(x.dtype), size))
    for found, want in zip(interpret(func, [x], {} if known else {"k": k}), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7, 8, 9, 1000])
def test_levels(size: int) -> None:
    """A heap of 2^m to 2^(m + 1) - 1 items has m levels below the first."""
    r = Routine("f", {"x": tensor(from_numpy(np.int64), Var("n"))})
    out = r.output("y", tensor(from_numpy(np.int64)))
    steps, found = levels(r, Var("n"))
    func = r.function(steps, out.put((), found))
    (count,) = interpret(func, [np.zeros(size, np.int64)])
    nothing, known = levels(r, as_expr(size))
    assert count == max(0, size.bit_length() - 1)
    assert known is as_expr(int(count))
    assert not nothing.body  # type: ignore[union-attr]
