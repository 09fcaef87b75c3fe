"""Small random graphs, with a liking for what passes look for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from planish.compiler.dtypes import BOOL, F32, F64
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr
from planish.compiler.expr.sizes import evaluate
from planish.compiler.graph.ir import Graph, GraphBuilder, Value, tensor
from planish.compiler.ops.activations import Clip, HardSigmoid, Relu, Sigmoid, Tanh
from planish.compiler.ops.base import Op
from planish.compiler.ops.channel_normalization import BatchNorm, GroupNorm, InstanceNorm
from planish.compiler.ops.compare import Greater
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, Max, Min, Mul, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.pooling import AveragePool, MaxPool
from planish.compiler.ops.power import PowScalar
from planish.compiler.ops.reduction import ArgMax, ReduceMax, ReduceMean, ReduceSum
from planish.compiler.ops.shape import Concat, Expand, Reshape, Split, Transpose
from planish.compiler.ops.softmax import Softmax
from planish.compiler.ops.unary import Abs, Erf, Neg, Reciprocal, Sqrt

MOST = 600  # elements of a value


class Maker:
    """Adds operators to a graph, of attributes that are drawn."""

    def __init__(self, number: Callable[[int, int], int]) -> None:
        self.number = number  # one from low to high
        self.b = GraphBuilder("random")
        self.values: list[Value] = []

    def order(self, count: int) -> tuple[int, ...]:
        rest = list(range(count))
        return tuple(rest.pop(self.number(0, len(rest) - 1)) for _ in range(count))

    def choice(self, items: list[Any]) -> Any:
        return items[self.number(0, len(items) - 1)]

    def some(self, least: int = 0, most: int = 5) -> Value | None:
        """A float value of a rank; rather one of the last."""
        found = [v for v in self.values if v.type.dtype is F32 and least <= v.type.rank <= most]
        if not found:
            return None
        return found[max(0, len(found) - 1 - self.number(0, min(len(found), 4) - 1))]

    def shape(self, v: Value) -> tuple[int, ...]:
        return tuple(int(d.value) if isinstance(d, Const) else 2 for d in v.type.shape)

    def constant(self, *shape: int, low: float = -1.5, high: float = 1.5) -> Value:
        kind = self.number(0, 5)
        size = math.prod(shape)
        if kind < 4:
            array = np.random.default_rng(kind + 4 * size).uniform(low, high, shape)
        else:
            array = np.full(shape, self.choice([0.0, -0.0, 1.0, 2.0, 0.5]))
        return self.b.constant(array.astype(np.float32))

    def add(self, op: Op, *inputs: Value | None) -> Value:
        out = self.b.apply(op, *inputs)
        self.values.extend(out)
        return out[0]

    # ----------------------------------------------------------------------------------- steps

    def unary(self, x: Value) -> None:
        ops = [
            Relu(),
            Sigmoid(),
            Tanh(),
            Neg(),
            Abs(),
            Clip(-1.0, 1.0),
            Clip(0, None),
            PowScalar(2.0),
        ]
        self.add(self.choice(ops), x)

    def binary(self, x: Value) -> None:
        op = self.choice([Add(), Mul(), Sub(), Max(), Min(), Div()])
        shape = [d if self.number(0, 2) else 1 for d in self.shape(x)]
        cut = self.number(0, len(shape))
        low = 0.5 if isinstance(op, Div) else -1.5
        c = self.constant(*shape[cut:], low=low)
        swap = self.number(0, 1) and not isinstance(op, Div)
        self.add(op, *((c, x) if swap else (x, c)))

    def both(self, x: Value) -> None:
        same = [v for v in self.values if v.type == x.type]
        self.add(self.choice([Add(), Mul(), Sub(), Max()]), x, self.choice(same))

    def transpose(self, x: Value) -> None:
        self.add(Transpose(self.order(x.type.rank)), x)

    def reshape(self, x: Value) -> None:
        dims = list(x.type.shape)
        for _ in range(self.number(1, 2)):
            k = self.number(0, len(dims))
            match self.number(0, 2):
                case 0 if k + 1 < len(dims):
                    dims[k : k + 2] = [dims[k] * dims[k + 1]]
                case 1 if k < len(dims) and isinstance(dims[k], Const):
                    for d in (2, 3):
                        if int(dims[k].value) % d == 0 and int(dims[k].value) > d:
                            dims[k : k + 1] = [as_expr(d), as_expr(int(dims[k].value) // d)]
                            break
                case _:
                    dims.insert(k, as_expr(1))
        self.add(Reshape(tuple(dims)), x)

    def slice(self, x: Value) -> None:
        k = self.number(0, x.type.rank - 1)
        extent = x.type.shape[k]
        if not isinstance(extent, Const):
            return
        size = self.number(1, int(extent.value))
        start = self.number(0, int(extent.value) - size)
        rank = x.type.rank
        starts = tuple(as_expr(start if j == k else 0) for j in range(rank))
        shape = tuple(as_expr(size) if j == k else d for j, d in enumerate(x.type.shape))
        self.add(Slice(starts, (1,) * rank, shape), x)

    def split(self, x: Value) -> None:
        k = self.number(0, x.type.rank - 1)
        extent = x.type.shape[k]
        if isinstance(extent, Const) and extent.value >= 2:
            size = self.number(1, int(extent.value) - 1)
            self.add(Split((as_expr(size), as_expr(int(extent.value) - size)), k), x)

    def concat(self, x: Value) -> None:
        same = [v for v in self.values if v.type == x.type]
        self.add(Concat(self.number(-x.type.rank, x.type.rank - 1)), x, self.choice(same))

    def expand(self, x: Value) -> None:
        shape = [
            d if self.shape(x)[k] > 1 else as_expr(self.number(1, 3))
            for k, d in enumerate(x.type.shape)
        ]
        self.add(Expand(tuple(shape)), x)

    def pad(self, x: Value) -> None:
        before = tuple(as_expr(self.number(0, 1)) for _ in range(x.type.rank))
        after = tuple(as_expr(self.number(0, 1)) for _ in range(x.type.rank))
        self.add(Pad(before, after, fill=self.choice([0, 1.5])), x)

    def gather(self, x: Value) -> None:
        k = self.number(0, x.type.rank - 1)
        extent = x.type.shape[k]
        if isinstance(extent, Const):
            most = int(extent.value)
            places = [self.number(-most, most - 1) for _ in range(self.number(1, 3))]
            shape: tuple[int, ...] = self.choice([(), (len(places),)])
            array = np.array(places[:1] if shape == () else places).reshape(shape)
            self.add(Gather(k), x, self.b.constant(array))

    def reduce(self, x: Value) -> None:
        axes = self.order(x.type.rank)[: self.number(1, 2)]
        op = self.choice([ReduceMean, ReduceMax, ReduceSum])
        self.add(op(axes, bool(self.number(0, 1))), x)

    def softmax(self, x: Value) -> None:
        self.add(Softmax((self.number(-x.type.rank, x.type.rank - 1),)), x)

    def where(self, x: Value) -> None:
        c = self.add(Greater(), x, self.constant())
        if self.number(0, 1):
            c = self.b.constant(np.full((), bool(self.number(0, 1))))
        self.add(Where(), c, x, self.constant())

    def cast(self, x: Value) -> None:
        self.add(Cast(F32), self.add(Cast(self.choice([F64, BOOL])), x))

    def argmax(self, x: Value) -> None:
        k = self.number(0, x.type.rank - 1)
        self.add(Cast(F32), self.add(ArgMax(k, bool(self.number(0, 1))), x))

    def matmul(self, x: Value) -> None:
        k, columns = self.shape(x)[-1], self.choice([3, 4, 64])
        y = self.add(MatMul(), x, self.constant(k, columns))
        if self.number(0, 1):
            self.add(Add(), y, self.constant(columns))

    def product(self, x: Value) -> None:
        """x times itself transposed, as in attention."""
        perm = (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)
        if self.number(0, 1):
            self.add(MatMul(False, True), x, x)
        else:
            y = self.add(Mul(), x, self.b.constant(np.array(0.5, np.float32)))
            self.add(MatMul(), y, self.add(Transpose(perm), x))

    def heads(self, x: Value) -> None:
        d = x.type.shape[-1]
        if isinstance(d, Const) and int(d.value) % 2 == 0 and x.type.rank == 3:
            n, m = x.type.shape[:2]
            y = self.add(Reshape((n, m, as_expr(2), as_expr(int(d.value) // 2))), x)
            self.add(Transpose((0, 2, 1, 3)), y)

    def conv(self, x: Value) -> None:
        n, c, *spatial = self.shape(x)
        rank = len(spatial)
        kernel = [self.number(1, min(2, s)) for s in spatial]
        if self.number(0, 3) == 0:
            w = self.constant(c, 2, *kernel)
            zeros = (0,) * rank
            self.add(ConvTranspose((1,) * rank, (1,) * rank, zeros * 2, zeros), x, w)
        else:
            groups = c if self.number(0, 2) == 0 else 1
            w = self.constant(4 if groups == 1 else c, c // groups, *kernel)
            pads = tuple(self.number(0, 1) for _ in range(2 * rank))
            bias = self.constant(self.shape(w)[0]) if self.number(0, 1) else None
            self.add(Conv((1,) * rank, (1,) * rank, pads, groups), x, w, bias)

    def pool(self, x: Value) -> None:
        ones = (1,) * (x.type.rank - 2)
        kernel = tuple(self.number(1, min(2, s)) for s in self.shape(x)[2:])
        self.add(self.choice([MaxPool, AveragePool])(kernel, ones, ones, (0,) * 2 * len(ones)), x)

    def norm(self, x: Value) -> None:
        c = self.shape(x)[1]
        positive = self.b.constant(np.linspace(0.5, 2, c, dtype=np.float32))
        s, t = self.constant(c), self.constant(c)
        match self.number(0, 3):
            case 0:
                self.add(BatchNorm(), x, s, t, t, positive)
            case 1:
                self.add(InstanceNorm(1e-2), x, s, t)
            case 2 if c % 2 == 0:
                self.add(GroupNorm(2, 1e-2), x, s, t)
            case _:
                d = self.shape(x)[-1]
                self.add(LayerNorm(-1, 1e-2), x, self.constant(d), self.constant(d))

    def gate(self, x: Value) -> None:
        gates = [Sigmoid(), Tanh(), HardSigmoid(1 / 6), Erf()]
        self.add(Mul(), x, self.add(self.choice(gates), x))

    def gelu(self, x: Value) -> None:
        one, half, root = (self.b.constant(np.array(v, np.float32)) for v in (1, 0.5, 0.5**0.5))
        y = self.add(Add(), self.add(Erf(), self.add(Mul(), x, root)), one)
        self.add(Mul(), self.add(Mul(), x, half), y)

    def layer_norm(self, x: Value) -> None:
        axes = (self.choice([x.type.rank - 1, min(1, x.type.rank - 1)]),)
        d = self.add(Sub(), x, self.add(ReduceMean(axes), x))
        variance = self.add(ReduceMean(axes), self.add(PowScalar(2.0), d))
        epsilon = self.b.constant(np.array([1e-2], np.float32))
        root = self.add(Sqrt(), self.add(Add(), variance, epsilon))
        if self.number(0, 1):
            self.add(Div(), d, root)
        else:
            self.add(Mul(), d, self.add(Reciprocal(), root))

    def squeeze(self, x: Value) -> None:
        c = self.shape(x)[1]
        rank = x.type.rank - 2
        ones = (1,) * rank
        y = self.add(ReduceMean(tuple(range(2, x.type.rank))), x)
        y = self.add(Conv(ones, ones, (0,) * 2 * rank), y, self.constant(c, c, *ones))
        self.add(Mul(), x, self.add(Sigmoid(), y))


# Each with the least and the most axes of what it reads.
STEPS: list[tuple[Callable[[Maker, Value], None], int, int]] = [
    (Maker.unary, 0, 5), (Maker.binary, 0, 5), (Maker.both, 0, 5), (Maker.transpose, 2, 5),
    (Maker.reshape, 0, 4), (Maker.slice, 1, 5), (Maker.split, 1, 5), (Maker.concat, 1, 5),
    (Maker.expand, 1, 5), (Maker.pad, 1, 5), (Maker.gather, 1, 5), (Maker.reduce, 1, 5),
    (Maker.softmax, 1, 5), (Maker.where, 0, 5), (Maker.cast, 0, 5), (Maker.argmax, 1, 5),
    (Maker.matmul, 2, 4), (Maker.product, 2, 5), (Maker.heads, 3, 3), (Maker.conv, 3, 4),
    (Maker.pool, 3, 4), (Maker.norm, 3, 4), (Maker.gate, 0, 5), (Maker.gelu, 0, 5),
    (Maker.layer_norm, 1, 5), (Maker.squeeze, 3, 4),
]  # fmt: skip
INPUTS = [("n", 4, 5, 6), (1, 4, 6, 6), (2, 5, 8), ("n", 6, 4), (3, 4), ("n", 12)]


def random_graph(number: Callable[[int, int], int]) -> Graph:
    """A graph of a few operators; its last values and some others are outputs."""
    m = Maker(number)
    for k in range(m.number(1, 2)):
        dims = [Var(d) if isinstance(d, str) else d for d in m.choice(INPUTS)]
        m.values.append(m.b.input(f"x{k}", tensor(F32, *dims)))
    for _ in range(m.number(1, 9)):
        step, least, most = m.choice(STEPS)
        x = m.some(least, most)
        if x is None or math.prod(m.shape(x)) > MOST:
            continue
        try:
            step(m, x)
        except TypeCheckError:  # what was drawn does not fit
            continue
    last = m.values[-1 - m.number(0, 1) if len(m.values) > 1 else -1]
    return m.b.finish(dict.fromkeys((m.values[-1], last, m.choice(m.values))))


@dataclass(frozen=True, repr=False)
class Example:
    """A graph, shown as its text."""

    graph: Graph

    def __repr__(self) -> str:
        return repr(self.graph)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Random graphs."""
    graph = random_graph(lambda low, high: draw(st.integers(low, high)))
    assume(is_callable(graph))
    return Example(graph)


def is_callable(graph: Graph) -> bool:
    """Whether the graph takes inputs with all symbols 2."""
    symbols: dict[Var, Expr] = {v: as_expr(2) for v in graph.symbols}
    return all(evaluate(c, symbols) for c in graph.constraints)
