"""Small functions that the tests of schedules run on: stages, windows, rows, shared loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planish.compiler.dtypes import F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Call, Expr, Var
from planish.compiler.loop import te
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.loop.text import parse

Array = np.ndarray[Any, Any]
N = Var("n")


@dataclass(frozen=True)
class Program:
    """A function, and values of its symbols."""

    name: str
    function: Function
    symbols: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "_".join([self.name, *(f"{k}{v}" for k, v in self.symbols.items())])

    def sizes(self) -> Iterator[Program]:
        """The program, and with other values of its symbols, the least ones too."""
        yield self
        for value in (0, 1, 2) if self.symbols else ():
            other = replace(self, symbols=dict.fromkeys(self.symbols, value))
            extents = [d for b in self.function.buffers.values() for d in b.shape]
            if all(evaluate(d, other.symbols) >= 0 for d in extents):
                yield other

    def arrays(self, seed: int = 0) -> tuple[Array, ...]:
        """Random inputs."""
        rng = np.random.default_rng(seed)
        return tuple(
            rng.standard_normal([int(evaluate(d, self.symbols)) for d in b.shape]).astype(
                b.dtype.numpy
            )
            for b in self.function.inputs
        )

    def answers(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """What the function as it is gives."""
        return interpret(self.function, arrays, self.symbols)


def x(*shape: n.Like, name: str = "x") -> te.Tensor:
    return te.placeholder(shape, F32, name)


def stages(name: str, inputs: Sequence[te.Tensor], out: te.Tensor, **symbols: int) -> Program:
    return Program(name, lower(name, inputs, [out]), symbols)


def dense(m: n.Like = 5, k: n.Like = 6, cols: n.Like = 9, **symbols: int) -> Program:
    a, b, bias = x(m, k, name="A"), x(k, cols, name="B"), x(cols, name="bias")
    y = te.reduce("sum", (m, cols), (k,), lambda i, j, r: a[i, r] * b[r, j], "dot")
    out = te.compute((m, cols), lambda i, j: n.maximum(y[i, j] + bias[j], 0.0), "relu")
    return stages("dense", (a, b, bias), out, **symbols)


def conv(height: n.Like = 4, **symbols: int) -> Program:
    """Two channels to three, a border of one, and a relu, channels last."""
    image, w = x(height, 5, 2), x(3, 3, 2, 3, name="w")
    h = n.as_expr(height)

    def padded(i: Var, j: Var, c: Var) -> Expr:
        inside = n.all_of(n.le(1, i), n.lt(i, h + 1), n.le(1, j), n.lt(j, 6))
        return n.select(inside, image[i - 1, j - 1, c], n.const(0.0, F32))

    pad = te.compute((h + 2, 7, 2), padded, "pad")
    y = te.reduce(
        "sum",
        (h, 5, 3),
        (3, 3, 2),
        lambda i, j, o, p, q, c: pad[i + p, j + q, c] * w[p, q, c, o],
        "conv",
    )
    out = te.compute((h, 5, 3), lambda i, j, o: n.maximum(y[i, j, o], 0.0), "relu")
    return stages("conv", (image, w), out, **symbols)


def softmax(rows: n.Like = 3, columns: n.Like = 9, **symbols: int) -> Program:
    a = x(rows, columns)
    top = te.reduce("max", (rows,), (columns,), lambda i, r: a[i, r], "top")
    e = te.compute((rows, columns), lambda i, j: Call("exp", (a[i, j] - top[i],), F32), "e")
    total = te.reduce("sum", (rows,), (columns,), lambda i, r: e[i, r], "total")
    return stages(
        "softmax",
        (a,),
        te.compute((rows, columns), lambda i, j: e[i, j] / total[i], "y"),
        **symbols,
    )


def layer_norm(columns: n.Like = 8, **symbols: int) -> Program:
    a, scale = x(3, columns), x(columns, name="scale")
    total = te.reduce("sum", (3,), (columns,), lambda i, r: a[i, r], "sum")
    mean = te.compute((3,), lambda i: total[i] / 8.0, "mean")
    squares = te.reduce(
        "sum", (3,), (columns,), lambda i, r: (a[i, r] - mean[i]) * (a[i, r] - mean[i]), "squares"
    )
    y = te.compute(
        (3, columns),
        lambda i, j: (a[i, j] - mean[i]) / Call("sqrt", (squares[i] / 8.0 + 1e-5,), F32) * scale[j],
        "y",
    )
    return stages("layer_norm", (a, scale), y, **symbols)


def transposes(columns: n.Like = 6, **symbols: int) -> Program:
    """There, and back in other strides."""
    a = x(3, 4, columns)
    y = te.compute((columns, 3, 4), lambda i, j, k: a[j, k, i] * 2.0, "y")
    z = te.compute((12, columns), lambda i, j: y[j, i // 4, i % 4] + 1.0, "z")
    return stages("transposes", (a,), z, **symbols)


def windows(rows: n.Like = 4, columns: n.Like = 7, **symbols: int) -> Program:
    """A stage that overlapping windows read, and one that is read in rows and by itself."""
    a, wide = x(rows, columns), n.as_expr(columns) - 2
    p = te.compute((rows, columns), lambda i, j: a[i, j] * a[i, j], "p")
    w = te.reduce("max", (rows, wide), (3,), lambda i, j, r: p[i, j + r], "w")
    s = te.reduce("sum", (rows,), (wide,), lambda i, r: w[i, r], "s")
    y = te.compute((rows, wide), lambda i, j: w[i, j] - s[i] + p[i, j + 1], "y")
    return stages("windows", (a,), y, **symbols)


RECURRENT = parse(
    """\
