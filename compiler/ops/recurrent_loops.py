"""The loops of recurrent layers: a serial loop over steps around plain nests.

States are kept for every step (``hs[s]`` is the state before step ``s``), so that each element is
written once, and all blocks are spatial or plain reductions. Step ``s`` handles time ``s``, or
``t - 1 - s`` in reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planish.compiler.dtypes import I32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.graph.ir import TensorType
from planish.compiler.loop.ir import (
    Block,
    Buffer,
    Function,
    Iter,
    Loop,
    Scope,
    Stmt,
    constant,
    seq,
)

from .gates import expression
from .windows import wide

if TYPE_CHECKING:
    from .recurrent import Gru, Lstm, Recurrent, Rnn

# Step, batch, column, and what a product sums over.
_S, _B, _J, _K = (Var(v) for v in ("i0", "i1", "i2", "r0"))


class _Layer:
    """Collects the buffers and statements of a layer."""

    def __init__(self, op: Recurrent, **inputs: TensorType | None) -> None:
        given = {name: type for name, type in inputs.items() if type is not None}
        x, r = given["x"], given["r"]
        self.op, self.dtype, self.acc = op, x.dtype, wide(x.dtype)
        self.steps, self.batch, self.hidden = x.shape[0], x.shape[1], r.shape[0]
        self.symbols = free_vars(*(d for type in given.values() for d in type.shape))
        self.buffers: dict[str, Buffer] = {}
        self.inputs = list(given)
        self.setup: list[Stmt] = []
        self.step: list[Stmt] = []
        self.rest: list[Stmt] = []
        for name, type in given.items():
            self.buffers[name] = Buffer(self.unique(name), type.dtype, type.shape)
        self.time = n.sub(n.sub(self.steps, 1), _S) if op.reverse else _S

    def unique(self, name: str) -> str:
        """``name``, or one like it if a symbol bears it."""
        while any(name == v.name for v in self.symbols):
            name += "_"
        return name

    def buffer(self, name: str, shape: Sequence[Expr], scope: Scope = "global") -> None:
        dtype = self.acc if scope == "global" else self.dtype
        self.buffers[name] = Buffer(self.unique(name), dtype, tuple(shape), scope)

    def load(self, name: str, *indices: Expr) -> Expr:
        """An element in the dtype that is computed in."""
        buffer = self.buffers[name]
        return n.cast(Load(buffer.name, indices, buffer.dtype), self.acc)

    def store(
        self,
        into: list[Stmt],
        name: str,
        indices: tuple[Expr, ...],
        value: Expr,
        over: Sequence[tuple[Var, Expr]],
        reduce: tuple[Var, Expr] | None = None,
    ) -> None:
        """A nest that stores (or sums up) elements; in ``step`` it has the step as iterator."""
        iters = [Iter(v, e, "spatial", v) for v, e in over]
        if into is self.step:
            iters.insert(0, Iter(_S, self.steps, "spatial", _S))
        loops = list(over)
        target = self.buffers[name]
        value = n.cast(value, target.dtype)
        count = sum(1 for s in (*self.setup, *self.step, *self.rest) if _writes(s, target.name))
        label = f"{target.name}_{count}" if count else target.name
        if reduce is not None:
            iters.append(Iter(reduce[0], reduce[1], "reduce", reduce[0]))
            loops.append(reduce)
        block = Block(label, tuple(iters), target.name, indices, value)
        if reduce is not None:
            block = block.with_(combiner="sum", init=n.const(0, target.dtype))
        body: Stmt = block
        for v, e in reversed(loops):
            body = Loop(v, e, body)
        into.append(body)

    @property
    def units(self) -> list[tuple[Var, Expr]]:
        return [(_B, self.batch), (_J, self.hidden)]

    def state(self, name: str, initial: str) -> None:
        """A state buffer [t + 1, b, h] with its start from an input, or 0."""
        self.buffer(name, (n.add(self.steps, 1), self.batch, self.hidden))
        start = self.load(initial, _B, _J) if initial in self.buffers else n.const(0, self.acc)
        self.store(self.setup, name, (n.as_expr(0), _B, _J), start, self.units)

    def product(self, name: str, state: str, at: Expr, first: int, gates: int) -> None:
        """``name[s, b, j]``: the state times ``gates`` blocks of columns of r, the first and on."""
        columns = n.mul(self.hidden, gates)
        self.buffer(name, (self.steps, self.batch, columns))
        weight = self.load("r", _K, n.add(_J, n.mul(self.hidden, first)))
        value = n.mul(self.load(state, at, _B, _K), weight)
        over = [(_B, self.batch), (_J, columns)]
        self.store(self.step, name, (_S, _B, _J), value, over, (_K, self.hidden))

    def gate(self, name: str, index: int) -> Expr:
        """Block ``index`` of the projected input at this time, plus that block of a product."""
        column = n.add(_J, n.mul(self.hidden, index))
        return n.add(self.load("x", self.time, _B, column), self.load(name, _S, _B, column))

    def act(self, which: int, value: Expr) -> Expr:
        """An activation of a value, which is clipped first."""
        if self.op.clip:
            limit = self.op.clip
            value = n.maximum(n.minimum(value, n.const(limit, self.acc)), n.const(-limit, self.acc))
        return expression(self.op.activations[which], value)

    @property
    def active(self) -> Expr:
        """Whether the batch has this time."""
        if "lens" not in self.buffers:
            return n.TRUE
        return n.lt(self.time, n.cast(Load(self.buffers["lens"].name, (_B,), I32), I64))

    def advance(self, name: str, value: Expr) -> None:
        """The next state: ``value``, or the state before where the batch has ended."""
        kept = self.load(name, _S, _B, _J)
        value = n.select(self.active, value, kept)
        self.store(self.step, name, (n.add(_S, 1), _B, _J), value, self.units)

    def finish(self, **states: str) -> Function:
        """The function, with the outputs y and the last states."""
        self.buffer("y", (self.steps, self.batch, self.hidden), "param")
        value = n.select(self.active, self.load("hs", n.add(_S, 1), _B, _J), n.const(0, self.acc))
        self.store(self.step, "y", (self.time, _B, _J), value, self.units)
        for name, state in states.items():
            self.buffer(name, (self.batch, self.hidden), "param")
            self.store(self.rest, name, (_B, _J), self.load(state, self.steps, _B, _J), self.units)
        params = [self.buffers[name] for name in (*self.inputs, "y", *states)]
        temps = tuple(b for b in self.buffers.values() if b.scope == "global")
        steps = [Loop(_S, self.steps, seq(*self.step))] if constant(self.steps) != 0 else []
        body = seq(*self.setup, *steps, *self.rest)
        return Function(self.op.name, tuple(params), 1 + len(states), self.symbols, temps, body)


def _writes(s: Stmt, name: str) -> bool:
    while isinstance(s, Loop):
        s = s.body
    return isinstance(s, Block) and s.buffer == name


def lstm_loops(
    op: Lstm,
    x: TensorType,
    r: TensorType,
    lens: TensorType | None,
    initial_h: TensorType | None,
    initial_c: TensorType | None,
    p: TensorType | None,
) -> Function:
    """The loops of ``lstm``."""
    a = _Layer(op, x=x, r=r, lens=lens, initial_h=initial_h, initial_c=initial_c, p=p)
    a.state("hs", "initial_h")
    a.state("cs", "initial_c")
    a.product("hr", "hs", _S, 0, 4)

    def peep(index: int, cell: Expr, value: Expr) -> Expr:
        if p is None:
            return value
        return n.add(value, n.mul(a.load("p", n.add(_J, n.mul(a.hidden, index))), cell))

    c = a.load("cs", _S, _B, _J)
    i = a.act(0, peep(0, c, a.gate("hr", 0)))
    one = n.const(1, a.acc)
    f = n.sub(one, i) if op.input_forget else a.act(0, peep(2, c, a.gate("hr", 2)))
    a.advance("cs", n.add(n.mul(f, c), n.mul(i, a.act(1, a.gate("hr", 3)))))
    c = a.load("cs", n.add(_S, 1), _B, _J)
    o = a.act(0, peep(1, c, a.gate("hr", 1)))
    a.advance("hs", n.mul(o, expression(op.activations[2], c)))
    return a.finish(y_h="hs", y_c="cs")


def gru_loops(
    op: Gru,
    x: TensorType,
    r: TensorType,
    lens: TensorType | None,
    initial_h: TensorType | None,
    rb: TensorType | None,
) -> Function:
    """The loops of ``gru``."""
    a = _Layer(op, x=x, r=r, lens=lens, initial_h=initial_h, rb=rb)
    a.state("hs", "initial_h")
    h = a.load("hs", _S, _B, _J)
    last = n.add(_J, n.mul(a.hidden, 2))
    if op.linear_before_reset:
        a.product("hr", "hs", _S, 0, 3)
        inner = a.load("hr", _S, _B, last)
        if rb is not None:
            inner = n.add(inner, a.load("rb", _J))
        inner = n.mul(a.act(0, a.gate("hr", 1)), inner)
    else:
        a.product("hr", "hs", _S, 0, 2)
        a.buffer("reset", (a.steps, a.batch, a.hidden))
        a.store(a.step, "reset", (_S, _B, _J), n.mul(a.act(0, a.gate("hr", 1)), h), a.units)
        a.product("rr", "reset", _S, 2, 1)
        inner = a.load("rr", _S, _B, _J)
    new = a.act(1, n.add(a.load("x", a.time, _B, last), inner))
    z = a.act(0, a.gate("hr", 0))
    a.advance("hs", n.add(n.mul(n.sub(n.const(1, a.acc), z), new), n.mul(z, h)))
    return a.finish(y_h="hs")


def rnn_loops(
    op: Rnn,
    x: TensorType,
    r: TensorType,
    lens: TensorType | None,
    initial_h: TensorType | None,
) -> Function:
    """The loops of ``rnn``."""
    a = _Layer(op, x=x, r=r, lens=lens, initial_h=initial_h)
    a.state("hs", "initial_h")
    a.product("hr", "hs", _S, 0, 1)
    a.advance("hs", a.act(0, a.gate("hr", 0)))
    return a.finish(y_h="hs")
