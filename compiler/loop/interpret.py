"""Runs loop functions in Python, and trusts nothing: the oracle of everything that transforms them.

An access outside its buffer, an iterator outside its extent, a read of an element that was never
written and a result that is left unwritten are errors that name the block. The elements of a
temporary buffer are unwritten at the start of each iteration of the innermost loop around all its
blocks.

The first update of an element, the one that starts from ``init``, is that in which all reduce
iterators are zero. Loops of every kind are serial. A nest around a single block is evaluated by
numpy over the whole index grid if it is large enough; updates happen one after the other, in the
order of the loops, all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import BOOL, from_numpy
from planish.compiler.errors import InternalError, TypeCheckError
from planish.compiler.expr.evaluate import evaluate, evaluate_array
from planish.compiler.expr.nodes import (
    TRUE,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    const,
    free_vars,
    loads,
    walk,
)
from planish.compiler.remembering import remembered

from .decompose import decompose
from .ir import Block, Function, If, Loop, Seq, Stmt, blocks
from .sites import start_where
from .text import show_head, show_statement

Array: TypeAlias = np.ndarray[Any, Any]

# Nests of fewer points are run point by point, of more in parts.
FEWEST: Final = 8
MOST: Final = 1 << 20

_COMBINE: Final[dict[str, np.ufunc]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_MASK: Final = Var("where", BOOL)


def interpret(
    func: Function,
    inputs: Sequence[Array],
    symbols: Mapping[str, int] | None = None,
    *,
    vectorize: bool = True,
    run: type[Run] | None = None,
) -> tuple[Array, ...]:
    """The results of a function for its inputs.

    Symbols that are extents of inputs need not be given. Without ``vectorize``, everything is done
    point by point; ``run`` is what does it.

    Errors: InternalError naming the block that does what it may not; TypeCheckError for inputs that
    are not what the function takes.
    """
    values = sizes(func, inputs, symbols or {})
    every = {i.extent for b in blocks(func.body) for i in b.reduce if b.init is not None}
    if any(evaluate(e, values) == 0 for e in every):
        func = decompose(func)  # no iteration would store the starting value
    call = (run or Run)(func, inputs, values, vectorize)
    with np.errstate(all="ignore"):
        call.statement(func.body, dict(call.symbols))
    for b in func.results:
        if not call.written[b.name].all():
            place = np.argwhere(~call.written[b.name])[0]
            raise InternalError(f"{_element(b.name, place)} is not written", op=func.name)
    return tuple(call.buffers[b.name] for b in func.results)


def sizes(func: Function, inputs: Sequence[Array], symbols: Mapping[str, int]) -> dict[str, int]:
    """The values of a function's symbols, by name, from its inputs' shapes and those given.

    Errors: TypeCheckError if inputs don't fit the function.
    """
    if len(inputs) != len(func.inputs):
        raise TypeCheckError(f"{len(func.inputs)} inputs, not {len(inputs)}", op=func.name)
    found = dict(symbols)
    for b, array in zip(func.inputs, inputs, strict=True):
        if array.ndim != len(b.shape) or from_numpy(array.dtype) is not b.dtype:
            raise TypeCheckError(
                f"{b.name} is {b.dtype}{list(b.shape)}, not {array.dtype}{list(array.shape)}",
                op=func.name,
            )
        for d, size in zip(b.shape, array.shape, strict=True):
            if isinstance(d, Var):
                found.setdefault(d.name, size)
    missing = [s.name for s in func.symbols if s.name not in found]
    if missing:
        raise TypeCheckError(
            f"no value for {', '.join(missing)}", op=func.name, hint="give it among the symbols"
        )
    for b, array in zip(func.inputs, inputs, strict=True):
        shape = tuple(int(evaluate(d, found)) for d in b.shape)
        if array.shape != shape:
            raise TypeCheckError(
                f"{b.name} has shape {list(array.shape)}, not {list(shape)}", op=func.name
            )
    return found


class Run:
    """The state of one call; what runs otherwise, to watch it, is a class on top."""

    def __init__(
        self, func: Function, inputs: Sequence[Array], symbols: dict[str, int], vectorize: bool
    ) -> None:
        self.symbols = symbols
        self.vectorize = vectorize
        self.buffers: dict[str, Array] = {}
        self.written: dict[str, Array] = {}
        for b, array in zip(func.inputs, inputs, strict=True):
            self.buffers[b.name] = array
        for b in (*func.results, *func.temps):
            shape = tuple(int(evaluate(d, symbols)) for d in b.shape)
            self.buffers[b.name] = np.zeros(shape, b.dtype.numpy)
            self.written[b.name] = np.zeros(shape, np.bool_)
        self.tracked = frozenset(self.written)
        self.flagged = {**self.buffers, **{_flag(b): flags for b, flags in self.written.items()}}
        self.fresh = _fresh(func)

    def statement(self, s: Stmt, env: dict[str, Any]) -> None:
        match s:
            case Block():
                self.block(s, env)
            case Seq(body):
                for c in body:
                    self.statement(c, env)
            case If(condition, then, other):
                if self.value(condition, env, s):
                    self.statement(then, env)
                elif other is not None:
                    self.statement(other, env)
            case Loop():
                self.loop(s, env)

    def loop(self, s: Loop, env: dict[str, Any]) -> None:
        if self.vectorize and (grid := _grid(s)) is not None:
            known = not any(id(x) in self.fresh for x in grid[0])
            if known and self.in_parts(*grid, env):
                return
        for value in range(int(self.value(s.extent, env, s))):
            for name in self.fresh.get(id(s), ()):
                self.written[name][...] = False
            self.statement(s.body, {**env, s.var.name: value})

    def value(self, e: Expr, env: Mapping[str, Any], at: Stmt) -> Any:
        """The value of an expression for one point."""
        try:
            defined = _defined(e, self.tracked)
            if defined is not TRUE and not evaluate(defined, env, self.flagged):
                raise InternalError(self.unwritten(e, env))
            return evaluate(e, env, self.buffers)
        except InternalError as error:
            raise _within(error, at, env) from error

    def unwritten(self, e: Expr, env: Mapping[str, Any]) -> str:
        """Which element an expression reads that was never written."""
        for x in loads(e):
            if x.buffer in self.written:
                place = tuple(int(evaluate(i, env, self.buffers)) for i in x.indices)
                shape = self.written[x.buffer].shape
                inside = all(0 <= i < d for i, d in zip(place, shape, strict=True))
                if inside and not self.written[x.buffer][place]:
                    return f"{_element(x.buffer, place)} is read but was never written"
        return "an element is read that was never written"

    # ------------------------------------------------------------------------- point by point

    def block(self, b: Block, env: dict[str, Any]) -> None:
        runs = bool(self.value(b.where, env, b))
        inside: dict[str, Any] = dict(self.symbols) if b.iters else env
        for i in b.iters:
            inside[i.var.name] = int(self.value(i.binding, env, b))
        starts = (
            b.init is not None
            and all(inside[i.var.name] == 0 for i in b.reduce)
            and bool(self.value(start_where(b), env, b))
        )
        if not runs and not starts:
            return
        for i in b.iters if runs else b.spatial:
            value, extent = inside[i.var.name], self.value(i.extent, self.symbols, b)
            if not 0 <= value < extent:
                raise _within(InternalError(f"{i.var.name} is {value} of {extent}"), b, env)
        place = tuple(int(self.value(i, inside, b)) for i in b.indices)
        target, written = self.buffers[b.buffer], self.written[b.buffer]
        if not all(0 <= i < d for i, d in zip(place, target.shape, strict=True)):
            message = f"{_element(b.buffer, place)} is outside {b.buffer}{list(target.shape)}"
            raise _within(InternalError(message), b, env)
        if starts and b.init is not None:
            self.store(b.buffer, place, self.value(b.init, inside, b))
        if runs:
            value = self.value(b.value, inside, b)
            if b.combiner is not None:
                if not written[place]:
                    message = f"{_element(b.buffer, place)} is updated but was never written"
                    raise _within(InternalError(message), b, env)
                value = _COMBINE[b.combiner](target[place], value)
            self.store(b.buffer, place, value)

    def store(self, buffer: str, place: tuple[int, ...], value: Any) -> None:
        """Store an element."""
        self.buffers[buffer][place] = value
        self.written[buffer][place] = True

    # ---------------------------------------------------------------------------- all at once

    def in_parts(
        self, loops: tuple[Loop, ...], conditions: tuple[Expr, ...], b: Block, env: dict[str, Any]
    ) -> bool:
        """Do a whole nest by ranges of its outermost loop, if its size is right."""
        counts = [max(0, int(self.value(x.extent, env, x))) for x in loops]
        points = int(np.prod(counts, dtype=object))
        if points < FEWEST or points // counts[0] > MOST:
            return points == 0
        outer, step = loops[0], MOST // (points // counts[0])
        for start in range(0, counts[0], step):
            part = range(start, min(counts[0], start + step))
            ranges = (part, *map(range, counts[1:]))
            if not self.all_at_once(loops, ranges, conditions, b, env):
                for value in part:
                    self.statement(outer.body, {**env, outer.var.name: value})
        return True

    def all_at_once(
        self,
        loops: tuple[Loop, ...],
        ranges: Sequence[range],
        conditions: tuple[Expr, ...],
        b: Block,
        env: dict[str, Any],
    ) -> bool:
        """Do a nest for these values of its loops, if what is first in it is clear."""
        env = dict(env)
        counts = [len(values) for values in ranges]
        for k, (loop, values) in enumerate(zip(loops, ranges, strict=True)):
            axis = np.arange(values.start, values.stop)
            env[loop.var.name] = axis.reshape([-1 if k == m else 1 for m in range(len(loops))])
        mask: Array = np.ones(counts, np.bool_)
        for c in conditions:
            mask = mask & self.values(c, env, b, mask)
        runs = mask & self.values(b.where, env, b, mask)
        starts = mask & self.values(start_where(b), env, b, mask) & (b.init is not None)
        inside: dict[str, Any] = dict(self.symbols) if b.iters else dict(env)
        for i in b.iters:
            inside[i.var.name] = evaluate_array(i.binding, env)
        for i in b.reduce:
            starts = starts & (inside[i.var.name] == 0)
        if b.init is not None and not (
            _comes_first(starts, mask, loops, b, env) and self.start_once(b, starts, inside)
        ):
            return False
        for i in b.iters:
            at, extent = inside[i.var.name], int(self.value(i.extent, self.symbols, b))
            wrong = ((at < 0) | (at >= extent)) & (runs if i.kind == "reduce" else runs | starts)
            if wrong.any():
                first = _at(at, wrong)
                raise _within(InternalError(f"{i.var.name} is {first} of {extent}"), b, env, wrong)
        if starts.any() and b.init is not None:
            self.put(b, b.init, starts, None, inside)
        self.put(b, b.value, runs, b.combiner, inside)
        return True

    def start_once(self, b: Block, starts: Array, env: dict[str, Any]) -> bool:
        """Whether no element starts twice: those are computed again, one time after the other."""
        places = [self.values(i, env, b, starts) for i in b.indices]
        count = int(starts.sum())
        if not places:
            return count < 2
        at = np.stack([np.broadcast_to(p, starts.shape)[starts] for p in places])
        return len(np.unique(at, axis=1).T) == count

    def put(
        self, b: Block, value: Expr, mask: Array, combiner: str | None, env: dict[str, Any]
    ) -> None:
        """Store or combine the values where the mask is true, one after the other."""
        if not mask.any():
            return
        rank = self.buffers[b.buffer].shape or (1,)  # a scalar is an array of one
        target, written = self.buffers[b.buffer].reshape(rank), self.written[b.buffer].reshape(rank)
        places = [self.values(i, env, b, mask) for i in b.indices]
        for p, d in zip(places, target.shape, strict=False):
            if (wrong := ((p < 0) | (p >= d)) & mask).any():
                element = _element(b.buffer, [_at(q, wrong) for q in places])
                message = f"{element} is outside {b.buffer}{list(target.shape)}"
                raise _within(InternalError(message), b, env, wrong)
        values = np.broadcast_to(self.values(value, env, b, mask), mask.shape)[mask]
        at = tuple(np.broadcast_to(p, mask.shape)[mask] for p in places)
        at = at or (np.zeros(values.shape, np.int64),)
        if combiner is None:
            target[at] = values
            written[at] = True
            return
        if not written[at].all():
            k = int(np.argmin(written[at]))
            element = _element(b.buffer, [int(p[k]) for p in at[: len(places)]])
            raise _within(InternalError(f"{element} is updated but was never written"), b, env)
        _COMBINE[combiner].at(target, at, values)

    def values(self, e: Expr, env: Mapping[str, Any], at: Block, mask: Array) -> Array:
        """The values of an expression where the mask is true; zero elsewhere, or any."""
        if mask.all():
            guard: Callable[[Expr], Expr] = lambda x: x  # noqa: E731
        else:
            guard = lambda x: Select(_MASK, x, const(0, x.dtype))  # noqa: E731
        env = {**env, _MASK.name: mask}
        try:
            defined = _defined(e, self.tracked)
            if defined is not TRUE:
                known = evaluate_array(guard(defined), env, self.flagged)
                missing = np.broadcast_to(~known, mask.shape) & mask
                if missing.any():
                    point = {k: _at(v, missing) for k, v in env.items()}
                    raise _within(InternalError(self.unwritten(e, point)), at, env, missing)
            return evaluate_array(guard(e), env, self.buffers)
        except InternalError as error:
            raise _within(error, at, env) from error


def _fresh(func: Function) -> dict[int, tuple[str, ...]]:
    """The buffers that are unwritten at the start of each iteration of a loop, by its identity."""
    own = {b.name for b in func.temps}
    total = _uses(func.body, own, {}, Counter())
    found: dict[int, tuple[str, ...]] = {}
    done = {name for name, count in total.items() if count < 2}
    _uses(func.body, own - done, found, total)
    return found


def _uses(
    s: Stmt, names: set[str], found: dict[int, tuple[str, ...]], total: Counter[str]
) -> Counter[str]:
    """How many blocks use each buffer; ``found`` gets the innermost loops around all of them."""
    match s:
        case Block():
            used = {b for e in (s.value, *s.indices, s.where) for b in _loaded(e)}
            used |= {s.buffer} if s.init is None else {s.buffer, *_loaded(s.init)}
            return Counter(used & names)
        case Seq(body):
            return reduce(
                lambda a, b: a + b, (_uses(c, names, found, total) for c in body), Counter()
            )
        case If(condition, then, other):
            uses = _uses(then, names, found, total) + Counter(_loaded(condition) & names)
            return uses if other is None else uses + _uses(other, names, found, total)
        case Loop():
            uses = _uses(s.body, names, found, total)
            mine = [b for b in sorted(uses) if uses[b] == total[b] and b in names]
            if mine:
                names -= set(mine)  # the innermost loop comes first
                found[id(s)] = tuple(mine)
            return uses + Counter(_loaded(s.extent) & names)


def _loaded(e: Expr) -> set[str]:
    return {x.buffer for x in loads(e)}


def _grid(s: Loop) -> tuple[tuple[Loop, ...], tuple[Expr, ...], Block] | None:
    """A rectangular nest around one block that does not read what it writes: loops, conditions."""
    loops: list[Loop] = []
    conditions: list[Expr] = []
    at: Stmt = s
    while not isinstance(at, Block):
        match at:
            case Loop(extent=extent, body=body):
                if any(x.var in free_vars(extent) for x in loops) or loads(extent):
                    return None
                loops.append(at)
                at = body
            case If(condition, then, None):
                conditions.append(condition)
                at = then
            case _:
                return None
    b = at
    read = (b.value, *b.indices, b.where, *conditions, *([] if b.init is None else [b.init]))
    if any(b.buffer in _loaded(e) for e in read):
        return None
    return tuple(loops), tuple(conditions), b


def _comes_first(
    starts: Array, mask: Array, loops: Sequence[Loop], b: Block, env: Mapping[str, Any]
) -> bool:
    """Whether elements only start where all loops of the reduction are at zero, or not at all."""
    used = {v.name for i in b.reduce for v in free_vars(i.binding)}
    zero = [env[x.var.name] == 0 for x in loops if x.var.name in used]
    origin = reduce(np.logical_and, zero, np.asarray(True))
    return not (starts & ~origin & mask).any()


def _flag(buffer: str) -> str:
    """The name under which a buffer's flags are found, beside the buffers themselves."""
    return f"{buffer} written"


