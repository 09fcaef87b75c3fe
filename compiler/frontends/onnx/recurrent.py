"""LSTM, GRU and RNN: for each direction a projection of all steps, then the recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Value
from planish.compiler.ops.base import Op
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Add, Mul, Sub
from planish.compiler.ops.gates import DEFAULTS, Activation
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.recurrent import Gru, Lstm, Recurrent, Rnn
from planish.compiler.ops.shape import Concat, Reshape, Transpose

from .reader import NodeReader, handles


@dataclass(frozen=True)
class _Layer:
    """What the three kinds of layer read alike."""

    r: NodeReader
    functions: int  # activation functions of a direction
    gates: int
    given: tuple[Value, Value] | None = None  # the weights, if they are not inputs 1 and 2

    @property
    def x(self) -> Value:
        """The input as [t, b, i]."""
        x = self.r.input(0)
        if x.type.rank != 3:
            raise self.r.fail(f"the input {x!r} must have rank 3")
        return self.step(Transpose((1, 0, 2)), x) if self.batch_first else x

    @property
    def batch_first(self) -> bool:
        layout = int(self.r.attribute("layout", 0)) if self.r.version >= 14 else 0
        if layout not in (0, 1):
            raise self.r.fail(f"layout {layout} does not exist")
        return layout == 1

    @property
    def directions(self) -> tuple[bool, ...]:
        """For each direction, whether it runs in reverse."""
        name = self.r.attribute("direction", "forward")
        known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        if name not in known:
            raise self.r.fail(f"direction {name} does not exist")
        return known[name]

    def step(self, op: Op, *inputs: Value | None) -> Value:
        return self.r.builder.one(op, *inputs, origin=self.r.label)

    @property
    def matrices(self) -> tuple[Value, Value]:
        """The weights of the input [d, gates * h, i] and of the state [d, gates * h, h]."""
        return self.given or (self.r.input(1), self.r.input(2))

    def hidden(self) -> Expr:
        if self.r.version < 7:
            self.r.attribute("output_sequence")  # whether y is wanted: the outputs say so too
        w, recurrence = self.matrices
        if w.type.rank != 3 or recurrence.type.rank != 3:
            raise self.r.fail(f"the weights {w!r} and {recurrence!r} must have rank 3")
        hidden = recurrence.type.shape[2]
        given = self.r.attribute("hidden_size")
        if given is not None and n.eq(hidden, int(given)) is n.FALSE:
            raise self.r.fail(f"hidden_size {given} does not fit the weights {recurrence!r}")
        x, rows = self.r.input(0), n.mul(hidden, self.gates)
        if x.type.rank != 3:
            raise self.r.fail(f"the input {x!r} must have rank 3")
        for matrix, columns in ((w, x.type.shape[-1]), (recurrence, hidden)):
            for d, wanted in zip(matrix.type.shape[1:], (rows, columns), strict=True):
                if n.eq(d, wanted) is n.FALSE:
                    raise self.r.fail(
                        f"the weights {matrix!r} must be [..., {rows}, {columns}]"
                        f" for {x!r} and {hidden} hidden units"
                    )
        return hidden

    def activations(self, defaults: Sequence[str]) -> list[tuple[Activation, ...]]:
        """Each direction's activations; parameters go to those that have such, in order."""
        r, count = self.r, len(self.directions)
        names = r.attribute("activations") or [*defaults] * count
        alphas = [float(v) for v in r.attribute("activation_alpha") or []]
        betas = [float(v) for v in r.attribute("activation_beta") or []]
        if len(names) != self.functions * count:
            raise r.fail(f"activations {names} must be {self.functions * count}")
        known = {name.lower(): name for name in DEFAULTS}
        found: list[Activation] = []
        for given in names:
            name = known.get(given.lower())
            if name is None:
                raise r.fail(f"there is no activation {given}", hint="one of " + " ".join(DEFAULTS))
            alpha, beta = DEFAULTS[name]
            if alpha is not None and alphas:
                alpha = alphas.pop(0)
            if beta is not None and betas:
                beta = betas.pop(0)
            found.append((name, alpha or 0.0, beta or 0.0))
        return [tuple(found[k * self.functions : (k + 1) * self.functions]) for k in range(count)]

    def direction(self, value: Value | None, index: int, axis: int = 0) -> Value | None:
        """The part of an input that belongs to a direction, without that axis."""
        if value is None:
            return None
        shape = list(value.type.shape)
        if n.eq(shape[axis], len(self.directions)) is n.FALSE:
            raise self.r.fail(f"{value!r} must have {len(self.directions)} directions")
        if len(self.directions) > 1:
            starts = [as_expr(index if k == axis else 0) for k in range(len(shape))]
            shape[axis] = as_expr(1)
            value = self.step(Slice(tuple(starts), (1,) * len(shape), tuple(shape)), value)
        return self.step(Reshape((*shape[:axis], *shape[axis + 1 :])), value)

    def state(self, index: int, which: int) -> Value | None:
        """An initial state [b, h] of a direction."""
        value = self.r.optional(index)
        if value is not None and value.type.rank != 3:
            raise self.r.fail(f"the initial state {value!r} must have rank 3")
        return self.direction(value, which, 1 if self.batch_first else 0)

    def part(self, bias: Value, start: Expr, size: Expr) -> Value:
        return self.step(Slice((start,), (1,), (size,)), bias)

    def weights(self, x: Value, index: int) -> tuple[Value, Value]:
        """The projected input [t, b, gates * h], without bias, and the matrix of the recurrence."""
        w, recurrence = (self.direction(v, index) for v in self.matrices)
        projected = self.step(MatMul(False, True), x, w)
        return projected, self.step(Transpose((1, 0)), recurrence)

    def bias(self, index: int) -> Value | None:
        """Both biases of a direction, one behind the other."""
        given = self.r.optional(3)
        if given is not None and given.type.rank != 2:
            raise self.r.fail(f"the bias {given!r} must have rank 2")
        return self.direction(given, index)

    def biased(self, projected: Value, index: int) -> Value:
        """Both biases added to the projection."""
        b = self.bias(index)
        if b is None:
            return projected
        size = n.mul(self.hidden(), self.gates)
        both = [self.part(b, as_expr(0), size), self.part(b, size, size)]
        return self.step(Add(), projected, self.step(Add(), *both))

    def outputs(self, found: list[tuple[Value, ...]]) -> list[Value]:
        """The node's outputs from those of the directions: y [t, b, h], then states [b, h]."""
        out = []
        for k, values in enumerate(zip(*found, strict=True)):
            # In front of [b, h] for layout 0; behind the batch (and the time) for layout 1.
            axis = len(values[0].type.shape) - (1 if self.batch_first else 2)
            if self.batch_first and k == 0:
                values = tuple(self.step(Transpose((1, 0, 2)), v) for v in values)
            name = self.r.output_names[k] if k < len(self.r.output_names) else ""
            shape = values[0].type.shape
            wider = Reshape((*shape[:axis], as_expr(1), *shape[axis:]))
            if len(values) == 1:
                out.append(self.r.builder.one(wider, *values, name=name, origin=self.r.label))
                continue
            parts = [self.step(wider, v) for v in values]
            out.append(self.r.builder.one(Concat(axis), *parts, name=name, origin=self.r.label))
        return out[: len(self.r.output_names)]

    def apply(self, op: Recurrent, *inputs: Value | None) -> tuple[Value, ...]:
        return self.r.builder.apply(op, *inputs, origin=self.r.label)


