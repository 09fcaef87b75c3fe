"""Which blocks depend on which, and what loops may therefore be done in another order.

An *instance* is a block in one iteration of the loops around it. Two instances conflict if they
touch an element and at least one writes it; they must then keep their order, unless both are
updates of one reduction. Questions about two instances are first asked of plain arithmetic (tiles
of constant size that don't overlap), then of isl. What isl can't say (see ``affine``) is taken to
be anything: an answer errs to "conflict", never to "none".

A buffer of scope ``local`` or ``register`` is a new one in each iteration of the innermost loop
around all its blocks, and so are its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from planish.compiler.expr.nodes import Var, free_vars
from planish.compiler.remembering import remembered

from .affine import Formula
from .apart import apart
from .ir import Block, Function, Iter, Loop, blocks, constant
from .regions import footprint, region
from .relations import Dependence, Violation, dependences, legal_order
from .sites import Access, Site, domain, extremes, joined, sites, terms

__all__ = [
    "Conflict", "Dependence", "Violation", "carried", "dependences", "footprint", "fused",
    "legal_order", "outside", "reduces", "region", "reordered",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of an element whose order matters."""

    source: Block
    sink: Block
    buffer: str
    loop: Var

    def __str__(self) -> str:
        names = (
            f"{self.source.name} touches {self.buffer}"
            if self.source.name == self.sink.name
            else f"{self.source.name} and {self.sink.name} touch {self.buffer}"
        )
        return f"{names} at the same element in different iterations of {self.loop.name}"


def carried(func: Function, loop: Loop) -> Conflict | None:
    """A dependence between different iterations of a loop; None if they are independent.

    Updates of one reduction do not count: see ``reduces``.
    """
    return _carried(func, loop)


@remembered(2048)
def _carried(func: Function, loop: Loop) -> Conflict | None:
    inside, depth = _inside(func, loop)

    def differ(a: list[str], b: list[str]) -> str:
        return f"{a[depth]} != {b[depth]}"

    return _first(func, loop, _pairs(inside, inside), depth, (loop.var,), differ)


def reordered(func: Function, chain: Sequence[Loop], order: Sequence[Var]) -> Conflict | None:
    """A dependence that breaks if loops that stand directly in each other change places.

    ``chain`` is from the outermost on; ``order`` has their variables as they are to be.
    """
    return _reordered(func, tuple(chain), tuple(order))


@remembered(2048)
def _reordered(func: Function, chain: tuple[Loop, ...], order: tuple[Var, ...]) -> Conflict | None:
    inside, depth = _inside(func, chain[0])
    places = [depth + [c.var for c in chain].index(v) for v in order]
    old = range(depth, depth + len(chain))

    def swapped(a: list[str], b: list[str]) -> str:
        now, then = lex([a[k] for k in old], [b[k] for k in old]), [b[k] for k in places]
        return f"{now} and {lex(then, [a[k] for k in places])}"

    both = [p for s, t in _pairs(inside, inside) for p in ((s, t), (t, s))]
    return _first(func, chain[0], dict.fromkeys(both), depth, order, swapped)


def fused(func: Function, first: Loop, second: Loop) -> Conflict | None:
    """A dependence that breaks if two loops in sequence become one over the same variable."""
    sources, depth = _inside(func, first)
    sinks, _ = _inside(func, second)

    def later(a: list[str], b: list[str]) -> str:
        return f"{a[depth]} > {b[depth]}"

    pairs = ((s, t) for s in sources for t in sinks)
    return _first(func, None, pairs, depth, (first.var,), later)


def reduces(loop: Loop) -> Block | None:
    """A block in whose reduction the loop takes part, if any."""
    for b in blocks(loop):
        if any(loop.var in free_vars(i.binding) for i in b.reduce):
            return b
    return None


def outside(site: Site, symbols: Sequence[Var]) -> Var | None:
    """An iterator that leaves its extent in some iteration, for some symbols from 0 on; or None.

    None too if that can't be decided.
    """
    loops = {x.var: x for x in site.loops}
    names = {v: f"a{k}" for k, v in enumerate(loops)}
    for i in site.block.iters:
        if _within(i, loops):
            continue
        for wrong in ("{0} < 0", "{0} >= {1}"):
            f = Formula()
            domain(f, site, names)
            value, extent = f.term(i.binding, names), f.term(i.extent, names)
            if value is None or extent is None or not f.exact:
                continue
            f.clauses += [wrong.format(value, extent)]
            f.clauses += [f"{f.parameters[s]} >= 0" for s in symbols if s in f.parameters]
            if not f.set(names.values()).is_empty():
                return i.var
    return None


