"""Padding: elements around a tensor, made up or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from planish.compiler.dtypes import STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, normal, numbers
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op, assume, some_to_read
from .sampling import f32
from .shape import Movement, sizes
from .windows import check_most

Scalar = int | float | bool

PAD_MODES: Final = ("constant", "reflect", "edge", "wrap")


@dataclass(frozen=True)
class Pad(Movement):
    """Elements added at both ends of each dimension, or taken away where a number is negative.

    ``constant``: the second input's number, else ``fill``. ``reflect``: mirrored at the first and
    last element, which are not repeated. ``edge``: the nearest. ``wrap``: from the other end.

    Shape: x [d0, ...], value [] or [1] or none -> [before[0] + d0 + after[0], ...].
    Errors: TypeCheckError for an unknown mode, and where there is nothing to mirror or repeat.
    Source: ONNX Pad-25.
    """

    name = "pad"
    data_inputs: ClassVar[int | None] = 1

    before: tuple[Expr, ...]
    after: tuple[Expr, ...]
    mode: str = "constant"
    fill: Scalar = 0

    def infer(self, x: TensorType, value: TensorType | None = None) -> TensorType:
        if self.mode not in PAD_MODES:
            raise self.fail(f"there is no mode {self.mode}", hint="one of " + ", ".join(PAD_MODES))
        if not x.rank == len(self.before) == len(self.after):
            raise self.fail(f"{len(self.before)} and {len(self.after)} pads for {x}")
        check_most(self, "the pads", (*self.before, *self.after))
        if value is not None and (value.dtype is not x.dtype or value.size != 1):
            raise self.fail(f"the value {value} is no number of {x.dtype}")
        if x.dtype is STRING and value is None and self.mode == "constant":
            raise self.fail("strings are padded with a value that is given")
        shape = [
            normal(b + d + a) for b, d, a in zip(self.before, x.shape, self.after, strict=True)
        ]
        for d, s in zip(x.shape, shape, strict=True):
            if isinstance(s, Const) and s.value < 0:
                raise self.fail(f"more than the {d} elements of a dimension of {x} are taken away")
        if self.mode != "constant":
            for b, d, a, s in zip(self.before, x.shape, self.after, shape, strict=True):
                self.check_some(b, d, a, s)
        return x.with_shape(shape)

    def check_some(self, before: Expr, extent: Expr, after: Expr, new: Expr) -> None:
        """There must be an element to mirror or repeat in a dimension that gets any."""
        if at_least(0, before) and at_least(0, after):
            return
        some = some_to_read(extent, new)
        if some is n.FALSE:
            raise self.fail(f"a dimension of size {extent} has nothing to {self.mode}")
        assume(some)

    def compute(self, x: te.Tensor, value: te.Tensor | None = None) -> te.Tensor:
        shape = [
            normal(b + d + a) for b, d, a in zip(self.before, x.shape, self.after, strict=True)
        ]

        def element(*i: Expr) -> Expr:
            places = [k - b for k, b in zip(i, self.before, strict=True)]
            if self.mode != "constant":
                index = zip(places, self.before, self.after, x.shape, strict=True)
                return x[tuple(self.place(*p) for p in index)]
            inside = []
            for k, b, a, d in zip(places, self.before, self.after, x.shape, strict=True):
                if not at_least(0, b):
                    inside.append(k >= 0)
                if not at_least(0, a):
                    inside.append(k < d)
            fill = n.const(self.fill, x.dtype) if value is None else value[(0,) * value.rank]
            return n.select(n.all_of(*inside), x[tuple(places)], fill)

        return te.compute(shape, element, self.name)

    def place(self, k: Expr, before: Expr, after: Expr, extent: Expr) -> Expr:
        """The element that stands at place k of an extended dimension."""
        low, high = at_least(0, before), at_least(0, after)
        if low and high:
            return k
        if self.mode == "edge":
            k = k if high else n.minimum(k, extent - 1)
            return k if low else n.maximum(k, 0)
        if self.mode == "wrap":
            return n.floormod(k, extent)
        last = normal(extent - 1)
        if at_least(last, before) and at_least(last, after):
            k = k if low else n.select(k < 0, 0 - k, k)
            return k if high else n.select(k > last, last * 2 - k, k)
        period = normal(n.maximum(last * 2, 1))
        k = n.floormod(k, period)
        return n.minimum(k, period - k) if last is not as_expr(0) else as_expr(0)

    def reference(self, x: Array, value: Array | None = None) -> Array:
        before, after = numbers(self.before), numbers(self.after)
        if self.mode == "constant":
            widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
            fill = (
                self.fill
                if value is None
                else value.reshape(()).item()
                if x.dtype != object
                else value
            )
            padded = np.pad(x, widths, constant_values=np.asarray(fill).astype(x.dtype))
            ends = zip(before, padded.shape, after, strict=True)
            return padded[tuple(slice(max(-b, 0), d - max(-a, 0)) for b, d, a in ends)]
        for axis, (b, d, a) in enumerate(zip(before, x.shape, after, strict=True)):
            if max(b, a) > 0:
                line = np.pad(np.arange(d), (max(b, 0), max(a, 0)), mode=self.mode)  # type: ignore[call-overload]
            else:
                line = np.arange(d)
            x = np.take(x, line[max(-b, 0) : len(line) - max(-a, 0)], axis)
        return x

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(sizes(0, 2), sizes(1, 0)), [f32(3, 5)]
        yield cls(sizes(1, -1), sizes(0, 2), fill=1.5), [f32(3, 5)]
        yield cls(sizes(1, 1), sizes(1, -2)), [f32(3, 5), np.array([7.0], np.float32)]
        yield cls(sizes(2, 3), sizes(1, 4), "reflect"), [f32(3, 5)]
        yield cls(sizes(5, 0), sizes(7, 2), "reflect"), [f32(3, 5)]
        yield cls(sizes(2), sizes(3), "reflect"), [f32(1)]
        yield cls(sizes(2, 0), sizes(1, 6), "edge"), [f32(3, 5)]
        yield cls(sizes(4, 1), sizes(1, -1), "wrap"), [f32(3, 5)]
