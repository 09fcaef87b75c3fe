"""A compiled module: machine code, constants, and what is needed to call it.

A call checks its inputs, finds the plan for their shapes (values of symbols, sizes of arena and
outputs; computed once per shape), fills the slots of a *frame* and runs the entry point, with the
interpreter's lock released. A frame holds what one running call needs: slots and arena. There are
as many as calls were ever running at once, and idle ones are used again, so any number of Python
threads may call one module.

Outputs belong to the caller.
"""

from __future__ import annotations

import array
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from planish.compiler.calling import ALIGNMENT, SlotLayout
from planish.compiler.config import CONFIG
from planish.compiler.dtypes import STRING
from planish.compiler.errors import RuntimeFault, TypeCheckError
from planish.compiler.given import as_number
from planish.compiler.texts import Texts
from planish.targets.target import Code, Target

from .data import NOT_YET, OpenOutputs
from .host import Hosts, entry, made
from .interface import Array, Interface, Port, StepTimes, describe
from .memory import LARGE, Blocks, address_of, aligned_copy, aligned_empty
from .packing import Boundary, UserPort
from .plan import Plan, Planner, fetch
from .pool import Pool, pool

_READY: Final = 0x101  # flags of an array that is contiguous and aligned
_FRAMES_KEPT: Final = 16
_BY_NAME: Final = "a dictionary of arrays by name"
_ARRAYS: Final = "a sequence of arrays, or a dictionary of them by name"

T = TypeVar("T")


class _Frame:
    """What one running call needs: its slots, filled but for inputs and outputs, and its arena."""

    __slots__ = ("address", "arena", "calls", "entry", "hosts", "plan", "slots")

    def __init__(self, slots: array.array[int], hosts: Hosts | None = None) -> None:
        self.slots = slots
        self.hosts = hosts
        if hosts is not None:
            self.entry, slots[SlotLayout.HOST] = entry(hosts)
        self.address = slots.buffer_info()[0]
        self.arena = aligned_empty(0)
        self.plan: Plan | None = None
        self.calls = 0

    def prepare(self, plan: Plan, first_symbol: int) -> None:
        """Set up for the sizes of a plan."""
        if self.arena.nbytes < plan.arena_bytes:
            self.plan = None
            self.arena = aligned_empty(0)  # the old one goes before the new one comes
            self.arena = aligned_empty(plan.arena_bytes)
        self.slots[SlotLayout.ARENA] = self.arena.ctypes.data
        for k, value in enumerate(plan.symbols):
            self.slots[first_symbol + k] = value
        self.plan = plan


