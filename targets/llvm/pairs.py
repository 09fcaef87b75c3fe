"""Sums of two products of 16-bit integers, by the instructions that make them of neighbours.

One operand is two neighbours in memory that all lanes share, the other two neighbours for each
lane, lane by lane: ``x[2k] * w[k, i, 0] + x[2k + 1] * w[k, i, 1]``. Narrower integers are widened.
"""

from __future__ import annotations

from typing import TypeAlias

from planish.compiler.dtypes import I8, I16, I32, U8, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Add, Cast, Expr, Load, Mul

from .memory import Access, Memory
from .values import Val, lanes_type, scalar_type, type_suffix

_NARROW: tuple[DType, ...] = (I8, U8, I16)
_Two: TypeAlias = tuple[Load, Load]


class Pairs(Memory):
    """Emits sums of two products."""

    def pairs(self, e: Expr) -> Val | None:
        """The sum, if it is one of these and there is an instruction for it."""
        lanes = self.scope.lanes
        name = self.isa.pairs(lanes)
        if name is None or not isinstance(e, Add) or e.dtype is not I32:
            return None
        first, second = _factors(e.lhs), _factors(e.rhs)
        if first is None or second is None:
            return None
        for a, b in (first, first[::-1]):
            left = next((x for x in second if x.buffer == a.buffer), None)
            if left is None:
                continue
            right = second[1] if left is second[0] else second[0]
            shared, own = self._neighbours((a, left), 0), self._neighbours((b, right), 2)
            if shared is not None and own is not None:
                return self._sum(name, (a, shared), (b, own))
        return None

    def _neighbours(self, two: _Two, stride: int) -> Access | None:
        """Where two elements are, if the second lies behind the first, in every lane."""
        first, second = two
        if first.buffer != second.buffer or self.buffers[first.buffer].scope == "register":
            return None
        if any(n.loads(*x.indices) for x in two):
            return None
        a, b = (self.access(x.buffer, x.indices) for x in two)
        near = a.pointer == b.pointer and b.offset == a.offset + 1
        return a if near and a.stride == b.stride == stride else None

    def _sum(self, name: str, left: tuple[Load, Access], right: tuple[Load, Access]) -> Val:
        lanes = self.scope.lanes
        x, w = self._pair(*left, 0), self._pair(*right, lanes)
        word = self.b.once(self.b.depth, f"bitcast {x.typed} to i32")
        spread = self.widen(Val(word, I32), lanes)
        wide = lanes_type("i16", 2 * lanes)
        both = self.b.once(self.b.depth, f"bitcast {spread.typed} to {wide}")
        t = lanes_type("i32", lanes)
        self.b.module.declare(name, t, wide, wide)
        return Val(self.b.emit(f"call {t} @{name}({wide} {both}, {w.typed})"), I32, lanes)

    def _pair(self, e: Load, access: Access, lanes: int) -> Val:
        """Two elements, or two for each of the lanes, in i16; zeros where a guard does not hold."""
        buffer, count = self.buffers[e.buffer], 2 * max(1, lanes)
        guards = self._needed(buffer, e)
        key = (buffer.name, "pair", access.pointer, access.offset, lanes)
        found = self._loaded(key, guards)
        if found is None:
            found = self._load_pair(buffer.dtype, self._at(buffer.name, access), count, guards)
            found = self.convert(found, I16)
            self._keep(key, guards, found)
        return found

    def _load_pair(self, dtype: DType, pointer: str, count: int, guards: tuple[Val, ...]) -> Val:
        element = scalar_type(dtype)
        mask = self.all_of(self._doubled(g) for g in guards if g.lanes and count > 2)
        others = (g for g in guards if not (g.lanes and count > 2))
        pointer = self.guarded_pointer(pointer, others, dtype.bytes * count)
        t, align = lanes_type(element, count), dtype.alignment
        if mask is None:
            return Val(self.b.emit(f"load {t}, ptr {pointer}, align {align}"), dtype, count)
        name = f"llvm.masked.load.{type_suffix(element, count)}.p0"
        self.b.module.declare(name, t, "ptr", f"<{count} x i1>", t)
        text = f"call {t} @{name}(ptr align {align} {pointer}, {mask.typed}, {t} zeroinitializer)"
        return Val(self.b.emit(text), dtype, count)

    def _doubled(self, g: Val) -> Val:
        """A condition on lanes for two elements of each."""
        order = ", ".join(f"i32 {k // 2}" for k in range(2 * g.lanes))
        text = f"shufflevector {g.typed}, {g.type} poison, <{2 * g.lanes} x i32> <{order}>"
        return Val(self.b.once(self.b.depth, text), g.dtype, 2 * g.lanes)


def _factors(e: Expr) -> _Two | None:
    """The two elements of a product, if both are narrow integers."""
    if not isinstance(e, Mul):
        return None
    sides = (_bare(e.lhs), _bare(e.rhs))
    if not all(isinstance(x, Load) and x.dtype in _NARROW for x in sides):
        return None
    first, second = sides
    assert isinstance(first, Load) and isinstance(second, Load)
    return first, second


def _bare(e: Expr) -> Expr:
    """What a cast to i32 is of."""
    while isinstance(e, Cast) and e.dtype in (I16, I32) and not e.operand.dtype.is_float:
        e = e.operand
    return e


__all__ = ["Pairs"]
