"""Sampling at places that a tensor gives, and the grids of such places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BOOL, F32, F64, I64, DType, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop import te

from .base import Op, assume
from .interpolation import cubic_weight, linear_weight
from .sampling import f32, ints
from .shape import sizes
from .windows import narrowed, number, wide

PADDINGS: Final = ("zeros", "border", "reflection")
# How many elements along an axis a mode reads, and where the first is: 0 is just before the place.
_TAPS: Final = {"nearest": (1, 0), "linear": (2, 0), "cubic": (4, -1)}
_CUBIC: Final = -0.75
_FAR: Final = float(1 << 30)  # as a place: outside of every tensor, and an integer


def real(dtype: DType) -> DType:
    """The dtype to compute in with elements of a number's dtype."""
    exact = dtype is F64 or (dtype.is_int and dtype.bits > 32)
    return F64 if exact else F32


def floor(x: Expr) -> Expr:
    """The greatest whole number that is not above a float."""
    return Call("floor", (x,), x.dtype)


def near(place: Expr) -> Expr:
    """A place, one that is far away or no number as one just far enough to become an integer."""
    limit = n.const(_FAR, place.dtype)
    return n.select(n.lt(Call("abs", (place,), place.dtype), limit), place, n.neg(limit))


def some_elements(op: Op, extents: tuple[Expr, ...], out: tuple[Expr, ...]) -> None:
    """There must be something to read along each extent if the output has elements.

    Errors: TypeCheckError if there certainly is not; a condition is assumed otherwise.
    """
    for extent in extents:
        if not isinstance(extent, Const):
            assume(n.any_of(n.le(1, extent), *(n.eq(d, 0) for d in out)))
        elif extent.value == 0 and not any(n.eq(d, 0) is n.TRUE for d in out):
            raise op.fail("elements of a dimension of size 0 are asked for")


