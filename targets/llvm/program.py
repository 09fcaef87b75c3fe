"""A whole program as one LLVM module: its kernels, the entry point, and the pool's functions."""

from __future__ import annotations

from planish.compiler.pipeline import LOOP_PASSES, run
from planish.compiler.program import Program

from .builder import ModuleText
from .codegen import kernel_ir
from .entry import entry_ir
from .isa import Isa
from .pool import pool_ir
from .target import Llvm


def isa_of(target: Llvm) -> Isa:
    """What the emitter has to know of a target."""
    machine = target.machine
    return Isa(machine.isa, machine.vector_bytes // 4)


def kernels_ir(program: Program, target: Llvm) -> str:
    """The kernels' code."""
    module = ModuleText()
    isa = isa_of(target)
    for func in program.functions.values():
        kernel_ir(run(func, LOOP_PASSES), module, isa)
    return module.text()


def program_ir(program: Program, target: Llvm) -> str:
    """Everything: what becomes the object code of a module."""
    return "\n".join([pool_ir(), kernels_ir(program, target), entry_ir(program)])
