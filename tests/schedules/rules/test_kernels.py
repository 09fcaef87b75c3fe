"""Every kernel of a network is a trace that replays from its tensor expression.

No template can hide: what runs is what the moves of the trace make of the plain loops, and means
the same on the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from planish import lowering
from planish.assembly import compile_graph
from planish.compiler.dtypes import F32, I16, I32
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Load, Mul, Var, loads
from planish.compiler.graph.ir import Graph, GraphBuilder, Value, tensor
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function, blocks
from planish.compiler.loop.text import show
from planish.compiler.loop.verify import verify
from planish.compiler.machine import Machine
from planish.compiler.ops.activations import Gelu, Relu
from planish.compiler.ops.convolution import Conv
from planish.compiler.ops.elementwise import Add
from planish.compiler.ops.global_pooling import GlobalAveragePool
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.pooling import MaxPool
from planish.compiler.ops.recurrent import SIGMOID, TANH, Lstm
from planish.compiler.ops.shape import Reshape, Transpose
from planish.compiler.ops.softmax import Softmax
from planish.compiler.pipeline import GRAPH_PASSES, run
from planish.schedules.schedule import Schedule, parse_trace, replay

N = Var("n")
RNG = np.random.default_rng(0)


def weight(b: GraphBuilder, *shape: int) -> Value:
    return b.constant(RNG.standard_normal(shape).astype(np.float32))


def convolutions() -> Graph:
    """A stem, a block with a shortcut, a depthwise convolution, a classifier."""
    b = GraphBuilder("convolutions")
    x = b.input("x", tensor(F32, 1, 3, 18, 18))

    def conv(x: Value, c: int, k: int, size: int, stride: int = 1, groups: int = 1) -> Value:
        pads = (size // 2,) * 4
        op = Conv((stride, stride), (1, 1), pads, groups)
        return b.one(op, x, weight(b, k, c // groups, size, size), weight(b, k))

    y = b.one(Relu(), conv(x, 3, 8, 3, 2))
    y = b.one(MaxPool((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), y)
    z = conv(b.one(Relu(), conv(y, 8, 8, 3)), 8, 8, 1)
    y = b.one(Relu(), b.one(Add(), y, z))
    y = b.one(Relu(), conv(y, 8, 8, 3, 1, 8))
    y = b.one(Reshape(tuple(tensor(F32, 1, 8).shape)), b.one(GlobalAveragePool(), y))
    return b.finish([b.one(Softmax(), b.one(MatMul(), y, weight(b, 8, 10)))])


def transformer() -> Graph:
    """A layer of an encoder, of any length."""
    b = GraphBuilder("transformer")
    x = b.input("x", tensor(F32, 2, N, 16))

    def linear(x: Value, n: int, k: int) -> Value:
        return b.one(Add(), b.one(MatMul(), x, weight(b, n, k)), weight(b, k))

    def heads(x: Value) -> Value:
        split = b.one(Reshape(tensor(F32, 2, N, 4, 4).shape), linear(x, 16, 16))
        return b.one(Transpose((0, 2, 1, 3)), split)

    def norm(x: Value) -> Value:
        return b.one(LayerNorm(), x, weight(b, 16), weight(b, 16))

    q, k, v = heads(x), heads(x), heads(x)
    scores = b.one(Softmax(), b.one(MatMul(transpose_b=True), q, k))
    mixed = b.one(Transpose((0, 2, 1, 3)), b.one(MatMul(), scores, v))
    y = norm(b.one(Add(), x, linear(b.one(Reshape(tensor(F32, 2, N, 16).shape), mixed), 16, 16)))
    z = linear(b.one(Gelu(), linear(y, 16, 32)), 32, 16)
    return b.finish([norm(b.one(Add(), y, z))])


def recurrent() -> Graph:
    """An LSTM over the gates' inputs, and what is read from its states."""
    b = GraphBuilder("recurrent")
    x = b.input("x", tensor(F32, 5, 2, 6))
    gates = b.one(MatMul(), x, weight(b, 6, 32))
    none = (None,) * 4
    y, *_ = b.apply(Lstm(activations=(SIGMOID, TANH, TANH)), gates, weight(b, 8, 32), *none)
    return b.finish([b.one(Softmax(), b.one(MatMul(), y, weight(b, 8, 4)))])


def integers(b: GraphBuilder, *shape: int) -> Value:
    return b.constant(RNG.integers(-255, 256, shape).astype(np.int16))


