"""The native entry point of a program: one function that calls all kernels in order.

``void planish_main(ptr slots)`` runs the program; ``slots`` is what ``planish.compiler.program``
says. ``void planish_profile(ptr slots, ptr nanoseconds)`` does the same and writes how long each
step took.

Every step is a small function of its own that computes its arguments from the slots; one entry
point calls them all, the other goes through a table of them. A branch is such a function too: it
calls the steps of the side that its condition chooses. The module is compiled apart from the
kernels and without effort (``level=0``): its code takes no time, but a model has hundreds of steps.
Offsets and sizes are computed here, natively: integer arithmetic as in Python, except that
a division by zero gives zero, since a trap would take the process down.
"""

from __future__ import annotations

from typing import Final

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, walk
from planish.compiler.program import (
    Branch,
    Place,
    Program,
    SlotLayout,
    Step,
    calls,
    slot_layout,
)

from .symbols import MAIN, PROFILE

_SIMPLE: Final[dict[type[Expr], str]] = {
    n.Add: "add i64", n.Sub: "sub i64", n.Mul: "mul i64",
    n.And: "and i1", n.Or: "or i1",
    n.Lt: "icmp slt i64", n.Le: "icmp sle i64",
}  # fmt: skip
_INTRINSICS: Final[dict[type[Expr], str]] = {n.Min: "smin", n.Max: "smax"}
_MONOTONIC = 1  # CLOCK_MONOTONIC on Linux


def entry_ir(program: Program) -> str:
    """The entry points of a program, as a module of LLVM IR that declares the kernels.

    Errors: CodegenError for a size that is no integer arithmetic over the program's symbols.
    """
    layout = slot_layout(program)
    symbols = {s: layout.symbol(k) for k, s in enumerate(program.symbols)}
    steps = [_step(str(k), step, layout, symbols) for k, step in enumerate(program.steps)]
    return "\n".join([*_declarations(program), *steps, _entries(len(steps))])


def _declarations(program: Program) -> list[str]:
    seen: dict[str, str] = {}
    for step in calls(program.steps):
        types = ["ptr"] * len(step.arguments) + ["i64"] * len(step.symbols) + ["ptr", "ptr", "i64"]
        line = f'declare void @"{step.function}"({", ".join(types)})'
        if seen.setdefault(step.function, line) != line:
            raise CodegenError(f"{step.function} is called with different numbers of arguments")
    lines = list(seen.values())
    lines.append("declare i64 @llvm.smin.i64(i64, i64)")
    lines.append("declare i64 @llvm.smax.i64(i64, i64)")
    lines.append("declare i32 @clock_gettime(i32, ptr)")
    return lines


def _step(number: str, step: Step | Branch, layout: SlotLayout, symbols: dict[Var, int]) -> str:
    """A step's function, after those that it calls."""
    if isinstance(step, Branch):
        return _branch(number, step, layout, symbols)
    return _call(number, step, layout, symbols)


def _call(number: str, step: Step, layout: SlotLayout, symbols: dict[Var, int]) -> str:
    code = ScalarCode(symbols)
    arguments = [f"ptr {_address(place, layout, code)}" for place in step.arguments]
    arguments += [f"i64 {code.value(e)}" for e in step.symbols]
    arguments.append(f"ptr {_address(step.scratch, layout, code)}")
    arguments.append(f"ptr {code.slot(layout.POOL, 'ptr')}")
    arguments.append(f"i64 {code.slot(layout.THREADS, 'i64')}")
    code.lines.append(f'call void @"{step.function}"({", ".join(arguments)})')
    return _function(number, [*code.lines, "ret void"])


