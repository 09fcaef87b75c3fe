"""Split what is whole from what is cut off, so that inner loops test nothing.

A loop that was split by a factor that does not divide it leaves a condition on its blocks, ``c *
x + u < n`` with a variable ``x`` of the loops around and unrolled or vector variables in ``u``,
which is in 0 .. c - 1. There is a T so that for x < T it holds for all of ``u``, for x = T for
some that are small enough (or none), and beyond for none. A serial loop over x is cut at T: the
loop without the condition, and what is left with x = T. Where x is no serial loop's own variable
(fused or parallel loops), the body is made twice behind a test of ``x < T``. In what is cut off,
the condition folds to constants when n is known. When it is not, sums in register tiles are made
once for each height that the tile can have, so that the tiles keep constant shapes, with their
steps rolled up (``roll``); what comes behind the sums is made once, a test around each row. A cut
through the steps of a sum themselves leaves an ordinary loop over those that are left.

Blocks without the condition run everywhere all the same. Runs on bound blocks that do not start a
reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Final

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import bounds
from planish.compiler.expr.linear import Linear, linear
from planish.compiler.expr.nodes import FALSE, TRUE, Const, Expr, Le, Lt, Var, conjuncts, free_vars
from planish.compiler.expr.simplify import prove, simplify

from .hints import without_stale
from .ir import (
    Block,
    Function,
    If,
    Loop,
    Seq,
    Stmt,
    blocks,
    children,
    constant,
    map_blocks,
    map_expressions,
    map_statements,
    seq,
    walk,
    with_children,
)  # fmt: skip
from .ir import nests as all_nests
from .known import Known, anywhere, entered
from .roll import roll

MAX_HEIGHTS: Final = 16  # of a cut-off tile of unknown height that are each made apart
REPEATED: Final = ("unrolled", "vector")


def partition(func: Function) -> Function:
    """The function with the conditions of its blocks out of the inner loops."""
    if all(b.where is TRUE for _, b in all_nests(func.body)):
        return func
    parts = _Parts(frozenset(b.name for b in func.temps if b.scope == "register"))
    body = map_statements(parts.visit(func.body, anywhere(func)), _unless_empty) or Seq(())
    if body == func.body:
        return func
    return without_stale(func.with_(body=body))  # parts of a loop share what each had for itself


def _unless_empty(s: Stmt) -> Stmt | None:
    """The statement, but for a loop without iterations."""
    extent = constant(s.extent) if isinstance(s, Loop) else None
    return s if extent is None or extent > 0 else None


@dataclass(frozen=True)
class _Parts:
    """Makes the parts of loops. ``registers`` are the buffers that are kept in registers."""

    registers: frozenset[str]

    def visit(self, s: Stmt, known: Known) -> Stmt:
        match s:
            case Loop(kind=kind) if kind in REPEATED:
                return s
            case Loop():
                return self.loop(s, known)
            case _:
                return with_children(s, tuple(self.visit(c, known) for c in children(s)))

    def loop(self, s: Loop, known: Known) -> Stmt:
        inside = entered(known, (s,))
        body = _simplified(s.body, inside)
        guard = _find(body, s.var, inside)
        if guard is None:
            return s.with_(body=self.visit(body, inside))
        whole = simplify(guard.whole, inside)
        ends = guard.everywhere or prove(n.le(s.extent, whole + 1), inside)
        moves = guard.atom is not s.var or bool(n.loads(s.extent))
        if s.kind != "serial" or moves or not ends:
            return s.with_(body=self.branch(body, s, inside))
        count = simplify(n.minimum(n.maximum(whole, 0), s.extent), known)
        first = self.loop(s.with_(extent=count, body=_settle(body, guard, TRUE)), known)
        cut = self.cut(body, guard, whole, inside)
        if cut is None:
            return first
        cut = map_expressions(cut, lambda e: n.substitute(e, {s.var: whole}))
        cut = self.visit(cut, known)
        left = simplify(n.all_of(n.le(0, whole), n.lt(whole, s.extent)), known)
        if left is FALSE:
            return first
        return seq(first, cut if left is TRUE else If(left, cut))

    def branch(self, body: Stmt, loop: Loop, inside: Known) -> Stmt:
        """The body of a loop that stays as it is, made anew behind a test for each guard."""
        guard = _find(body, loop.var, inside)
        if guard is None:
            return self.visit(body, inside)
        whole = simplify(guard.whole, inside)
        test = simplify(n.lt(guard.atom, whole), inside)
        main = _settle(body, guard, TRUE)
        cut = self.cut(body, guard, whole, inside)
        last = guard.atom if guard.atom is not loop.var else loop.extent - 1
        if prove(n.le(last, whole), inside):  # there is nothing beyond
            other = cut
        else:
            beyond = None if guard.everywhere else _settle(body, guard, FALSE)
            other = If(n.eq(guard.atom, whole), cut, beyond) if cut is not None else beyond
        if test is TRUE or other is None:
            out = self.branch(main, loop, inside)
            return out if test is TRUE else If(test, out)
        if test is FALSE:
            return self.branch(other, loop, inside)
        return If(test, self.branch(main, loop, inside), self.branch(other, loop, inside))

    def cut(self, body: Stmt, guard: Guard, whole: Expr, known: Known) -> Stmt | None:
        """The body where the atom is ``whole``; None if nothing is left there."""
        height = simplify(guard.room + 1 - whole * guard.coefficient, known)  # how many are in
        count = constant(height)
        if count is not None:
            return None if count <= 0 and guard.everywhere else _limited(body, guard, height)
        if not guard.registers or guard.heights > MAX_HEIGHTS:
            return _limited(body, guard, height)
        body = roll(body, self.registers)
        if _ordinary(body, guard):
            return body
        steps = simplify((height + (guard.step - 1)) // guard.step, known)
        tests = {k: simplify(n.eq(steps, k), known) for k in range(1, guard.heights)}
        heights = [k for k, test in tests.items() if test is not FALSE]
        sums, rest = _behind_sums(body)
        tested = None
        if rest is not None and guard.everywhere and heights:
            tested = _tested(rest, guard, steps, heights[-1])
        if tested is None:
            sums = body
        out = None if guard.everywhere else _settle(sums, guard, FALSE)
        for k in heights:
            out = If(tests[k], _limited(sums, guard, Const(k * guard.step)), out)
        return out if out is None or tested is None else seq(out, tested)


def _simplified(s: Stmt, known: Known) -> Stmt:
    """The statement with its blocks' conditions simplified."""
    match s:
        case Loop():
            body = _simplified(s.body, entered(known, (s,)))
            return s if body is s.body else s.with_(body=body)
        case Block(init=None):
            where = simplify(s.where, known)
            return s if where is s.where else s.with_(where=where)
        case _:
            return with_children(s, tuple(_simplified(c, known) for c in children(s)))


