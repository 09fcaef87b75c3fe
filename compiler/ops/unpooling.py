"""The sum of overlapping blocks into an image, and elements put back to where a maximum was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import Array, TensorType, assume, unify
from planish.compiler.loop import te
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, seq

from .base import Op
from .sampling import f32, ints
from .shape import sizes
from .windows import check_geometry, extent, narrowed, number, pairs, trailing, wide, wide_array


@dataclass(frozen=True)
class Col2Im(Op):
    """The sum of overlapping blocks, laid into an image: what ``conv``'s windows would read there.

    ``image`` are its spatial sizes, ``block`` those of a block; pads are cut off.

    Shape: x [n, c * block..., l] number -> [n, c, *image].
    Errors: TypeCheckError if channels or the number of blocks do not fit.
    Source: ONNX Col2Im-18.
    """

    name = "col2im"

    image: tuple[Expr, ...]
    block: tuple[Expr, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # begins, then ends

    def infer(self, x: TensorType) -> TensorType:
        rank = len(self.image)
        if x.rank != 3 or x.dtype.kind not in "fiu":
            raise self.fail(f"x {x} must be [n, c * block, l] of numbers")
        if rank < 1 or len(self.block) != rank:
            raise self.fail(f"the image has {rank} axes, the block {len(self.block)}")
        check_geometry(
            self, rank, strides=self.strides, dilations=self.dilations, pads=self.pads
        )  # fmt: skip
        taps, rows = n.product(self.block), x.shape[1]
        if n.lt(taps, 1) is n.TRUE:
            raise self.fail(f"the block {self.block} has no elements")
        assume(n.le(1, taps))
        if n.eq(n.floormod(rows, taps), 0) is n.FALSE:
            raise self.fail(f"{rows} rows of x are no multiple of the block's {taps} elements")
        assume(n.eq(n.floormod(rows, taps), 0))
        unify(x.shape[2], n.product(self.counts()), "x has not a column for each block")
        return x.with_shape((x.shape[0], n.floordiv(rows, taps), *self.image))

    def counts(self) -> list[Expr]:
        """How many blocks there are along each axis."""
        return [
            extent(self, size, kernel, stride, dilation, pair)
            for size, kernel, stride, dilation, pair in zip(
                self.image, self.block, self.strides, self.dilations, pairs(self.pads), strict=True
            )
        ]

    def compute(self, x: te.Tensor) -> te.Tensor:
        rank, acc, counts = len(self.image), wide(x.dtype), self.counts()
        taps = n.product(self.block)
        begins = [begin for begin, _ in pairs(self.pads)]

        def term(batch: Expr, channel: Expr, *i: Expr) -> Expr:
            row, column, inside = channel, as_expr(0), []
            for k, (at, tap) in enumerate(zip(i[:rank], i[rank:], strict=True)):
                moved = n.sub(n.add(at, as_expr(begins[k])), n.mul(tap, self.dilations[k]))
                block = n.floordiv(moved, self.strides[k])
                inside += [n.le(0, block), n.lt(block, counts[k])]
                inside.append(n.eq(n.floormod(moved, self.strides[k]), 0))
                row = n.add(n.mul(row, self.block[k]), tap)
                column = n.add(n.mul(column, counts[k]), block)
            value = n.cast(x[batch, row, column], acc)
            return n.select(n.all_of(*inside), value, n.const(0, acc))

        shape = (x.shape[0], n.floordiv(x.shape[1], taps), *self.image)
        return narrowed(te.reduce("sum", shape, self.block, term, self.name), x.dtype)

    def reference(self, x: Array) -> Array:
        image, block = [number(d) for d in self.image], [number(d) for d in self.block]
        ends = pairs(self.pads)
        padded = [d + number(b) + number(e) for d, (b, e) in zip(image, ends, strict=True)]
        counts = [
            (d - (k - 1) * dilation - 1) // s + 1
            for d, k, dilation, s in zip(padded, block, self.dilations, self.strides, strict=True)
        ]
        taps = int(np.prod(block))
        blocks = wide_array(x).reshape(len(x), x.shape[1] // max(taps, 1), taps, *counts)
        out = np.zeros((*blocks.shape[:2], *padded), blocks.dtype)
        for t, at in enumerate(np.ndindex(*block)):
            where = []
            for k, step in enumerate(at):
                first = step * self.dilations[k]
                where.append(slice(first, first + counts[k] * self.strides[k], self.strides[k]))
            target = trailing(out, where)
            target += trailing(blocks[:, :, t], [slice(d) for d in target.shape[2:]])
        cut = [slice(number(b), number(b) + d) for d, (b, _) in zip(image, ends, strict=True)]
        return trailing(out, cut).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(5, 5), sizes(1, 5), (1, 1), (1, 1), (0,) * 4), [f32(1, 5, 5)]
        yield cls(sizes(5, 6), sizes(2, 3), (2, 1), (1, 2), (1, 0, 0, 1)), [f32(2, 12, 9)]
        yield cls(sizes(4, 4), sizes(3, 3), (1, 1), (1, 1), (1,) * 4), [ints(1, 18, 16)]
        yield cls(sizes(3, 4, 2), sizes(2, 2, 1), (1,) * 3, (1,) * 3, (0,) * 6), [f32(1, 4, 12)]
        yield cls(sizes(7), sizes(3), (2,), (1,), (0, 0)), [f32(2, 6, 3).astype(np.float16)]


@dataclass(frozen=True)
class MaxUnpool(Op):
    """Zeros, but for x's elements at the positions of ``indices``: what a maximum was taken of.

    ``shape`` is the tensor that positions count in, in row-major order. The result has its spatial
    sizes ``out``: beyond ``shape`` there are zeros. Of several elements at one position the last
    stays; those at positions outside are left out.

    Shape: x [n, c, *s], indices integer of the same -> x's dtype [n, c, *out].
    Errors: TypeCheckError if shapes differ.
    Source: ONNX MaxUnpool-22.
    """

    name = "max_unpool"

    shape: tuple[Expr, ...]
    out: tuple[Expr, ...]

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        if x.rank < 3 or x.rank != indices.rank or not indices.dtype.is_int:
            raise self.fail(f"x {x} and the indices {indices} do not fit together")
        if not len(self.shape) == len(self.out) == x.rank - 2:
            raise self.fail(f"{x.rank - 2} spatial axes, and {len(self.shape)} sizes")
        same = [
            unify(*pair, "indices differ from x")
            for pair in zip(x.shape, indices.shape, strict=True)
        ]
        return x.with_shape((*same[:2], *self.out))

    def build(self, x: TensorType, indices: TensorType) -> Function:
        result = self.infer(x, indices)
        symbols = free_vars(*x.shape, *indices.shape, *self.shape, *self.out)
        taken = {v.name for v in symbols}

        def named(name: str) -> str:
            while name in taken:
                name += "_"
            return name

        source, where, out = (
            Buffer(named(name), type.dtype, type.shape)
            for name, type in (("x", x), ("indices", indices), ("y", result))
        )
        rest = n.cast(Load(where.name, _axes(x.rank), where.dtype), I64)
        whole = (*x.shape[:2], *self.shape)
        inside = [n.le(0, rest), n.lt(rest, n.product(whole))]
        index: list[Expr] = []
        for size in reversed(whole[1:]):
            extent = n.maximum(size, 1)
            index.append(n.floormod(rest, extent))
            rest = n.floordiv(rest, extent)
        index = [rest, *reversed(index)]
        inside += [n.lt(i, d) for i, d in zip(index[2:], self.out, strict=True)]
        value = Load(source.name, _axes(x.rank), x.dtype)
        zero = _nest("zero", out, result.shape, _axes(x.rank), n.const(0, x.dtype))
        put = _nest("put", out, x.shape, tuple(index), value, n.all_of(*inside))
        return Function(self.name, (source, where, out), 1, symbols, (), seq(zero, put))

    def reference(self, x: Array, indices: Array) -> Array:
        inner, outer = ([number(d) for d in shape] for shape in (self.shape, self.out))
        flat = np.zeros(int(np.prod([*x.shape[:2], *inner])), x.dtype)
        for position, value in zip(indices.ravel(), x.ravel(), strict=True):
            if 0 <= position < flat.size:
                flat[position] = value
        found = flat.reshape(*x.shape[:2], *inner)
        out = np.zeros((*x.shape[:2], *outer), x.dtype)
        common = [slice(min(a, b)) for a, b in zip(inner, outer, strict=True)]
        trailing(out, common)[...] = trailing(found, common)
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        four = np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2)
        yield cls(sizes(4, 4), sizes(4, 4)), [f32(1, 1, 2, 2), four]
        yield cls(sizes(4, 4), sizes(5, 6)), [f32(1, 1, 2, 2), four]
        yield cls(sizes(4, 4), sizes(3, 2)), [f32(1, 1, 2, 2), four]
        yield cls(sizes(7), sizes(7)), [f32(2, 3, 3), ints(2, 3, 3, low=-9, high=60)]
        yield cls(sizes(0, 2), sizes(1, 2)), [f32(1, 1, 2, 2).astype(np.float16), four]


def _axes(rank: int) -> tuple[Var, ...]:
    return tuple(Var(f"i{k}", I64) for k in range(rank))


def _nest(
    name: str,
    target: Buffer,
    over: tuple[Expr, ...],
    indices: tuple[Expr, ...],
    value: Expr,
    where: Expr = n.TRUE,
) -> Stmt:
    """A store for each point; conditions are on the loops, which bear the iterators' names."""
    axes = _axes(len(over))
    iters = tuple(Iter(v, e, "spatial", v) for v, e in zip(axes, over, strict=True))
    if any(n.eq(e, 0) is n.TRUE for e in over):
        return seq()
    body: Stmt = Block(name, iters, target.name, indices, value, where=where)
    for i in reversed(iters):
        body = Loop(i.var, i.extent, body)
    return body
