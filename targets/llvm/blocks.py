"""Blocks: one statement, on the lanes of a vector loop or by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from planish.compiler.dtypes import I64
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import TRUE, Const, Expr, Load, Mul, substitute
from planish.compiler.loop.ir import Block, Buffer, Stmt
from planish.compiler.loop.te import COMBINERS

from .builder import Builder
from .expressions import Scope
from .isa import Isa
from .pairs import Pairs
from .values import Val, constant, first_lanes

_COMBINE: Final[dict[str, type[n.Binary]]] = {
    "sum": n.Add,
    "prod": n.Mul,
    "max": n.Max,
    "min": n.Min,
}


class Blocks(Pairs):
    """Emits blocks."""

    def __init__(
        self, builder: Builder, isa: Isa, scope: Scope, buffers: dict[str, Buffer]
    ) -> None:
        super().__init__(builder, isa, scope, buffers)
        self._on: dict[tuple[Expr, int], tuple[bool, ...] | None] = {}

    def branch(
        self, test: str, body: Stmt, then: Callable[[], None], other: Callable[[], None] | None
    ) -> None:
        """Code for both cases of a condition; ``body`` is all of it."""
        raise NotImplementedError

    def block(self, s: Block) -> None:
        if s.init is not None:
            raise InternalError("a block's init is still in it", op="llvm", node=s.name)
        if any(v is not b for v, b in s.bindings.items()):
            raise InternalError("a block's iterators are still in it", op="llvm", node=s.name)
        scalar: Expr = TRUE
        lanes: Expr = TRUE
        buffer = self.buffers[s.buffer]
        if n.loads(*s.indices) and not all(isinstance(d, Const) for d in buffer.shape):
            scalar = n.lt(0, buffer.elements)  # there is no place for any index otherwise
        for c in conjuncts(self.resolve(s.where)):
            if isinstance(c, Const):
                if not c.value:
                    return
            elif self.varies(c):
                lanes = lanes & c
            else:
                scalar = scalar & c
        if scalar is TRUE:
            self._masked(s, lanes)
            return
        hoisted = self.is_scalar_integer(scalar)
        test = self.integer(scalar)[0] if hoisted else self.value(scalar).text
        self.branch(test, s, lambda: self._masked(s, lanes), None)

    def _masked(self, s: Block, lanes: Expr) -> None:
        on = self._lanes_on(lanes)
        live = None
        if on is not None:
            if all(on):
                self._statement(s)
                return
            if sum(on) == 1 and self._better_alone(s):
                with self.single_lane(on.index(True)):
                    self._statement(s)
                return
            live = sum(on) if list(on) == sorted(on, reverse=True) else None
        if live is not None and self._better_in_pieces(s, live):
            self._in_pieces(s, live)
            return
        self.guards.append(first_lanes(live, self.scope.lanes) if live else self.value(lanes))
        self._statement(s)
        self.guards.pop()

    def _lanes_on(self, lanes: Expr) -> tuple[bool, ...] | None:
        """Which lanes a condition leaves, if that is known now."""
        count, var = self.scope.lanes, self.scope.vector
        if lanes is TRUE or var is None:
            return (True,) * count
        key = lanes, count
        if key not in self._on:
            on = [substitute(lanes, {var: Const(k, I64)}) for k in range(count)]
            known = tuple(bool(c.value) for c in on if isinstance(c, Const))
            self._on[key] = known if len(known) == count else None
        return self._on[key]

    def _better_in_pieces(self, s: Block, live: int) -> bool:
        """Whether shorter vectors are better than a masked one."""
        if self.buffers[s.buffer].scope == "register":
            return False
        return not self.isa.masks or (live < 2 and self._better_alone(s))

    def _better_alone(self, s: Block) -> bool:
        """Whether one lane must not become a masked store.

        LLVM (20 to 22) writes more than an element which has just been cut to fewer bits.
        """
        buffer = self.buffers[s.buffer]
        narrow = buffer.dtype.bits < (32 if buffer.dtype.is_float else 64)
        return narrow and buffer.scope != "register"

    def _in_pieces(self, s: Block, live: int) -> None:
        """The first lanes of a block, as vectors of 2^k lanes."""
        scope, first = self.scope, 0
        var, lanes = scope.vector, scope.lanes
        assert var is not None
        while first < live:
            size = 1 << ((live - first).bit_length() - 1)
            if size == 1:
                with self.single_lane(first):
                    self._statement(s)
            else:
                values = {var: var + first}
                scope.lanes = size
                self._statement(
                    s.with_(
                        indices=tuple(substitute(i, values) for i in s.indices),
                        value=substitute(s.value, values),
                    )
                )
                scope.lanes = lanes
            first += size

    def _statement(self, s: Block) -> None:
        buffer = self.buffers[s.buffer]
        self.place, self.own_guards = (buffer.shape, s.indices), len(self.guards)
        if s.combiner is None:
            self.store(s.buffer, s.indices, self.value(s.value), s.nontemporal)
            return
        target = Load(s.buffer, s.indices, buffer.dtype)
        if self.scope.vector is not None:
            if not any(self.varies(i) for i in s.indices):
                v = self._fold(s.combiner, self.widen(self.value(s.value), self.scope.lanes))
                with self._lanes_off():
                    acc = self.load(target)
                    self.store(s.buffer, s.indices, self.binary(_COMBINE[s.combiner], acc, v))
                return
            if self.irregular(target):
                self._one_by_one(s)
                return
        acc = self.load(target)
        value = s.value
        if s.combiner == "sum" and isinstance(value, Mul) and value.dtype.is_float:
            out = self.accumulate(self.value(value.lhs), self.value(value.rhs), acc)
        else:
            v = self.pairs(value) or self.value(value)
            lanes = max(acc.lanes, v.lanes)
            acc, v = self.widen(acc, lanes), self.widen(v, lanes)
            out = self.binary(_COMBINE[s.combiner], acc, v)
        self.store(s.buffer, s.indices, out)

    def _one_by_one(self, s: Block) -> None:
        """Update elements that may be the same one for several lanes."""
        for lane in range(self.scope.lanes):
            with self.single_lane(lane):
                guards, self.guards = self.guards, []
                update: Callable[[], None] = lambda: self._statement(s)  # noqa: E731
                test = None
                for g in guards:
                    both = f"and i1 {test}, {g.text}"
                    test = g.text if test is None else self.b.once(self.b.depth, both)
                if test is None:
                    update()
                else:
                    self.branch(test, s, update, None)

    @contextmanager
    def _lanes_off(self) -> Iterator[None]:
        """The vector loop's variable does not exist."""
        scope = self.scope
        vector, lanes, guards = scope.vector, scope.lanes, self.guards
        scope.vector, scope.lanes = None, 0
        self.guards = [g for g in guards if not g.lanes]
        try:
            yield
        finally:
            scope.vector, scope.lanes, self.guards = vector, lanes, guards

    def _fold(self, combiner: str, v: Val) -> Val:
        """The lanes of a vector combined, those that are off left out."""
        for g in self.guards:
            if g.lanes:
                neutral = constant(COMBINERS[combiner](v.dtype).value, v.dtype, v.lanes)
                v = self.choose(g, v, neutral)
        while v.lanes > 1 and v.lanes % 2 == 0:  # by halves
            half = v.lanes // 2
            parts = [self._part(v, first, half) for first in (0, half)]
            v = self.binary(_COMBINE[combiner], *parts)
        elements = [
            Val(self.b.emit(f"extractelement {v.typed}, i64 {k}"), v.dtype) for k in range(v.lanes)
        ]
        out = elements[0]
        for x in elements[1:]:
            out = self.binary(_COMBINE[combiner], out, x)
        return out

    def _part(self, v: Val, first: int, count: int) -> Val:
        lanes = ", ".join(f"i32 {k}" for k in range(first, first + count))
        text = f"shufflevector {v.typed}, {v.type} poison, <{count} x i32> <{lanes}>"
        return Val(self.b.emit(text), v.dtype, count)


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that ``and`` joins."""
    if isinstance(e, n.And):
        return conjuncts(e.lhs) + conjuncts(e.rhs)
    return [] if e is TRUE else [e]
