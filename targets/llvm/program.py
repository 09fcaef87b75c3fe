"""The kernels of a program as one LLVM module."""

from __future__ import annotations

from planish.compiler.pipeline import LOOP_PASSES, run
from planish.compiler.program import Program

from .builder import ModuleText
from .codegen import kernel_ir
from .isa import Isa
from .target import Llvm


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
