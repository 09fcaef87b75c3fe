"""Pooling over windows of the spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Expr, Scalar, as_expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op
from .sampling import f32, ints
from .windows import (
    Dim,
    check_geometry,
    extent,
    is_zero,
    narrowed,
    number,
    pad,
    pairs,
    plain,
    plus,
    reach,
    type_of,
    wide,
    wide_array,
)  # fmt: skip

FAR = 1 << 62  # behind every position


@dataclass(frozen=True)
class Pool(Op):
    """A reduction over each window of the spatial axes.

    ``ceil_mode``: the last window may hang over the end of the padded input if it begins before.
    """

    kinds: ClassVar[str] = "f"

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]  # begins, then ends
    ceil_mode: bool = False
    channels_last: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in self.kinds:
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank < 3:
            raise self.fail(f"x {x} must have a batch, channels and spatial axes")
        rank = x.rank - 2
        check_geometry(
            self,
            rank,
            kernel=self.kernel,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
        )
        shape = list(x.shape)
        for k, pair in enumerate(pairs(self.pads)):
            shape[self.first + k] = extent(
                self,
                x.shape[self.first + k],
                self.kernel[k],
                self.strides[k],
                self.dilations[k],
                pair,
                self.ceil_mode,
            )
        return x.with_shape(shape)

    @property
    def first(self) -> int:
        """The first spatial axis."""
        return 1 if self.channels_last else 2

    def shape(self, x: te.Tensor) -> te.Shape:
        return Pool.infer(self, type_of(x)).shape

    def padded(self, x: te.Tensor, fill: Scalar) -> te.Tensor:
        """``x`` with all that its windows reach."""
        reached = pairs(self.pads)
        if self.ceil_mode:
            for k, out in enumerate(self.shape(x)[self.first : self.first + len(self.kernel)]):
                begin, end = reached[k]
                size = x.shape[self.first + k]
                last = n.mul(n.sub(out, 1), self.strides[k])
                needed = n.sub(n.add(last, reach(self.kernel[k], self.dilations[k])), size)
                needed = n.sub(needed, as_expr(begin))
                reached[k] = begin, plain(n.maximum(needed, as_expr(end)))
        return pad(x, self.first, reached, fill)

    def at(self, out: tuple[Expr, ...], taps: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The element of the padded input at a tap of the window of an output."""
        index = list(out)
        for k, tap in enumerate(taps):
            place = n.mul(out[self.first + k], self.strides[k])
            index[self.first + k] = n.add(place, n.mul(tap, self.dilations[k]))
        return tuple(index)

    def reduction(
        self,
        combiner: str,
        x: te.Tensor,
        padded: te.Tensor,
        element: Callable[[Expr], Expr],
    ) -> te.Tensor:
        """``element`` of the padded input, reduced over each window."""
        rank = x.rank
        return te.reduce(
            combiner,
            self.shape(x),
            self.kernel,
            lambda *i: element(padded[self.at(i[:rank], i[rank:])]),
            self.name,
        )

    def windows(self, x: Array, fill: Scalar) -> tuple[Array, Array]:
        """By numpy: the windows as [..., *kernel] and whether their elements are in the input."""
        rank = len(self.kernel)
        if self.channels_last:
            x = np.moveaxis(x, -1, 1)
        sizes, out, index = x.shape[2:], [], []
        for k, (begin, end) in enumerate(pairs(self.pads)):
            span = (self.kernel[k] - 1) * self.dilations[k] + 1
            begin, end = number(begin), number(end)
            steps, rest = divmod(sizes[k] + begin + end - span, self.strides[k])
            count = steps + 1
            if self.ceil_mode and rest and count * self.strides[k] < sizes[k] + begin:
                count += 1
            if self.ceil_mode:
                while (count - 1) * self.strides[k] >= sizes[k] + begin:
                    count -= 1
            out.append(count)
            places = np.arange(count)[:, None] * self.strides[k] - begin
            places = places + np.arange(self.kernel[k]) * self.dilations[k]
            shape = [1] * 2 * rank
            shape[k], shape[rank + k] = places.shape
            index.append(places.reshape(shape))
        inside: Array = np.ones(1, bool)
        for k in range(rank):
            inside = inside & (index[k] >= 0) & (index[k] < sizes[k])
        clipped = tuple(np.clip(i, 0, s - 1) for i, s in zip(index, sizes, strict=True))
        found = np.where(inside, x[(..., *clipped)], np.asarray(fill).astype(x.dtype))
        return found, inside

    def placed(self, y: Array) -> Array:
        """A channels-first result where the operator wants its channels."""
        return np.moveaxis(y, 1, -1) if self.channels_last else y

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls((2, 2), (2, 2), (1, 1), (0,) * 4), [f32(2, 3, 4, 6)]
        yield cls((3, 2), (2, 1), (1, 2), (1, 0, 1, 1)), [f32(1, 2, 5, 6)]
        yield cls((3, 3), (2, 2), (1, 1), (0, 1, 0, 1), True, True), [f32(1, 6, 6, 2)]
        yield cls((3,), (2,), (2,), (1, 0), True), [f32(1, 2, 8)]
        yield cls((2, 1, 2), (1, 2, 1), (1, 1, 1), (0, 0, 1, 0, 0, 0)), [f32(1, 1, 3, 4, 3)]
        yield cls((3,), (1,), (1,), (1, 1)), [f32(1, 2, 5).astype(np.float16)]


