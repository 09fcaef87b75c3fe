"""From the shapes of inputs to all sizes of a call, checked once per combination of shapes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from planish.compiler.calling import MOST_BYTES
from planish.compiler.dtypes import I64, STRING
from planish.compiler.errors import RuntimeFault, TypeCheckError
from planish.compiler.texts import as_strings, holds_strings

from .interface import Array, Interface, Port, describe, evaluator
from .memory import LARGE, spread

if TYPE_CHECKING:
    from planish.compiler.expr.nodes import Expr

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_PLANS_KEPT: Final = 1024
_PLAIN: Final = (list, tuple, int, float, complex)  # what numpy makes arrays of numbers of


# Shape (None: only the data tells it), dtype for numpy, bytes.
Output: TypeAlias = tuple[tuple[int, ...] | None, Any, int]


class Plan:
    """The sizes of a call: the symbols' values, the arena's bytes, the outputs' shapes."""

    __slots__ = ("arena_bytes", "large_bytes", "names", "nothing", "outputs", "symbols")

    def __init__(
        self,
        names: tuple[str, ...],
        symbols: tuple[int, ...],
        arena_bytes: int,
        outputs: tuple[Output, ...],
        nothing: bool,
    ) -> None:
        self.names, self.symbols = names, symbols
        self.arena_bytes, self.outputs = arena_bytes, outputs
        self.large_bytes = sum(size for _, _, size in outputs if size >= LARGE)
        self.nothing = nothing  # there is no element to compute, and nothing to check

    def __repr__(self) -> str:
        known = (f"{n} = {v}" for n, v in zip(self.names, self.symbols, strict=True))
        arrays = (
            f"{dtype}{'[of a size that data tells]' if shape is None else list(shape)}"
            for shape, dtype, _ in self.outputs
        )
        arena = f"arena of {self.arena_bytes} bytes"
        return f"<plan: {'; '.join((*known, arena))} -> {', '.join(arrays)}>"


