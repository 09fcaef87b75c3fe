"""The native entry point of a program: one function that calls all kernels in order.

``i32 planish_main(ptr slots)`` runs the program, as ``planish.compiler.calling`` says.
``i32 planish_profile(ptr slots, ptr nanoseconds)`` does the same and writes how long each step
took.

Every step is a small function of its own that computes its arguments from the slots; one entry
point calls them all, the other goes through a table of them. The module is compiled apart from the
kernels and without effort (``level=0``): its code takes no time, but a model has hundreds of steps.
"""

from __future__ import annotations

from planish.compiler.errors import CodegenError
from planish.compiler.program import Program, calls, slot_layout

from . import scalars
from .steps import ALLOCATION, Steps, run_all, symbol_words
from .symbols import MAIN, PROFILE

_MONOTONIC = 1  # CLOCK_MONOTONIC on Linux


def entry_ir(program: Program) -> str:
    """The entry points of a program, as a module of LLVM IR that declares the kernels.

    Errors: CodegenError for a size that is no integer arithmetic over the program's symbols.
    """
    layout = slot_layout(program)
    steps = Steps(layout, symbol_words(layout, (*program.symbols, *program.bound)))
    for k, step in enumerate(program.steps):
        steps.add(str(k), step)
    calls = run_all((str(k), step) for k, step in enumerate(program.steps))
    main = "\n".join(f"  {line}" if line and not line.endswith(":") else line for line in calls)
    return "\n".join(
        [*_declarations(program), *steps.functions, _main(main), _profile(len(program.steps))]
    )


def _declarations(program: Program) -> list[str]:
    seen: dict[str, str] = {}
    for step in calls(program.steps):
        types = ["ptr"] * len(step.arguments) + ["i64"] * len(step.symbols) + ["ptr", "ptr", "i64"]
        line = f'declare void @"{step.function}"({", ".join(types)})'
        if seen.setdefault(step.function, line) != line:
            raise CodegenError(f"{step.function} is called with different numbers of arguments")
    clock = "declare i32 @clock_gettime(i32, ptr)"
    return [*seen.values(), *scalars.DECLARATIONS, clock, ALLOCATION]


def _main(calls: str) -> str:
    return f"""
define i32 @{MAIN}(ptr %slots) nounwind {{
{calls}
  ret i32 0
}}
"""


def _profile(steps: int) -> str:
    """The entry point that measures."""
    if not steps:
        return f"define i32 @{PROFILE}(ptr %slots, ptr %nanoseconds) nounwind {{\n  ret i32 0\n}}\n"
    table = ", ".join(f"ptr @planish_step_{k}" for k in range(steps))
    return f"""
@planish_steps = internal constant [{steps} x ptr] [{table}]

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

define i32 @{PROFILE}(ptr %slots, ptr %nanoseconds) nounwind {{
entry:
  %start = call i64 @planish_clock()
  br label %step

step:
  %k = phi i64 [ 0, %entry ], [ %next, %step ]
  %before = phi i64 [ %start, %entry ], [ %after, %step ]
  %place = getelementptr ptr, ptr @planish_steps, i64 %k
  %function = load ptr, ptr %place, align 8
  %result = call i32 %function(ptr %slots)
  %after = call i64 @planish_clock()
  %spent = sub i64 %after, %before
  %cell = getelementptr i64, ptr %nanoseconds, i64 %k
  store i64 %spent, ptr %cell, align 8
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, {steps}
  %good = icmp eq i32 %result, 0
  %goes_on = and i1 %more, %good
  br i1 %goes_on, label %step, label %done

done:
  ret i32 %result
}}
"""
