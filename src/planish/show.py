"""A model at the stages of its compilation, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from planish.build import import_graph, kernel_texts, make_program, optimized
from planish.compiler.errors import TypeCheckError

if TYPE_CHECKING:
    from planish.targets.llvm.target import Llvm

STAGES: Final = ("graph", "fused", "loops", "llvm", "asm")


def stage_text(
    model: Any,
    stage: str,
    target: Llvm,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    optimize: bool = True,
) -> str:
    """The model's text after a stage.

    ``graph`` is what was imported; ``fused`` the graph after its passes, by kernels; ``loops`` the
    scheduled functions; ``llvm`` and ``asm`` their code.

    Errors: TypeCheckError if there is no such stage; what compiling raises.
    """
    if stage not in STAGES:
        raise TypeCheckError(f"there is no stage {stage}", hint=f"one of: {' '.join(STAGES)}")
    graph = import_graph(model, dims, lambda _: None)
    if stage == "graph":
        return repr(graph)
    if stage == "fused":
        from planish.compiler.graph.fuse import fuse, singletons

        graph = optimized(graph) if optimize else graph
        groups = fuse(graph) if optimize else singletons(graph)
        lines = []
        for k, group in enumerate(groups):
            lines.append(f"# kernel {k}: {group.kind}")
            lines += [f"    {node!r}" for node in group.nodes]
        return "\n".join(lines)
    program = make_program(graph, target, threads, optimize, lambda _: None)
    if stage == "loops":
        parts = []
        for name, func in program.functions.items():
            trace = program.traces.get(name, "")
            parts.append("\n".join([*(f"# {line}" for line in trace.splitlines()), repr(func)]))
        return "\n\n".join(parts)
    texts = kernel_texts(program, target)[:1]  # the pool is the same for all
    if stage == "llvm":
        from planish.targets.llvm.entry import entry_ir

        return "\n\n".join([*texts, entry_ir(program)])
    from planish.targets.llvm.native import assembly

    return assembly(texts, target)