class Module:
    """A compiled model: ``module(x, y)`` takes arrays in the order of ``inputs``, gives a tuple.

    ``threads`` is what a call may use at most; None is all that the process may use. ``defaults``
    are the values of inputs that may be left out, by name; they are not among the arguments of a
    call, but ``run`` may give them. A sequence is a list of arrays; an optional that is not there
    is None.
    """

    def __init__(
        self,
        interface: Interface,
        code: Code,
        constants: Sequence[Array],
        *,
        defaults: Mapping[str, Array] | None = None,
        threads: int | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.interface, self.code = interface, code
        self.constants = [aligned_copy(c) for c in constants]
        self.defaults = {
            name: v if v.dtype == STRING.numpy else aligned_copy(v)
            for name, v in (defaults or {}).items()
        }
        self.provenance = dict(provenance or {})
        self.given_threads = threads
        self._pool: Pool = pool()
        wanted = threads or CONFIG.threads or self._pool.maximum
        self.threads = min(wanted, self._pool.maximum)
        self._planner = Planner(interface)
        # Strings (None) are looked at whatever they come as.
        self._dtypes = [p.dtype.numpy if p.dtype.kind != "s" else None for p in interface.inputs]
        self._positions = [k for k, p in enumerate(interface.inputs) if not p.default]
        self._all_positional = len(self._positions) == len(interface.inputs)
        self._layout = layout = interface.layout
        self._first_symbol = layout.symbol(0)
        self._slots = array.array("q", [0]) * layout.words
        self._slots[layout.POOL] = self._pool.address if self.threads > 1 else 0
        self._slots[layout.THREADS] = self.threads
        for k, constant in enumerate(self.constants):
            self._slots[layout.constant(k)] = address_of(constant)
        self._open = OpenOutputs(interface)
        self._boundary = Boundary(interface) if interface.packings else None
        self._texts = Texts(interface.texts)
        self._inputs_of_text, self._outputs_of_text = (
            tuple(k for k, p in enumerate(ports) if p.dtype is STRING)
            for ports in (interface.inputs, interface.outputs)
        )

        self._frames: list[_Frame] = []
        self._blocks = Blocks()
        # Code for another machine can be saved, not called.
        self._missing = code.target.missing
        if not self._missing:
            self._load()
        self._lock = threading.Lock()  # of the numbers below; not taken by most calls
        self._past_calls = 0  # of frames that are gone
        self._arena_bytes = self._arena_peak = 0
        self._all_frames: set[_Frame] = set()

    def _load(self) -> None:
        loaded = self._loaded = self.code.load()
        self._entry, self._profile, self._worker = loaded.run, loaded.profile, loaded.worker
        name = self.interface.name
        self._functions = [made(wanted, name) for wanted in self.interface.hosts]

    # ------------------------------------------------------------------------------- the surface

    @property
    def target(self) -> Target:
        """What the module is compiled for."""
        return self.code.target

    @property
    def inputs(self) -> tuple[UserPort, ...]:
        """What a call takes; those with a default come by name only."""
        return self.interface.inputs if self._boundary is None else self._boundary.inputs

    @property
    def outputs(self) -> tuple[UserPort, ...]:
        """What a call gives."""
        return self.interface.outputs if self._boundary is None else self._boundary.outputs

    def __call__(
        self, *arrays: Any, out: Sequence[Array] | None = None, **named: Any
    ) -> tuple[Any, ...]:
        """Run on arrays (numpy, or anything with DLPack), in the order of the inputs.

        With ``out`` the results are written there. What is a sequence to the model is a list of
        arrays, given and got; an optional that is not there is None.

        Errors: TypeCheckError naming the input that does not fit, what it is and what it must be.
        """
        if named:
            raise TypeCheckError(
                f"a call takes arrays in their order; these have names: {', '.join(named)}",
                op=self.interface.name,
                hint="module.run({name: array, ...}) takes them by name",
            )
        if self._boundary is not None:
            return self._with_lists(self._by_position(arrays), out)
        if len(arrays) != len(self._positions):
            raise self._wrong_count(len(arrays))
        if self._all_positional:
            return self._run(arrays, out)
        given = list(self._default_inputs())
        for k, value in zip(self._positions, arrays, strict=True):
            given[k] = value
        return self._run(given, out)

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Array] | None = None
    ) -> dict[str, Any]:
        """Run on arrays by the names of the inputs; gives all outputs by their names.

        Errors: as a call's.
        """
        if self._boundary is not None:
            found = self._with_lists(inputs, out)
            return {p.name: x for p, x in zip(self.outputs, found, strict=True)}
        given = self._named(inputs)
        names = [p.name for p in self.interface.outputs]
        places = None
        if out is not None:
            self._check_kind("out", out, Mapping, _BY_NAME)
            if (unknown := [n for n in out if n not in names]) or len(out) != len(names):
                what = (
                    f"there is no output {unknown[0]}" if unknown else "out must have all outputs"
                )
                raise TypeCheckError(
                    what, op=self.interface.name, hint=f"outputs: {' '.join(names)}"
                )
            places = [out[name] for name in names]
        return dict(zip(names, self._run(given, places), strict=True))

    def profile(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        repeat: int = 10,
        out: Sequence[Array] | None = None,
    ) -> list[StepTimes]:
        """How long each step took, with names, in each of so many repetitions.

        With ``out`` the results are written there.

        Errors: as a call's.
        """
        if not isinstance(inputs, Mapping):
            inputs = self._by_position(self._check_kind("inputs", inputs, Sequence, _ARRAYS))
        given = self._named(inputs)
        repeat = as_number(repeat, "repeat", self.interface.name, least=1)
        steps = self.interface.steps
        times = np.zeros((repeat, len(steps)), np.int64)
        for row in times:
            self._run(given, out, row)
        pairs = zip(steps, times.T, strict=True)
        return [StepTimes(step.function, step.origin, row) for step, row in pairs]

    def plan(self, inputs: Mapping[str, Any]) -> Plan:
        """The sizes that a call with these inputs has; nothing is run."""
        given = [fetch(v, p, self.interface.name) for v, p in self._pairs(inputs)]
        return self._planner.plan(tuple(a.shape for a in given))

    def stats(self) -> dict[str, Any]:
        """What the module is and did: calls, bytes of memory, functions, threads."""
        with self._lock:
            frames = list(self._all_frames)
            calls = self._past_calls + sum(f.calls for f in frames)
        functions = len({s.function for s in self.interface.steps})
        tuned = sum(s.get("how") == "tuned" for s in self.provenance.get("schedules", {}).values())
        return {
            "calls": calls,
            "arena_bytes": self._arena_bytes,
            "arena_bytes_peak": self._arena_peak,
            "frames": len(frames),
            "output_bytes_kept": self._blocks.bytes,
            "constant_bytes": sum(c.nbytes for c in self.constants),
            "code_bytes": self.code.bytes,
            "shapes": len(self._planner),
            "steps": len(self.interface.steps),
            "functions": functions,
            "tuned": tuned,
            "default": functions - tuned,
            "threads": self.threads,
            "pool": asdict(self._pool.stats()),
        }

    def trim(self) -> None:
        """Give back the memory that is kept for calls to come."""
        while self._frames:
            self._drop(self._frames.pop())
        self._blocks.clear()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module as one file, which ``planish.load`` loads without compiling anything."""
        from .file import save

        save(self, path)

    def __reduce__(self) -> NoReturn:
        raise TypeCheckError(
            "a module cannot be pickled or copied",
            op=self.interface.name,
            hint="module.save(path) writes it, planish.load(path) reads it, in any process",
        )

    def __repr__(self) -> str:
        ports = ", ".join(str(p) for p in self.inputs)
        outs = ", ".join(str(p) for p in self.outputs)
        return f"<planish module {self.interface.name}({ports}) -> {outs}>"

    # ------------------------------------------------------------------------------------- a call

    def _run(
        self, given: Sequence[Any], out: Sequence[Array] | None, times: Array | None = None
    ) -> tuple[Array, ...]:
        ports = self.interface.inputs
        arrays = []
        for k, (value, dtype) in enumerate(zip(given, self._dtypes, strict=True)):
            if type(value) is not np.ndarray or value.dtype is not dtype:
                value = fetch(value, ports[k], self.interface.name)
            if value.flags.num & _READY != _READY:
                value = self._ready(value, ports[k])
            arrays.append(value)
        texts = self._texts
        if self.interface.texts:
            texts = Texts(below=texts)
            for k in self._inputs_of_text:
                arrays[k] = texts.numbers(arrays[k])
        plan = self._planner.plan(tuple([a.shape for a in arrays]))
        self._blocks.allow(plan.large_bytes)
        results = self._results(plan, arrays, out)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            if frame.hosts is not None:
                frame.hosts.begin(texts)
            self._execute(frame, plan, arrays, results, times)
        finally:
            frame.calls += 1
            if len(self._frames) < _FRAMES_KEPT:
                self._frames.append(frame)
            else:
                self._drop(frame)
        for k in self._outputs_of_text:
            results[k] = texts.strings(results[k])
        if out is not None:
            for place, result in zip(out, results, strict=True):
                if place is not result:
                    np.copyto(place, result)
            return tuple(out)
        return tuple(results)

    def _ready(self, array: Array, port: Port) -> Array:
        """A copy that is contiguous and aligned."""
        try:
            return np.require(array, requirements=["C", "A"])
        except MemoryError as error:
            raise RuntimeFault(
                f"there is no memory for a contiguous copy of the input {port.name},"
                f" {describe(array)}",
                op=self.interface.name,
            ) from error

    def _execute(
        self,
        frame: _Frame,
        plan: Plan,
        arrays: list[Array],
        results: list[Array],
        times: Array | None,
    ) -> None:
        if frame.plan is not plan:
            self._prepare(frame, plan)
        slots = frame.slots
        at = SlotLayout.FIRST
        for each in arrays:
            slots[at] = address_of(each)
            at += 1
        for each in results:
            slots[at] = 0 if each is NOT_YET else address_of(each)
            at += 1
        if plan.nothing:
            return
        if self.threads > 1 and self._worker is not None:
            self._pool.ensure(self.threads, self._worker, self._loaded)
        if times is None:
            failure = self._entry(frame.address)
        else:
            failure = self._profile(frame.address, times.ctypes.data)
        cause = None if frame.hosts is None else frame.hosts.end()
        if failure:
            self._open.fail(failure - 1, slots, cause)
        if self._open.open:
            self._open.take(results, slots)

    def _new_frame(self) -> _Frame:
        if self._missing:
            raise RuntimeFault(
                f"the module is for another machine: this one lacks {', '.join(self._missing)}",
                op=self.interface.name,
                hint="save it, and load it there",
            )
        hosts = Hosts(self.interface.hosts, self._functions) if self.interface.hosts else None
        frame = _Frame(self._slots[:], hosts)
        with self._lock:
            self._all_frames.add(frame)
        return frame

    def _drop(self, frame: _Frame) -> None:
        with self._lock:
            self._all_frames.discard(frame)
            self._past_calls += frame.calls
            self._arena_bytes -= frame.arena.nbytes

    def _prepare(self, frame: _Frame, plan: Plan) -> None:
        before = frame.arena.nbytes
        try:
            frame.prepare(plan, self._first_symbol)
        except MemoryError as error:
            raise RuntimeFault(
                f"there is no memory for an arena of {plan.arena_bytes} bytes",
                op=self.interface.name,
            ) from error
        finally:
            if frame.arena.nbytes != before:
                with self._lock:
                    self._arena_bytes += frame.arena.nbytes - before
                    self._arena_peak = max(self._arena_peak, self._arena_bytes)

    def _results(self, plan: Plan, arrays: list[Array], out: Sequence[Array] | None) -> list[Array]:
        """Where the outputs go: what the caller gives if that will do, else fresh arrays."""
        try:
            if out is None:
                return [
                    NOT_YET
                    if shape is None
                    else np.empty(shape, dtype)
                    if size < LARGE
                    else self._blocks.take(shape, dtype, size)
                    for shape, dtype, size in plan.outputs
                ]
            return self._given_results(plan, arrays, out)
        except MemoryError as error:
            raise RuntimeFault(
                "there is no memory for the outputs", op=self.interface.name
            ) from error

    def _given_results(self, plan: Plan, arrays: list[Array], out: Sequence[Array]) -> list[Array]:
        ports = self.interface.outputs
        self._check_kind(
            "out", out, Sequence, "a sequence of arrays", "module.run takes a dictionary"
        )
        if len(out) != len(ports):
            raise TypeCheckError(
                f"out has {len(out)} arrays, the module {len(ports)} outputs",
                op=self.interface.name,
            )
        results: list[Array] = []
        for place, port, (shape, dtype, size) in zip(out, ports, plan.outputs, strict=True):
            if shape is None:
                raise TypeCheckError(
                    f"out cannot have {port}: only the data tells its size",
                    op=self.interface.name,
                )
            wanted = port.dtype.numpy
            if not isinstance(place, np.ndarray) or place.dtype != wanted or place.shape != shape:
                what = (
                    describe(place)
                    if isinstance(place, np.ndarray)
                    else f"of type {type(place).__name__}"
                )
                raise TypeCheckError(
                    f"out for {port.name} is {what}, and must be an array of"
                    f" {port.dtype}{list(shape)}",
                    op=self.interface.name,
                )
            if not place.flags.writeable:
                raise TypeCheckError(f"out for {port.name} is read-only", op=self.interface.name)
            shared = any(np.may_share_memory(place, other) for other in (*arrays, *results))
            usable = place.flags.num & _READY == _READY and not shared and wanted == dtype
            if usable and (size < LARGE or address_of(place) % ALIGNMENT == 0):
                results.append(place)
            else:
                results.append(aligned_empty(size).view(dtype).reshape(shape))
        return results

    # ------------------------------------------------------------------------------------ inputs

    def _by_position(self, values: Sequence[Any]) -> dict[str, Any]:
        """What is given in the order of the inputs that have no default, by name."""
        names = [p.name for p in self.inputs if not p.default]
        if len(values) != len(names):
            raise self._wrong_count(len(values))
        return dict(zip(names, values, strict=True))

    def _with_lists(self, inputs: Mapping[str, Any], out: Any) -> tuple[Any, ...]:
        """Run where inputs or outputs are sequences or optionals."""
        assert self._boundary is not None
        if out is not None:
            raise TypeCheckError(
                "out cannot be given: among inputs and outputs are sequences or optionals",
                op=self.interface.name,
            )
        return self._boundary.results(self._run(self._named(inputs), None))

    def _check_kind(
        self, name: str, value: T, kind: type, wanted: str, hint: str | None = None
    ) -> T:
        if not isinstance(value, kind) or isinstance(value, str | bytes):
            what = f"{name} is of type {type(value).__name__}, not {wanted}"
            raise TypeCheckError(what, op=self.interface.name, hint=hint)
        return value

    def _wrong_count(self, count: int) -> TypeCheckError:
        names = [str(p) for p in self.inputs if not p.default]
        wanted = "1 input is" if len(names) == 1 else f"{len(names)} inputs are"
        return TypeCheckError(
            f"{wanted} wanted, {count} given",
            op=self.interface.name,
            hint=f"inputs: {'; '.join(names) or 'none'}",
        )

    def _default_inputs(self) -> list[Any]:
        return [self.defaults.get(p.name) for p in self.interface.inputs]

    def _named(self, inputs: Mapping[str, Any]) -> list[Any]:
        return [value for value, _ in self._pairs(inputs)]

    def _pairs(self, inputs: Mapping[str, Any]) -> list[tuple[Any, Port]]:
        ports = self.interface.inputs
        self._check_kind(
            "inputs", inputs, Mapping, _BY_NAME, "module(x, ...) takes arrays in their order"
        )
        if self._boundary is not None:
            inputs = self._boundary.given(inputs)
        known = {p.name for p in ports}
        hint = f"inputs: {'; '.join(map(str, ports)) or 'none'}"
        for name in inputs:
            if name not in known:
                raise TypeCheckError(f"there is no input {name}", op=self.interface.name, hint=hint)
        out = []
        for port in ports:
            if port.name in inputs:
                out.append((inputs[port.name], port))
            elif port.name in self.defaults:
                out.append((self.defaults[port.name], port))
            else:
                raise TypeCheckError(
                    f"the input {port.name} is missing", op=self.interface.name, hint=hint
                )
        return out
