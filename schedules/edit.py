"""Changes of statements that moves are made of."""

from __future__ import annotations

from collections.abc import Callable

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, Load, Var
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, If, Iter, Loop, Seq, Stmt


def replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt:
    """The tree with one statement (by identity) replaced, or removed with what it leaves empty."""
    out = _replace(root, old, new)
    return Seq(()) if out is None else out


def _replace(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    if root is old:
        return new
    kids = ir.children(root)
    if not kids:
        return root
    out = [c for c in (_replace(c, old, new) for c in kids) if c is not None]
    if all(a is b for a, b in zip(kids, out, strict=False)) and len(kids) == len(out):
        return root
    if not out:
        return None
    if isinstance(root, If) and len(out) < len(kids):
        kept = out[0]
        if _replace(root.then, old, new) is None:
            return If(n.not_(root.condition), kept)
        return If(root.condition, kept)
    return ir.with_children(root, tuple(out)) if not isinstance(root, Seq) else ir.seq(*out)


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
            return s.with_(
                extent=n.substitute(s.extent, values), body=rebind(s.body, values)
            )
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


def map_loads(
    func: Function, buffer: str, change: Callable[[tuple[Expr, ...]], Expr], store: bool = False
) -> Stmt:
    """The function's body with every load of a buffer replaced by what ``change`` makes of its indices.

    With ``store``, blocks that write the buffer write at the indices of the load that ``change`` gives.
    """

    def load(e: Expr) -> Expr | None:
        return change(e.indices) if isinstance(e, Load) and e.buffer == buffer else None

    def put(e: Expr) -> Expr:
        return n.transform(e, load)

    def statement(s: Stmt) -> Stmt:
        match s:
            case Block():
                indices = tuple(map(put, s.indices))
                if store and s.buffer == buffer:
                    to = change(indices)
                    assert isinstance(to, Load)
                    indices = to.indices
                new = s.with_(
                    indices=indices,
                    value=put(s.value),
                    init=None if s.init is None else put(s.init),
                    where=put(s.where),
                )
                return s if new == s else new
            case Loop():
                return s.with_(extent=put(s.extent))
            case If(condition, then, other):
                return If(put(condition), then, other)
            case Seq():
                return s

    out = ir.map_statements(func.body, statement)
    assert out is not None
    return out


def without(func: Function, buffer: str) -> Function:
    """The function without a temporary buffer that nothing uses any more."""
    return func.with_(temps=tuple(t for t in func.temps if t.name != buffer))
