"""Loads, stores and register buffers.

The flat index of an access is a linear form over loop variables. Its terms are added to the base
pointer level by level, outermost first, and the constant comes last, so that an unrolled tile has
one pointer and constant offsets. In a vector loop the coefficient of the loop's variable decides: 1
is a vector access, 0 a scalar one, anything else goes lane by lane.

Where a *guard* does not hold, memory is not touched: loads read zeros from elsewhere, or are
masked. Guards are the conditions of a block on the lanes, and those of the ``select`` around a
load. Indices that are read from memory are the operators' to keep inside a buffer; that a buffer
has elements at all is tested here, and for stores in ``blocks``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import CodegenError, InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.index import recombine
from planish.compiler.expr.intervals import facts
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Const, Expr, Load, Mul, Var
from planish.compiler.loop.ir import Buffer

from .builder import Builder, Loaded
from .expressions import Expressions, Scope, free
from .isa import Isa
from .registers import Registers
from .values import Val, holds_first, lanes_type, memory_type, scalar_type, type_suffix

_Now: TypeAlias = "tuple[Expr, Var | None, tuple[Const, ...]]"


class Access(NamedTuple):
    """A place in memory: a pointer, elements after it, and between lanes (None if irregular)."""

    pointer: str
    offset: int
    stride: int | None


class Memory(Expressions):
    """Emits accesses to buffers."""

    def __init__(
        self, builder: Builder, isa: Isa, scope: Scope, buffers: dict[str, Buffer]
    ) -> None:
        super().__init__(builder, isa, scope)
        self.buffers = buffers
        self.pointers: dict[str, str] = {}
        self.registers = Registers(self, [])
        self.place: tuple[tuple[Expr, ...], tuple[Expr, ...]] = (
            (),
            (),
        )  # shape and indices of what is stored
        self.own_guards = 0  # how many of the guards are the block's
        self._flat: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        self._indirect: dict[Load, bool] = {}
        self.streams = False  # whether there are stores past the caches
        self._register_at: dict[_Now, tuple[int, int]] = {}
        self._irregular: dict[_Now, bool] = {}

    def pointer(self, name: str) -> str:
        """The address of a buffer."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- addresses

    def flat(self, name: str, indices: tuple[Expr, ...]) -> Expr:
        key = (name, indices)
        found = self._flat.get(key)
        if found is None:
            found = Const(0, I64)
            for i, s in zip(indices, self.buffers[name].strides, strict=True):
                found = found + i * s
            found = recombine(linear(found), facts()).expr()  # x // c * c + x % c is x
            self._flat[key] = found
        return found

    def _terms(self, e: Expr, scale: int, out: list[tuple[int, Expr]]) -> int:
        """Append (coefficient, atom) with unrolled variables resolved; give the constant part."""
        form = linear(e)
        total = form.constant * scale
        consts = self.scope.consts
        for atom, coefficient in form.terms.items():
            if (known := consts.get(atom)) is not None:  # type: ignore[call-overload]
                total += known.value * coefficient * scale
                continue
            resolved = self.resolve(atom)
            if isinstance(resolved, Const):
                total += int(resolved.value) * coefficient * scale
            elif resolved is atom:
                out.append((coefficient * scale, atom))
            else:
                total += self._terms(resolved, coefficient * scale, out)
        return total

    def access(self, name: str, indices: tuple[Expr, ...]) -> Access:
        """Where an element is, all but the lanes' part."""
        terms: list[tuple[int, Expr]] = []
        offset = self._terms(self.flat(name, indices), 1, terms)
        stride = 0
        levels: dict[int, list[str]] = {}
        for coefficient, atom in terms:
            if self.varies(atom):
                if atom is not self.scope.vector:
                    return Access("", 0, None)
                stride += coefficient
                continue
            if self.is_scalar_integer(atom):
                text, level = self._term(atom)
            else:
                text, level = self.value(atom).text, self.b.depth
            if coefficient != 1:
                text = self.b.once(level, f"mul nsw i64 {text}, {coefficient}")
            levels.setdefault(level, []).append(text)
        pointer = self.pointer(name)
        element = memory_type(self.buffers[name].dtype)
        for level in sorted(levels):
            first, *rest = levels[level]
            for text in rest:
                first = self.b.once(level, f"add nsw i64 {first}, {text}")
            pointer = self.b.once(level, f"getelementptr {element}, ptr {pointer}, i64 {first}")
        return Access(pointer, offset, stride)

    def irregular(self, e: Load) -> bool:
        """Whether no fixed step is between the lanes' elements: they may be the same one."""
        flat = self.flat(e.buffer, e.indices)
        key = self._now(flat)
        found = self._irregular.get(key)
        if found is None:
            terms: list[tuple[int, Expr]] = []
            self._terms(flat, 1, terms)
            moving = [(c, atom) for c, atom in terms if self.varies(atom)]
            elsewhere = any(atom is not self.scope.vector for _, atom in moving)
            found = self._irregular[key] = elsewhere or not sum(c for c, _ in moving)
        return found

    def _now(self, e: Expr) -> _Now:
        """An expression, and all of the present loops that it depends on."""
        consts = self.scope.consts
        return e, self.scope.vector, tuple([consts[v] for v in free(e) if v in consts])

    def _term(self, atom: Expr) -> tuple[str, int]:
        """An atom's operand; a product is built from its outermost factors inwards."""
        if isinstance(atom, Mul):
            a, b = self._term(atom.lhs), self._term(atom.rhs)
            level = max(a[1], b[1])
            return self.b.once(level, f"mul nsw i64 {a[0]}, {b[0]}"), level
        return self.integer(atom)

    def _at(self, name: str, access: Access, lane: int = 0) -> str:
        offset = access.offset + lane
        if not offset:
            return access.pointer
        element = memory_type(self.buffers[name].dtype)
        return self.b.emit(f"getelementptr {element}, ptr {access.pointer}, i64 {offset}")

    # --------------------------------------------------------------------------------- loads

    def load(self, e: Load) -> Val:
        buffer = self.buffers.get(e.buffer)
        if buffer is None:
            raise InternalError(f"there is no buffer {e.buffer}", op="llvm")
        if buffer.scope == "register":
            return self._read_register(buffer, e)
        guards = self._needed(buffer, e)
        if self._data_dependent(e):
            return self._load(buffer, e, guards)
        now = (buffer.name, *self._now(e), self.scope.lanes)
        if (known := self._loaded(now, guards)) is not None:
            return known
        out = self._load(buffer, e, guards)
        self._keep(now, guards, out)
        return out

    def _needed(self, buffer: Buffer, e: Load) -> tuple[Val, ...]:
        """The guards of a load; of an element that lies as the stored one does, the block's."""
        beside = self.place == (buffer.shape, e.indices)
        return tuple(self.guards[: self.own_guards] if beside else self.guards)

    def _loaded(self, key: tuple[Hashable, ...], guards: tuple[Val, ...]) -> Val | None:
        """What was loaded already, under the same guards or fewer."""
        best: Loaded | None = None
        for level in self.b.levels:
            for found in level.loaded.get(key, ()):
                fewer = len(found[0])
                if guards[:fewer] == found[0] and (best is None or fewer < len(best[0])):
                    best = found
        return best and best[1]

    def _keep(self, key: tuple[Hashable, ...], guards: tuple[Val, ...], out: Val) -> None:
        """Have ``_loaded`` find a value."""
        self.b.level.loaded.setdefault(key, []).append((guards, out))

    def all_of(self, conditions: Iterable[Val]) -> Val | None:
        """Whether all hold, or None if there are none.

        Loads have the guards of those before them and more, and share what is known of those.
        """
        out: Val | None = None
        for c in conditions:
            text = "" if out is None else f"and {out.typed}, {c.text}"
            out = c if out is None else Val(self.b.once(self.b.depth, text), BOOL, c.lanes)
        return out

    def guarded_pointer(self, pointer: str, guards: Iterable[Val], size: int) -> str:
        """Where to load ``size`` bytes: from zeros where not every guard holds for some lane."""
        some = [Val(self._any(g), BOOL) for g in guards if not holds_first(g)]
        if (test := self.all_of(some)) is None:
            return pointer
        zeros = self.b.module.zeros(size)
        return self.b.emit(f"select {test.typed}, ptr {pointer}, ptr {zeros}")

    def _load(self, buffer: Buffer, e: Load, guards: tuple[Val, ...]) -> Val:
        if self.scope.lanes and self._data_dependent(e) and self._lanes_differ(e.indices):
            return self._gather(e)
        access = self.access(e.buffer, e.indices)
        if access.stride is None or access.stride not in (0, 1):
            return self._gather(e)
        lanes = self.scope.lanes if access.stride == 1 else 0
        key = (buffer.name, access.pointer, access.offset, lanes)
        if (found := self._loaded(key, guards)) is not None:
            return found
        more = guards
        if self._data_dependent(e) and not all(isinstance(d, Const) for d in buffer.shape):
            some, _ = self.integer(n.lt(0, buffer.elements))
            more = (*guards, Val(some, BOOL))
        out = self._load_at(buffer, self._at(buffer.name, access), lanes, more)
        self._keep(key, guards, out)
        return out

    def _data_dependent(self, e: Load) -> bool:
        """Whether where it reads depends on data."""
        found = self._indirect.get(e)
        if found is None:
            found = self._indirect[e] = bool(n.loads(*e.indices))
        return found

    def _lanes_differ(self, indices: tuple[Expr, ...]) -> bool:
        return any(self.varies(i) for i in indices)

    def _load_at(self, buffer: Buffer, pointer: str, lanes: int, guards: tuple[Val, ...]) -> Val:
        """A load under guards."""
        element, size = memory_type(buffer.dtype), buffer.dtype.bytes
        align = buffer.dtype.alignment
        t = lanes_type(element, lanes)
        mask = self.all_of(g for g in guards if g.lanes and lanes)
        others = (g for g in guards if not (g.lanes and lanes))
        pointer = self.guarded_pointer(pointer, others, size * max(1, lanes))
        if mask is not None:
            name = f"llvm.masked.load.{type_suffix(element, lanes)}.p0"
            self.b.module.declare(name, t, "ptr", f"<{lanes} x i1>", t)
            text = self.b.emit(
                f"call {t} @{name}(ptr align {align} {pointer}, {mask.typed}, {t} zeroinitializer)"
            )
        else:
            text = self.b.emit(f"load {t}, ptr {pointer}, align {align}")
        if buffer.dtype is BOOL:
            zero = "zeroinitializer" if lanes else "0"
            text = self.b.emit(f"icmp ne {t} {text}, {zero}")
        return Val(text, buffer.dtype, lanes)

    def _any(self, g: Val) -> str:
        """Whether a guard holds for any lane."""
        if not g.lanes:
            return g.text
        name = f"llvm.vector.reduce.or.v{g.lanes}i1"
        self.b.module.declare(name, "i1", g.type)
        return self.b.once(self.b.depth, f"call i1 @{name}({g.typed})")

    def _gather(self, e: Load) -> Val:
        """A vector whose lanes are loaded one by one."""
        lanes = self.scope.lanes
        element = scalar_type(e.dtype)
        t = lanes_type(element, lanes)
        out = "poison"
        for lane in range(lanes):
            with self.single_lane(lane):
                v = self.load(e)
            out = self.b.emit(f"insertelement {t} {out}, {element} {v.text}, i64 {lane}")
        return Val(out, e.dtype, lanes)

    @contextmanager
    def single_lane(self, lane: int) -> Iterator[None]:
        """The vector loop's variable as a constant, guards reduced to that lane."""
        scope = self.scope
        var, lanes, guards = scope.vector, scope.lanes, self.guards
        assert var is not None
        depth = self.b.depth
        self.guards = [
            Val(self.b.once(depth, f"extractelement {g.typed}, i64 {lane}"), BOOL) if g.lanes else g
            for g in guards
        ]
        memo, self.memo = self.memo, []
        scope.consts[var], scope.vector, scope.lanes = Const(lane, I64), None, 0
        try:
            yield
        finally:
            scope.vector, scope.lanes, self.guards, self.memo = var, lanes, guards, memo
            del scope.consts[var]

    # -------------------------------------------------------------------------------- stores

    def store(
        self, name: str, indices: tuple[Expr, ...], v: Val, nontemporal: bool = False
    ) -> None:
        """Write a value, under the present guards; past the caches where that is possible."""
        buffer = self.buffers[name]
        if buffer.scope == "register":
            self._write_register(buffer, indices, v)
            return
        access = self.access(name, indices)
        lanes = self.scope.lanes
        if lanes and access.stride == 1:
            align = 0
            if nontemporal and buffer.dtype.bytes * lanes % 16 == 0:
                align = self._alignment(buffer, indices, access)
            self._store_at(buffer, self._at(name, access), self.widen(v, lanes), align)
        elif lanes and access.stride != 0:
            self._scatter(name, indices, self.widen(v, lanes))
        elif v.lanes:
            raise CodegenError(f"every lane stores to one element of {name}", op="llvm")
        else:
            self._store_at(buffer, self._guarded_place(self._at(name, access)), v)
        self.forget(name)

    def forget(self, name: str) -> None:
        """Drop what was loaded from a buffer that is written."""
        for level in self.b.levels:
            if level.loaded:
                for key in [k for k in level.loaded if k[0] == name]:
                    del level.loaded[key]

    def _alignment(self, buffer: Buffer, indices: tuple[Expr, ...], access: Access) -> int:
        """Bytes that a vector's address is a multiple of, if those are at least its size, else 0.

        Results are aligned by their caller.
        """
        terms: list[tuple[int, Expr]] = []
        offset = self._terms(self.flat(buffer.name, indices), 1, terms)
        size = min(64, buffer.dtype.bytes * self.scope.lanes)
        steps = [c for c, atom in terms if atom is not self.scope.vector]
        aligned = all(x * buffer.dtype.bytes % size == 0 for x in (offset, *steps))
        return size if aligned else 0

    def _store_at(self, buffer: Buffer, pointer: str, v: Val, nontemporal: int = 0) -> None:
        """A store under the present guards.

        ``nontemporal`` is the alignment in bytes of one past the caches, 0 for another.
        """
        align = buffer.dtype.alignment
        if buffer.dtype is BOOL:
            t = lanes_type("i8", v.lanes)
            typed = f"{t} {self.b.emit(f'zext {v.typed} to {t}')}"
        else:
            t, typed = v.type, v.typed
        masks = [g for g in self.guards if g.lanes]
        if not masks or not v.lanes:
            if nontemporal:
                hint = self.b.module.nontemporal()
                self.streams = True
                self.b.line(
                    f"store {typed}, ptr {pointer}, align {nontemporal}, !nontemporal {hint}"
                )
            else:
                self.b.line(f"store {typed}, ptr {pointer}, align {align}")
            return
        mask = masks[0]
        for g in masks[1:]:
            mask = self.binary(n.And, mask, g)
        name = f"llvm.masked.store.{type_suffix(memory_type(buffer.dtype), v.lanes)}.p0"
        self.b.module.declare(name, "void", t, "ptr", f"<{v.lanes} x i1>")
        self.b.line(f"call void @{name}({typed}, ptr align {align} {pointer}, {mask.typed})")

    def _scatter(self, name: str, indices: tuple[Expr, ...], v: Val) -> None:
        buffer = self.buffers[name]
        for lane in range(v.lanes):
            element = Val(self.b.emit(f"extractelement {v.typed}, i64 {lane}"), v.dtype)
            with self.single_lane(lane):
                access = self.access(name, indices)
                self._store_at(buffer, self._guarded_place(self._at(name, access)), element)

    def _guarded_place(self, pointer: str) -> str:
        """Where one element is stored; where nobody reads if a guard does not hold."""
        for g in self.guards:
            if holds_first(g):
                continue
            pointer = self.b.emit(f"select i1 {self._any(g)}, ptr {pointer}, ptr {self.sink()}")
        return pointer

    def sink(self) -> str:
        """Memory of this call that nobody reads."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- registers

    def _register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, int]:
        """The constant flat index of a register element, and its stride over lanes."""
        flat = self.flat(buffer.name, indices)
        key = self._now(flat)
        found = self._register_at.get(key)
        if found is None:
            found = self._register_at[key] = self._find_register(buffer, indices, flat)
        return found

    def _find_register(
        self, buffer: Buffer, indices: tuple[Expr, ...], flat: Expr
    ) -> tuple[int, int]:
        terms: list[tuple[int, Expr]] = []
        offset = self._terms(flat, 1, terms)
        stride = 0
        for coefficient, atom in terms:
            if atom is not self.scope.vector:
                node = f"{buffer.name}[{', '.join(map(str, indices))}]  ({atom} varies)"
                self.registers.refuse(buffer.name, "its index is not constant", node)
            stride += coefficient
        return offset, stride

    def _read_register(self, buffer: Buffer, e: Load) -> Val:
        at, stride = self._register(buffer, e.indices)
        return self.registers.read(
            buffer.name, buffer.dtype, at, stride, self.scope.lanes if stride else 0
        )

    def _write_register(self, buffer: Buffer, indices: tuple[Expr, ...], v: Val) -> None:
        at, stride = self._register(buffer, indices)
        lanes = self.scope.lanes if stride else 0
        if stride not in (0, 1):
            self.registers.refuse(buffer.name, "lanes are no neighbours in it")
        if v.lanes and not lanes:
            raise CodegenError(f"every lane stores to one element of {buffer.name}", op="llvm")
        v = self.widen(v, lanes)
        masks = [g for g in self.guards if g.lanes]
        held = self.registers.held(buffer.name, at, lanes) if masks and lanes else 0
        if held not in (0, lanes):
            self.registers.refuse(buffer.name, "some lanes of it are written, others are not")
        if held:
            old = self.registers.read(buffer.name, buffer.dtype, at, stride, lanes)
            for g in masks:  # lanes that are off keep what they have
                v = self.choose(g, v, old)
        self.registers.write(buffer.name, at, v)


__all__ = ["Access", "Memory", "free"]
