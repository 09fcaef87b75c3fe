"""Operators that write elements at places that are read: updates of a copy of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from planish.compiler.dtypes import BOOL, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, numbers
from planish.compiler.graph.ir import Array, TensorType, unify
from planish.compiler.loop.ir import Function, Stmt, seq

from .base import Op, assume, fixing
from .indexing import wrapped
from .sampling import bools, f32, ints, special
from .steps import Elements, Routine

REDUCTIONS: Final = ("none", "add", "mul", "min", "max")
_EXPRESSIONS: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "add": n.add,
    "mul": n.mul,
    "min": n.minimum,
    "max": n.maximum,
}
_LOGIC: Final[dict[str, Callable[[Expr, Expr], Expr]]] = {
    "add": n.any_of,
    "mul": n.all_of,
    "min": n.all_of,
    "max": n.any_of,
}
_NUMPY: Final[dict[str, Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True)
class _Scatter(Op):
    """What scattering operators share: how an update meets the element that is there."""

    takes_strings: ClassVar[bool] = True

    reduction: str = "none"

    def check(self, x: TensorType, indices: TensorType, updates: TensorType) -> None:
        if self.reduction not in REDUCTIONS:
            raise self.fail(f"there is no reduction {self.reduction}")
        if self.reduction != "none" and x.dtype.kind == "c":
            raise self.fail(f"there is no {self.reduction} of complex numbers: {x}")
        if not indices.dtype.is_int:
            raise self.fail(f"indices are {indices.dtype}, not integers")
        if x.dtype is STRING and self.reduction != "none":
            raise self.fail(f"the reduction {self.reduction} is not defined for strings")
        if updates.dtype is not x.dtype:
            raise self.fail(f"updates are {updates.dtype}, not {x.dtype}", hint="cast them")

    def check_extent(self, extent: Expr, updates: TensorType) -> None:
        """There must be a place for updates, if there are any."""
        if not isinstance(extent, Const):
            if not at_least(extent, 1):
                assume(n.any_of(n.le(1, extent), *(n.eq(d, 0) for d in updates.shape)))
        elif extent.value == 0 and updates.size != 0:
            raise self.fail("elements of a dimension of size 0 are to be written")

    def update(self, out: Elements, index: tuple[Expr, ...], value: Expr) -> Stmt:
        """Store an element, or combine it with the one that is there."""
        if self.reduction != "none":
            known = _LOGIC if out.dtype is BOOL else _EXPRESSIONS
            value = known[self.reduction](out[index], value)
        return out.put(index, value)

    def updated(self, x: Array, places: tuple[Array, ...], values: Array) -> Array:
        """The same by numpy, one after the other."""
        out = x.copy()
        if not out.size:
            pass
        elif self.reduction == "none":
            out[places] = values
        else:
            with np.errstate(all="ignore"):
                _NUMPY[self.reduction].at(out, places, values)
        return out


def inside(indices: Array, extent: int) -> Array:
    """What ``wrapped`` says of numbers."""
    i = indices.astype(np.int64)
    return np.maximum(0, np.minimum(np.where(i < 0, i + extent, i), extent - 1))


@dataclass(frozen=True)
class ScatterElements(_Scatter):
    """x, with each update at its own place but for ``axis``, where the index says which.

    ``reduction`` (none, add, mul, min, max) says how updates meet the elements that are there; of
    several for one element, each meets what those before left. Negative indices count from the end;
    one out of range writes the nearest element.

    Shape: x [...], indices integer [...], updates as the indices, of one rank -> x's.
    Errors: TypeCheckError if ranks or dtypes differ, or indices are larger than x.
    Source: ONNX ScatterElements-18.
    """

    name = "scatter_elements"

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        self.check(x, indices, updates)
        axis = self.resolve_axis(self.axis, x.rank)
        if not x.rank == indices.rank == updates.rank or x.rank == 0:
            raise self.fail(f"{x}, indices {indices} and updates {updates} differ in rank")
        for k, (d, e) in enumerate(zip(indices.shape, updates.shape, strict=True)):
            unify(d, e, f"dimension {k} of indices and updates differs")
        for k, (d, e) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if k != axis and isinstance(d, Const) and isinstance(e, Const) and e.value > d.value:
                raise self.fail(f"indices {indices} are larger than {x} along dimension {k}")
            if k != axis and not at_least(d, e):
                assume(n.le(e, d))
        self.check_extent(x.shape[axis], updates)
        return x

    def build(self, x: TensorType, indices: TensorType, updates: TensorType) -> Function:
        r = Routine(self.name, {"x": x, "indices": indices, "updates": updates})
        source, places, values = r.inputs.values()
        out = r.output("y", x)
        axis = self.axis % x.rank

        def step(*i: Expr) -> Stmt:
            at = wrapped(places[i], x.shape[axis])
            return self.update(out, (*i[:axis], at, *i[axis + 1 :]), values[i])

        return r.function(out.fill(lambda *i: source[i]), r.loops(indices.shape, step))

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        axis = self.axis % x.ndim
        places: list[Array] = list(np.indices(indices.shape))
        places[axis] = inside(indices, x.shape[axis])
        return self.updated(x, tuple(places), updates)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 5), ints(3, 5, low=-4, high=4), f32(3, 5)]
        yield cls(axis=1), [f32(4, 5), ints(3, 9, low=-7, high=8, dtype="int32"), f32(3, 9)]
        for reduction in REDUCTIONS[1:]:
            arrays: list[Array | None] = [f32(3, 20), ints(3, 33, low=-20, high=20), f32(3, 33)]
            yield cls(reduction, -1), arrays
            whole: list[Array | None] = [ints(5, 2, 9), ints(8, 2, 9, low=0, high=5), ints(8, 2, 9)]
            yield cls(reduction), whole
            yield cls(reduction), [bools(3), ints(9, low=0, high=3), bools(9)]
        for reduction in ("add", "max"):
            odd = special("float16")
            yield cls(reduction), [f32(4).astype(np.float16), ints(15, low=0, high=4), odd]


@dataclass(frozen=True)
class ScatterND(_Scatter):
    """x, with updates of the slices that the index tuples in the last dimension name.

    ``reduction`` (none, add, mul, min, max) says how updates meet the elements that are there; of
    several for one element, each meets what those before left. Negative indices count from the end;
    one out of range writes the nearest element.

    Shape: x [n0 ... nk, d...], indices integer [i..., k + 1], updates [i..., d...] -> x's.
    Errors: TypeCheckError if the tuples' length is not known or too great, or shapes don't fit.
    Source: ONNX ScatterND-18.
    """

    name = "scatter_nd"

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        self.check(x, indices, updates)
        if indices.rank < 1:
            raise self.fail("indices are a scalar")
        length = indices.shape[-1]
        if not isinstance(length, Const):
            raise self.fail(
                f"the length {length} of the index tuples is not known", hint=fixing(length)
            )
        if not 1 <= length.value <= x.rank:
            raise self.fail(f"index tuples of {length} for {x}")
        wanted = (*indices.shape[:-1], *x.shape[int(length.value) :])
        if updates.rank != len(wanted):
            raise self.fail(f"updates {updates} for {x} and indices {indices}")
        for k, (d, e) in enumerate(zip(wanted, updates.shape, strict=True)):
            unify(d, e, f"dimension {k} of the updates differs")
        for d in x.shape[: int(length.value)]:
            self.check_extent(d, updates)
        return x

    def build(self, x: TensorType, indices: TensorType, updates: TensorType) -> Function:
        r = Routine(self.name, {"x": x, "indices": indices, "updates": updates})
        source, tuples, values = r.inputs.values()
        out = r.output("y", x)
        (length,) = numbers(indices.shape[-1:])
        cells = [r.cell(f"at_{k}") for k in range(length)]

        def slice_at(*i: Expr) -> Stmt:
            found = [wrapped(tuples[(*i, as_expr(k))], x.shape[k]) for k in range(length)]
            place = tuple(c.now for c in cells)

            def step(*j: Expr) -> Stmt:
                return self.update(out, (*place, *j), values[(*i, *j)])

            named = (c.be(e) for c, e in zip(cells, found, strict=True))
            return seq(*named, r.loops(x.shape[length:], step))

        steps = r.loops(indices.shape[:-1], slice_at)
        return r.function(out.fill(lambda *i: source[i]), steps)

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        last = np.moveaxis(indices, -1, 0)
        places = tuple(inside(p, d) for p, d in zip(last, x.shape, strict=False))
        return self.updated(x, places, updates)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(4, 5, 2), ints(3, 2, low=-4, high=4), f32(3, 2)]
        yield cls(), [f32(4, 21), ints(2, 3, 1, low=-6, high=6, dtype="int32"), f32(2, 3, 21)]
        for reduction in REDUCTIONS[1:]:
            yield cls(reduction), [f32(4, 20), ints(9, 1, low=0, high=4), f32(9, 20)]
            yield cls(reduction), [ints(4, 3), ints(30, 2, low=-3, high=3), ints(30)]
        yield (
            cls("add"),
            [ints(7, dtype="uint8"), ints(40, 1, low=0, high=7), ints(40, dtype="uint8")],
        )
        yield cls(), [f32(3), np.array([-1]), np.array(2.5, np.float32)]


__all__ = ["REDUCTIONS", "ScatterElements", "ScatterND"]
