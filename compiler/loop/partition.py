"""Split what is whole from what is cut off, so that inner loops test nothing.

A loop that was split by a factor that does not divide it leaves a condition on its blocks, ``c * x + u < n`` with
an outer variable ``x`` and unrolled or vector variables in ``u``. It holds for all of ``u`` as long as x < T,
and T is the only x for which it holds for some. A serial loop over x is cut at T: the loop without the condition, and what is left
with x = T. Where x is not a loop's own variable (fused or parallel loops), the body is made twice behind a
test of ``x < T``. In what is cut off, the condition folds to constants when n is known; when it is not, the tile
is made once for each height it can have, so that register tiles keep constant shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, Ranges, bounds
from planish.compiler.expr.linear import Linear, linear
from planish.compiler.expr.nodes import FALSE, TRUE, And, Const, Expr, Le, Lt, Var, free_vars
from planish.compiler.expr.simplify import simplify

from .ir import Block, Function, If, Loop, Stmt, blocks, children, constant, map_blocks, seq, with_children

MAX_HEIGHTS: Final = 16  # of a cut-off tile of unknown height that are each made apart


@dataclass(frozen=True)
class Guard:
    """``coefficient * atom + rest + inner <= limit``, where inner runs through 0 .. span."""

    atom: Expr
    coefficient: int
    rest: Linear | None
    span: int
    room: Expr  # limit - rest: what coefficient * atom + inner may be at most
    registers: bool  # an unrolled variable is in inner

    @property
    def whole(self) -> Expr:
        """The T of the module's text."""
        return (self.room - self.span) // self.coefficient + 1


def partition(func: Function) -> Function:
    """The function with the conditions of its blocks out of the inner loops."""
    symbols: dict[Var, Interval] = {s: Interval(1, None) for s in func.symbols}
    return func.with_(body=_visit(func.body, symbols, frozenset(func.symbols)))


def _visit(s: Stmt, ranges: dict[Var, Interval], known: frozenset[Var]) -> Stmt:
    if isinstance(s, Loop):
        top = bounds(s.extent, ranges).hi
        inner = {**ranges, s.var: Interval(0, None if top is None else top - 1)}
        if s.kind in ("unrolled", "vector"):
            return s
        return _loop(s, inner, known | {s.var})
    new = tuple(_visit(c, ranges, known) for c in children(s))
    return with_children(s, new) if children(s) else s


def _loop(s: Loop, ranges: dict[Var, Interval], known: frozenset[Var]) -> Stmt:
    body = _simplified(s.body, ranges)
    guard = _find(body, s.var, known, ranges)
    if guard is None:
        return s.with_(body=_visit(body, ranges, known))
    whole = simplify(guard.whole, ranges)
    if s.kind == "serial" and guard.atom is s.var:
        main = _settle(body, guard, TRUE, ranges)
        count = simplify(n.minimum(n.maximum(whole, 0), s.extent), ranges)
        first = _loop(s.with_(extent=count, body=main), ranges, known)
        cut = _cut(body, guard, whole, ranges, s.var)
        if cut is None:
            return first
        cut = _visit(cut, ranges, known - {s.var})
        left = n.all_of(n.le(0, whole), n.lt(whole, s.extent))
        left = simplify(left, ranges)
        return seq(first, cut) if left is TRUE else first if left is FALSE else seq(first, If(left, cut))
    main = _settle(body, guard, TRUE, ranges)
    cut = _cut(body, guard, whole, ranges, None)
    test = simplify(n.lt(guard.atom, whole), ranges)
    if cut is None:
        return _loop(s.with_(body=main), ranges, known)
    if test is TRUE or test is FALSE:
        return _loop(s.with_(body=main if test is TRUE else cut), ranges, known)
    return s.with_(body=If(test, _again(main, s, ranges, known), _again(cut, s, ranges, known)))


def _again(body: Stmt, loop: Loop, ranges: dict[Var, Interval], known: frozenset[Var]) -> Stmt:
    out = _loop(loop.with_(body=body, kind="parallel"), ranges, known)
    assert isinstance(out, Loop)
    return out.body


def _find(body: Stmt, var: Var, known: frozenset[Var], ranges: Ranges) -> Guard | None:
    """A condition of a block in ``body`` that this loop can take out."""
    inner = _inner_vars(body)
    for b in blocks(body):
        for c in _conjuncts(b.where):
            if var in free_vars(c) and (g := _guard(c, known, inner, ranges)) is not None:
                return g
    return None


def _inner_vars(body: Stmt) -> dict[Var, str]:
    """The unrolled and vector variables below, by kind."""
    from .ir import walk

    return {x.var: x.kind for x in walk(body) if isinstance(x, Loop) and x.kind in ("unrolled", "vector")}


