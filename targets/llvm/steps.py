"""The code of a program's steps: of each a function ``i32 planish_step_N(ptr slots)``.

It gives 0, or one more than the index of a failure, at which the call ends. Steps that hold others
call those, in turn. Sizes are computed where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planish.compiler.calling import MOST_BYTES, MOST_SIGNED, SlotLayout
from planish.compiler.dtypes import DType
from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Const, Var
from planish.compiler.program import (
    Allocate,
    AnyStep,
    Assign,
    Bind,
    Branch,
    Check,
    Host,
    Move,
    Place,
    Release,
    Repeat,
    Step,
    inner,
)

from .scalars import ScalarCode

# Memory of arrays whose size only the data tells; see ``planish.compiler.calling``.
ALLOCATION: Final = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i1 @planish_allocate(ptr %word, i64 %bytes) nounwind {
  %old = load ptr, ptr %word, align 8
  call void @free(ptr %old)
  %new = call ptr @planish_memory(i64 %bytes)
  store ptr %new, ptr %word, align 8
  %done = icmp ne ptr %new, null
  ret i1 %done
}

define internal i1 @planish_keep(ptr %word, i64 %bytes) nounwind {
entry:
  %old = load ptr, ptr %word, align 8
  %next = getelementptr i8, ptr %word, i64 8
  %room = load i64, ptr %next, align 8
  %fits = icmp sge i64 %room, %bytes
  %there = icmp ne ptr %old, null
  %enough = and i1 %fits, %there
  br i1 %enough, label %kept, label %grow

kept:
  ret i1 true

grow:
  %twice = mul i64 %room, 2
  %wanted = call i64 @llvm.smax.i64(i64 %twice, i64 %bytes)
  %new = call ptr @planish_memory(i64 %wanted)
  %done = icmp ne ptr %new, null
  br i1 %done, label %move, label %lost

move:
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %room, i1 false)
  call void @free(ptr %old)
  store ptr %new, ptr %word, align 8
  store i64 %wanted, ptr %next, align 8
  ret i1 true

lost:
  ret i1 false
}

define internal ptr @planish_memory(i64 %bytes) nounwind {
  %least = call i64 @llvm.smax.i64(i64 %bytes, i64 1)
  %more = add i64 %least, 63
  %whole = and i64 %more, -64
  %found = call ptr @aligned_alloc(i64 64, i64 %whole)
  ret ptr %found
}
"""


