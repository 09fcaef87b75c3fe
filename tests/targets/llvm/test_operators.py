"""Every sample of every operator, compiled: plain, by its default schedule, with symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from planish.compiler.errors import PlanishError
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Const, Eq, Expr, Var, free_vars
from planish.compiler.graph.ir import Array, GraphBuilder, TensorType, tensor
from planish.compiler.loop.ir import Function
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators
from planish.lowering import extent_conditions
from planish.schedules.rules import default_schedule
from planish.targets.llvm.target import host

from .running import THREADS, Batch, assert_close, function_of, has_loops, reference, types_of

load_operators()

# Contractions of unknown sizes are much code: two samples do.
LARGE = {"attention", "conv", "einsum", "gru", "lstm", "matmul", "rnn"}


@dataclass
class Case:
    """A function, and what it gives for some inputs."""

    func: Function
    arrays: list[Array | None]
    wanted: tuple[Array, ...]
    op: Op
    symbols: dict[str, int] = field(default_factory=dict)
    conditions: list[Expr] = field(default_factory=list)

    @property
    def inputs(self) -> list[Array]:
        return [a for a in self.arrays if a is not None]


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


def symbolic_case(op: Op, arrays: list[Array | None], wanted: tuple[Array, ...]) -> Case | None:
    """The operator for symbolic sizes; None if it does not take those."""
    types, symbols = symbolic(arrays)
    b = GraphBuilder()
    try:
        b.apply(op, *(None if t is None else b.input("x", t) for t in types))
        func = function_of(op, types)
        conditions = [*b.constraints, *extent_conditions(func)]
    except PlanishError as error:
        assert type(error).__name__ != "InternalError", error
        return None
    return Case(scheduled(func), arrays, wanted, op, symbols, conditions) if symbols else None


def cases(cls: type[Op]) -> Iterator[tuple[str, Case]]:
    for k, (op, arrays) in enumerate(cls.samples()):
        if not has_loops(op):
            continue
        wanted = reference(op, arrays)
        plain = function_of(op, types_of(arrays))
        yield f"plain_{k}", Case(plain, arrays, wanted, op)
        yield f"scheduled_{k}", Case(scheduled(plain), arrays, wanted, op)
        if k < 2 or cls.name not in LARGE:
            case = symbolic_case(op, arrays, wanted)
            if case is not None:
                yield f"symbolic_{k}", case


def without_elements(case: Case) -> Iterator[Case]:
    """The case with a size of 0, and those equal to it, wherever the operator has an answer."""
    for symbol in case.symbols:
        zero = {symbol}
        for c in case.conditions:
            names = {v.name for v in free_vars(c)}
            if isinstance(c, Eq) and names & zero:
                zero |= names
        symbols = {s: 0 if s in zero else v for s, v in case.symbols.items()}
        if not all(evaluate(c, symbols) for c in case.conditions):
            continue
        arrays = list(case.arrays)
        for s in sorted(zero):
            k, axis = map(int, s[1:].split("_"))
            if (array := arrays[k]) is not None:
                arrays[k] = np.take(array, np.arange(0), axis)
        try:
            wanted = reference(case.op, arrays)
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        if all(np.size(a) < 1 << 20 for a in wanted):
            yield Case(case.func, arrays, wanted, case.op, symbols)


def failures(name: str, case: Case, batch: Batch) -> Iterator[str]:
    for threads in (1, THREADS):
        found = batch.run(name, case.inputs, case.symbols, threads, front=threads > 1)
        try:
            for x, y in zip(found, case.wanted, strict=True):
                assert_close(x, y, 8.0)  # sums may be long
        except AssertionError as error:
            shapes = [list(a.shape) for a in case.inputs]
            yield f"{name} of {shapes}, {threads} threads: {str(error).strip()}"
            return


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_operator(name: str) -> None:
    every = dict(cases(Op.registry[name]))
    batch = Batch.of({k: case.func for k, case in every.items()})
    wrong = []
    for k, case in every.items():
        wrong += failures(k, case, batch)
        if case.symbols:
            for empty in without_elements(case):
                wrong += failures(k, empty, batch)
    assert not wrong, "\n".join(wrong)
