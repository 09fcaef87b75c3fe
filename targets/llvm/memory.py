"""Loads, stores and register buffers.

The flat index of an access is a linear form over loop variables. Its terms are added to the base pointer level by
level, outermost first, and the constant comes last, so that an unrolled tile has one pointer and constant
offsets. In a vector loop the coefficient of the loop's variable decides: 1 is a vector access, 0 a scalar one, anything else
goes lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import CodegenError, InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Const, Expr, Load, Mul
from planish.compiler.loop.ir import Buffer

from .builder import Builder
from .expressions import Expressions, Scope, free
from .isa import Isa
from .values import Val, lanes_type, memory_type, scalar_type

ZEROS: Final = "@planish_zeros"  # where a load that must not happen reads instead


class Access(NamedTuple):
    """A place in memory: a pointer and elements after it; ``stride`` in elements between lanes, None if irregular."""

    pointer: str
    offset: int
    stride: int | None


class Memory(Expressions):
    """Emits accesses to buffers."""

    def __init__(self, builder: Builder, isa: Isa, scope: Scope, buffers: dict[str, Buffer]) -> None:
        super().__init__(builder, isa, scope)
        self.buffers = buffers
        self.pointers: dict[str, str] = {}
        self.registers: dict[tuple[str, int], Val] = {}
        self.guards: list[Val] = []
        self._flat: dict[tuple[str, tuple[Expr, ...]], Expr] = {}
        self._indirect: dict[Load, bool] = {}
        self._register_at: dict[tuple[Expr, tuple[Const, ...]], tuple[int, int]] = {}

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
        consts = self.scope.consts
        now = (buffer.name, e, tuple([consts[v] for v in free(e) if v in consts]), tuple(self.guards))
        for level in self.b.levels:  # the same element, seen already
            if (known := level.loaded.get(now)) is not None:
                return known
        out = self._load(buffer, e)
        self.b.level.loaded[now] = out
        return out

    def _load(self, buffer: Buffer, e: Load) -> Val:
        if self.scope.lanes and self._data_dependent(e) and self._lanes_differ(e.indices):
            return self._gather(e)
        access = self.access(e.buffer, e.indices)
        if access.stride is None or access.stride not in (0, 1):
            return self._gather(e)
        lanes = self.scope.lanes if access.stride == 1 else 0
        key = (buffer.name, access.pointer, access.offset, lanes, tuple(self.guards))
        for level in self.b.levels:
            if (found := level.loaded.get(key)) is not None:
                return found
        out = self._load_at(buffer, self._at(buffer.name, access), lanes)
        self.b.level.loaded[key] = out
        return out

    def _data_dependent(self, e: Load) -> bool:
        """Whether where it reads depends on data."""
        found = self._indirect.get(e)
        if found is None:
            found = self._indirect[e] = bool(n.loads(*e.indices))
        return found

    def _lanes_differ(self, indices: tuple[Expr, ...]) -> bool:
        return any(self.varies(i) for i in indices)

    def _load_at(self, buffer: Buffer, pointer: str, lanes: int) -> Val:
        """A load under the present guards."""
        element = memory_type(buffer.dtype)
        t = lanes_type(element, lanes)
        mask: Val | None = None
        for g in self.guards:
            if not g.lanes:
                pointer = self.b.emit(f"select i1 {g.text}, ptr {pointer}, ptr {ZEROS}")
            elif not lanes:
                continue  # one lane at least is live: a block whose lanes are all off is not run
            else:
                mask = g if mask is None else self.binary(n.And, mask, g)
        if mask is not None:
            name = f"llvm.masked.load.v{lanes}{_short(element)}.p0"
            self.b.module.declare(name, t, "ptr", f"<{lanes} x i1>", t)
            align = max(1, buffer.dtype.bits // 8)
            text = self.b.emit(
                f"call {t} @{name}(ptr align {align} {pointer}, <{lanes} x i1> {mask.text}, {t} zeroinitializer)"
            )
        else:
            text = self.b.emit(f"load {t}, ptr {pointer}, align {max(1, buffer.dtype.bits // 8)}")
        if buffer.dtype is BOOL:
            zero = "zeroinitializer" if lanes else "0"
            text = self.b.emit(f"icmp ne {t} {text}, {zero}")
        return Val(text, buffer.dtype, lanes)

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
        self.guards = [
            Val(self.b.emit(f"extractelement {g.typed}, i64 {lane}"), BOOL) if g.lanes else g
            for g in guards
        ]
        scope.consts[var], scope.vector, scope.lanes = Const(lane, I64), None, 0
        try:
            yield
        finally:
            scope.vector, scope.lanes, self.guards = var, lanes, guards
            del scope.consts[var]

    def guarded(self, condition: Val, negate: bool, e: Expr) -> Val:
        if not n.loads(e):
            return self.value(e)
        if negate:
            one = "splat (i1 true)" if condition.lanes else "true"
            condition = Val(self.b.emit(f"xor {condition.typed}, {one}"), BOOL, condition.lanes)
        self.guards.append(condition)
        try:
            return self.value(e)
        finally:
            self.guards.pop()

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
            if nontemporal and buffer.dtype.bits * lanes % 128 == 0:
                align = self._alignment(buffer, indices, access)
            self._store_at(buffer, self._at(name, access), self.widen(v, lanes), align)
        elif lanes and access.stride != 0:
            self._scatter(name, indices, self.widen(v, lanes))
        elif v.lanes:
            raise CodegenError(f"every lane stores to one element of {name}", op="llvm")
        else:
            self._store_at(buffer, self._at(name, access), v)
        self.forget(name)

    def forget(self, name: str) -> None:
        """Drop what was loaded from a buffer that is written."""
        for level in self.b.levels:
            if level.loaded:
                for key in [k for k in level.loaded if k[0] == name]:
                    del level.loaded[key]

    def _alignment(self, buffer: Buffer, indices: tuple[Expr, ...], access: Access) -> int:
        """Bytes that a vector's address is a multiple of, if it is at least the vector: results are aligned
        by their caller."""
        terms: list[tuple[int, Expr]] = []
        offset = self._terms(self.flat(buffer.name, indices), 1, terms)
        size = buffer.dtype.bytes * self.scope.lanes
        steps = [c for c, atom in terms if atom is not self.scope.vector]
        aligned = all(x * buffer.dtype.bytes % size == 0 for x in (offset, *steps))
        return size if aligned and size <= 64 else 0

    def _store_at(self, buffer: Buffer, pointer: str, v: Val, nontemporal: int = 0) -> None:
        """A store under the present guards; ``nontemporal``: the alignment in bytes of one past the caches."""
        align = max(1, buffer.dtype.bits // 8)
        if buffer.dtype is BOOL:
            t = lanes_type("i8", v.lanes)
            typed = f"{t} {self.b.emit(f'zext {v.typed} to {t}')}"
        else:
            t, typed = v.type, v.typed
        masks = [g for g in self.guards if g.lanes]
        if not masks or not v.lanes:
            if nontemporal:
                hint = self.b.module.nontemporal()
                self.b.line(f"store {typed}, ptr {pointer}, align {nontemporal}, !nontemporal {hint}")
            else:
                self.b.line(f"store {typed}, ptr {pointer}, align {align}")
            return
        mask = masks[0]
        for g in masks[1:]:
            mask = self.binary(n.And, mask, g)
        name = f"llvm.masked.store.v{v.lanes}{_short(memory_type(buffer.dtype))}.p0"
        self.b.module.declare(name, "void", t, "ptr", f"<{v.lanes} x i1>")
        self.b.line(f"call void @{name}({typed}, ptr align {align} {pointer}, {mask.typed})")

    def _scatter(self, name: str, indices: tuple[Expr, ...], v: Val) -> None:
        buffer = self.buffers[name]
        for lane in range(v.lanes):
            element = Val(self.b.emit(f"extractelement {v.typed}, i64 {lane}"), v.dtype)
            with self.single_lane(lane):
                access = self.access(name, indices)
                pointer = self._at(name, access)
                for g in self.guards:  # a lane that is off writes where nobody reads
                    sink = self.sink()
                    pointer = self.b.emit(f"select i1 {g.text}, ptr {pointer}, ptr {sink}")
                plain, self.guards = self.guards, []
                self._store_at(buffer, pointer, element)
                self.guards = plain

    def sink(self) -> str:
        """Memory of this call that nobody reads."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------- registers

    def _register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, int]:
        """The constant flat index of a register element, and its stride over lanes."""
        flat = self.flat(buffer.name, indices)
        consts = self.scope.consts
        key = (flat, tuple([consts[v] for v in free(flat) if v in consts]))
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
                raise CodegenError(
                    f"{buffer.name} is kept in registers, but its index is not constant",
                    op="llvm",
                    node=f"{buffer.name}[{', '.join(map(str, indices))}]  ({atom} varies)",
                    hint="unroll the loops over it",
                )
            stride += coefficient
        return offset, stride

    def _read_register(self, buffer: Buffer, e: Load) -> Val:
        at, stride = self._register(buffer, e.indices)
        lanes = self.scope.lanes if stride else 0
        found = self.registers.get((buffer.name, at))
        if found is not None and found.lanes == lanes and stride in (0, 1):
            return found
        if not lanes:
            return self._element(buffer, at)
        return self._lanes_at(buffer, at, lanes, stride)

    def _lanes_at(self, buffer: Buffer, at: int, lanes: int, stride: int = 1) -> Val:
        """So many elements of a register buffer as a vector."""
        found = self.registers.get((buffer.name, at))
        if found is not None and found.lanes == lanes and stride == 1:
            return found
        t = lanes_type(scalar_type(buffer.dtype), lanes)
        out = "poison"
        for lane in range(lanes):
            v = self._element(buffer, at + stride * lane)
            out = self.b.emit(f"insertelement {t} {out}, {v.typed}, i64 {lane}")
        return Val(out, buffer.dtype, lanes)

    def _element(self, buffer: Buffer, at: int) -> Val:
        for start in range(at, -1, -1):
            found = self.registers.get((buffer.name, start))
            if found is None:
                continue
            if not found.lanes and start == at:
                return found
            if found.lanes and at - start < found.lanes:
                return Val(self.b.emit(f"extractelement {found.typed}, i64 {at - start}"), buffer.dtype)
        raise CodegenError(f"{buffer.name}[{at}] is read before it is written", op="llvm")

    def _write_register(self, buffer: Buffer, indices: tuple[Expr, ...], v: Val) -> None:
        at, stride = self._register(buffer, indices)
        lanes = self.scope.lanes if stride else 0
        if stride not in (0, 1):
            raise CodegenError(f"lanes of {buffer.name} are not neighbours", op="llvm")
        if v.lanes and not lanes:
            raise CodegenError(f"every lane stores to one element of {buffer.name}", op="llvm")
        v = self.widen(v, lanes)
        if lanes and (buffer.name, at) in self.registers:
            for g in self.guards:  # a lane that is off keeps what it has
                if g.lanes:
                    v = self._choose(g, v, self._lanes_at(buffer, at, lanes))
        self.registers[buffer.name, at] = v


def _short(element: str) -> str:
    return {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(element, element)


__all__ = ["Access", "Memory", "free"]
