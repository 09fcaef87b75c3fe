"""Operators that make tensors of numbers, and choose between tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, F32, I32, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import number, numbers
from planish.compiler.graph.ir import MAX_CONTENT, Array, Content, TensorType
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices
from .sampling import bools, f32, ints
from .shape import sizes


@dataclass(frozen=True)
class Range(Op):
    """start, start + delta, start + 2 * delta ...: ``count`` numbers.

    ``start`` and ``delta`` are ``i64`` for integers of any width, else of the float ``dtype``.

    Shape: -> dtype [count].
    Source: ONNX Range-27.
    """

    name = "range"

    start: Expr
    delta: Expr
    count: Expr
    dtype: DType = I64

    def infer(self) -> TensorType:
        wanted = self.dtype if self.dtype.is_float else I64
        if self.start.dtype is not wanted or self.delta.dtype is not wanted:
            raise self.fail(f"numbers from {self.start} by {self.delta} are not {self.dtype}")
        if isinstance(self.count, Const) and self.count.value < 0:
            raise self.fail(f"the count is {self.count}")
        return TensorType(self.dtype, (self.count,))

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        count = number(self.count)
        if count is None or count > MAX_CONTENT or not self.dtype.is_discrete:
            return (None,)
        return (tuple(self.start + self.delta * k for k in range(count)),)

    def compute(self) -> te.Tensor:
        def element(i: Expr) -> Expr:
            if not self.dtype.is_float:
                return n.cast(self.start + self.delta * i, self.dtype)
            wide = self.dtype if self.dtype.bits >= 32 else F32
            start, delta = n.cast(self.start, wide), n.cast(self.delta, wide)
            return n.cast(start + delta * n.cast(i, wide), self.dtype)

        return te.compute((self.count,), element, self.name)

    def reference(self) -> Array:
        assert isinstance(self.start, Const) and isinstance(self.delta, Const)
        wide = "float64" if self.dtype.bits == 64 else "float32"
        start, delta, steps = (
            np.asarray(x, wide if self.dtype.is_float else "int64")
            for x in (self.start.value, self.delta.value, np.arange(*numbers((self.count,))))
        )
        return np.asarray(start + delta * steps).astype(self.dtype.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(as_expr(2), as_expr(3), as_expr(4)), []
        yield cls(as_expr(5), as_expr(-2), as_expr(3), I32), []
        yield cls(n.const(0.5, F32), n.const(-0.25, F32), as_expr(5), F32), []
        yield cls(as_expr(0), as_expr(1), as_expr(0)), []


@dataclass(frozen=True)
class ConstantOfShape(Op):
    """A tensor filled with one number, ``value``, which has the dtype.

    Shape: -> value's dtype [*shape].
    Errors: TypeCheckError for a negative dimension.
    Source: ONNX ConstantOfShape-25.
    """

    name = "constant_of_shape"

    shape: tuple[Expr, ...]
    value: Expr

    def infer(self) -> TensorType:
        for d in self.shape:
            if isinstance(d, Const) and d.value < 0:
                raise self.fail(f"a dimension is {d}")
        return TensorType(self.value.dtype, self.shape)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        size = outputs[0].size
        if size is None or size > MAX_CONTENT or not outputs[0].dtype.is_discrete:
            return (None,)
        one = self.value if self.value.dtype is BOOL else n.cast(self.value, I64)
        return ((one,) * size,)

    def compute(self) -> te.Tensor:
        return te.compute(self.shape, lambda *i: self.value, self.name)

    def reference(self) -> Array:
        assert isinstance(self.value, Const)
        return np.full(numbers(self.shape), self.value.value, self.value.type.numpy)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(3, 4), n.const(1.5, F32)), []
        yield cls(sizes(), n.const(-7, I64)), []
        yield cls(sizes(2, 0), n.const(True, BOOL)), []


@dataclass(frozen=True)
class Where(Op):
    """x where the condition holds, else y.

    Shape: condition bool [...], x [...], y [...] -> their broadcast.
    Errors: TypeCheckError if the condition is no bool or the dtypes of x and y differ.
    Source: ONNX Where-16.
    """

    name = "where"
    takes_strings: ClassVar[bool] = True

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        if condition.dtype is not BOOL:
            raise self.fail(f"the condition is {condition.dtype}, not bool")
        if x.dtype is not y.dtype:
            raise self.fail(f"the choices are {x.dtype} and {y.dtype}", hint="cast one of them")
        return TensorType(x.dtype, broadcast(condition.shape, x.shape, y.shape))

    def compute(self, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            c, a, b = (t[broadcast_indices(i, t.shape)] for t in (condition, x, y))
            return n.select(c, a, b)

        return te.compute(broadcast(condition.shape, x.shape, y.shape), element, self.name)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        size = outputs[0].size
        if size is None or size > MAX_CONTENT or not outputs[0].dtype.is_discrete:
            return (None,)
        items = []
        for c in inputs:
            if c is None or len(c) not in (1, size):
                return (None,)
            items.append(c * size if len(c) == 1 else c)
        return (tuple(n.select(c, a, b) for c, a, b in zip(*items, strict=True)),)

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [bools(3, 5), f32(5), f32(3, 1)]
        yield cls(), [bools(2, 1, 1), ints(3, 1), ints(4)]


__all__ = ["ConstantOfShape", "Range", "Where"]
