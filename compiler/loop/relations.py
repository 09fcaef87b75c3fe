"""Dependences of block instances as isl relations, and whether a reordering respects them all.

An instance is named by its block and the values of its iterators, so that functions with other
loops can be compared. This is for tests of moves; what moves themselves ask is in ``polyhedral``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planish.compiler.expr.nodes import Const, Expr, Var, substitute
from planish.compiler.remembering import remembered

from .affine import Formula
from .ir import Block, Buffer, Function, If, Loop, Seq, Stmt, map_statements
from .sites import Access, Site, domain, sites


@dataclass(frozen=True, slots=True)
class Dependence:
    """Instances of ``sink`` that must come after instances of ``source``.

    ``kind`` is ``flow`` (write, read), ``anti`` (read, write) or ``output`` (write, write);
    ``relation`` is an isl map from the source's iterators to the sink's.
    """

    kind: str
    source: str
    sink: str
    buffer: str
    relation: Any


@dataclass(frozen=True, slots=True)
class Violation:
    """What a reordering breaks."""

    message: str
    instances: str

    def __str__(self) -> str:
        return f"{self.message}: {self.instances}"


def dependences(func: Function) -> tuple[Dependence, ...]:
    """The dependences of a function's blocks, in the present order.

    Updates of one reduction do not depend on each other.
    """
    return _dependences(func)


@remembered(64)
def _dependences(func: Function) -> tuple[Dependence, ...]:
    found: dict[tuple[str, str, str, str], Any] = {}
    depth = max((len(s.loops) for s in sites(func.body)), default=0)
    every = [(s, a) for s in sites(func.body) for a in s.accesses]
    for s, a in every:
        for t, b in every:
            if a.buffer != b.buffer or not (a.writes or b.writes):
                continue
            if a.kind == b.kind == "update" and s.block.name == t.block.name:
                continue
            kind = "flow" if a.writes and b.kind != "write" else "output" if a.writes else "anti"
            touched, then = _touched(s, a), _touched(t, b)
            order = _schedule(s, depth).lex_lt_map(_schedule(t, depth))
            relation = touched.apply_range(then.reverse()).intersect(order)
            relation = _instances(s).reverse().apply_range(relation).apply_range(_instances(t))
            if relation.is_empty():
                continue
            key = (kind, s.block.name, t.block.name, a.buffer)
            found[key] = found[key].union(relation) if key in found else relation
    return tuple(Dependence(*key, relation.coalesce()) for key, relation in found.items())


def _names(s: Site) -> dict[Var, str]:
    return {x.var: f"v{k}" for k, x in enumerate(s.loops)}


def _map(s: Site, right: str, terms: Sequence[Expr]) -> Any:
    """From the iterations in which a block runs to ``right`` of terms, or of anything."""
    f = Formula()
    names = _names(s)
    domain(f, s, names)
    out = []
    for k, e in enumerate(terms):
        value = f.term(e, names)
        out.append(f"x{k}")
        f.add(None if value is None else f"x{k} = {value}")
    return f.map(f"[{', '.join(names.values())}]", f"{right}[{', '.join(out)}]")


@remembered(1024)
def _instances(s: Site) -> Any:
    """From iterations to the values of the block's iterators."""
    f = Formula()
    names = _names(s)
    domain(f, s, names)
    out = []
    for k, i in enumerate(s.block.iters):
        value = f.term(i.binding, names)
        out.append(f"x{k}")
        f.between(f"x{k}", i.extent, names)
        f.add(None if value is None else f"x{k} = {value}")
    right = f"{_tuple(s.block)}[{', '.join(out)}]"
    return f.map(f"[{', '.join(names.values())}]", right)


def _tuple(b: Block) -> str:
    return "".join(c if c.isalnum() else "_" for c in b.name)


def _touched(s: Site, a: Access) -> Any:
    return _map(s, a.buffer, a.indices)


def _schedule(s: Site, depth: int) -> Any:
    """From iterations to their time: places in the text and values of loops by turns."""
    f = Formula()
    names = _names(s)
    domain(f, s, names)
    time = [str(s.steps[0])]
    for v, step in zip(names.values(), s.steps[1:], strict=True):
        time += [v, str(step)]
    time += ["0"] * (2 * depth + 1 - len(time))
    return f.map(f"[{', '.join(names.values())}]", f"[{', '.join(time)}]")


