"""Runs loop functions natively, between pages that must not be touched.

Inputs and scratch end (or begin) where such a page begins (or ends), results are followed by bytes
whose value is checked: an access outside of its buffer ends the process or fails the test.
"""

from __future__ import annotations

import ctypes
import mmap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planish.compiler.dtypes import from_numpy
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.graph.ir import Array, TensorType, tensor
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.loop.slots import with_slots
from planish.compiler.ops.base import Op
from planish.compiler.pipeline import LOOP_PASSES
from planish.compiler.pipeline import run as run_passes
from planish.targets.llvm.builder import ModuleText
from planish.targets.llvm.codegen import kernel_ir
from planish.targets.llvm.native import NativeCode, load_object, object_code
from planish.targets.llvm.program import isa_of
from planish.targets.llvm.target import Llvm, host

THREADS: Final = 2
_PAGE: Final = mmap.PAGESIZE
_LIBC: Final = ctypes.CDLL(None)
_SEEN: Final = 0xA5  # the bytes behind results

# A pool of one thread that takes the chunks out of order.
_PARALLEL: Final = """
define void @planish_parallel(ptr %pool, ptr %chunk, ptr %context, i64 %count, i64 %threads) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%count, %entry], [%k, %loop]
  %k = sub i64 %i, 1
  call void %chunk(ptr %context, i64 %k)
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


class Guarded:
    """Memory for an array with a forbidden page on each side."""

    def __init__(self, size: int, front: bool) -> None:
        pages = max(1, -(-size // _PAGE))
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        view = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        base = ctypes.addressof(view)
        self._view = view
        for page in (0, pages + 1):
            assert _LIBC.mprotect(ctypes.c_void_p(base + page * _PAGE), _PAGE, 0) == 0
        self.size = size
        self.offset = _PAGE if front else (pages + 1) * _PAGE - size
        self.address = base + self.offset
        self._inside = np.frombuffer(self._map, np.uint8, pages * _PAGE, _PAGE)
        self._first = self.offset - _PAGE

    def fill(self, value: int) -> None:
        """Set every byte that is there."""
        self._inside[:] = value

    def put(self, array: Array) -> None:
        self._inside[self._first : self._first + self.size] = np.frombuffer(
            array.tobytes(), np.uint8
        )

    def take(self, like: Array) -> Array:
        """What an array of that shape and dtype has there."""
        data = self._inside[self._first : self._first + self.size].tobytes()
        return np.frombuffer(data, like.dtype).reshape(like.shape)

    def check(self) -> None:
        """Nothing was written outside of the array."""
        assert (self._inside[: self._first] == _SEEN).all(), "written before the array"
        assert (self._inside[self._first + self.size :] == _SEEN).all(), "written behind the array"


def lowered(func: Function) -> Function:
    """A scheduled function after the passes on loops."""
    return run_passes(with_slots(func, THREADS), LOOP_PASSES)


@dataclass
class Batch:
    """Functions as one module: compiled once."""

    functions: Mapping[str, Function]
    code: NativeCode

    @staticmethod
    def of(scheduled: Mapping[str, Function], target: Llvm | None = None) -> Batch:
        target = target or host()
        functions = {k: lowered(f.with_(name=k)) for k, f in scheduled.items()}
        code = load_object(object_code(module_text(functions.values(), target), target), functions)
        return Batch(functions, code)

    def run(
        self,
        name: str,
        inputs: Sequence[Array],
        symbols: Mapping[str, int] | None = None,
        threads: int = 1,
        front: bool = False,
    ) -> tuple[Array, ...]:
        """The results of a function."""
        func, values = self.functions[name], dict(symbols or {})
        places, results = [], []
        for a in inputs:
            places.append(Guarded(a.nbytes, front))
            places[-1].put(a)
        for b in func.results:
            like = np.empty([int(evaluate(d, values)) for d in b.shape], b.dtype.numpy)
            results.append((Guarded(like.nbytes, True), like))
            results[-1][0].fill(_SEEN)
        scratch = Guarded(scratch_bytes(func, values), front)
        scratch.fill(0xFF)  # NaN, for floats
        addresses = [p.address for p in (*places, *(g for g, _ in results))]
        words = [values[s.name] for s in func.symbols]
        arguments = [*addresses, *words, scratch.address, 0, threads]
        types = [ctypes.c_int64] * len(arguments)
        ctypes.CFUNCTYPE(None, *types)(self.code.address(name))(*arguments)
        for g, _ in results:
            g.check()
        return tuple(g.take(like) for g, like in results)


def module_text(functions: Any, target: Llvm) -> str:
    """The module of functions, with a pool."""
    module = ModuleText()
    module.declared["planish_parallel"] = _PARALLEL
    for f in functions:
        kernel_ir(f, module, isa_of(target))
    return module.text()


def scratch_bytes(func: Function, symbols: Mapping[str, int]) -> int:
    """The bytes of a function's global temporaries, each aligned."""
    sizes = [int(evaluate(t.bytes, symbols)) for t in func.temps if t.scope == "global"]
    return sum(-(-s // 64) * 64 for s in sizes)


# ------------------------------------------------------------------------------------- operators


def types_of(arrays: Sequence[Array | None]) -> list[TensorType | None]:
    return [None if a is None else tensor(from_numpy(a.dtype), *a.shape) for a in arrays]


def has_loops(op: Op) -> bool:
    """Whether an operator is a function of loops, rather than of subgraphs."""
    return op.is_expression or type(op).build is not Op.build


def function_of(op: Op, types: Sequence[TensorType | None], name: str = "f") -> Function:
    """The plain loops of an operator on inputs of these types."""
    if not op.is_expression:
        return op.build(*types).with_(name=name)
    places = [None if t is None else te.placeholder(t.shape, t.dtype, "x") for t in types]
    found = op.compute(*places)
    outputs = found if isinstance(found, tuple) else (found,)
    return lower(name, [p for p in places if p is not None], list(outputs))


def reference(op: Op, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, about means of nothing
        found = op.reference(*arrays)
    return found if isinstance(found, tuple) else (found,)


# By the number of bytes: of an element, and of the largest one.
TOLERANCE: Final = {1: 0.0, 2: 1e-2, 4: 2e-6, 8: 1e-13}


def assert_close(found: Array, wanted: Array, factor: float = 1.0) -> None:
    """Equal for integers and bools; NaN and infinities at the same places."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.dtype.kind in "iubc":  # complex numbers are moved
        np.testing.assert_array_equal(found, wanted)
        return
    tolerance = factor * TOLERANCE[wanted.dtype.itemsize]
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(y[np.isfinite(y)])
    scale = float(np.minimum(finite, 1e3).max()) if finite.size else 0.0
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
