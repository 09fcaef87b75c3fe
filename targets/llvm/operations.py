"""Arithmetic on values in registers, scalars and vectors alike.

Floats below float32 and integers of fewer than 8 bits are kept as their bits and computed with in
another type (``DType.computed``): each operation rounds to the type, as its meaning demands, and
copies are exact on every CPU. Complex numbers are their bits, too, and only moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planish.compiler.dtypes import BOOL, F32, F64, U8, DType
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Binary, Compare, Scalar

from .builder import Builder
from .isa import Isa
from .values import Val, constant, is_nan, lanes_type, scalar_type, type_suffix

_WRAP: Final = {n.Add: "add", n.Sub: "sub", n.Mul: "mul"}
_FLOAT: Final = {n.Add: "fadd", n.Sub: "fsub", n.Mul: "fmul", n.Div: "fdiv"}
LOGIC: Final = {n.And: "and", n.Or: "or"}
_FCMP: Final = {n.Eq: "oeq", n.Ne: "une", n.Lt: "olt", n.Le: "ole"}
_SIMPLE: Final = {"sqrt": "sqrt", "abs": "fabs", "copysign": "copysign"}
_ROUND: Final = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "roundeven"}
_BITS: Final = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
_SHIFTS: Final = ("shift_left", "shift_right")


def low(dtype: DType) -> bool:
    """Whether a value is computed with in another type."""
    return dtype.computed is not dtype


class Operations:
    """Emits operations into the present block."""

    def __init__(self, builder: Builder, isa: Isa) -> None:
        self.b, self.isa = builder, isa

    def convert(self, v: Val, dtype: DType) -> Val:
        """A value in another dtype."""
        raise NotImplementedError

    def widened(self, *values: Val) -> list[Val]:
        """Values in the type that theirs is computed in."""
        return [self.convert(v, v.dtype.computed) for v in values]

    def choose(self, c: Val, x: Val, y: Val) -> Val:
        """x where c holds, else y."""
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

    def compare(self, kind: type[Compare], x: Val, y: Val) -> Val:
        """A comparison of two values of one type."""
        if x.dtype.kind == "c":
            raise CodegenError(f"{kind.symbol} is not defined for {x.dtype}", op="llvm")
        if low(x.dtype):
            x, y = self.widened(x, y)
        if x.dtype.is_float:
            text = f"fcmp {_FCMP[kind]} {x.typed}, {y.text}"
        else:
            text = f"icmp {integer_test(kind, x.dtype.kind == 'i')} {x.typed}, {y.text}"
        return Val(self.b.emit(text), BOOL, x.lanes)

    def binary(self, kind: type[Binary], x: Val, y: Val) -> Val:
        """An operation on two values of one type."""
        t = x.dtype
        if t.kind == "c":
            raise CodegenError(f"{kind.symbol} is not defined for {t}", op="llvm")
        if low(t):
            return self.convert(self.binary(kind, *self.widened(x, y)), t)
        emit = self.b.emit
        if kind is n.Min or kind is n.Max:
            return self._extreme(kind is n.Max, x, y)
        if kind in LOGIC:
            return Val(emit(f"{LOGIC[kind]} {x.typed}, {y.text}"), t, x.lanes)
        if t.is_float:
            if kind not in _FLOAT:
                raise CodegenError(f"{kind.symbol} is not defined for {t}", op="llvm")
            return Val(emit(f"{_FLOAT[kind]} {x.typed}, {y.text}"), t, x.lanes)
        if kind in _WRAP:
            return Val(emit(f"{_WRAP[kind]} {x.typed}, {y.text}"), t, x.lanes)
        return self._divide(kind, x, y)

    def _divide(self, kind: type[Binary], x: Val, y: Val) -> Val:
        """Integer division; by zero it gives zero."""
        emit, t, lanes = self.b.emit, x.dtype, x.lanes
        one, none = constant(1, t, lanes), constant(0, t, lanes)
        if y.text == none.text:
            return none
        if not y.text.startswith(("%", "<")):
            return self._divide_defined(kind, x, y)
        zero = Val(emit(f"icmp eq {y.typed}, {none.text}"), BOOL, lanes)
        y = self.choose(zero, one, y)
        if t.kind == "i":  # the one quotient that overflows
            least, minus = constant(t.min, t, lanes), constant(-1, t, lanes)
            a = emit(f"icmp eq {x.typed}, {least.text}")
            b = emit(f"icmp eq {y.typed}, {minus.text}")
            both = emit(f"and {lanes_type('i1', lanes)} {a}, {b}")
            y = self.choose(Val(both, BOOL, lanes), one, y)
        found = self._divide_defined(kind, x, y)
        return found if kind is n.FloorMod else self.choose(zero, none, found)

    def _divide_defined(self, kind: type[Binary], x: Val, y: Val) -> Val:
        """Integer division that cannot trap."""
        emit, t, lanes = self.b.emit, x.dtype, x.lanes
        if t.kind == "u":
            how = "urem" if kind is n.FloorMod else "udiv"
            return Val(emit(f"{how} {x.typed}, {y.text}"), t, lanes)
        quotient = Val(emit(f"sdiv {x.typed}, {y.text}"), t, lanes)
        if kind is n.Div:
            return quotient
        rem = Val(emit(f"srem {x.typed}, {y.text}"), t, lanes)
        zero = constant(0, t, lanes).text
        nonzero = emit(f"icmp ne {rem.typed}, {zero}")
        signs = emit(f"xor {rem.typed}, {y.text}")
        differ = emit(f"icmp slt {rem.type} {signs}, {zero}")
        adjust = Val(emit(f"and {lanes_type('i1', lanes)} {nonzero}, {differ}"), BOOL, lanes)
        if kind is n.FloorMod:
            return self.choose(adjust, Val(emit(f"add {rem.typed}, {y.text}"), t, lanes), rem)
        less = Val(emit(f"sub {quotient.typed}, {constant(1, t, lanes).text}"), t, lanes)
        return self.choose(adjust, less, quotient)

    def _extreme(self, greatest: bool, x: Val, y: Val) -> Val:
        """Minimum or maximum; NaN if either is NaN."""
        emit, t = self.b.emit, x.dtype
        if t is BOOL:
            return Val(emit(f"{'or' if greatest else 'and'} {x.typed}, {y.text}"), t, x.lanes)
        if not t.is_float:
            sign = "s" if t.kind == "i" else "u"
            name = f"llvm.{sign}{'max' if greatest else 'min'}"
            return self.intrinsic(name, [x, y])
        for a, b in ((x, y), (y, x)):
            if not a.text.startswith(
                "%"
            ):  # a constant; if the other is NaN, so is the second operand
                return a if is_nan(a) else self.second(greatest, a, b)
        out = self.second(greatest, x, y)
        nan = Val(emit(f"fcmp uno {x.typed}, {x.text}"), BOOL, x.lanes)
        return self.choose(nan, x, out)

    def second(self, greatest: bool, x: Val, y: Val) -> Val:
        """x if it is greater (less) than y, else y, which it is too if either is NaN."""
        found = self.isa.extreme(greatest, x.dtype, x.lanes)
        if found is not None:
            name, extra = found
            types = [x.type, x.type, *(e.split()[0] for e in extra)]
            self.b.module.declare(name, x.type, *types)
            more = "".join(f", {e}" for e in extra)
            return Val(
                self.b.emit(f"call {x.type} @{name}({x.typed}, {y.typed}{more})"), x.dtype, x.lanes
            )
        if not x.dtype.is_float:
            return self.choose(self.compare(n.Lt, *((y, x) if greatest else (x, y))), x, y)
        c = self.b.emit(f"fcmp {'ogt' if greatest else 'olt'} {x.typed}, {y.text}")
        return self.choose(Val(c, BOOL, x.lanes), x, y)

    def intrinsic(self, name: str, args: list[Val]) -> Val:
        """An LLVM intrinsic overloaded on its one type."""
        x = args[0]
        full = f"{name}.{type_suffix(scalar_type(x.dtype), x.lanes)}"
        t = x.type
        if full not in self.b.module.declared:
            self.b.module.declare(full, t, *[a.type for a in args])
        text = f"call {t} @{full}({', '.join([a.typed for a in args])})"
        return Val(self.b.emit(text), x.dtype, x.lanes)

    # ------------------------------------------------------------------------- multiply-add

    def accumulate(self, x: Val, y: Val, z: Val) -> Val:
        """x * y + z, rounded once or twice: as is faster."""
        if self.isa.fma or low(x.dtype):
            return self.fma(x, y, z)
        lanes = max(x.lanes, y.lanes, z.lanes)
        x, y, z = (self.widen(v, lanes) for v in (x, y, z))
        return self.binary(n.Add, self.binary(n.Mul, x, y), z)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """x * y + z, rounded once."""
        lanes, t = max(x.lanes, y.lanes, z.lanes), x.dtype
        x, y, z = (self.widen(v, lanes) for v in (x, y, z))
        if low(t):  # the product is exact in float32
            return self.convert(self.accumulate(*self.widened(x, y, z)), t)
        if self.isa.fma:
            return self.intrinsic("llvm.fma", [x, y, z])
        if t is F32:
            wide = [self.convert(v, F64) for v in (x, y, z)]
            return self.convert(self.accumulate(*wide), F32)
        return self._fma_by_parts(x, y, z)

    def _fma_by_parts(self, x: Val, y: Val, z: Val) -> Val:
        """In float64, by the errors of product and sum (Dekker 1971); plain if parts overflow."""
        mul, add, sub = (self._operation(k) for k in (n.Mul, n.Add, n.Sub))
        split = constant(134217729.0, F64, x.lanes)

        def halves(v: Val) -> tuple[Val, Val]:
            c = mul(v, split)
            high = sub(c, sub(c, v))
            return high, sub(v, high)

        p = mul(x, y)
        (a, b), (c, d) = halves(x), halves(y)
        error = add(add(add(sub(mul(a, c), p), mul(a, d)), mul(b, c)), mul(b, d))
        s = add(p, z)
        back = sub(s, p)
        rest = add(sub(p, sub(s, back)), sub(z, back))
        out = add(s, add(rest, error))
        top = constant(float("inf"), F64, x.lanes)
        finite = self.compare(n.Lt, self.intrinsic("llvm.fabs", [out]), top)
        return self.choose(finite, out, s)

    def _operation(self, kind: type[Binary]) -> Callable[[Val, Val], Val]:
        return lambda x, y: self.binary(kind, x, y)

    # ---------------------------------------------------------------------------- functions

    def call(self, name: str, args: list[Val], dtype: DType) -> Val:
        """A primitive function."""
        emit, x = self.b.emit, args[0]
        if name == "bitcast":
            target = Val("", dtype, x.lanes).type
            if BOOL in (x.dtype, dtype) and x.dtype is not dtype:  # a bool is a bit here
                byte = Val(x.text, x.dtype if x.dtype is BOOL else U8, x.lanes)
                return Val(self.convert(byte, BOOL if dtype is BOOL else U8).text, dtype, x.lanes)
            text = x.text if target == x.type else emit(f"bitcast {x.typed} to {target}")
            return Val(text, dtype, x.lanes)
        if low(x.dtype):
            return self.convert(self.call(name, self.widened(*args), dtype.computed), dtype)
        if x.dtype.is_float:
            return self._float_call(name, args, dtype)
        if name == "neg":
            return self.binary(n.Sub, constant(0, dtype, x.lanes), x)
        if name == "abs":
            return self._extreme(True, x, self.call("neg", [x], dtype)) if dtype.kind == "i" else x
        if name in _BITS:
            return Val(emit(f"{_BITS[name]} {x.typed}, {args[1].text}"), dtype, x.lanes)
        if name in _SHIFTS:
            return self._shift(name == "shift_left", x, args[1])
        if name == "bit_not":
            ones = constant(True if dtype is BOOL else -1, dtype, x.lanes)
            return Val(emit(f"xor {x.typed}, {ones.text}"), dtype, x.lanes)
        if name in ("max_second", "min_second"):
            return self.second(name == "max_second", x, args[1])
        raise CodegenError(f"the function {name} has no code for {dtype}", op="llvm")

    def _float_call(self, name: str, args: list[Val], dtype: DType) -> Val:
        emit, x = self.b.emit, args[0]
        if name in _SIMPLE:
            return self.intrinsic(f"llvm.{_SIMPLE[name]}", args)
        if name in _ROUND:
            if self.isa.rounds:
                return self.intrinsic(f"llvm.{_ROUND[name]}", args)
            return self._rounded(name, x)
        if name == "fma":
            return self.fma(*args)
        if name == "neg":
            return Val(emit(f"fneg {x.typed}"), dtype, x.lanes)
        if name == "is_nan":
            return Val(emit(f"fcmp uno {x.typed}, {x.text}"), BOOL, x.lanes)
        if name == "is_inf":
            top = constant(float("inf"), x.dtype, x.lanes)
            return self.compare(n.Eq, self.intrinsic("llvm.fabs", [x]), top)
        if name in ("max_second", "min_second"):
            return self.second(name == "max_second", x, args[1])
        raise CodegenError(f"the function {name} has no code for {dtype}", op="llvm")

    def _shift(self, left: bool, x: Val, by: Val) -> Val:
        """A shift; by as many bits as there are, or more, every bit is shifted out."""
        t = x.dtype
        how = "shl" if left else "ashr" if t.kind == "i" else "lshr"
        if not by.text.startswith("%"):
            return Val(self.b.emit(f"{how} {x.typed}, {by.text}"), t, x.lanes)
        last = constant(t.bits - 1, t, x.lanes)
        fits = Val(self.b.emit(f"icmp ule {by.typed}, {last.text}"), BOOL, x.lanes)
        out = Val(self.b.emit(f"{how} {x.typed}, {self.choose(fits, by, last).text}"), t, x.lanes)
        return out if how == "ashr" else self.choose(fits, out, constant(0, t, x.lanes))

    def _rounded(self, name: str, x: Val) -> Val:
        """To an integer without an instruction for it: beyond 2^23 (2^52) every float is one."""
        t = x.dtype
        magic = constant(2.0 ** (23 if t is F32 else 52), t, x.lanes)
        size = self.intrinsic("llvm.fabs", [x])
        near = self.binary(n.Sub, self.binary(n.Add, size, magic), magic)
        one = constant(1.0, t, x.lanes)
        if name == "trunc":
            near = self._stepped(near, n.Sub, one, self.compare(n.Lt, size, near))
        out = self.choose(self.compare(n.Lt, size, magic), near, size)
        out = self.intrinsic("llvm.copysign", [out, x])
        if name == "floor":
            out = self._stepped(out, n.Sub, one, self.compare(n.Lt, x, out))
        elif name == "ceil":
            out = self._stepped(out, n.Add, one, self.compare(n.Lt, out, x))
            out = self.intrinsic("llvm.copysign", [out, x])
        return out

    def _stepped(self, x: Val, kind: type[Binary], step: Val, where: Val) -> Val:
        return self.choose(where, self.binary(kind, x, step), x)


def integer_test(kind: type[Compare], signed: bool) -> str:
    """How LLVM calls a comparison of integers."""
    if kind is n.Eq:
        return "eq"
    if kind is n.Ne:
        return "ne"
    return ("s" if signed else "u") + ("lt" if kind is n.Lt else "le")


__all__ = ["LOGIC", "Operations", "Scalar", "integer_test", "low"]
