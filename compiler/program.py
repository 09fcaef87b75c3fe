"""A program: scheduled functions, the order in which they are called, and where every array lives.

It is what the graph compiles to and what a target turns into one native entry point. All sizes are
expressions over ``symbols``, which the shapes of the inputs tell, and over ``bound`` ones, which
steps of the program set from data. An array whose size is over symbols alone has its place in the
arena; others are allocated by a step when their size is known, and released by one.

``planish.compiler.calling`` says how the entry point is called. A kernel takes the addresses of its
parameters, then its symbols, then the address of its scratch (the ``global`` temporaries), the pool
and the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from .calling import HostFunction, SlotLayout
from .dtypes import I64, DType
from .expr.nodes import Const, Expr, Var
from .graph.ir import Array, TensorType
from .loop.ir import Function
from .packings import Packing

_NOTHING = Const(0, I64)


@dataclass(frozen=True)
class Place:
    """Where an array is, ``offset`` bytes behind the start of what is named.

    That is the ``index``-th input, output, constant or array on the heap, or the arena.
    """

    kind: Literal["input", "output", "constant", "arena", "heap"]
    index: int = 0
    offset: Expr = _NOTHING


@dataclass(frozen=True, kw_only=True)
class Action:
    """What every step has.

    ``origin`` names the graph's nodes that it computes, ``flops`` and ``bytes`` what it has to do
    and to move at the least.
    """

    origin: tuple[str, ...] = ()
    flops: Expr = _NOTHING
    bytes: Expr = _NOTHING


@dataclass(frozen=True)
class Step(Action):
    """One call of a kernel.

    ``symbols`` are the values of the function's symbols, ``scratch`` is where its temporaries are.
    """

    function: str
    arguments: tuple[Place, ...]
    symbols: tuple[Expr, ...]
    scratch: Place


@dataclass(frozen=True)
class Branch(Action):
    """The steps ``then`` if the byte at ``condition`` is not zero, else the steps ``other``.

    It counts as one step, with the work of the larger of both.
    """

    function: ClassVar[str] = "if"

    condition: Place
    then: tuple[AnyStep, ...]
    other: tuple[AnyStep, ...]


@dataclass(frozen=True)
class Repeat(Action):
    """The steps again and again: at most ``trip`` times (None: without end).

    If the condition is ``asked``, only while the byte at ``condition`` is not 0; after each time it
    is set to the byte at ``again``. The symbol ``count`` is the number of times that are done;
    before each time it is also written to ``number``, as i64.
    """

    function: ClassVar[str] = "loop"

    count: Var
    trip: Expr | None
    number: Place
    condition: Place
    again: Place
    asked: bool
    steps: tuple[AnyStep, ...]


@dataclass(frozen=True)
class Bind(Action):
    """Symbols get the integers of the array at ``place``.

    An integer must not be negative, or the call ends with ``failure``; if they are ``signed``, it
    takes two symbols, one of which is 0: what it is above 0, and what it is below.
    """

    function: ClassVar[str] = "bind"

    place: Place
    dtype: DType
    symbols: tuple[Var, ...]
    signed: bool
    failure: int


@dataclass(frozen=True)
class Assign(Action):
    """Symbols get the values of expressions, all at once."""

    function: ClassVar[str] = "assign"

    symbols: tuple[Var, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Check(Action):
    """The call ends with ``failure`` if a condition does not hold."""

    function: ClassVar[str] = "check"

    condition: Expr
    failure: int


@dataclass(frozen=True)
class Allocate(Action):
    """Memory for an array on the heap, or for an output; what is there is freed, or kept.

    A ``kept`` one is moved to a larger place if it does not fit, of twice its size or more.
    The call ends with ``failure`` if a dimension is negative, or there is no memory.
    """

    function: ClassVar[str] = "allocate"

    place: Place
    shape: tuple[Expr, ...]
    itemsize: int
    failure: int
    kept: bool = False


@dataclass(frozen=True)
class Host(Action):
    """A call of the runtime's function ``function``, the ``index``-th of those that there are.

    It reads arrays of these types and fills others. The call ends with ``failure`` if it cannot.
    """

    function: str
    index: int
    inputs: tuple[tuple[Place, TensorType], ...]
    outputs: tuple[tuple[Place, TensorType], ...]
    failure: int


@dataclass(frozen=True)
class Release(Action):
    """The memory of an array on the heap is freed."""

    function: ClassVar[str] = "release"

    index: int


@dataclass(frozen=True)
class Move(Action):
    """An array on the heap becomes another one, whose memory is freed."""

    function: ClassVar[str] = "move"

    source: int
    target: int


AnyStep: TypeAlias = (
    Step | Branch | Repeat | Bind | Assign | Check | Allocate | Host | Release | Move
)


def inner(step: AnyStep) -> tuple[tuple[AnyStep, ...], ...]:
    """The lists of steps that a step holds."""
    match step:
        case Branch():
            return step.then, step.other
        case Repeat():
            return (step.steps,)
        case _:
            return ()


def calls(steps: Iterable[AnyStep]) -> Iterator[Step]:
    """All calls of kernels among the steps, those within others too."""
    for step in steps:
        if isinstance(step, Step):
            yield step
        for some in inner(step):
            yield from calls(some)


@dataclass(frozen=True)
class Port:
    """An input or output as the user sees it."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class Failure:
    """Why a call ends before it is done: what the user is told, with the node's name.

    That also tells the values that it is ``about``: each a name, and the symbol that has the value,
    or two of which it is the difference.
    """

    message: str
    origin: str = ""
    about: tuple[tuple[str, tuple[str, ...]], ...] = ()


How: TypeAlias = Literal["plain", "default", "tuned"]


@dataclass(frozen=True)
class Scheduled:
    """How a function came to its schedule, and the trace's text."""

    how: How
    trace: str


@dataclass(frozen=True, eq=False)
class Program:
    """See the module's text."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Var, ...]
    functions: Mapping[str, Function]
    steps: tuple[AnyStep, ...]
    constants: tuple[Array, ...]
    arena_bytes: Expr
    constraints: Mapping[Expr, str] = field(default_factory=dict)  # and the nodes that need them
    defaults: Mapping[str, Array] = field(default_factory=dict)
    schedules: Mapping[str, Scheduled] = field(default_factory=dict)  # of functions, by name
    bound: tuple[Var, ...] = ()
    heap: int = 0
    failures: tuple[Failure, ...] = ()
    packings: tuple[Packing, ...] = ()
    hosts: tuple[HostFunction, ...] = ()
    # The strings of the model, in the order of the numbers that stand for them in constants.
    texts: tuple[str, ...] = ()


def slot_layout(program: Program) -> SlotLayout:
    """The layout of a program's slots."""
    return SlotLayout(
        len(program.inputs),
        len(program.outputs),
        len(program.constants),
        len(program.symbols) + len(program.bound),
        program.heap,
    )
