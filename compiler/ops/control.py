"""Operators that hold graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, F32, I64
from planish.compiler.expr.nodes import Const, Expr, Var, eq, free_vars, substitute
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import Array, Content, Graph, GraphBuilder, TensorType, tensor
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.subgraphs import bound_in, substituted

from .base import Arrays, Op, Types, assume
from .elementwise import Add, Mul
from .unary import Neg


@dataclass(frozen=True)
class If(Op):
    """What the graph ``then`` gives if the condition holds, else what ``other`` gives.

    Only the one that is chosen runs. Both take the same inputs: those of the node that follow the
    condition. Dimensions that differ between the graphs are ``symbols``, in order.

    Shape: condition bool of one element, inputs -> the outputs of either graph.
    Errors: TypeCheckError if the graphs give different types, or the inputs are not theirs.
    Source: ONNX If-25.
    """

    name = "if"
    takes_strings: ClassVar[bool] = True

    then: Graph
    other: Graph
    symbols: tuple[Expr, ...] = ()

    @property
    def branches(self) -> tuple[Graph, Graph]:
        return self.then, self.other

    @property
    def binds(self) -> tuple[Var, ...]:
        return variables(self.symbols)

    @property
    def chooses(self) -> bool:
        return True

    def bound(self, outputs: tuple[Array, ...]) -> dict[Var, int]:
        types = self._joined()
        return sizes_of(self.binds, types, outputs)

    def _joined(self) -> tuple[TensorType, ...]:
        """The types of the outputs."""
        hidden = frozenset(v for g in self.branches for v in bound_in(g))
        own = iter(self.symbols)
        out = []
        for a, b in zip(*(g.outputs for g in self.branches), strict=True):
            if a.type.dtype is not b.type.dtype or a.type.rank != b.type.rank:
                raise self.fail(
                    f"branches give {a.type} and {b.type}",
                    hint="both branches have to give the same dtypes and ranks",
                )
            pairs = zip(a.type.shape, b.type.shape, strict=True)
            told = ((x, same(x, y) and hidden.isdisjoint(free_vars(x))) for x, y in pairs)
            if (shape := _in_symbols(told, own)) is None:
                raise self.fail(f"branches give {a.type} and {b.type}")
            out.append(a.type.with_shape(shape))
        return tuple(out)

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
        first, second = (len(g.outputs) for g in self.branches)
        if first != second:
            raise self.fail(f"branches give {first} and {second} values")
        return self._joined()

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        return (None,) * len(outputs)  # a branch of known condition is put in the node's place

    def with_symbols(self, values: Mapping[Var, Expr]) -> If:
        return replace(
            self,
            then=substituted(self.then, values),
            other=substituted(self.other, values),
            symbols=tuple(substitute(s, dict(values)) for s in self.symbols),
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


@dataclass(frozen=True)
class Loop(Op):
    """The body again and again: at most ``trip`` times, while its condition holds.

    Without a first condition those that the body gives do not end it either.

    The body takes its number (i64), the condition (bool), ``carried`` values, and what it reads
    from around it. It gives the next condition, the next values, and values of which all are kept:
    stacked along a new first axis, which is as long as the body ran often. Inputs of the node: the
    first condition (or None), the first values, what the body reads.

    Dimensions of carried values that change are the body's own symbols, ``varying``; after the loop
    they are those of the last values. ``count`` is the number of times that are done.
    Dimensions of kept values that only the body knows are ``kept``; all its runs agree in them.

    Shape: condition bool of one element, carried values, inputs -> carried values, [count, ...].
    Errors: TypeCheckError if the body does not fit.
    Source: ONNX Loop-25.
    """

    name = "loop"
    takes_strings: ClassVar[bool] = True

    body: Graph
    carried: int
    count: Expr
    trip: Expr | None = None
    varying: tuple[Expr, ...] = ()
    kept: tuple[Expr, ...] = ()

    @property
    def binds(self) -> tuple[Var, ...]:
        return variables((self.count, *self.varying, *self.kept))

    @property
    def inside(self) -> frozenset[Var]:
        """Symbols that have another value each time."""
        return frozenset((*variables((self.count, *self.varying)), *bound_in(self.body)))

    def bound(self, outputs: tuple[Array, ...]) -> dict[Var, int]:
        return sizes_of(self.binds, self._types(), outputs)

    def _types(self) -> tuple[TensorType, ...]:
        """The types of the outputs."""
        body = self.body
        out = [v.type for v in body.inputs[2 : 2 + self.carried]]
        own = iter(self.kept)
        for v in body.outputs[1 + self.carried :]:
            told = ((d, self.inside.isdisjoint(free_vars(d))) for d in v.type.shape)
            if (shape := _in_symbols(told, own)) is None:
                raise self.fail(f"there is no symbol for a dimension of {v!r}")
            out.append(v.type.with_shape((self.count, *shape)))
        return tuple(out)

    def infer(self, condition: TensorType | None, *inputs: TensorType) -> Types:
        body = self.body
        if condition is not None and (condition.dtype is not BOOL or condition.size != 1):
            raise self.fail(f"the condition is {condition}, not one bool")
        if len(body.inputs) != len(inputs) + 2 or len(body.outputs) <= self.carried:
            raise self.fail(
                f"{len(inputs)} inputs for a body of {len(body.inputs)} and {len(body.outputs)}"
            )
        number, asked = body.inputs[0].type, body.inputs[1].type
        if number != tensor(I64) or asked != tensor(BOOL) or body.outputs[0].type != asked:
            raise self.fail("the body does not take a number and a condition, and give one")
        for k, (v, given) in enumerate(zip(body.inputs[2:], inputs, strict=True)):
            self._fits(v.type, given, k < self.carried, "is given")
        for v, made in zip(body.inputs[2:], body.outputs[1 : 1 + self.carried], strict=False):
            self._fits(v.type, made.type, True, "becomes")
        hidden = self.inside
        for needed in body.constraints:
            if hidden.isdisjoint(free_vars(needed)):
                assume(needed)
        return self._types()

    def _fits(self, wanted: TensorType, given: TensorType, varies: bool, how: str) -> None:
        good = wanted.dtype is given.dtype and wanted.rank == given.rank
        for x, y in zip(wanted.shape, given.shape, strict=False):
            good = good and (same(x, y) or (varies and x in self.varying))
        if not good:
            raise self.fail(f"the body takes {wanted}, and {how} {given}")

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        return (None,) * len(outputs)

    def with_symbols(self, values: Mapping[Var, Expr]) -> Loop:
        outer = {v: e for v, e in values.items() if v not in self.inside}
        return replace(
            self,
            body=substituted(self.body, outer),
            trip=None if self.trip is None else substitute(self.trip, outer),
        )

    def reference(self, condition: Array | None, *inputs: Array) -> Arrays:
        body = self.body
        values, rest = list(inputs[: self.carried]), inputs[self.carried :]
        state = condition is None or bool(condition.reshape(-1)[0])
        limit = self.trip.value if isinstance(self.trip, Const) else None
        kept: list[tuple[Array, ...]] = []
        while (condition is None or state) and (limit is None or len(kept) < limit):
            number = np.array(len(kept), np.int64)
            given = (number, np.array(state), *values, *rest)
            named = dict(zip(body.input_names, given, strict=True))
            again, *found = run_reference(body, named, symbols={self.count: len(kept)})
            state = bool(again.reshape(-1)[0])
            values = found[: self.carried]
            kept.append(tuple(found[self.carried :]))
        stacks = []
        for k, v in enumerate(body.outputs[1 + self.carried :]):
            if kept:
                stacks.append(np.stack([some[k] for some in kept]))
                continue
            shape = (d.value if isinstance(d, Const) else 0 for d in v.type.shape)
            stacks.append(np.empty((0, *map(int, shape)), v.type.dtype.numpy))
        return (*values, *stacks)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        b = GraphBuilder("body")
        count = Var("count")
        number, asked = b.input("number", tensor(I64)), b.input("asked", tensor(BOOL))
        x, y = (b.input(name, tensor(F32, 3)) for name in "xy")
        z = b.one(Add(), x, y, name="z")
        body = b.finish([asked, z, b.one(Mul(), z, z, name="w"), number])
        given = [np.array([1, -2, 3], np.float32), np.array([0.5, 4, -1], np.float32)]
        for trip in (0, 1, 4):
            yield cls(body, 1, count, Const(trip, I64)), [None, *given]
        yield cls(body, 1, count, Const(3, I64)), [np.array(True), *given]
        yield cls(body, 1, count), [np.array(False), *given]


def _in_symbols(
    sizes: Iterable[tuple[Expr, bool]], symbols: Iterator[Expr]
) -> tuple[Expr, ...] | None:
    """The sizes that are told, and the next of the symbols for each other; None if they run out."""
    out = tuple(size if told else next(symbols, None) for size, told in sizes)
    return None if None in out else tuple(size for size in out if size is not None)


def variables(symbols: tuple[Expr, ...]) -> tuple[Var, ...]:
    """Those that no number has replaced."""
    return tuple(s for s in symbols if isinstance(s, Var))


def sizes_of(
    symbols: tuple[Var, ...], types: tuple[TensorType, ...], arrays: tuple[Array, ...]
) -> dict[Var, int]:
    """What symbols are where arrays have these types."""
    out: dict[Var, int] = {}
    for type, array in zip(types, arrays, strict=True):
        for d, extent in zip(type.shape, array.shape, strict=True):
            if isinstance(d, Var) and d in symbols:
                out[d] = extent
    return out


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
