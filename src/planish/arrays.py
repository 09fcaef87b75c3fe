"""Inputs from files, inputs made up, and outputs into files: what the program's commands need."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import F8E8M0, STRING
from planish.compiler.errors import ParseError, PlanishError, RuntimeFault, TypeCheckError
from planish.compiler.files import why, written_whole
from planish.compiler.packings import Packing
from planish.compiler.texts import as_strings, holds_strings

if TYPE_CHECKING:
    from planish.compiler.dtypes import DType
    from planish.runtime.interface import Interface
    from planish.runtime.module import Module
    from planish.runtime.packing import UserPort

Array = npt.NDArray[Any]

_MOST_TRIED: Final = 20_000  # combinations of sizes
_LARGER: Final = (32, 24, 16, 12, 8, 6, 4, 3, 2)
_MOST_FLOPS: Final = 2e9  # of a call on inputs that are made up
_MOST_BYTES: Final = 1e9


def read_npz(path: str | Path) -> dict[str, Array]:
    """The arrays of an .npz file, by name.

    Errors: ParseError naming what is wrong with the file.
    """
    try:
        with open(path, "rb") as file:
            data = file if file.seekable() else io.BytesIO(file.read())  # a pipe is read as a whole
            return _arrays(path, data)
    except ParseError:
        raise
    except OSError as error:
        raise ParseError(f"{path} cannot be read: {why(error)}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise ParseError(
            f"{path} is no .npz file of numbers or text", hint="write it with numpy.savez"
        ) from error


def _arrays(path: str | Path, data: IO[bytes]) -> dict[str, Array]:
    archive = np.load(data, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ParseError(f"{path} holds one array without a name", hint="use numpy.savez")
    found = {}
    with archive:
        for name in archive.files:
            try:
                found[name] = archive[name]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise ParseError(
                    f"{path} holds Python objects as {name!r}, which are not read",
                    hint="convert strings with .astype(str), other arrays to the model's dtype",
                ) from error
    return found


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file; what numpy has no name for as its bits: bfloat16 in uint16.

    Strings are written as numpy's own text, which cannot end with zeros.

    Errors: ParseError if the file cannot be written.
    """
    arrays = {n: _text(n, a, path) if a.dtype == object else a for n, a in arrays.items()}
    kinds = {n: _bits(a.dtype) for n, a in arrays.items()}
    stored = {n: a if (k := kinds[n]) is None else a.view(k) for n, a in arrays.items()}
    try:
        with written_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in stored.items():  # numpy.savez takes some names for its own options
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise ParseError(f"{path} cannot be written: {why(error)}") from error


def _text(name: str, strings: Array, path: str | Path) -> Array:
    out = strings.astype(np.str_)
    if not np.array_equal(out.astype(object), strings):
        raise ParseError(
            f"{path} cannot hold {name}: a string ends with a zero character",
            hint="call the module from Python",
        )
    return out


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The integers that hold the bits of a dtype which is not numpy's own."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else None


def inputs_from(path: str | Path, ports: Iterable[UserPort]) -> dict[str, Any]:
    """The inputs in an .npz file; where bfloat16 is wanted, 16-bit integers are its bits.

    So for the other dtypes that are not numpy's own; elements of fewer than 8 bits take a byte. The
    arrays of a sequence ``x`` are called ``x.0``, ``x.1`` ... there; a map is ``x.keys`` and
    ``x.values``.
    """
    arrays: dict[str, Any] = dict(read_npz(path))

    def typed(array: Array, port: UserPort) -> Array:
        if port.dtype is STRING and holds_strings(array):
            return as_strings(array)
        wanted = port.dtype.numpy
        kind = _bits(wanted)
        return array.view(wanted) if kind is not None and array.dtype == kind else array

    for port in ports:
        if port.name in arrays:
            arrays[port.name] = typed(arrays[port.name], port)
        elif isinstance(port, Packing) and port.key is not None:
            keys, values = (arrays.pop(part, np.empty(0)) for part in port.parts)
            arrays[port.name] = dict(zip(keys.tolist(), values.tolist(), strict=False))
        elif isinstance(port, Packing):
            items: list[Array] = []
            while (name := f"{port.name}.{len(items)}") in arrays:
                items.append(typed(arrays.pop(name), port))
            arrays[port.name] = items if items or port.kind == "sequence" else None
    return arrays


