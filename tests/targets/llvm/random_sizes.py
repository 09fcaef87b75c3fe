"""Small random graphs whose dimensions are symbols and what operators make of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, floordiv
from planish.compiler.expr.sizes import normal
from planish.compiler.frontends.onnx.indexing import clamped
from planish.compiler.graph.ir import (
    Array,
    Graph,
    GraphBuilder,
    Value,
    collecting_assumptions,
    tensor,
)
from planish.compiler.ops.activations import Relu
from planish.compiler.ops.base import Op
from planish.compiler.ops.channel_normalization import GroupNorm, InstanceNorm
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.elementwise import Add, Max, Mul, Sub
from planish.compiler.ops.global_pooling import GlobalMaxPool
from planish.compiler.ops.indexing import Gather, GatherElements, Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.normalization import LayerNorm
from planish.compiler.ops.padding import PAD_MODES, Pad
from planish.compiler.ops.pooling import AveragePool, MaxPool
from planish.compiler.ops.reduction import ArgMax, ReduceMax, ReduceMean, ReduceSum
from planish.compiler.ops.resize import Resize
from planish.compiler.ops.scans import CumSum
from planish.compiler.ops.shape import Concat, Expand, Reshape, Split, Tile, Transpose
from planish.compiler.ops.softmax import LogSoftmax, Softmax
from planish.compiler.ops.unary import Abs, Neg

N, M, K = Var("n"), Var("m"), Var("k")
SHAPES: Final[list[tuple[Any, ...]]] = [
    (N, M), (N, 4, M), (2, N), (N, N), (1, 2, N, M), (N, 3, 5, M), (3, M), (N, 2, 3, 5), (N,),
    (2, 4, N, 5), (N * M, 3), (N + 2, M), (2, 3, M), (N, M, K),
]  # fmt: skip
ONES: Final = {N: 1, M: 1, K: 1}
LARGE: Final = 40_000  # elements that no value of a test may have


class Maker:
    """Adds operators to a graph."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.b = GraphBuilder("random")
        self.values: list[Value] = []

    def add(self, op: Op, *inputs: Value | None) -> Value:
        out = self.b.apply(op, *inputs)
        self.values.extend(v for v in out if v.type.dtype is F32)
        return out[0]

    def axis(self, x: Value) -> int:
        return self.pick.randrange(x.type.rank)

    def constant(self, *shape: int) -> Value:
        rng = np.random.default_rng(math.prod(shape))
        return self.b.constant(rng.uniform(-1, 1, shape).astype(np.float32))

    def vector(self, d: Expr) -> Value:
        """Numbers along a dimension: constants if it is known, else an input."""
        if isinstance(d, Const):
            return self.constant(int(d.value))
        return self.b.input(f"v{len(self.b.inputs)}", tensor(F32, d))

    # ----------------------------------------------------------------------------------- steps

    def unary(self, x: Value) -> None:
        self.add(self.pick.choice([Relu(), Neg(), Abs()]), x)

    def binary(self, x: Value) -> None:
        op = self.pick.choice([Add(), Mul(), Sub(), Max()])
        same = [v for v in self.values if v.type.shape == x.type.shape]
        last = self.vector(x.type.shape[-1])
        self.add(op, x, self.pick.choice([*same, last, self.constant(1)]))

    def transpose(self, x: Value) -> None:
        order = list(range(x.type.rank))
        self.pick.shuffle(order)
        self.add(Transpose(tuple(order)), x)

    def reshape(self, x: Value) -> None:
        dims = list(x.type.shape)
        k = self.axis(x)
        if k + 1 < len(dims) and self.pick.random() < 0.7:
            dims[k : k + 2] = [dims[k] * dims[k + 1]]
        elif isinstance(dims[k], Const) and int(dims[k].value) % 2 == 0:
            dims[k : k + 1] = [as_expr(2), as_expr(int(dims[k].value) // 2)]
        else:
            dims.insert(k, as_expr(1))
        self.add(Reshape(tuple(dims)), x)

    def slice(self, x: Value) -> None:
        starts, steps, shape = [], [], []
        with collecting_assumptions(self.b.constraints):
            for d in x.type.shape:
                step = self.pick.choice([1, 1, 2, -1, -2])
                near, far = self.pick.choice([0, 0, 1, -1, 2, 3]), self.pick.choice([3, -1, -2])
                end = far if self.pick.random() < 0.5 else (1 << 62) * (1 if step > 0 else -1)
                start = near if step > 0 else -1 - near
                first, count = clamped(as_expr(start), as_expr(end), step, d)
                starts, steps, shape = [*starts, first], [*steps, step], [*shape, count]
        self.add(Slice(tuple(starts), tuple(steps), tuple(shape)), x)

    def pad(self, x: Value) -> None:
        mode = self.pick.choice(PAD_MODES)
        pads = [
            tuple(as_expr(self.pick.choice([0, 0, 1, 2, -1])) for _ in x.type.shape)
            for _ in range(2)
        ]
        self.add(Pad(pads[0], pads[1], mode, 1.5), x)

    def concat(self, x: Value) -> None:
        axis = self.axis(x)
        shape = [d for k, d in enumerate(x.type.shape) if k != axis]
        fits = [
            v
            for v in self.values
            if v.type.rank == x.type.rank
            and [d for k, d in enumerate(v.type.shape) if k != axis] == shape
        ]
        self.add(Concat(axis), x, *(self.pick.choice(fits) for _ in range(2)))

    def split(self, x: Value) -> None:
        axis = self.axis(x)
        d = x.type.shape[axis]
        first = self.pick.choice([as_expr(1), floordiv(d, 2), as_expr(0)])
        self.add(Split((normal(first), normal(d - first)), axis), x)

    def expand(self, x: Value) -> None:
        self.add(Expand((self.pick.choice([N, M, as_expr(2)]), *x.type.shape)), x)

    def tile(self, x: Value) -> None:
        repeats = [self.pick.choice([as_expr(1), as_expr(2), M]) for _ in x.type.shape]
        self.add(Tile(tuple(repeats)), x)

    def reduce(self, x: Value) -> None:
        axes = tuple(self.pick.sample(range(x.type.rank), self.pick.randint(1, x.type.rank)))
        op = self.pick.choice([ReduceMean, ReduceMax, ReduceSum])
        self.add(op(axes, self.pick.random() < 0.5), x)

    def softmax(self, x: Value) -> None:
        self.add(self.pick.choice([Softmax, LogSoftmax])((self.axis(x),)), x)

    def argmax(self, x: Value) -> None:
        self.add(ArgMax(self.axis(x), self.pick.random() < 0.5), x)

    def cumsum(self, x: Value) -> None:
        self.add(CumSum(self.axis(x), self.pick.random() < 0.5, self.pick.random() < 0.5), x)

    def gather(self, x: Value) -> None:
        count: Any = self.pick.choice([M, 3, N])
        if self.pick.random() < 0.5:
            indices = self.b.input(f"i{len(self.b.inputs)}", tensor(I64, count))
            self.add(Gather(self.axis(x)), x, indices)
        else:
            indices = self.b.input(f"i{len(self.b.inputs)}", tensor(I64, *x.type.shape))
            self.add(GatherElements(self.axis(x)), x, indices)

    def matmul(self, x: Value) -> None:
        if x.type.rank < 2:
            return
        match self.pick.randrange(3):
            case 0:
                self.add(MatMul(False, True), x, x)
            case 1:
                self.add(MatMul(True, False), x, x)
            case _ if isinstance(d := x.type.shape[-1], Const):
                y = self.add(MatMul(), x, self.constant(int(d.value), 9))
                self.add(Add(), y, self.constant(9))
            case _:
                y = self.b.input(f"w{len(self.b.inputs)}", tensor(F32, x.type.shape[-1], K))
                self.add(MatMul(), x, y)

    def conv(self, x: Value) -> None:
        rank = x.type.rank - 2
        if rank < 1 or not isinstance(channels := x.type.shape[1], Const):
            return
        c, kernel = int(channels.value), [self.pick.randint(1, 3) for _ in range(rank)]
        strides, dilations = ([self.pick.choice([1, 1, 2]) for _ in range(rank)] for _ in range(2))
        pads = tuple(self.pick.choice([0, 1, 2]) for _ in range(2 * rank))
        if self.pick.random() < 0.3:
            w = self.constant(c, 2, *kernel)
            extra = tuple(self.pick.randrange(s) for s in strides)
            self.add(ConvTranspose(tuple(strides), tuple(dilations), pads, extra), x, w)
        else:
            groups = c if self.pick.random() < 0.3 else 1
            w = self.constant(c if groups == c else 5, c // groups, *kernel)
            self.add(Conv(tuple(strides), tuple(dilations), pads, groups), x, w, None)

    def pool(self, x: Value) -> None:
        rank = x.type.rank - 2
        if rank < 1:
            return
        if self.pick.random() < 0.2:
            self.add(GlobalMaxPool(), x)
            return
        kernel = tuple(self.pick.randint(1, 3) for _ in range(rank))
        strides = tuple(self.pick.choice([1, 2]) for _ in range(rank))
        pads = tuple(self.pick.randrange(k) for k in (*kernel, *kernel))
        op = self.pick.choice([MaxPool, AveragePool])
        self.add(op(kernel, strides, (1,) * rank, pads, self.pick.random() < 0.3), x)

    def resize(self, x: Value) -> None:
        axis = self.axis(x)
        d = x.type.shape[axis]
        mode = self.pick.choice(["nearest", "linear", "cubic"])
        coordinate = self.pick.choice(["half_pixel", "asymmetric", "align_corners"])
        to, scale = self.pick.choice(
            [(d * 2, 2.0), (floordiv(d, 2), 0.5), (floordiv(d * 3, 2), 1.5), (as_expr(3), 0.75)]
        )
        size = normal(to)
        known = int(size.value) if isinstance(size, Const) else size
        self.add(Resize((axis,), (known,), (scale,), mode, coordinate), x)

    def norm(self, x: Value) -> None:
        d = x.type.shape[-1]
        if x.type.rank < 3 or self.pick.random() < 0.5:
            self.add(LayerNorm(-1, 1e-2), x, self.vector(d), self.vector(d))
            return
        c = x.type.shape[1]
        op = self.pick.choice([InstanceNorm(1e-2), GroupNorm(2, 1e-2)])
        self.add(op, x, self.vector(c), self.vector(c))


STEPS: Final[list[Callable[[Maker, Value], None]]] = [
    Maker.unary, Maker.binary, Maker.transpose, Maker.reshape, Maker.slice, Maker.slice, Maker.pad,
    Maker.pad, Maker.concat, Maker.split, Maker.expand, Maker.tile, Maker.reduce, Maker.reduce,
    Maker.softmax, Maker.argmax, Maker.cumsum, Maker.gather, Maker.matmul, Maker.matmul, Maker.conv,
    Maker.conv, Maker.pool, Maker.pool, Maker.resize, Maker.norm,
]  # fmt: skip


def random_graph(seed: int) -> Graph:
    """A graph of one to four operators."""
    m = Maker(seed)
    for k in range(m.pick.randint(1, 2)):
        m.values.append(m.b.input(f"x{k}", tensor(F32, *m.pick.choice(SHAPES))))
    for v in (N, M, K):  # each is read off an input where it stands alone
        m.b.input(f"size_{v.name}", tensor(F32, v))
    for _ in range(m.pick.randint(1, 4)):
        x = m.pick.choice(m.values[-3:])
        if not 1 <= x.type.rank <= 5:
            continue
        try:
            m.pick.choice(STEPS)(m, x)
        except TypeCheckError:  # what was drawn does not fit
            continue
    made = [v for n in m.b.nodes for v in n.outputs]
    return m.b.finish(made or m.values[:1])


def sizes(graph: Graph, seed: int, count: int) -> Iterator[dict[str, int]]:
    """Values of the symbols: small ones above all, under which no value is large."""
    pick = random.Random(seed)
    every = list(product((0, 1, 2), repeat=3))
    for _ in range(count):
        drawn = tuple(pick.choice([0, 1, 3, 5, 7, 13, 17]) for _ in range(3))
        found = dict(zip("nmk", pick.choice([drawn, pick.choice(every)]), strict=True))
        if all(volume(v, found) <= LARGE for v in graph.values()):
            yield found


def volume(v: Value, symbols: dict[str, int]) -> int:
    return math.prod(max(0, int(evaluate(d, symbols))) for d in v.type.shape)


def holds(conditions: list[Expr], symbols: dict[str, int]) -> bool:
    """Whether the conditions on the symbols hold."""
    return all(evaluate(c, symbols) for c in conditions)


def arrays(graph: Graph, symbols: dict[str, int], seed: int) -> dict[str, Array]:
    """Random inputs of these sizes; indices may be outside of everything."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for v in graph.inputs:
        shape = [int(evaluate(d, symbols)) for d in v.type.shape]
        if v.type.dtype is I64:
            wild = rng.choice([-(1 << 62), -7, -1, 0, 1, 2, 9, 1 << 62], shape)
            out[v.name] = wild.astype(np.int64)
        else:
            out[v.name] = rng.standard_normal(shape).astype(np.float32)
    return out
