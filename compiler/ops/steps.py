"""What the loops of operators that go on step by step are written with.

A ``Routine`` collects the buffers of a function and gives names to its loops and blocks. Its
statements are plain ones (blocks without iterators, see ``loop.ir``): they happen in the order in
which they stand, and may store wherever what they load says. ``fill`` alone is a block with
iterators, whose elements may be computed in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import TRUE, Const, Expr, Like, Load, Var, as_expr, free_vars
from planish.compiler.graph.ir import TensorType
from planish.compiler.loop.ir import (
    Block,
    Buffer,
    Function,
    If,
    Iter,
    Loop,
    Scope,
    Seq,
    Stmt,
    buffers_used,
    seq,
)

Index: TypeAlias = Sequence[Expr]


@dataclass(frozen=True)
class Elements:
    """A buffer of a routine."""

    routine: Routine
    buffer: Buffer

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.buffer.shape

    def __getitem__(self, index: Index) -> Expr:
        """An element."""
        return Load(self.buffer.name, tuple(index), self.dtype)

    def put(self, index: Index, value: Expr, where: Expr = TRUE) -> Stmt:
        """Store an element where a condition holds."""
        name = self.routine.unique(self.buffer.name, self.routine.blocks)
        return Block(name, (), self.buffer.name, tuple(index), value, where=where)

    def fill(self, value: Callable[..., Expr]) -> Stmt:
        """Store every element, as ``value`` of its indices."""
        axes = [self.routine.variable() for _ in self.shape]
        iters = tuple(
            Iter(v, extent, "spatial", v) for v, extent in zip(axes, self.shape, strict=True)
        )
        if any(is_number(extent, 0) for extent in self.shape):
            return seq()
        name = self.routine.unique(self.buffer.name, self.routine.blocks)
        body: Stmt = Block(name, iters, self.buffer.name, tuple(axes), value(*axes))
        for i in reversed(iters):
            body = Loop(i.var, i.extent, body)
        return body


@dataclass(frozen=True)
class Cell:
    """One number of a routine that changes from step to step."""

    elements: Elements

    @property
    def now(self) -> Expr:
        """What it is where this stands."""
        return self.elements[()]

    def be(self, value: Like, where: Expr = TRUE) -> Stmt:
        """Give it another value where a condition holds."""
        return self.elements.put((), as_expr(value, self.elements.dtype), where)


class Routine:
    """A function that is being written; ``attributes`` are sizes that it depends on, too."""

    def __init__(self, name: str, inputs: dict[str, TensorType], *attributes: Expr) -> None:
        self.name = name
        shapes = [d for type in inputs.values() for d in type.shape]
        self.symbols = free_vars(*shapes, *attributes)
        self.blocks: set[str] = set()
        self._taken = {v.name for v in self.symbols}
        self._params: list[Buffer] = []
        self._temps: list[Buffer] = []
        self._outputs = 0
        self._variables = 0
        self.inputs = {
            key: self._declare(self._params, key, type.dtype, type.shape, "param")
            for key, type in inputs.items()
        }

    def unique(self, name: str, taken: set[str]) -> str:
        """``name``, or one like it that is not taken; it is from now on."""
        out, k = name, 0
        while out in taken:
            out, k = f"{name}_{k}", k + 1
        taken.add(out)
        return out

    def variable(self) -> Var:
        """A variable for a loop."""
        self._variables += 1
        return Var(self.unique(f"i{self._variables}", self._taken))

    def _declare(
        self, into: list[Buffer], name: str, dtype: DType, shape: Sequence[Expr], scope: Scope
    ) -> Elements:
        into.append(Buffer(self.unique(name, self._taken), dtype, tuple(shape), scope))
        return Elements(self, into[-1])

    def output(self, name: str, type: TensorType) -> Elements:
        """The next result."""
        self._outputs += 1
        return self._declare(self._params, name, type.dtype, type.shape, "param")

    def scratch(
        self, name: str, dtype: DType, shape: Sequence[Expr], scope: Scope = "global"
    ) -> Elements:
        """A temporary buffer; what parallel iterations have each for themselves is ``local``."""
        return self._declare(self._temps, name, dtype, shape, scope)

    def cell(self, name: str, dtype: DType = I64, scope: Scope = "register") -> Cell:
        """A number that changes."""
        return Cell(self._declare(self._temps, name, dtype, (), scope))

    def function(self, *body: Stmt) -> Function:
        """The function whose body this is."""
        used = buffers_used(seq(*body))
        temps = tuple(b for b in self._temps if b.name in used)
        return Function(
            self.name, tuple(self._params), self._outputs, self.symbols, temps, seq(*body)
        )

    # ------------------------------------------------------------------------------ statements

    def loop(self, extent: Like, body: Callable[[Expr], Stmt]) -> Stmt:
        """Run the body for 0 .. extent - 1."""
        count = as_expr(extent)
        if isinstance(count, Const) and count.value <= 0:
            return seq()
        var = self.variable()
        inside = body(var)
        return seq() if is_nothing(inside) else Loop(var, count, inside)

    def loops(self, extents: Sequence[Expr], body: Callable[..., Stmt]) -> Stmt:
        """Run the body for all indices within the extents, the last ones fastest."""

        def nest(index: tuple[Expr, ...]) -> Stmt:
            if len(index) == len(extents):
                return body(*index)
            return self.loop(extents[len(index)], lambda i: nest((*index, i)))

        return nest(())


def is_nothing(s: Stmt) -> bool:
    """Whether a statement does nothing."""
    return isinstance(s, Seq) and not s.body


def is_number(e: Expr, value: int) -> bool:
    """Whether an expression is that number."""
    return isinstance(e, Const) and e.value == value


def when(condition: Expr, *then: Stmt) -> Stmt:
    """Statements that run where a condition holds."""
    body = seq(*then)
    if is_nothing(body) or isinstance(condition, Const):
        return body if isinstance(condition, Const) and condition.value else seq()
    return If(condition, body)


# --------------------------------------------------------------------------------------- values


def below(x: Expr, y: Expr) -> Expr:
    """Whether x comes before y in ascending order; NaN is above all numbers."""
    less = n.lt(x, y)
    if not x.dtype.is_float:
        return less
    nans = [n.Call("is_nan", (v,), BOOL) for v in (x, y)]
    return less | (nans[1] & ~nans[0])


__all__ = [
    "Cell", "Elements", "Routine", "below", "is_nothing", "is_number", "when",
]  # fmt: skip
