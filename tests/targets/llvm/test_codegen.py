"""Small programs for each kind of statement and buffer: natively as on the interpreter."""

from __future__ import annotations

from functools import cache

import pytest

from planish.compiler.dtypes import F32
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.loop import te
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.lower import lower
from planish.compiler.loop.text import parse
from planish.targets.llvm.builder import ModuleText
from planish.targets.llvm.codegen import kernel_ir
from planish.targets.llvm.isa import Isa
from planish.targets.llvm.target import Llvm
from planish.targets.target import parse_target

from .more_programs import PROGRAMS
from .running import Batch, assert_close, lowered

# This machine, and what it can run of lesser ones.
TARGETS = ("llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64")


def runnable(text: str) -> Llvm:
    target = parse_target(text if text == "llvm" else f"{text} -mtriple=x86_64-unknown-linux-gnu")
    assert isinstance(target, Llvm)
    if target.missing:
        pytest.skip(f"this machine lacks {', '.join(target.missing)}")
    return target


@cache
def batch(target: str) -> Batch:
    return Batch.of({name: p.function for name, p in PROGRAMS.items()}, runnable(target))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, target: str) -> None:
    program, compiled = PROGRAMS[name], batch(target)
    for sizes in program.sizes:
        inputs = program.inputs(sizes)
        wanted = interpret(program.function, inputs, sizes)
        for threads, front in ((1, False), (1, True), (2, False), (2, True)):
            found = compiled.run(name, inputs, sizes, threads, front)
            for x, y in zip(found, wanted, strict=True):
                assert_close(x, y, 4.0)


def error_of(text: str) -> CodegenError:
    with pytest.raises(CodegenError) as caught:
        kernel_ir(lowered(parse(text)), ModuleText(), Isa())
    return caught.value


def test_errors_say_where() -> None:
    error = error_of("""
def f(x: f32[8], *, y: f32[8]):
    for i in bind(8, "thread.x"):
        with block("y", i0=spatial(8, i)):
            y[i0] = x[i0]
""")
    assert "a CPU has no thread.x loops" in str(error)
    assert "in f" in str(error)
    error = error_of("""
def f(x: f32[8], *, y: f32[8]):
    for i in vector(8):
        with block("store", i0=spatial(8, i)):
            y[i0 // 8] = x[i0]
""")
    assert "every lane stores to one element of y, in block store, in f" in str(error)
    error = error_of("""
def f(x: f32[4096], *, y: f32[4096]):
    for i in vector(4096):
        with block("y", i0=spatial(4096, i)):
            y[i0] = x[i0]
""")
    assert "a vector loop of 4096 iterations, in f" in str(error)
    assert "split it" in str(error)
    error = error_of("""
def f(x: f32[n], *, y: f32[n]):
    for i in unrolled(n):
        with block("y", i0=spatial(n, i)):
            y[i0] = x[i0]
""")
    assert "unrolled loop of unknown extent, in f" in str(error)


def test_a_long_chain_of_choices_takes_code_in_proportion() -> None:
    """Each load is guarded by all choices before it, and shares what is known of them."""

    def lines(count: int) -> int:
        inputs = [te.placeholder((4,), F32, f"x{k}") for k in range(count)]
        out = te.compute((4 * count,), lambda i: _chosen(inputs, i), "y")
        module = ModuleText()
        kernel_ir(lowered(lower("f", inputs, [out])), module, Isa())
        return module.text().count("\n")

    assert lines(120) < 2.5 * lines(60)


def _chosen(inputs: list[te.Tensor], i: Expr) -> Expr:
    out = inputs[-1][i - 4 * (len(inputs) - 1)]
    for k in reversed(range(len(inputs) - 1)):
        out = n.select(n.lt(i, 4 * (k + 1)), inputs[k][i - 4 * k], out)
    return out
