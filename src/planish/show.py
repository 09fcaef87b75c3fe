"""A model at the stages of its compilation, as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from planish.build import import_graph, make_program, optimized
from planish.compiler.errors import TypeCheckError

if TYPE_CHECKING:
    from planish.compiler.graph.fuse import Group
    from planish.compiler.graph.ir import Graph
    from planish.compiler.program import Program
    from planish.targets.target import Target

    Grouped: TypeAlias = Callable[[Graph], tuple[Group, ...]]

STAGES: Final = ("graph", "fused", "lowered", "loops", "llvm", "asm")


def stage_text(
    model: Any,
    stage: str,
    target: Target,
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    optimize: bool = True,
) -> str:
    """The model's text after a stage, without a newline at the end.

    ``graph`` is what was imported; ``fused`` the graph after its passes, its nodes by kernels;
    ``lowered`` the kernels as functions of plain loops; ``loops`` the functions as scheduled, after
    their traces; ``llvm`` and ``asm`` the code.

    Errors: TypeCheckError if there is no such stage; what compiling raises.
    """
    if stage not in STAGES:
        raise TypeCheckError(f"there is no stage {stage}", hint=f"one of: {' '.join(STAGES)}")
    graph = import_graph(model, dims, lambda _: None)
    if stage == "graph":
        return repr(graph).rstrip()
    if stage in ("fused", "lowered"):
        from planish.compiler.graph.fuse import fuse, singletons

        graph = optimized(graph, target) if optimize else graph
        return (_fused if stage == "fused" else _lowered)(graph, fuse if optimize else singletons)
    program = make_program(graph, target, threads, optimize, lambda _: None)
    if stage == "loops":
        return "\n\n".join(_scheduled(program))
    from planish.targets.llvm.program import kernel_texts
    from planish.targets.llvm.target import Llvm

    if not isinstance(target, Llvm):
        raise TypeCheckError(f"the target {target} has no stage {stage}", hint="use --target llvm")
    texts = kernel_texts(program, target)[:1]  # the pool is the same for all
    if stage == "llvm":
        from planish.targets.llvm.entry import entry_ir

        return "\n\n".join([*texts, entry_ir(program)]).rstrip()
    from planish.targets.llvm.native import assembly

    return assembly(texts, target).rstrip()


def _fused(graph: Graph, grouped: Grouped) -> str:
    """The graph, a comment in front of the nodes of each kernel; it parses as any graph's text."""
    from planish.compiler.graph.text import show

    groups = grouped(graph)
    graph = graph.with_(nodes=tuple(node for group in groups for node in group.nodes))
    lines = show(graph).rstrip().splitlines()
    own = [k for k, line in enumerate(lines) if not re.match("     |    def ", line)]
    ends = own[len(own) - len(graph.nodes) - 1 :]  # of the head, and of each node with its graphs
    head = lines[: ends[0] + 1]
    nodes = iter([lines[a + 1 : b + 1] for a, b in pairwise(ends)])
    kernel = 0
    for group in groups:
        if group.kind == "view":
            head.append("    # a view: no code")
        elif group.nodes[0].op.graphs:
            head.append("    # kernels of their own in the graphs")
        else:
            head.append(f"    # kernel {kernel}: {group.kind}")
            kernel += 1
        head += [line for _ in group.nodes for line in next(nodes)]
    return "\n".join(head)


def _kernels(graph: Graph, grouped: Grouped) -> Iterator[tuple[Group, Graph]]:
    """The groups of a graph that are functions, those in subgraphs too, with their graphs."""
    for group in grouped(graph):
        graphs = group.nodes[0].op.graphs
        for inner in graphs.values():
            yield from _kernels(inner, grouped)
        if group.kind != "view" and not graphs:
            yield group, graph


def _lowered(graph: Graph, grouped: Grouped) -> str:
    """The functions of the kernels, those that are equal up to names once."""
    from planish.compiler.graph.fuse import Kinds
    from planish.compiler.loop.text import canonical, show
    from planish.lowering import group_label, lower_group

    found = list(_kernels(graph, grouped))
    kernels = [group for group, _ in found]
    functions = [canonical(lower_group(group, inside.constants)) for group, inside in found]
    numbers: dict[str, list[int]] = {}
    for number, func in enumerate(functions):
        numbers.setdefault(show(func), []).append(number)
    parts, kinds = [], Kinds()
    for same in numbers.values():
        name = f"{group_label(kernels[same[0]], kinds)}_{same[0]}"
        head = f"# kernel{'s' * (len(same) > 1)} {', '.join(map(str, same))}"
        parts.append(f"{head}\n{show(functions[same[0]].with_(name=name))}")
    return "\n\n".join(parts)


def _scheduled(program: Program) -> Iterator[str]:
    """Each function, after the nodes that it computes and the trace that made it."""
    from planish.compiler.program import calls

    for name, func in program.functions.items():
        origins = [step.origin for step in calls(program.steps) if step.function == name]
        heads = [f"# computes {', '.join(origin)}" for origin in dict.fromkeys(origins)]
        trace = [f"#     {line}" for line in program.schedules[name].trace.splitlines()]
        yield "\n".join([*heads, *trace, repr(func)])
