"""Known contents of small integer tensors: what operators on shapes work out at import."""

from __future__ import annotations

from collections.abc import Callable

from planish.compiler.dtypes import BOOL, I32, I64
from planish.compiler.expr.nodes import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Var
from planish.compiler.graph.ir import MAX_CONTENT, Content, TensorType


def nonnegative(e: Expr) -> bool:
    """Whether ``e`` is certainly at least 0, given that symbols (dimensions) are."""
    match e:
        case Const(value):
            return value >= 0
        case Var():
            return True
        case Add(x, y) | Mul(x, y) | FloorDiv(x, y) | Min(x, y):
            return nonnegative(x) and nonnegative(y)
        case Max(x, y):
            return nonnegative(x) or nonnegative(y)
        case FloorMod(_, Const(value)):
            return value > 0
        case _:
            return False


def known(values: Content, type: TensorType) -> Content | None:
    """``values`` as the content of a tensor of ``type``; None if it does not hold them."""
    if type.dtype not in (I32, I64, BOOL):
        return None  # narrow types wrap around, which the i64 expressions of contents do not
    if type.dtype is not BOOL:
        for e in values:
            if isinstance(e, Const) and not type.dtype.min <= e.value <= type.dtype.max:
                return None
    return values


def elementwise(
    function: Callable[..., Expr | None], inputs: tuple[Content | None, ...], output: TensorType
) -> Content | None:
    """The content of an elementwise result, if those of the inputs are known.

    An input has one element, or as many as the result and then in the same order.
    """
    size = output.size
    if size is None or size > MAX_CONTENT:
        return None
    columns: list[Content] = []
    for content in inputs:
        if content is None or len(content) not in (1, size):
            return None
        columns.append(content * size if len(content) == 1 else content)
    out: list[Expr] = []
    for row in zip(*columns, strict=True):
        element = function(*row)
        if element is None:
            return None
        out.append(element)
    return known(tuple(out), output)
