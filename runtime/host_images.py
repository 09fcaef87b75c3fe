"""The functions on pictures that compiled code calls; see ``planish.compiler.ops.images``."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from planish.compiler.errors import RuntimeFault, TypeCheckError

from .host import Made, host_function
from .interface import Array


def _pillow() -> Any:
    """The package that reads pictures.

    Errors: TypeCheckError if it is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise TypeCheckError(
            "pictures are read by the package pillow", hint="pip install pillow"
        ) from error
    return Image


def _opened(library: Any, file: Array) -> Any:
    try:
        with warnings.catch_warnings():  # of large pictures
            warnings.simplefilter("ignore")
            return library.open(io.BytesIO(file.tobytes()))
    except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
        raise RuntimeFault(f"the picture cannot be read: {_said(error)}") from error


def _said(error: Exception) -> str:
    # Pillow names the object in memory, which tells nothing.
    return "its format is not known" if "cannot identify" in str(error) else str(error)


@host_function("image_size")
def measuring() -> Made:
    """Rows and columns."""
    library = _pillow()

    def run(file: Array, _: tuple[int, ...]) -> tuple[Array, ...]:
        with _opened(library, file) as picture:
            return (np.array([picture.height, picture.width], np.int64),)

    return run


@host_function("image_decode")
def decoding(format: str) -> Made:
    """The pixels."""
    library = _pillow()

    def run(file: Array, _: tuple[int, ...]) -> tuple[Array, ...]:
        try:
            with _opened(library, file) as picture:
                whole = picture.convert("L" if format == "Grayscale" else "RGB")
                pixels = np.array(whole)
        except RuntimeFault:
            raise
        except (OSError, ValueError, SyntaxError, EOFError) as error:  # cut off, or damaged
            raise RuntimeFault(f"the picture cannot be read: {_said(error)}") from error
        if format == "Grayscale":
            return (pixels[:, :, None],)
        return (pixels[:, :, ::-1] if format == "BGR" else pixels,)

    return run


__all__ = ["decoding", "measuring"]
