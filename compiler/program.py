"""A program: scheduled functions, the order in which they are called, and where every array lives.

It is what the graph compiles to and what a target turns into one native entry point. All sizes are
expressions over ``symbols``; nothing else is unknown until a call.

The entry point has the signature ``void entry(ptr slots)``. ``slots`` is an array of 8-byte words
in the order that ``SlotLayout`` gives: the pool, the number of threads, the arena, then the
addresses of inputs, outputs and constants, then the values of the symbols. A kernel takes the
addresses of its parameters, then its symbols, then the address of its scratch (the ``global``
temporaries), the pool and the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from .dtypes import I64
from .expr.nodes import Const, Expr, Var
from .graph.ir import Array, TensorType
from .loop.ir import Function


@dataclass(frozen=True)
class Place:
    """Where an array is.

    The ``index``-th input, output or constant, or ``offset`` bytes into the arena.
    """

    kind: Literal["input", "output", "constant", "arena"]
    index: int = 0
    offset: Expr = Const(0, I64)


@dataclass(frozen=True)
class Step:
    """One call of a kernel.

    ``symbols`` are the values of the function's symbols, ``scratch`` is where its temporaries are,
    ``origin`` names the graph's nodes that it computes, ``flops`` and ``bytes`` what it has to do
    and to move at the least.
    """

    function: str
    arguments: tuple[Place, ...]
    symbols: tuple[Expr, ...]
    scratch: Place
    origin: tuple[str, ...] = ()
    flops: Expr = Const(0, I64)
    bytes: Expr = Const(0, I64)


@dataclass(frozen=True)
class Branch:
    """The steps ``then`` if the byte at ``condition`` is not zero, else the steps ``other``.

    It counts as one step, with the work of the larger of both.
    """

    function: ClassVar[str] = "if"

    condition: Place
    then: tuple[Step | Branch, ...]
    other: tuple[Step | Branch, ...]
    origin: tuple[str, ...] = ()
    flops: Expr = Const(0, I64)
    bytes: Expr = Const(0, I64)


def calls(steps: Iterable[Step | Branch]) -> Iterator[Step]:
    """All calls of kernels among the steps, those in branches too."""
    for step in steps:
        if isinstance(step, Branch):
            yield from calls((*step.then, *step.other))
        else:
            yield step


@dataclass(frozen=True)
class Port:
    """An input or output as the user sees it."""

    name: str
    type: TensorType


@dataclass(frozen=True, eq=False)
class Program:
    """See the module's text."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Var, ...]
    functions: Mapping[str, Function]
    steps: tuple[Step | Branch, ...]
    constants: tuple[Array, ...]
    arena_bytes: Expr
    constraints: tuple[Expr, ...] = ()
    defaults: Mapping[str, Array] = field(default_factory=dict)
    # For the report: how each function was scheduled (the trace's text).
    traces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SlotLayout:
    """Which word of ``slots`` holds what."""

    inputs: int
    outputs: int
    constants: int
    symbols: int

    POOL, THREADS, ARENA, FIRST = 0, 1, 2, 3

    def input(self, k: int) -> int:
        return self.FIRST + k

    def output(self, k: int) -> int:
        return self.FIRST + self.inputs + k

    def constant(self, k: int) -> int:
        return self.FIRST + self.inputs + self.outputs + k

    def symbol(self, k: int) -> int:
        return self.FIRST + self.inputs + self.outputs + self.constants + k

    @property
    def words(self) -> int:
        return self.symbol(self.symbols)


def slot_layout(program: Program) -> SlotLayout:
    """The layout of a program's slots."""
    return SlotLayout(
        len(program.inputs), len(program.outputs), len(program.constants), len(program.symbols)
    )


# Bytes: of the arena, of every array in it, of constants, and of outputs of 64 KiB or more.
ALIGNMENT = 64