def by_names(values: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays, and those in lists, each by a name: as ``inputs_from`` reads them.

    A map is its keys and its values; so is a list of them, which have the same keys.
    """
    out: dict[str, Array] = {}
    for name, value in values.items():
        maps = value if isinstance(value, list) else [value]
        if maps and isinstance(maps[0], dict):
            rows = [list(m.values()) for m in maps]
            out[f"{name}.keys"] = np.array(list(maps[0]))
            out[f"{name}.values"] = np.array(rows if isinstance(value, list) else rows[0])
        elif isinstance(value, list):
            out.update((f"{name}.{k}", a) for k, a in enumerate(value))
        elif value is not None:
            out[name] = value
    return out


def made_up(ports: Iterable[UserPort], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Inputs of the right types and of these sizes, by the names of the symbols.

    Floats are normal; integers and bools are 0 and 1, which are indices into almost anything.
    Powers of two (``f8e8m0``) have no sign; strings are "0" and "1". A sequence has two arrays,
    whose dimensions are 2 where the model does not say what they are.
    """
    from planish.runtime.interface import evaluator

    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}

    def one(shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype is STRING:
            return as_strings(rng.integers(0, 2, shape).astype(np.str_))
        if dtype.is_discrete:
            values: Array = rng.integers(0, 2, shape)
        else:
            values = rng.standard_normal(shape, dtype=np.float32)
        if dtype is F8E8M0:
            values = abs(values)
        return values.astype(dtype.numpy)

    for port in ports:
        if isinstance(port, Packing) and port.key is not None:
            keys, values = (one((2,), dtype) for dtype in (port.key, port.dtype))
            arrays[port.name] = dict(zip(keys.tolist(), values.tolist(), strict=True))
        elif isinstance(port, Packing):
            extents = tuple(2 if d is None else d for d in (port.shape or ()))
            items = [one(extents, port.dtype) for _ in range(2)]
            arrays[port.name] = items[0] if port.kind == "optional" else items
        elif not port.default:
            shape = evaluator(sizes, port.shape)(*sizes.values())
            arrays[port.name] = one(shape, port.dtype)
    return arrays


def usable_inputs(module: Module, dims: Mapping[str, int]) -> tuple[dict[str, int], dict[str, Any]]:
    """Sizes for all symbols, those of ``dims`` among them, and inputs with which a call succeeds.

    Errors: what the call raises, if none is found, with a hint.
    """
    failure: PlanishError | None = None
    for sizes in _sizes_to_try(module.interface, dims, module.defaults):
        inputs = made_up(module.inputs, sizes)
        try:
            module.run(inputs)
        except (TypeCheckError, RuntimeFault) as error:
            if module.target.missing:
                raise
            failure = failure or error
        else:
            return sizes, inputs
    assert failure is not None
    hint = "the inputs were made up; --inputs IN.npz gives others"
    raise type(failure)(
        failure.message,
        op=failure.op,
        node=failure.node,
        hint=f"{failure.hint}; {hint}" if failure.hint else hint,
    ) from failure


def _sizes_to_try(
    interface: Interface, dims: Mapping[str, int], defaults: Mapping[str, Array]
) -> Iterator[dict[str, int]]:
    """Sizes that fit: a few dozen where that is not too much work, then the smallest.

    Those of 1 would hardly test anything. Where nothing fits that is found, the sizes are 1, and a
    call says what it lacks.
    """
    fitting = _Fitting(interface)
    known = {
        str(size): extent
        for port in interface.inputs
        if port.default
        for size, extent in zip(port.shape, defaults[port.name].shape, strict=True)
    }
    known = {n: size for n, size in {**known, **dims}.items() if n in interface.symbols}
    free = [name for name in interface.symbols if name not in known]
    least = next((known | t for t in _candidates(free) if fitting(known | t)), None)
    if least is None:
        yield known | dict.fromkeys(free, 1)
        return
    least = fitting.smallest(least, free)
    many = next((known | t for t in _dozens(free) if fitting.cheap(known | t)), None)
    if many is None:
        many = fitting.grown(least, free)
    yield many
    if many != least:
        yield least


class _Fitting:
    """Tells which sizes fit an interface, and which of them take little work."""

    def __init__(self, interface: Interface) -> None:
        from planish.runtime.interface import evaluator

        symbols = self._symbols = interface.symbols
        told = [p for p in interface.outputs if not interface.is_open(p)]
        extents = [d for port in (*interface.inputs, *told) for d in port.shape]
        self._conditions = evaluator(symbols, [c.condition for c in interface.constraints])
        self._extents = evaluator(symbols, extents)
        self._work = evaluator(symbols, [x for s in interface.steps for x in (s.flops, s.bytes)])

    def __call__(self, sizes: Mapping[str, int]) -> bool:
        values = [sizes[name] for name in self._symbols]
        return all(self._conditions(*values)) and min(self._extents(*values), default=0) >= 0

    def cheap(self, sizes: Mapping[str, int]) -> bool:
        """Whether they fit, and a call takes a fraction of a second."""
        work = self._work(*(sizes[name] for name in self._symbols)) if self(sizes) else None
        return work is not None and sum(work[::2]) <= _MOST_FLOPS and sum(work[1::2]) <= _MOST_BYTES

    def smallest(self, sizes: Mapping[str, int], free: Sequence[str]) -> dict[str, int]:
        """Sizes that fit, each made as small as it can be beside the others."""
        out = dict(sizes)
        for name in free:
            smaller = range(1, out[name])
            out[name] = next((k for k in smaller if self({**out, name: k})), out[name])
        return out

    def grown(self, sizes: Mapping[str, int], free: Sequence[str]) -> dict[str, int]:
        """Sizes that fit, each made larger if that stays cheap."""
        out = dict(sizes)
        for name in free:
            larger = (k for k in _LARGER if k > out[name])
            out[name] = next((k for k in larger if self.cheap({**out, name: k})), out[name])
        return out


def _dozens(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes of a few dozen: all apart, so that none is taken for another; then equal ones."""
    yield {name: 21 + k for k, name in enumerate(names)}
    for size in (24, 32, 64):
        yield dict.fromkeys(names, size)


def _candidates(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes to try, the small ones first: all equal, then one after the other apart."""
    for size in (*range(1, 65), *(k << p for p in range(5, 10) for k in (3, 4))):
        yield dict.fromkeys(names, size)
    steps = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
    for values in islice(product(steps, repeat=len(names)), _MOST_TRIED):
        yield dict(zip(names, values, strict=True))
