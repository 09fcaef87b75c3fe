"""Whatever the sizes: either a condition of the shape rule does not hold, or no access is outside.

The samples with a symbol for every dimension, some of which get other values than they have. What
the conditions let through runs on the interpreter, which checks every access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import from_numpy
from planish.compiler.errors import PlanishError
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Eq, Expr, Var, free_vars
from planish.compiler.graph.ir import Array, GraphBuilder, TensorType, tensor
from planish.compiler.loop import te
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators
from planish.lowering import extent_conditions

load_operators()

Sizes = dict[str, int]

_NATURAL = [0, 1, 2, 5, 100]
_WHOLE = [-100, -3, -1, 0, 1, 4, 99]


def symbolic(arrays: list[Array | None]) -> tuple[list[TensorType | None], Sizes]:
    """Types with a symbol for each dimension but 1, and the values that these have."""
    symbols: Sizes = {}
    types: list[TensorType | None] = []
    for k, a in enumerate(arrays):
        shape: list[Any] = []
        for axis, d in enumerate(() if a is None else a.shape):
            if d != 1:
                symbols[f"d{k}_{axis}"] = d
            shape.append(d if d == 1 else Var(f"d{k}_{axis}"))
        types.append(None if a is None else tensor(from_numpy(a.dtype), *shape))
    return types, symbols


def function_of(op: Op, types: list[TensorType | None]) -> Function:
    if not op.is_expression:
        return op.build(*types)
    places = [None if t is None else te.placeholder(t.shape, t.dtype, "x") for t in types]
    found = op.compute(*places)
    outputs = found if isinstance(found, tuple) else (found,)
    return lower("f", [p for p in places if p is not None], list(outputs))


def others(symbols: Sizes, conditions: list[Expr]) -> Iterator[Sizes]:
    """Sizes with another value for one symbol, or for all that must be equal to it."""
    for symbol, size in symbols.items():
        linked = {symbol}
        for _ in symbols:
            for c in conditions:
                names = {v.name for v in free_vars(c)}
                if isinstance(c, Eq) and names & linked:
                    linked |= names
        for value in (0, 1, max(0, size - 1), size + 1, 2 * size):
            for group in ({symbol}, linked):
                yield {s: value if s in group else v for s, v in symbols.items()}
    for value in (0, 1, 2):
        yield dict.fromkeys(symbols, value)


def inputs(types: list[TensorType | None], sizes: Sizes) -> list[Array]:
    """Numbers of every kind."""
    rng = np.random.default_rng(0)
    out = []
    for t in types:
        if t is not None:
            shape = [int(evaluate(d, sizes)) for d in t.shape]
            numbers = _NATURAL if t.dtype.kind in "bu" else _WHOLE
            out.append(rng.choice(numbers, shape).astype(t.dtype.numpy))
    return out


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_no_access_is_outside(name: str) -> None:
    for op, arrays in Op.registry[name].samples():
        if not op.is_expression and type(op).build is Op.build:
            continue
        types, symbols = symbolic(arrays)
        b = GraphBuilder()
        try:
            b.apply(op, *(None if t is None else b.input("x", t) for t in types))
            func = function_of(op, types)
        except PlanishError as error:
            assert type(error).__name__ != "InternalError", error
            continue
        conditions = [*b.constraints, *extent_conditions(func)]
        for sizes in {tuple(s.items()): s for s in others(symbols, conditions)}.values():
            if all(evaluate(c, sizes) for c in conditions):
                interpret(func, inputs(types, sizes), {s.name: sizes[s.name] for s in func.symbols})