def _clip(r: NodeReader) -> float:
    return float(r.attribute("clip", 0.0))


@handles("LSTM", 1, 7, 14, 22)
def lstm(r: NodeReader) -> list[Value]:
    """Layout since version 14."""
    return _lstm(_Layer(r, 3, 4))


@handles("DynamicQuantizeLSTM", 1, domain="com.microsoft")
def dynamic_quantize_lstm(r: NodeReader) -> list[Value]:
    """An LSTM on the numbers that its integer weights stand for.

    Inputs and states stay floats, where ONNX Runtime rounds them to 8 bits at each step.
    """
    return _lstm(_Layer(r, 3, 4, (_weights(r, 1, 8, 9), _weights(r, 2, 10, 11))))


def _weights(r: NodeReader, index: int, scale_index: int, zero_index: int) -> Value:
    """Quantised weights [d, i, 4 h] as floats [d, 4 h, i]; scales are [d] or [d, 4 h]."""
    w, scale, zero = r.input(index), r.input(scale_index), r.input(zero_index)

    def step(op: Op, *inputs: Value) -> Value:
        return r.builder.one(op, *inputs, origin=r.label)

    if w.type.rank != 3 or any(v.type.rank not in (1, 2) for v in (scale, zero)):
        raise r.fail(f"weights {w!r} with the scales {scale!r} and zero points {zero!r}")
    columns = []
    for v in (scale, zero):
        d, *rest = v.type.shape
        wide = step(Reshape((d, as_expr(1), *(rest or [as_expr(1)]))), v)
        columns.append(step(Cast(scale.type.dtype), wide))
    numbers = step(Sub(), step(Cast(scale.type.dtype), w), columns[1])
    return step(Transpose((0, 2, 1)), step(Mul(), numbers, columns[0]))


