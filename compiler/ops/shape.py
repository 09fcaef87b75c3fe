"""Operators that change a tensor's shape, and move elements as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import normal, numbers, same, volume
from planish.compiler.graph.ir import MAX_CONTENT, Array, Content, TensorType, tensor, unify
from planish.compiler.loop import te

from .base import Arrays, Op, assume, broadcast, broadcast_indices, is_one
from .sampling import f32, ints


def sizes(*shape: int) -> tuple[Expr, ...]:
    """Numbers as dimensions."""
    return tuple(as_expr(d) for d in shape)


@dataclass(frozen=True)
class Movement(Op):
    """An operator that moves elements whatever they are; so it moves known contents too."""

    takes_strings: ClassVar[bool] = True
    data_inputs: ClassVar[int | None] = None  # how many inputs are moved; the others say whereto

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        nothing: tuple[Content | None, ...] = (None,) * len(outputs)
        if any(t.size is None or t.size > MAX_CONTENT for t in outputs):
            return nothing
        arrays: list[Array | None] = []
        for k, (t, c) in enumerate(zip(types, inputs, strict=True)):
            if t is None:
                arrays.append(None)
            elif c is None or t.size != len(c):
                return nothing
            elif self.data_inputs is None or k < self.data_inputs:
                arrays.append(symbolic_array(t, c))
            elif all(isinstance(e, Const) for e in c):
                arrays.append(symbolic_array(t, c).astype(np.int64))
            else:
                return nothing
        try:
            found = self.reference(*arrays)
        except (ValueError, IndexError):  # an attribute is symbolic, or an index out of range
            return nothing
        results = found if isinstance(found, tuple) else (found,)
        return tuple(
            # numpy gives one element of an array of objects as itself, without an array.
            tuple(_known_element(e, t) for e in (r.ravel() if isinstance(r, np.ndarray) else [r]))
            for r, t in zip(results, outputs, strict=True)
        )


def _known_element(e: Any, type: TensorType) -> Expr:
    if isinstance(e, Expr):
        return e
    return Const(bool(e), BOOL) if type.dtype is BOOL else as_expr(int(e))


def symbolic_array(type: TensorType, content: Content) -> Array:
    """Known content as an array of expressions (numbers for constants)."""
    out = np.empty(len(content), object)
    for k, e in enumerate(content):
        out[k] = e.value if isinstance(e, Const) else e
    return out.reshape(numbers(type.shape))


@dataclass(frozen=True)
class Reshape(Movement):
    """The same elements in row-major order in another shape.

    Shape: x [...] -> [*shape], with the same number of elements.
    Errors: TypeCheckError if the number of elements differs.
    Source: ONNX Reshape-25.
    """

    name = "reshape"

    shape: tuple[Expr, ...]

    def infer(self, x: TensorType) -> TensorType:
        before, after = volume(x.shape), volume(self.shape)
        if not same(before, after):
            if isinstance(before, Const) and isinstance(after, Const):
                raise self.fail(f"{x} has {before} elements, the new shape has {after}")
            assume(n.eq(before, after))
        return x.with_shape(self.shape)

    def compute(self, x: te.Tensor) -> te.Tensor:
        groups = list(split_groups(x.shape, self.shape))

        def element(*i: Expr) -> Expr:
            index: list[Expr] = []
            for (a, b), (c, d) in groups:
                index += unravel(ravel(i[c:d], self.shape[c:d]), x.shape[a:b])
            return x[tuple(index)]

        return te.compute(self.shape, element, self.name)

    def reference(self, x: Array) -> Array:
        return np.reshape(x, numbers(self.shape))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(3, 4, 5)), [f32(12, 5)]
        yield cls(sizes(2, 12)), [f32(2, 3, 4)]
        yield cls(sizes(1, 6, 4)), [f32(2, 12)]
        yield cls(sizes(9, 4)), [f32(6, 6)]
        yield cls(sizes()), [f32(1, 1)]
        yield cls(sizes(1, 2, 1, 3)), [f32(2, 1, 3)]
        yield cls(sizes(0, 7)), [f32(3, 0)]


def split_groups(
    before: Sequence[Expr], after: Sequence[Expr]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of dimensions of two shapes, in order, that hold equally many elements each."""
    i = j = 0
    while i < len(before) or j < len(after):
        for total in range(1, len(before) - i + len(after) - j + 1):
            ends = ((i + k, j + total - k) for k in range(total, -1, -1))
            fits = (
                (p, q)
                for p, q in ends
                if p <= len(before)
                and q <= len(after)
                and same(volume(before[i:p]), volume(after[j:q]))
                and same(volume(before[p:]), volume(after[q:]))
            )
            if (found := next(fits, None)) is not None:
                break
        else:
            found = len(before), len(after)
        yield (i, found[0]), (j, found[1])
        i, j = found