@dataclass(frozen=True)
class GridSample(Op):
    """The elements of x at the places of ``grid``, interpolated.

    A place is given in [-1, 1] along each axis, the last axis first: the centres of the first and
    last elements with ``align_corners``, their outer edges without. ``mode`` is nearest (halves to
    even), linear or cubic; ``padding`` says what is outside: zeros, the border's elements, or the
    tensor's reflection. Integers are computed as floats and truncated.

    Shape: x [n, c, *s], grid float [n, *t, d] for d axes s -> x's dtype [n, c, *t].
    Errors: TypeCheckError if ranks do not fit, or for a mode or a padding that does not exist.
    Source: ONNX GridSample-22.
    """

    name = "grid_sample"

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        if self.mode not in _TAPS:
            raise self.fail(f"there is no mode {self.mode}", hint=f"modes are {', '.join(_TAPS)}")
        if self.padding not in PADDINGS:
            raise self.fail(
                f"there is no padding {self.padding}", hint=f"paddings are {', '.join(PADDINGS)}"
            )
        if x.dtype is BOOL and self.mode != "nearest":
            raise self.fail(f"mode {self.mode} is not defined for {x.dtype}")
        if not grid.dtype.is_float:
            raise self.fail(f"the grid is {grid.dtype}, not float")
        rank = x.rank - 2
        if rank < 1 or grid.rank != x.rank:
            raise self.fail(f"x {x} and the grid {grid} do not fit together")
        unify(grid.shape[-1], as_expr(rank), "the length of the grid's places differs from x's")
        batch = unify(x.shape[0], grid.shape[0], "the batches differ")
        out = (batch, x.shape[1], *grid.shape[1:-1])
        some_elements(self, x.shape[2:], out)
        return x.with_shape(out)

    def compute(self, x: te.Tensor, grid: te.Tensor) -> te.Tensor:
        taps, _ = _TAPS[self.mode]
        rank, acc = x.rank - 2, real(x.dtype)
        shape = (x.shape[0], x.shape[1], *grid.shape[1:-1])
        tables = [self._along(grid, k, size, taps) for k, size in enumerate(x.shape[2:])]

        def element(*i: Expr) -> tuple[Expr, list[Expr], list[Expr]]:
            out, tap = i[: rank + 2], i[rank + 2 :]
            rows = [(out[0], *out[2:], t) for t in tap]
            places = [index[row] for (index, _), row in zip(tables, rows, strict=True)]
            weights = [weight[row] for (_, weight), row in zip(tables, rows, strict=True)]
            value = x[(*out[:2], *(n.maximum(p, 0) for p in places))]
            return value, places, weights

        if self.mode == "nearest":

            def nearest(*i: Expr) -> Expr:
                value, places, _ = element(*i, *(as_expr(0),) * rank)
                inside = n.all_of(*(n.le(0, p) for p in places))
                return n.select(inside, value, n.const(0, x.dtype))

            return te.compute(shape, nearest, self.name)

        def term(*i: Expr) -> Expr:
            value, places, weights = element(*i)
            factor = weights[0]
            for weight in weights[1:]:
                factor = n.mul(factor, weight)
            product = n.mul(n.cast(value, acc), n.cast(factor, acc))
            inside = n.all_of(*(n.le(0, p) for p in places))
            return n.select(inside, product, n.const(0, acc))

        total = te.reduce("sum", shape, (taps,) * rank, term, self.name)
        return narrowed(total, x.dtype)

    def _along(self, grid: te.Tensor, k: int, size: Expr, taps: int) -> tuple[te.Tensor, te.Tensor]:
        """Along axis ``k``: the elements to read (-1: there is none) and their weights."""
        acc, last = real(grid.dtype), grid.rank - 3 - k
        _, first = _TAPS[self.mode]

        def place(*i: Expr) -> Expr:
            return near(self._place(n.cast(grid[(*i, as_expr(last))], acc), n.cast(size, acc)))

        places = te.compute(grid.shape[:-1], place, "place")

        def index(*i: Expr) -> Expr:
            *at, tap = i
            base = n.cast(floor(places[tuple(at)]), I64)
            return self._padded(n.add(base, n.add(tap, first)), size)

        def weight(*i: Expr) -> Expr:
            *at, tap = i
            p = places[tuple(at)]
            distance = n.sub(n.sub(p, floor(p)), n.cast(n.add(tap, first), acc))
            distance = Call("abs", (distance,), acc)
            return (
                cubic_weight(distance, _CUBIC) if self.mode == "cubic" else linear_weight(distance)
            )

        shape = (*grid.shape[:-1], as_expr(taps))
        return te.compute(shape, index, "index"), te.compute(shape, weight, "weight")

    def _place(self, x: Expr, size: Expr) -> Expr:
        """The coordinate in elements of one in [-1, 1], brought into the tensor as padding says."""
        one, two = n.const(1, x.dtype), n.const(2, x.dtype)
        last = n.sub(size, one)
        if self.align_corners:
            low: Expr = n.const(0, x.dtype)
            high: Expr = last
            place = n.mul(n.div(n.add(x, one), two), last)
        else:
            half = n.const(0.5, x.dtype)
            low, high = n.neg(half), n.sub(size, half)
            place = n.div(n.sub(n.mul(n.add(x, one), size), one), two)
        if self.mode == "nearest":
            place = Call("round_even", (place,), x.dtype)
        below, above = n.lt(place, low), n.lt(high, place)
        if self.padding == "border":  # only taps are moved, so the cubic may lie between them
            margin = n.const(2 if self.mode == "cubic" else 0, x.dtype)
            return n.minimum(n.maximum(place, n.neg(margin)), n.add(last, margin))
        if self.padding == "reflection":
            reach = n.sub(high, low)
            beyond = n.select(below, n.sub(low, place), n.sub(place, high))
            turns = Call("trunc", (n.div(beyond, reach),), x.dtype)
            rest = n.sub(beyond, n.mul(turns, reach))
            odd = n.sub(turns, n.mul(two, floor(n.div(turns, two))))
            from_low = n.ne(below, n.ne(odd, n.const(0, x.dtype)))
            reflected = n.select(from_low, n.add(low, rest), n.sub(high, rest))
            return n.select(n.any_of(below, above), reflected, place)
        return place

    def _padded(self, index: Expr, size: Expr) -> Expr:
        """The element that stands for the one of an index outside, -1 for none."""
        last = n.sub(size, 1)
        match self.padding:
            case "zeros":
                return n.select(n.all_of(n.le(0, index), n.lt(index, size)), index, -1)
            case "border":
                return n.maximum(0, n.minimum(index, last))
            case _:
                period = n.mul(last if self.align_corners else size, 2)
                at = n.floormod(index, n.maximum(period, 1))
                end = period if self.align_corners else n.sub(period, 1)
                return n.maximum(0, n.minimum(at, n.sub(end, at)))

    # ------------------------------------------------------------------------------ reference

    def reference(self, x: Array, grid: Array) -> Array:
        rank = x.ndim - 2
        shape = (*x.shape[:2], *grid.shape[1:-1])
        count, first = _TAPS[self.mode]
        kind = np.float64 if grid.dtype == np.float64 else np.float32
        total = np.zeros(shape, np.float64)
        image = x.astype(np.float64) if self.mode != "nearest" else x
        if self.mode == "nearest":
            total = np.zeros(shape, x.dtype)
        axes = [
            self._coordinates(grid[..., rank - 1 - k].astype(kind), x.shape[2 + k])
            for k in range(rank)
        ]
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * rank)
        for taps in itertools.product(range(first, first + count), repeat=rank):
            weight = np.ones(grid.shape[:-1])
            inside = np.ones(grid.shape[:-1], bool)
            index = []
            for k, (tap, p) in enumerate(zip(taps, axes, strict=True)):
                low = np.floor(p)
                at = self._outside(low.astype(np.int64) + tap, x.shape[2 + k])
                inside &= at >= 0
                index.append(np.maximum(at, 0))
                weight = weight * self._weight(np.abs((p - low).astype(np.float64) - tap))
            where: tuple[Any, ...] = (batch, slice(None), *index)
            found = np.moveaxis(image[where], -1, 1)
            kept = np.broadcast_to(inside[:, None], shape)
            if self.mode == "nearest":
                total = np.where(kept, found, total)
            else:
                total += np.where(kept, found * weight[:, None], 0)
        return converted(total, from_numpy(x.dtype))

    def _coordinates(self, x: Array, size: int) -> Array:
        one, half = x.dtype.type(1), x.dtype.type(0.5)
        if self.align_corners:
            low, high = x.dtype.type(0), x.dtype.type(size - 1)
            p = (x + one) / 2 * (size - 1)
        else:
            low, high = -half, x.dtype.type(size) - half
            p = ((x + one) * size - one) / 2
        if self.mode == "nearest":
            p = np.rint(p)
        if self.padding == "border":
            p = np.clip(p, -3, size + 2)
        if self.padding == "reflection":
            reach = high - low
            for below in (True, False):
                beyond = low - p if below else p - high
                turns = np.trunc(np.maximum(beyond, 0) / reach)
                rest = beyond - turns * reach
                up = (turns % 2 == 0) == below
                p = np.where(beyond > 0, np.where(up, low + rest, high - rest), p)
        p = p.astype(x.dtype)
        return np.asarray(np.where(np.abs(p) < _FAR, p, -x.dtype.type(_FAR)))

    def _outside(self, at: Array, size: int) -> Array:
        if self.padding == "zeros":
            return np.where((at >= 0) & (at < size), at, -1)
        if self.padding == "border":
            return np.clip(at, 0, size - 1)
        if self.align_corners:
            turn = at % max(2 * (size - 1), 1)
            return np.where(turn < size, turn, 2 * (size - 1) - turn)
        turn = at % (2 * size)
        return np.where(turn < size, turn, 2 * size - 1 - turn)

    def _weight(self, s: Array) -> Array:
        if self.mode == "nearest":
            return np.ones_like(s)
        if self.mode == "linear":
            return 1 - s
        inner = (_CUBIC + 2) * s**3 - (_CUBIC + 3) * s**2 + 1
        return np.where(s <= 1, inner, _CUBIC * (s**3 - 5 * s**2 + 8 * s - 4))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        image, grid = f32(2, 3, 4, 5), f32(2, 3, 2, 2, low=-1.75, high=1.75)
        for mode in _TAPS:
            for padding in PADDINGS:
                for align in (False, True):
                    yield cls(mode, padding, align), [image, grid]
        centres = np.array([-3, -1, -0.5, 0, 0.5, 1, 5], np.float32).reshape(1, 7, 1)
        for padding in PADDINGS:
            yield cls("nearest", padding), [f32(1, 2, 4), centres]
            yield cls("linear", padding), [f32(1, 2, 3, 2, 4), f32(1, 2, 2, 3, 3)]
        yield cls("cubic", "reflection", True), [f32(1, 1, 1, 4), grid[:1]]
        yield cls("cubic"), [f32(1, 1, 2, 2, 2), f32(1, 2, 1, 2, 3, low=-1, high=1)]
        yield cls(), [image.astype(np.float16), grid.astype(np.float16)]
        yield cls("linear", "border"), [image.astype(np.float64), grid.astype(np.float64)]
        yield cls("nearest"), [ints(2, 1, 4, 5, dtype="uint8"), grid]
        yield cls("linear", "border"), [ints(2, 1, 4, 5, low=-90, high=90, dtype="int32"), grid]


