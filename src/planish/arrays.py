"""Inputs from files, inputs made up, and outputs into files: what the program's commands need."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import F8E8M0
from planish.compiler.errors import ParseError
from planish.compiler.files import why, written_whole
from planish.compiler.packings import Packing

if TYPE_CHECKING:
    from planish.compiler.dtypes import DType
    from planish.runtime.interface import Interface
    from planish.runtime.packing import UserPort

Array = npt.NDArray[Any]

_MOST_TRIED: Final = 20_000  # combinations of sizes


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
            f"{path} is no .npz file of numbers", hint="write it with numpy.savez"
        ) from error


def _arrays(path: str | Path, data: IO[bytes]) -> dict[str, Array]:
    archive = np.load(data, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ParseError(f"{path} holds one array without a name", hint="use numpy.savez")
    with archive:
        return {name: archive[name] for name in archive.files}


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file; what numpy has no name for as its bits: bfloat16 in uint16.

    Errors: ParseError if the file cannot be written.
    """
    kinds = {n: _bits(a.dtype) for n, a in arrays.items()}
    stored = {n: a if (k := kinds[n]) is None else a.view(k) for n, a in arrays.items()}
    try:
        with written_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in stored.items():  # numpy.savez takes some names for its own options
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise ParseError(f"{path} cannot be written: {why(error)}") from error


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The integers that hold the bits of a dtype which is not numpy's own."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == 2 else None


def inputs_from(path: str | Path, ports: Iterable[UserPort]) -> dict[str, Any]:
    """The inputs in an .npz file; where bfloat16 is wanted, 16-bit integers are its bits.

    So for the other dtypes that are not numpy's own; elements of fewer than 8 bits take a byte. The
    arrays of a sequence ``x`` are called ``x.0``, ``x.1`` ... there.
    """
    arrays: dict[str, Any] = dict(read_npz(path))

    def typed(array: Array, port: UserPort) -> Array:
        wanted = port.dtype.numpy
        kind = _bits(wanted)
        return array.view(wanted) if kind is not None and array.dtype == kind else array

    for port in ports:
        if port.name in arrays:
            arrays[port.name] = typed(arrays[port.name], port)
        elif isinstance(port, Packing):
            items: list[Array] = []
            while (name := f"{port.name}.{len(items)}") in arrays:
                items.append(typed(arrays.pop(name), port))
            arrays[port.name] = items if items or port.kind == "sequence" else None
    return arrays


def by_names(values: Mapping[str, Any]) -> dict[str, Array]:
    """Arrays, and those in lists, each by a name: as ``inputs_from`` reads them."""
    out: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, list):
            out.update((f"{name}.{k}", a) for k, a in enumerate(value))
        elif value is not None:
            out[name] = value
    return out


def made_up(ports: Iterable[UserPort], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Inputs of the right types and of these sizes, by the names of the symbols.

    Floats are normal; integers and bools are 0 and 1, which are indices into almost anything.
    Powers of two (``f8e8m0``) have no sign. A sequence has two arrays, whose dimensions are 2 where
    the model does not say what they are.
    """
    from planish.runtime.interface import evaluator

    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}

    def one(shape: tuple[int, ...], dtype: DType) -> Array:
        if dtype.is_discrete:
            values: Array = rng.integers(0, 2, shape)
        else:
            values = rng.standard_normal(shape, dtype=np.float32)
        if dtype is F8E8M0:
            values = abs(values)
        return values.astype(dtype.numpy)

    for port in ports:
        if isinstance(port, Packing):
            extents = tuple(2 if d is None else d for d in (port.shape or ()))
            items = [one(extents, port.dtype) for _ in range(2)]
            arrays[port.name] = items[0] if port.kind == "optional" else items
        elif not port.default:
            shape = evaluator(sizes, port.shape)(*sizes.values())
            arrays[port.name] = one(shape, port.dtype)
    return arrays


def fitting_sizes(
    interface: Interface, dims: Mapping[str, int], defaults: Mapping[str, Array]
) -> dict[str, int]:
    """A size for each symbol: that of ``dims``, of a default, or the smallest that fit.

    Where nothing fits that is found, the sizes are 1, and a call says what it lacks.
    """
    from planish.runtime.interface import evaluator

    symbols = interface.symbols
    known = {
        str(size): extent
        for port in interface.inputs
        if port.default
        for size, extent in zip(port.shape, defaults[port.name].shape, strict=True)
    }
    known = {name: size for name, size in {**known, **dims}.items() if name in symbols}
    free = [name for name in symbols if name not in known]
    extents = [d for port in (*interface.inputs, *interface.outputs) for d in port.shape]
    conditions = evaluator(symbols, interface.constraints)
    numbers = evaluator(symbols, extents)

    def fits(sizes: Mapping[str, int]) -> bool:
        values = [sizes[name] for name in symbols]
        return all(conditions(*values)) and min(numbers(*values), default=0) >= 0

    for tried in _candidates(free):
        if fits(known | tried):
            return known | _smallest(tried, lambda sizes: fits(known | sizes))
    return known | dict.fromkeys(free, 1)


def _candidates(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Sizes to try, the small ones first: all equal, then one after the other apart."""
    for size in (*range(1, 65), *(k << p for p in range(5, 10) for k in (3, 4))):
        yield dict.fromkeys(names, size)
    steps = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64)
    for values in islice(product(steps, repeat=len(names)), _MOST_TRIED):
        yield dict(zip(names, values, strict=True))


def _smallest(sizes: Mapping[str, int], fits: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Sizes that fit, each made as small as it can be beside the others."""
    out = dict(sizes)
    for name, most in sizes.items():
        out[name] = next((k for k in range(1, most) if fits({**out, name: k})), most)
    return out
