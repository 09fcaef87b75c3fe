"""Pooling over all elements of the spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op
from .pooling import powers_of, root_of
from .sampling import f32
from .windows import type_of, wide, wide_array


@dataclass(frozen=True)
class GlobalPool(Op):
    """A reduction over all spatial axes, which stay with extent 1."""

    channels_last: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if not x.dtype.is_float:
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank < 2:
            raise self.fail(f"x {x} must have a batch and channels")
        ones = [1] * (x.rank - 2)
        if self.channels_last:
            return x.with_shape((x.shape[0], *ones, x.shape[-1]))
        return x.with_shape((*x.shape[:2], *ones))

    def sizes(self, x: te.Tensor) -> te.Shape:
        return x.shape[1:-1] if self.channels_last else x.shape[2:]

    def reduction(self, combiner: str, x: te.Tensor, element: Callable[[Expr], Expr]) -> te.Tensor:
        rank = x.rank

        def at(*i: Expr) -> Expr:
            taps = i[rank:]
            if self.channels_last:
                return element(x[(i[0], *taps, i[rank - 1])])
            return element(x[(i[0], i[1], *taps)])

        return te.reduce(combiner, self.infer(type_of(x)).shape, self.sizes(x), at, self.name)

    def spatial(self, x: Array) -> tuple[int, ...]:
        return tuple(range(1, x.ndim - 1) if self.channels_last else range(2, x.ndim))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(2, 3, 4, 5)]
        yield cls(True), [f32(2, 4, 5, 3)]
        yield cls(), [f32(2, 3, 7).astype(np.float16)]


@dataclass(frozen=True)
class GlobalAveragePool(GlobalPool):
    """The mean over all spatial axes; NaN of no elements.

    Shape: x [n, c, *s] float -> [n, c, 1 ...]; ``channels_last``: x [n, *s, c] -> [n, 1 ..., c].
    Source: ONNX GlobalAveragePool-22.
    """

    name = "global_average_pool"

    def compute(self, x: te.Tensor) -> te.Tensor:
        acc = wide(x.dtype)
        total = self.reduction("sum", x, lambda e: n.cast(e, acc))
        count = n.cast(n.product(self.sizes(x)), acc)
        return te.compute(total.shape, lambda *i: n.cast(n.div(total[i], count), x.dtype), "mean")

    def reference(self, x: Array) -> Array:
        return np.asarray(wide_array(x).mean(self.spatial(x), keepdims=True)).astype(x.dtype)


@dataclass(frozen=True)
class GlobalMaxPool(GlobalPool):
    """The greatest element over all spatial axes; NaN if there is one.

    Shape: x [n, c, *s] float -> [n, c, 1 ...]; ``channels_last``: x [n, *s, c] -> [n, 1 ..., c].
    Source: ONNX GlobalMaxPool-22.
    """

    name = "global_max_pool"

    def compute(self, x: te.Tensor) -> te.Tensor:
        return self.reduction("max", x, lambda e: e)

    def reference(self, x: Array) -> Array:
        return np.asarray(x.max(self.spatial(x), keepdims=True, initial=-np.inf))


@dataclass(frozen=True)
class GlobalLpPool(GlobalPool):
    """The p-norm over all spatial axes.

    Shape: x [n, c, *s] float -> [n, c, 1 ...]; ``channels_last``: x [n, *s, c] -> [n, 1 ..., c].
    Errors: TypeCheckError if p is less than 1.
    Source: ONNX GlobalLpPool-22.
    """

    name = "global_lp_pool"

    p: int = 2

    def infer(self, x: TensorType) -> TensorType:
        if self.p < 1:
            raise self.fail(f"p must be at least 1, not {self.p}")
        return super().infer(x)

    def compute(self, x: te.Tensor) -> te.Tensor:
        powers = powers_of(x, self.p)
        return root_of(self.reduction("sum", powers, lambda e: e), self.p, x)

    def reference(self, x: Array) -> Array:
        total = (np.abs(wide_array(x)) ** self.p).sum(self.spatial(x), keepdims=True)
        return np.asarray(total ** (1 / self.p)).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls(p=1), [f32(2, 3, 4, 5)]
        yield cls(p=3), [f32(2, 3, 7)]
