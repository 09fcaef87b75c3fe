"""Running a graph by its operators' numpy references: the oracle of everything that is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from planish.compiler.dtypes import I64, from_numpy
from planish.compiler.errors import PlanishError, RuntimeFault, TypeCheckError
from planish.compiler.expr.nodes import Expr, Var, const, free_vars
from planish.compiler.expr.sizes import evaluate

from .ir import Array, Graph, Node, TensorType, Value

Observer = Callable[[Node, tuple[Array, ...]], None]


def run_reference(
    graph: Graph,
    inputs: Mapping[str, Array],
    observe: Observer | None = None,
    symbols: Mapping[Expr, int] | None = None,
) -> tuple[Array, ...]:
    """The graph's outputs, in order, for inputs by the user's names.

    ``observe`` sees each node with what it gave. ``symbols`` are the values of those that a
    subgraph has from around it.

    Errors: RuntimeFault if inputs do not fit, a reference fails, or a result is not of its type;
    TypeCheckError if a condition on the inputs' sizes does not hold.
    """
    around = {v: const(k, I64) for v, k in (symbols or {}).items() if isinstance(v, Var)}
    values, known = bind_inputs(graph, inputs, around)
    values.update(graph.constants)
    last = {v: node for node in graph.nodes for v in node.operands}
    keep = set(graph.outputs)
    for node in graph.nodes:
        arrays = [None if v is None else values[v] for v in node.inputs]
        for v, out in zip(node.outputs, run_node(node, arrays, known), strict=True):
            values[v] = out
        if node.op.binds:
            check_conditions(graph, known, node.op.binds)
        if observe is not None:
            observe(node, tuple(values[v] for v in node.outputs))
        for v in node.operands:
            if last[v] is node and v not in keep:
                values.pop(v, None)
    return tuple(values[v] for v in graph.outputs)


def bind_inputs(
    graph: Graph, inputs: Mapping[str, Array], around: Mapping[Var, Expr] | None = None
) -> tuple[dict[Value, Array], dict[Var, Expr]]:
    """The arrays of the inputs and the numbers of the symbols that they imply, or that are known.

    Errors: RuntimeFault naming what does not fit; TypeCheckError for a condition on the sizes.
    """
    for name in inputs:
        if name not in graph.input_names:
            raise RuntimeFault(
                f"there is no input {name!r}", hint="inputs: " + ", ".join(graph.input_names)
            )
    values: dict[Value, Array] = {}
    symbols: dict[Var, Expr] = dict(around or {})
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        array = inputs.get(name, graph.defaults.get(name))
        if array is None:
            raise RuntimeFault(f"input {name!r} is missing")
        array = np.asarray(array)
        if from_numpy(array.dtype) is not value.type.dtype or array.ndim != value.type.rank:
            raise RuntimeFault(
                f"input {name!r} is {array.dtype}{list(array.shape)}, not {value.type}"
            )
        for d, extent in zip(value.type.shape, array.shape, strict=True):
            number = const(extent, I64)
            if isinstance(d, Var) and d not in symbols:
                symbols[d] = number
            elif evaluate(d, symbols) != extent:
                raise RuntimeFault(f"dimension {d} of input {name!r} is {extent}")
        values[value] = array
    check_conditions(graph, symbols)
    return values, symbols


def check_conditions(
    graph: Graph, symbols: Mapping[Var, Expr], new: tuple[Var, ...] | None = None
) -> None:
    """Check the conditions on symbols of which all are known, and one is new if those are given.

    Errors: TypeCheckError naming one that does not hold.
    """
    for condition in graph.constraints:
        free = free_vars(condition)
        if new is not None and not any(v in new for v in free):
            continue
        if all(v in symbols for v in free) and not evaluate(condition, dict(symbols)):
            raise TypeCheckError(
                f"the sizes of the inputs do not fit: {condition} does not hold",
                op=graph.name,
                node=", ".join(f"{v.name} = {e}" for v, e in symbols.items()),
            )


def run_node(node: Node, arrays: list[Array | None], symbols: dict[Var, Expr]) -> tuple[Array, ...]:
    """One node's results; symbols that it binds are added to ``symbols``.

    Errors: RuntimeFault if there are none, or one is not of its type.
    """
    try:
        with np.errstate(all="ignore"):
            found = node.op.with_symbols(symbols).reference(*arrays)
    except PlanishError as error:
        raise error.within(repr(node)) from error
    except (ArithmeticError, IndexError, ValueError) as error:  # of numpy, as an index too large
        raise RuntimeFault(
            f"the reference fails: {error}", op=node.op.name, node=repr(node)
        ) from error
    results = found if isinstance(found, tuple) else (found,)
    out = tuple(map(np.asarray, results))
    try:
        found_symbols = node.op.bound(out)
    except PlanishError as error:
        raise error.within(repr(node)) from error
    symbols.update({v: const(k, I64) for v, k in found_symbols.items()})
    for value, array in zip(node.outputs, out, strict=True):
        _check(value.type, array, symbols, node)
    return out


def _check(type: TensorType, array: Array, symbols: dict[Var, Expr], node: Node) -> None:
    shape = tuple(extents(type, symbols))
    if array.dtype != type.dtype.numpy or array.shape != shape:
        raise RuntimeFault(
            f"the reference gave {array.dtype}{list(array.shape)}, not {type.dtype}{list(shape)}",
            op=node.op.name,
            node=repr(node),
        )


def extents(type: TensorType, symbols: dict[Var, Expr]) -> Iterator[int]:
    """A type's dimensions as numbers."""
    for d in type.shape:
        number = evaluate(d, symbols)
        if number is None:
            raise RuntimeFault(f"the dimension {d} is not known")
        yield int(number)


__all__ = ["bind_inputs", "extents", "run_node", "run_reference"]
