"""Scalar expressions as LLVM instructions, on scalars or on vectors of lanes.

Integers that depend on loop variables only (indices, conditions, sizes) are hoisted to the
outermost level that knows their variables; everything else is emitted where it is used. In a vector
loop an expression becomes a vector as soon as it depends on the loop's variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.functions import FUNCTIONS, expand
from planish.compiler.expr.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
)
from planish.compiler.remembering import table

from .builder import Builder, Level
from .conversions import Conversions
from .isa import Isa
from .operations import LOGIC, integer_test
from .values import Val, constant, ramp, scalar_type

# The dimensions and indices that i64 are for do not overflow; other integers wrap around.
_INT: Final = {n.Add: "add", n.Sub: "sub", n.Mul: "mul"}
_free_vars: Final[dict[Expr, frozenset[Var]]] = table()


def free(e: Expr) -> frozenset[Var]:
    """The variables in an expression, cached."""
    found = _free_vars.get(e)
    if found is None:
        if len(_free_vars) > 200_000:
            _free_vars.clear()
        found = _free_vars[e] = frozenset(n.free_vars(e))
    return found


_integer_only: Final[dict[Expr, bool]] = table()


def _is_integer(e: Expr) -> bool:
    """Whether the expression is integer arithmetic without loads and calls, cached."""
    found = _integer_only.get(e)
    if found is None:
        if len(_integer_only) > 200_000:
            _integer_only.clear()
        found = _integer_only[e] = all(
            x.dtype.is_discrete
            and not x.dtype.is_packed
            and not isinstance(x, Load | Call)
            and (not isinstance(x, Cast) or (x.dtype.is_int and x.operand.dtype.is_int))
            for x in n.walk(e)
        )
    return found


@dataclass(frozen=True, slots=True)
class Bound:
    """A variable that is in a register: its name and the level that knows it."""

    text: str
    level: int


@dataclass(slots=True)
class Scope:
    """What variables are: constants of unrolled loops, registers, or the vector loop's lanes."""

    consts: dict[Var, Const]
    bound: dict[Var, Bound]
    ranges: dict[Var, Interval]
    vector: Var | None = None
    lanes: int = 0