# ---------------------------------------------------------------------------------------- guards


@dataclass(frozen=True)
class Guard:
    """``coefficient * atom + inner <= room``, where inner runs through 0, step, 2 * step ... span.

    The step divides the coefficient. It is not 1 where a size is a quotient: x * 6 + u < n // 8
    has become x * 48 + u * 8 + 7 < n. ``inner``: of each condition that is this one, what it has
    for it. ``registers``: an unrolled variable is among them. ``everywhere``: all blocks have the
    condition.
    """

    atom: Expr
    coefficient: int
    room: Expr
    inner: Mapping[Expr, Expr] = field(default_factory=dict)
    step: int = 1
    span: int = 0
    registers: bool = False
    everywhere: bool = True

    @property
    def heights(self) -> int:
        """How many values inner has in a whole tile."""
        return self.coefficient // self.step

    @property
    def whole(self) -> Expr:
        """The T of the module's text."""
        return (self.room - self.span) // self.coefficient + 1

    def rest(self, c: Expr) -> Linear | None:
        """What a condition has besides this guard; None if it is another one altogether."""
        form = _form(c)
        if form is None:
            return None
        rest = form - linear(self.atom * self.coefficient - self.room)
        return None if rest.constant else rest


def _form(c: Expr) -> Linear | None:
    """The sum that the condition says is at most 0."""
    match c:
        case Lt(x, y) if x.dtype is I64:
            return linear(x - y + 1)
        case Le(x, y) if x.dtype is I64:
            return linear(x - y)
        case _:
            return None


def _nests(body: Stmt, known: Known) -> Iterator[tuple[Block, dict[Var, Loop], Known]]:
    """The blocks, with the loops around them that are repeated, and what is known there."""
    for loops, b in all_nests(body):
        yield b, {x.var: x for x in loops if x.kind in REPEATED}, entered(known, loops)


def _find(body: Stmt, var: Var, known: Known) -> Guard | None:
    """A condition of a block in the body of a loop that this loop can take out."""
    for b, repeated, _ in _nests(body, known):
        for c in conjuncts(b.where):
            if var not in free_vars(c):
                continue
            guard = _guard(c, var, repeated, known)
            guard = None if guard is None else _common(guard, body, known)
            if guard is not None and c in guard.inner:  # else settling it would change nothing
                return guard
    return None


