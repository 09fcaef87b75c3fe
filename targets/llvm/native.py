"""From LLVM IR as text to object code, and from object code to functions that can be called.

Compiling needs no passes of LLVM: kernels come out of our own lowering as they should be. Loading
only relocates; nothing is compiled then.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm

from planish.compiler.errors import CodegenError, RuntimeFault

from .symbols import MAIN, PROFILE, WORKER
from .target import Llvm, host, initialize

_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_PROFILE: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
PIPELINES: Final = ("none", "O0", "O1", "O2", "O3")


def parse_ir(text: str, context: Any = None) -> Any:
    """A verified LLVM module, in a context that others share, or one of its own.

    Types and constants live as long as their context, so nothing is put into the process's one.

    Errors: CodegenError with LLVM's message and the line.
    """
    if "\0" in text:  # LLVM would take it for the end
        raise CodegenError("LLVM rejects the program: there is a zero character in it", op="llvm")
    try:
        module = llvm.parse_assembly(text, context or llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(
            f"LLVM rejects the program: {str(error).strip()}",
            op="llvm",
            node=_line(text, str(error)),
        ) from error
    return module


def _line(text: str, message: str) -> str | None:
    found = re.search(r"<string>:(\d+):\d+:", message)
    lines = text.splitlines()
    if not found or not 0 < int(found[1]) <= len(lines):
        return None
    number = int(found[1])
    return "\n".join(lines[max(0, number - 3) : number])


def _lowered(
    texts: str | Iterable[str],
    target: Llvm,
    pipeline: str,
    level: int,
    exports: Iterable[str] = (),
) -> tuple[Any, Any]:
    """The modules as one, after the pipeline, and a target machine for it."""
    context = llvm.create_context()
    modules = [parse_ir(text, context) for text in ([texts] if isinstance(texts, str) else texts)]
    if not modules:
        raise CodegenError("there is no program")
    whole, *rest = modules
    machine = target.llvm_machine(level)
    for module in modules:
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
    for module in rest:
        try:
            whole.link_in(module)
        except RuntimeError as error:
            raise CodegenError(f"modules do not fit together: {error}", op="llvm") from error
    for name in exports:
        try:
            whole.get_function(name).linkage = "external"
        except NameError as error:
            raise CodegenError(f"there is no function {name} to export", op="llvm") from error
    if pipeline not in PIPELINES:
        raise CodegenError(
            f"there is no pipeline {pipeline!r}", hint="one of " + " ".join(PIPELINES)
        )
    if pipeline != "none":
        options = llvm.create_pipeline_tuning_options(speed_level=int(pipeline[1]))
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(whole, passes)
    return whole, machine


def object_code(
    texts: str | Iterable[str],
    target: Llvm,
    pipeline: str = "none",
    level: int = 2,
    exports: Iterable[str] = (),
) -> bytes:
    """The object code of LLVM modules given as text, linked into one.

    ``level`` is that of code generation: 0 is ten times faster and good for code that runs rarely.
    ``exports`` are functions that other objects call, even if the text says that they are internal.

    Errors: CodegenError if LLVM does not accept them.
    """
    module, machine = _lowered(texts, target, pipeline, level, exports)
    out: bytes = machine.emit_object(module)
    return out


def assembly(texts: str | Iterable[str], target: Llvm, pipeline: str = "none") -> str:
    """The same as text for people.

    Errors: as ``object_code``.
    """
    module, machine = _lowered(texts, target, pipeline, 2)
    out: str = machine.emit_assembly(module)
    return out


@dataclass(frozen=True)
class Objects:
    """A program as object files: the kernels with the thread pool, and the entry point."""

    objects: tuple[bytes, ...]
    target: Llvm

    @property
    def bytes(self) -> int:
        return sum(map(len, self.objects))

    def load(self) -> Native:
        """The code as functions in this process.

        Errors: RuntimeFault if it is no object code of this machine.
        """
        return Native(load_object(self.objects, (MAIN, PROFILE, WORKER)))


class Native:
    """A program's machine code, loaded; its entry points run without the interpreter's lock."""

    def __init__(self, code: NativeCode) -> None:
        self.code = code  # it stays in memory as long as this
        self.run: Callable[[int], int] = _ENTRY(code.address(MAIN))
        self.profile: Callable[[int, int], int] = _PROFILE(code.address(PROFILE))
        self.worker = code.address(WORKER)


class NativeCode:
    """Loaded machine code; it stays as long as the object."""

    def __init__(self, tracker: Any, symbols: Iterable[str], size: int) -> None:
        self._tracker = tracker
        self._addresses = {name: int(tracker[name]) for name in symbols}
        self.bytes = size

    def address(self, symbol: str) -> int:
        """Where a function is.

        Errors: RuntimeFault if it was not asked for when loading.
        """
        found = self._addresses.get(symbol)
        if not found:
            raise RuntimeFault(f"the code has no function {symbol}")
        return found


_number = itertools.count()


@cache
def _linker() -> Any:
    """The process's JIT linker; code of modules is taken out of it one by one."""
    here = host()
    initialize(here.architecture)
    linker = llvm.create_lljit_compiler(
        here.llvm_machine(), use_jit_link=True, suppress_errors=True
    )
    # One reference that even the interpreter's end doesn't take away: threads of the pool are in
    # code that it holds.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(linker))
    return linker


def load_object(code: bytes | Iterable[bytes], symbols: Iterable[str]) -> NativeCode:
    """Object code as functions in this process: relocated, not compiled; several are linked.

    Errors: RuntimeFault if it is no object code of this machine, or uses what the process lacks.
    """
    wanted = tuple(symbols)
    objects = (code,) if isinstance(code, bytes) else tuple(code)
    builder = llvm.JITLibraryBuilder()
    for each in objects:
        builder.add_object_img(each)
    builder.add_current_process()
    for name in wanted:
        builder.export_symbol(name)
    try:
        tracker = builder.link(_linker(), f"planish.{next(_number)}")
    except RuntimeError as error:
        raise RuntimeFault(f"the object code cannot be loaded: {error}", op="load") from error
    return NativeCode(tracker, wanted, sum(map(len, objects)))
