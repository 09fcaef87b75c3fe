"""Whether a block computes every element that its iterators speak of.

There are two ways not to: ``where`` leaves iterations out in which all iterators are in their
extents, or the loops do not give the iterators all values, as after ``compute_at``, which leaves
the loops over what is read. Arithmetic answers for loops that were split and fused, isl for others.
What neither can say is not complete.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

import islpy as isl

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.linear import Linear, linear
from planish.compiler.expr.nodes import Expr, Var, conjuncts, free_vars
from planish.compiler.expr.simplify import prove, simplify
from planish.compiler.loop.affine import Formula
from planish.compiler.loop.ir import Block, Function, Iter, Loop, constant
from planish.compiler.loop.known import Known, entered
from planish.compiler.loop.sites import Site, domain

from .schedule import ranges


def runs_within(func: Function, site: Site) -> bool:
    """Whether ``where`` only leaves out iterations in which an iterator is outside its extent."""
    b = site.block
    within = {c for i in b.iters for c in (n.lt(i.binding, i.extent), n.le(0, i.binding))}
    left = [c for c in conjuncts(b.where) if c not in within]
    if not left:
        return True
    given = tuple(within - {n.TRUE})
    known = ranges(func, site.loops)
    return all(prove(c, known, given) or _implied(c, site) for c in left)


def _implied(c: Expr, site: Site) -> bool:
    """Whether a condition holds wherever all iterators are in their extents, by isl."""
    f = Formula()
    names = {x.var: f"a{k}" for k, x in enumerate(site.loops)}
    domain(f, Site(site.block.with_(where=n.TRUE), site.loops, (), site.steps), names)
    for i in site.block.iters:
        value, end = f.term(i.binding, names), f.term(i.extent, names)
        f.add(None if value is None or end is None else f"0 <= {value} < {end}")
    opposite = f.condition(c, names, positive=False)
    if opposite is None:
        return False
    f.add(opposite)
    return bool(f.set(names.values()).is_empty())


def is_complete(func: Function, site: Site, own: Container[Var] | None = None) -> bool:
    """Whether a block runs for all values of its iterators that it can have where it stands.

    With ``own``, the other loops around stand still, and so do iterators that are bound to them
    alone.
    """
    if site.guards:
        return False
    loops = tuple(x for x in site.loops if own is None or x.var in own)
    names = {x.var for x in loops}
    still = {x.var for x in site.loops} - names
    moving = [i for i in site.block.iters if not _stands(i, names, still)]
    known = entered(ranges(func, tuple(x for x in site.loops if x.var in still)), moving)
    if runs_within(func, site) and _digits(site.block, loops, moving, known):
        return True
    return _covers(site, loops, moving)


def _stands(i: Iter, own: Container[Var], still: Container[Var]) -> bool:
    """Whether an iterator follows the loops that stand still, and them alone."""
    used = free_vars(i.binding)
    return any(v in still for v in used) and not any(v in own for v in used)


def _digits(b: Block, loops: tuple[Loop, ...], iters: list[Iter], known: Known) -> bool:
    """Whether the loops give the iterators all values together, by how numbers have digits.

    ``x // n`` and ``x % n`` have all values in extents of m and n if x has those in m * n; and ``x
    * c + y`` has those below m if x has those below m / c, rounded up, and y those below c. In the
    end each loop must be asked for once at most.
    """
    ones: dict[Var, Expr] = {x.var: n.as_expr(0) for x in loops if constant(x.extent) == 1}
    left = {x.var: x.extent for x in loops if x.var not in ones}
    todo: list[_Question] = [(n.substitute(i.binding, ones), i.extent) for i in iters]
    while todo:
        asked = next((k for k, (e, _) in enumerate(todo) if e in left), None)
        if asked is not None:
            e, extent = todo.pop(asked)
            assert isinstance(e, Var)
            if not prove(n.le(extent, left.pop(e)), known):
                return False
            continue
        forms = (_simpler(k, todo, known) for k in range(len(todo)))
        found = next((x for x in forms if x is not None), None)
        if found is None:
            return False
        todo = found
    reducing = {v for i in b.reduce for v in free_vars(i.binding)} if b.init is not None else set()
    return all(v in reducing or prove(n.le(1, extent), known) for v, extent in left.items())


# Whether an expression has all values from 0 to below an extent.
_Question: TypeAlias = tuple[Expr, Expr]


def _simpler(k: int, asked: Sequence[_Question], known: Known) -> list[_Question] | None:
    """The questions with one of them made simpler; None if that cannot be done."""
    (e, extent), others = asked[k], [*asked[:k], *asked[k + 1 :]]
    if constant(extent) == 1 and constant(e) == 0:
        return others
    if isinstance(e, n.FloorMod):
        for other, high in others:
            if other is n.floordiv(e.lhs, e.rhs) and extent is e.rhs:
                kept = [x for x in others if x[0] is not other]
                return [*kept, (e.lhs, simplify(high * extent, known))]
    form = linear(e) if e.dtype is I64 else Linear({})
    if len(form.terms) < 2 or form.constant:
        return None
    first, c = max(form.terms.items(), key=lambda term: term[1])
    if c < 2:
        return None
    rest = linear(e - first * c).expr()
    return [*others, (first, simplify((extent + (c - 1)) // c, known)), (rest, n.as_expr(c))]


def _covers(site: Site, loops: tuple[Loop, ...], iters: list[Iter]) -> bool:
    """The same by isl."""
    still = [x for x in site.loops if x not in loops]
    names = {x.var: f"a{k}" for k, x in enumerate((*still, *loops))}
    outer = [names[x.var] for x in still]
    whole, part = Formula(), Formula()
    domain(part, site, names)
    for x in still:
        whole.between(names[x.var], x.extent, names)
    for c in conjuncts(site.block.where):
        if all(x.var not in free_vars(c) for x in loops):
            whole.holds(c, names)
    for k, i in enumerate(iters):
        whole.between(f"e{k}", i.extent, names)
        value = part.term(i.binding, names)
        part.add(None if value is None else f"e{k} = {value}")
    if not (whole.exact and part.exact):
        return False
    elements = [*outer, *(f"e{k}" for k in range(len(iters)))]
    reached = part.set([*elements, *(names[x.var] for x in loops)])
    reached = reached.project_out(isl.dim_type.set, len(elements), len(loops))
    return bool(whole.set(elements).subtract(reached).is_empty())