def ravel(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place in row-major order of an element."""
    out: Expr = as_expr(0)
    for i, d in zip(index, shape, strict=True):
        if not is_one(d):
            out = out * d + i
    return out


def unravel(place: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """The element at a place in row-major order."""
    real = [k for k, d in enumerate(shape) if not is_one(d)]
    out: list[Expr] = [as_expr(0)] * len(shape)
    stride: Expr = as_expr(1)
    for k in reversed(real):
        quotient = n.floordiv(place, stride)
        out[k] = quotient if k == real[0] else n.floormod(quotient, shape[k])
        stride = normal(stride * shape[k])
    return out


@dataclass(frozen=True)
class Transpose(Movement):
    """The dimensions in another order: output dimension k is input dimension ``perm[k]``.

    Shape: x [d0, d1, ...] -> [d_perm[0], d_perm[1], ...].
    Errors: TypeCheckError if perm is no permutation of the dimensions.
    Source: ONNX Transpose-25.
    """

    name = "transpose"

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        if sorted(self.perm) != list(range(x.rank)):
            raise self.fail(f"{list(self.perm)} is no order of the {x.rank} dimensions of {x}")
        return x.with_shape(x.shape[p] for p in self.perm)

    def compute(self, x: te.Tensor) -> te.Tensor:
        inverse = np.argsort(self.perm).tolist() if self.perm else []
        shape = [x.shape[p] for p in self.perm]
        return te.compute(shape, lambda *i: x[tuple(i[k] for k in inverse)], self.name)

    def reference(self, x: Array) -> Array:
        return np.transpose(x, self.perm)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls((1, 0)), [f32(3, 5)]
        yield cls((2, 0, 3, 1)), [f32(2, 3, 4, 5)]
        yield cls(()), [f32()]


@dataclass(frozen=True)
class Expand(Movement):
    """Repeated along dimensions of size 1, and along new ones in front: numpy's broadcasting.

    A symbol beside another dimension is taken to be equal to it; if ``loose``, it may be 1 as well,
    and ``shape`` is the whole shape of the result.

    Shape: x [...] -> the broadcast of x's shape and ``shape``.
    Errors: TypeCheckError if they do not broadcast.
    Source: ONNX Expand-13.
    """

    name = "expand"

    shape: tuple[Expr, ...]
    loose: bool = False

    def infer(self, x: TensorType) -> TensorType:
        if not self.loose:
            return x.with_shape(broadcast(x.shape, self.shape))
        if x.rank > len(self.shape):
            raise self.fail(f"{x} has more dimensions than the shape")
        for d, wanted in zip(reversed(x.shape), reversed(self.shape), strict=False):
            assume(n.any_of(n.eq(d, 1), n.eq(d, wanted)))
        return x.with_shape(self.shape)

    def compute(self, x: te.Tensor) -> te.Tensor:
        if self.loose:
            back = len(self.shape) - x.rank
            return te.compute(
                self.shape,
                lambda *i: x[
                    tuple(n.minimum(k, d - 1) for k, d in zip(i[back:], x.shape, strict=True))
                ],
                self.name,
            )
        return te.compute(
            broadcast(x.shape, self.shape),
            lambda *i: x[broadcast_indices(i, x.shape)],
            self.name,
        )

    def reference(self, x: Array) -> Array:
        return np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, numbers(self.shape))))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(2, 3, 4)), [f32(3, 1)]
        yield cls(sizes(1, 1)), [f32(3, 2)]
        yield cls(sizes(2, 2)), [f32()]
        yield cls(sizes(2, 3, 4), loose=True), [f32(3, 1)]


@dataclass(frozen=True)
class Concat(Movement):
    """The inputs one behind the other along ``axis``.

    Shape: [..., a, ...], [..., b, ...], ... -> [..., a + b + ..., ...].
    Errors: TypeCheckError if ranks, dtypes or the other dimensions differ.
    Source: ONNX Concat-13.
    """

    name = "concat"

    axis: int = 0

    def infer(self, *xs: TensorType) -> TensorType:
        if not xs:
            raise self.fail("there is no input")
        first = xs[0]
        axis = self.axis_of(first.rank)
        shape = list(first.shape)
        for x in xs[1:]:
            if x.dtype is not first.dtype or x.rank != first.rank:
                raise self.fail(f"inputs are {first} and {x}")
            for k in range(first.rank):
                if k == axis:
                    shape[k] = shape[k] + x.shape[k]
                else:
                    shape[k] = unify(shape[k], x.shape[k], f"dimension {k} differs")
        return first.with_shape(map(normal, shape))

    def axis_of(self, rank: int) -> int:
        if rank == 0:
            raise self.fail("scalars have no dimension to join along")
        return self.resolve_axis(self.axis, rank)

    def compute(self, *xs: te.Tensor) -> te.Tensor:
        axis = self.axis_of(xs[0].rank)
        ends = [as_expr(0)]
        for x in xs:
            ends.append(normal(ends[-1] + x.shape[axis]))

        def element(*i: Expr) -> Expr:
            parts = [
                x[(*i[:axis], i[axis] - start, *i[axis + 1 :])]
                for x, start in zip(xs, ends[:-1], strict=True)
            ]
            out = parts[-1]
            for part, end in reversed(list(zip(parts[:-1], ends[1:-1], strict=True))):
                out = n.select(i[axis] < end, part, out)
            return out

        return te.compute(
            (*xs[0].shape[:axis], ends[-1], *xs[0].shape[axis + 1 :]), element, self.name
        )

    def reference(self, *xs: Array) -> Array:
        return np.concatenate(xs, self.axis)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(0), [f32(3, 5), f32(2, 5)]
        yield cls(-1), [f32(2, 3), f32(2, 0), f32(2, 4)]
        yield cls(1), [f32(2, 3, 2)]


@dataclass(frozen=True)
class Split(Movement):
    """Consecutive parts of ``sizes`` along ``axis``.

    Shape: x [..., a + b + ..., ...] -> [..., a, ...], [..., b, ...], ...
    Errors: TypeCheckError if the sizes do not sum up to the dimension.
    Source: ONNX Split-18.
    """

    name = "split"

    sizes: tuple[Expr, ...]
    axis: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        axis = self.resolve_axis(self.axis, x.rank)
        total: Expr = as_expr(0)
        for size in self.sizes:
            if isinstance(size, Const) and size.value < 0:
                raise self.fail(f"a part has size {size.value}")
            total = total + size
        unify(normal(total), x.shape[axis], "the sizes of the parts do not sum up to the dimension")
        return tuple(x.with_shape((*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in self.sizes)

    def compute(self, x: te.Tensor) -> tuple[te.Tensor, ...]:
        axis = self.resolve_axis(self.axis, x.rank)
        out = []
        start: Expr = as_expr(0)
        for size in self.sizes:
            out.append(self.part(x, axis, start, size))
            start = normal(start + size)
        return tuple(out)

    def part(self, x: te.Tensor, axis: int, start: Expr, size: Expr) -> te.Tensor:
        return te.compute(
            (*x.shape[:axis], size, *x.shape[axis + 1 :]),
            lambda *i: x[(*i[:axis], i[axis] + start, *i[axis + 1 :])],
            self.name,
        )

    def reference(self, x: Array) -> Arrays:
        ends = np.cumsum(numbers(self.sizes))
        return tuple(np.split(x, ends[:-1], self.axis))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(2, 3), 1), [f32(3, 5)]
        yield cls(sizes(1, 0, 2), -3), [f32(3, 2, 2)]
        yield cls(sizes(4)), [f32(4)]


@dataclass(frozen=True)
class Tile(Movement):
    """The whole repeated ``repeats[k]`` times along each dimension k.

    Shape: x [d0, d1, ...] -> [d0 * repeats[0], d1 * repeats[1], ...].
    Errors: TypeCheckError if there is not one repetition per dimension, or a negative one.
    Source: ONNX Tile-13.
    """

    name = "tile"

    repeats: tuple[Expr, ...]

    def infer(self, x: TensorType) -> TensorType:
        if len(self.repeats) != x.rank:
            raise self.fail(f"{len(self.repeats)} repetitions for the rank {x.rank} of {x}")
        for r in self.repeats:
            if isinstance(r, Const) and r.value < 0:
                raise self.fail(f"a dimension is repeated {r} times")
        return x.with_shape(normal(d * r) for d, r in zip(x.shape, self.repeats, strict=True))

    def compute(self, x: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            index = zip(i, x.shape, self.repeats, strict=True)
            return x[tuple(k if is_one(r) else n.floormod(k, d) for k, d, r in index)]

        shape = [normal(d * r) for d, r in zip(x.shape, self.repeats, strict=True)]
        return te.compute(shape, element, self.name)

    def reference(self, x: Array) -> Array:
        return np.tile(x, numbers(self.repeats))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(1, 2)), [f32(3, 5)]
        yield cls(sizes(3, 1, 2)), [f32(1, 2, 2)]
        yield cls(sizes(0, 2)), [f32(2, 2)]


@dataclass(frozen=True)
class ShapeOf(Op):
    """The dimensions from ``start`` on, before ``end``, as numbers.

    Shape: x [...] -> i64 [number of these dimensions].
    Source: ONNX Shape-25.
    """

    name = "shape"
    takes_strings: ClassVar[bool] = True

    start: int = 0
    end: int | None = None

    def dims(self, x: TensorType | te.Tensor) -> tuple[Expr, ...]:
        return tuple(map(normal, x.shape[self.start : self.end]))

    def infer(self, x: TensorType) -> TensorType:
        return tensor(I64, len(self.dims(x)))

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        (x,) = types
        return (None if x is None else self.dims(x),)

    def compute(self, x: te.Tensor) -> te.Tensor:
        dims = self.dims(x)

        def element(i: Expr) -> Expr:
            out: Expr = dims[-1] if dims else as_expr(0)
            for k in reversed(range(len(dims) - 1)):
                out = n.select(n.eq(i, k), dims[k], out)
            return out

        return te.compute((len(dims),), element, self.name)

    def reference(self, x: Array) -> Array:
        return np.array(x.shape[self.start : self.end], np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5, 2)]
        yield cls(-1), [ints(3, 5)]
        yield cls(1, 1), [f32(3, 5)]
        yield cls(), [f32()]


@dataclass(frozen=True)
class Size(Op):
    """The number of elements.

    Shape: x [...] -> i64 [].
    Source: ONNX Size-25.
    """

    name = "size"
    takes_strings: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        return tensor(I64)

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        (x,) = types
        return (None if x is None else (volume(x.shape),),)

    def compute(self, x: te.Tensor) -> te.Tensor:
        return te.compute((), lambda: volume(x.shape), self.name)

    def reference(self, x: Array) -> Array:
        return np.array(x.size, np.int64)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5)]
        yield cls(), [f32()]


__all__ = [
    "Concat", "Expand", "Movement", "Reshape", "ShapeOf", "Size", "Split", "Tile", "Transpose",
    "ravel", "sizes", "split_groups", "symbolic_array", "unravel",
]  # fmt: skip
