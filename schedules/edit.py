"""Changes of statements that moves are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, If, Iter, Loop, Seq, Stmt

NOWHERE: Final[frozenset[str]] = frozenset()


def replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt:
    """The tree with one statement (by identity) replaced, or removed with what it leaves empty."""
    out = _replace(root, old, new)
    return Seq(()) if out is None else out


def _replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    if root is old:
        return new
    if isinstance(root, Block):
        return root
    if isinstance(root, Loop):
        body = _replace(root.body, old, new)
        return None if body is None else ir.with_children(root, (body,))
    kids = ir.children(root)
    every = [_replace(c, old, new) for c in kids]
    if all(a is b for a, b in zip(kids, every, strict=True)):
        return root
    out = [c for c in every if c is not None]
    if not out:
        return None
    if isinstance(root, Seq):
        return ir.seq(*out)
    if isinstance(root, If) and len(out) < len(kids):
        return (
            If(n.not_(root.condition), out[0]) if every[0] is None else If(root.condition, out[0])
        )
    return ir.with_children(root, tuple(out))


def rebind(s: Stmt, values: dict[Var, Expr]) -> Stmt:
    """The statement with loop variables replaced in bindings, conditions and extents."""
    match s:
        case Block():
            iters = tuple(
                Iter(i.var, i.extent, i.kind, n.substitute(i.binding, values)) for i in s.iters
            )
            new = s.with_(iters=iters, where=n.substitute(s.where, values))
            return new if s.iters else _unbound(new, values)
        case Loop():
            return s.with_(extent=n.substitute(s.extent, values), body=rebind(s.body, values))
        case If(condition, then, other):
            return If(
                n.substitute(condition, values),
                rebind(then, values),
                None if other is None else rebind(other, values),
            )
        case Seq(body):
            return Seq(tuple(rebind(c, values) for c in body))


def _unbound(b: Block, values: dict[Var, Expr]) -> Block:
    """A block without iterators sees the loops itself."""
    return b.with_(
        indices=tuple(n.substitute(i, values) for i in b.indices),
        value=n.substitute(b.value, values),
        init=None if b.init is None else n.substitute(b.init, values),
    )


def guard(s: Stmt, condition: Expr) -> Stmt:
    """The statement with another condition on every block."""
    return ir.map_blocks(s, lambda b: b.with_(where=n.all_of(b.where, condition)))


Change: TypeAlias = Callable[[Load, Block | None], Expr]


def map_loads(body: Stmt, buffer: str, change: Change, origin: frozenset[str] = NOWHERE) -> Stmt:
    """The statement with every load of a buffer replaced by what ``change`` makes of it.

    ``change`` is given the block whose iterators the load's indices speak of; none if they speak of
    loops. Blocks that load the buffer get ``origin`` too.
    """

    def put(e: Expr, b: Block | None = None) -> Expr:
        def load(e: Expr) -> Expr | None:
            return change(e, b) if isinstance(e, Load) and e.buffer == buffer else None

        return n.transform(e, load)

    def statement(s: Stmt) -> Stmt:
        match s:
            case Block():
                roots = (s.value, *s.indices, s.where, *(() if s.init is None else (s.init,)))
                if all(x.buffer != buffer for x in n.loads(*roots)):
                    return s
                return s.with_(
                    indices=tuple(put(i, s) for i in s.indices),
                    value=put(s.value, s),
                    init=None if s.init is None else put(s.init, s),
                    where=put(s.where),
                    origin=s.origin | origin,
                )
            case Loop():
                extent = put(s.extent)
                return s if extent is s.extent else s.with_(extent=extent)
            case If(condition, then, other):
                new = put(condition)
                return s if new is condition else If(new, then, other)
            case Seq():
                return s

    out = ir.map_statements(body, statement)
    assert out is not None
    return out


def without(func: Function, buffer: str) -> Function:
    """The function without a temporary buffer that nothing uses any more."""
    return func.with_(temps=tuple(t for t in func.temps if t.name != buffer))
