"""Traces: the moves of a schedule with their arguments, as text and as JSON.

The text is Python that can be pasted, one move a line; the JSON of a step is the list of its move's
name and its arguments. Both give back the same trace.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from planish.compiler.errors import ParseError

Argument: TypeAlias = "int | str | tuple[Argument, ...]"
Json: TypeAlias = "int | str | list[Json]"


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a trace."""

    move: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.move}({', '.join(map(repr, self.arguments))})"


Trace: TypeAlias = tuple[Step, ...]


def show_trace(trace: Trace) -> str:
    """The trace as text, one move a line."""
    return "\n".join(map(str, trace))


def parse_trace(text: str) -> Trace:
    """The trace that ``show_trace`` gave.

    Errors: ParseError for anything but calls with literal arguments.
    """
    try:
        return tuple(map(_step, ast.parse(text).body))
    except ParseError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a trace: {error}", node=text[:200]) from error


def _step(line: ast.stmt) -> Step:
    match line:
        case ast.Expr(ast.Call(ast.Name(name), args, [])):
            return Step(name, tuple(_argument(a) for a in args))
        case _:
            raise ParseError("not a move", node=ast.unparse(line)[:200])


def _argument(tree: ast.expr) -> Argument:
    match tree:
        case ast.Constant(int() | str() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)) if not isinstance(value, bool):
            return -value
        case ast.Tuple(items):
            return tuple(map(_argument, items))
        case _:
            raise ParseError("not an argument of a move", node=ast.unparse(tree)[:200])


def trace_to_json(trace: Trace) -> list[Json]:
    """The trace as lists, numbers and strings."""
    return [[step.move, *map(_to_json, step.arguments)] for step in trace]


def _to_json(a: Argument) -> Json:
    return list(map(_to_json, a)) if isinstance(a, tuple) else a


def trace_from_json(data: object) -> Trace:
    """The trace that ``trace_to_json`` gave.

    Errors: ParseError for anything else.
    """
    if not isinstance(data, list):
        raise ParseError("not a trace", node=repr(data)[:200])
    steps = []
    for item in data:
        match item:
            case [str(name), *arguments]:
                steps.append(Step(name, tuple(map(_from_json, arguments))))
            case _:
                raise ParseError("not a move", node=repr(item)[:200])
    return tuple(steps)


def _from_json(a: object) -> Argument:
    match a:
        case int() | str() if not isinstance(a, bool):
            return a
        case list():
            return tuple(map(_from_json, a))
        case _:
            raise ParseError("not an argument of a move", node=repr(a)[:200])