class Expressions(Conversions):
    """Emits expressions; ``load`` is given by the memory side.

    ``memo`` holds what an expression's evaluation has found so far, one dictionary for each
    ``select`` whose side is being evaluated: what was found outside of it holds inside, too.
    """

    def __init__(self, builder: Builder, isa: Isa, scope: Scope) -> None:
        super().__init__(builder, isa)
        self.scope = scope
        self.memo: list[dict[Expr, Val]] = []
        self.guards: list[Val] = []
        self._resolved: dict[object, Expr] = {}
        self._integers: dict[Expr, tuple[str, int, Level]] = {}  # valid while that level is open

    def load(self, e: Load) -> Val:
        raise NotImplementedError

    # ------------------------------------------------------------------------------ integers

    def resolve(self, e: Expr) -> Expr:
        """The expression with the variables of unrolled loops replaced by their present values."""
        consts = self.scope.consts
        variables = free(e)
        if not consts or variables.isdisjoint(consts):
            return e
        relevant = [v for v in variables if v in consts]
        key = (e, tuple([consts[v] for v in relevant]))
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = n.substitute(e, {v: consts[v] for v in relevant})
        return found

    def integer(self, e: Expr) -> tuple[str, int]:
        """An integer or condition over scalars only: its operand and the level that has it."""
        e = self.resolve(e)
        levels = self.b.levels
        known = self._integers.get(e)
        if known is not None and known[1] < len(levels) and levels[known[1]] is known[2]:
            return known[:2]
        text, level = self._integer(e)
        self._integers[e] = text, level, levels[level]
        return text, level

    def _integer(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const(value, dtype):
                return constant(value, dtype).text, 0
            case Var():
                bound = self.scope.bound.get(e)
                if bound is None:
                    raise CodegenError(f"the variable {e} is not known here", op="llvm")
                return bound.text, bound.level
            case Select(c, x, y):
                parts = [self.integer(c), self.integer(x), self.integer(y)]
                level = max(p[1] for p in parts)
                t = scalar_type(x.dtype)
                text = f"select i1 {parts[0][0]}, {t} {parts[1][0]}, {t} {parts[2][0]}"
                return self.b.once(level, text), level
            case Not(x):
                text, level = self.integer(x)
                return self.b.once(level, f"xor i1 {text}, true"), level
            case Cast(x, dtype) if x.dtype.is_int and dtype.is_int:
                text, level = self.integer(x)
                source, target = scalar_type(x.dtype), scalar_type(dtype)
                if source == target:
                    return text, level
                how = (
                    "trunc"
                    if dtype.bits < x.dtype.bits
                    else "sext"
                    if x.dtype.kind == "i"
                    else "zext"
                )
                return self.b.once(level, f"{how} {source} {text} to {target}"), level
            case Binary(lhs=x, rhs=y):
                (p, lp), (q, lq) = self.integer(x), self.integer(y)
                level = max(lp, lq)
                return self._integer_binary(e, p, q, level), level
            case _:
                raise CodegenError("not an index expression", op="llvm", node=str(e))

    def _integer_binary(self, e: Binary, p: str, q: str, level: int) -> str:
        once, t, kind = self.b.once, scalar_type(e.lhs.dtype), type(e)
        signed = e.lhs.dtype.kind == "i"
        if kind in _INT:
            return once(level, f"{_INT[kind]} {'nsw ' if e.dtype is I64 else ''}{t} {p}, {q}")
        if kind in LOGIC:
            return once(level, f"{LOGIC[kind]} i1 {p}, {q}")
        if isinstance(e, Compare):
            return once(level, f"icmp {integer_test(type(e), signed)} {t} {p}, {q}")
        if kind in (n.Min, n.Max):
            c = once(level, f"icmp {'s' if signed else 'u'}lt {t} {p}, {q}")
            a, b = (p, q) if kind is n.Min else (q, p)
            return once(level, f"select i1 {c}, {t} {a}, {t} {b}")
        if isinstance(e.rhs, Const):
            q = "1" if e.rhs.value == 0 else q
        else:  # hoisted above the test that its divisor is not zero
            zero = once(level, f"icmp eq {t} {q}, 0")
            q = once(level, f"select i1 {zero}, {t} 1, {t} {q}")
        if kind is n.Div:
            return once(level, f"{'sdiv' if signed else 'udiv'} {t} {p}, {q}")
        low = bounds(e.lhs, self.scope.ranges).lo
        if not signed or (low is not None and low >= 0):
            return once(level, f"{'udiv' if kind is n.FloorDiv else 'urem'} {t} {p}, {q}")
        rem = once(level, f"srem {t} {p}, {q}")
        negative = once(level, f"icmp slt {t} {rem}, 0")
        if kind is n.FloorMod:
            fixed = once(level, f"add {t} {rem}, {q}")
            return once(level, f"select i1 {negative}, {t} {fixed}, {t} {rem}")
        quotient = once(level, f"sdiv {t} {p}, {q}")
        less = once(level, f"add {t} {quotient}, -1")
        return once(level, f"select i1 {negative}, {t} {less}, {t} {quotient}")

    def is_scalar_integer(self, e: Expr) -> bool:
        """Whether ``integer`` can take it: integers and conditions over scalar variables."""
        return not self.varies(e) and _is_integer(e)

    def varies(self, e: Expr) -> bool:
        """Whether the expression depends on the vector loop's variable."""
        return self.scope.vector is not None and self.scope.vector in free(e)

    # -------------------------------------------------------------------------------- values

    def value(self, root: Expr) -> Val:
        """The value of any expression, in the present block."""
        if isinstance(root, Load):
            return self.load(root)
        if self.memo:
            return self._value(root)
        self.memo = [{}]
        try:
            return self._value(root)
        finally:
            self.memo = []

    def _value(self, root: Expr) -> Val:
        done = self.memo[-1]
        stack = [root]
        while stack:
            e = stack[-1]
            if e in done:
                stack.pop()
                continue
            found = self._found(e) if len(self.memo) > 1 else None
            if found is None:
                found = self._leaf(e)
            if found is not None:
                done[e] = found
                stack.pop()
                continue
            todo = [c for c in e.children if c not in done]
            if todo:
                stack.extend(todo)
                continue
            done[e] = self._inner(e, [done[c] for c in e.children])
            stack.pop()
        return done[root]

    def _found(self, e: Expr) -> Val | None:
        return next((known[e] for known in self.memo if e in known), None)

    def _leaf(self, e: Expr) -> Val | None:
        match e:
            case Const(value, dtype):
                return constant(value, dtype)
            case Load():
                return self.load(e)
            case Var() if e is self.scope.vector:
                return ramp(e.dtype, self.scope.lanes)
            case Var() if (known := self.scope.consts.get(e)) is not None:
                return constant(known.value, e.dtype)
            case Select():
                return self._select(e)
            case Call(name) if FUNCTIONS[name].expansion is not None:
                return self.value(expand(e))
            case _ if self.is_scalar_integer(e):
                return Val(self.integer(e)[0], e.dtype)
            case _:
                return None

    def _select(self, root: Select) -> Val:
        """Selects within the last side of one another, as one chain: it may be long."""
        chain: list[tuple[Val, Val]] = []
        e: Expr = root
        depth = len(self.guards), len(self.memo)
        try:
            while isinstance(e, Select) and (e is root or self._found(e) is None):
                known = self.resolve(e.condition)
                if isinstance(known, Const):
                    e = e.then if known.value else e.other
                    continue
                c = self.value(e.condition)
                chain.append((c, self.guarded(c, e.then)))
                if n.loads(e.other):
                    self.guard(self.negated(c))
                e = e.other
            out = self.value(e)
        finally:
            del self.guards[depth[0] :], self.memo[depth[1] :]
        for c, then in reversed(chain):
            out = self.choose(c, then, out)
        return out

    def guarded(self, condition: Val, e: Expr) -> Val:
        """The value of ``e``, whose loads are performed only where ``condition`` holds."""
        if not n.loads(e):
            return self.value(e)
        self.guard(condition)
        try:
            return self.value(e)
        finally:
            self.guards.pop()
            self.memo.pop()

    def guard(self, condition: Val) -> None:
        """From here on, loads are performed only where the condition holds."""
        self.guards.append(condition)
        self.memo.append({})

    def negated(self, c: Val) -> Val:
        text = f"xor {c.typed}, {constant(True, BOOL, c.lanes).text}"
        return Val(self.b.once(self.b.depth, text), BOOL, c.lanes)

    def _inner(self, e: Expr, args: list[Val]) -> Val:
        lanes = max((a.lanes for a in args), default=0)
        args = [self.widen(a, lanes) for a in args]
        match e:
            case Cast(_, dtype):
                return self.convert(args[0], dtype)
            case Not():
                return self.negated(args[0])
            case Call(name, _, dtype):
                return self.call(name, args, dtype)
            case Compare():
                return self.compare(type(e), args[0], args[1])
            case Binary():
                return self.binary(type(e), args[0], args[1])
            case _:
                raise CodegenError("unknown expression", op="llvm", node=str(e))