def _branch(number: str, step: Branch, layout: SlotLayout, symbols: dict[Var, int]) -> str:
    code = ScalarCode(symbols)
    byte = code.emit(f"load i8, ptr {_address(step.condition, layout, code)}")
    chosen = code.emit(f"icmp ne i8 {byte}, 0")
    lines = [*code.lines, f"br i1 {chosen}, label %then, label %other"]
    functions = []
    for label, steps in (("then", step.then), ("other", step.other)):
        names = [f"{number}_{label}_{k}" for k in range(len(steps))]
        functions += [_step(m, s, layout, symbols) for m, s in zip(names, steps, strict=True)]
        inner = [f"call void @planish_step_{m}(ptr %slots)" for m in names]
        lines += ["", f"{label}:", *inner, "ret void"]
    return "\n".join([*functions, _function(number, lines)])


def _function(number: str, lines: list[str]) -> str:
    body = "\n".join(line if not line or line.endswith(":") else f"  {line}" for line in lines)
    return f"define internal void @planish_step_{number}(ptr %slots) nounwind {{\n{body}\n}}"


def _address(place: Place, layout: SlotLayout, code: ScalarCode) -> str:
    match place.kind:
        case "input":
            base = code.slot(layout.input(place.index), "ptr")
        case "output":
            base = code.slot(layout.output(place.index), "ptr")
        case "constant":
            base = code.slot(layout.constant(place.index), "ptr")
        case "arena":
            base = code.slot(layout.ARENA, "ptr")
    if isinstance(place.offset, Const) and place.offset.value == 0:
        return base
    return code.emit(f"getelementptr i8, ptr {base}, i64 {code.value(place.offset)}")


class ScalarCode:
    """Straight-line LLVM code for integers over symbols, which are words of ``%slots``."""

    def __init__(self, symbols: dict[Var, int]) -> None:
        self.symbols = symbols
        self.lines: list[str] = []
        self._values: dict[Expr, str] = {}
        self._slots: dict[int, str] = {}
        self._count = 0

    def emit(self, operation: str) -> str:
        """A new name for what ``operation`` gives."""
        self._count += 1
        self.lines.append(f"%v{self._count} = {operation}")
        return f"%v{self._count}"

    def slot(self, word: int, type: str) -> str:
        """What a word of the slots holds."""
        if word not in self._slots:
            address = self.emit(f"getelementptr i8, ptr %slots, i64 {8 * word}")
            self._slots[word] = self.emit(f"load {type}, ptr {address}, align 8")
        return self._slots[word]

    def value(self, root: Expr) -> str:
        """The value of an expression.

        Errors: CodegenError if it is no integer arithmetic over the symbols.
        """
        for e in walk(root):
            if e not in self._values:
                self._values[e] = self._value(e)
        return self._values[root]

    def _value(self, e: Expr) -> str:
        if e.dtype not in (I64, BOOL):
            raise CodegenError(f"a size may not be {e.dtype}", op="entry", node=str(e))
        kids = [self._values[c] for c in e.children]
        match e:
            case Const(value):
                return str(value).lower()
            case Var() if e in self.symbols:
                return self.slot(self.symbols[e], "i64")
            case n.FloorDiv() | n.FloorMod() | n.Div():
                return self._divide(e, *kids)
            case n.Min() | n.Max():
                name = _INTRINSICS[type(e)]
                return self.emit(f"call i64 @llvm.{name}.i64(i64 {kids[0]}, i64 {kids[1]})")
            case n.Eq(x) | n.Ne(x):
                test = "eq" if isinstance(e, n.Eq) else "ne"
                return self.emit(f"icmp {test} {_llvm(x.dtype)} {kids[0]}, {kids[1]}")
            case n.Not():
                return self.emit(f"xor i1 {kids[0]}, true")
            case n.Select():
                type_ = _llvm(e.dtype)
                return self.emit(f"select i1 {kids[0]}, {type_} {kids[1]}, {type_} {kids[2]}")
            case n.Cast(x) if x.dtype is BOOL:
                return self.emit(f"zext i1 {kids[0]} to i64")
            case n.Cast():
                return self.emit(f"icmp ne i64 {kids[0]}, 0")
            case n.Binary() if type(e) in _SIMPLE:
                return self.emit(f"{_SIMPLE[type(e)]} {kids[0]}, {kids[1]}")
            case _:
                raise CodegenError("a size is not integer arithmetic over the symbols", node=str(e))

    def _divide(self, e: n.Binary, x: str, y: str) -> str:
        if isinstance(e.rhs, Const) and e.rhs.value:
            divisor = y
            power = int(e.rhs.value)
            if power > 0 and power & (power - 1) == 0 and not isinstance(e, n.Div):
                if isinstance(e, n.FloorDiv):
                    return self.emit(f"ashr i64 {x}, {power.bit_length() - 1}")
                return self.emit(f"and i64 {x}, {power - 1}")
        else:
            zero = self.emit(f"icmp eq i64 {y}, 0")
            divisor = self.emit(f"select i1 {zero}, i64 1, i64 {y}")
            x = self.emit(f"select i1 {zero}, i64 0, i64 {x}")
        quotient = self.emit(f"sdiv i64 {x}, {divisor}")
        if isinstance(e, n.Div):
            return quotient
        product = self.emit(f"mul i64 {quotient}, {divisor}")
        rest = self.emit(f"sub i64 {x}, {product}")
        signs = self.emit(f"xor i64 {rest}, {divisor}")
        opposite = self.emit(f"icmp slt i64 {signs}, 0")
        some = self.emit(f"icmp ne i64 {rest}, 0")
        below = self.emit(f"and i1 {opposite}, {some}")
        if isinstance(e, n.FloorDiv):
            one = self.emit(f"zext i1 {below} to i64")
            return self.emit(f"sub i64 {quotient}, {one}")
        more = self.emit(f"select i1 {below}, i64 {divisor}, i64 0")
        return self.emit(f"add i64 {rest}, {more}")