def quantised() -> Graph:
    """Products of 16-bit integers: a convolution, and columns that fill no tile."""
    b = GraphBuilder("quantised")
    x = b.input("x", tensor(I16, 1, 6, N, 5))
    y = b.one(Conv((1, 1), (1, 1), (1,) * 4, result=I32), x, integers(b, 16, 6, 3, 3))
    z = b.input("z", tensor(I16, N, 10))
    return b.finish([y, b.one(MatMul(result=I32), z, integers(b, 10, 37))])


def grouped() -> Graph:
    """Convolutions of groups: of several channels each, and of one that makes several."""
    b = GraphBuilder("grouped")
    x = b.input("x", tensor(F32, 1, 8, N, 6))
    y = b.one(Conv((1, 1), (1, 1), (1,) * 4, 2), x, weight(b, 10, 4, 3, 3))
    return b.finish([y, b.one(Conv((1, 1), (1, 1), (0,) * 4, 8), x, weight(b, 24, 1, 3, 3))])


@dataclass(frozen=True)
class Kernel:
    """A function before its schedule, and the schedule."""

    func: Function
    s: Schedule


def kernels(graph: Graph, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """What is scheduled when the graph is compiled."""
    found: list[Kernel] = []
    scheduled = lowering.default_schedule

    def spy(func: Function, *rest: object) -> Schedule:
        s = scheduled(func, *rest)  # type: ignore[arg-type]
        found.append(Kernel(func, s))
        return s

    monkeypatch.setattr(lowering, "default_schedule", spy)
    program = compile_graph(run(graph, GRAPH_PASSES), machine, 2, True)
    assert len(found) == len(program.functions)
    assert {k.s.text() for k in found} == {x.trace for x in program.schedules.values()}
    return found


def is_contraction(func: Function) -> bool:
    return any(b.combiner == "sum" and len(products(b.value)) > 1 for b in blocks(func.body))


def products(e: object) -> list[Load]:
    return list(loads(e)) if isinstance(e, Mul) else []


def is_reduction(func: Function) -> bool:
    return any(b.combiner is not None for b in blocks(func.body))


PAIRING = Machine("avx2", 32, 16, True, pairs=True)
MACHINES = [Machine("avx512", 64, 32, True), Machine("generic", 16, 16, False)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.isa)
@pytest.mark.parametrize("make", [convolutions, transformer, recurrent])
def test_every_kernel_is_a_trace(
    make: Callable[[], Graph], machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    found = kernels(make(), machine, monkeypatch)
    assert any(is_contraction(k.func) for k in found)
    assert any(is_reduction(k.func) and not is_contraction(k.func) for k in found)
    for k in found:
        verify(k.s.func)
        assert k.s.trace or not is_reduction(k.func)
        again = replay(k.func, parse_trace(k.s.text()))
        assert show(again.func) == show(k.s.func)


@pytest.mark.parametrize("make", [convolutions, transformer, recurrent, quantised, grouped])
def test_every_kernel_means_its_tensor_expression(
    make: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
):
    for k in kernels(make(), PAIRING if make is quantised else MACHINES[1], monkeypatch):
        symbols = {v.name: 3 for v in k.func.symbols}
        arrays = [
            (9 * RNG.standard_normal([int(evaluate(d, symbols)) for d in b.shape])).astype(
                b.dtype.numpy
            )
            for b in k.func.inputs
        ]
        given = list(arrays)
        for step in k.s.trace:
            at = [b.name for b in k.func.inputs]
            if step.move == "layout" and step.arguments[0] in at:
                _, dims, shape = step.arguments
                place = at.index(str(step.arguments[0]))
                given[place] = moved(given[place], dims, shape)  # type: ignore[arg-type]
        for x, y in zip(
            interpret(k.s.func, given, symbols), interpret(k.func, arrays, symbols), strict=True
        ):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "move"), [(quantised, 'group("s'), (grouped, 'divide("s'), (quantised, "layout(")]
)
def test_what_kernels_are_tiled_by(
    make: Callable[[], Graph], move: str, monkeypatch: pytest.MonkeyPatch
):
    found = kernels(make(), PAIRING, monkeypatch)
    contractions = [k for k in found if any(b.combiner for b in blocks(k.func.body))]
    assert len(contractions) == 2
    for k in contractions:
        assert move in k.s.text().replace("'", '"')


def moved(x: np.ndarray, dims: tuple[str, ...], shape: tuple[object, ...]) -> np.ndarray:  # type: ignore[type-arg]
    """A constant in the form that a layout gives it."""
    out = np.zeros([int(str(d)) for d in shape], x.dtype)
    for place in np.ndindex(*x.shape):
        names = {f"d{k}": i for k, i in enumerate(place)}
        out[tuple(eval(d, {}, names) for d in dims)] = x[place]
    return out
