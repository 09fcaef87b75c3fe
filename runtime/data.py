"""Outputs whose size only the data tells, and calls that end because of what the data is."""

from __future__ import annotations

import array
from typing import Final, NoReturn

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.errors import PlanishError, RuntimeFault

from .interface import Array, Interface, evaluator
from .memory import free, owning, spread

NOT_YET: Final[Array] = np.empty(0, np.uint8)  # stands for an output that a call allocates


class OpenOutputs:
    """What a call leaves in its slots beside the outputs that it was given."""

    def __init__(self, interface: Interface) -> None:
        self.interface, self.layout = interface, interface.layout
        self.names = (*interface.symbols, *interface.bound)
        ports = enumerate(interface.outputs)
        self.open = [(k, port) for k, port in ports if interface.is_open(port)]
        self._shapes = [evaluator(self.names, port.shape) for _, port in self.open]

    def symbols(self, slots: array.array[int]) -> list[int]:
        """The values that all symbols have, or had last."""
        return [slots[self.layout.symbol(k)] for k in range(len(self.names))]

    def take(self, results: list[Array], slots: array.array[int]) -> None:
        """Put the outputs that the call has allocated into their places.

        Errors: RuntimeFault for one without elements whose other dimensions no array can have.
        """
        symbols = self.symbols(slots)
        shapes = [shape(*symbols) for shape in self._shapes]
        for (_, port), shape in zip(self.open, shapes, strict=True):
            if spread(shape, port.dtype.storage.bytes) > I64.max:
                self._free(slots)
                raise RuntimeFault(
                    f"the output {port} would be {list(shape)}: that is larger than any array",
                    op=self.interface.name,
                )
        for (k, port), shape in zip(self.open, shapes, strict=True):
            word = self.layout.output(k)
            results[k] = owning(slots[word], shape, port.dtype.storage.numpy)
            slots[word] = 0

    def _free(self, slots: array.array[int]) -> None:
        """Free what a call has left."""
        words = [self.layout.heap_word(k) for k in range(self.layout.heap)]
        for word in (*words, *(self.layout.output(k) for k, _ in self.open)):
            free(slots[word])
            slots[word] = 0
        for word in words:
            slots[word + 1] = 0

    def fail(
        self, failure: int, slots: array.array[int], cause: BaseException | None = None
    ) -> NoReturn:
        """Free what a call that ended early has left, and say why it did.

        ``cause`` is what was wrong in a function of the runtime.

        Errors: RuntimeFault; what is no error, as an interruption, is raised as it is.
        """
        self._free(slots)
        found = self.interface.failures[failure]
        if cause is not None:
            if not isinstance(cause, Exception):
                raise cause
            why = f"{found.message}: {cause or type(cause).__name__}"
            if isinstance(cause, PlanishError):
                why = cause.message
            raise RuntimeFault(why, op=self.interface.name, node=found.node or None) from cause
        values = dict(zip(self.names, self.symbols(slots), strict=True))
        told = ", ".join(
            f"{name} = {values[first] - sum(values[s] for s in others)}"
            for name, (first, *others) in found.about
        )
        raise RuntimeFault(
            found.message,
            op=self.interface.name,
            node=found.node or None,
            hint=f"sizes: {told}" if told else None,
        )
