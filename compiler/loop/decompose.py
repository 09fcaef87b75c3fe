"""Take the starting value of reductions out of their blocks.

The block ``C[i] += ...`` with ``init`` becomes a spatial block that stores the starting value, in front of the
outermost loop that the reduction runs in, and the block without ``init``.
"""

from __future__ import annotations

from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import TRUE, Expr, Var, all_of, free_vars, substitute

from .ir import Block, Function, Loop, Stmt, blocks, map_blocks, map_statements, nests, seq


def decompose(func: Function) -> Function:
    """The function with every ``init`` a block of its own."""
    todo = {b.name: (loops, b) for loops, b in nests(func.body) if b.init is not None}
    if not todo:
        return func
    starts: dict[Loop, list[Stmt]] = {}
    direct: dict[str, Stmt] = {}
    for name, (loops, block) in todo.items():
        first = _first_reduce(loops, block)
        inner = loops[first:]
        start = _start(block, inner)
        if inner:
            starts.setdefault(inner[0], []).append(start)
        else:
            direct[name] = start

    def place(s: Stmt) -> Stmt | None:
        if isinstance(s, Block) and s.name in todo:
            bare = s.with_(init=None)
            return seq(direct[s.name], bare) if s.name in direct else bare
        return s

    def visit(s: Stmt) -> Stmt:
        """Top-down, since loops are found by identity."""
        from .ir import children, with_children

        new = with_children(s, tuple(visit(c) for c in children(s)))
        changed = place(new) if isinstance(new, Block) else new
        assert changed is not None
        if isinstance(s, Loop) and s in starts:
            return seq(*starts[s], changed)
        return changed

    return func.with_(body=visit(func.body))


def _first_reduce(loops: tuple[Loop, ...], block: Block) -> int:
    """How many loops stand around the reduction's outermost one."""
    used = {v for i in block.reduce for v in free_vars(i.binding)}
    for k, loop in enumerate(loops):
        if loop.var in used:
            if loop.kind == "parallel":
                raise InternalError("a parallel loop reduces", op="decompose", node=block.name)
            return k
    return len(loops)


def _start(block: Block, inner: tuple[Loop, ...]) -> Stmt:
    """The block that stores the starting value, in those of ``inner`` that its elements need."""
    assert block.init is not None
    used = {v for i in block.spatial for v in free_vars(i.binding)}
    reducing = {loop.var for loop in inner if loop.var not in used}
    where = _without(block.where, reducing)
    out: Stmt = Block(
        f"{block.name}_init", block.spatial, block.buffer, block.indices, block.init, where=where
    )
    for loop in reversed(inner):
        if loop.var in used:
            out = Loop(loop.var, loop.extent, out, loop.kind)
    return out


def _without(where: Expr, gone: set[Var]) -> Expr:
    """The conditions that do not speak of loops that are gone."""
    from planish.compiler.expr.nodes import And

    if isinstance(where, And):
        return all_of(_without(where.lhs, gone), _without(where.rhs, gone))
    return TRUE if gone & set(free_vars(where)) else where


def bind(func: Function) -> Function:
    """Every block in terms of the loops around it, without iterators of its own."""

    def change(b: Block) -> Block:
        if not b.iters:
            return b
        values = b.bindings
        return b.with_(
            iters=(),
            indices=tuple(substitute(i, values) for i in b.indices),
            value=substitute(b.value, values),
        )

    return func.with_(body=map_blocks(func.body, change))


__all__ = ["bind", "blocks", "decompose", "map_statements"]