def recurrent(x: f32[4, 2, 3], r: f32[3, 3], *, y: f32[4, 2, 3], last: f32[2, 3]):
    h = buffer(f32[5, 2, 3], "global")
    hr = buffer(f32[4, 2, 3], "global")
    for i in serial(2):
        for j in serial(3):
            with block("h0", i=spatial(2, i), j=spatial(3, j)):
                h[0, i, j] = f32(0.0)
    for t in serial(4):
        for i in serial(2):
            for j in serial(3):
                for k in serial(3):
                    with block("hr", t=spatial(4, t), i=spatial(2, i), j=spatial(3, j),
                               k=reduce(3, k), init=f32(0.0)):
                        hr[t, i, j] += h[t, i, k] * r[k, j]
        for i in serial(2):
            for j in serial(3):
                with block("h", t=spatial(4, t), i=spatial(2, i), j=spatial(3, j)):
                    h[t + 1, i, j] = max(x[t, i, j] + hr[t, i, j], f32(-1.0))
        for i in serial(2):
            for j in serial(3):
                with block("y", t=spatial(4, t), i=spatial(2, i), j=spatial(3, j)):
                    y[t, i, j] = h[t + 1, i, j]
    for i in serial(2):
        for j in serial(3):
            with block("last", i=spatial(2, i), j=spatial(3, j)):
                last[i, j] = h[4, i, j]"""
)
IN_PLACE = parse(
    """\
def in_place(x: f32[n, 6], *, y: f32[n, 6]):
    h = buffer(f32[n, 6], "global")
    t = buffer(f32[n, 6], "global")
    u = buffer(f32[n, 6], "global")
    for i in serial(n):
        for j in serial(6):
            with block("h", i0=spatial(n, i), i1=spatial(6, j)):
                h[i0, i1] = x[i0, i1] * f32(2.0)
    for i in serial(n):
        for j in serial(6):
            with block("t", i0=spatial(n, i), i1=spatial(6, j)):
                t[i0, i1] = h[i0, i1] + f32(1.0)
        for j in serial(6):
            with block("h2", i0=spatial(n, i), i1=spatial(6, j)):
                h[i0, i1] = t[i0, i1] * x[i0, i1]
        for j in serial(6):
            with block("u", i0=spatial(n, i), i1=spatial(6, j)):
                u[i0, i1] = h[i0, i1] + t[i0, i1]
    for i in serial(n):
        for j in serial(6):
            with block("y", i0=spatial(n, i), i1=spatial(6, j)):
                y[i0, i1] = u[i0, 5 - i1] + h[i0, i1]"""
)
CONDITIONS = parse(
    """\
def conditions(x: f32[9], *, y: f32[9]):
    t = buffer(f32[9], "global")
    for i in serial(9):
        if i < 4:
            with block("t0", i0=spatial(9, i)):
                t[i0] = x[i0] * f32(3.0)
        else:
            for j in serial(2):
                with block("t1", i0=spatial(9, i), r0=reduce(2, j), init=f32(0.5)):
                    t[i0] += x[(i0 + r0) % 9]
    for i in serial(9):
        with block("y", i0=spatial(9, i)):
            y[i0] = t[8 - i0] + x[i0]"""
)
CHOSEN = parse(
    """\
def chosen(x: f32[6, 4], m: f32[6], *, y: f32[6], z: f32[6, 4]):
    b = buffer(f32[6], "global")
    c = buffer(f32[6], "global")
    to = buffer(i64[4], "global")
    for i in serial(6):
        with block("b", i=spatial(6, i)):
            b[i] = m[i] * f32(2.0)
    for i in serial(6):
        with block("c", i=spatial(6, i)):
            c[i] = m[i] + x[i, 0]
    for j in serial(4):
        with block("to", j=spatial(4, j)):
            to[j] = (j * 3 + 1) % 4
    for i in serial(6):
        for k in serial(4):
            with block("y", i=spatial(6, i), k=reduce(4, k), init=b[i], where=c[k] > f32(0.0)):
                y[i] += x[i, to[k]]
    for i in serial(6):
        for j in serial(4):
            with block("z0", i=spatial(6, i), j=spatial(4, j)):
                z[i, j] = y[i]
    for i in serial(6):
        for j in serial(4):
            with block("z", i=spatial(6, i), j=spatial(4, j), where=c[i] > f32(0.0)):
                z[i, to[j]] = b[i] + x[i, j]"""
)

PROGRAMS: list[Program] = [
    dense(),
    dense(N, 6, 9, n=5),
    dense(5, N, 8, n=7),
    dense(4, 8, N, n=11),
    conv(),
    conv(N, n=3),
    softmax(),
    softmax(N, 5, n=4),
    softmax(3, N, n=7),
    layer_norm(),
    layer_norm(N, n=5),
    transposes(),
    transposes(N, n=5),
    windows(),
    windows(4, N, n=9),
    Program("recurrent", RECURRENT),
    Program("in_place", IN_PLACE, {"n": 3}),
    Program("conditions", CONDITIONS),
    Program("chosen", CHOSEN),
]
