"""Operators that go on step by step, natively: sizes, counts and axes that come with the call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from planish.compiler.dtypes import F32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Var, substitute
from planish.compiler.graph.ir import Array, TensorType, tensor
from planish.compiler.loop.ir import Function, Loop, walk
from planish.compiler.ops.base import Op
from planish.compiler.ops.scans import CumSum, ScanAlong
from planish.compiler.ops.scatter import ScatterElements, ScatterND
from planish.compiler.ops.selection import NonZero, Unique, UniquePlaces
from planish.compiler.ops.sequences import TensorScatter
from planish.compiler.ops.topk import TopK
from planish.schedules.rules import default_schedule
from planish.schedules.rules.analysis import has_steps
from planish.targets.llvm.target import host

from .running import THREADS, Batch, assert_close, reference

M, N, K = Var("m"), Var("n"), Var("k")
MATRIX, INDICES = tensor(F32, M, N), tensor(I64, M, N)

# Operators for sizes that are symbols, with the types of their inputs.
CASES: dict[str, tuple[Op, Sequence[TensorType]]] = {
    "top_k": (TopK(K), (MATRIX,)),
    "top_k_columns": (TopK(K, 0, largest=False), (MATRIX,)),
    "scatter_elements": (ScatterElements("add", 1), (MATRIX, INDICES, MATRIX)),
    "scatter_columns": (ScatterElements(axis=0), (MATRIX, INDICES, MATRIX)),
    "scatter_nd": (ScatterND("max"), (MATRIX, tensor(I64, K, 1), tensor(F32, K, N))),
    "scatter_items": (ScatterND("add"), (MATRIX, tensor(I64, K, 2), tensor(F32, K))),
    "nonzero": (NonZero(K), (INDICES,)),
    "unique": (Unique(), (tensor(I64, M),)),
    "unique_slices": (Unique(1, sorted=False), (INDICES,)),
    "unique_places": (UniquePlaces(K), (tensor(I64, M),)),
    "cumsum": (CumSum(1, exclusive=True), (tensor(F32, M, N, K),)),
    "cumsum_rows": (CumSum(-1, reverse=True), (MATRIX,)),
    "scan_along": (ScanAlong(K, reverse=True), (MATRIX,)),
    "tensor_scatter": (
        TensorScatter(1),
        (tensor(F32, M, N, K), tensor(F32, M, K, K), tensor(I64, M)),
    ),
    "tensor_scatter_circular": (
        TensorScatter(1, circular=True),
        (tensor(F32, M, N, K), tensor(F32, M, K, K), tensor(I64, M)),
    ),
}
SIZES = ((3, 40, 2), (40, 3, 1), (1, 300, 7), (200, 130, 60), (4, 5, 0))
SHARED = {
    "top_k", "top_k_columns", "scatter_elements", "cumsum", "cumsum_rows", "tensor_scatter",
    "tensor_scatter_circular",
}  # fmt: skip


@cache
def scheduled(name: str) -> Function:
    op, types = CASES[name]
    return default_schedule(op.build(*types), host().machine, THREADS).func


@cache
def batch() -> Batch:
    return Batch.of({name: scheduled(name) for name in CASES})


def arrays(types: Sequence[TensorType], sizes: dict[str, int]) -> list[Array]:
    rng = np.random.default_rng(sum(sizes.values()))
    out: list[Array] = []
    for t in types:
        shape = [int(substitute(d, _values(sizes)).value) for d in t.shape]  # type: ignore[attr-defined]
        if t.dtype is I64:  # some of them far outside
            values = rng.integers(-7, 8, shape)
            out.append(np.where(rng.random(shape) < 0.02, values * 2**60, values))
        else:
            out.append(np.round(rng.uniform(-9, 9, shape), 1).astype(np.float32))
    return out


def _values(sizes: dict[str, int]) -> dict[Var, n.Expr]:
    return {Var(k): n.as_expr(v) for k, v in sizes.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_sizes_of_the_call(name: str, size: tuple[int, int, int]) -> None:
    op, types = CASES[name]
    sizes = dict(zip("mnk", size, strict=True))
    if name in ("top_k", "top_k_columns"):
        sizes["k"] = min(sizes["k"], sizes["n" if name == "top_k" else "m"])
    if name.startswith("tensor_scatter"):
        sizes["k"] = min(sizes["k"], sizes["n"])
    inputs = arrays(types, sizes)
    wanted = reference(op.with_symbols(_values(sizes)), inputs)
    used = {s.name: sizes[s.name] for s in batch().functions[name].symbols}
    for threads in (1, THREADS):
        found = batch().run(name, inputs, used, threads, front=threads > 1)
        for x, y in zip(found, wanted, strict=True):
            assert_close(x, y, 8.0)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_shared_among_threads(name: str) -> None:
    """Where rows are known to be independent, and only there."""
    loops = [x for x in walk(scheduled(name).body) if isinstance(x, Loop)]
    shared = any(x.kind == "parallel" and has_steps(x) for x in loops)
    assert shared is (name in SHARED)
