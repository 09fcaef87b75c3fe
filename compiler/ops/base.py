"""What an operator is: one class that holds everything about it.

A concrete operator is a frozen dataclass whose fields are its attributes. It gives a shape rule
(``infer``), a meaning as tensor expressions (``compute``), an independent numpy ``reference`` and
``samples`` that the generic tests run all of these on. What can be fused follows from ``compute``.
Operators that are no tensor expression leave ``compute`` alone and give ``build``: their loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import InternalError, TypeCheckError
from planish.compiler.expr.linear import factors, linear
from planish.compiler.expr.nodes import (
    TRUE,
    Const,
    Expr,
    Var,
    any_of,
    as_expr,
    eq,
    free_vars,
    le,
    substitute,
)
from planish.compiler.expr.sizes import at_least, normal, number
from planish.compiler.graph.ir import (
    MAX_CONTENT,
    Array,
    Content,
    Graph,
    TensorType,
    assume,
    unify,
)
from planish.compiler.loop import te

if TYPE_CHECKING:
    from planish.compiler.loop.ir import Function

Types: TypeAlias = TensorType | tuple[TensorType, ...]
Tensors: TypeAlias = te.Tensor | tuple[te.Tensor, ...]
Arrays: TypeAlias = Array | tuple[Array, ...]


@dataclass(frozen=True)
class Op:
    """An operator with its attributes."""

    name: ClassVar[str] = ""
    takes_strings: ClassVar[bool] = False  # whether it moves elements, or compares them
    registry: ClassVar[dict[str, type[Op]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name := cls.__dict__.get("name"):
            if name in Op.registry:
                raise InternalError(f"two operators are called {name}")
            Op.registry[name] = cls

    def infer(self, *inputs: Any) -> Types:
        """The types of the outputs; raises ``self.fail(...)`` for inputs that do not fit."""
        raise InternalError("has no shape rule", op=self.name)

    def compute(self, *inputs: Any) -> Tensors:
        """The outputs as tensor expressions of the inputs (None for one that is left out)."""
        raise InternalError("is no tensor expression", op=self.name)

    def build(self, *inputs: Any) -> Function:
        """The operator's loops, for one that is no tensor expression; takes the inputs' types."""
        raise InternalError("has no loops of its own", op=self.name)

    def reference(self, *inputs: Any) -> Arrays:
        """The outputs by numpy, written independently of ``compute``."""
        raise InternalError("has no reference", op=self.name)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        """Operators of this class with inputs, which together show what it can do."""
        raise InternalError("has no samples", op=cls.name)

    def content(
        self, inputs: tuple[Content | None, ...], outputs: tuple[TensorType, ...]
    ) -> tuple[Content | None, ...]:
        """Known contents of the outputs from known contents of the inputs (integers only)."""
        return (None,) * len(outputs)

    def known(
        self,
        types: tuple[TensorType | None, ...],
        inputs: tuple[Content | None, ...],
        outputs: tuple[TensorType, ...],
    ) -> tuple[Content | None, ...]:
        """As ``content``, for an operator whose answer depends on the inputs' types too.

        What ``content`` leaves open follows from the reference, if all inputs are known numbers.
        """
        found = self.content(inputs, outputs)
        if any(c is not None for c in found) or not types:
            return found
        return known_by_reference(self, types, inputs, outputs)

    def with_symbols(self, values: Mapping[Var, Expr]) -> Op:
        """The operator with symbols in its attributes replaced."""
        changes = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if (new := _replaced(value, values)) is not value:
                changes[f.name] = new
        return replace(self, **changes) if changes else self

    @property
    def binds(self) -> tuple[Var, ...]:
        """Symbols that have a value from here on: sizes that the data tells."""
        return ()

    @property
    def refuses(self) -> bool:
        """Whether it ends calls that the model does not allow: it stays where nobody reads it."""
        return False

    @property
    def inside(self) -> frozenset[Var]:
        """Symbols that have a value in the operator's subgraphs only, or another one there."""
        return frozenset(v for g in self.graphs.values() for n in g.nodes for v in n.op.binds)

    @property
    def chooses(self) -> bool:
        """Whether a subgraph may not run at all."""
        return False

    def bound(self, outputs: tuple[Array, ...]) -> dict[Var, int]:
        """The values of the symbols that the operator binds, by what it gave."""
        return {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The subgraphs among the attributes, by the attributes' names."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Graph)}

    @property
    def is_expression(self) -> bool:
        """Whether the operator is given by ``compute``, rather than by ``build``."""
        return type(self).compute is not Op.compute

    def fail(self, message: str, hint: str | None = None) -> TypeCheckError:
        """The error to raise from ``infer``."""
        return TypeCheckError(message, op=self.name, hint=hint)

    def resolve_axis(self, axis: int, rank: int) -> int:
        """``axis`` counted from the front.

        Errors: TypeCheckError if it is out of range.
        """
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} is out of range for rank {rank}")
        return axis % rank if rank else 0


