"""Loop functions up to names."""

from __future__ import annotations

from collections.abc import Callable

from planish.compiler.expr.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    free_vars,
    walk,
)

from .ir import Block, Buffer, Function, If, Iter, Loop, Seq, Stmt


def canonical(func: Function) -> Function:
    """The function with names by first use; functions equal up to names become equal.

    Symbols become ``n0, n1 ...``, buffers ``b0 ...``, loop variables ``v0 ...``, blocks ``s0 ...``,
    and a block's iterators ``i0 ...``. The parts are the same as before, in the same order.
    """
    return _Renaming().function(func)


class _Renaming:
    def __init__(self) -> None:
        self.symbols: dict[Expr, Expr] = {}
        self.buffers: dict[str, str] = {}
        self.blocks: dict[str, str] = {}
        self.loops = 0

    def function(self, func: Function) -> Function:
        implied = free_vars(*(d for b in func.params for d in b.shape))
        for v in (*func.symbols, *implied):
            if v not in self.symbols:
                self.symbols[v] = Var(f"n{len(self.symbols)}", v.type)
        symbols = tuple(Var(f"n{k}", v.type) for k, v in enumerate(func.symbols))
        params = tuple(self.declaration(b) for b in func.params)
        body = self.statement(func.body, self.symbols)
        temps = {self.buffer(b.name): b for b in func.temps}
        order = sorted(temps, key=lambda name: int(name[1:]))
        declared = tuple(self.declaration(temps[name]) for name in order)
        return Function("f", params, func.outputs, symbols, declared, body)

    def declaration(self, b: Buffer) -> Buffer:
        shape = tuple(self.expr(d, self.symbols) for d in b.shape)
        return Buffer(self.buffer(b.name), b.dtype, shape, b.scope)

    def buffer(self, name: str) -> str:
        return self.buffers.setdefault(name, f"b{len(self.buffers)}")

    def statement(self, s: Stmt, memo: dict[Expr, Expr]) -> Stmt:
        """``memo``: what the variables in view, and expressions of them, have become."""
        match s:
            case Seq(body):
                return Seq(tuple(self.statement(c, memo) for c in body))
            case If(condition, then, other):
                return If(
                    self.expr(condition, memo),
                    self.statement(then, memo),
                    None if other is None else self.statement(other, memo),
                )
            case Loop(var, extent, body, kind, hint):
                new = Var(f"v{self.loops}", var.type)
                self.loops += 1
                inside: dict[Expr, Expr] = {}
                inside.update((k, v) for k, v in memo.items() if isinstance(k, Var))
                inside[var] = new
                count = self.expr(extent, memo)
                return Loop(new, count, self.statement(body, inside), kind, hint)
            case Block():
                return self.block(s, memo)

    def block(self, b: Block, memo: dict[Expr, Expr]) -> Block:
        inside = dict(self.symbols) if b.iters else memo  # without iterators, it sees the loops
        iters = []
        for k, i in enumerate(b.iters):
            inside[i.var] = var = Var(f"i{k}", i.var.type)
            iters.append(Iter(var, self.expr(i.extent, memo), i.kind, self.expr(i.binding, memo)))
        return Block(
            self.blocks.setdefault(b.name, f"s{len(self.blocks)}"),
            tuple(iters),
            self.buffer(b.buffer),
            tuple(self.expr(e, inside) for e in b.indices),
            self.expr(b.value, inside),
            b.combiner,
            None if b.init is None else self.expr(b.init, inside),
            self.expr(b.where, memo),
            b.nontemporal,
            b.origin,
        )

    def expr(self, root: Expr, memo: dict[Expr, Expr]) -> Expr:
        if root in memo:
            return memo[root]
        for e in walk(root):
            if e not in memo:
                memo[e] = self.node(e, memo)
        return memo[root]

    def node(self, e: Expr, memo: dict[Expr, Expr]) -> Expr:
        """The node over what its children became, as it is: nothing is folded."""
        match e:
            case Const() | Var():
                return e
            case Load(buffer, indices, dtype):
                return Load(self.buffer(buffer), tuple(memo[i] for i in indices), dtype)
            case Binary(lhs=x, rhs=y):
                make: Callable[[Expr, Expr], Expr] = type(e)
                return make(memo[x], memo[y])
            case Call(name, args, dtype):
                return Call(name, tuple(memo[a] for a in args), dtype)
            case Cast(x, dtype):
                return Cast(memo[x], dtype)
            case Select(c, x, y):
                return Select(memo[c], memo[x], memo[y])
            case Not(x):
                return Not(memo[x])
            case _:
                raise TypeError(type(e))
