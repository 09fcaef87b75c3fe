"""Counts of sequences of words, given as strings or integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from planish.compiler.dtypes import I32, I64, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop import te

from .base import Op
from .sampling import ints


@dataclass(frozen=True)
class NgramCounts(Op):
    """How often each n-gram stands in a row of x, with up to ``skips`` words left out between two.

    Row g of ``grams`` holds the words of an n-gram, the first ``lengths[g]`` of them. The same
    number of words is left out everywhere in it; one word alone is counted once.

    Shape: x [b, n] i32, i64 or string, grams of x's dtype [g, l], lengths i64 [g] -> i64 [b, g].
    Errors: TypeCheckError if dtypes or the tables' sizes differ.
    Source: ONNX TfIdfVectorizer-9.
    """

    name = "ngram_counts"
    takes_strings: ClassVar[bool] = True

    skips: int = 0

    def infer(self, x: TensorType, grams: TensorType, lengths: TensorType) -> TensorType:
        if (
            x.dtype not in (I32, I64, STRING)
            or grams.dtype is not x.dtype
            or lengths.dtype is not I64
        ):
            raise self.fail(f"is not defined for {x}, {grams} and {lengths}")
        if (x.rank, grams.rank, lengths.rank) != (2, 2, 1) or self.skips < 0:
            raise self.fail(f"{x}, {grams} and {lengths} do not fit together")
        if grams.shape[1].dtype is not I64 or not isinstance(grams.shape[1], n.Const):
            raise self.fail(f"the greatest length of {grams} is not known")
        unify(grams.shape[0], lengths.shape[0], "there are not as many lengths as n-grams")
        return TensorType(I64, (x.shape[0], grams.shape[0]))

    def compute(self, x: te.Tensor, grams: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        rows, size = x.shape
        longest = grams.shape[1]
        assert isinstance(longest, n.Const)

        def element(b: Expr, g: Expr, skip: Expr, start: Expr) -> Expr:
            length = lengths[g]
            conditions = [n.lt(0, length), n.any_of(n.eq(skip, 0), n.lt(1, length))]
            for j in range(int(longest.value)):
                at = start + (skip + 1) * j
                there = n.all_of(n.lt(at, size), n.eq(x[b, n.minimum(at, size - 1)], grams[g, j]))
                conditions.append(n.any_of(n.le(length, as_expr(j)), there))
            return n.select(n.all_of(*conditions), 1, 0)

        shape, over = (rows, grams.shape[0]), (as_expr(self.skips + 1), size)
        return te.reduce("sum", shape, over, element, self.name)

    def reference(self, x: Array, grams: Array, lengths: Array) -> Array:
        out = np.zeros((len(x), len(grams)), np.int64)
        for b, row in enumerate(x.tolist()):
            for g, length in enumerate(lengths.tolist()):
                words = grams[g].tolist()[:length]
                for skip in range(self.skips + 1 if length > 1 else 1):
                    span = (length - 1) * (skip + 1) + 1
                    starts = range(len(row) - span + 1) if length > 0 else ()
                    out[b, g] += sum(row[s : s + span : skip + 1] == words for s in starts)
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        grams = np.array([[1, 0, 0], [1, 2, 0], [0, 1, 1], [2, 2, 0], [5, 6, 7], [3, 3, 3]])
        lengths = np.array([1, 2, 3, 2, 3, 0])
        x = ints(3, 9, low=0, high=3)
        yield cls(), [x, grams, lengths]
        yield cls(2), [x.astype("int32"), grams.astype("int32"), lengths]
        yield cls(1), [x[:, :1], grams, lengths]
