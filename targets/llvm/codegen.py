"""Scheduled functions as LLVM IR.

Loops become rotated loops with the live elements of register buffers as phis; unrolled loops are
repeated here, before LLVM sees them; a vector loop is one block on vectors; a parallel loop's body
becomes a function of its own that is given ranges of iterations as chunks. LLVM's optimiser has
nothing left to do and is not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from planish.compiler.calling import CHUNKS_PER_THREAD
from planish.compiler.dtypes import I64
from planish.compiler.errors import CodegenError, InternalError, PlanishError
from planish.compiler.expr.bounds import Interval
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, If, Loop, Seq, Stmt, constant
from planish.compiler.loop.slots import STACK_BYTES, backing

from .blocks import Blocks
from .builder import Builder, ModuleText
from .expressions import Bound, Scope
from .isa import Isa
from .registers import MOST_LANES, Registers, Runs
from .values import Val

ALIGN: Final = 64
PROBED: Final = '"probe-stack"="inline-asm"'  # where LLVM can do it
MOST_UNROLLED: Final = 4096  # iterations that are repeated in code


def kernel_ir(func: Function, module: ModuleText, isa: Isa) -> None:
    """Add the code of a function (lowered by the loop passes) to a module.

    Register buffers whose elements turn out not to be known when code is made are kept in memory
    instead.

    Errors: CodegenError naming the function, and the block that cannot be compiled.
    """
    before = len(module.parts)
    while True:
        kernel = Kernel(func, module, isa)
        try:
            kernel.define()
            return
        except CodegenError as error:
            del module.parts[before:]
            if not kernel.registers.unfit:
                raise _located(error, f"in {func.name}") from error
            unfit = set(kernel.registers.unfit)
            func = func.with_(
                temps=tuple(
                    ir.Buffer(t.name, t.dtype, t.shape, "local") if t.name in unfit else t
                    for t in func.temps
                )
            )


def _located(error: PlanishError, where: str) -> PlanishError:
    """The error saying where it happened, inner places first."""
    return type(error)(
        f"{error.message}, {where}", op=error.op, node=error.node, span=error.span, hint=error.hint
    )


class Kernel(Blocks):
    """One LLVM function: a whole loop function, or the chunk of one of its parallel loops."""

    def __init__(
        self, func: Function, module: ModuleText, isa: Isa, parent: Kernel | None = None
    ) -> None:
        super().__init__(Builder(module), isa, Scope({}, {}, {}), func.buffers)
        self.func, self.module, self.parent = func, module, parent
        self.name = func.name
        self.entry: list[str] = []
        self.chunks = 0
        self._sink = ""
        if parent is None:
            self.uses: dict[int, Counter[str]] = {}
            self.total = self.count_uses(func.body)
            self.shared = _shared(func)
        else:
            parent.chunks += 1
            self.name = f"{parent.name}.{parent.chunks}"
            self.registers = Registers(self, parent.registers.unfit)
            self.uses, self.total, self.shared = parent.uses, parent.total, parent.shared

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
        if self.streams:  # stores past the caches are seen late, but before those that follow here
            self.b.line("fence seq_cst")
        body = "\n".join([*self.entry, *self.b.level.lines])
        # A stack that is too small ends in the page that guards it, not beyond.
        head = f"define void @{self.name}({', '.join(arguments)}) nounwind {PROBED} {{"
        self.module.parts.append(f"{head}\nentry:\n{body}\n  ret void\n}}\n")

    def pointer(self, name: str) -> str:
        found = self.pointers.get(name)
        if found is None:
            if self.buffers[name].scope != "local":
                raise InternalError(f"{name} has no address", op="llvm")
            found = self.pointers[name] = self._local(self.buffers[name])
        return found

    def _local(self, buffer: ir.Buffer) -> str:
        """Memory of this chunk: its part of the call's scratch, or on the stack."""
        parts = self.buffers.get(backing(buffer.name))
        if parts is not None:
            base = self.pointers[parts.name]
            if self.parent is None:
                return base
            step = self.integer(parts.shape[1])[0]
            offset = self.b.once(0, f"mul nsw i64 %chunk, {step}")
            return self.b.once(0, f"getelementptr i8, ptr {base}, i64 {offset}")
        size = constant(buffer.bytes)
        if size is None:
            some = self.integer(buffer.bytes)[0]
            return self.b.emit(f"alloca i8, i64 {some}, align {ALIGN}", 0)
        if size > STACK_BYTES:
            raise CodegenError(
                f"{buffer.name} has {size} bytes, too many for a stack",
                op="llvm",
                hint="give it slots in the call's scratch (loop.slots), or keep it global",
            )
        found = self.b.name("local")
        self.entry.append(f"  {found} = alloca i8, i64 {size}, align {ALIGN}")
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
                self._serial(s.var, s.extent, s)
            case Loop():
                raise CodegenError(f"a CPU has no {s.kind} loops", op="llvm", node=s.var.name)
            case If():
                self._if(s)
            case Block():
                try:
                    self.block(s)
                except CodegenError as error:
                    raise _located(error, f"in block {s.name}") from error

    def _unrolled(self, loop: Loop) -> None:
        extent = self._known(loop)
        if extent > MOST_UNROLLED:
            self._serial(loop.var, loop.extent, loop)
            return
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
        if lanes > MOST_LANES:
            raise CodegenError(
                f"a vector loop of {lanes} iterations",
                op="llvm",
                node=loop.var.name,
                hint=f"split it: vectors have at most {MOST_LANES} lanes",
            )
        if lanes == 1:
            self._with_const(loop.var, 0, loop.body)
            return
        scope.vector, scope.lanes = loop.var, lanes
        scope.ranges[loop.var] = Interval(0, lanes - 1)
        self.statement(loop.body)
        scope.vector, scope.lanes = None, 0

    def _serial(self, var: Var, extent: Expr, loop: Loop, first: str = "0", end: str = "") -> None:
        """A rotated loop of ``var`` from ``first`` to ``end`` (the extent if not given)."""
        extent, body = self.resolve(extent), loop.body
        known = isinstance(extent, Const) and not end
        if known:
            count = int(extent.value)  # type: ignore[attr-defined]
            if count <= 0:
                return
            if count == 1:
                self._with_const(var, 0, body)
                return
        end = end or self.count(extent)
        stored = {b.buffer for b in ir.blocks(body)}
        for name in stored:
            self.forget(name)
        carried = self.registers.around(stored)
        b = self.b
        head, done = b.label("loop"), b.label("done")
        before = b.level.label
        outer = dict(self.registers.live)
        test = "" if known else b.emit(f"icmp slt i64 {first}, {end}")
        inner = b.push(head)
        index = b.name("i")
        phis = {k: b.name("r") for k in carried}
        for k, v in carried.items():
            self.registers.live[k] = Val(phis[k], v.dtype, v.lanes)
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
        lines.append(
            f"  br label %{head}" if known else f"  br i1 {test}, label %{head}, label %{done}"
        )
        lines.append(f"{head}:")
        lines.append(f"  {index} = phi i64 [{first}, %{before}], [{following}, %{latch}]")
        ends = self.registers.check_carried(carried)
        for k, v in carried.items():
            last = ends[k].text
            lines.append(f"  {phis[k]} = phi {v.type} [{v.text}, %{before}], [{last}, %{latch}]")
        lines.extend(inner.lines)
        b.start(done)
        after = self._escaping(self.registers.live, outer, loop)
        self.registers.live = after if known else self.registers.merge(outer, before, after, latch)

    def count(self, extent: Expr) -> str:
        """The operand of a loop's extent, which may be read from memory."""
        if self.is_scalar_integer(extent):
            return self.integer(extent)[0]
        return self.value(extent).text

    def _escaping(self, live: Runs, outer: Runs, s: Stmt) -> Runs:
        """Of what is live at the end of a statement that which matters after it."""
        uses = self.count_uses(s)
        return {k: v for k, v in live.items() if k in outer or self.total[k[0]] > uses[k[0]]}

    def count_uses(self, s: Stmt) -> Counter[str]:
        """How many blocks, conditions and extents use each register buffer."""
        found = self.uses.get(id(s))
        if found is None:
            names = {x.buffer for x in ir.loaded(s)}
            if isinstance(s, Block):
                names.add(s.buffer)
            found = Counter(sorted(x for x in names if self.buffers[x].scope == "register"))
            for c in ir.children(s):
                found.update(self.count_uses(c))
            self.uses[id(s)] = found
        return found

    def _if(self, s: If) -> None:
        condition = self.resolve(s.condition)
        if isinstance(condition, Const):
            if condition.value:
                self.statement(s.then)
            elif s.other is not None:
                self.statement(s.other)
            return
        other = s.other
        hoisted = self.is_scalar_integer(condition)
        self.branch(
            self.integer(condition)[0] if hoisted else self.value(condition).text,
            s,
            lambda: self.statement(s.then),
            None if other is None else lambda: self.statement(other),
        )

    def branch(
        self, test: str, body: Stmt, then: Callable[[], None], other: Callable[[], None] | None
    ) -> None:
        b = self.b
        yes, no, join = b.label("then"), b.label("else"), b.label("join")
        before, outer = b.level.label, self.registers.live
        ends: list[tuple[str, Runs]] = []
        texts: list[list[str]] = []
        for label, run in ((yes, then), (no, other)):
            if run is None:
                ends.append((before, outer))
                continue
            self.registers.live = dict(outer)
            inner = b.push(label)
            run()
            b.line(f"br label %{join}")
            ends.append((inner.label, self._escaping(self.registers.live, outer, body)))
            texts.append([f"{label}:", *b.pop().lines])
        b.line(f"br i1 {test}, label %{yes}, label %{no if other is not None else join}")
        for lines in texts:
            b.level.lines.extend(lines)
        b.start(join)
        (from_yes, left), (from_no, right) = ends
        self.registers.live = self.registers.merge(left, from_yes, right, from_no)

    # ------------------------------------------------------------------------------ parallel

    def _parallel(self, loop: Loop) -> None:
        """Outline the body as ``void chunk(ptr context, i64 chunk)`` and have the pool run it."""
        extent = self.resolve(loop.extent)
        if self.parent is not None or (isinstance(extent, Const) and int(extent.value) <= 1):
            self._serial(loop.var, extent, loop)  # chunks are not divided again
            return
        used = ir.buffers_used(loop.body)
        for name, _ in self.registers.live:
            if name in used:
                self.registers.refuse(name, f"the loop {loop.var.name} over it is parallel")
        for name in sorted(used & self.shared):
            self.pointer(name)  # of the call, not of each chunk
        child = Kernel(self.func, self.module, self.isa, self)
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
        total = self.count(extent)
        count = self._count(total, used)
        n_total, n_count = capture("i64", total), capture("i64", count)
        e = child.b.emit
        first = e(f"udiv i64 {e(f'mul i64 %chunk, {n_total}')}, {n_count}")
        after = e("add i64 %chunk, 1")
        last = e(f"udiv i64 {e(f'mul i64 {after}, {n_total}')}, {n_count}")
        child._serial(loop.var, extent, loop, first, last)
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

    def _count(self, total: str, used: set[str]) -> str:
        """How many chunks: some for each thread, but no more than there are slots for."""
        e = self.b.emit
        slots = [
            constant(self.buffers[backing(x)].shape[0]) or 1
            for x in used - self.shared
            if backing(x) in self.buffers
        ]
        most = self.b.once(0, f"mul nsw i64 %threads, {CHUNKS_PER_THREAD}")
        count = e(f"select i1 {e(f'icmp slt i64 {total}, {most}')}, i64 {total}, i64 {most}")
        count = e(f"select i1 {e('icmp eq i64 %threads, 1')}, i64 1, i64 {count}")
        if not slots:
            return count
        return e(
            f"select i1 {e(f'icmp slt i64 {count}, {min(slots)}')}, i64 {count}, i64 {min(slots)}"
        )


def _shared(func: Function) -> frozenset[str]:
    """The local buffers that are of the call, rather than of each chunk.

    A parallel loop reads them without having stored to them before, or they are used outside of
    parallel loops too.
    """
    out: set[str] = set()

    def visit(s: Stmt, seen: set[str] | None) -> None:
        """``seen`` is what the parallel loop around has stored to; None outside of any."""
        read = {x.buffer for x in ir.loaded(s)}
        if isinstance(s, Block):
            read |= {s.buffer} if s.combiner or seen is None else set()
        out.update(read if seen is None else read - seen)
        if isinstance(s, Block) and seen is not None:
            seen.add(s.buffer)
        inside = set() if seen is None and isinstance(s, Loop) and s.kind == "parallel" else seen
        for c in ir.children(s):
            visit(c, inside)

    visit(func.body, None)
    return frozenset(t.name for t in func.temps if t.scope == "local" and t.name in out)