@dataclass(frozen=True)
class AffineGrid(Op):
    """The places in [-1, 1] of an image of ``shape``, each moved by an affine map of the batch.

    -1 and 1 are the centres of the first and last elements along an axis with ``align_corners``,
    their outer edges without. Coordinates stand in the order that ``grid_sample`` reads.

    Shape: theta float [n, d, d + 1] -> [n, *shape, d] for d axes.
    Errors: TypeCheckError if theta does not fit the number of axes.
    Source: ONNX AffineGrid-20.
    """

    name = "affine_grid"

    shape: tuple[Expr, ...]
    align_corners: bool = False

    def infer(self, theta: TensorType) -> TensorType:
        rank = len(self.shape)
        if not theta.dtype.is_float or theta.rank != 3:
            raise self.fail(f"theta {theta} must be float [n, {rank}, {rank + 1}]")
        unify(theta.shape[1], as_expr(rank), "theta has not a row for each axis")
        unify(theta.shape[2], as_expr(rank + 1), "theta's rows have not a number for each axis")
        return theta.with_shape((theta.shape[0], *self.shape, rank))

    def compute(self, theta: te.Tensor) -> te.Tensor:
        rank, acc = len(self.shape), wide(theta.dtype)

        def base(i: Expr, size: Expr) -> Expr:
            at, extent = n.cast(i, acc), n.cast(size, acc)
            one, two = n.const(1, acc), n.const(2, acc)
            if not self.align_corners:
                step = n.div(two, extent)
                return n.add(n.add(n.neg(one), n.div(step, two)), n.mul(at, step))
            step = n.div(two, n.sub(extent, one))
            return n.sub(n.mul(at, n.select(n.eq(size, 1), n.const(0, acc), step)), one)

        def element(batch: Expr, *i: Expr) -> Expr:
            *at, row = i
            total = n.cast(theta[batch, row, rank], acc)
            for k in range(rank):
                factor = n.cast(theta[batch, row, k], acc)
                total = n.add(total, n.mul(factor, base(at[rank - 1 - k], self.shape[~k])))
            return n.cast(total, theta.dtype)

        return te.compute((theta.shape[0], *self.shape, rank), element, self.name)

    def reference(self, theta: Array) -> Array:
        shape = [number(d) for d in self.shape]
        axes = []
        for size in shape:
            if self.align_corners:
                axes.append(np.linspace(-1, 1, size))
            else:
                axes.append((2 * np.arange(size) + 1) / max(size, 1) - 1)
        points = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(shape)]
        out = np.tensordot(theta.astype(np.float64), np.stack(points), (2, 0))
        return np.asarray(np.moveaxis(out, 1, -1).astype(theta.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        for align in (False, True):
            yield cls(sizes(4, 5), align), [f32(2, 2, 3)]
            yield cls(sizes(2, 1, 3), align), [f32(2, 3, 4)]
        yield cls(sizes(0, 3)), [f32(2, 2, 3)]
        yield cls(sizes(4, 3)), [f32(2, 2, 3).astype(np.float16)]