def _llvm(dtype: DType) -> str:
    return "i1" if dtype is BOOL else "i64"


def _entries(steps: int) -> str:
    """Both entry points."""
    if not steps:
        return (
            f"define void @{MAIN}(ptr %slots) nounwind {{\n  ret void\n}}\n"
            f"define void @{PROFILE}(ptr %slots, ptr %nanoseconds) nounwind {{\n  ret void\n}}\n"
        )
    table = ", ".join(f"ptr @planish_step_{k}" for k in range(steps))
    calls = "\n".join(f"  call void @planish_step_{k}(ptr %slots)" for k in range(steps))
    return f"""
@planish_steps = internal constant [{steps} x ptr] [{table}]

define void @{MAIN}(ptr %slots) nounwind {{
{calls}
  ret void
}}

define internal i64 @planish_clock() nounwind {{
  %time = alloca [2 x i64], align 8
  %result = call i32 @clock_gettime(i32 {_MONOTONIC}, ptr %time)
  %rest = getelementptr i8, ptr %time, i64 8
  %s = load i64, ptr %time, align 8
  %ns = load i64, ptr %rest, align 8
  %s.ns = mul i64 %s, 1000000000
  %sum = add i64 %s.ns, %ns
  ret i64 %sum
}}

define void @{PROFILE}(ptr %slots, ptr %nanoseconds) nounwind {{
entry:
  %start = call i64 @planish_clock()
  br label %step

step:
  %k = phi i64 [ 0, %entry ], [ %next, %step ]
  %before = phi i64 [ %start, %entry ], [ %after, %step ]
  %place = getelementptr ptr, ptr @planish_steps, i64 %k
  %function = load ptr, ptr %place, align 8
  call void %function(ptr %slots)
  %after = call i64 @planish_clock()
  %spent = sub i64 %after, %before
  %cell = getelementptr i64, ptr %nanoseconds, i64 %k
  store i64 %spent, ptr %cell, align 8
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, {steps}
  br i1 %more, label %step, label %done

done:
  ret void
}}
"""