def fixing(size: Expr) -> str | None:
    """What to do about a size that must be known, if the model's dimensions can tell it."""
    names = " ".join(f"--dim {v.name}=1" for v in free_vars(size))
    return f"compile with, say, {names}" if names else None


def _replaced(value: Any, values: Mapping[Var, Expr]) -> Any:
    if isinstance(value, Expr):
        return substitute(value, dict(values))
    if isinstance(value, tuple):
        items = tuple(_replaced(v, values) for v in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value


def known_by_reference(
    op: Op,
    types: tuple[TensorType | None, ...],
    inputs: tuple[Content | None, ...],
    outputs: tuple[TensorType, ...],
) -> tuple[Content | None, ...]:
    """Contents computed by the reference, where all is small, known and no float."""
    nothing: tuple[Content | None, ...] = (None,) * len(outputs)
    for out in outputs:
        if not out.dtype.is_discrete or out.size is None or out.size > MAX_CONTENT:
            return nothing
    arrays: list[Array | None] = []
    for t, c in zip(types, inputs, strict=True):
        if t is None:
            arrays.append(None)
        elif c is None or t.size != len(c) or not all(isinstance(e, Const) for e in c):
            return nothing
        else:
            values = [e.value for e in c if isinstance(e, Const)]
            shape = [int(d.value) for d in t.shape if isinstance(d, Const)]
            arrays.append(np.array(values, t.dtype.numpy).reshape(shape))
    try:
        with np.errstate(all="ignore"):
            found = op.reference(*arrays)
    except (ValueError, IndexError, ZeroDivisionError, OverflowError, InternalError):
        return nothing
    results = found if isinstance(found, tuple) else (found,)
    return tuple(map(_content_of, map(np.asarray, results)))


def _content_of(array: Array) -> Content | None:
    if array.dtype == bool:
        return tuple(Const(bool(x), BOOL) for x in array.ravel())
    numbers = [int(x) for x in array.ravel()]
    return tuple(Const(x, I64) for x in numbers) if all(x <= I64.max for x in numbers) else None


def broadcast(*shapes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The shape that the shapes broadcast to, numpy's rule.

    A symbol beside another dimension than 1 is assumed equal to it; that is checked at run time.
    Errors: TypeCheckError if dimensions differ and neither is 1.
    """
    out: list[Expr] = []
    for k in range(1, max(map(len, shapes), default=0) + 1):
        dim: Expr = as_expr(1)
        for s in shapes:
            if k <= len(s):
                dim = _broadcast_dim(dim, s[-k])
        out.append(dim)
    return tuple(reversed(out))


def is_one(dim: Expr) -> bool:
    """Whether a dimension is the number 1."""
    return isinstance(dim, Const) and dim.value == 1


def _broadcast_dim(a: Expr, b: Expr) -> Expr:
    if is_one(a):
        return b
    if is_one(b):
        return a
    return unify(a, b, "shapes do not broadcast")


def some_to_read(extent: Expr, *out: Expr) -> Expr:
    """The condition for a dimension to have an element, unless the result, ``out``, has none."""
    if any(_empty_with(extent, d) for d in out):
        return TRUE
    return normal(any_of(le(1, extent), *(eq(d, 0) for d in out)))


_MANY: Final = 1 << 16  # a size that is at most so many times another is 0 with it


def _empty_with(extent: Expr, d: Expr) -> bool:
    """Whether ``d`` is certainly 0 where ``extent`` is."""
    if at_least(normal(extent * _MANY), normal(d)):
        return True
    total = linear(normal(extent))
    if total.constant or len(total.terms) != 1:
        return False
    return all(isinstance(f, Var) and _vanishes(d, f) for f in factors(*total.terms))


def _vanishes(d: Expr, symbol: Var) -> bool:
    return number(substitute(d, {symbol: as_expr(0)})) == 0


def broadcast_indices(axes: tuple[Expr, ...], shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The element of a tensor of ``shape`` that a broadcast result reads at ``axes``."""
    tail = axes[len(axes) - len(shape) :]
    return tuple(as_expr(0) if is_one(d) else i for i, d in zip(tail, shape, strict=True))


__all__ = [
    "Arrays", "Op", "Tensors", "Types", "assume", "broadcast", "broadcast_indices", "is_one",
    "some_to_read",
]  # fmt: skip
