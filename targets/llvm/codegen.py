"""Scheduled functions as LLVM IR.

Loops become rotated loops with the live elements of register buffers as phis; unrolled loops are repeated here, before
LLVM sees them; a vector loop is one block on vectors; a parallel loop's body becomes a function of its own that is
given ranges of iterations as chunks. LLVM's optimiser has nothing left to do and is not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import CodegenError, InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval
from planish.compiler.expr.nodes import TRUE, Const, Expr, Mul, Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Function, If, Loop, Seq, Stmt

from .builder import Builder, ModuleText
from .expressions import Bound, Scope
from .isa import Isa
from .memory import Memory
from .values import Val, constant, scalar_type

_COMBINE: Final[dict[str, type[n.Binary]]] = {"sum": n.Add, "prod": n.Mul, "max": n.Max, "min": n.Min}
_FOLD: Final = {"sum": "fadd", "prod": "fmul"}
CHUNKS_PER_THREAD: Final = 8
ALIGN: Final = 64


def kernel_ir(func: Function, module: ModuleText, isa: Isa) -> None:
    """Add the code of a function (lowered by the loop passes) to a module.

    Errors: CodegenError naming the block that cannot be compiled.
    """
    Kernel(func, module, isa).define()


class Kernel(Memory):
    """One LLVM function: the whole of a loop function, or the chunk of one of its parallel loops."""

    def __init__(self, func: Function, module: ModuleText, isa: Isa, name: str = "") -> None:
        scope = Scope({}, {}, {})
        super().__init__(Builder(module), isa, scope, func.buffers)
        self.func, self.name = func, name or func.name
        self.module = module
        self.entry: list[str] = []
        self.chunks = 0
        self._sink = ""

    # ----------------------------------------------------------------------------- functions

    def define(self) -> None:
        """Emit the function itself."""
        func = self.func
        arguments = []
        for k, p in enumerate(func.params):
            self.pointers[p.name] = f"%p{k}"
            arguments.append(f"ptr %p{k}")
        for k, s in enumerate(func.symbols):
            self.scope.bound[s] = Bound(f"%s{k}", 0)
            self.scope.ranges[s] = Interval(0, None)
            arguments.append(f"i64 %s{k}")
        arguments += ["ptr %scratch", "ptr %pool", "i64 %threads"]
        offset: Expr = Const(0, I64)
        for t in func.temps:
            if t.scope == "global":
                text = self.integer(offset)[0]
                self.pointers[t.name] = self.b.emit(f"getelementptr i8, ptr %scratch, i64 {text}")
                offset = offset + (t.bytes + (ALIGN - 1)) // ALIGN * ALIGN
        self.statement(func.body)
        self._finish(arguments)

    def _finish(self, arguments: Iterable[str]) -> None:
        body = "\n".join([*self.entry, *self.b.level.lines])
        head = f"define void @{self.name}({', '.join(arguments)}) nounwind {{"
        self.module.parts.append(f"{head}\nentry:\n{body}\n  ret void\n}}\n")

    def pointer(self, name: str) -> str:
        found = self.pointers.get(name)
        if found is None:
            buffer = self.buffers[name]
            if buffer.scope != "local":
                raise InternalError(f"{name} has no address", op="llvm")
            size = self.integer(buffer.bytes)[0]
            text = f"alloca i8, i64 {size}, align {ALIGN}"
            if size.startswith("%"):
                found = self.b.emit(text, 0)
            else:
                found = self.b.name("local")
                self.entry.append(f"  {found} = {text}")
            self.pointers[name] = found
        return found

    def sink(self) -> str:
        if not self._sink:
            self._sink = self.b.name("sink")
            self.entry.append(f"  {self._sink} = alloca [16 x i8], align 16")
        return self._sink

    # ---------------------------------------------------------------------------- statements

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq(body):
                for c in body:
                    self.statement(c)
            case Loop(kind="unrolled"):
                self._unrolled(s)
            case Loop(kind="vector"):
                self._vector(s)
            case Loop(kind="parallel"):
                self._parallel(s)
            case Loop(kind="serial"):
                self._serial(s.var, s.extent, s.body)
            case Loop():
                raise CodegenError(f"a CPU has no {s.kind} loops", op="llvm", node=s.var.name)
            case If():
                self._if(s)
            case Block():
                try:
                    self._block(s)
                except CodegenError as error:
                    raise error.within(f"in block {s.name} of {self.func.name}") from error

    def _unrolled(self, loop: Loop) -> None:
        extent = self._known(loop)
        for k in range(extent):
            self._with_const(loop.var, k, loop.body)

    def _with_const(self, var: Var, value: int, body: Stmt) -> None:
        self.scope.consts[var] = Const(value, I64)
        self.statement(body)
        del self.scope.consts[var]

    def _known(self, loop: Loop) -> int:
        extent = self.resolve(loop.extent)
        if not isinstance(extent, Const):
            raise CodegenError(f"{loop.kind} loop of unknown extent", op="llvm", node=str(extent))
        return int(extent.value)

    def _vector(self, loop: Loop) -> None:
        scope = self.scope
        if scope.vector is not None:
            raise CodegenError("a vector loop inside another", op="llvm", node=loop.var.name)
        lanes = self._known(loop)
        if lanes == 1:
            self._with_const(loop.var, 0, loop.body)
            return
        scope.vector, scope.lanes = loop.var, lanes
        scope.ranges[loop.var] = Interval(0, lanes - 1)
        self.statement(loop.body)
        scope.vector, scope.lanes = None, 0

    def _serial(self, var: Var, extent: Expr, body: Stmt, first: str = "0", end: str = "") -> None:
        """A rotated loop of ``var`` from ``first`` to ``end`` (the extent if not given)."""
        extent = self.resolve(extent)
        known = isinstance(extent, Const) and not end
        if known:
            count = int(extent.value)  # type: ignore[attr-defined]
            if count <= 0:
                return
            if count == 1:
                self._with_const(var, 0, body)
                return
        end = end or self.integer(extent)[0]
        stored = {b.buffer for b in ir.blocks(body)}
        for name in stored:
            self.forget(name)
        carried = {k: v for k, v in self.registers.items() if k[0] in stored}
        b = self.b
        head, done = b.label("loop"), b.label("done")
        before = b.level.label
        outer = dict(self.registers)
        test = "" if known else b.emit(f"icmp slt i64 {first}, {end}")
        inner = b.push(head)
        index = b.name("i")
        phis = {k: b.name("r") for k in carried}
        for k, v in carried.items():
            self.registers[k] = Val(phis[k], v.dtype, v.lanes)
        self.scope.bound[var] = Bound(index, b.depth)
        top = int(extent.value) - 1 if isinstance(extent, Const) else None
        self.scope.ranges[var] = Interval(0, top)
        self.statement(body)
        following = b.emit(f"add nsw nuw i64 {index}, 1")
        again = b.emit(f"icmp slt i64 {following}, {end}")
        latch = inner.label
        b.line(f"br i1 {again}, label %{head}, label %{done}")
        b.pop()
        del self.scope.bound[var]
        lines = b.level.lines
        lines.append(f"  br label %{head}" if known else f"  br i1 {test}, label %{head}, label %{done}")
        lines.append(f"{head}:")
        lines.append(f"  {index} = phi i64 [{first}, %{before}], [{following}, %{latch}]")
        ends: dict[tuple[str, int], Val] = {}
        for k, v in carried.items():
            last = ends[k] = self.registers[k]
            if last.lanes != v.lanes:
                raise CodegenError(f"{k[0]} changes its width in a loop", op="llvm")
            lines.append(f"  {phis[k]} = phi {v.type} [{v.text}, %{before}], [{last.text}, %{latch}]")
        lines.extend(inner.lines)
        b.start(done)
        self._leave(outer, ends, known, before, latch)

    def _leave(
        self,
        outer: dict[tuple[str, int], Val],
        ends: dict[tuple[str, int], Val],
        known: bool,
        before: str,
        latch: str,
    ) -> None:
        """Registers behind a loop: those it carried, and those it may not have touched at all."""
        fresh = {} if not known else {k: v for k, v in self.registers.items() if k not in outer}
        self.registers = {**outer, **fresh}
        for k, last in ends.items():
            if known:
                self.registers[k] = last
            else:
                v = outer[k]
                text = self.b.emit(f"phi {v.type} [{v.text}, %{before}], [{last.text}, %{latch}]")
                self.registers[k] = Val(text, v.dtype, v.lanes)

    def _if(self, s: If) -> None:
        condition = self.resolve(s.condition)
        if isinstance(condition, Const):
            if condition.value:
                self.statement(s.then)
            elif s.other is not None:
                self.statement(s.other)
            return
        other = s.other
        self._branch(
            self.integer(condition)[0],
            lambda: self.statement(s.then),
            None if other is None else lambda: self.statement(other),
        )

    def _branch(self, test: str, then: Callable[[], None], other: Callable[[], None] | None) -> None:
        b = self.b
        yes, no, join = b.label("then"), b.label("else"), b.label("join")
        before, outer = b.level.label, dict(self.registers)
        ends: list[tuple[str, dict[tuple[str, int], Val]]] = []
        texts: list[list[str]] = []
        for label, run in ((yes, then), (no, other)):
            if run is None:
                ends.append((before, outer))
                continue
            self.registers = dict(outer)
            inner = b.push(label)
            run()
            b.line(f"br label %{join}")
            ends.append((inner.label, self.registers))
            texts.append([f"{label}:", *b.pop().lines])
        b.line(f"br i1 {test}, label %{yes}, label %{no if other is not None else join}")
        for lines in texts:
            b.level.lines.extend(lines)
        b.start(join)
        (from_yes, left), (from_no, right) = ends
        merged: dict[tuple[str, int], Val] = {}
        for k, v in left.items():
            w = right.get(k)
            if w is None:
                continue
            if v != w:
                text = b.emit(f"phi {v.type} [{v.text}, %{from_yes}], [{w.text}, %{from_no}]")
                v = Val(text, v.dtype, v.lanes)
            merged[k] = v
        self.registers = merged

    # -------------------------------------------------------------------------------- blocks

    def _block(self, s: Block) -> None:
        if s.init is not None:
            raise InternalError("a block's init is still in it", op="llvm", node=s.name)
        bindings = s.bindings
        if any(v is not b for v, b in bindings.items()):
            raise InternalError("a block's iterators are still in it", op="llvm", node=s.name)
        scalar, lanes = TRUE, TRUE
        for c in conjuncts(self.resolve(s.where)):
            if isinstance(c, Const) and not c.value:
                return
            if self.varies(c):
                lanes = lanes & c
            else:
                scalar = scalar & c
        if scalar is TRUE:
            self._masked(s, lanes)
        elif self.is_scalar_integer(scalar):
            self._branch(self.integer(scalar)[0], lambda: self._masked(s, lanes), None)
        else:
            self._branch(self.value(scalar).text, lambda: self._masked(s, lanes), None)

    def _masked(self, s: Block, lanes: Expr) -> None:
        if lanes is TRUE:
            self._statement(s)
            return
        mask = self.value(lanes)
        self.guards.append(mask)
        self._statement(s)
        self.guards.pop()

    def _statement(self, s: Block) -> None:
        if s.combiner is None:
            self.store(s.buffer, s.indices, self.value(s.value), s.nontemporal)
            return
        folds = self.scope.vector is not None and not any(self.varies(i) for i in s.indices)
        target = n.Load(s.buffer, s.indices, self.buffers[s.buffer].dtype)
        value = s.value
        if folds and self.varies(value):
            v = self._fold(s.combiner, self.value(value))
            with self._lanes_off():
                acc = self.load(target)
                self.store(s.buffer, s.indices, self.binary(_COMBINE[s.combiner], acc, v))
            return
        acc = self.load(target)
        if s.combiner == "sum" and isinstance(value, Mul) and value.dtype.is_float:
            x, y = self.value(value.lhs), self.value(value.rhs)
            self.store(s.buffer, s.indices, self.fma(x, y, acc))
            return
        v = self.value(value)
        lanes = max(acc.lanes, v.lanes)
        acc, v = self.widen(acc, lanes), self.widen(v, lanes)
        self.store(s.buffer, s.indices, self.binary(_COMBINE[s.combiner], acc, v))

    def _lanes_off(self) -> _Scalar:
        return _Scalar(self)

    def _fold(self, combiner: str, v: Val) -> Val:
        """The lanes of a vector combined, those that are off left out."""
        masks = [g for g in self.guards if g.lanes]
        from planish.compiler.loop.te import COMBINERS

        for g in masks:
            neutral = constant(COMBINERS[combiner](v.dtype).value, v.dtype, v.lanes)
            v = self._choose(g, v, neutral)
        lanes = v.lanes
        while lanes > 1:  # by halves
            half = lanes // 2
            if lanes % 2:
                raise CodegenError("the lanes of a reduction must be a power of two", op="llvm")
            t = v.type
            low = ", ".join(f"i32 {k}" for k in range(half))
            high = ", ".join(f"i32 {k}" for k in range(half, lanes))
            a = self.b.emit(f"shufflevector {t} {v.text}, {t} poison, <{half} x i32> <{low}>")
            c = self.b.emit(f"shufflevector {t} {v.text}, {t} poison, <{half} x i32> <{high}>")
            v = self.binary(_COMBINE[combiner], Val(a, v.dtype, half), Val(c, v.dtype, half))
            lanes = half
        return Val(self.b.emit(f"extractelement {v.typed}, i64 0"), v.dtype)

    # ------------------------------------------------------------------------------ parallel

    def _parallel(self, loop: Loop) -> None:
        """Outline the body as ``void chunk(ptr context, i64 chunk)`` and have the pool run it."""
        extent = self.resolve(loop.extent)
        if isinstance(extent, Const) and int(extent.value) <= 1:
            self._serial(loop.var, extent, loop.body)
            return
        if any(k[0] in {x.buffer for x in ir.blocks(loop.body)} for k in self.registers):
            raise CodegenError("registers do not cross a parallel loop", op="llvm", node=loop.var.name)
        root = self
        root.chunks += 1
        child = Kernel(self.func, self.module, self.isa, f"{self.name}.{root.chunks}")
        words: list[tuple[str, str]] = []  # (type, operand) in the context

        def capture(kind: str, operand: str) -> str:
            words.append((kind, operand))
            k = len(words) - 1
            at = child.b.emit(f"getelementptr i64, ptr %context, i64 {k}") if k else "%context"
            return child.b.emit(f"load {kind}, ptr {at}, align 8")

        for name, pointer in self.pointers.items():
            child.pointers[name] = capture("ptr", pointer)
        for var, bound in self.scope.bound.items():
            child.scope.bound[var] = Bound(capture("i64", bound.text), 0)
        child.scope.consts.update(self.scope.consts)
        child.scope.ranges.update(self.scope.ranges)
        total = self.integer(extent)[0]
        most = self.b.once(0, f"mul nsw i64 %threads, {CHUNKS_PER_THREAD}")
        fewer = self.b.emit(f"icmp slt i64 {total}, {most}")
        count = self.b.emit(f"select i1 {fewer}, i64 {total}, i64 {most}")
        one = self.b.emit("icmp eq i64 %threads, 1")
        count = self.b.emit(f"select i1 {one}, i64 1, i64 {count}")
        n_total, n_count = capture("i64", total), capture("i64", count)
        e = child.b.emit
        first = e(f"udiv i64 {e(f'mul i64 %chunk, {n_total}')}, {n_count}")
        after = e("add i64 %chunk, 1")
        last = e(f"udiv i64 {e(f'mul i64 {after}, {n_total}')}, {n_count}")
        child._serial(loop.var, extent, loop.body, first, last)
        child._finish(["ptr %context", "i64 %chunk"])
        context = self.b.name("context")
        self.entry.append(f"  {context} = alloca [{len(words)} x i64], align 16")
        for k, (kind, operand) in enumerate(words):
            at = self.b.emit(f"getelementptr i64, ptr {context}, i64 {k}") if k else context
            self.b.line(f"store {kind} {operand}, ptr {at}, align 8")
        self.b.line(
            f"call void @planish_parallel(ptr %pool, ptr @{child.name}, ptr {context}, "
            f"i64 {count}, i64 %threads)"
        )
        for name in {x.buffer for x in ir.blocks(loop.body)}:
            self.forget(name)


class _Scalar:
    """A context in which the vector loop's variable does not exist."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.saved = (kernel.scope.vector, kernel.scope.lanes, kernel.guards)

    def __enter__(self) -> None:
        scope = self.kernel.scope
        scope.vector, scope.lanes = None, 0
        self.kernel.guards = [g for g in self.kernel.guards if not g.lanes]

    def __exit__(self, *_: object) -> None:
        self.kernel.scope.vector, self.kernel.scope.lanes, self.kernel.guards = self.saved


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that ``and`` joins."""
    if isinstance(e, n.And):
        return conjuncts(e.lhs) + conjuncts(e.rhs)
    return [] if e is TRUE else [e]


__all__ = ["BOOL", "Buffer", "Kernel", "kernel_ir", "scalar_type"]
