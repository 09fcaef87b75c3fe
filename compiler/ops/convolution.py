"""Convolutions and transposed convolutions over any number of spatial axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import I32, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op
from .sampling import f32, ints
from .windows import (
    Dim,
    check_geometry,
    extent,
    narrowed,
    number,
    pad,
    padded_array,
    pairs,
    plus,
    trailing,
    type_of,
    wide,
    wide_array,
)  # fmt: skip


def _same_channels(op: Op, channels: Expr, expected: Expr, groups: int) -> None:
    fits = n.eq(channels, expected)
    if isinstance(fits, Const) and not fits.value:
        raise op.fail(f"x has {channels} channels, the weights take {expected} (groups: {groups})")
    assume(fits)


def _divides(op: Op, groups: int, channels: Expr, what: str) -> None:
    if groups < 1:
        raise op.fail(f"groups must be at least 1, not {groups}")
    fits = n.eq(n.floormod(channels, groups), 0)
    if isinstance(fits, Const) and not fits.value:
        raise op.fail(f"{channels} {what} do not divide into {groups} groups")
    assume(fits)


def _check_operands(
    op: Op, x: TensorType, w: TensorType, b: TensorType | None, out: DType | None = None
) -> None:
    if x.dtype.kind not in "fiu":
        raise op.fail(f"is not defined for {x.dtype}")
    if x.rank < 3 or w.rank != x.rank:
        raise op.fail(f"x {x} and weights {w} must have one rank, at least 3")
    for other, dtype in ((w, x.dtype), (b, out or x.dtype)):
        if other is not None and other.dtype is not dtype:
            raise op.fail(f"operands are {dtype} and {other.dtype}", hint="cast one of them")


def _check_bias(op: Op, b: TensorType | None, channels: Expr) -> None:
    if b is None:
        return
    fits = n.eq(b.shape[0], channels) if b.rank == 1 else n.FALSE
    if isinstance(fits, Const) and not fits.value:
        raise op.fail(f"the bias is {b}, for {channels} output channels")
    assume(fits)


def _with_bias(acc: te.Tensor, b: te.Tensor | None, channel: int, dtype: DType) -> te.Tensor:
    """Add the bias in the accumulator's precision, then round to ``dtype``."""
    if b is None:
        return narrowed(acc, dtype)
    return te.compute(
        acc.shape,
        lambda *i: n.cast(n.add(acc[i], n.cast(b[i[channel]], acc.dtype)), dtype),
        "biased",
    )