def _axes(count: int) -> tuple[int, ...]:
    return tuple(range(-count, 0))


@dataclass(frozen=True)
class MaxPool(Pool):
    """The greatest element of each window; NaN if there is one. Pads do not count.

    Shape: x [n, c, *s] -> [n, c, *t]; ``channels_last``: x [n, *s, c] -> [n, *t, c].
    Errors: TypeCheckError if a window is larger than the padded input.
    Source: ONNX MaxPool-22.
    """

    name = "max_pool"
    kinds = "fiu"

    def compute(self, x: te.Tensor) -> te.Tensor:
        return self.reduction("max", x, self.padded(x, x.dtype.lowest), lambda e: e)

    def reference(self, x: Array) -> Array:
        low = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
        found, _ = self.windows(x, low)
        return self.placed(found.max(_axes(len(self.kernel))))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls((2,), (1,), (1,), (1, 0)), [ints(1, 2, 5, low=-9, dtype="int8")]


@dataclass(frozen=True)
class MaxPoolIndices(Pool):
    """The position in the whole input of the greatest element of each window, or the first of them.

    Positions count as in row-major order of [n, c, *s]; with ``storage_order`` 1 the spatial axes
    (only they) count in column-major order.

    Shape: x [n, c, *s] -> i64 [n, c, *t]; ``channels_last``: x [n, *s, c] -> i64 [n, *t, c].
    Errors: TypeCheckError if a window is larger than the padded input.
    Source: ONNX MaxPool-22, output Indices.
    """

    name = "max_pool_indices"
    kinds = "fiu"

    storage_order: int = 0

    def infer(self, x: TensorType) -> TensorType:
        return super().infer(x).with_dtype(I64)

    def compute(self, x: te.Tensor) -> te.Tensor:
        rank, low = x.rank, x.dtype.lowest
        padded = self.padded(x, low)
        best = self.reduction("max", x, padded, lambda e: e)
        sizes = x.shape[self.first : self.first + len(self.kernel)]
        begins = [as_expr(begin) for begin, _ in pairs(self.pads)]

        def candidate(*axes: Expr) -> Expr:
            out = axes[:rank]
            index = self.at(out, axes[rank:])
            value, inside, position = padded[index], [], as_expr(0)
            for k, size in enumerate(sizes):
                place = n.sub(index[self.first + k], begins[k])
                inside += [n.le(0, place), n.lt(place, size)]
                position = n.add(n.mul(position, size), place)
            chosen = n.eq(value, best[out])
            if x.dtype.is_float:
                chosen = n.any_of(chosen, Call("is_nan", (value,), BOOL))
            return n.select(n.all_of(*inside, chosen), position, FAR)

        found = te.reduce("min", best.shape, self.kernel, candidate, "position")

        def absolute(*out: Expr) -> Expr:
            batch, channel = out[0], out[-1] if self.channels_last else out[1]
            channels = x.shape[-1] if self.channels_last else x.shape[1]
            position = found[out]
            if self.storage_order:
                position = _column_major(position, sizes)
            image = n.add(n.mul(batch, channels), channel)
            return n.add(n.mul(image, n.product(sizes)), position)

        return te.compute(best.shape, absolute, self.name)

    def reference(self, x: Array) -> Array:
        low = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
        first = np.moveaxis(x, -1, 1) if self.channels_last else x
        sizes, rank = first.shape[2:], len(self.kernel)
        found, inside = self.windows(x, low)
        count = np.arange(int(np.prod(sizes)))
        positions = count.reshape(sizes)
        if self.storage_order:
            positions = np.transpose(count.reshape(sizes[::-1]))
        where = np.broadcast_to(positions, first.shape)
        if self.channels_last:
            where = np.moveaxis(where, 1, -1)
        numbers, _ = self.windows(where, FAR)
        merged = (*found.shape[:-rank], -1)
        inside = np.broadcast_to(inside, found.shape).reshape(merged)
        found, numbers = found.reshape(merged), numbers.reshape(merged)
        best = found.max(-1, keepdims=True)
        chosen = inside & ((found == best) | (found != found))
        pick = np.argmax(chosen, -1)[..., None]
        image = np.arange(first.shape[0] * first.shape[1]).reshape(*first.shape[:2], *[1] * rank)
        at = np.take_along_axis(numbers, pick, -1)[..., 0]
        return self.placed(at + image * int(np.prod(sizes)))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        ties = ints(2, 2, 5, 6, low=0, high=3, dtype="float32")
        yield cls((3, 3), (2, 2), (1, 1), (1,) * 4, True, False, 1), [ties]
        yield cls((3, 3), (1, 1), (1, 1), (1,) * 4, False, True, 1), [ties]


