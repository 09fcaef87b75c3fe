"""Small tasks that the tests of tuning share."""

from __future__ import annotations

from functools import cache

from planish.autotune.tasks import Task
from planish.compiler.dtypes import F32, DType
from planish.compiler.expr.nodes import Var
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.lower import lower
from planish.compiler.ops.activations import Relu
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.softmax import Softmax
from planish.targets.llvm.target import host


@cache
def matmul_task(
    m: int = 32, n: int = 48, k: int = 64, threads: int = 1, dtype: DType = F32
) -> Task:
    """Rows times constant weights, and what is below zero cut off."""
    x, w = te.placeholder((m, k), dtype), te.placeholder((k, n), dtype)
    y = MatMul().compute(x, w)
    assert isinstance(y, te.Tensor)
    out = Relu().compute(y)
    assert isinstance(out, te.Tensor)
    func = canonical(lower("f", [x, w], [out]))
    return Task(func, frozenset({"b1"}), host(), threads, label=f"matmul_{m}_{n}_{k}")


@cache
def rows_task(threads: int = 1) -> Task:
    """Softmax along rows, the number of which is open."""
    x = te.placeholder((Var("rows"), 96), F32)
    y = Softmax().compute(x)
    assert isinstance(y, te.Tensor)
    func = canonical(lower("f", [x], [y]))
    return Task(func, frozenset(), host(), threads, (24,), calls=3, label="softmax")
