"""A program as LLVM modules: its kernels, the thread pool, and the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planish.compiler.pipeline import LOOP_PASSES, run
from planish.compiler.program import Program, calls

from .builder import ModuleText
from .codegen import kernel_ir
from .entry import entry_ir
from .isa import Isa
from .native import Objects, object_code
from .pool import pool_ir
from .target import Llvm

if TYPE_CHECKING:
    from planish.targets.target import Progress


def isa_of(target: Llvm) -> Isa:
    """What the emitter has to know of a target."""
    machine = target.machine
    return Isa(machine.isa, machine.vector_bytes // 4, frozenset(target.features))


def kernels_ir(program: Program, target: Llvm) -> str:
    """The kernels' code."""
    module = ModuleText()
    module.declare("planish_parallel", "void", "ptr", "ptr", "ptr", "i64", "i64")
    isa = isa_of(target)
    for func in program.functions.values():
        kernel_ir(run(func, LOOP_PASSES), module, isa)
    return module.text()


def kernel_texts(program: Program, target: Llvm) -> list[str]:
    """The kernels and the thread pool as modules of LLVM IR."""
    return [kernels_ir(program, target), pool_ir(target.triple)]


def native_code(program: Program, target: Llvm, say: Progress) -> Objects:
    """Object code: the kernels with the thread pool, and the entry point.

    Errors: CodegenError.
    """
    count = len(program.functions)
    functions = f"{count} function{'s' * (count != 1)}"
    say(f"generating {functions}")
    texts = kernel_texts(program, target)
    say(f"compiling {functions}")
    called = tuple(dict.fromkeys(step.function for step in calls(program.steps)))
    return Objects(
        (
            object_code(texts, target, exports=called),
            object_code(entry_ir(program), target, level=0),
        ),
        target,
    )
