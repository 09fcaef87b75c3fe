"""Tensor expressions: what a tensor's elements are, before anything is said about loops.

A tensor is a placeholder or a *stage*: its element at ``axes`` is ``body``, or the reduction of
``body`` over ``reduce_axes`` by ``combiner``. Bodies load other tensors' elements by name;
``sources`` are those tensors. Names are unique in the process; lowering renames them by order of
use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeAlias

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.errors import InternalError, TypeCheckError
from planish.compiler.expr.nodes import Const, Expr, Like, Load, Var, as_expr, const

Shape: TypeAlias = tuple[Expr, ...]

# The value that a reduction starts from, by dtype.
COMBINERS: Final[dict[str, Callable[[DType], Const]]] = {
    "sum": lambda t: const(0, t),
    "prod": lambda t: const(1, t),
    "max": lambda t: Const(False, t) if t is BOOL else const(t.lowest, t),
    "min": lambda t: Const(True, t) if t is BOOL else const(t.greatest, t),
}

_names: Final = itertools.count()
_seen: ContextVar[dict[str, Tensor] | None] = ContextVar("seen", default=None)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A placeholder (``body`` is None) or a stage."""

    name: str
    shape: Shape
    dtype: DType
    axes: tuple[Var, ...] = ()
    reduce_axes: tuple[tuple[Var, Expr], ...] = ()
    combiner: str | None = None
    body: Expr | None = None
    sources: tuple[Tensor, ...] = ()

    def __getitem__(self, indices: Like | tuple[Like, ...]) -> Expr:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != len(self.shape):
            raise InternalError(
                f"{self.name} has rank {len(self.shape)}, not {len(items)}", op="te"
            )
        if (seen := _seen.get()) is not None:
            seen[self.name] = self
        return Load(self.name, tuple(as_expr(i) for i in items), self.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)


def placeholder(shape: Sequence[Like], dtype: DType, name: str = "x") -> Tensor:
    """A tensor whose elements are given from outside."""
    return Tensor(f"{name}_{next(_names)}", dims(shape), dtype)


def compute(shape: Sequence[Like], element: Callable[..., Like], name: str = "t") -> Tensor:
    """The tensor whose element at ``i0, i1 ...`` is ``element(i0, i1, ...)``."""
    extents = dims(shape)
    axes = tuple(Var(f"i{k}", I64) for k in range(len(extents)))
    body, sources = _record(element, *axes)
    return Tensor(f"{name}_{next(_names)}", extents, body.dtype, axes, (), None, body, sources)


def reduce(
    combiner: str,
    shape: Sequence[Like],
    over: Sequence[Like],
    element: Callable[..., Like],
    name: str = "t",
) -> Tensor:
    """The reduction of ``element(i0, ..., r0, ...)`` over ``r0 < over[0]`` and so on.

    The result has the element's dtype: cast in ``element`` to accumulate wider.
    """
    if combiner not in COMBINERS:
        raise InternalError(f"there is no combiner {combiner}", op="te")
    extents, inner = dims(shape), dims(over)
    axes = tuple(Var(f"i{k}", I64) for k in range(len(extents)))
    reduce_axes = tuple(Var(f"r{k}", I64) for k in range(len(inner)))
    body, sources = _record(element, *axes, *reduce_axes)
    return Tensor(
        f"{name}_{next(_names)}",
        extents,
        body.dtype,
        axes,
        tuple(zip(reduce_axes, inner, strict=True)),
        combiner,
        body,
        sources,
    )


def dims(shape: Sequence[Like]) -> Shape:
    """A shape's extents as ``i64`` expressions."""
    out = tuple(as_expr(d) for d in shape)
    for d in out:
        if d.dtype is not I64:
            raise TypeCheckError(f"an extent is {d.dtype}, not i64", node=str(d))
    return out


def _record(element: Callable[..., Like], *axes: Var) -> tuple[Expr, tuple[Tensor, ...]]:
    seen: dict[str, Tensor] = {}
    token = _seen.set(seen)
    try:
        body = as_expr(element(*axes))
    finally:
        _seen.reset(token)
    return body, tuple(seen.values())


def stages(*outputs: Tensor) -> Iterator[Tensor]:
    """Every tensor that the outputs need, themselves included, sources first."""
    done: set[Tensor] = set()
    stack = list(reversed(outputs))
    while stack:
        tensor = stack[-1]
        todo = [s for s in tensor.sources if s not in done]
        if tensor in done:
            stack.pop()
        elif todo:
            stack.extend(reversed(todo))
        else:
            done.add(stack.pop())
            yield tensor
