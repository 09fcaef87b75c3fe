"""Inputs from files, inputs made up, and outputs into files: what the program's commands need."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import BF16
from planish.compiler.errors import ParseError, TypeCheckError

if TYPE_CHECKING:
    from planish.runtime.interface import Port

Array = npt.NDArray[Any]


def read_npz(path: str | Path) -> dict[str, Array]:
    """The arrays of an .npz file, by name.

    Errors: ParseError naming what is wrong with the file.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ParseError(f"{path} holds one array without a name", hint="use numpy.savez")
        with archive:
            return {name: archive[name] for name in archive.files}
    except ParseError:
        raise
    except OSError as error:
        raise ParseError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise ParseError(
            f"{path} is no .npz file of numbers", hint="write it with numpy.savez"
        ) from error


def write_npz(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an .npz file; bfloat16 as its bits in uint16, since numpy has no name for it.

    Errors: ParseError if the file cannot be written.
    """
    stored = {n: a.view(np.uint16) if a.dtype == BF16.numpy else a for n, a in arrays.items()}
    try:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **stored)
    except OSError as error:
        raise ParseError(f"{path} cannot be written: {error.strerror or error}") from error


def inputs_from(path: str | Path, ports: Iterable[Port]) -> dict[str, Array]:
    """The inputs in an .npz file; where bfloat16 is wanted, 16-bit integers are its bits."""
    arrays = read_npz(path)
    for port in ports:
        array = arrays.get(port.name)
        if array is not None and port.dtype is BF16 and array.dtype == np.uint16:
            arrays[port.name] = array.view(BF16.numpy)
    return arrays


def made_up(
    ports: Iterable[Port], dims: Mapping[str, int], seed: int = 0
) -> tuple[dict[str, Array], list[str]]:
    """Inputs of the right types, and the names of sizes taken as 1 since ``dims`` lacks them.

    Floats are normal; integers and bools are 0 and 1, which are indices into anything.

    Errors: TypeCheckError for a size that follows from no symbol.
    """
    rng = np.random.default_rng(seed)
    sizes = dict(dims)
    guessed: list[str] = []
    arrays = {}
    for port in ports:
        if port.default:
            continue
        shape = []
        for size in port.shape:
            name = str(size)
            if not isinstance(size, int) and name not in sizes:
                if not name.isidentifier():
                    raise TypeCheckError(
                        f"no inputs can be made up for {port}", hint="give --inputs IN.npz"
                    )
                guessed.append(name)
                sizes[name] = 1
            shape.append(size if isinstance(size, int) else sizes[name])
        if port.dtype.is_float:
            values: Array = rng.standard_normal(shape, dtype=np.float32)
        else:
            values = rng.integers(0, 2, shape)
        arrays[port.name] = values.astype(port.dtype.numpy)
    return arrays, guessed