def _column_major(position: Expr, sizes: tuple[Expr, ...]) -> Expr:
    """A row-major position in an array of these sizes as the column-major one."""
    digits = []
    for size in reversed(sizes):
        digits.append(n.floormod(position, size))
        position = n.floordiv(position, size)
    out: Expr = as_expr(0)
    for digit, size in zip(digits, reversed(sizes), strict=True):
        out = n.add(n.mul(out, size), digit)
    return out


@dataclass(frozen=True)
class AveragePool(Pool):
    """The mean of each window's elements in the input, or with ``count_include_pad`` of pads too.

    Shape: x [n, c, *s] float -> [n, c, *t]; ``channels_last``: x [n, *s, c] -> [n, *t, c].
    Errors: TypeCheckError if a window is larger than the padded input.
    Source: ONNX AveragePool-22.
    """

    name = "average_pool"

    count_include_pad: bool = False

    def compute(self, x: te.Tensor) -> te.Tensor:
        acc = wide(x.dtype)
        total = self.reduction("sum", x, self.padded(x, 0.0), lambda e: n.cast(e, acc))
        sizes = x.shape[self.first : self.first + len(self.kernel)]

        def mean(*out: Expr) -> Expr:
            count: Expr = as_expr(1)
            for k, size in enumerate(sizes):
                count = n.mul(count, self._count(k, out[self.first + k], size))
            return n.cast(n.div(total[out], n.cast(count, acc)), x.dtype)

        return te.compute(total.shape, mean, "mean")

    def _count(self, axis: int, out: Expr, size: Expr) -> Expr:
        """The elements that count of a window along an axis."""
        kernel, dilation = self.kernel[axis], self.dilations[axis]
        begin, end = map(as_expr, pairs(self.pads)[axis])
        padless = not self.ceil_mode and (self.count_include_pad or is_zero(begin) and is_zero(end))
        if padless:
            return as_expr(kernel)
        place = n.mul(out, self.strides[axis])  # in the padded input
        if self.count_include_pad:
            limit = n.add(n.add(begin, size), end)
            least: Expr = as_expr(0)
        else:
            limit = n.add(begin, size)
            least = n.maximum(n.floordiv(plus(n.sub(begin, place), dilation - 1), dilation), 0)
        most = n.floordiv(plus(n.sub(limit, place), dilation - 1), dilation)
        return n.sub(n.minimum(most, kernel), least)

    def reference(self, x: Array) -> Array:
        found, inside = self.windows(wide_array(x), 0.0)
        if self.count_include_pad:
            sizes = x.shape[self.first : self.first + len(self.kernel)]
            padded = [
                size + number(b) + number(e)
                for size, (b, e) in zip(sizes, pairs(self.pads), strict=True)
            ]
            counted = AveragePool(
                self.kernel, self.strides, self.dilations, (0,) * len(self.pads), self.ceil_mode
            )
            inside = counted.windows(np.ones((1, 1, *padded)), 0.0)[1]
            inside = inside[tuple(slice(s) for s in found.shape[2:])]
        axes = _axes(len(self.kernel))
        with np.errstate(all="ignore"):
            mean = found.sum(axes) / inside.sum(axes)
        return self.placed(mean).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls((3, 2), (2, 1), (1, 2), (1, 0, 1, 1), False, False, True), [f32(1, 2, 5, 6)]
        yield cls((3, 3), (2, 2), (1, 1), (0, 1, 0, 1), True, True, True), [f32(1, 6, 6, 2)]
        yield cls((3,), (3,), (1,), (1, 2), True, False, True), [f32(1, 2, 9)]


