"""Programs run step by step by the interpreter of loops: slow, and every access is checked.

It keeps to the calling convention of native code (``planish.compiler.calling``): the same words
say where inputs, outputs, constants and the arena are, and what a call allocates. An array is taken
from there only where it lies within what is known to be there; the kernels then see arrays, not
memory.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Final

import numpy as np

from planish.compiler.calling import ALIGNMENT, MOST_BYTES, MOST_SIGNED
from planish.compiler.dtypes import BOOL, I64, DType
from planish.compiler.errors import InternalError
from planish.compiler.expr.compiled import compile_sizes
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop.interpret import interpret
from planish.compiler.program import (
    Allocate,
    AnyStep,
    Assign,
    Bind,
    Branch,
    Check,
    Host,
    Move,
    Place,
    Program,
    Release,
    Repeat,
    Step,
    slot_layout,
)
from planish.compiler.remembering import remembered

from .target import Target


@dataclass(frozen=True, eq=False)
class Interpreted:
    """A program as it is, ready to be called."""

    program: Program
    target: Target
    bytes: int = field(default=0, init=False)  # of code: there is none
    worker: int | None = field(default=None, init=False)  # nothing for threads to do

    def load(self) -> Interpreted:
        return self

    def run(self, slots: int) -> int:
        """The whole program, for the words at this address; what native code gives."""
        call = _Call(self.program, slots)
        return call.run(lambda: call.steps(self.program.steps))

    def profile(self, slots: int, nanoseconds: int) -> int:
        """The same; writes how long each step took to the words at the second address."""
        call = _Call(self.program, slots)
        steps = self.program.steps
        times = (ctypes.c_int64 * len(steps)).from_address(nanoseconds)

        def timed() -> None:
            for k, step in enumerate(steps):
                start = time.perf_counter_ns()
                call.step(step)
                times[k] = time.perf_counter_ns() - start

        return call.run(timed)


_HOST: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)


class _Ended(Exception):  # not an error: how a step ends the call
    """The call ends with one of the program's failures."""

    def __init__(self, failure: int) -> None:
        super().__init__()
        self.failure = failure


