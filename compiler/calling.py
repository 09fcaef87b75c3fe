"""The calling convention of compiled modules: ``i32 entry(ptr slots)``.

``slots`` is an array of 8-byte words; ``SlotLayout`` says which holds what. What the caller fills
in: the pool, the number of threads, the arena, the addresses of inputs, constants and outputs, the
sizes that follow from the inputs' shapes, and where the runtime's function is for what compiled
code does not do: ``i32 host(i64 index, ptr words)`` does step ``index`` of that kind. The words are
the address and the dimensions of each array that it reads, then of each that it fills; it gives 0,
or another number if the call has to end. What a call fills in: sizes that only the data tells, and
memory for what has such a size. That is taken from malloc. A word for it holds its address, the
next one its bytes; both are 0 where there is none, as they all are before and after a call, but for
outputs of such a size: those are left to the caller, who frees them. The result is 0, or one more
than the index of the failure that ended the call; then what is allocated is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from .dtypes import DType

ALIGNMENT: Final = 64  # bytes: of the arena, of every array in it, of constants, of large outputs
CHUNKS_PER_THREAD: Final = 8  # at most, into which a parallel loop is divided
MOST_BYTES: Final = 1 << 46  # beyond this a size is a mistake, and arithmetic on it may overflow
MOST_SIGNED: Final = 1 << 62  # a signed number that is read from data counts as no more than this


Plain: TypeAlias = str | int | bool  # what a module file says of a function


@dataclass(frozen=True)
class SlotLayout:
    """Which word holds what, for so many of each kind; ``symbols`` are those that data tells too.

    ``heap`` counts the arrays whose memory the call allocates, outputs not among them.
    """

    inputs: int
    outputs: int
    constants: int
    symbols: int
    heap: int = 0

    POOL: ClassVar[int] = 0
    THREADS: ClassVar[int] = 1
    ARENA: ClassVar[int] = 2
    HOST: ClassVar[int] = 3
    FIRST: ClassVar[int] = 4

    def input(self, k: int) -> int:
        return self.FIRST + k

    def output(self, k: int) -> int:
        return self.input(self.inputs) + k

    def constant(self, k: int) -> int:
        return self.output(self.outputs) + k

    def symbol(self, k: int) -> int:
        return self.constant(self.constants) + k

    def heap_word(self, k: int) -> int:
        return self.symbol(self.symbols) + 2 * k

    @property
    def words(self) -> int:
        return self.heap_word(self.heap)


@dataclass(frozen=True)
class HostFunction:
    """A function of the runtime by its name, with what it has to know before it is called.

    It takes arrays of as many dimensions as these have, of their dtypes, and gives such.
    """

    name: str
    attributes: tuple[tuple[str, Plain], ...]
    inputs: tuple[tuple[DType, int], ...]
    outputs: tuple[tuple[DType, int], ...]
    origin: str = ""

    @property
    def words(self) -> int:
        """How many words it gets: of each array its address and its dimensions."""
        return sum(1 + rank for _, rank in (*self.inputs, *self.outputs))