@remembered(4096)
def _defined(root: Expr, buffers: frozenset[str]) -> Expr:
    """Whether all elements of ``buffers`` that are read were written, in terms of their flags."""
    done: dict[Expr, Expr] = {}
    for e in walk(root):
        out = all_of(*dict.fromkeys(done[c] for c in e.children))
        match e:
            case Select(c, x, y):
                if done[x] is not TRUE or done[y] is not TRUE:
                    out = all_of(done[c], Select(c, done[x], done[y]))
            case Load(buffer, indices) if buffer in buffers:
                out = all_of(out, Load(_flag(buffer), indices, BOOL))
            case _:
                pass
        done[e] = out
    return done[root]


def _at(values: Any, where: Array) -> int:
    """The value at the first point at which ``where`` is true."""
    return int(np.broadcast_to(values, where.shape)[tuple(np.argwhere(where)[0])])


def _element(buffer: str, place: Sequence[Any]) -> str:
    return f"{buffer}[{', '.join(str(int(i)) for i in place)}]"


def _within(
    error: InternalError, at: Stmt, env: Mapping[str, Any], where: Array | None = None
) -> InternalError:
    """The error with the statement that it happened in, and the values of its variables."""
    if error.op == "interpret":
        return error
    known = {
        k: int(v) if np.ndim(v) == 0 else None if where is None else _at(v, where)
        for k, v in env.items()
        if k != _MASK.name
    }
    point = ", ".join(f"{k}={v}" for k, v in known.items() if v is not None)
    name = f"block {at.name}: " if isinstance(at, Block) else ""
    shown = show_statement(at) if isinstance(at, Block) else show_head(at)
    message = f"{name}{error.message}" + (f" (where {point})" if point else "")
    return InternalError(message, op="interpret", node=shown)
