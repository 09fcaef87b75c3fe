"""Reductions along axes: sums, extremes, norms and where extremes are.

f16 and bf16 are accumulated in f32. Integers accumulate in their own dtype and wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BF16, BOOL, F64, I64, U8, DType, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op
from .elementwise import call, wide, widened
from .sampling import bools, extremes, f32, ints
from .unary import absolute


def reduce_over(
    combiner: str,
    axes: Sequence[int],
    shape: tuple[Expr, ...],
    element: Callable[..., Expr],
    keepdims: bool = True,
    name: str = "t",
) -> te.Tensor:
    """The reduction over ``axes`` of ``element(*index)``, an index into ``shape``.

    Reduced axes stay as extents of 1, or go. Over no axes it is the element itself.
    """
    kept = [k for k in range(len(shape)) if k not in axes]
    one = Const(1, I64)
    if keepdims:
        out = tuple(one if k in axes else d for k, d in enumerate(shape))
        places = {k: k for k in kept}
    else:
        out = tuple(shape[k] for k in kept)
        places = {k: p for p, k in enumerate(kept)}

    def body(*i: Expr) -> Expr:
        index = [i[places[k]] if k in places else one for k in range(len(shape))]
        for position, axis in enumerate(axes):
            index[axis] = i[len(out) + position]
        return element(*index)

    if not axes:
        return te.compute(out, body, name)
    return te.reduce(combiner, out, [shape[k] for k in axes], body, name)


def count(shape: Sequence[Expr], axes: Sequence[int], dtype: DType) -> Expr:
    """The number of elements along ``axes``, in ``dtype``."""
    return n.cast(n.product(shape[k] for k in axes), dtype)


@dataclass(frozen=True)
class _Reduce(Op):
    kinds: ClassVar[str] = "fiu"
    combiner: ClassVar[str] = "sum"

    axes: tuple[int, ...] | None = None  # None: all of them
    keepdims: bool = True

    def before(self, x: Expr) -> Expr:
        """What is reduced, of an element in the dtype that accumulates."""
        return x

    def after(self, y: Expr, size: Expr) -> Expr:
        """The result, of the reduction of ``size`` (an ``i64``) elements."""
        return y

    def accumulator(self, dtype: DType) -> DType:
        return wide(dtype)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        """The result by numpy, for an array in the dtype to compute in."""
        raise NotImplementedError

    def over(self, rank: int) -> tuple[int, ...]:
        """The axes counted from the front, in order."""
        if self.axes is None:
            return tuple(range(rank))
        return tuple(sorted({self.resolve_axis(k, rank) for k in self.axes}))

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in self.kinds:
            raise self.fail(f"is not defined for {x.dtype}")
        axes = self.over(x.rank)
        if self.axes is not None and len(axes) != len(self.axes):
            raise self.fail(f"axes {self.axes} name one twice")
        if self.keepdims:
            return x.with_shape(1 if k in axes else d for k, d in enumerate(x.shape))
        return x.with_shape(d for k, d in enumerate(x.shape) if k not in axes)

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        inner = self.accumulator(x.dtype)
        total = reduce_over(
            self.combiner,
            axes,
            x.shape,
            lambda *i: self.before(n.cast(x[i], inner)),
            self.keepdims,
            self.name,
        )
        size = n.product(x.shape[k] for k in axes)
        probe = n.Var("probe", total.dtype)
        if self.after(probe, size) is probe and total.dtype is x.dtype:
            return total
        return te.compute(
            total.shape, lambda *i: n.cast(self.after(total[i], size), x.dtype), self.name
        )

    def reference(self, x: Array) -> Array:
        axes = self.over(x.ndim)
        return converted(self.values(widened(x), axes), from_numpy(x.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5)]
        yield cls((1,), False), [f32(2, 3, 4)]
        yield cls((0, -1)), [f32(2, 3, 4)]
        yield cls((1, 0), False), [f32(2, 3, 4).astype(np.float64)]
        yield cls(()), [f32(4, low=0.5)]
        yield cls(), [f32()]
        yield cls((-1,)), [f32(2, 40).astype(np.float16)]
        yield cls((-1,)), [f32(2, 40).astype(BF16.numpy)]
        yield cls((1,)), [f32(3, 0)]
        yield cls((0,)), [f32(3, 0)]
        rows = np.array(
            [[np.nan, 1, 2], [np.inf, 1, 3], [-np.inf, 1, 2], [-np.inf, np.inf, 0], [-0.0, -0.0, 0]]
        ).astype(np.float32)
        yield cls((1,)), [rows]
        for dtype in ("int32", "int64", "uint8"):
            if np.dtype(dtype).kind in cls.kinds:
                yield cls((0,)), [ints(3, 4, low=1, high=5, dtype=dtype)]
        if "b" in cls.kinds:
            yield cls((1,)), [bools(3, 4)]
            yield cls(keepdims=False), [bools(3, 4)]


@dataclass(frozen=True)
class ReduceSum(_Reduce):
    """The sum along axes; 0 of nothing.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceSum-13.
    """

    name = "reduce_sum"

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.sum(x, axis=axes, keepdims=self.keepdims, dtype=x.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls(), [extremes("int32")]
        yield cls(), [extremes("uint8")]


@dataclass(frozen=True)
class ReduceMean(_Reduce):
    """The mean along axes; integers truncate; NaN of no floats, 0 of no integers.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceMean-18.
    """

    name = "reduce_mean"

    def after(self, y: Expr, size: Expr) -> Expr:
        if isinstance(size, Const) and size.value == 1:
            return y
        if y.dtype.is_float:
            return y / n.cast(size, y.dtype)
        # The count may exceed the dtype (300 bytes): divide in 64 bits.
        t = y.dtype if y.dtype.bits == 64 else I64
        return n.cast(n.div(n.cast(y, t), n.cast(n.maximum(size, 1), t)), y.dtype)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        total = np.sum(x, axis=axes, keepdims=self.keepdims, dtype=x.dtype)
        size = int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
        if x.dtype.kind == "f":
            return np.asarray(np.divide(total, x.dtype.type(size)))
        # Of the least int64 alone the absolute value is right only as a uint64.
        magnitude = np.abs(total.astype(np.int64)) if x.dtype.kind == "i" else total
        quotient = (magnitude.astype(np.uint64) // max(size, 1)).astype(np.int64)
        return np.asarray(np.where(total < 0, -quotient, quotient))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls(), [np.full(33, -(2**31), np.int32)]
        yield cls(), [np.full(33, -(2**63), np.int64)]


@dataclass(frozen=True)
class ReduceMax(_Reduce):
    """The greatest along axes; NaN if there is one; of nothing, the least value there is.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceMax-20.
    """

    name = "reduce_max"
    kinds = "fiub"
    combiner = "max"

    def accumulator(self, dtype: DType) -> DType:
        return U8 if dtype is BOOL else wide(dtype)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.max(x, axis=axes, keepdims=self.keepdims, initial=_least(x.dtype)))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls(), [extremes("int64")]
        yield cls(), [-f32(5, low=1.0)]


@dataclass(frozen=True)
class ReduceMin(_Reduce):
    """The least along axes; NaN if there is one; of nothing, the greatest value there is.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceMin-20.
    """

    name = "reduce_min"
    kinds = "fiub"
    combiner = "min"

    def accumulator(self, dtype: DType) -> DType:
        return U8 if dtype is BOOL else wide(dtype)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.min(x, axis=axes, keepdims=self.keepdims, initial=_greatest(x.dtype)))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls(), [extremes("int64")]
        yield cls(), [f32(5, low=1.0)]


def _least(dtype: np.dtype[Any]) -> float | int | bool:
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def _greatest(dtype: np.dtype[Any]) -> float | int | bool:
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else np.inf


@dataclass(frozen=True)
class ReduceProd(_Reduce):
    """The product along axes; 1 of nothing.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceProd-18.
    """

    name = "reduce_prod"
    combiner = "prod"

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.prod(x, axis=axes, keepdims=self.keepdims, dtype=x.dtype))


@dataclass(frozen=True)
class ReduceL1(_Reduce):
    """The sum of absolute values along axes.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceL1-18.
    """

    name = "reduce_l1"

    def before(self, x: Expr) -> Expr:
        return absolute(x)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.sum(np.abs(x), axis=axes, keepdims=self.keepdims, dtype=x.dtype))


@dataclass(frozen=True)
class ReduceL2(_Reduce):
    """The square root of the sum of squares along axes; integers truncate.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceL2-18.
    """

    name = "reduce_l2"

    def before(self, x: Expr) -> Expr:
        return x * x

    def after(self, y: Expr, size: Expr) -> Expr:
        return call("sqrt", y) if y.dtype.is_float else call("sqrt", n.cast(y, F64))

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        total = np.sum(x * x, axis=axes, keepdims=self.keepdims, dtype=x.dtype)
        return np.asarray(np.sqrt(total.astype(np.float64)))


@dataclass(frozen=True)
class ReduceSumSquare(_Reduce):
    """The sum of squares along axes.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceSumSquare-18.
    """

    name = "reduce_sum_square"

    def before(self, x: Expr) -> Expr:
        return x * x

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.sum(x * x, axis=axes, keepdims=self.keepdims, dtype=x.dtype))


@dataclass(frozen=True)
class ReduceLogSum(_Reduce):
    """The logarithm of the sum along axes; minus infinity of nothing; integers truncate.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceLogSum-28.
    """

    name = "reduce_log_sum"

    def accumulator(self, dtype: DType) -> DType:
        return wide(dtype) if dtype.is_float else F64

    def after(self, y: Expr, size: Expr) -> Expr:
        return call("log", y)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.log(np.sum(x, axis=axes, keepdims=self.keepdims, dtype=np.float64)))


@dataclass(frozen=True)
class ReduceLogSumExp(_Reduce):
    """log(sum(exp(x))) along axes, without overflow; minus infinity of nothing; integers truncate.

    Shape: x [...] -> the same with 1 for the axes, or without them.
    Source: ONNX ReduceLogSumExp-28.
    """

    name = "reduce_log_sum_exp"

    def compute(self, x: te.Tensor) -> te.Tensor:
        axes = self.over(x.rank)
        inner = wide(x.dtype) if x.dtype.is_float else F64
        top = reduce_over("max", axes, x.shape, lambda *i: n.cast(x[i], inner), True, "top")

        def lowered(*i: Expr) -> Expr:
            # The greatest element counts 1, even where it is infinite.
            peak = top[tuple(Const(0, I64) if k in axes else v for k, v in enumerate(i))]
            value = n.cast(x[i], inner)
            return n.select(n.eq(value, peak), 1.0, call("exp_nonpositive", value - peak))

        terms = te.compute(x.shape, lowered, "terms")
        total = reduce_over("sum", axes, x.shape, lambda *i: terms[i], self.keepdims, self.name)

        def element(*i: Expr) -> Expr:
            rest = iter(i)
            zero = Const(0, I64)
            full = [zero if k in axes else next(rest) for k in range(x.rank)]
            place = i if self.keepdims else tuple(full)
            return n.cast(call("log", total[i]) + top[place], x.dtype)

        return te.compute(total.shape, element, self.name)

    def values(self, x: Array, axes: tuple[int, ...]) -> Array:
        wide = x.astype(np.float64)
        total = wide
        for axis in axes:
            total = np.logaddexp.reduce(total, axis=axis, keepdims=True)
        return np.asarray(total if self.keepdims else np.squeeze(total, axes))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield from super().samples()
        yield cls((-1,)), [f32(2, 5, low=80.0, high=88.0)]
        yield cls(), [extremes("int64")]


@dataclass(frozen=True)
class _Arg(Op):
    combiner: ClassVar[str] = "max"

    axis: int = 0
    keepdims: bool = True
    last: bool = False  # of equal ones, rather than the first

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype.kind not in "fiu":
            raise self.fail(f"is not defined for {x.dtype}")
        if x.rank == 0:
            raise self.fail("a scalar has no axis to look along")
        axis = self.resolve_axis(self.axis, x.rank)
        extent = x.shape[axis]
        if isinstance(extent, Const) and extent.value == 0:
            raise self.fail(f"there is nothing along axis {self.axis} of {x}")
        assume(n.le(1, extent))
        shape = list(x.shape)
        shape[axis : axis + 1] = [Const(1, I64)] if self.keepdims else []
        return TensorType(I64, tuple(shape))

    def compute(self, x: te.Tensor) -> te.Tensor:
        axis = self.resolve_axis(self.axis, x.rank)
        inner = wide(x.dtype)
        peak = reduce_over(
            self.combiner, (axis,), x.shape, lambda *i: n.cast(x[i], inner), True, "peak"
        )

        def place(*i: Expr) -> Expr:
            value = n.cast(x[i], inner)
            top = peak[tuple(Const(0, I64) if k == axis else v for k, v in enumerate(i))]
            found = n.eq(value, top)
            if inner.is_float:
                found = n.any_of(found, n.Call("is_nan", (value,), BOOL))
            return n.select(found, i[axis], -1 if self.last else x.shape[axis])

        combiner = "max" if self.last else "min"
        return reduce_over(combiner, (axis,), x.shape, place, self.keepdims, self.name)

    def best(self, x: Array, axis: int) -> Array:
        """The place of the first extreme by numpy."""
        raise NotImplementedError

    def reference(self, x: Array) -> Array:
        x = widened(x)
        if self.last:
            place = x.shape[self.axis] - 1 - self.best(np.flip(x, self.axis), self.axis)
        else:
            place = self.best(x, self.axis)
        out = np.expand_dims(place, self.axis) if self.keepdims else place
        return np.asarray(out).astype(np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5)]
        yield cls(-1, False), [f32(2, 3, 4)]
        ties = np.array([[1, 3, 3, -2, -2], [0, 0, 0, 0, 0], [-5, -5, 7, 7, 1]])
        nans = np.array([[1, np.nan, np.nan, 5], [np.nan, np.inf, 0, -1], [-np.inf] * 4], "f4")
        for last in (False, True):
            yield cls(1, True, last), [ties.astype(np.int32)]
            yield cls(1, False, last), [ties.astype(np.float16)]
            yield cls(1, False, last), [nans]
        yield cls(1), [nans.astype(BF16.numpy)]
        yield cls(0), [extremes("int64")]
        yield cls(0), [extremes("uint8")]
        yield cls(1), [f32(0, 3)]


@dataclass(frozen=True)
class ArgMax(_Arg):
    """Where the greatest along an axis is; NaN counts as the greatest.

    Shape: x [...] -> i64, the same with 1 for the axis, or without it.
    Errors: TypeCheckError if the axis is out of range or has no elements.
    Source: ONNX ArgMax-13; numpy.argmax for NaN.
    """

    name = "argmax"

    def best(self, x: Array, axis: int) -> Array:
        return np.asarray(np.argmax(x, axis))


@dataclass(frozen=True)
class ArgMin(_Arg):
    """Where the least along an axis is; NaN counts as the least.

    Shape: x [...] -> i64, the same with 1 for the axis, or without it.
    Errors: TypeCheckError if the axis is out of range or has no elements.
    Source: ONNX ArgMin-13; numpy.argmin for NaN.
    """

    name = "argmin"
    combiner = "min"

    def best(self, x: Array, axis: int) -> Array:
        return np.asarray(np.argmin(x, axis))
