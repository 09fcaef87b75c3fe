"""Every sample of every operator, compiled: plain, by its default schedule, with symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from planish.compiler.errors import PlanishError
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.graph.ir import Array, TensorType, collecting_assumptions, tensor
from planish.compiler.loop.ir import Function
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators
from planish.schedules.rules import default_schedule
from planish.targets.llvm.target import host

from .running import THREADS, Batch, assert_close, function_of, reference, types_of

load_operators()

Case = tuple[Function, list[Array], dict[str, int], tuple[Array, ...]]


def scheduled(func: Function) -> Function:
    return default_schedule(func, host().machine, THREADS).func


def symbolic(arrays: list[Array | None]) -> tuple[list[TensorType | None], dict[str, int]]:
    """Types with a symbol for each dimension but 1, and the symbols' values."""
    symbols: dict[str, int] = {}
    types: list[TensorType | None] = []
    for k, t in enumerate(types_of(arrays)):
        shape: list[Expr] = []
        for axis, d in enumerate(t.shape if t else ()):
            assert isinstance(d, Const)
            if d.value != 1:
                symbols[f"d{k}_{axis}"] = int(d.value)
                d = Var(f"d{k}_{axis}")
            shape.append(d)
        types.append(None if t is None else tensor(t.dtype, *shape))
    return types, symbols


def symbolic_function(op: Op, types: list[TensorType | None]) -> Function | None:
    """The function for symbolic sizes; None if the operator does not take those."""
    try:
        with collecting_assumptions([]):
            op.infer(*types)
            return function_of(op, types)
    except PlanishError as error:
        assert type(error).__name__ != "InternalError", error
        return None


def cases(cls: type[Op]) -> Iterator[tuple[str, Case]]:
    for k, (op, arrays) in enumerate(cls.samples()):
        given = [a for a in arrays if a is not None]
        wanted = reference(op, arrays)
        plain = function_of(op, types_of(arrays))
        yield f"plain_{k}", (plain, given, {}, wanted)
        yield f"scheduled_{k}", (scheduled(plain), given, {}, wanted)
        types, symbols = symbolic(arrays)
        func = symbolic_function(op, types) if symbols else None
        if func is not None:
            yield f"symbolic_{k}", (scheduled(func), given, symbols, wanted)


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_operator(name: str) -> None:
    if any(op.graphs for op, _ in Op.registry[name].samples()):
        pytest.skip("it is no function of its own")
    every = dict(cases(Op.registry[name]))
    batch = Batch.of({k: case[0] for k, case in every.items()})
    failures = []
    for k, (_, inputs, symbols, wanted) in every.items():
        for threads in (1, THREADS):
            found = batch.run(k, inputs, symbols, threads, front=threads > 1)
            try:
                for x, y in zip(found, wanted, strict=True):
                    assert_close(x, y, tolerance(name, y))
            except AssertionError as error:
                failures.append(f"{k}, {threads} threads: {str(error).strip()}")
                break
    assert not failures, "\n".join(failures)


def tolerance(name: str, result: Array) -> float:
    """How many times the usual rounding an operator may have: of long sums, and of products."""
    return 8.0 if np.dtype(result.dtype).kind == "f" else 1.0
