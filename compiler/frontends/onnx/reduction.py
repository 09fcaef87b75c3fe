"""ONNX's reductions and arg-reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from planish.compiler.graph.ir import Value
from planish.compiler.ops import reduction

from .dynamic import axes_of
from .reader import NodeReader, handles

# Our operator, the versions, and the first one whose axes are an input rather than an attribute.
_REDUCE: Final[dict[str, tuple[Callable[..., Any], tuple[int, ...], int]]] = {
    "ReduceSum": (reduction.ReduceSum, (1, 11, 13), 13),
    "ReduceMean": (reduction.ReduceMean, (1, 11, 13, 18), 18),
    "ReduceMax": (reduction.ReduceMax, (1, 11, 12, 13, 18, 20), 18),
    "ReduceMin": (reduction.ReduceMin, (1, 11, 12, 13, 18, 20), 18),
    "ReduceProd": (reduction.ReduceProd, (1, 11, 13, 18), 18),
    "ReduceL1": (reduction.ReduceL1, (1, 11, 13, 18), 18),
    "ReduceL2": (reduction.ReduceL2, (1, 11, 13, 18), 18),
    "ReduceLogSum": (reduction.ReduceLogSum, (1, 11, 13, 18, 28), 18),
    "ReduceLogSumExp": (reduction.ReduceLogSumExp, (1, 11, 13, 18, 28), 18),
    "ReduceSumSquare": (reduction.ReduceSumSquare, (1, 11, 13, 18), 18),
}


def _reduce(make: Callable[..., Any], since: int) -> Callable[[NodeReader], Value]:
    def handle(r: NodeReader) -> Value:
        x = r.input(0)
        keepdims = bool(r.attribute("keepdims", 1))
        axes: tuple[int, ...] = ()
        nothing = False  # whether no axes mean none, rather than all
        if r.version < since:
            axes = tuple(r.attribute("axes", ()))
        else:
            nothing = bool(r.attribute("noop_with_empty_axes", 0))
            given = r.optional(1)
            if given is not None and given.type.size != 0:
                axes = axes_of(r, 1, "axes", x.type.rank)
        return r.one(make(axes if axes or nothing else None, keepdims), x)

    return handle


def _register() -> None:
    for op_type, (make, versions, since) in _REDUCE.items():
        handles(op_type, *versions)(_reduce(make, since))


_register()


def _arg(make: Callable[..., Any]) -> Callable[[NodeReader], Value]:
    def handle(r: NodeReader) -> Value:
        axis, keepdims = int(r.attribute("axis", 0)), bool(r.attribute("keepdims", 1))
        last = bool(r.attribute("select_last_index", 0)) if r.version >= 12 else False
        return r.one(make(axis, keepdims, last), r.input(0))

    return handle


handles("ArgMax", 1, 11, 12, 13)(_arg(reduction.ArgMax))
handles("ArgMin", 1, 11, 12, 13)(_arg(reduction.ArgMin))
