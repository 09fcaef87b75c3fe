"""What a command is given as a model: a file of either kind, or a pipe."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from planish.compiler.errors import ParseError
from planish.compiler.files import HEAD_BYTES, is_module, is_pipe, read_file, why
from planish.compiler.given import as_path


class ModelFile:
    """A model or module file that a command was given; a pipe is read once."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    @cached_property
    def path(self) -> Path:
        """Where it is.

        Errors: ParseError for what is no path.
        """
        return as_path(self.text, "planish")

    @cached_property
    def source(self) -> Path | bytes:
        """Its path, or what the pipe gave.

        Errors: ParseError if it cannot be read.
        """
        try:
            return read_file(self.path) if is_pipe(self.path) else self.path
        except OSError as error:
            raise ParseError(f"{self} cannot be read: {why(error)}") from error

    @cached_property
    def is_onnx(self) -> bool:
        """Whether it is not a module file.

        Errors: ParseError if it cannot be read.
        """
        if isinstance(self.source, bytes):
            return not is_module(self.source)
        try:
            with self.source.open("rb") as file:
                return not is_module(file.read(HEAD_BYTES))
        except OSError as error:
            raise ParseError(f"{self} cannot be read: {why(error)}") from error
