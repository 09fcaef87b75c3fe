"""Decision trees: which leaf an observation comes to, and ways to look a number up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from planish.compiler.dtypes import BOOL, F32, I32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Const, Expr, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import Array, TensorType, assume, unify
from planish.compiler.loop import te
from planish.compiler.loop.ir import Buffer, Function, seq

from .base import Op
from .elementwise import call
from .nests import store, within
from .sampling import f32

# The bits of a node's test: which of less, equal, greater and NaN go the first way.
LESS, EQUAL, GREATER, UNORDERED = (1 << k for k in range(4))
TESTS: Final = {
    "BRANCH_LEQ": LESS | EQUAL,
    "BRANCH_LT": LESS,
    "BRANCH_GTE": GREATER | EQUAL,
    "BRANCH_GT": GREATER,
    "BRANCH_EQ": EQUAL,
    "BRANCH_NEQ": LESS | GREATER | UNORDERED,
    "LEAF": 0,
}
_TABLES: Final = ("features", "values", "tests", "first", "second", "roots")


@dataclass(frozen=True)
class TreeLeaves(Op):
    """The node that each row of x comes to in each tree, after ``depth`` steps from its root.

    A step goes on to the ``first`` node if the row's feature compares with the node's value in a
    way that its test (a sum of bits: less 1, equal 2, greater 4, NaN 8) has, else to the
    ``second``. A leaf goes on to itself. Numbers of nodes and features out of range are taken as
    the nearest.

    Shape: x [n, f], features, tests, first and second i32 [k], values of x's dtype [k],
        roots i32 [t] -> i32 [n, t].
    Errors: TypeCheckError if the tables differ in size, or there is no node or feature.
    Source: ONNX TreeEnsemble-5.
    """

    name = "tree_leaves"

    depth: int

    def infer(self, x: TensorType, *tables: TensorType) -> TensorType:
        if not x.dtype.is_float or x.rank != 2:
            raise self.fail(f"{x} is no matrix of floats")
        if self.depth < 0 or len(tables) != len(_TABLES):
            raise self.fail(f"{self.depth} steps in {len(tables)} tables")
        nodes = tables[0].shape[0] if tables[0].rank else as_expr(0)
        for what, t in zip(_TABLES, tables, strict=True):
            if t.rank != 1 or t.dtype is not (x.dtype if what == "values" else I32):
                raise self.fail(f"the table of {what} is {t}")
            if what != "roots":
                unify(t.shape[0], nodes, f"the table of {what} has another size")
        for what, extent in (("node", nodes), ("feature", x.shape[1])):
            some = n.le(1, extent)
            if isinstance(some, Const) and not some.value:
                raise self.fail(f"there is no {what}")
            assume(some)
        return TensorType(I32, (x.shape[0], tables[-1].shape[0]))

    def build(self, x: TensorType, *tables: TensorType) -> Function:
        result = self.infer(x, *tables)
        rows, trees = result.shape
        nodes, width = tables[0].shape[0], x.shape[1]
        i, t, d = Var("i0"), Var("i1"), Var("i2")
        source = Buffer("x", x.dtype, x.shape)
        given = [Buffer(w, y.dtype, y.shape) for w, y in zip(_TABLES, tables, strict=True)]
        features, values, tests, first, second, roots = given
        out = Buffer("leaves", I32, result.shape)
        path = Buffer("path", I32, (rows, trees, as_expr(self.depth + 1)), "local")

        def load(buffer: Buffer, *at: Expr) -> Expr:
            return Load(buffer.name, at, buffer.dtype)

        def inside(index: Expr, extent: Expr) -> Expr:
            return n.maximum(0, n.minimum(n.cast(index, I64), extent - 1))

        here = inside(load(path, i, t, d), nodes)
        value = load(source, i, inside(load(features, here), width))
        limit = load(values, here)
        bits = load(tests, here)

        def goes(bit: int, holds: Expr) -> Expr:
            return n.all_of(holds, n.ne(call("bit_and", bits, n.const(bit, I32)), 0))

        taken = n.any_of(
            goes(LESS, n.lt(value, limit)),
            goes(EQUAL, n.eq(value, limit)),
            goes(GREATER, n.lt(limit, value)),
            goes(UNORDERED, Call("is_nan", (value,), BOOL)),
        )
        ahead = n.select(taken, load(first, here), load(second, here))
        around = [(i, rows), (t, trees)]
        steps = within(
            [(d, as_expr(self.depth))],
            store("step", path, (i, t, d + 1), ahead, [*around, (d, as_expr(self.depth))]),
        )
        body = seq(
            store("root", path, (i, t, as_expr(0)), load(roots, t), around),
            *([steps] if self.depth else []),
            store("leaf", out, (i, t), load(path, i, t, as_expr(self.depth)), around),
        )
        symbols = free_vars(*x.shape, *(e for y in tables for e in y.shape))
        params = (source, *given, out)
        return Function(
            self.name, params, 1, symbols, (path,), within(around, body, kind="parallel")
        )

    def reference(self, x: Array, *tables: Array) -> Array:
        features, values, tests, first, second, roots = tables
        nodes = len(features)
        at = np.broadcast_to(roots, (len(x), len(roots)))
        for _ in range(self.depth):
            at = np.clip(at, 0, nodes - 1)
            columns = np.clip(features[at], 0, x.shape[1] - 1)
            v, limit = np.take_along_axis(x, columns, 1), values[at]
            kind = (v < limit) * LESS | (v == limit) * EQUAL | (v > limit) * GREATER
            kind = kind | np.isnan(v) * UNORDERED
            at = np.where(tests[at] & kind, first[at], second[at])
        return np.ascontiguousarray(at, np.int32)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        x = f32(5, 3)
        x[0, 1], x[1, 0] = np.nan, 0.5
        tables: list[Array] = [
            np.array([0, 1, 2, 0, 0, 0, 0, 1, 0, 0], "int32"),
            np.array([0.5, -1, 0, 0, 0, 0, 0, 1, 0, 0], "float32"),
            np.array([3, 12, 6, 0, 0, 0, 0, 5, 0, 0], "int32"),
            np.array([1, 3, 5, 3, 4, 5, 6, 8, 8, 9], "int32"),
            np.array([2, 4, 6, 3, 4, 5, 6, 9, 8, 9], "int32"),
            np.array([0, 7], "int32"),
        ]
        yield cls(2), [x, *tables]
        yield cls(0), [x, *tables]
        wide = [t.astype("float64") if t.dtype == np.float32 else t for t in tables]
        yield cls(3), [x.astype("float64"), *wide]


@dataclass(frozen=True)
class Lookup(Op):
    """The value beside the key that x equals (the first such), else another; NaN equals NaN.

    That is ``default``, or the element of the last input if it is None.

    Shape: x [...], keys of x's dtype [k], values [k], other [] or none -> values' dtype [...].
    Errors: TypeCheckError if dtypes or the tables' sizes differ.
    Source: ONNX LabelEncoder-4.
    """

    name = "lookup"
    takes_strings: ClassVar[bool] = True

    default: Expr | None = None

    def infer(
        self, x: TensorType, keys: TensorType, values: TensorType, other: TensorType | None = None
    ) -> TensorType:
        if keys.dtype is not x.dtype or x.dtype is BOOL:
            raise self.fail(f"keys are {keys.dtype}, looked up is {x.dtype}")
        if (self.default is None) is (other is None) or (other is not None and other.rank):
            raise self.fail(f"the default is {self.default} and {other}, not one of both")
        default = self.default if other is None else other
        if default is not None and values.dtype is not default.dtype:
            raise self.fail(f"values are {values.dtype}, the default {default.dtype}")
        if keys.rank != 1 or values.rank != 1:
            raise self.fail(f"keys {keys} and values {values} are no vectors")
        unify(keys.shape[0], values.shape[0], "there are not as many keys as values")
        return values.with_shape(x.shape)

    def compute(
        self, x: te.Tensor, keys: te.Tensor, values: te.Tensor, other: te.Tensor | None = None
    ) -> te.Tensor:
        (count,) = keys.shape

        def place(*i: Expr) -> Expr:
            *at, k = i
            value, key = x[tuple(at)], keys[k]
            same = n.eq(value, key)
            if x.dtype.is_float:
                both = n.all_of(*(Call("is_nan", (v,), BOOL) for v in (value, key)))
                same = n.any_of(same, both)
            return n.select(same, k, count)

        found = te.reduce("min", x.shape, (count,), place, "place")

        def element(*i: Expr) -> Expr:
            k = found[i]
            known = n.all_of(n.le(0, k), n.lt(k, count))
            default = self.default if other is None else other[()]
            assert default is not None
            return n.select(known, values[n.minimum(k, count - 1)], default)

        return te.compute(x.shape, element, self.name)

    def reference(self, x: Array, keys: Array, values: Array, other: Array | None = None) -> Array:
        default = self.default.value if isinstance(self.default, Const) else other
        out = np.full(x.shape, default, values.dtype)
        for key, value in reversed(list(zip(keys, values, strict=True))):
            same = np.isnan(x) if x.dtype.kind == "f" and np.isnan(key) else x == key
            out[same] = value
        return out

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        keys = np.array([3, 1, 4, 1])
        yield cls(n.const(-1, I64)), [np.array([[1, 2], [4, 3]]), keys, keys * 10]
        odd = np.array([1.5, np.nan, 0.0], np.float32)
        x = np.array([np.nan, -0.0, 1.5, 2.5], np.float32)
        yield cls(n.const(7, I64)), [x, odd, np.array([1, 2, 3])]
        yield cls(n.const(0.5, F32)), [np.array(4), keys, (keys / 4).astype("float32")]
        yield cls(), [np.array([1, 2]), keys, keys * 10, np.array(-5)]


__all__ = ["TESTS", "Lookup", "TreeLeaves"]