class Planner:
    """Makes plans for an interface, and keeps them."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self._plans: dict[Shapes, Plan] = {}
        # Where each symbol is read off: input and dimension.
        self._sources: list[tuple[int, int]] = [
            next(
                (k, d)
                for k, port in enumerate(interface.inputs)
                for d, size in enumerate(port.shape)
                if not isinstance(size, int) and str(size) == symbol
            )
            for symbol in interface.symbols
        ]
        self._sizes = evaluator(
            interface.symbols,
            [
                *(d for p in interface.inputs for d in p.shape),
                *(c.condition for c in interface.constraints),
                interface.arena_bytes,
                *(d for p, is_open in self._outputs() if not is_open for d in p.shape),
            ],
        )

    def __len__(self) -> int:
        return len(self._plans)

    def _outputs(self) -> list[tuple[Port, bool]]:
        return [(p, self.interface.is_open(p)) for p in self.interface.outputs]

    def plan(self, shapes: Shapes) -> Plan:
        """The plan for these shapes of the inputs.

        Errors: TypeCheckError naming the input, or the condition that does not hold.
        """
        found = self._plans.get(shapes)
        if found is None:
            found = self._make(shapes)
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            self._plans[shapes] = found
        return found

    def _make(self, shapes: Shapes) -> Plan:
        interface = self.interface
        for port, shape in zip(interface.inputs, shapes, strict=True):
            if len(shape) != len(port.shape):
                raise self._mismatch(port, shape, f"{len(port.shape)} dimensions are wanted")
        symbols = tuple(shapes[k][d] for k, d in self._sources)
        values = iter(self._sizes(*symbols))
        for port, shape in zip(interface.inputs, shapes, strict=True):
            for d, actual in enumerate(shape):
                if actual != (expected := next(values)):
                    raise self._wrong_size(port, shape, d, expected)
        for constraint in interface.constraints:
            if not next(values):
                raise TypeCheckError(
                    f"the sizes of the inputs do not fit: {constraint.condition} does not hold",
                    op=interface.name,
                    node="\n".join(filter(None, [constraint.node, self._bindings(symbols)])),
                    hint=self._advice(constraint.condition, symbols),
                )
        arena = int(next(values))
        outputs: list[Output] = []
        for port, is_open in self._outputs():
            if is_open:
                outputs.append((None, port.dtype.storage.numpy, 0))
                continue
            shape = tuple(int(next(values)) for _ in port.shape)
            if min(shape, default=0) < 0:
                raise TypeCheckError(
                    f"the output {port} would be {list(shape)}: the inputs are too small",
                    op=interface.name,
                    node=self._bindings(symbols),
                )
            size = port.dtype.bytes
            for d in shape:
                size *= d
            if not size and spread(shape, port.dtype.storage.bytes) > I64.max:
                raise TypeCheckError(
                    f"the output {port} would be {list(shape)}: that is larger than any array",
                    op=interface.name,
                    node=self._bindings(symbols),
                )
            outputs.append((shape, port.dtype.storage.numpy, size))
        total = arena + sum(size for _, _, size in outputs)
        if arena < 0 or total > MOST_BYTES:
            raise RuntimeFault(
                f"the call would take {total} bytes of memory",
                op=interface.name,
                node=self._bindings(symbols),
            )
        nothing = bool(outputs) and not interface.failures
        nothing = nothing and all(shape is not None and not size for shape, _, size in outputs)
        return Plan(interface.symbols, symbols, arena, tuple(outputs), nothing)

    def _bindings(self, symbols: tuple[int, ...]) -> str:
        names = self.interface.symbols
        return ", ".join(f"{n} = {v}" for n, v in zip(names, symbols, strict=True))

    def _where(self, names: Collection[str]) -> str:
        """Which dimensions of which inputs symbols are."""
        sources = zip(self.interface.symbols, self._sources, strict=True)
        return ", ".join(
            f"{name} is dimension {d} of the input {self.interface.inputs[k].name}"
            for name, (k, d) in sources
            if name in names
        )

    def _advice(self, condition: Expr, symbols: tuple[int, ...]) -> str:
        """Where sizes come from that do not fit, and what to do about one that spreads."""
        from planish.compiler.expr.nodes import Eq, Var, free_vars

        names = {v.name for v in free_vars(condition)}
        ones = [n for n, v in zip(self.interface.symbols, symbols, strict=True)
                if n in names and v == 1]  # fmt: skip
        where = self._where(names)
        meet = isinstance(condition, Eq) and all(isinstance(c, Var) for c in condition.children)
        if not meet or not ones:
            return where
        return (
            f"{where}; two open dimensions that meet are taken to be equal: where {ones[0]} is"
            f" always 1, compile with --dim {ones[0]}=1 (dims={{{ones[0]!r}: 1}})"
        )

    def _mismatch(self, port: Port, shape: tuple[int, ...], why: str) -> TypeCheckError:
        return TypeCheckError(
            f"the input {port.name} is {port.dtype}{list(shape)}: {why}",
            op=self.interface.name,
            hint=f"the model declares {port}",
        )

    def _wrong_size(
        self, port: Port, shape: tuple[int, ...], dimension: int, expected: int
    ) -> TypeCheckError:
        size = port.shape[dimension]
        why = f"dimension {dimension} must be {expected}"
        if not isinstance(size, int):
            from planish.compiler.expr.nodes import Var, free_vars

            names = {v.name for v in free_vars(size)}
            sources = zip(self.interface.symbols, self._sources, strict=True)
            said = ", ".join(
                f"the {name} of the input {self.interface.inputs[k].name}"
                for name, (k, _) in sources
                if name in names
            )
            why += f", {said}" if isinstance(size, Var) else f", which is {size} with {said}"
        return self._mismatch(port, shape, why)


def fetch(value: Any, port: Port, module: str) -> Array:
    """What the caller gives for an input, as an array of its dtype; never converted.

    Strings may be objects, bytes or text of numpy's own.

    Errors: TypeCheckError naming the input.
    """
    if not isinstance(value, np.ndarray | np.generic):
        value = _from_other(value, port, module)
    found = np.asarray(value)
    if port.dtype is STRING and holds_strings(found):
        try:
            return as_strings(found)
        except TypeCheckError as error:
            raise TypeCheckError(
                f"the input {port.name}: {error.message}",
                op=module,
                hint=f"the model declares {port}",
            ) from error
    if found.dtype != port.dtype.numpy:
        raise TypeCheckError(
            f"the input {port.name} is {describe(found)}, and must be of {port.dtype}",
            op=module,
            hint=f"the model declares {port}; convert with .astype(...) if that is meant",
        )
    return found


def _from_other(value: Any, port: Port, module: str) -> Array:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if not hasattr(value, "__dlpack__"):
        plain = isinstance(value, _PLAIN) or hasattr(value, "__array__")
        raise TypeCheckError(
            f"the input {port.name} is a {kind}, not an array",
            op=module,
            hint=f"the model declares {port}" + ("; numpy.asarray may do" if plain else ""),
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeCheckError(
            f"the input {port.name} is a {kind} that cannot be read as an array here: {error}",
            op=module,
            hint=f"the model declares {port}",
        ) from error