class Steps:
    """The functions of a program's steps."""

    def __init__(self, layout: SlotLayout, symbols: Mapping[Var, int]) -> None:
        self.layout, self.symbols = layout, symbols
        self.functions: list[str] = []

    def add(self, number: str, step: AnyStep) -> None:
        """Append a step's function, after those that it calls."""
        lines = self._lines(number, step)
        body = "\n".join(line if not line or line.endswith(":") else f"  {line}" for line in lines)
        self.functions.append(
            f"define internal i32 @planish_step_{number}(ptr %slots) nounwind {{\n{body}\n}}"
        )

    def _lines(self, number: str, step: AnyStep) -> list[str]:
        code = ScalarCode(self.symbols)
        match step:
            case Step():
                return self._call(step, code)
            case Branch():
                return self._branch(number, step, code)
            case Repeat():
                return self._repeat(number, step, code)
            case Bind():
                return self._bind(step, code)
            case Assign():
                values = [code.value(e) for e in step.values]
                for symbol, value in zip(step.symbols, values, strict=True):
                    code.lines.append(self._store(symbol, value, code))
                return [*code.lines, "ret i32 0"]
            case Check():
                code = ScalarCode(self.symbols, checked=True)
                return _unless(code.holds(step.condition), step.failure, code)
            case Allocate():
                return self._allocate(step)
            case Host():
                return self._host(step, code)
            case Release():
                return [*self._release(step.index, code), "ret i32 0"]
            case Move():
                return self._move(step, code)

    # ------------------------------------------------------------------------------- kernels

    def _call(self, step: Step, code: ScalarCode) -> list[str]:
        arguments = [f"ptr {self._address(place, code)}" for place in step.arguments]
        arguments += [f"i64 {code.value(e)}" for e in step.symbols]
        arguments.append(f"ptr {self._address(step.scratch, code)}")
        arguments.append(f"ptr {code.slot(self.layout.POOL, 'ptr')}")
        arguments.append(f"i64 {code.slot(self.layout.THREADS, 'i64')}")
        call = f'call void @"{step.function}"({", ".join(arguments)})'
        return [*code.lines, call, "ret i32 0"]

    def _address(self, place: Place, code: ScalarCode) -> str:
        base = code.slot(self._word(place), "ptr")
        if isinstance(place.offset, Const) and place.offset.value == 0:
            return base
        return code.emit(f"getelementptr i8, ptr {base}, i64 {code.value(place.offset)}")

    def _word(self, place: Place) -> int:
        match place.kind:
            case "input":
                return self.layout.input(place.index)
            case "output":
                return self.layout.output(place.index)
            case "constant":
                return self.layout.constant(place.index)
            case "heap":
                return self.layout.heap_word(place.index)
            case "arena":
                return self.layout.ARENA

    def _host(self, step: Host, code: ScalarCode) -> list[str]:
        """A call of the runtime with a table of addresses and dimensions."""
        words: list[str] = []
        for place, kind in (*step.inputs, *step.outputs):
            words.append(code.emit(f"ptrtoint ptr {self._address(place, code)} to i64"))
            words += [code.value(d) for d in kind.shape]
        table = code.emit(f"alloca [{max(1, len(words))} x i64], align 8")
        for k, word in enumerate(words):
            at = code.emit(f"getelementptr i64, ptr {table}, i64 {k}")
            code.lines.append(f"store i64 {word}, ptr {at}, align 8")
        function = code.slot(self.layout.HOST, "ptr")
        result = code.emit(f"call i32 {function}(i64 {step.index}, ptr {table})")
        return _unless(code.emit(f"icmp eq i32 {result}, 0"), step.failure, code)

    # ------------------------------------------------------------------------------- control

    def _branch(self, number: str, step: Branch, code: ScalarCode) -> list[str]:
        byte = code.emit(f"load i8, ptr {self._address(step.condition, code)}")
        chosen = code.emit(f"icmp ne i8 {byte}, 0")
        lines = [*code.lines, f"br i1 {chosen}, label %then, label %other"]
        for label, steps in (("then", step.then), ("other", step.other)):
            lines += ["", f"{label}:", *self._all(number, label, steps), "ret i32 0"]
        return lines

    def _repeat(self, number: str, step: Repeat, code: ScalarCode) -> list[str]:
        count = code.word(self.symbols[step.count])
        trip = None if step.trip is None else code.value(step.trip)
        at, condition, again = (
            self._address(place, code) for place in (step.number, step.condition, step.again)
        )
        lines = [*code.lines, f"store i64 0, ptr {count}, align 8", "br label %head", "", "head:"]
        lines.append(f"%number = load i64, ptr {count}, align 8")
        if trip is not None:
            lines.append(f"%more = icmp slt i64 %number, {trip}")
            lines += ["br i1 %more, label %ask, label %done", "", "ask:"]
        if step.asked:
            lines.append(f"%byte = load i8, ptr {condition}")
            lines.append("%goes_on = icmp ne i8 %byte, 0")
            lines += ["br i1 %goes_on, label %body, label %done", "", "body:"]
        lines.append(f"store i64 %number, ptr {at}, align 8")
        lines += self._all(number, "body", step.steps)
        lines.append(f"%next_byte = load i8, ptr {again}")
        lines.append(f"store i8 %next_byte, ptr {condition}")
        lines.append("%next_number = add i64 %number, 1")
        lines.append(f"store i64 %next_number, ptr {count}, align 8")
        return [*lines, "br label %head", "", "done:", "ret i32 0"]

    def _all(self, number: str, label: str, steps: Sequence[AnyStep]) -> list[str]:
        """The code that runs steps, and leaves the function if one fails."""
        names = [f"{number}_{label}_{k}" for k in range(len(steps))]
        for name, step in zip(names, steps, strict=True):
            self.add(name, step)
        return run_all(zip(names, steps, strict=True))

    # ------------------------------------------------------------------------------- symbols

    def _store(self, symbol: Var, value: str, code: ScalarCode) -> str:
        return f"store i64 {value}, ptr {code.word(self.symbols[symbol])}, align 8"

    def _bind(self, step: Bind, code: ScalarCode) -> list[str]:
        start = self._address(step.place, code)
        count = len(step.symbols) // 2 if step.signed else len(step.symbols)
        bad = "false"
        for k in range(count):
            value = _integer(start, k, step.dtype, code)
            if step.signed:
                value = _at_least(code, _at_most(code, value, MOST_SIGNED), -MOST_SIGNED)
                below = code.emit(f"sub i64 0, {value}")
                for symbol, part in zip(
                    step.symbols[2 * k : 2 * k + 2], (value, below), strict=True
                ):
                    code.lines.append(self._store(symbol, _at_least(code, part, 0), code))
                continue
            outside = code.emit(f"icmp ugt i64 {value}, {MOST_BYTES}")
            bad = code.emit(f"or i1 {bad}, {outside}")
            code.lines.append(self._store(step.symbols[k], value, code))
        return _unless(code.emit(f"xor i1 {bad}, true"), step.failure, code)

    # ------------------------------------------------------------------------------- memory

    def _allocate(self, step: Allocate) -> list[str]:
        code = ScalarCode(self.symbols, checked=True)
        size = spread = str(step.itemsize)
        bad = "false"
        for d in step.shape:
            extent = code.value(d)
            negative = code.emit(f"icmp slt i64 {extent}, 0")
            bad = code.emit(f"or i1 {bad}, {negative}")
            size = code.emit(f"mul i64 {size}, {extent}")
            # No product of some of the dimensions may be too large, whichever of the others is 0.
            spread = code.exact("mul", spread, _at_least(code, extent, 1))
        for overflow in code.overflows:
            bad = code.emit(f"or i1 {bad}, {overflow}")
        large = code.emit(f"icmp sgt i64 {size}, {MOST_BYTES}")
        bad = code.emit(f"or i1 {bad}, {large}")
        fail = f"ret i32 {step.failure + 1}"
        lines = [*code.lines, f"br i1 {bad}, label %bad, label %good", "", "bad:", fail]
        lines += ["", "good:"]
        code.lines = []
        word = code.word(self._word(step.place))
        what = "keep" if step.kept else "allocate"
        done = code.emit(f"call i1 @planish_{what}(ptr {word}, i64 {size})")
        lines += code.lines
        return [*lines, f"br i1 {done}, label %done, label %bad", "", "done:", "ret i32 0"]

    def _release(self, index: int, code: ScalarCode) -> list[str]:
        word = code.word(self.layout.heap_word(index))
        room = code.word(self.layout.heap_word(index) + 1)
        address = code.emit(f"load ptr, ptr {word}, align 8")
        return [
            *code.lines,
            f"call void @free(ptr {address})",
            f"store ptr null, ptr {word}, align 8",
            f"store i64 0, ptr {room}, align 8",
        ]

    def _move(self, step: Move, code: ScalarCode) -> list[str]:
        source, target = (self.layout.heap_word(k) for k in (step.source, step.target))
        old = code.slot(target, "ptr")
        code.lines.append(f"call void @free(ptr {old})")
        for k, (type, nothing) in enumerate((("ptr", "null"), ("i64", "0"))):
            value = code.slot(source + k, type)
            code.lines.append(f"store {type} {value}, ptr {code.word(target + k)}, align 8")
            code.lines.append(f"store {type} {nothing}, ptr {code.word(source + k)}, align 8")
        return [*code.lines, "ret i32 0"]


