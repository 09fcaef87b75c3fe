"""A schedule: a function and the trace of moves that made it what it is.

A move is a pure function from a schedule to a schedule that checks its own legality. The trace
holds each move's name and arguments, its decisions included; it is all that is stored, its text is
Python that can be pasted, and replaying it on the function it began with gives the same schedule.

Loops are named ``block.variable`` ("C.i_0"): the loop over ``i_0`` around block C. Moves that make
loops, blocks or buffers name them after those they come from, so that a trace can name them too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    Any,
    Concatenate,
    Final,
    ParamSpec,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from planish.compiler.errors import InternalError, PlanishError, ScheduleError
from planish.compiler.graph.prepack import Form
from planish.compiler.loop import ir
from planish.compiler.loop.hints import is_marked, stale
from planish.compiler.loop.ir import Block, Function, Loop, Stmt
from planish.compiler.loop.known import Known, anywhere, entered
from planish.compiler.loop.text import show_statement

from .edit import replace
from .trace import Argument, Step, Trace, parse_trace, show_trace

__all__ = [
    "LANGUAGE", "MOVES", "Schedule", "Step", "Trace", "iterator_ranges", "move",
    "parse_trace", "ranges", "replace", "replay", "show_loop",
]  # fmt: skip

P = ParamSpec("P")
# The version of what moves mean: a trace is replayed only by the one that it was written under.
LANGUAGE: Final = 1
SHOWN: Final = 12  # lines of a loop in an error


@dataclass(frozen=True)
class Schedule:
    """A function in its present state, and how it came there.

    ``given`` are the forms that moves gave to parameters, each with the parameter's position: an
    array that is given for one has to be brought into them.
    """

    func: Function
    trace: Trace = ()
    given: tuple[tuple[int, Form], ...] = ()
    # What moves made of it, or the error of one: kept where many schedules begin alike.
    made: dict[Step, Schedule | ScheduleError] | None = field(
        default=None, compare=False, repr=False
    )

    def loops(self, block: str) -> tuple[Loop, ...]:
        """The loops around a block, outermost first."""
        return self.nest(block)[0]

    def block(self, name: str) -> Block:
        """The block of a name."""
        return self.nest(name)[1]

    def nest(self, block: str) -> tuple[tuple[Loop, ...], Block]:
        """A block with the loops around it.

        Errors: ScheduleError if there is none of that name, or more than one.
        """
        found = self._nests.get(block, [])
        if len(found) == 1:
            return found[0]
        names = ", ".join(b.name for b in ir.blocks(self.func.body))
        many = f"there are {len(found)} blocks {block}" if found else f"there is no block {block}"
        raise ScheduleError(many, hint=f"there are {names}")

    @cached_property
    def _nests(self) -> dict[str, list[tuple[tuple[Loop, ...], Block]]]:
        """The blocks of each name, with the loops around them."""
        out: dict[str, list[tuple[tuple[Loop, ...], Block]]] = {}
        for loops, b in ir.nests(self.func.body):
            out.setdefault(b.name, []).append((loops, b))
        return out

    def loop(self, path: str) -> Loop:
        """The loop of a path "block.variable".

        Errors: ScheduleError if there is no such block, or no such loop around it.
        """
        block, _, name = path.partition(".")
        loops = self.loops(block)
        for loop in loops:
            if loop.var.name == name:
                return loop
        have = ", ".join(loop.var.name for loop in loops) or "none"
        raise ScheduleError(
            f"there is no loop {name} around block {block}",
            node=show_loop(loops[0] if loops else self.block(block)),
            hint=f"there are {have}",
        )

    def with_body(self, body: Stmt) -> Schedule:
        """The schedule with another body of the function; the trace stays."""
        return self.with_func(self.func.with_(body=body))

    def with_func(self, func: Function) -> Schedule:
        """The schedule with another function; the trace stays."""
        return Schedule(func, self.trace, self.given)

    def with_form(self, buffer: str, form: Form) -> Schedule:
        """The schedule with another form of a parameter, which has it already."""
        at = [p.name for p in self.func.params].index(buffer)
        return Schedule(self.func, self.trace, (*self.given, (at, form)))

    def forms(self) -> dict[int, tuple[Form, ...]]:
        """The forms that moves gave to parameters, in order, by position."""
        out: dict[int, tuple[Form, ...]] = {}
        for at, form in self.given:
            out[at] = (*out.get(at, ()), form)
        return out

    def text(self) -> str:
        """The trace, one move a line."""
        return show_trace(self.trace)


MOVES: Final[dict[str, Callable[..., Schedule]]] = {}


def move(
    apply: Callable[Concatenate[Schedule, P], Schedule],
) -> Callable[Concatenate[Schedule, P], Schedule]:
    """Make a move of a function: check its arguments, record it, name it in its errors.

    A move after which a loop is not what it is marked as for targets is refused.
    """
    name = apply.__name__
    hints = get_type_hints(apply)
    _, *parameters = inspect.signature(apply).parameters.values()
    kinds = [hints[p.name] for p in parameters]
    required = sum(p.default is p.empty for p in parameters)
    takes = ", ".join(f"{p.name}: {p.annotation}" for p in parameters)

    def done(s: Schedule, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        try:
            return _true(apply(s, *args, **kwargs))
        except InternalError:
            raise
        except PlanishError as error:
            if isinstance(error, ScheduleError) and error.op is not None:
                raise
            raise ScheduleError(
                error.message, op=name, node=error.node, span=error.span, hint=error.hint
            ) from error

    @functools.wraps(apply)
    def wrapped(s: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        if kwargs:
            raise ScheduleError("moves take their arguments by position", op=name)
        fitting = all(_fits(a, kind) for a, kind in zip(args, kinds, strict=False))
        if not (fitting and required <= len(args) <= len(kinds)):
            given = ", ".join(map(repr, args))
            raise ScheduleError(f"it takes ({takes})", op=name, node=f"{name}({given})")
        step = Step(name, cast("tuple[Argument, ...]", args))
        if s.made is None:
            made = done(s, *args, **kwargs)
            return Schedule(made.func, (*s.trace, step), made.given)
        if (found := s.made.get(step)) is None:
            try:
                made = done(s, *args, **kwargs)
                found = Schedule(made.func, (*s.trace, step), made.given, {})
            except ScheduleError as error:
                found = error
            s.made[step] = found
        if isinstance(found, ScheduleError):
            raise found
        return found

    MOVES[name] = wrapped
    return wrapped


def _true(s: Schedule) -> Schedule:
    """The schedule itself, if its loops are what they are marked as."""
    if not is_marked(s.func.body) or (found := stale(s.func)) is None:
        return s
    loop, reason = found
    raise ScheduleError(
        f"{loop.var.name} would no longer be what it is marked as, {loop.hint}: {reason}",
        node=show_loop(loop),
        hint="without the mark this can be done",
    )


def _fits(value: object, kind: Any) -> bool:
    """Whether an argument is of the type that the move's signature says."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(x, get_args(kind)[0]) for x in value)
    return isinstance(value, kind) and not isinstance(value, bool)


def replay(func: Function, trace: Trace) -> Schedule:
    """The schedule that a trace makes of a function.

    Errors: ScheduleError for a move that does not exist or is not legal.
    """
    from planish.schedules import moves  # noqa: F401 (fills MOVES)

    s = Schedule(func)
    for step in trace:
        if step.move not in MOVES:
            have = ", ".join(sorted(MOVES))
            raise ScheduleError(f"there is no move {step.move}", op="replay", hint=f"one of {have}")
        s = MOVES[step.move](s, *step.arguments)
    return s


# --------------------------------------------------------------------------------- for moves


def ranges(func: Function, loops: tuple[Loop, ...]) -> Known:
    """What is known of symbols and of loops' variables inside of the loops."""
    return entered(anywhere(func), loops)


def iterator_ranges(func: Function, block: Block) -> Known:
    """What is known of symbols and of a block's iterators where the block runs."""
    return entered(anywhere(func), block.iters)


def show_loop(loop: Stmt) -> str:
    """A statement's text for an error."""
    lines = show_statement(loop).splitlines()
    return "\n".join(lines[:SHOWN] + (["..."] if len(lines) > SHOWN else []))