@dataclass(frozen=True)
class Conv(Op):
    """Cross-correlation of the spatial axes with a kernel for each output channel, plus a bias.

    ``result`` is the dtype of the sums and of b, if not the operands': narrow integers add up in a
    wide one.

    Shape: x [n, c, *s], w [oc, c/groups, *k], b [oc] or none -> [n, oc, *t], with
    t = (s + pads - dilation * (k - 1) - 1) // stride + 1; ``channels_last``: x [n, *s, c],
    w [*k, c/groups, oc] -> [n, *t, oc].
    Errors: TypeCheckError if channels do not fit, or the kernel is larger than the padded input.
    Source: ONNX Conv-22, ConvInteger-10.
    """

    name = "conv"

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]  # begins, then ends
    groups: int = 1
    channels_last: bool = False
    result: DType | None = None

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        _check_operands(self, x, w, b, self.result)
        rank = x.rank - 2
        check_geometry(self, rank, strides=self.strides, dilations=self.dilations, pads=self.pads)
        if self.channels_last:
            sizes, c, kernel, ic, oc = x.shape[1:-1], x.shape[-1], w.shape[:-2], *w.shape[-2:]
        else:
            sizes, c, kernel, oc, ic = x.shape[2:], x.shape[1], w.shape[2:], *w.shape[:2]
        _divides(self, self.groups, oc, "output channels")
        _same_channels(self, c, n.mul(ic, self.groups), self.groups)
        _check_bias(self, b, oc)
        out = [
            extent(self, size, k, stride, dilation, pair)
            for size, k, stride, dilation, pair in zip(
                sizes, kernel, self.strides, self.dilations, pairs(self.pads), strict=True
            )
        ]
        shape = (x.shape[0], *out, oc) if self.channels_last else (x.shape[0], oc, *out)
        return TensorType(self.result or x.dtype, shape)

    def compute(self, x: te.Tensor, w: te.Tensor, b: te.Tensor | None = None) -> te.Tensor:
        rank = x.rank - 2
        type = self.infer(type_of(x), type_of(w))
        shape, acc = type.shape, wide(type.dtype)
        if self.channels_last:
            kernel, ic, oc = w.shape[:-2], *w.shape[-2:]
        else:
            kernel, oc, ic = w.shape[2:], *w.shape[:2]
        one = self.groups > 1 and isinstance(ic, Const) and ic.value == 1
        depthwise = one and isinstance(oc, Const) and oc.value == self.groups
        padded = pad(x, 1 if self.channels_last else 2, pairs(self.pads), 0)

        def element(*axes: Expr) -> Expr:
            out, taps = axes[: rank + 2], axes[rank + 2 : 2 * rank + 2]
            channel = out[-1] if self.channels_last else out[1]
            spatial = out[1:-1] if self.channels_last else out[2:]
            at = tuple(
                n.add(n.mul(o, s), n.mul(k, d))
                for o, s, k, d in zip(spatial, self.strides, taps, self.dilations, strict=True)
            )
            if depthwise:
                r, c = as_expr(0), channel
            else:
                r = axes[-1]
                group = n.floordiv(channel, n.floordiv(oc, self.groups))
                c = r if self.groups == 1 else n.add(n.mul(group, ic), r)
            if self.channels_last:
                left, right = padded[(out[0], *at, c)], w[(*taps, r, channel)]
            else:
                left, right = padded[(out[0], c, *at)], w[(channel, r, *taps)]
            return n.mul(n.cast(left, acc), n.cast(right, acc))

        over = kernel if depthwise else (*kernel, ic)
        total = te.reduce("sum", shape, over, element, self.name)
        return _with_bias(total, b, rank + 1 if self.channels_last else 1, type.dtype)

    def reference(self, x: Array, w: Array, b: Array | None = None) -> Array:
        rank = x.ndim - 2
        if self.result is not None:
            x, w = x.astype(self.result.numpy), w.astype(self.result.numpy)
        dtype = x.dtype
        x, w = wide_array(x), wide_array(w)
        if self.channels_last:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
        x = padded_array(x, 2, pairs(self.pads), 0)
        kernel = w.shape[2:]
        out = [
            (x.shape[2 + k] - self.dilations[k] * (kernel[k] - 1) - 1) // self.strides[k] + 1
            for k in range(rank)
        ]
        g = self.groups
        grouped_x = x.reshape(x.shape[0], g, x.shape[1] // g, *x.shape[2:])
        grouped_w = w.reshape(g, w.shape[0] // g, *w.shape[1:])
        y = np.zeros((x.shape[0], g, w.shape[0] // g, *out), x.dtype)
        for tap in itertools.product(*map(range, kernel)):
            slices = zip(tap, self.dilations, self.strides, out, strict=True)
            where = [slice(t * d, t * d + s * (o - 1) + 1, s) for t, d, s, o in slices]
            window, weights = trailing(grouped_x, where), trailing(grouped_w, tap)
            y += np.einsum("ngc...,gmc->ngm...", window, weights)
        y = y.reshape(x.shape[0], w.shape[0], *out)
        if b is not None:
            y += b.astype(y.dtype).reshape(-1, *[1] * rank)
        return (np.moveaxis(y, 1, -1) if self.channels_last else y).astype(dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls((1, 1), (1, 1), (1, 1, 1, 1)), [f32(2, 3, 5, 6), f32(4, 3, 3, 3), f32(4)]
        yield cls((2, 1), (1, 2), (0, 1, 2, 0)), [f32(1, 2, 7, 6), f32(3, 2, 3, 2), None]
        yield (
            cls((1, 2), (1, 1), (1, 0, 0, 1), 2, True),
            [f32(1, 5, 6, 4), f32(2, 3, 2, 6), f32(6)],
        )
        yield cls((1, 1), (1, 1), (1, 1, 1, 1), 4), [f32(1, 4, 5, 5), f32(4, 1, 3, 3), f32(4)]
        yield cls((2, 2), (1, 1), (1, 1, 1, 1), 3, True), [f32(2, 5, 5, 3), f32(3, 3, 1, 6), None]
        yield cls((2,), (3,), (2, 1)), [f32(2, 2, 9), f32(3, 2, 3), f32(3)]
        yield (
            cls((1, 2, 1), (1, 1, 1), (0, 1, 0, 0, 0, 1)),
            [f32(1, 2, 3, 4, 3), f32(2, 2, 2, 2, 2)],
        )
        half = np.float16
        yield (
            cls((1,), (1,), (1, 1)),
            [f32(1, 3, 6).astype(half), f32(2, 3, 3).astype(half), f32(2).astype(half)],
        )
        x, w = (ints(*k, low=-128, high=128, dtype="int8") for k in ((1, 3, 5, 6), (4, 3, 3, 3)))
        yield cls((1, 1), (1, 1), (1, 1, 1, 1), result=I32), [x, w, ints(4, dtype="int32")]
        x, w = (ints(*k, low=-255, high=256, dtype="int16") for k in ((1, 5, 5, 4), (3, 3, 1, 4)))
        yield cls((1, 1), (1, 1), (1, 1, 1, 1), 4, True, I32), [x, w, None]


@dataclass(frozen=True)
class _Taps:
    """Which weights and inputs an output sees along one axis of a transposed convolution.

    For ``j < count`` output ``o`` sees tap ``first(o) + step * j`` at input ``base(o) - j * hop``,
    if ``(o + begin) % common == 0``; taps from ``kernel`` on are not there.
    """

    kernel: int
    stride: int
    dilation: int
    begin: Dim

    @property
    def common(self) -> int:
        return math.gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        return self.stride // self.common

    @property
    def hop(self) -> int:
        return self.dilation // self.common

    @property
    def count(self) -> int:
        return -(-self.kernel // self.step)

    @property
    def exact(self) -> bool:
        """Whether every output sees ``count`` taps."""
        return self.kernel % self.step == 0

    def shifted(self, o: Expr) -> Expr:
        return n.floordiv(n.add(o, as_expr(self.begin)), self.common)

    def first(self, o: Expr) -> Expr:
        inverse = pow(self.hop, -1, self.step) if self.step > 1 else 0
        return n.floormod(n.mul(self.shifted(o), inverse), self.step) if inverse else as_expr(0)

    def base(self, o: Expr) -> Expr:
        shifted = self.shifted(o)
        if self.hop == 1:
            return n.floordiv(shifted, self.step)
        return n.floordiv(n.sub(shifted, n.mul(self.first(o), self.hop)), self.step)

    def hits(self, o: Expr) -> Expr:
        return n.eq(n.floormod(n.add(o, as_expr(self.begin)), self.common), 0)

    def reads(self, size: Expr, out: Expr) -> tuple[Dim, Dim]:
        """How far before and behind the input the taps read."""
        back = (self.count - 1) * self.hop
        if self.hop > 1 and self.step > 1:
            back += self.hop  # of the first tap
        before: Dim = back
        if isinstance(self.begin, int):
            before = max(0, back - self.begin // self.stride)
        last = n.floordiv(plus(n.add(out, as_expr(self.begin)), -1), self.stride)
        behind = n.maximum(n.sub(last, plus(size, -1)), 0)
        return before, int(behind.value) if isinstance(behind, Const) else behind


@dataclass(frozen=True)
class ConvTranspose(Op):
    """The transpose of a strided convolution: inputs add their kernels to the output; plus a bias.

    Shape: x [n, c, *s], w [c, oc/groups, *k], b [oc] or none -> [n, oc, *t], with
    t = (s - 1) * stride + dilation * (k - 1) + 1 + output_padding - pads; ``channels_last``:
    x [n, *s, c], w [*k, c, oc/groups] -> [n, *t, oc].
    Errors: TypeCheckError if channels do not fit, or nothing is left between the pads.
    Source: ONNX ConvTranspose-22. Computed by output element, so that no element is written twice.
    """

    name = "conv_transpose"

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]  # begins, then ends: cut from the output, added where negative
    output_padding: tuple[Dim, ...]  # added behind the output
    groups: int = 1
    channels_last: bool = False

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        _check_operands(self, x, w, b)
        rank = x.rank - 2
        check_geometry(
            self,
            rank,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            output_padding=self.output_padding,
        )
        if self.channels_last:
            sizes, c, kernel, ic, oc = x.shape[1:-1], x.shape[-1], w.shape[:-2], *w.shape[-2:]
        else:
            sizes, c, kernel, ic, oc = x.shape[2:], x.shape[1], w.shape[2:], *w.shape[:2]
        _divides(self, self.groups, ic, "input channels")
        _same_channels(self, c, ic, self.groups)
        oc = n.mul(oc, self.groups)
        _check_bias(self, b, oc)
        out = [
            self._extent(k, size, taps)
            for k, (size, taps) in enumerate(zip(sizes, kernel, strict=True))
        ]
        shape = (x.shape[0], *out, oc) if self.channels_last else (x.shape[0], oc, *out)
        return x.with_shape(shape)

    def _extent(self, axis: int, size: Expr, kernel: Expr) -> Expr:
        if not isinstance(kernel, Const):
            raise self.fail(f"the kernel's extents must be known, not {kernel}")
        rank = len(self.strides)
        if kernel.value < 1:
            raise self.fail(f"the kernel has the extent {kernel} along axis {axis}")
        span = (int(kernel.value) - 1) * self.dilations[axis] + 1
        rest = n.sub(
            n.add(as_expr(self.output_padding[axis]), span - self.strides[axis]),
            n.add(as_expr(self.pads[axis]), as_expr(self.pads[axis + rank])),
        )
        out = n.add(n.mul(size, self.strides[axis]), rest)
        fits = n.le(1, out)
        if isinstance(fits, Const) and not fits.value:
            raise self.fail(f"nothing is left of axis {axis}: its extent would be {out}")
        assume(fits)
        return out

    def compute(self, x: te.Tensor, w: te.Tensor, b: te.Tensor | None = None) -> te.Tensor:
        rank = x.rank - 2
        shape = self.infer(type_of(x), type_of(w)).shape
        first = 1 if self.channels_last else 2
        kernel = w.shape[:-2] if self.channels_last else w.shape[2:]
        ic, oc = w.shape[-2:] if self.channels_last else w.shape[:2]
        per_group = n.floordiv(ic, self.groups)
        taps = [
            _Taps(number(k), s, d, p)
            for k, s, d, p in zip(
                kernel, self.strides, self.dilations, self.pads[:rank], strict=True
            )
        ]
        reads = [t.reads(x.shape[first + k], shape[first + k]) for k, t in enumerate(taps)]
        padded = pad(x, first, reads, 0)
        looped = [k for k, t in enumerate(taps) if t.count > 1]
        acc = wide(x.dtype)

        def element(*axes: Expr) -> Expr:
            out, steps, r = axes[: rank + 2], axes[rank + 2 : -1], axes[-1]
            channel = out[-1] if self.channels_last else out[1]
            at: list[Expr] = []
            weight: list[Expr] = []
            there = []
            for k, t in enumerate(taps):
                # Counted from the last tap, so that a further step reads a further input.
                o, last = out[first + k], t.count - 1
                j = steps[looped.index(k)] if last else as_expr(0)
                start = plus(t.base(o), n.sub(as_expr(reads[k][0]), last * t.hop))
                at.append(n.add(start, n.mul(j, t.hop)))
                weight.append(n.sub(plus(t.first(o), last * t.step), n.mul(j, t.step)))
                if not t.exact:
                    there.append(n.lt(weight[-1], t.kernel))
            group = n.floordiv(channel, oc)
            c = r if self.groups == 1 else n.add(n.mul(group, per_group), r)
            m = channel if self.groups == 1 else n.floormod(channel, oc)
            if self.channels_last:
                left, right = padded[(out[0], *at, c)], w[(*weight, c, m)]
            else:
                left, right = padded[(out[0], c, *at)], w[(c, m, *weight)]
            value = n.mul(n.cast(left, acc), n.cast(right, acc))
            return n.select(n.all_of(*there), value, n.const(0, acc))

        over = (*(as_expr(taps[k].count) for k in looped), per_group)
        total = te.reduce("sum", shape, over, element, self.name)
        if any(t.common > 1 for t in taps):
            total = self._holes(total, taps, first)
        return _with_bias(total, b, rank + 1 if self.channels_last else 1, x.dtype)

    def _holes(self, total: te.Tensor, taps: list[_Taps], first: int) -> te.Tensor:
        """``total`` where some tap meets an input, 0 elsewhere."""

        def element(*i: Expr) -> Expr:
            hits = n.all_of(*(t.hits(i[first + k]) for k, t in enumerate(taps)))
            return n.select(hits, total[i], n.const(0, total.dtype))

        return te.compute(total.shape, element, "with_holes")

    def reference(self, x: Array, w: Array, b: Array | None = None) -> Array:
        rank = x.ndim - 2
        dtype = x.dtype
        x, w = wide_array(x), wide_array(w)
        if self.channels_last:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-2, -1), (0, 1))
        kernel, sizes, g = w.shape[2:], x.shape[2:], self.groups
        full = [
            (sizes[k] - 1) * self.strides[k] + (kernel[k] - 1) * self.dilations[k] + 1
            for k in range(rank)
        ]
        oc = w.shape[1] * g
        grouped_x = x.reshape(x.shape[0], g, x.shape[1] // g, *sizes)
        grouped_w = w.reshape(g, w.shape[0] // g, *w.shape[1:])
        extra = [number(p) for p in self.output_padding]
        y = np.zeros(
            (x.shape[0], g, w.shape[1], *(f + e for f, e in zip(full, extra, strict=True))), x.dtype
        )
        for tap in itertools.product(*map(range, kernel)):
            where = tuple(
                slice(t * d, t * d + s * (size - 1) + 1, s)
                for t, d, s, size in zip(tap, self.dilations, self.strides, sizes, strict=True)
            )
            target = trailing(y, where)
            target += np.einsum("ngc...,gcm->ngm...", grouped_x, trailing(grouped_w, tap))
        y = y.reshape(x.shape[0], oc, *y.shape[3:])
        cut = [(-number(begin), -number(end)) for begin, end in pairs(self.pads)]
        y = padded_array(y, 2, cut, 0)
        if b is not None:
            y = y + b.astype(y.dtype).reshape(-1, *[1] * rank)
        return (np.moveaxis(y, 1, -1) if self.channels_last else y).astype(dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        none, ones, twos = (0, 0), (1, 1), (2, 2)
        yield cls(twos, ones, (0,) * 4, none), [f32(1, 3, 3, 4), f32(3, 2, 2, 2), f32(2)]
        yield (
            cls(twos, ones, (0,) * 4, none, 1, True),
            [f32(2, 3, 2, 3), f32(2, 2, 3, 4), f32(4)],
        )
        yield cls(twos, ones, (1,) * 4, (1, 0)), [f32(1, 2, 3, 4), f32(2, 3, 3, 3), None]
        yield cls(ones, ones, (1, 0, 0, 1), none), [f32(1, 2, 4, 4), f32(2, 3, 3, 2), f32(3)]
        yield (
            cls((3, 2), (2, 3), (1, 2, 0, 1), (2, 0), 2, True),
            [f32(1, 3, 4, 4), f32(2, 3, 4, 3), f32(6)],
        )
        yield cls((2,), (2,), (1, 1), (1,)), [f32(2, 2, 4), f32(2, 3, 3), f32(3)]
        yield cls((4,), (2,), (3, 0), (1,)), [f32(1, 2, 3), f32(2, 1, 5), None]
        yield cls((2,), (1,), (-1, -2), (0,)), [f32(1, 2, 3), f32(2, 1, 3), None]
        yield cls((3,), (1,), (0, 0), (2,), 3), [f32(1, 3, 4), f32(3, 1, 2), f32(3)]