def _guard(c: Expr, var: Var, repeated: dict[Var, Loop], known: Known) -> Guard | None:
    """The condition as a guard, its inner part left open."""
    form = _form(c)
    if form is None:
        return None
    outer = {a: k for a, k in form.terms.items() if a not in repeated}
    if any(v not in known or n.loads(a) for a in outer for v in free_vars(a)):
        return None
    moving = [a for a, k in outer.items() if k > 0 and not known.symbols.issuperset(free_vars(a))]
    if not moving:
        return None
    atom = min(moving, key=lambda a: outer[a])
    room: Expr = Const(-form.constant)
    for a, k in outer.items():
        if a is not atom:
            room = room - a * k
    if var in free_vars(room) or var not in free_vars(atom):
        return None
    return Guard(atom, outer[atom], room)


def _common(guard: Guard, body: Stmt, known: Known) -> Guard | None:
    """The guard for all blocks that have its condition, whatever their inner variables are."""
    inner: dict[Expr, Expr] = {}
    others: set[Expr] = set()
    step, span, registers, everywhere = guard.coefficient, 0, False, True
    for b, repeated, inside in _nests(body, known):
        found = 0
        for c in conjuncts(b.where):
            form = guard.rest(c)
            if form is None or not all(a in repeated and k > 0 for a, k in form.terms.items()):
                others.add(c)
                continue
            found += 1
            inner[c] = form.expr()
            registers |= any(x.kind == "unrolled" and v in form.terms for v, x in repeated.items())
            step = gcd(step, *form.terms.values())
            span = max(span, bounds(inner[c], inside).hi or 0)
        everywhere &= found > 0
    if span >= guard.coefficient or not others.isdisjoint(inner):
        return None
    return replace(
        guard, inner=inner, step=step, span=span, registers=registers, everywhere=everywhere
    )


def _settle(body: Stmt, guard: Guard, value: Expr) -> Stmt:
    """The body with the guard's condition taken as ``value`` wherever it stands."""

    def change(b: Block) -> Block:
        parts = conjuncts(b.where)
        where = n.all_of(*(value if c in guard.inner else c for c in parts))
        return b if where is b.where else b.with_(where=where)

    return map_blocks(body, change)


def _limited(body: Stmt, guard: Guard, limit: Expr) -> Stmt:
    """The body with the guard's inner part bounded by ``limit``."""

    def change(b: Block) -> Block:
        parts = [(c, guard.inner.get(c)) for c in conjuncts(b.where)]
        where = n.all_of(*(c if x is None else n.lt(x, limit) for c, x in parts))
        return b if where is b.where else b.with_(where=where)

    return map_blocks(body, change)


def _behind_sums(body: Stmt) -> tuple[Stmt, Stmt | None]:
    """The body up to its last reduction, and what comes behind."""
    parts = body.body if isinstance(body, Seq) else (body,)
    ends = [k + 1 for k, s in enumerate(parts) if any(b.combiner for b in blocks(s))]
    if not ends or ends[-1] == len(parts):
        return body, None
    return seq(*parts[: ends[-1]]), seq(*parts[ends[-1] :])


def _tested(s: Stmt, guard: Guard, steps: Expr, most: int) -> Stmt | None:
    """The body of a cut tile with each of its unrolled steps behind a test; None if it has others.

    ``steps`` of them are in the tile, at most ``most``: others never run, and read registers that
    no case has set.
    """
    match s:
        case Loop(kind="unrolled") if all(
            form is s.var * guard.step
            for b in blocks(s)
            for c in conjuncts(b.where)
            if (form := guard.inner.get(c)) is not None
        ):
            if constant(s.extent) != guard.heights:
                return None
            body = If(n.lt(s.var, steps), _settle(s.body, guard, TRUE))
            return s.with_(extent=Const(most), body=body)
        case Block():
            return None
        case _:
            parts = [_tested(c, guard, steps, most) for c in children(s)]
            if any(p is None for p in parts):
                return None
            return with_children(s, tuple(p for p in parts if p is not None))


def _ordinary(body: Stmt, guard: Guard) -> bool:
    """Whether no loop that is repeated decides on the guard's condition."""
    inner = {v for e in guard.inner.values() for v in free_vars(e)}
    return all(
        x.var not in inner or x.kind not in REPEATED for x in walk(body) if isinstance(x, Loop)
    )