def _within(i: Iter, loops: dict[Var, Loop]) -> bool:
    """The easy cases of an iterator that stays in its extent."""
    if isinstance(i.binding, Var) and i.binding in loops:
        return loops[i.binding].extent is i.extent
    mine, rest = terms(i.binding, loops)
    end, span = constant(i.extent), extremes(mine, loops)
    if end is None or span is None or rest.terms:
        return False
    return rest.constant + span[0] >= 0 and rest.constant + span[1] < end


def lex(xs: Sequence[str], ys: Sequence[str]) -> str:
    """xs before ys in lexicographic order."""
    cases = [
        " and ".join([*(f"{x} = {y}" for x, y in zip(xs[:k], ys[:k], strict=True)), f"{a} < {b}"])
        for k, (a, b) in enumerate(zip(xs, ys, strict=True))
    ]
    return f"({' or '.join(cases)})"


# ------------------------------------------------------------------------------------- conflicts


def _inside(func: Function, loop: Loop) -> tuple[list[Site], int]:
    """The sites in a loop, and how many loops are around it."""
    found = [s for s in sites(func.body) if loop in s.loops]
    if not found:
        return [], 0
    return found, found[0].loops.index(loop)


def _pairs(a: Sequence[Site], b: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    """Each unordered pair once."""
    return ((s, t) for k, s in enumerate(a) for t in b[k:])


def _private(func: Function, loop: Loop | None) -> set[str]:
    """The buffers that are new in each iteration of a loop."""
    if loop is None:
        return set()
    own = {b.name for b in func.temps if b.scope in ("local", "register")}
    for s in sites(func.body):
        if loop not in s.loops:
            own -= {a.buffer for a in s.accesses}
    return own


def _first(
    func: Function,
    loop: Loop | None,
    pairs: Iterator[tuple[Site, Site]] | dict[tuple[Site, Site], None],
    depth: int,
    chain: tuple[Var, ...],
    relation: Callable[[list[str], list[str]], str],
) -> Conflict | None:
    """The first pair of accesses in conflict whose loops stand in a relation.

    The first ``depth`` loops of both are the same and in the same iteration; ``relation`` can only
    hold where one of ``chain`` differs.
    """
    private = _private(func, loop)
    for s, t in pairs:
        for a, b in conflicting(s, t):
            if a.buffer in private or apart(s, a, t, b, depth, chain):
                continue
            if meet(s, a, t, b, depth, relation):
                return Conflict(s.block, t.block, a.buffer, chain[0])
    return None


def conflicting(s: Site, t: Site) -> Iterator[tuple[Access, Access]]:
    """The pairs of accesses that may be of one element, and whose order matters then."""
    for a in s.accesses:
        for b in t.accesses:
            if a.buffer != b.buffer or not (a.writes or b.writes):
                continue
            if a.kind == b.kind == "update" and s.block.combiner == t.block.combiner:
                same = s.block.name == t.block.name
                if same or (s.block.init is None and t.block.init is None):
                    continue
            yield a, b


def meet(
    s: Site,
    a: Access,
    t: Site,
    b: Access,
    depth: int,
    relation: Callable[[list[str], list[str]], str],
) -> bool:
    """Whether two accesses may be of one element, in instances that stand in a relation."""
    f = Formula()
    ours = [f"a{k}" for k in range(len(s.loops))]
    theirs = [*ours[:depth], *(f"b{k}" for k in range(depth, len(t.loops)))]
    left = dict(zip((x.var for x in s.loops), ours, strict=True))
    right = dict(zip((x.var for x in t.loops), theirs, strict=True))
    f.add(relation(ours, theirs))
    found = joined(b.indices)
    for key, i in joined(a.indices).items():
        if key in found:
            x, y = f.term(i, left), f.term(found[key], right)
            f.add(None if x is None or y is None else f"{x} = {y}")
    domain(f, s, left, a.kind == "update")
    domain(f, t, right, b.kind == "update")
    return not f.set([*ours, *theirs[depth:]]).is_empty()
