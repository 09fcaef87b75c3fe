"""A schedule: a function and the trace of moves that made it what it is.

A move is a pure function from a schedule to a schedule that checks its own legality. The trace holds each move's
name and arguments, its decisions included; it is all that is stored, its text is Python that can be pasted, and
replaying it on the function it began with gives the same schedule.

Loops are named ``block.variable`` ("C.i_0"): the loop over ``i_0`` around block C.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias

from planish.compiler.errors import ParseError, PlanishError, ScheduleError
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.nodes import Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Loop, Stmt

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a trace."""

    move: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.move}({', '.join(map(repr, self.arguments))})"


Trace: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class Schedule:
    """A function in its present state, and how it came there."""

    func: Function
    trace: Trace = ()

    def loops(self, block: str) -> tuple[Loop, ...]:
        """The loops around a block, outermost first."""
        return self.nest(block)[0]

    def block(self, name: str) -> Block:
        return self.nest(name)[1]

    def nest(self, block: str) -> tuple[tuple[Loop, ...], Block]:
        """A block with the loops around it.

        Errors: ScheduleError if there is none of that name.
        """
        for loops, b in ir.nests(self.func.body):
            if b.name == block:
                return loops, b
        names = ", ".join(b.name for b in ir.blocks(self.func.body))
        raise ScheduleError(f"there is no block {block}", hint=f"there are {names}")

    def loop(self, path: str) -> Loop:
        """The loop of a path "block.variable"."""
        block, _, name = path.partition(".")
        for loop in self.loops(block):
            if loop.var.name == name:
                return loop
        have = ", ".join(loop.var.name for loop in self.loops(block))
        raise ScheduleError(f"there is no loop {name} around block {block}", hint=f"there are {have}")

    def with_body(self, body: Stmt) -> Schedule:
        return Schedule(self.func.with_(body=body), self.trace)

    def text(self) -> str:
        """The trace, one move a line."""
        return "\n".join(map(str, self.trace))


MOVES: Final[dict[str, Callable[..., Schedule]]] = {}


def move(
    apply: Callable[Concatenate[Schedule, P], Schedule],
) -> Callable[Concatenate[Schedule, P], Schedule]:
    """Make a move of a function: record it in the trace, name it in its errors."""
    name = apply.__name__

    @functools.wraps(apply)
    def wrapped(s: Schedule, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        if kwargs:
            raise ScheduleError("moves take their arguments by position", op=name)
        try:
            out = apply(s, *args)
        except PlanishError as error:
            if error.op is None:
                raise type(error)(
                    error.message, op=name, node=error.node, span=error.span, hint=error.hint
                ) from error
            raise
        return Schedule(out.func, (*s.trace, Step(name, args)))

    MOVES[name] = wrapped
    return wrapped


def replay(func: Function, trace: Trace) -> Schedule:
    """The schedule that a trace makes of a function.

    Errors: ScheduleError for a move that does not exist or is not legal.
    """
    s = Schedule(func)
    for step in trace:
        if step.move not in MOVES:
            raise ScheduleError(f"there is no move {step.move}", op="replay")
        s = MOVES[step.move](s, *step.arguments)
    return s


def parse_trace(text: str) -> Trace:
    """The trace that ``Schedule.text`` gave.

    Errors: ParseError for anything but calls with literal arguments.
    """
    steps = []
    try:
        for line in ast.parse(text).body:
            if not isinstance(line, ast.Expr):
                raise ParseError("not a trace", node=ast.unparse(line))
            call = line.value
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise ParseError("not a trace", node=ast.unparse(line))
            steps.append(Step(call.func.id, tuple(ast.literal_eval(a) for a in call.args)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a trace: {error}", node=text[:200]) from error
    return tuple(steps)


# --------------------------------------------------------------------------------- for moves


def replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt:
    """The tree with one statement (by identity) replaced, or removed together with what it leaves empty."""
    out = _replace(root, old, new)
    return ir.Seq(()) if out is None else out


def _replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    if root is old:
        return new
    kids = ir.children(root)
    if not kids:
        return root
    out = [c for c in (_replace(c, old, new) for c in kids) if c is not None]
    if not out:
        return None
    if isinstance(root, ir.Seq):
        same = len(out) == len(kids) and all(a is b for a, b in zip(out, kids, strict=True))
        return root if same else ir.seq(*out)
    return ir.with_children(root, tuple(out))


def ranges(func: Function, loops: tuple[Loop, ...]) -> dict[Var, Interval]:
    """What is known of symbols (at least 1) and of loops' variables."""
    out = {s: Interval(1, None) for s in func.symbols}
    for loop in loops:
        top = bounds(loop.extent, out).hi
        out[loop.var] = Interval(0, None if top is None else max(0, top - 1))
    return out


def iterator_ranges(func: Function, block: Block) -> dict[Var, Interval]:
    """What is known of symbols (at least 1) and of a block's iterators."""
    out = {s: Interval(1, None) for s in func.symbols}
    for i in block.iters:
        top = bounds(i.extent, out).hi
        out[i.var] = Interval(0, None if top is None else max(0, top - 1))
    return out


def show_loop(loop: Stmt) -> str:
    """A statement's text for an error."""
    from planish.compiler.loop.text import show_statement

    lines = show_statement(loop).splitlines()
    return "\n".join(lines[:12] + (["..."] if len(lines) > 12 else []))