def _lstm(a: _Layer) -> list[Value]:
    r = a.r
    a.hidden()
    x, lens = a.x, r.optional(4)
    forget = bool(r.attribute("input_forget", 0))
    functions = a.activations(("Sigmoid", "Tanh", "Tanh"))
    found = []
    for k, reverse in enumerate(a.directions):
        projected, recurrence = a.weights(x, k)
        op = Lstm(reverse, functions[k], _clip(r), forget)
        states = a.state(5, k), a.state(6, k)
        peepholes = a.direction(r.optional(7), k)
        x_k = a.biased(projected, k)
        found.append(a.apply(op, x_k, recurrence, lens, *states, peepholes))
    return a.outputs(found)


@handles("GRU", 1, 3, 7, 14, 22)
def gru(r: NodeReader) -> list[Value]:
    """linear_before_reset since version 3, layout since 14."""
    a = _Layer(r, 2, 3)
    x, lens, hidden = a.x, r.optional(4), a.hidden()
    linear = r.version >= 3 and bool(r.attribute("linear_before_reset", 0))
    functions = a.activations(("Sigmoid", "Tanh"))
    found = []
    for k, reverse in enumerate(a.directions):
        projected, recurrence = a.weights(x, k)
        op = Gru(reverse, functions[k], _clip(r), linear)
        bias, inner = a.bias(k), None
        if bias is None or not linear:
            projected = a.biased(projected, k)
        else:
            # The recurrence's bias of gate h acts inside the reset gate: it stays apart.
            two, three = n.mul(hidden, 2), n.mul(hidden, 3)
            gates = a.step(Add(), a.part(bias, as_expr(0), two), a.part(bias, three, two))
            both = a.step(Concat(0), gates, a.part(bias, two, hidden))
            projected = a.step(Add(), projected, both)
            inner = a.part(bias, n.add(three, two), hidden)
        found.append(a.apply(op, projected, recurrence, lens, a.state(5, k), inner))
    return a.outputs(found)


@handles("RNN", 1, 7, 14, 22)
def rnn(r: NodeReader) -> list[Value]:
    """Layout since version 14."""
    a = _Layer(r, 1, 1)
    a.hidden()
    x, lens = a.x, r.optional(4)
    functions = a.activations(("Tanh",))
    found = []
    for k, reverse in enumerate(a.directions):
        projected, recurrence = a.weights(x, k)
        op = Rnn(reverse, functions[k], _clip(r))
        found.append(a.apply(op, a.biased(projected, k), recurrence, lens, a.state(5, k)))
    return a.outputs(found)
