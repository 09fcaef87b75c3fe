"""Operators that hold graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planish.compiler.dtypes import BOOL, F32
from planish.compiler.expr.nodes import Expr, Var, eq
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import Array, Content, Graph, GraphBuilder, TensorType, tensor
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.subgraphs import substituted

from .base import Arrays, Op, Types, assume
from .elementwise import Add, Mul
from .unary import Neg


@dataclass(frozen=True)
class If(Op):
    """What the graph ``then`` gives if the condition holds, else what ``other`` gives.

    Only the one that is chosen runs. Both take the same inputs: those of the node that follow the
    condition.

    Shape: condition bool of one element, inputs -> the outputs of either graph.
    Errors: TypeCheckError if the graphs give different types, or the inputs are not theirs.
    Source: ONNX If-25.
    """

    name = "if"

    then: Graph
    other: Graph

    @property
    def branches(self) -> tuple[Graph, Graph]:
        return self.then, self.other

    def infer(self, condition: TensorType, *inputs: TensorType) -> Types:
        if condition.dtype is not BOOL or condition.size not in (1, None):
            raise self.fail(f"the condition is {condition}, not one bool")
        for d in condition.shape:
            assume(eq(d, 1))
        for graph in self.branches:
            if len(graph.inputs) != len(inputs):
                raise self.fail(f"{len(inputs)} inputs for a branch that takes {len(graph.inputs)}")
            for v, given in zip(graph.inputs, inputs, strict=True):
                if not _same(v.type, given):
                    raise self.fail(f"an input is {given}, and a branch takes {v.type}")
            for needed in graph.constraints:
                assume(needed)
        first, second = (tuple(v.type for v in g.outputs) for g in self.branches)
        if len(first) != len(second):
            raise self.fail(f"branches give {len(first)} and {len(second)} values")
        for a, b in zip(first, second, strict=True):
            if not _same(a, b):
                raise self.fail(
                    f"branches give {a} and {b}",
                    hint="both branches have to give the same dtypes and shapes",
                )
        return first

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        return (None,) * len(outputs)  # a branch of known condition is put in the node's place

    def with_symbols(self, values: Mapping[Var, Expr]) -> If:
        return replace(
            self, then=substituted(self.then, values), other=substituted(self.other, values)
        )

    def reference(self, condition: Array, *inputs: Array) -> Arrays:
        graph = self.then if condition.reshape(-1)[0] else self.other
        return run_reference(graph, dict(zip(graph.input_names, inputs, strict=True)))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x, y = np.array([1, -2, 3], np.float32), np.array([0.5, 4, -1], np.float32)
        then, other = _sample("then", Add()), _sample("other", Mul())
        for condition in (np.array(True), np.array([False])):
            yield cls(then, other), [condition, x, y]
            yield cls(_nested(then, other), then), [condition, x, y]
            yield cls(_sample("then", None), other), [condition, x, y]


def _same(a: TensorType, b: TensorType) -> bool:
    return a.dtype is b.dtype and a.rank == b.rank and all(map(same, a.shape, b.shape))


def _sample(name: str, op: Op | None) -> Graph:
    """A branch that computes; without an operator, one that gives an input back."""
    b = GraphBuilder(name)
    x, y = (b.input(name, tensor(F32, 3)) for name in "xy")
    if op is None:
        return b.finish([y, b.constant(np.ones(3, np.float32))])
    z = b.one(op, x, y, name="z")
    return b.finish([z, b.one(Neg(), z, name="w")])


def _nested(then: Graph, other: Graph) -> Graph:
    b = GraphBuilder("nested")
    x, y = (b.input(name, tensor(F32, 3)) for name in "xy")
    yes = b.constant(np.array([True]), "yes")
    return b.finish(b.apply(If(then, other), yes, y, x))
