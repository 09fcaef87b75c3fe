"""Whether a compiled model is right: against an oracle, and if not, where it goes wrong first.

The oracle is ONNX Runtime, or the operators' numpy references. If an output is off, every value
inside is made an output and the first one that is off is named; then the passes are tried one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import from_numpy
from planish.compiler.errors import CodegenError, PlanishError, TypeCheckError

if TYPE_CHECKING:
    from planish.compiler.graph.ir import Graph, Node
    from planish.runtime.module import Module

Array = npt.NDArray[Any]
Oracle = Callable[[Iterable[str]], dict[str, Array]]

ORACLES: Final = ("onnxruntime", "reference")


@dataclass(frozen=True)
class Difference:
    """How far a value is off: its largest error, as a share of its largest magnitude."""

    name: str
    error: float
    right: bool
    what: str = ""


@dataclass(frozen=True)
class Report:
    """What ``verify`` found; ``node`` and ``blame`` are empty if everything is right."""

    outputs: tuple[Difference, ...]
    node: str = ""
    value: Difference | None = None
    blame: str = ""

    @property
    def right(self) -> bool:
        return all(d.right for d in self.outputs)


def compare(name: str, found: Array, wanted: Array, tolerance: float) -> Difference:
    """How far an array is off another; integers and bools must be equal."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        what = f"{found.dtype}{list(found.shape)}, wanted {wanted.dtype}{list(wanted.shape)}"
        return Difference(name, float("inf"), False, what)
    if not found.size:
        return Difference(name, 0.0, True)
    if not from_numpy(found.dtype).is_float:
        wrong = int((found != wanted).sum())
        return Difference(name, wrong / found.size, wrong == 0, f"{wrong} differ" if wrong else "")
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not (np.isfinite(a) == finite).all() or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return Difference(name, float("inf"), False, "NaN or infinite in other places")
    scale = float(np.abs(b[finite]).max(initial=0)) or 1.0
    error = float(np.abs(a[finite] - b[finite]).max(initial=0)) / scale
    return Difference(name, error, error <= tolerance)


def onnxruntime_oracle(model: Path | bytes, inputs: Mapping[str, Array]) -> Oracle:
    """Values of a model by their ONNX names, as ONNX Runtime computes them."""
    import onnx

    from planish.bench import onnx_outputs, onnx_session

    def values(names: Iterable[str]) -> dict[str, Array]:
        proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        own = [o.name for o in proto.graph.output]
        made = {o for node in proto.graph.node for o in node.output if o}
        extra = [n for n in names if n in made and n not in own]
        proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in extra)
        session = onnx_session(proto.SerializeToString() if extra else model, None)
        wanted = [*own, *extra]
        return dict(zip(wanted, onnx_outputs(session, wanted, inputs), strict=True))

    return values


def reference_oracle(graph: Graph, inputs: Mapping[str, Array]) -> Oracle:
    """Values of a graph by their names, as the operators' references compute them."""
    from planish.compiler.graph.reference import run_reference

    found: dict[str, Array] = {}

    def observe(node: Node, results: tuple[Array, ...]) -> None:
        found.update(zip((v.name for v in node.outputs), results, strict=True))

    def values(names: Iterable[str]) -> dict[str, Array]:
        outputs = run_reference(graph, dict(inputs), observe)
        return {**found, **dict(zip(graph.output_names, outputs, strict=True))}

    return values


def verify(
    graph: Graph,
    oracle: Oracle,
    inputs: Mapping[str, Array],
    build: Callable[[Graph, bool], Module],
    tolerance: float = 1e-4,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compare a graph, compiled by ``build(graph, optimize)``, with an oracle.

    Errors: what compiling or the oracle raise.
    """
    say("asking the oracle")
    wanted = oracle(())
    say("compiling")
    found = build(graph, True).run(inputs)
    outputs = tuple(compare(n, found[n], wanted[n], tolerance) for n in graph.output_names)
    if all(d.right for d in outputs):
        return Report(outputs)
    say("looking for the first node that is off")
    node, value = first_wrong(graph, oracle, inputs, build, tolerance)
    say("trying the passes")
    return Report(outputs, node, value, blame(graph, oracle, inputs, build, tolerance))


def with_all_values(graph: Graph) -> Graph:
    """The graph with everything that its nodes make as outputs, by their names."""
    values = [v for node in graph.nodes for v in node.outputs]
    return graph.with_(outputs=tuple(values), output_names=tuple(v.name for v in values))


def first_wrong(
    graph: Graph,
    oracle: Oracle,
    inputs: Mapping[str, Array],
    build: Callable[[Graph, bool], Module],
    tolerance: float,
) -> tuple[str, Difference | None]:
    """The first node, in order, with a value that is off when all values are kept; as text."""
    whole = with_all_values(graph)
    try:
        found = build(whole, True).run(inputs)
    except PlanishError as error:
        return f"(with every value kept it does not run: {error.message})", None
    wanted = oracle(whole.output_names)
    for node in graph.nodes:
        for v in node.outputs:
            if v.name in wanted:
                d = compare(v.name, found[v.name], wanted[v.name], tolerance)
                if not d.right:
                    return repr(node), d
    return "(with every value kept, all are right: it depends on what is fused)", None


def blame(
    graph: Graph,
    oracle: Oracle,
    inputs: Mapping[str, Array],
    build: Callable[[Graph, bool], Module],
    tolerance: float,
) -> str:
    """Which stage of the compiler makes the difference."""
    from planish.compiler.graph.reference import run_reference
    from planish.compiler.pipeline import GRAPH_PASSES

    wanted = oracle(())

    def right(results: Mapping[str, Array]) -> bool:
        return all(compare(n, results[n], wanted[n], tolerance).right for n in graph.output_names)

    def reference(g: Graph) -> dict[str, Array]:
        return dict(zip(g.output_names, run_reference(g, dict(inputs)), strict=True))

    try:
        if not right(reference(graph)):
            return "the importer, or an operator's reference: it is off before any pass"
        for p in GRAPH_PASSES:
            graph = p.run(graph)
            if not right(reference(graph)):
                return f"the graph pass {p.name}"
        if right(build(graph, False).run(inputs)):
            return "fusion or schedules: every node as a function of its own is right"
    except PlanishError as error:
        return f"(not found out: {error.message})"
    return "an operator's expression, or code generation: it is off with optimize=False, too"


def check_oracle(name: str, is_onnx: bool) -> None:
    """Whether there is such an oracle for such a model.

    Errors: TypeCheckError, CodegenError.
    """
    if name not in ORACLES:
        raise TypeCheckError(f"there is no oracle {name}", hint=f"one of: {' '.join(ORACLES)}")
    if not is_onnx:
        raise CodegenError(
            "a module file holds no graph to compare with", hint="verify the model it was made of"
        )
