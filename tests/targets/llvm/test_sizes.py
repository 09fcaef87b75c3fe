"""Random functions at every size: sizes of 0 and 1 are where loops, tails and windows go wrong.

Each function is interpreted, which checks every access, as it is and after all passes on loops, and
is run natively between pages that must not be touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from planish.assembly import compile_graph
from planish.build import compile_imported, resolve_target
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.fuse import Group, fuse, singletons
from planish.compiler.graph.ir import Array, Graph, Value
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.pipeline import GRAPH_PASSES
from planish.compiler.pipeline import run as run_passes
from planish.compiler.program import Step
from planish.lowering import extent_conditions, group_inputs, lower_group
from planish.schedules.rules import default_schedule
from planish.targets.llvm.target import host

from .random_sizes import arrays, holds, random_graph, sizes
from .running import THREADS, Batch, assert_close, lowered

BATCH = 5  # graphs that are compiled together
SIZES = 8  # that each is tried at


@dataclass
class Case:
    """A function of a graph, and what of the graph it reads."""

    graph: Graph
    group: Group
    plain: Function
    reads: tuple[Value, ...]
    conditions: list[Expr]


def cases(seed: int) -> Iterator[Case]:
    """The functions of a random graph."""
    graph = random_graph(seed)
    if seed % 3:
        graph = run_passes(graph, GRAPH_PASSES)
    for group in fuse(graph) if seed % 2 else singletons(graph):
        if group.kind == "view":
            continue
        plain = lower_group(group, graph.constants)
        conditions = [*graph.constraints, *extent_conditions(plain)]
        yield Case(graph, group, plain, group_inputs(group, graph.constants), conditions)


def inputs_of(case: Case, symbols: dict[str, int], seed: int) -> list[Array]:
    """Random arrays for what a function reads, whatever the graph would give."""
    given = arrays(case.graph, symbols, seed)
    rng = np.random.default_rng(seed)
    out = []
    for v in case.reads:
        if v.name in given:
            out.append(given[v.name])
        elif v in case.graph.constants:
            out.append(case.graph.constants[v])
        else:
            shape = [int(evaluate(d, symbols)) for d in v.type.shape]
            out.append(rng.standard_normal(shape).astype(v.type.dtype.numpy))
    return out


def check(case: Case, scheduled: Function, batch: Batch, name: str, seed: int) -> int:
    """Compare everything at some sizes; gives at how many."""
    final, done = lowered(scheduled), 0
    for k, symbols in enumerate(sizes(case.graph, seed, SIZES)):
        if not holds(case.conditions, symbols):
            continue
        inputs = inputs_of(case, symbols, seed + k)
        values = {s.name: symbols[s.name] for s in case.plain.symbols}
        wanted = interpret(case.plain, inputs, values)
        found = {"loops": interpret(final, inputs, values)} if k < 3 else {}
        for threads in (1, THREADS):
            found[f"{threads} threads"] = batch.run(name, inputs, values, threads, threads > 1)
        for how, results in found.items():
            for x, y in zip(results, wanted, strict=True):
                try:
                    assert_close(x, y, 32.0)
                except AssertionError as error:
                    raise AssertionError(
                        f"{name}, {how}, {symbols}: {error}\n{scheduled}"
                    ) from None
        done += 1
    return done


def run_seeds(first: int) -> None:
    found: dict[str, tuple[Case, Function, int]] = {}
    for seed in range(first, first + BATCH):
        for k, case in enumerate(cases(seed)):
            scheduled = default_schedule(case.plain, host().machine, THREADS).func
            found[f"f{seed}_{k}"] = case, scheduled, seed
    batch = Batch.of({name: scheduled for name, (_, scheduled, _) in found.items()})
    done = sum(check(case, s, batch, name, seed) for name, (case, s, seed) in found.items())
    assert done


@pytest.mark.parametrize("first", range(0, 8 * BATCH, BATCH))
def test_functions_at_every_size(first: int) -> None:
    run_seeds(first)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1000 + 60 * BATCH, BATCH))
def test_many_functions_at_every_size(first: int) -> None:
    run_seeds(first)


# ------------------------------------------------------------------------------- whole programs


@pytest.mark.parametrize("seed", range(40))
def test_places_are_in_the_arena_at_every_size(seed: int) -> None:
    """At sizes that the conditions allow, what a step touches has room, and no two results meet."""
    graph = random_graph(500 + seed)
    program = compile_graph(graph, host().machine, THREADS, bool(seed % 2))
    functions = program.functions
    for symbols in sizes(graph, seed, 30):
        if not holds(list(program.constraints), symbols):
            continue
        total = int(evaluate(program.arena_bytes, symbols))
        assert total >= 0
        for step in program.steps:
            assert isinstance(step, Step)
            func = functions[step.function]
            values = {
                s.name: int(evaluate(e, symbols))
                for s, e in zip(func.symbols, step.symbols, strict=True)
            }
            for b in func.buffers.values():
                assert all(evaluate(d, values) >= 0 for d in b.shape if b.scope != "local")
            spans = []
            for place, p in zip(step.arguments, func.params, strict=True):
                if place.kind == "arena":
                    at, size = int(evaluate(place.offset, symbols)), int(evaluate(p.bytes, values))
                    assert 0 <= at <= at + size <= total
                    if size and p in func.results:
                        spans.append((at, at + size))
            at = int(evaluate(step.scratch.offset, symbols))
            spans += [(at, at + s) for s in [scratch(func, values)] if s]
            assert not spans or max(end for _, end in spans) <= total
            spans.sort()
            assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def scratch(func: Function, values: dict[str, int]) -> int:
    sizes = [int(evaluate(t.bytes, values)) for t in func.temps if t.scope == "global"]
    return sum(-(-s // 64) * 64 for s in sizes)


@pytest.mark.parametrize("seed", range(12))
def test_modules_at_every_size(seed: int) -> None:
    """A call gives results or says what does not hold, and both ways to compile agree."""
    graph = random_graph(800 + seed)
    modules = [compile_imported(graph, resolve_target("llvm"), 2, o) for o in (True, False)]
    for symbols in sizes(graph, seed, 12):
        inputs = arrays(graph, symbols, seed)
        results = []
        for module in modules:
            try:
                results.append(list(module.run(inputs).values()))
            except TypeCheckError:
                results.append([])
        for x, y in zip(*results, strict=False):
            assert_close(x, y, 64.0)
