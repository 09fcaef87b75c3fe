"""Sizes that the data tells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.calling import MOST_SIGNED
from planish.compiler.dtypes import I32, I64
from planish.compiler.errors import RuntimeFault
from planish.compiler.expr.nodes import Const, Expr, Var, sub
from planish.compiler.graph.ir import Array, Content, TensorType

from .base import Arrays, Op, Types


@dataclass(frozen=True)
class Sizes(Op):
    """The same integers, which have values of ``symbols`` from here on.

    The rest of the graph may use them as sizes and offsets. A symbol is never negative: an integer
    that is negative is an error of the call that names ``what``, or says ``error``. If they are
    ``signed``, each takes two symbols and is their difference; one of the two is 0. In errors they
    are elements of what is called ``of``.

    Shape: integers of known number -> the same.
    Errors: TypeCheckError if the number of symbols is another.
    Source: none; what ONNX calls shapes, pads or limits that are inputs becomes symbols here.
    """

    name = "sizes"

    symbols: tuple[Expr, ...]
    what: str = "a size"
    signed: bool = False
    error: str = ""
    of: str = ""

    @property
    def failure(self) -> str:
        """What the user is told of an integer that is no size."""
        return self.error or f"{self.what} is negative or too large"

    @property
    def refuses(self) -> bool:
        return bool(self.error)

    @property
    def binds(self) -> tuple[Var, ...]:
        return tuple(s for s in self.symbols if isinstance(s, Var))

    def elements(self, x: TensorType) -> list[tuple[str, tuple[Var, ...]]]:
        """The names of the integers, and the symbols of each."""
        shape = [int(d.value) for d in x.shape if isinstance(d, Const)]
        each = len(self.symbols) // (math.prod(shape) or 1)
        out = []
        for k, place in enumerate(np.ndindex(*shape)):
            own = [s for s in self.symbols[each * k : each * (k + 1)] if isinstance(s, Var)]
            at = f"[{', '.join(map(str, place))}]" if place else ""
            out.append((f"{self.of}{at}" if self.of else own[0].name, tuple(own)))
        return out

    def infer(self, x: TensorType) -> Types:
        if x.dtype not in (I32, I64):
            raise self.fail(f"sizes of {x.dtype}")
        if x.size is None or x.size * (2 if self.signed else 1) != len(self.symbols):
            raise self.fail(f"{len(self.symbols)} symbols for {x}")
        return x

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        if not self.signed:
            return (self.symbols,)
        pairs = zip(self.symbols[::2], self.symbols[1::2], strict=True)
        return (tuple(sub(above, below) for above, below in pairs),)

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        return self.content(inputs, outputs)

    def bound(self, outputs: tuple[Array, ...]) -> dict[Var, int]:
        numbers = [int(x) for x in outputs[0].reshape(-1)]
        if self.signed:
            numbers = [max(-MOST_SIGNED, min(MOST_SIGNED, x)) for x in numbers]
            numbers = [max(0, y) for x in numbers for y in (x, -x)]
        elif min(numbers, default=0) < 0:
            raise RuntimeFault(f"{self.failure}: {numbers}", op=self.name)
        return {s: x for s, x in zip(self.symbols, numbers, strict=True) if isinstance(s, Var)}

    def reference(self, x: Array) -> Arrays:
        return x

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        a, b = Var("a"), Var("b")
        yield cls((a, b)), [np.array([3, 0], np.int64)]
        yield cls((a,)), [np.array(7, np.int32)]
        yield cls((a, b), signed=True), [np.array([-5])]
