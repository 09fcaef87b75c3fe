"""Products of matrices, and sums of products over named axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import I32, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, assume
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices, is_one
from .sampling import f32, ints
from .windows import narrowed, type_of, wide, wide_array


@dataclass(frozen=True)
class MatMul(Op):
    """Products of the matrices in the last two axes; the others broadcast.

    ``result`` is the dtype of the sums, if not the operands': narrow integers add up in a wide one.

    Shape: a [..., m, k], b [..., k, n] -> [..., m, n]; ``transpose_a``: a [..., k, m],
    ``transpose_b``: b [..., n, k].
    Errors: TypeCheckError if the operands have fewer than two axes, or k differs.
    Source: ONNX MatMul-13 (operands of rank 1 are reshaped by the importer), MatMulInteger-10.
    """

    name = "matmul"

    transpose_a: bool = False
    transpose_b: bool = False
    result: DType | None = None

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        if a.dtype is not b.dtype:
            raise self.fail(f"operands are {a.dtype} and {b.dtype}", hint="cast one of them")
        if a.dtype.kind not in "fiu":
            raise self.fail(f"is not defined for {a.dtype}")
        if a.rank < 2 or b.rank < 2:
            raise self.fail(f"operands {a} and {b} must have at least two axes")
        m, k = reversed(a.shape[-2:]) if self.transpose_a else a.shape[-2:]
        inner, columns = reversed(b.shape[-2:]) if self.transpose_b else b.shape[-2:]
        fits = n.eq(k, inner)
        if isinstance(fits, Const) and not fits.value:
            raise self.fail(f"{m} x {k} and {inner} x {columns} matrices do not multiply")
        assume(fits)
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), m, columns)
        return TensorType(self.result or a.dtype, shape)

    def compute(self, a: te.Tensor, b: te.Tensor) -> te.Tensor:
        out = self.infer(type_of(a), type_of(b))
        shape, acc = out.shape, wide(out.dtype)

        def element(*axes: Expr) -> Expr:
            *batch, i, j, r = axes
            at = broadcast_indices(tuple(batch), a.shape[:-2])
            bt = broadcast_indices(tuple(batch), b.shape[:-2])
            left = a[(*at, r, i)] if self.transpose_a else a[(*at, i, r)]
            right = b[(*bt, j, r)] if self.transpose_b else b[(*bt, r, j)]
            return n.mul(n.cast(left, acc), n.cast(right, acc))

        inner = a.shape[-2 if self.transpose_a else -1]
        return narrowed(te.reduce("sum", shape, (inner,), element, self.name), out.dtype)

    def reference(self, a: Array, b: Array) -> Array:
        if self.result is not None:
            a, b = a.astype(self.result.numpy), b.astype(self.result.numpy)
        left = np.swapaxes(a, -1, -2) if self.transpose_a else a
        right = np.swapaxes(b, -1, -2) if self.transpose_b else b
        return np.asarray(np.matmul(wide_array(left), wide_array(right)).astype(a.dtype))

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 3), f32(3, 5)]
        yield cls(True), [f32(2, 3, 4), f32(3, 5)]
        yield cls(False, True), [f32(4, 3), f32(2, 5, 3)]
        yield cls(True, True), [f32(2, 1, 3, 4), f32(3, 5, 3)]
        yield cls(), [f32(2, 3, 0), f32(0, 2)]
        yield cls(), [f32(4, 6).astype(np.float16), f32(6, 3).astype(np.float16)]
        bytes_ = [ints(*s, low=-128, high=128, dtype="int8") for s in ((3, 4), (4, 2))]
        yield cls(), list(bytes_)
        yield cls(result=I32), list(bytes_)
        yield cls(result=I32), [a.astype("int16") * 2 for a in bytes_]


def parse(equation: str) -> tuple[list[str], str]:
    """The letters of the operands' axes and of the result's; see ``Einsum``."""
    left, _, right = equation.partition("->")
    return left.split(","), right


@dataclass(frozen=True)
class Einsum(Op):
    """The sum, over letters that the result lacks, of the products of elements at equal letters.

    ``equation`` has letters alone: the importer expands an ellipsis and an implicit result.
    An axis of extent 1 broadcasts; a letter twice in an operand takes the diagonal.

    Shape: as the equation says.
    Errors: TypeCheckError if ranks or extents do not fit the equation.
    Source: ONNX Einsum-28.
    """

    name = "einsum"

    equation: str

    def extents(self, *operands: TensorType) -> dict[str, Expr]:
        """The extent of each letter, in order of first use."""
        terms, result = parse(self.equation)
        if "->" not in self.equation or len(terms) != len(operands):
            raise self.fail(f"{self.equation} does not fit {len(operands)} operands")
        extents: dict[str, Expr] = {}
        for term, operand in zip(terms, operands, strict=True):
            if len(term) != operand.rank:
                raise self.fail(f"{term} in {self.equation} does not fit {operand}")
            for letter, size in zip(term, operand.shape, strict=True):
                known = extents.get(letter, size)
                (extents[letter],) = broadcast((known,), (size,))
        for letter in result:
            if letter not in extents or result.count(letter) > 1:
                raise self.fail(f"{letter} of the result in {self.equation}")
        return extents

    def infer(self, *operands: TensorType) -> TensorType:
        dtype = operands[0].dtype
        if any(o.dtype is not dtype for o in operands):
            raise self.fail(f"operands are {', '.join(str(o.dtype) for o in operands)}")
        if dtype.kind not in "fiu":
            raise self.fail(f"is not defined for {dtype}")
        extents = self.extents(*operands)
        return TensorType(dtype, tuple(extents[letter] for letter in parse(self.equation)[1]))

    def compute(self, *operands: te.Tensor) -> te.Tensor:
        terms, result = parse(self.equation)
        dtype = operands[0].dtype
        acc = wide(dtype)
        extents = self.extents(*map(type_of, operands))
        summed = [letter for letter in extents if letter not in result]

        def element(*axes: Expr) -> Expr:
            place = dict(zip([*result, *summed], axes, strict=True))
            out: Expr | None = None
            for term, operand in zip(terms, operands, strict=True):
                index = tuple(
                    as_expr(0) if is_one(d) else place[letter]
                    for letter, d in zip(term, operand.shape, strict=True)
                )
                value = n.cast(operand[index], acc)
                out = value if out is None else n.mul(out, value)
            return as_expr(1) if out is None else out

        shape = [extents[letter] for letter in result]
        if summed:
            over = [extents[letter] for letter in summed]
            return narrowed(te.reduce("sum", shape, over, element, self.name), dtype)
        return te.compute(shape, lambda *i: n.cast(element(*i), dtype), self.name)

    def reference(self, *operands: Array) -> Array:
        wider = [wide_array(o) for o in operands]
        return np.asarray(np.einsum(self.equation, *wider)).astype(operands[0].dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls("ij,jk->ik"), [f32(3, 4), f32(4, 5)]
        yield cls("bhid,bhjd->bhij"), [f32(2, 3, 4, 5), f32(2, 3, 6, 5)]
        yield cls("ij,jk,kl->li"), [f32(2, 3), f32(3, 4), f32(4, 2)]
        yield cls("ii->i"), [f32(4, 4)]
        yield cls("ii->"), [f32(4, 4)]
        yield cls("ij->ji"), [ints(3, 4)]
        yield cls("i,j->ij"), [f32(3).astype(np.float16), f32(4).astype(np.float16)]
