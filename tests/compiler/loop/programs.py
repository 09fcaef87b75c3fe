"""Small programs that the tests of the loop IR share: tensor expressions with numpy's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from planish.compiler.dtypes import F32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, Load, Var
from planish.compiler.loop import te
from planish.compiler.loop.ir import (
    Block,
    Buffer,
    Function,
    If,
    Iter,
    Loop,
    Stmt,
    map_statements,
    seq,
)
from planish.compiler.loop.lower import lower

Arrays = tuple[np.ndarray[Any, Any], ...]
N = Var("n")


@dataclass(frozen=True)
class Program:
    name: str
    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    reference: Callable[..., Any]
    symbols: dict[str, int] = field(default_factory=dict)

    @property
    def function(self) -> Function:
        return lower(self.name, self.inputs, self.outputs)

    def arrays(self, seed: int = 0) -> Arrays:
        """Random inputs."""
        rng = np.random.default_rng(seed)
        return tuple(
            rng.standard_normal([self.size(d) for d in t.shape]).astype(t.dtype.numpy)
            for t in self.inputs
        )

    def size(self, extent: Expr) -> int:
        values = {Var(k): n.as_expr(v) for k, v in self.symbols.items()}
        found = n.substitute(extent, values)
        assert isinstance(found, Const)
        return int(found.value)

    def answers(self, arrays: Arrays) -> Arrays:
        out = self.reference(*arrays)
        return out if isinstance(out, tuple) else (out,)


def call(name: str, x: Expr) -> Expr:
    return Call(name, (x,), x.dtype)


def matmul(m: n.Like = 6, k: n.Like = 5, cols: n.Like = 7, **symbols: int) -> Program:
    a, b = te.placeholder((m, k), F32, "A"), te.placeholder((k, cols), F32, "B")
    c = te.reduce("sum", (m, cols), (k,), lambda i, j, r: a[i, r] * b[r, j], "C")
    return Program("matmul", (a, b), (c,), np.matmul, symbols)


def conv() -> Program:
    """A convolution of 5 by 5 images with a border of one, and a bias and relu after it."""
    x, w = te.placeholder((2, 3, 5, 5), F32, "X"), te.placeholder((4, 3, 3, 3), F32, "W")
    bias = te.placeholder((4,), F32, "bias")

    def padded(b: Var, c: Var, y: Var, z: Var) -> Expr:
        inside = n.all_of(n.le(1, y), n.lt(y, 6), n.le(1, z), n.lt(z, 6))
        return n.select(inside, x[b, c, y - 1, z - 1], n.const(0.0, F32))

    pad = te.compute((2, 3, 7, 7), padded, "pad")
    y = te.reduce(
        "sum",
        (2, 4, 5, 5),
        (3, 3, 3),
        lambda b, o, i, j, c, p, q: pad[b, c, i + p, j + q] * w[o, c, p, q],
        "conv",
    )
    out = te.compute(
        (2, 4, 5, 5), lambda b, o, i, j: n.maximum(y[b, o, i, j] + bias[o], 0.0), "relu"
    )

    def reference(x: Any, w: Any, bias: Any) -> Any:
        full = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        views = np.lib.stride_tricks.sliding_window_view(full, (3, 3), axis=(2, 3))
        return np.maximum(
            np.einsum("bcijpq,ocpq->boij", views, w) + bias[None, :, None, None], 0
        ).astype(np.float32)

    return Program("conv", (x, w, bias), (out,), reference)


def softmax(rows: n.Like = 4, columns: n.Like = 9, **symbols: int) -> Program:
    x = te.placeholder((rows, columns), F32, "x")
    top = te.reduce("max", (rows,), (columns,), lambda i, r: x[i, r], "top")
    e = te.compute((rows, columns), lambda i, j: call("exp", x[i, j] - top[i]), "e")
    total = te.reduce("sum", (rows,), (columns,), lambda i, r: e[i, r], "total")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / total[i], "y")

    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Program("softmax", (x,), (y,), reference, symbols)


def layer_norm() -> Program:
    x, scale = te.placeholder((3, 8), F32, "x"), te.placeholder((8,), F32, "scale")
    total = te.reduce("sum", (3,), (8,), lambda i, r: x[i, r], "sum")
    mean = te.compute((3,), lambda i: total[i] / 8.0, "mean")
    squares = te.reduce(
        "sum", (3,), (8,), lambda i, r: (x[i, r] - mean[i]) * (x[i, r] - mean[i]), "sum"
    )
    y = te.compute(
        (3, 8),
        lambda i, j: (x[i, j] - mean[i]) / call("sqrt", squares[i] / 8.0 + 1e-5) * scale[j],
        "y",
    )

    def reference(x: Any, scale: Any) -> Any:
        m = x.mean(1, keepdims=True)
        return (x - m) / np.sqrt(((x - m) ** 2).mean(1, keepdims=True) + 1e-5) * scale

    return Program("layer_norm", (x, scale), (y,), reference)


def transpose() -> Program:
    x = te.placeholder((3, 4, N), F32, "x")
    y = te.compute((N, 3, 4), lambda i, j, k: x[j, k, i], "y")
    return Program("transpose", (x,), (y,), lambda x: x.transpose(2, 0, 1), {"n": 5})


def reshape() -> Program:
    """[6, 4] to [3, 8] and back."""
    x = te.placeholder((6, 4), F32, "x")
    y = te.compute((3, 8), lambda i, j: x[(i * 8 + j) // 4, (i * 8 + j) % 4], "y")
    z = te.compute((6, 4), lambda i, j: y[(i * 4 + j) // 8, (i * 4 + j) % 8], "z")
    return Program("reshape", (x,), (y, z), lambda x: (x.reshape(3, 8), x))


def same_twice() -> Program:
    x = te.placeholder((3,), F32, "x")
    y = te.compute((3,), lambda i: x[i] + 1.0, "y")
    return Program("same_twice", (x,), (y, x, y), lambda x: (x + 1, x, x + 1))


def gather() -> Program:
    x, where = te.placeholder((5, 3), F32, "x"), te.placeholder((4,), I64, "where")
    y = te.compute((4, 3), lambda i, j: x[where[i] % 5, j], "y")
    return Program("gather", (x, where), (y,), lambda x, where: x[where % 5])


def scalar() -> Program:
    x = te.placeholder((7,), F32, "x")
    total = te.reduce("prod", (), (7,), lambda r: x[r], "all")
    return Program("scalar", (x,), (total,), lambda x: np.prod(x, dtype=np.float32))


PROGRAMS = [
    matmul(),
    matmul(6, 5, N, n=7),
    conv(),
    softmax(),
    softmax(4, N, n=6),
    layer_norm(),
    transpose(),
    reshape(),
    same_twice(),
    gather(),
    scalar(),
]


def name(program: Program) -> str:
    return program.name + "".join(f"_{k}" for k in program.symbols)


# ----------------------------------------------------------------------------- random functions

_leaves = st.sampled_from(
    [Load("x0", (Var("i0"), Var("i1")), F32), Load("x1", (Var("i1"),), F32), n.const(0.5, F32)]
)
VALUES = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from([n.add, n.mul, n.maximum, n.minimum]), inner, inner).map(
            lambda t: t[0](t[1], t[2])
        ),
        inner.map(lambda x: call("abs", x)),
        st.tuples(inner, inner).map(lambda t: n.select(n.lt(Var("i0"), Var("i1") + 1), t[0], t[1])),
    ),
    max_leaves=6,
)


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """Functions of a few nests with kinds, splits, conditions and scopes at random."""
    symbolic = draw(st.booleans())
    columns: Expr = N if symbolic else Const(draw(st.integers(1, 6)))
    rows = Const(draw(st.integers(1, 6)))
    x0, x1 = Buffer("x0", F32, (rows, columns)), Buffer("x1", F32, (columns,))
    temps, nests = [], []
    outputs = draw(st.integers(1, 2))
    results = [Buffer(f"y{k}", F32, (rows, columns)) for k in range(outputs)]
    for k in range(draw(st.integers(0, 2))):
        scope = draw(st.sampled_from(["global", "local"]))
        temps.append(Buffer(f"t{k}", F32, (rows, columns), scope))
    for b in (*temps, *results):
        nests.append(draw(_nest(b, rows, columns)))
    return Function("f", (x0, x1, *results), outputs, (N,) * symbolic, tuple(temps), seq(*nests))


@st.composite
def _nest(draw: st.DrawFn, target: Buffer, rows: Expr, columns: Expr) -> Stmt:
    i, j, k, io, ii = (Var(v) for v in ("i", "j", "k", "io", "ii"))
    value = draw(VALUES)
    split = draw(st.integers(0, 3))
    row = io * split + ii if split else i
    where = n.lt(row, rows) if split else n.TRUE
    iters = [Iter(Var("i0"), rows, "spatial", row), Iter(Var("i1"), columns, "spatial", j)]
    combiner, init = None, None
    if reduce := draw(st.booleans()):
        combiner = draw(st.sampled_from(["sum", "prod", "max", "min"]))
        init = te.COMBINERS[combiner](F32)
        iters.append(Iter(Var("r0"), Const(2), "reduce", k))
    indices = (Var("i0"), Var("i1"))
    body: Stmt = Block(
        target.name, tuple(iters), target.name, indices, value, combiner, init, where
    )
    if reduce:
        body = Loop(k, Const(2), body, draw(st.sampled_from(["serial", "unrolled"])))
    if draw(st.booleans()):
        body = If(n.lt(j, 3), body, body)
    body = Loop(j, columns, body, draw(st.sampled_from(["serial", "thread.x"])))
    if split:
        inner = Loop(ii, Const(split), body, "unrolled")
        return Loop(
            io, (rows + (split - 1)) // split, inner, draw(st.sampled_from(["serial", "parallel"]))
        )
    return Loop(i, rows, body, draw(st.sampled_from(["serial", "parallel", "block.x"])))


def renamed(func: Function, suffix: str) -> Function:
    """The function with other names of loops and blocks."""
    loops = {s.var: Var(s.var.name + suffix) for s in _loops(func.body)}

    def change(s: Stmt) -> Stmt:
        put = lambda e: n.substitute(e, loops)  # type: ignore[arg-type]  # noqa: E731
        match s:
            case Loop():
                return s.with_(var=loops[s.var], extent=put(s.extent))
            case If(condition, then, other):
                return If(put(condition), then, other)
            case Block():
                iters = tuple(Iter(i.var, i.extent, i.kind, put(i.binding)) for i in s.iters)
                return s.with_(name=s.name + suffix, iters=iters, where=put(s.where))
            case _:
                return s

    body = map_statements(func.body, change)
    assert body is not None
    return func.with_(name=func.name + suffix, body=body)


def _loops(s: Stmt) -> list[Loop]:
    from planish.compiler.loop.ir import walk

    return [x for x in walk(s) if isinstance(x, Loop)]
