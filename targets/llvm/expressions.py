"""Scalar expressions as LLVM instructions, on scalars or on vectors of lanes.

Integers that depend on loop variables only (indices, conditions, sizes) are hoisted to the outermost level that
knows their variables; everything else is emitted where it is used. In a vector loop an expression becomes a
vector as soon as it depends on the loop's variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import BF16, BOOL, F16, F32, I64, DType
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.functions import FUNCTIONS, expand
from planish.compiler.expr.nodes import Binary, Call, Cast, Compare, Const, Expr, Load, Not, Select, Var

from .builder import Builder
from .isa import Isa
from .values import Val, constant, lanes_type, ramp, scalar_type, type_suffix

_INT: Final = {n.Add: "add nsw", n.Sub: "sub nsw", n.Mul: "mul nsw"}
_WRAP: Final = {n.Add: "add", n.Sub: "sub", n.Mul: "mul"}
_FLOAT: Final = {n.Add: "fadd", n.Sub: "fsub", n.Mul: "fmul", n.Div: "fdiv"}
_LOGIC: Final = {n.And: "and", n.Or: "or"}
_FCMP: Final = {n.Eq: "oeq", n.Ne: "une", n.Lt: "olt", n.Le: "ole"}
_SIMPLE: Final = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "roundeven",
    "abs": "fabs", "fma": "fma", "copysign": "copysign",
}  # fmt: skip
_BITS: Final = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "shift_left": "shl"}

_free_vars: dict[Expr, frozenset[Var]] = {}


def free(e: Expr) -> frozenset[Var]:
    """The variables in an expression, cached."""
    found = _free_vars.get(e)
    if found is None:
        if len(_free_vars) > 200_000:
            _free_vars.clear()
        found = _free_vars[e] = frozenset(n.free_vars(e))
    return found


_integer_only: dict[Expr, bool] = {}


def _is_integer(e: Expr) -> bool:
    """Whether the expression is integer arithmetic without loads and calls, cached."""
    found = _integer_only.get(e)
    if found is None:
        if len(_integer_only) > 200_000:
            _integer_only.clear()
        found = _integer_only[e] = all(
            not x.dtype.is_float
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
    """What variables are: constants of unrolled loops, registers, or the lanes of the vector loop."""

    consts: dict[Var, Const]
    bound: dict[Var, Bound]
    ranges: dict[Var, Interval]
    vector: Var | None = None
    lanes: int = 0


class Expressions:
    """Emits expressions; ``load`` is given by the memory side."""

    def __init__(self, builder: Builder, isa: Isa, scope: Scope) -> None:
        self.b, self.isa, self.scope = builder, isa, scope
        self._resolved: dict[object, Expr] = {}

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
        """An integer or condition that depends on scalars only: its operand and the level that has it."""
        e = self.resolve(e)
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
                how = "trunc" if dtype.bits < x.dtype.bits else "sext" if x.dtype.kind == "i" else "zext"
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
            return once(level, f"{(_INT if e.dtype is I64 else _WRAP)[kind]} {t} {p}, {q}")
        if kind in _LOGIC:
            return once(level, f"{_LOGIC[kind]} i1 {p}, {q}")
        if isinstance(e, Compare):
            return once(level, f"icmp {_compare(e, signed)} {t} {p}, {q}")
        if kind in (n.Min, n.Max):
            c = once(level, f"icmp {'s' if signed else 'u'}lt {t} {p}, {q}")
            a, b = (p, q) if kind is n.Min else (q, p)
            return once(level, f"select i1 {c}, {t} {a}, {t} {b}")
        if not isinstance(e.rhs, Const):  # hoisted above the test that its divisor is not zero
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
        done: dict[Expr, Val] = {}
        stack = [root]
        while stack:
            e = stack[-1]
            if e in done:
                stack.pop()
                continue
            if (leaf := self._leaf(e)) is not None:
                done[e] = leaf
                stack.pop()
                continue
            todo = [c for c in e.children if c not in done]
            if todo:
                stack.extend(todo)
                continue
            done[e] = self._inner(e, [done[c] for c in e.children])
            stack.pop()
        return done[root]

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

    def _select(self, e: Select) -> Val:
        if not e.condition.dtype.is_float and isinstance(known := self.resolve(e.condition), Const):
            return self.value(e.then if known.value else e.other)
        if not n.loads(e.then, e.other):
            c, x, y = self.value(e.condition), self.value(e.then), self.value(e.other)
            return self._choose(c, x, y)
        c = self.value(e.condition)
        with_then = self.guarded(c, False, e.then)
        with_other = self.guarded(c, True, e.other)
        return self._choose(c, with_then, with_other)

    def guarded(self, condition: Val, negate: bool, e: Expr) -> Val:
        """The value of ``e``, whose loads are performed only where ``condition`` holds (or does not)."""
        raise NotImplementedError

    def _choose(self, c: Val, x: Val, y: Val) -> Val:
        lanes = max(c.lanes, x.lanes, y.lanes)
        x, y = self.widen(x, lanes), self.widen(y, lanes)
        return Val(self.b.emit(f"select {c.typed}, {x.typed}, {y.typed}"), x.dtype, lanes)

    def widen(self, v: Val, lanes: int) -> Val:
        """A scalar in every lane."""
        if v.lanes == lanes:
            return v
        if v.lanes:
            raise CodegenError(f"{v.lanes} lanes where {lanes} are used", op="llvm")
        element = scalar_type(v.dtype)
        if not v.text.startswith("%"):
            return Val(f"splat ({element} {v.text})", v.dtype, lanes)
        key = ("splat", v.text, lanes)
        found = self.b.level.cache.get(key)
        if found is None:
            t = lanes_type(element, lanes)
            one = self.b.emit(f"insertelement {t} poison, {element} {v.text}, i64 0")
            zero = f"<{lanes} x i32> zeroinitializer"
            found = self.b.emit(f"shufflevector {t} {one}, {t} poison, {zero}")
            self.b.level.cache[key] = found
        return Val(found, v.dtype, lanes)

    def _inner(self, e: Expr, args: list[Val]) -> Val:
        lanes = max((a.lanes for a in args), default=0)
        args = [self.widen(a, lanes) for a in args]
        match e:
            case Cast(_, dtype):
                return self.convert(args[0], dtype)
            case Not():
                one = constant(True, BOOL, lanes)
                return Val(self.b.emit(f"xor {args[0].typed}, {one.text}"), BOOL, lanes)
            case Call(name, _, dtype):
                return self.call(name, args, dtype)
            case Compare():
                return self._compare(e, args[0], args[1])
            case Binary():
                return self.binary(type(e), args[0], args[1])
            case _:
                raise CodegenError("unknown expression", op="llvm", node=str(e))

    def _compare(self, e: Compare, x: Val, y: Val) -> Val:
        if x.dtype.is_float:
            text = f"fcmp {_FCMP[type(e)]} {x.typed}, {y.text}"
        else:
            text = f"icmp {_compare(e, x.dtype.kind == 'i')} {x.typed}, {y.text}"
        return Val(self.b.emit(text), BOOL, x.lanes)

    def binary(self, kind: type[Binary], x: Val, y: Val) -> Val:
        """An operation on two values of one type."""
        t = x.dtype
        emit = self.b.emit
        if kind in (n.Min, n.Max):
            return self._extreme(kind is n.Max, x, y)
        if kind in _LOGIC:
            return Val(emit(f"{_LOGIC[kind]} {x.typed}, {y.text}"), t, x.lanes)
        if t.is_float:
            if kind not in _FLOAT:
                raise CodegenError(f"{kind.symbol} is not defined for {t}", op="llvm")
            return Val(emit(f"{_FLOAT[kind]} {x.typed}, {y.text}"), t, x.lanes)
        if kind in _WRAP:
            return Val(emit(f"{_WRAP[kind]} {x.typed}, {y.text}"), t, x.lanes)
        return self._divide(kind, x, y)

    def _divide(self, kind: type[Binary], x: Val, y: Val) -> Val:
        """Integer division; by zero it gives some value, never a trap."""
        emit, t, lanes = self.b.emit, x.dtype, x.lanes
        one = constant(1, t, lanes)
        if y.text.startswith("%"):
            zero = emit(f"icmp eq {y.typed}, zeroinitializer" if lanes else f"icmp eq {y.typed}, 0")
            y = self._choose(Val(zero, BOOL, lanes), one, y)
            if t.kind == "i":  # the one quotient that overflows
                least, minus = constant(t.min, t, lanes), constant(-1, t, lanes)
                a = emit(f"icmp eq {x.typed}, {least.text}")
                b = emit(f"icmp eq {y.typed}, {minus.text}")
                both = emit(f"and {lanes_type('i1', lanes)} {a}, {b}")
                y = self._choose(Val(both, BOOL, lanes), one, y)
        if t.kind == "u":
            how = "urem" if kind is n.FloorMod else "udiv"
            return Val(emit(f"{how} {x.typed}, {y.text}"), t, lanes)
        quotient = Val(emit(f"sdiv {x.typed}, {y.text}"), t, lanes)
        if kind is n.Div:
            return quotient
        rem = Val(emit(f"srem {x.typed}, {y.text}"), t, lanes)
        zero_text = "zeroinitializer" if lanes else "0"
        nonzero = emit(f"icmp ne {rem.typed}, {zero_text}")
        signs = emit(f"xor {rem.typed}, {y.text}")
        differ = emit(f"icmp slt {rem.type} {signs}, {zero_text}")
        adjust = Val(emit(f"and {lanes_type('i1', lanes)} {nonzero}, {differ}"), BOOL, lanes)
        if kind is n.FloorMod:
            return self._choose(adjust, Val(emit(f"add {rem.typed}, {y.text}"), t, lanes), rem)
        less = Val(emit(f"sub {quotient.typed}, {one.text}"), t, lanes)
        return self._choose(adjust, less, quotient)

    def _extreme(self, greatest: bool, x: Val, y: Val) -> Val:
        """Minimum or maximum; NaN if either is NaN."""
        emit, t = self.b.emit, x.dtype
        if t is BOOL:
            return Val(emit(f"{'or' if greatest else 'and'} {x.typed}, {y.text}"), t, x.lanes)
        if not t.is_float:
            sign = "s" if t.kind == "i" else "u"
            name = f"llvm.{sign}{'max' if greatest else 'min'}"
            return self.intrinsic(name, [x, y])
        if not x.text.startswith("%"):  # a constant (not NaN): the other's NaN is the second operand
            return self.second(greatest, x, y)
        if not y.text.startswith("%"):
            return self.second(greatest, y, x)
        out = self.second(greatest, x, y)
        nan = Val(emit(f"fcmp uno {x.typed}, {x.text}"), BOOL, x.lanes)
        return self._choose(nan, x, out)

    def second(self, greatest: bool, x: Val, y: Val) -> Val:
        """x if it is greater (less) than y, else y, which it is too if either is NaN."""
        found = self.isa.extreme(greatest, x.dtype, x.lanes)
        if found is not None:
            name, extra = found
            types = [x.type, x.type, *(e.split()[0] for e in extra)]
            self.b.module.declare(name, x.type, *types)
            more = "".join(f", {e}" for e in extra)
            return Val(self.b.emit(f"call {x.type} @{name}({x.typed}, {y.typed}{more})"), x.dtype, x.lanes)
        c = self.b.emit(f"fcmp {'ogt' if greatest else 'olt'} {x.typed}, {y.text}")
        return self._choose(Val(c, BOOL, x.lanes), x, y)

    def intrinsic(self, name: str, args: list[Val]) -> Val:
        """An LLVM intrinsic overloaded on its one type."""
        x = args[0]
        full = f"{name}.{type_suffix(scalar_type(x.dtype), x.lanes)}"
        self.b.module.declare(full, x.type, *(a.type for a in args))
        text = f"call {x.type} @{full}({', '.join(a.typed for a in args)})"
        return Val(self.b.emit(text), x.dtype, x.lanes)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        lanes = max(x.lanes, y.lanes, z.lanes)
        return self.intrinsic("llvm.fma", [self.widen(v, lanes) for v in (x, y, z)])

    def call(self, name: str, args: list[Val], dtype: DType) -> Val:
        """A primitive function."""
        emit, x = self.b.emit, args[0]
        if name in _SIMPLE and dtype.is_float:
            return self.intrinsic(f"llvm.{_SIMPLE[name]}", args)
        if name == "neg":
            if dtype.is_float:
                return Val(emit(f"fneg {x.typed}"), dtype, x.lanes)
            return self.binary(n.Sub, constant(0, dtype, x.lanes), x)
        if name == "abs":
            return self._extreme(True, x, self.call("neg", [x], dtype)) if dtype.kind == "i" else x
        if name == "is_nan":
            return Val(emit(f"fcmp uno {x.typed}, {x.text}"), BOOL, x.lanes)
        if name == "is_inf":
            top = constant(float("inf"), x.dtype, x.lanes)
            size = self.intrinsic("llvm.fabs", [x])
            return Val(emit(f"fcmp oeq {size.typed}, {top.text}"), BOOL, x.lanes)
        if name == "bitcast":
            target = Val("", dtype, x.lanes).type
            return x if target == x.type else Val(emit(f"bitcast {x.typed} to {target}"), dtype, x.lanes)
        if name in _BITS:
            return Val(emit(f"{_BITS[name]} {x.typed}, {args[1].text}"), dtype, x.lanes)
        if name == "shift_right":
            how = "ashr" if x.dtype.kind == "i" else "lshr"
            return Val(emit(f"{how} {x.typed}, {args[1].text}"), dtype, x.lanes)
        if name == "bit_not":
            return Val(emit(f"xor {x.typed}, {constant(-1 if dtype is not BOOL else True, dtype, x.lanes).text}"), dtype, x.lanes)
        if name in ("max_second", "min_second"):
            return self.second(name == "max_second", x, args[1])
        raise CodegenError(f"the function {name} has no code for {dtype}", op="llvm")

    # --------------------------------------------------------------------------- conversions

    def convert(self, v: Val, dtype: DType) -> Val:
        """A value in another dtype."""
        source, emit = v.dtype, self.b.emit
        if source is dtype:
            return v
        if dtype is BOOL:
            if source.is_float:
                zero = constant(0.0, source, v.lanes)
                return Val(emit(f"fcmp une {v.typed}, {zero.text}"), BOOL, v.lanes)
            zero = constant(0, source, v.lanes)
            return Val(emit(f"icmp ne {v.typed}, {zero.text}"), BOOL, v.lanes)
        if source is BOOL and dtype.is_float:
            return self._choose(v, constant(1.0, dtype, v.lanes), constant(0.0, dtype, v.lanes))
        if {source, dtype} == {F16, BF16} or (source.bits == 64 and dtype in (F16, BF16) and source.is_float):
            v, source = self.convert(v, F32), F32
        target = Val("", dtype, v.lanes).type
        how = _conversion(source, dtype)
        if how is None:
            return Val(v.text, dtype, v.lanes)
        if how.startswith("llvm."):
            full = f"{how}.{type_suffix(scalar_type(dtype), v.lanes)}.{type_suffix(scalar_type(source), v.lanes)}"
            self.b.module.declare(full, target, v.type)
            return Val(emit(f"call {target} @{full}({v.typed})"), dtype, v.lanes)
        return Val(emit(f"{how} {v.typed} to {target}"), dtype, v.lanes)


def _conversion(source: DType, target: DType) -> str | None:
    if source.is_float and target.is_float:
        return "fpext" if target.bits > source.bits else "fptrunc"
    if source.is_float:  # saturating: defined for every value, NaN gives 0
        return f"llvm.fpto{'s' if target.kind == 'i' else 'u'}i.sat"
    if target.is_float:
        return "sitofp" if source.kind == "i" else "uitofp"
    if source is BOOL:
        return "zext"
    if target.bits == source.bits:
        return None
    return "trunc" if target.bits < source.bits else "sext" if source.kind == "i" else "zext"


def _compare(e: Compare, signed: bool) -> str:
    if isinstance(e, n.Eq):
        return "eq"
    if isinstance(e, n.Ne):
        return "ne"
    return ("s" if signed else "u") + ("lt" if isinstance(e, n.Lt) else "le")
