"""One family of errors, for the user: which node, which shapes, what to do."""

from __future__ import annotations

from typing import Any


class PlanishError(Exception):
    """Base of all errors that planish raises on purpose.

    ``op`` is the operator, pass or move that failed, ``node`` the node or loop as text, ``span``
    the place in the user's program, ``hint`` what to do.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        node: str | None = None,
        span: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.op, self.node, self.span, self.hint = message, op, node, span, hint

    def __str__(self) -> str:
        lines = [f"{self.op}: {self.message}" if self.op else self.message]
        if self.node:
            lines += ["    " + line for line in self.node.splitlines()]
        if self.span:
            lines.append(f"  from {self.span}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"op": self.op, "node": self.node, "span": self.span, "hint": self.hint}
        return _rebuild, (type(self), self.message, state)

    def within(self, node: str) -> PlanishError:
        """The same error, saying the node it happened in (if it did not say one)."""
        return type(self)(
            self.message, op=self.op, node=self.node or node, span=self.span, hint=self.hint
        )


def _rebuild(cls: type[PlanishError], message: str, state: dict[str, str | None]) -> PlanishError:
    return cls(message, **state)


class TypeCheckError(PlanishError, TypeError):
    """Types, shapes or values that do not fit together."""


class ParseError(PlanishError, ValueError):
    """Text or a file that is not what it should be."""


class ImportModelError(PlanishError, ValueError):
    """A model that cannot be imported: what in it is unknown, unread or malformed."""


class ScheduleError(PlanishError, ValueError):
    """A move that is not legal; ``node`` shows the loop in the current program."""


class CodegenError(PlanishError, RuntimeError):
    """A function that a target cannot compile."""


class RuntimeFault(PlanishError, RuntimeError):
    """A call of a compiled module that cannot be carried out."""


class TuningError(PlanishError, RuntimeError):
    """A tuning job or a log that cannot go on."""


class InternalError(PlanishError, RuntimeError):
    """A fault of planish itself: please report it with the program that shows it."""
