"""What a module takes and gives: inputs, outputs, symbols in their sizes, plan of memory.

It is all that is needed to check a call, to bind symbols and to size the arena; a module file
holds it as text. A size is an int, or an expression where it depends on symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from planish.compiler.calling import HostFunction, SlotLayout
from planish.compiler.dtypes import DType
from planish.compiler.errors import CodegenError
from planish.compiler.packings import Packing

if TYPE_CHECKING:
    from planish.compiler.expr.nodes import Expr
    from planish.compiler.program import Program

    Size: TypeAlias = int | Expr

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, repr=False)
class Port:
    """An input or output; ``default`` says that the module has a value for it if none is given."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]
    default: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"<{self}{', has a default' if self.default else ''}>"


@dataclass(frozen=True)
class StepInfo:
    """What a profile says of a step: its function, the nodes it computes, its work."""

    function: str
    origin: tuple[str, ...]
    flops: Size
    bytes: Size


@dataclass(frozen=True, eq=False)
class StepTimes:
    """How long a step took: its function, the nodes it computes, a time for each repetition."""

    function: str
    origin: tuple[str, ...]
    nanoseconds: Array

    @property
    def best_seconds(self) -> float:
        """The shortest time."""
        return float(self.nanoseconds.min()) * 1e-9

    def __repr__(self) -> str:
        nodes = f" ({', '.join(self.origin)})" if self.origin else ""
        return f"<{self.function}{nodes}: {1e6 * self.best_seconds:.1f} us at best>"


@dataclass(frozen=True)
class Constraint:
    """A condition on the inputs' sizes, and the node that relies on it, if that is known."""

    condition: Expr
    node: str = ""


@dataclass(frozen=True)
class Failure:
    """What is wrong, in which node, and values that say more.

    Of each its name, and the symbol that has it, or two of which it is the difference.
    """

    message: str
    node: str = ""
    about: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Interface:
    """See the module's text.

    ``bound`` are symbols that a call finds in its data, ``heap`` is the number of arrays that it
    allocates, ``failures`` are the errors that may end it.
    ``packings`` are inputs and outputs that are several here and one to the user. ``hosts`` are the
    functions of the runtime that a call needs, ``texts`` the strings of the model.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    arena_bytes: Size
    constants: int
    steps: tuple[StepInfo, ...]
    bound: tuple[str, ...] = ()
    heap: int = 0
    failures: tuple[Failure, ...] = ()
    packings: tuple[Packing, ...] = ()
    hosts: tuple[HostFunction, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bound = {str(d) for p in self.inputs for d in p.shape if not isinstance(d, int)}
        for symbol in self.symbols:
            if symbol not in bound:
                raise CodegenError(f"no input has the size {symbol}", op=self.name)

    @property
    def layout(self) -> SlotLayout:
        """Which word of a call's slots holds what."""
        symbols = len(self.symbols) + len(self.bound)
        return SlotLayout(len(self.inputs), len(self.outputs), self.constants, symbols, self.heap)

    def is_open(self, port: Port) -> bool:
        """Whether only the data tells the size of an output."""
        if not self.bound or all(isinstance(d, int) for d in port.shape):
            return False
        from planish.compiler.expr.nodes import Expr, free_vars

        sizes = (d for d in port.shape if isinstance(d, Expr))
        return any(v.name in self.bound for v in free_vars(*sizes))


def interface_of(program: Program) -> Interface:
    """What the module of a program takes and gives."""
    from planish.compiler.dtypes import I64
    from planish.compiler.expr.nodes import Const

    def size(e: Expr) -> Size:
        return int(e.value) if isinstance(e, Const) and e.type is I64 else e

    def port(name: str, dtype: DType, shape: Iterable[Expr]) -> Port:
        return Port(name, dtype, tuple(map(size, shape)), name in program.defaults)

    return Interface(
        program.name,
        tuple(port(p.name, p.type.dtype, p.type.shape) for p in program.inputs),
        tuple(Port(p.name, p.type.dtype, tuple(map(size, p.type.shape))) for p in program.outputs),
        tuple(s.name for s in program.symbols),
        tuple(Constraint(c, node) for c, node in program.constraints.items()),
        size(program.arena_bytes),
        len(program.constants),
        tuple(StepInfo(s.function, s.origin, size(s.flops), size(s.bytes)) for s in program.steps),
        tuple(s.name for s in program.bound),
        program.heap,
        tuple(Failure(f.message, f.origin, f.about) for f in program.failures),
        program.packings,
        program.hosts,
        program.texts,
    )


def evaluator(symbols: Iterable[str], sizes: Iterable[Size]) -> Callable[..., tuple[int, ...]]:
    """A function from the symbols' values to those of all sizes (and conditions), in order.

    As in the native code, a division by zero gives zero.

    Errors: CodegenError for what is no integer arithmetic over the symbols.
    """
    wanted = tuple(sizes)
    if all(isinstance(s, int) for s in wanted):
        return lambda *_: wanted  # type: ignore[return-value]
    # It needs expressions, which modules of fixed sizes do without.
    from planish.compiler.expr.compiled import compile_sizes

    return compile_sizes(tuple(symbols), wanted)


def describe(array: Any) -> str:
    """An array's dtype and shape, for messages."""
    from planish.compiler.dtypes import ALL

    names: Mapping[Any, str] = {d.numpy: name for name, d in ALL.items()}
    dtype = names.get(array.dtype, str(array.dtype)) if array.dtype.isnative else str(array.dtype)
    return f"{dtype}{list(np.shape(array))}"