class _Call:
    """One call: its words, the values of the symbols, and the bytes of what it allocated."""

    def __init__(self, program: Program, slots: int) -> None:
        self.program, self.layout = program, slot_layout(program)
        self.words = (ctypes.c_int64 * self.layout.words).from_address(slots)
        names = (*program.symbols, *program.bound)
        self.symbols = {s.name: self.words[self.layout.symbol(k)] for k, s in enumerate(names)}
        self.positions = {name: self.layout.symbol(k) for k, name in enumerate(self.symbols)}
        self.room: dict[int, int] = {}  # by the word that holds the address

    def run(self, work: Callable[[], None]) -> int:
        """Do the work; 0, or one more than the failure that ended it."""
        try:
            work()
        except _Ended as end:
            return end.failure + 1  # what is allocated is left to the caller
        except BaseException:
            for word in tuple(self.room):
                self.release(word)
            raise
        return 0

    def steps(self, steps: Iterable[AnyStep]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: AnyStep) -> None:
        match step:
            case Step():
                self.kernel(step)
            case Branch():
                self.steps(step.then if self.flag(step.condition)[0] else step.other)
            case Repeat():
                self.repeat(step)
            case Bind():
                self.bind(step)
            case Assign():
                values = self.values(step.values)
                for symbol, value in zip(step.symbols, values, strict=True):
                    self.set(symbol, value)
            case Check():
                if not self.value(step.condition):
                    raise _Ended(step.failure)
            case Allocate():
                self.allocate(step)
            case Host():
                self.host(step)
            case Release():
                self.release(self.layout.heap_word(step.index))
            case Move():
                source, target = map(self.layout.heap_word, (step.source, step.target))
                self.release(target)
                self.words[target], self.words[source] = self.words[source], 0
                self.room[target] = self.room.pop(source, 0)

    # ------------------------------------------------------------------------------- symbols

    def value(self, e: Expr) -> int:
        """The value of an expression over the program's symbols."""
        return int(e.value) if isinstance(e, Const) else self.values((e,))[0]

    def values(self, sizes: Sequence[Expr]) -> tuple[int, ...]:
        return _evaluator(tuple(self.symbols), tuple(sizes))(*self.symbols.values())

    def set(self, symbol: Var, value: int) -> None:
        self.symbols[symbol.name] = self.words[self.positions[symbol.name]] = value

    def bind(self, step: Bind) -> None:
        count = len(step.symbols) // 2 if step.signed else len(step.symbols)
        numbers = [int(x) for x in self.array(step.place, (count,), step.dtype)]
        if step.signed:
            held = [max(-MOST_SIGNED, min(MOST_SIGNED, x)) for x in numbers]
            parts = [max(part, 0) for x in held for part in (x, -x)]
            for symbol, part in zip(step.symbols, parts, strict=True):
                self.set(symbol, part)
            return
        for symbol, number in zip(step.symbols, numbers, strict=True):
            self.set(symbol, number)
        if any(not 0 <= x <= MOST_BYTES for x in numbers):
            raise _Ended(step.failure)

    # ------------------------------------------------------------------------------- control

    def flag(self, place: Place) -> Array:
        return self.array(place, (1,), BOOL)

    def repeat(self, step: Repeat) -> None:
        trip = None if step.trip is None else self.value(step.trip)
        number = 0
        self.set(step.count, number)
        while trip is None or number < trip:
            if step.asked and not self.flag(step.condition)[0]:
                break
            self.array(step.number, (1,), I64)[0] = number
            self.steps(step.steps)
            self.flag(step.condition)[0] = self.flag(step.again)[0]
            number += 1
            self.set(step.count, number)

    # ------------------------------------------------------------------------------- kernels

    def kernel(self, step: Step) -> None:
        func = self.program.functions[step.function]
        names = tuple(s.name for s in func.symbols)
        values = self.values(step.symbols)
        shapes = [_evaluator(names, b.shape)(*values) for b in func.params]
        arrays = [
            self.array(place, shape, b.dtype)
            for place, shape, b in zip(step.arguments, shapes, func.params, strict=True)
        ]
        inputs, results = arrays[: len(func.inputs)], arrays[len(func.inputs) :]
        found = interpret(func, inputs, dict(zip(names, values, strict=True)))
        for place, result in zip(results, found, strict=True):
            place[...] = result

    def host(self, step: Host) -> None:
        """A call of the runtime, for arrays that are all within what lies there."""
        words: list[int] = []
        for place, kind in (*step.inputs, *step.outputs):
            shape = self.values(kind.shape)
            array = self.array(place, shape, kind.dtype.storage)
            words += [array.ctypes.data if array.size else 0, *shape]
        table = (ctypes.c_int64 * max(1, len(words)))(*words)
        function = _HOST(self.words[self.layout.HOST])
        if function(step.index, ctypes.addressof(table)):
            raise _Ended(step.failure)

    # ------------------------------------------------------------------------------- memory

    def array(self, place: Place, shape: Sequence[int], dtype: DType) -> Array:
        """An array at a place: the memory itself."""
        return self.memory(place, prod(shape) * dtype.bytes).view(dtype.numpy).reshape(shape)

    def memory(self, place: Place, count: int) -> Array:
        """So many bytes at a place.

        Errors: InternalError if they are not all within what lies there.
        """
        word, extent = self.whole(place)
        offset = self.value(place.offset)
        if not 0 <= offset <= offset + count <= (extent if self.words[word] else 0):
            raise InternalError(
                f"{count} bytes at {offset} are outside of the {extent} bytes of {place.kind}",
                op=self.program.name,
            )
        if not count:
            return np.empty(0, np.uint8)
        block = (ctypes.c_uint8 * count).from_address(self.words[word] + offset)
        return np.ctypeslib.as_array(block)

    def whole(self, place: Place) -> tuple[int, int]:
        """Which word holds the address of what a place is in, and the bytes of that."""
        program, k = self.program, place.index
        match place.kind:
            case "input":
                return self.layout.input(k), self.bytes_of(program.inputs[k].type)
            case "output":
                word = self.layout.output(k)
                if word in self.room:  # it is allocated by the call
                    return word, self.room[word]
                return word, self.bytes_of(program.outputs[k].type)
            case "constant":
                return self.layout.constant(k), program.constants[k].nbytes
            case "heap":
                word = self.layout.heap_word(k)
                return word, self.room.get(word, 0)
            case "arena":
                return self.layout.ARENA, self.value(program.arena_bytes)

    def bytes_of(self, type: TensorType) -> int:
        return prod(self.values(type.shape)) * type.dtype.bytes

    def allocate(self, step: Allocate) -> None:
        shape = self.values(step.shape)
        count = prod(shape) * step.itemsize
        spread = prod(max(d, 1) for d in shape) * step.itemsize
        if min(shape, default=0) < 0 or count > MOST_BYTES or spread > I64.max:
            raise _Ended(step.failure)
        k = step.place.index
        is_output = step.place.kind == "output"
        word = self.layout.output(k) if is_output else self.layout.heap_word(k)
        old, room = self.words[word], self.room.get(word, 0)
        if step.kept and old and count <= room:
            return
        if step.kept:
            count = max(count, 2 * room)
        else:
            self.release(word)
        new = _memory()[0](ALIGNMENT, -(-max(count, 1) // ALIGNMENT) * ALIGNMENT)
        if not new:
            raise _Ended(step.failure)
        if step.kept and old:
            ctypes.memmove(new, old, room)
            self.release(word)
        self.words[word], self.room[word] = new, count

    def release(self, word: int) -> None:
        _memory()[1](self.words[word])
        self.words[word], self.room[word] = 0, 0


@remembered(4096)
def _evaluator(names: tuple[str, ...], sizes: tuple[Expr, ...]) -> Callable[..., tuple[int, ...]]:
    """The values of sizes from those of symbols: exact integers, as long as they may be."""
    return compile_sizes(names, sizes)


@lru_cache(maxsize=1)
def _memory() -> tuple[Callable[[int, int], int | None], Callable[[int], None]]:
    """What allocates and frees: the functions of native code."""
    library = ctypes.CDLL(None)
    take, give = library.aligned_alloc, library.free
    take.argtypes, take.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
    give.argtypes, give.restype = [ctypes.c_void_p], None
    return take, give