# -------------------------------------------------------------------------------- legality


def legal_order(
    before: Function, after: Function, symbols: Mapping[str, int] | None = None
) -> Violation | None:
    """What ``after`` breaks of the dependences of ``before``; None if it respects all.

    Blocks correspond by name and iterators (``corresponding``); the others are left alone. Every
    instance must still run, a reduction's exactly once. ``symbols`` have the values given, else
    small primes.
    """
    given = symbols or {}
    primes = itertools.cycle((5, 7, 3, 11, 2, 13))
    values = {v: given.get(v.name, p) for v, p in zip(before.symbols, primes, strict=False)}
    old, new = fixed(before, values), fixed(after, values)
    times, now = _times(old), _times(new)
    common = {name: (times[name], now[name]) for name in sorted(corresponding(old, new))}
    for name, (t, u) in common.items():
        missing = t.domain().subtract(u.domain())
        if not missing.is_empty():
            return Violation(f"instances of {name} are left out", str(missing))
        extra = u.domain().subtract(t.domain())
        if not extra.is_empty():
            return Violation(f"instances of {name} are new", str(extra))
        block = next(s.block for s in sites(new.body) if s.block.name == name)
        if block.combiner is not None and not u.is_single_valued():
            return Violation(f"instances of {name} run more than once", str(u))
    for d in dependences(old):
        if d.source not in common or d.sink not in common:
            continue
        source, sink = common[d.source][1], common[d.sink][1]
        first = source.lexmin() if d.kind == "flow" else source.lexmax()
        ordered = first.lex_lt_map(sink.lexmin())
        broken = d.relation.subtract(ordered)
        if not broken.is_empty():
            message = f"{d.sink} no longer comes after {d.source} ({d.kind}, {d.buffer})"
            return Violation(message, str(broken))
    return None


def corresponding(before: Function, after: Function) -> set[str]:
    """The blocks that are the same in both functions, so that their instances can be compared."""
    old, new = _iterators(before), _iterators(after)
    return {name for name, iters in old.items() if new.get(name) == iters}


def _iterators(func: Function) -> dict[str, list[tuple[Var, Expr, str]]]:
    """What must be the same for instances to be the same.

    Those of a block without iterators have nothing in common that could be compared.
    """
    return {
        s.block.name: [(i.var, i.extent, i.kind) for i in s.block.iters]
        for s in sites(func.body)
        if s.block.iters or not s.loops
    }


def _times(func: Function) -> dict[str, Any]:
    """From the instances of each block to the times at which they run."""
    depth = max((len(s.loops) for s in sites(func.body)), default=0)
    out: dict[str, Any] = {}
    for s in sites(func.body):
        if s.loops and not s.block.iters:
            continue
        time = _instances(s).reverse().apply_range(_schedule(s, depth))
        name = s.block.name
        if name not in out:
            out[name] = time
        elif out[name].get_space().is_equal(time.get_space()):
            out[name] = out[name].union(time)
    return out


def fixed(func: Function, symbols: Mapping[Var, int]) -> Function:
    """The function with values for its symbols."""
    values: dict[Var, Expr] = {v: Const(k) for v, k in symbols.items()}

    def put(e: Expr) -> Expr:
        return substitute(e, values)

    def buffer(b: Buffer) -> Buffer:
        return replace(b, shape=tuple(map(put, b.shape)))

    def change(s: Stmt) -> Stmt:
        match s:
            case Loop():
                return s.with_(extent=put(s.extent))
            case If():
                return replace(s, condition=put(s.condition))
            case Block():
                return s.with_(
                    iters=tuple(
                        replace(i, extent=put(i.extent), binding=put(i.binding)) for i in s.iters
                    ),
                    indices=tuple(map(put, s.indices)),
                    value=put(s.value),
                    init=None if s.init is None else put(s.init),
                    where=put(s.where),
                )
            case Seq():
                return s

    return func.with_(
        params=tuple(map(buffer, func.params)),
        symbols=(),
        temps=tuple(map(buffer, func.temps)),
        body=map_statements(func.body, change) or Seq(()),
    )
