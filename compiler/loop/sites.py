"""Where blocks stand and which elements they touch: what dependences and regions come from."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import Linear, linear
from planish.compiler.expr.nodes import Expr, Var, free_vars, loads, substitute
from planish.compiler.remembering import remembered

from .affine import Formula
from .ir import Block, If, Loop, Seq, Stmt, children, constant


@dataclass(frozen=True, slots=True)
class Access:
    """An access of a block, its indices in terms of the loops around.

    ``kind`` is ``read``, ``write``, or ``update`` (both, and the order of several is free).
    """

    buffer: str
    indices: tuple[Expr, ...]
    kind: str

    @property
    def writes(self) -> bool:
        return self.kind != "read"


@dataclass(frozen=True, slots=True)
class Site:
    """A block in its place: the loops around, outermost first, and what holds there.

    ``steps`` orders sites of the same iteration: ``steps[k]`` is the place, in the whole text, of
    the k-th loop around, the last one that of the block.
    """

    block: Block
    loops: tuple[Loop, ...]
    guards: tuple[tuple[Expr, bool], ...]
    steps: tuple[int, ...]

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Those of the block, and what decides whether it runs at all: conditions and extents."""
        around = loads(*(c for c, _ in self.guards), *(x.extent for x in self.loops))
        own = accesses(self.block)
        if not around:
            return own
        deciding = (Access(x.buffer, x.indices, "read") for x in around)
        return tuple(dict.fromkeys((*own, *deciding)))


@remembered(512)
def sites(root: Stmt) -> tuple[Site, ...]:
    """The blocks of a statement in order, with what is around them inside of it."""
    return tuple(_sites(root, (), (), (), [0]))


def _sites(
    s: Stmt,
    loops: tuple[Loop, ...],
    guards: tuple[tuple[Expr, bool], ...],
    steps: tuple[int, ...],
    count: list[int],
) -> Iterator[Site]:
    count[0] += 1
    match s:
        case Block():
            yield Site(s, loops, guards, (*steps, count[0]))
        case Loop(body=body):
            yield from _sites(body, (*loops, s), guards, (*steps, count[0]), count)
        case If(condition, then, other):
            yield from _sites(then, loops, (*guards, (condition, True)), steps, count)
            if other is not None:
                yield from _sites(other, loops, (*guards, (condition, False)), steps, count)
        case Seq():
            for c in children(s):
                yield from _sites(c, loops, guards, steps, count)


@remembered(4096)
def accesses(b: Block) -> tuple[Access, ...]:
    """What a block touches: the element that it stores or updates first, then its loads."""
    values = b.bindings

    def bound(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(i, values) for i in indices)

    kind = "write" if b.combiner is None else "update"
    roots = [b.value, *b.indices] if b.init is None else [b.value, *b.indices, b.init]
    found = [Access(b.buffer, bound(b.indices), kind)]
    found += [Access(x.buffer, bound(x.indices), "read") for x in loads(*roots)]
    found += [Access(x.buffer, x.indices, "read") for x in loads(b.where)]
    return tuple(dict.fromkeys(found))


def domain(f: Formula, s: Site, names: Mapping[Var, str], start: bool = False) -> None:
    """Add the conditions on the loops around under which a block runs, or may store its start."""
    for loop in s.loops:
        f.between(names[loop.var], loop.extent, names)
    for condition, holds in s.guards:
        f.holds(condition, names, holds)
    f.holds(start_where(s.block) if start else s.block.where, names)


@remembered(4096)
def start_where(b: Block) -> Expr:
    """The conditions under which a reduction's starting value is stored.

    Those of ``where`` on loops that only reduce don't matter: what no update reaches is ``init``.
    """
    spatial = {v for i in b.spatial for v in free_vars(i.binding)}
    reducing = {v for i in b.reduce for v in free_vars(i.binding)} - spatial
    kept: list[Expr] = []
    todo = [b.where]
    while todo:
        match todo.pop():
            case n.And(x, y):
                todo += [y, x]
            case e if not touches(e, reducing, loaded=False):
                kept.append(e)
            case _:
                pass
    return n.all_of(*kept)


# --------------------------------------------------------------------------------- linear forms


def terms(e: Expr, loops: Container[Expr]) -> tuple[dict[Var, int], Linear]:
    """The multiples of loop variables in a sum, and what is left."""
    form = linear(e) if e.dtype is I64 else Linear({e: 1})
    mine = {v: c for v, c in form.terms.items() if isinstance(v, Var) and v in loops}
    rest = {x: c for x, c in form.terms.items() if x not in mine}
    return mine, Linear(rest, form.constant)


def extremes(of: Mapping[Var, int], loops: Mapping[Var, Loop]) -> tuple[int, int] | None:
    """The least and the greatest sum of multiples of loop variables, if extents are constant."""
    lo = hi = 0
    for v, c in of.items():
        extent = constant(loops[v].extent)
        if extent is None:
            return None
        lo, hi = lo + min(0, c * (extent - 1)), hi + max(0, c * (extent - 1))
    return lo, hi


def joined(indices: Sequence[Expr]) -> dict[Hashable, Expr]:
    """The indices, and numbers that they determine: x wherever x // c and x % c are among them.

    Keys say how each comes about: under one key, equal indices give equal numbers.
    """
    out: dict[Hashable, Expr] = dict(enumerate(indices))
    todo = list(out.items())
    while todo:
        key, e = todo.pop()
        for left, q, right, r in [
            pair for other, f in out.items() for pair in ((key, e, other, f), (other, f, key, e))
        ]:
            if isinstance(r, n.FloorMod) and isinstance(q, n.FloorDiv) and complete(q, r):
                found = ("join", left, right, q.rhs, r.rhs), r.lhs
                if found[0] not in out:
                    out[found[0]] = found[1]
                    todo.append(found)
    return out


def complete(q: n.FloorDiv, r: n.FloorMod) -> bool:
    """Whether they are ``x // c`` and ``x % c``."""
    if q.lhs is r.lhs:
        return _equal(q.rhs, r.rhs)
    if isinstance(r.lhs, n.FloorDiv):  # y // (d * c) is y // d // c
        return q.lhs is r.lhs.lhs and _equal(q.rhs, n.mul(r.lhs.rhs, r.rhs))
    return False


def _equal(a: Expr, b: Expr) -> bool:
    return a is b or (a.dtype is I64 and linear(a).same(linear(b)))


def touches(e: Expr, names: Container[Expr], loaded: bool = True) -> bool:
    """Whether an expression depends on any of the variables, or on a buffer if those count."""
    return any(v in names for v in free_vars(e)) or (loaded and bool(loads(e)))