def _integer(start: str, index: int, dtype: DType, code: ScalarCode) -> str:
    """An element of an array of integers, as i64."""
    bits = 8 * dtype.bytes
    if not dtype.is_int or dtype.is_packed:
        raise InternalError(f"a size of {dtype}", op="entry")
    address = code.emit(f"getelementptr i8, ptr {start}, i64 {dtype.bytes * index}")
    value = code.emit(f"load i{bits}, ptr {address}")
    if bits == 64:
        return value
    return code.emit(f"{'sext' if dtype.min < 0 else 'zext'} i{bits} {value} to i64")


def _at_least(code: ScalarCode, value: str, least: int) -> str:
    return code.emit(f"call i64 @llvm.smax.i64(i64 {value}, i64 {least})")


def _at_most(code: ScalarCode, value: str, most: int) -> str:
    return code.emit(f"call i64 @llvm.smin.i64(i64 {value}, i64 {most})")


def _unless(good: str, failure: int, code: ScalarCode) -> list[str]:
    """The end of a step that fails unless a bit is set."""
    result = code.emit(f"select i1 {good}, i32 0, i32 {failure + 1}")
    return [*code.lines, f"ret i32 {result}"]


def fails(step: AnyStep) -> bool:
    """Whether a step may end the call."""
    if isinstance(step, Bind | Check | Allocate | Host):
        return True
    return any(fails(s) for steps in inner(step) for s in steps)


def run_all(steps: Iterable[tuple[str, AnyStep]]) -> list[str]:
    """Code that runs steps by their functions' names; it returns the result of one that fails."""
    lines: list[str] = []
    for name, step in steps:
        call = f"call i32 @planish_step_{name}(ptr %slots)"
        if not fails(step):
            lines.append(call)
            continue
        lines.append(f"%result_{name} = {call}")
        lines.append(f"%failed_{name} = icmp ne i32 %result_{name}, 0")
        lines.append(f"br i1 %failed_{name}, label %leave_{name}, label %after_{name}")
        lines += ["", f"leave_{name}:", f"ret i32 %result_{name}", "", f"after_{name}:"]
    return lines


def symbol_words(layout: SlotLayout, symbols: Iterable[Var]) -> dict[Var, int]:
    """The word of each symbol, in order."""
    return {symbol: layout.symbol(k) for k, symbol in enumerate(symbols)}


__all__ = ["ALLOCATION", "Steps", "fails", "run_all", "symbol_words"]
