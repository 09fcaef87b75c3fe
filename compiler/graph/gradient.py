"""Gradients: what a sum of elements changes by with each element that it depends on.

The nodes are gone through backwards. A rule for each kind of node says what its inputs' gradients
are for one of its output's. What integers and bools tell (indices, masks, conditions) has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.errors import TypeCheckError
from planish.compiler.expr.nodes import Expr, as_expr, maximum
from planish.compiler.expr.sizes import normal
from planish.compiler.ops.activations import LeakyRelu, Relu, Sigmoid, Softplus, Tanh
from planish.compiler.ops.base import Op, is_one
from planish.compiler.ops.compare import Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Div, FullLike, Max, Min, Mul, Sub
from planish.compiler.ops.indexing import Gather, GatherElements, Slice
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.power import Pow
from planish.compiler.ops.reduction import ReduceMean, ReduceSum
from planish.compiler.ops.scatter import ScatterElements, ScatterND
from planish.compiler.ops.shape import Concat, Expand, Reshape, Size, Split, Transpose
from planish.compiler.ops.softmax import LogSoftmax, Softmax
from planish.compiler.ops.unary import (
    Abs,
    Ceil,
    Cos,
    Erf,
    Exp,
    Floor,
    Log,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sqrt,
)

from .ir import GraphBuilder, Node, TensorType, Value


@dataclass(frozen=True, eq=False)
class Step:
    """A node whose output has the gradient ``dy``, and what makes nodes for its inputs' gradients.

    Values and numbers are multiplied, added and so on in the dtype of ``dy``.
    """

    builder: GraphBuilder
    node: Node
    dys: tuple[Value | None, ...]

    @property
    def dy(self) -> Value:
        (dy,) = self.dys
        assert dy is not None
        return dy

    @property
    def xs(self) -> tuple[Value, ...]:
        return self.node.operands

    @property
    def y(self) -> Value:
        return self.node.outputs[0]

    def __call__(self, op: Op, *values: Value | float) -> Value:
        given = [self.value(v) for v in values]
        return self.builder.one(op, *given, name="gradient", origin=self.node.origin)

    def value(self, x: Value | float) -> Value:
        if isinstance(x, Value):
            return x
        dtype = next(v for v in self.dys if v is not None).type.dtype
        return self.builder.constant(np.array(x, dtype.numpy), "number")

    def times(self, *values: Value | float) -> Value:
        first, *others = values
        out = self.value(first)
        for v in others:
            out = self(Mul(), out, v)
        return out

    def fit(self, dx: Value, x: Value) -> Value:
        """A gradient of what x was broadcast to, as one of x."""
        extra = dx.type.rank - x.type.rank
        axes = tuple(
            k
            for k, d in enumerate(dx.type.shape)
            if k < extra or (is_one(x.type.shape[k - extra]) and not is_one(d))
        )
        out = self(ReduceSum(axes, True), dx) if axes else dx
        return self(Reshape(x.type.shape), out) if extra else out

    def apart(self, x: Value, axis: int, step: int) -> Value:
        """The elements along an axis with |step| - 1 zeros between them, backwards if step < 0."""
        shape, apart = x.type.shape, abs(step)
        if apart > 1:
            ahead, count, behind = shape[:axis], shape[axis], shape[axis + 1 :]
            none = (as_expr(0),) * (x.type.rank + 1)
            more = (*none[: axis + 1], as_expr(apart - 1), *none[axis + 2 :])
            x = self(Reshape((*ahead, count, as_expr(1), *behind)), x)
            x = self(Pad(none, more, "constant"), x)
            x = self(Reshape((*ahead, normal(count * apart), *behind)), x)
            length = normal(maximum(0, (count - 1) * apart + 1))
            shape = (*ahead, length, *behind)
            x = self(Slice(none[1:], (1,) * x.type.rank, shape), x)
        if step < 0:
            starts = [as_expr(0)] * x.type.rank
            starts[axis] = normal(shape[axis] - 1)
            steps = tuple(-1 if k == axis else 1 for k in range(x.type.rank))
            x = self(Slice(tuple(starts), steps, shape), x)
        return x

    def spread(self, dy: Value, x: TensorType, axes: Iterable[int], keepdims: bool) -> Value:
        """The gradient of a sum over axes at each element of x."""
        if not keepdims:
            some = frozenset(axes)
            kept = (as_expr(1) if k in some else d for k, d in enumerate(x.shape))
            dy = self(Reshape(tuple(kept)), dy)
        return self(Expand(x.shape), dy)


Rule: TypeAlias = "Callable[[Any, Step], Sequence[Value | None]]"
RULES: Final[dict[type[Op], Rule]] = {}
_FLAT: Final = (FullLike, Sign, Floor, Ceil, Round)  # whose outputs stay when inputs move a little


def rule(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of these operators."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def gradients(b: GraphBuilder, nodes: Sequence[Node], y: Value, xs: Sequence[Value]) -> list[Value]:
    """The gradients of the sum of y's elements with respect to xs, which nodes make y of.

    Errors: TypeCheckError naming a node of which no gradient is known.
    """
    from . import gradient_windows  # noqa: F401 - whose rules are registered then

    found: dict[Value, Value] = {}
    if y.type.dtype.is_float:
        found[y] = b.one(FullLike(1.0, y.type.dtype), y, name="gradient")
    reached = set(xs)  # what depends on xs
    for node in nodes:
        if any(v in reached for v in node.operands):
            reached.update(node.outputs)
    for node in reversed(nodes):
        dys = tuple(found.get(v) for v in node.outputs)
        wanted = [v in reached and v.type.dtype.is_float for v in node.operands]
        if not any(wanted) or all(dy is None for dy in dys):
            continue
        if isinstance(node.op, _FLAT):
            continue
        rule = RULES.get(type(node.op))
        if rule is None:
            known = " ".join(sorted(kind.name for kind in RULES))
            raise TypeCheckError(
                f"no gradient of {node.op.name} is known",
                node=repr(node),
                hint=f"there are gradients of: {known}",
            )
        step = Step(b, node, dys)
        for x, dx in zip(node.operands, rule(node.op, step), strict=True):
            if dx is not None and x in reached and x.type.dtype.is_float:
                found[x] = step(Add(), found[x], dx) if x in found else dx
    return [
        found[x] if x in found else b.one(FullLike(0.0, x.type.dtype), x, name="gradient")
        for x in xs
    ]


# ----------------------------------------------------------------------------- element by element


@rule(Add)
def _add(_: Add, s: Step) -> list[Value | None]:
    return [s.fit(s.dy, x) for x in s.xs]


@rule(Sub)
def _sub(_: Sub, s: Step) -> list[Value | None]:
    a, b = s.xs
    return [s.fit(s.dy, a), s.fit(s(Neg(), s.dy), b)]


@rule(Mul)
def _mul(_: Mul, s: Step) -> list[Value | None]:
    a, b = s.xs
    return [s.fit(s.times(s.dy, b), a), s.fit(s.times(s.dy, a), b)]


@rule(Div)
def _div(_: Div, s: Step) -> list[Value | None]:
    a, b = s.xs
    return [s.fit(s(Div(), s.dy, b), a), s.fit(s(Div(), s.times(s.dy, s.y, -1.0), b), b)]


@rule(Pow)
def _pow(_: Pow, s: Step) -> list[Value | None]:
    a, b = s.xs
    if not b.type.dtype.is_float:
        power = s(Cast(a.type.dtype), b)
        return [s.fit(s.times(s.dy, power, s(Pow(), a, s(Sub(), power, 1.0))), a), None]
    da = s.times(s.dy, b, s(Pow(), a, s(Sub(), b, 1.0)))
    return [s.fit(da, a), s.fit(s.times(s.dy, s.y, s(Log(), a)), b)]


@rule(Max, Min)
def _extreme(op: Max | Min, s: Step) -> list[Value | None]:
    """Of two equal ones the first is taken."""
    a, b = s.xs
    second = s(Less(), a, b) if isinstance(op, Max) else s(Less(), b, a)
    first, other = s(Where(), second, 0.0, s.dy), s(Where(), second, s.dy, 0.0)
    return [s.fit(first, a), s.fit(other, b)]


@rule(Where)
def _where(_: Where, s: Step) -> list[Value | None]:
    condition, a, b = s.xs
    taken, left = s(Where(), condition, s.dy, 0.0), s(Where(), condition, 0.0, s.dy)
    return [None, s.fit(taken, a), s.fit(left, b)]


@rule(Cast)
def _cast(_: Cast, s: Step) -> list[Value | None]:
    return [s(Cast(s.xs[0].type.dtype), s.dy)]


# By how much more the output grows than the input.
_SLOPES: Final[dict[type[Op], Callable[[Any, Step, Value], Value | float]]] = {
    Neg: lambda _, s, x: -1.0,
    Abs: lambda _, s, x: s(Sign(), x),
    Exp: lambda _, s, x: s.y,
    Log: lambda _, s, x: s(Reciprocal(), x),
    Sqrt: lambda _, s, x: s(Div(), 0.5, s.y),
    Reciprocal: lambda _, s, x: s.times(s.y, s.y, -1.0),
    Sin: lambda _, s, x: s(Cos(), x),
    Cos: lambda _, s, x: s(Neg(), s(Sin(), x)),
    Tanh: lambda _, s, x: s(Sub(), 1.0, s.times(s.y, s.y)),
    Sigmoid: lambda _, s, x: s.times(s.y, s(Sub(), 1.0, s.y)),
    Softplus: lambda _, s, x: s(Sigmoid(), x),
    Erf: lambda _, s, x: s.times(s(Exp(), s(Neg(), s.times(x, x))), 2 / math.sqrt(math.pi)),
    Relu: lambda _, s, x: s(Where(), s(Less(), 0.0, x), 1.0, 0.0),
    LeakyRelu: lambda op, s, x: s(Where(), s(Less(), x, 0.0), op.alpha, 1.0),
}


@rule(*_SLOPES)
def _unary(op: Op, s: Step) -> list[Value | None]:
    (x,) = s.xs
    return [s.times(s.dy, _SLOPES[type(op)](op, s, x))]


# --------------------------------------------------------------------------- sums, products, shapes


@rule(ReduceSum)
def _sum(op: ReduceSum, s: Step) -> list[Value | None]:
    (x,) = s.xs
    return [s.spread(s.dy, x.type, op.over(x.type.rank), op.keepdims)]


@rule(ReduceMean)
def _mean(op: ReduceMean, s: Step) -> list[Value | None]:
    (x,) = s.xs
    dtype = s.dy.type.dtype
    share = s(Div(), *(s(Cast(dtype), s(Size(), v)) for v in (s.y, x)))
    return [s.spread(s.times(s.dy, share), x.type, op.over(x.type.rank), op.keepdims)]


@rule(Softmax)
def _softmax(op: Softmax, s: Step) -> list[Value | None]:
    total = s(ReduceSum(op.axes, True), s.times(s.dy, s.y)) if op.axes else s.times(s.dy, s.y)
    return [s.times(s.y, s(Sub(), s.dy, total))]


@rule(LogSoftmax)
def _log_softmax(op: LogSoftmax, s: Step) -> list[Value | None]:
    total = s(ReduceSum(op.axes, True), s.dy) if op.axes else s.dy
    return [s(Sub(), s.dy, s.times(s(Exp(), s.y), total))]


@rule(MatMul)
def _matmul(op: MatMul, s: Step) -> list[Value | None]:
    (a, b), dy = s.xs, s.dy
    ta, tb = op.transpose_a, op.transpose_b
    da = s(MatMul(tb, True), b, dy) if ta else s(MatMul(False, not tb), dy, b)
    db = s(MatMul(True, ta), dy, a) if tb else s(MatMul(not ta, False), a, dy)
    return [s.fit(da, a), s.fit(db, b)]


@rule(Reshape)
def _reshape(_: Reshape, s: Step) -> list[Value | None]:
    return [s(Reshape(s.xs[0].type.shape), s.dy)]


@rule(Expand)
def _expand(_: Expand, s: Step) -> list[Value | None]:
    return [s.fit(s.dy, s.xs[0])]


@rule(Transpose)
def _transpose(op: Transpose, s: Step) -> list[Value | None]:
    return [s(Transpose(tuple(int(k) for k in np.argsort(op.perm))), s.dy)]


@rule(Concat)
def _concat(op: Concat, s: Step) -> list[Value | None]:
    axis = op.resolve_axis(op.axis, s.dy.type.rank)
    start: Expr = as_expr(0)
    out: list[Value | None] = []
    for x in s.xs:
        starts = [start if k == axis else as_expr(0) for k in range(x.type.rank)]
        out.append(s(Slice(tuple(starts), (1,) * x.type.rank, x.type.shape), s.dy))
        start = normal(start + x.type.shape[axis])
    return out


@rule(Slice)
def _slice(op: Slice, s: Step) -> list[Value | None]:
    (x,), dx = s.xs, s.dy
    before, after = [], []
    for k, (start, step, size) in enumerate(zip(op.starts, op.steps, x.type.shape, strict=True)):
        dx = s.apart(dx, k, step)
        length = dx.type.shape[k]
        first = start if step > 0 else normal(start + 1 - length)
        before.append(first)
        after.append(normal(size - first - length))
    return [s(Pad(tuple(before), tuple(after), "constant"), dx)]


@rule(Pad)
def _pad(op: Pad, s: Step) -> list[Value | None]:
    if op.mode != "constant":
        raise op.fail(f"has no gradient with the mode {op.mode}")
    x, *fill = s.xs
    before, after = (tuple(normal(0 - p) for p in pads) for pads in (op.before, op.after))
    dx = s(Pad(before, after, "constant"), s.dy)
    ones = s(FullLike(1.0, s.dy.type.dtype), x)
    inside = s(Pad(op.before, op.after, "constant"), ones)
    dy = s.times(s.dy, s(Sub(), 1.0, inside))
    return [dx, *(s(Reshape(v.type.shape), s(ReduceSum(None, False), dy)) for v in fill)]


@rule(Gather)
def _gather(op: Gather, s: Step) -> list[Value | None]:
    x, indices = s.xs
    axis, rank, count = op.resolve_axis(op.axis, x.type.rank), x.type.rank, indices.type.rank
    front = (axis, *(k for k in range(rank) if k != axis))
    moved = (*range(axis, axis + count), *range(axis), *range(axis + count, s.dy.type.rank))
    zeros = s(Expand(tuple(x.type.shape[k] for k in front)), 0.0)
    places = s(Reshape((*indices.type.shape, as_expr(1))), indices)
    found = s(ScatterND("add"), zeros, places, s(Transpose(moved), s.dy))
    return [s(Transpose(tuple(int(k) for k in np.argsort(front))), found), None]


@rule(GatherElements)
def _gather_elements(op: GatherElements, s: Step) -> list[Value | None]:
    x, indices = s.xs
    return [s(ScatterElements("add", op.axis), s(Expand(x.type.shape), 0.0), indices, s.dy), None]


@rule(Split)
def _split(op: Split, s: Step) -> list[Value | None]:
    parts = (
        s(FullLike(0.0, v.type.dtype), v) if dy is None else dy
        for v, dy in zip(s.node.outputs, s.dys, strict=True)
    )
    return [s(Concat(op.axis), *parts)]
