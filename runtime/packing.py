"""Sequences, optionals and maps at the boundary of a module: lists of arrays, None, dictionaries.

The code knows such an input or output as several tensors (``compiler/packings.py``). They are made
here, of lists that are checked, and never taken from the user: what is in ``shapes`` says where in
``values`` is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from planish.compiler.errors import CodegenError, RuntimeFault, TypeCheckError
from planish.compiler.packings import MOST_RANK, ROW, Packing

from .interface import Array, Interface, Port
from .maps import packed_map, unpacked_maps
from .plan import fetch

UserPort: TypeAlias = Port | Packing


class Boundary:
    """What the user gives and gets for an interface."""

    def __init__(self, interface: Interface) -> None:
        self.name = interface.name
        inputs = [p for p in interface.packings if not p.output]
        outputs = [p for p in interface.packings if p.output]
        self.inputs = _as_seen(interface.name, interface.inputs, inputs)
        self.outputs = _as_seen(interface.name, interface.outputs, outputs)

    def given(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of the code, for those that the user gives by name.

        Errors: TypeCheckError naming what does not fit.
        """
        known = {p.name: p for p in self.inputs}
        out: dict[str, Any] = {}
        for name, value in inputs.items():
            port = known.get(name)
            if port is None:
                hint = f"inputs: {'; '.join(map(str, self.inputs))}"
                raise TypeCheckError(f"there is no input {name}", op=self.name, hint=hint)
            if isinstance(port, Packing):
                out.update(zip(port.parts, packed(value, port, self.name), strict=True))
            else:
                out[name] = value
        for port in self.inputs:
            if isinstance(port, Packing) and port.name not in inputs:
                hint = f"inputs: {'; '.join(map(str, self.inputs))}"
                raise TypeCheckError(f"the input {port.name} is missing", op=self.name, hint=hint)
        return out

    def results(self, arrays: Sequence[Array]) -> tuple[Any, ...]:
        """What the user gets for the outputs of the code."""
        rest = iter(arrays)
        return tuple(
            unpacked([next(rest) for _ in port.parts], port)
            if isinstance(port, Packing)
            else next(rest)
            for port in self.outputs
        )


def _as_seen(
    module: str, ports: Sequence[Port], packings: Iterable[Packing]
) -> tuple[UserPort, ...]:
    """The ports with packed ones in the places of their parts.

    Errors: CodegenError if a part is missing.
    """
    begin = {p.parts[0]: p for p in packings}
    out: list[UserPort] = []
    k = 0
    while k < len(ports):
        packing = begin.pop(ports[k].name, None)
        if packing is None:
            out.append(ports[k])
            k += 1
            continue
        names = tuple(p.name for p in ports[k : k + len(packing.parts)])
        if names != packing.parts:
            raise CodegenError(f"parts of {packing.name} are missing", op=module)
        out.append(packing)
        k += len(names)
    if begin:
        raise CodegenError(f"parts of {next(iter(begin))} are missing", op=module)
    return tuple(out)


@dataclass(frozen=True, repr=False)
class _Element(Port):
    """One array of a sequence."""

    whole: str = ""

    def __str__(self) -> str:
        return self.whole


def packed(value: Any, port: Packing, module: str) -> list[Array]:
    """The tensors that the code gets for what the user gives.

    Errors: TypeCheckError naming the array that does not fit; RuntimeFault if there is no memory.
    """
    if port.key is not None:
        return packed_map(value, port, module)
    there = value is not None
    if not there and port.kind == "sequence":
        raise TypeCheckError(
            f"the input {port.name} is None, not a list of arrays",
            op=module,
            hint=f"the model declares {port}",
        )
    items: Sequence[Any]
    if not there:
        items = ()
    elif port.kind == "optional":
        items = (value,)
    elif isinstance(value, list | tuple):
        items = value
    else:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise TypeCheckError(
            f"the input {port.name} is a {kind}, not a list of arrays",
            op=module,
            hint=f"the model declares {port}",
        )
    arrays = [_element(v, port, k, module) for k, v in enumerate(items)]
    shapes = np.ones((len(arrays), ROW), np.int64)
    for row, array in zip(shapes, arrays, strict=True):
        row[0] = array.ndim
        row[1 : 1 + array.ndim] = array.shape
    try:
        flat = [a.reshape(-1) for a in arrays] or [np.empty(0, port.dtype.numpy)]
        out = [np.concatenate(flat), shapes]
    except MemoryError as error:
        raise RuntimeFault(
            f"there is no memory for the tensors of the input {port.name}", op=module
        ) from error
    return [*out, np.array(there)] if port.kind == "optional sequence" else out


def _element(value: Any, port: Packing, k: int, module: str) -> Array:
    name = port.name if port.kind == "optional" else f"{port.name}[{k}]"
    array = fetch(value, _Element(name, port.dtype, (), False, str(port)), module)
    why = ""
    if array.ndim > MOST_RANK:
        why = f"at most {MOST_RANK} dimensions are possible"
    elif port.shape is not None and array.ndim != len(port.shape):
        why = f"{len(port.shape)} dimensions are wanted"
    else:
        for d, (extent, wanted) in enumerate(zip(array.shape, port.shape or (), strict=False)):
            if wanted is not None and extent != wanted:
                why = f"dimension {d} must be {wanted}"
    if why:
        raise TypeCheckError(
            f"the input {name} is {port.dtype}{list(array.shape)}: {why}",
            op=module,
            hint=f"the model declares {port}",
        )
    return array


def unpacked(parts: Sequence[Array], port: Packing) -> Any:
    """What the user gets for the tensors that the code gives: views of one array."""
    if port.key is not None:
        return unpacked_maps(parts, port)
    values, shapes = parts[:2]
    arrays, at = [], 0
    for rank, *dims in shapes.tolist():
        shape = dims[:rank]
        size = int(np.prod(shape, dtype=np.int64))
        arrays.append(values[at : at + size].reshape(shape))
        at += size
    match port.kind:
        case "optional":
            return arrays[0] if arrays else None
        case "optional sequence" if not parts[2]:
            return None
        case _:
            return arrays


__all__ = ["Boundary", "UserPort", "packed", "unpacked"]
