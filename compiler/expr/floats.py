"""Arithmetic of floats, and of narrow integers, by laws that hold for every bit pattern.

Each law is right for NaN, infinities, both zeros and every rounding: ``x + 0.0`` is not ``x`` (it
turns -0.0 into 0.0), ``x * 0.0`` is not 0.0, ``x - x`` is not 0.0, and sums are never reassociated.
"""

from __future__ import annotations

import math
from typing import Final

from planish.compiler.dtypes import I64

from .intervals import Facts
from .nodes import Add, Call, Const, Div, Expr, Mul, Sub, add, const, mul, neg, sub
from .rewrite import RuleSet

FLOATS: Final[RuleSet[Facts]] = RuleSet("floats")


def _is(e: Expr, value: float) -> bool:
    """A float constant of that value and sign."""
    return (
        isinstance(e, Const)
        and e.type.is_float
        and e.value == value
        and math.copysign(1.0, e.value) == math.copysign(1.0, value)
    )


def _negated(e: Expr) -> Expr | None:
    """x, if the expression is neg(x)."""
    match e:
        case Call("neg", (x,), dtype) if dtype.is_float:
            return x
        case _:
            return None


@FLOATS.rule(Mul)
def times_one(e: Expr) -> Expr | None:
    """a * f32(1.0) -> a"""
    match e:
        case Mul(x, y) if _is(y, 1.0):
            return x
        case Mul(x, y) if _is(x, 1.0):
            return y
        case _:
            return None


@FLOATS.rule(Mul)
def times_minus_one(e: Expr) -> Expr | None:
    """a * f32(-1.0) -> neg(a)"""
    match e:
        case Mul(x, y) if _is(y, -1.0):
            return neg(x)
        case Mul(x, y) if _is(x, -1.0):
            return neg(y)
        case _:
            return None


@FLOATS.rule(Sub)
def minus_zero(e: Expr) -> Expr | None:
    """a - f32(0.0) -> a"""
    match e:
        case Sub(x, y) if _is(y, 0.0):
            return x
        case _:
            return None


@FLOATS.rule(Add)
def plus_minus_zero(e: Expr) -> Expr | None:
    """a + f32(-0.0) -> a"""
    match e:
        case Add(x, y) if _is(y, -0.0):
            return x
        case Add(x, y) if _is(x, -0.0):
            return y
        case _:
            return None


@FLOATS.rule(Div)
def over_power_of_two(e: Expr) -> Expr | None:
    """a / f32(4.0) -> a * f32(0.25)"""
    match e:
        case Div(x, Const(float(c), dtype)) if dtype.is_float and c and math.isfinite(c):
            inverse = const(1 / c, dtype)
            if abs(math.frexp(c)[0]) == 0.5 and inverse.value == 1 / c:
                return mul(x, inverse)
    return None


@FLOATS.rule(Call)
def neg_neg(e: Expr) -> Expr | None:
    """neg(neg(a)) -> a"""
    x = _negated(e)
    return None if x is None else _negated(x)


@FLOATS.rule(Call)
def neg_constant(e: Expr) -> Expr | None:
    """neg(f32(2.0)) -> f32(-2.0)"""
    match _negated(e):
        case Const(float(c), dtype):
            return Const(-c, dtype)
        case _:
            return None


@FLOATS.rule(Sub)
def minus_neg(e: Expr) -> Expr | None:
    """a - neg(b) -> a + b"""
    match e:
        case Sub(x, y) if (z := _negated(y)) is not None:
            return add(x, z)
        case _:
            return None


@FLOATS.rule(Add)
def plus_neg(e: Expr) -> Expr | None:
    """a + neg(b) -> a - b"""
    match e:
        case Add(x, y) if (z := _negated(y)) is not None:
            return sub(x, z)
        case Add(x, y) if (z := _negated(x)) is not None:
            return sub(y, z)
        case _:
            return None


@FLOATS.rule(Mul)
def neg_times_neg(e: Expr) -> Expr | None:
    """neg(a) * neg(b) -> a * b"""
    match e:
        case Mul(x, y) if (p := _negated(x)) is not None and (q := _negated(y)) is not None:
            return mul(p, q)
        case _:
            return None


@FLOATS.rule(Mul)
def neg_times_constant(e: Expr) -> Expr | None:
    """neg(a) * f32(2.0) -> a * f32(-2.0)"""
    match e:
        case Mul(x, Const(float(c), dtype)) if (p := _negated(x)) is not None:
            return mul(p, Const(-c, dtype))
        case Mul(Const(float(c), dtype), x) if (p := _negated(x)) is not None:
            return mul(p, Const(-c, dtype))
        case _:
            return None


@FLOATS.rule(Add)
def add_constants(e: Expr) -> Expr | None:
    """u + i32(3) + i32(4) -> u + i32(7)"""
    match e:
        case Add(Add(x, Const() as c), Const() as d) if x.dtype.is_int:
            return add(x, add(c, d))
        case Add(Const() as c, x) if x.dtype.is_int and not isinstance(x, Const):
            return add(x, c)
        case _:
            return None


@FLOATS.rule(Sub)
def sub_constant(e: Expr) -> Expr | None:
    """u - i32(3) -> u + i32(-3)"""
    match e:
        case Sub(x, Const(c, dtype)) if dtype.is_int and dtype is not I64:
            return add(x, const(-c, dtype))
        case _:
            return None


@FLOATS.rule(Mul)
def mul_constants(e: Expr) -> Expr | None:
    """u * i32(3) * i32(4) -> u * i32(12)"""
    match e:
        case Mul(Mul(x, Const() as c), Const() as d) if x.dtype.is_int:
            return mul(x, mul(c, d))
        case Mul(Const() as c, x) if x.dtype.is_int and not isinstance(x, Const):
            return mul(x, c)
        case _:
            return None
