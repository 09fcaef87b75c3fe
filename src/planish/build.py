"""From a model to a compiled module: frontend, pipeline, code generation, runtime."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from planish.compiler.config import CONFIG
from planish.compiler.errors import CodegenError, TypeCheckError
from planish.compiler.given import as_number, as_path, as_sizes, as_truth
from planish.compiler.remembering import tidy
from planish.runtime.module import Module
from planish.targets.target import Code, Target, parse_target
from planish.version import __version__

if TYPE_CHECKING:
    from planish.compiler.expr.nodes import Expr
    from planish.compiler.graph.ir import Graph
    from planish.compiler.program import AnyStep, Program, Step

Progress = Callable[[str], None]
Logs: TypeAlias = Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None


def compile(
    model: Any,
    target: str | Target | None = None,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    logs: Logs = None,
    dtype: str | None = None,
    accuracy: str = "default",
    optimize: bool = True,
    *,
    progress: Progress | None = None,
) -> Module:
    """A module of an ONNX model: a path, its bytes, or a ``ModelProto``.

    ``target``: None is ``PLANISH_TARGET``, or this machine. ``dims`` fixes symbolic sizes by
    their names, as they are printed or as the model has them. ``threads`` is what a call may use
    at most; None: all that the process may use. ``logs``: None is the shipped tuning logs and
    ``PLANISH_LOGS``, ``[]`` none, a list (or one path) exactly those files. ``accuracy="strict"``
    does without what trades rounding for speed: convolutions by tiles (Winograd), which have up to
    some twice the error of plain sums, and NaN around what is not finite. ``optimize=False`` runs
    every node as a plain function of its own. ``progress`` is told what is being done.

    Errors: ParseError for a file that cannot be read or is no ONNX model; ImportModelError for what
    is not supported in one; CodegenError for what cannot be compiled; TypeCheckError for options
    that do not fit.
    """
    if progress is not None and not callable(progress):
        raise TypeCheckError(
            f"progress is of type {type(progress).__name__}, and must be a function", op="compile"
        )
    say = progress or (lambda _: None)
    if CONFIG.time:
        say = timed(say)
    sizes = as_sizes(dims, "dims", "compile")
    threads = None if threads is None else as_number(threads, "threads", "compile", least=1)
    optimize = as_truth(optimize, "optimize", "compile")
    _check_options(dtype, accuracy)
    machine_target = resolve_target(target)
    found = tuning_logs(machine_target, logs)
    try:
        graph = import_graph(model, sizes, say)
        module = compile_imported(graph, machine_target, threads, optimize, accuracy, say, found)
    finally:
        tidy()
    say("")
    return module


def timed(say: Progress) -> Progress:
    """The same, also writing to stderr how long each thing took, when the next one begins."""
    last: tuple[str, float] | None = None

    def report(what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        if last is not None:
            sys.stderr.write(f"{1e3 * (now - last[1]):9.1f} ms  {last[0]}\n")
        last = (what, now) if what else None
        say(what)

    return report


def compile_imported(
    graph: Graph,
    target: Target,
    threads: int | None = None,
    optimize: bool = True,
    accuracy: str = "default",
    say: Progress = lambda _: None,
    logs: Sequence[Path] = (),
) -> Module:
    """The module of a graph, with the schedules that logs have for its functions.

    Errors: CodegenError if it cannot be compiled.
    """
    program = make_program(graph, target, threads, optimize, say, logs, accuracy == "strict")
    code = target.code(program, say)
    provenance = {
        "planish": __version__,
        "llvm": _llvm_version(),
        "python": platform.python_version(),
        "optimize": optimize,
        "accuracy": accuracy,
        "schedules": {k: {"how": s.how, "trace": s.trace} for k, s in program.schedules.items()},
    }
    return assemble(program, code, threads, provenance)


def _check_options(dtype: object, accuracy: object) -> None:
    if not isinstance(accuracy, str) or accuracy not in ("default", "strict"):
        raise TypeCheckError(
            f"accuracy is {accuracy!r}", op="compile", hint="one of: default, strict"
        )
    if dtype is not None:
        raise TypeCheckError("models are compiled in their own dtypes only", op="compile")


def tuning_logs(target: Target, logs: Logs) -> tuple[Path, ...]:
    """The tuning logs that a compilation uses: those given, or the shipped and the user's own.

    Errors: TypeCheckError for one that is not there, or what is no list of paths.
    """
    if isinstance(logs, str | bytes | os.PathLike):
        logs = [logs]
    if not isinstance(logs, Iterable | None):
        raise TypeCheckError(
            f"logs is of type {type(logs).__name__}, not a list of paths", op="compile"
        )
    given = tuple(as_path(log, "compile") for log in (CONFIG.logs if logs is None else logs))
    for log in given:
        if not os.path.isfile(log):
            what = f"{log} is no file" if os.path.exists(log) else f"there is no tuning log {log}"
            raise TypeCheckError(what, op="compile")
    if logs is not None:
        return given
    from planish.tuning import shipped_logs

    return (*shipped_logs(target), *given)


def resolve_target(target: str | Target | None) -> Target:
    """The target that code is made for.

    Errors: ParseError for a text that names none, CodegenError for another thing.
    """
    if target is None:
        target = CONFIG.target
    found = parse_target(target) if isinstance(target, str) else target
    if not isinstance(found, Target):
        raise CodegenError(
            f"a module cannot be compiled for the target {found}", hint="use the target llvm"
        )
    return found


def import_graph(model: Any, dims: Mapping[str, int] | None, say: Progress) -> Graph:
    """The graph of a model.

    Errors: ImportModelError, or TypeCheckError for dims that it does not have.
    """
    say("reading the model")
    from planish.compiler.frontends.onnx.importer import import_model

    return import_model(model, dims)


def optimized(graph: Graph, target: Target, say: Progress = lambda _: None) -> Graph:
    """The graph after all passes, constants worked out by the target's code."""
    say("optimising the graph")
    from planish.compiler.graph.subgraphs import everywhere
    from planish.compiler.pipeline import GRAPH_PASSES, run
    from planish.folding import fold_by_kernels

    graph = run(graph, GRAPH_PASSES)
    folded = everywhere(graph, lambda g: fold_by_kernels(g, target))
    return graph if folded is graph else run(folded, GRAPH_PASSES)