def _guard(c: Expr, known: frozenset[Var], inner: dict[Var, str], ranges: Ranges) -> Guard | None:
    match c:
        case Lt(x, y):
            form = linear(x - y + 1)
        case Le(x, y):
            form = linear(x - y)
        case _:
            return None
    # form <= 0
    outer: list[tuple[Expr, int]] = []
    span, registers = 0, False
    for atom, k in form.terms.items():
        if isinstance(atom, Var) and atom in inner:
            interval = bounds(atom, ranges)
            if k < 0 or interval.hi is None:
                return None
            span += k * interval.hi
            registers |= inner[atom] == "unrolled"
        elif set(free_vars(atom)) <= known:
            outer.append((atom, k))
        else:
            return None
    loops = [(a, k) for a, k in outer if k > 0 and _moves(a, ranges)]
    if not loops:
        return None
    atom, k = loops[-1] if len(loops) == 1 else min(loops, key=lambda p: p[1])
    if span >= k:
        return None
    room: Expr = Const(-form.constant)
    for a, j in outer:
        if a is not atom:
            room = room - a * j
    return Guard(atom, k, None, span, room, registers)


def _moves(atom: Expr, ranges: Ranges) -> bool:
    """Whether an atom is (an expression of) loop variables rather than of symbols only."""
    return any((r := ranges.get(v)) is not None and r.lo == 0 for v in free_vars(atom))


def _settle(body: Stmt, guard: Guard, value: Expr, ranges: Ranges) -> Stmt:
    """The body with the guard's condition taken as ``value`` wherever it stands."""

    def change(b: Block) -> Block:
        kept = [c for c in _conjuncts(b.where) if not _same(c, guard)]
        where = n.all_of(*kept) if value is TRUE else FALSE
        return b if where is b.where else b.with_(where=where)

    return map_blocks(body, change)


def _same(c: Expr, guard: Guard) -> bool:
    """Whether a condition is the guard's, whatever the names of its inner variables."""
    match c:
        case Lt(x, y):
            form = linear(x - y + 1)
        case Le(x, y):
            form = linear(x - y)
        case _:
            return False
    outer = linear(guard.atom * guard.coefficient - guard.room)
    want = dict(outer.terms)
    have = dict(form.terms)
    if any(have.get(a) != k for a, k in want.items()) or form.constant != outer.constant:
        return False
    return all(isinstance(a, Var) for a in have if a not in want)


def _cut(
    body: Stmt, guard: Guard, whole: Expr, ranges: dict[Var, Interval], var: Var | None
) -> Stmt | None:
    """The body where the atom is ``whole``; None if nothing is left there."""
    height = simplify(guard.room + 1 - whole * guard.coefficient, ranges)  # how many of inner are in

    def at(limit: Expr) -> Stmt:
        def change(b: Block) -> Block:
            conditions = []
            for c in _conjuncts(b.where):
                conditions.append(_inner_condition(c, limit, guard) if _same(c, guard) else c)
            return b.with_(where=n.all_of(*conditions))

        out = map_blocks(body, change)
        return _replace(out, var, whole) if var is not None else out

    known = constant(height)
    if known is not None:
        return None if known <= 0 else at(height)
    if not guard.registers or guard.coefficient > MAX_HEIGHTS:
        return at(height)
    out: Stmt | None = None
    for k in range(1, guard.coefficient):
        out = If(n.eq(height, k), at(Const(k)), out)
    return out


def _inner_condition(c: Expr, limit: Expr, guard: Guard) -> Expr:
    """The guard's condition in terms of its inner variables alone."""
    assert isinstance(c, Lt | Le)
    form = linear(c.lhs - c.rhs)
    outer = dict(linear(guard.atom * guard.coefficient - guard.room).terms)
    inside: Expr = Const(0)
    for a, k in form.terms.items():
        if a not in outer:
            inside = inside + a * k
    return n.lt(inside, limit)


def _replace(s: Stmt, var: Var, value: Expr) -> Stmt:
    values = {var: value}

    def change(x: Stmt) -> Stmt:
        new = with_children(x, tuple(change(c) for c in children(x)))
        match new:
            case Loop():
                return new.with_(extent=n.substitute(new.extent, values))
            case If(c, then, other):
                return If(n.substitute(c, values), then, other)
            case Block():
                return new.with_(
                    indices=tuple(n.substitute(i, values) for i in new.indices),
                    value=n.substitute(new.value, values),
                    where=n.substitute(new.where, values),
                )
            case _:
                return new

    return change(s)


def _simplified(s: Stmt, ranges: dict[Var, Interval]) -> Stmt:
    """Conditions of blocks below simplified under the ranges of all loops down to them."""
    match s:
        case Loop():
            top = bounds(s.extent, ranges).hi
            ranges[s.var] = Interval(0, None if top is None else top - 1)
            body = _simplified(s.body, ranges)
            return s if body is s.body else s.with_(body=body)
        case Block():
            where = simplify(s.where, ranges)
            return s if where is s.where else s.with_(where=where)
        case _:
            return with_children(s, tuple(_simplified(c, ranges) for c in children(s)))


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, And):
        return _conjuncts(e.lhs) + _conjuncts(e.rhs)
    return [] if e is TRUE else [e]