@dataclass(frozen=True)
class LpPool(Pool):
    """The p-norm of each window: (sum of abs(x) ** p) ** (1 / p).

    Shape: x [n, c, *s] float -> [n, c, *t]; ``channels_last``: x [n, *s, c] -> [n, *t, c].
    Errors: TypeCheckError if a window is larger than the padded input, or p is less than 1.
    Source: ONNX LpPool-22.
    """

    name = "lp_pool"

    p: int = 2

    def infer(self, x: TensorType) -> TensorType:
        if self.p < 1:
            raise self.fail(f"p must be at least 1, not {self.p}")
        return super().infer(x)

    def compute(self, x: te.Tensor) -> te.Tensor:
        powers = self.padded(powers_of(x, self.p), 0.0)
        return root_of(self.reduction("sum", x, powers, lambda e: e), self.p, x)

    def reference(self, x: Array) -> Array:
        found, _ = self.windows(wide_array(x), 0.0)
        total = (np.abs(found) ** self.p).sum(_axes(len(self.kernel)))
        return self.placed(total ** (1 / self.p)).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls((2, 2), (2, 1), (1, 1), (1, 0, 0, 1), p=1), [f32(1, 2, 5, 4)]
        yield cls((3,), (1,), (1,), (0, 0), p=3), [f32(1, 2, 5)]


def powers_of(x: te.Tensor, p: int) -> te.Tensor:
    """abs(x) ** p, in the dtype to accumulate in."""
    acc = wide(x.dtype)

    def element(*i: Expr) -> Expr:
        value = n.cast(x[i], acc)
        if p == 2:
            return n.mul(value, value)
        value = Call("abs", (value,), acc)
        return value if p == 1 else Call("pow", (value, n.const(p, acc)), acc)

    return te.compute(x.shape, element, "powers")


def root_of(total: te.Tensor, p: int, x: te.Tensor) -> te.Tensor:
    """total ** (1 / p), in the dtype of ``x``."""
    acc = total.dtype
    if p == 1:
        return narrowed(total, x.dtype)

    def element(*i: Expr) -> Expr:
        if p == 2:
            return n.cast(Call("sqrt", (total[i],), acc), x.dtype)
        return n.cast(Call("pow", (total[i], n.const(1 / p, acc)), acc), x.dtype)

    return te.compute(total.shape, element, "root")