def make_program(
    graph: Graph,
    target: Target,
    threads: int | None,
    optimize: bool,
    say: Progress,
    logs: Sequence[Path] = (),
    strict: bool = False,
) -> Program:
    """The program of a graph: fused, scheduled for so many threads, placed."""
    from planish.assembly import compile_graph
    from planish.tuning import Tuned

    if optimize:
        graph = optimized(graph, target, say)
    say("scheduling")
    most = threads_for(target, threads)
    tuned = Tuned(logs, target, most)
    return with_work(
        compile_graph(graph, target.machine, most, optimize, target.scheduled, tuned, strict)
    )


def threads_for(target: Target, threads: int | None) -> int:
    """How many threads schedules are made for."""
    return threads or CONFIG.threads or _threads_of(target)


def _threads_of(target: Target) -> int:
    """How many threads code for a target may expect."""
    if not target.scheduled:
        return 1
    from planish.runtime.pool import available_cpus
    from planish.targets.llvm.target import Llvm

    here = isinstance(target, Llvm) and target.is_host
    # A module that is compiled where there is one CPU may be run where there are more.
    return max(2, available_cpus() if here else target.machine.cores)


def with_work(program: Program) -> Program:
    """The program with the steps saying how much they have to do, as far as symbols tell it."""
    from planish.compiler.expr.nodes import as_expr, free_vars, substitute
    from planish.compiler.loop.work import argument_bytes, flops

    functions = {name: (flops(f), argument_bytes(f)) for name, f in program.functions.items()}
    symbols = {name: f.symbols for name, f in program.functions.items()}
    known = frozenset(program.symbols)

    def work(step: Step) -> tuple[Expr, Expr]:
        values = dict(zip(symbols[step.function], step.symbols, strict=True))
        done, moved = (substitute(e, values) for e in functions[step.function])
        return done, moved

    def told(e: Expr) -> Expr:
        return e if known.issuperset(free_vars(e)) else as_expr(0)

    return replace(program, steps=_worked(program.steps, work, told))


def _worked(
    steps: Sequence[AnyStep],
    work: Callable[[Step], tuple[Expr, Expr]],
    told: Callable[[Expr], Expr],
) -> tuple[AnyStep, ...]:
    """The steps with the work of their functions, branches with that of their larger side."""
    from planish.compiler.expr.nodes import as_expr, maximum
    from planish.compiler.program import Branch, Repeat, Step

    def total(some: Sequence[AnyStep]) -> tuple[Expr, Expr]:
        zero = as_expr(0)
        return sum((s.flops for s in some), zero), sum((s.bytes for s in some), zero)

    out: list[AnyStep] = []
    for step in steps:
        match step:
            case Step():
                flops, moved = work(step)
            case Branch():
                then, other = (_worked(side, work, told) for side in (step.then, step.other))
                step = replace(step, then=then, other=other)
                flops, moved = map(maximum, total(then), total(other))
            case Repeat():
                step = replace(step, steps=_worked(step.steps, work, told))
                times = as_expr(1) if step.trip is None else step.trip
                flops, moved = (times * e for e in total(step.steps))
            case _:
                out.append(step)
                continue
        out.append(replace(step, flops=told(flops), bytes=told(moved)))
    return tuple(out)


def assemble(
    program: Program,
    code: Code,
    threads: int | None,
    provenance: Mapping[str, Any] | None = None,
) -> Module:
    """The module of a program and the code that a target made of it.

    Errors: CodegenError if this machine cannot run it.
    """
    from planish.runtime.interface import interface_of

    return Module(
        interface_of(program),
        code,
        program.constants,
        defaults=program.defaults,
        threads=threads,
        provenance=provenance,
    )


def _llvm_version() -> str:
    import llvmlite.binding as llvm

    return ".".join(map(str, llvm.llvm_version_info))
