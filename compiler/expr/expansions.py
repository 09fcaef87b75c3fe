"""Scalar functions written as arithmetic, for f32 and f64: exponentials, logarithms, powers.

All are branch-free and made for vectors: fused multiply-add, integer steps on the bits, no tables.
``fma`` is explicit, and nothing may be contracted or reassociated. What recurs:

- Adding 1.5 * 2^23 (f32) rounds to an integer ``k``, which then stands in the low bits. Subtracting
  the constant again gives ``k`` as a float; shifting the bits to the exponent's place gives 2^k,
  once the bias is part of the constant.
- ``max_second(bound, x)`` gives ``x`` for NaN: the order of operands keeps NaN through a clamp.
- Where a result is a sum, the part that carries the rounding errors is made the small one.

Unless it says otherwise, a function has IEEE 754's values at infinities, zeros and NaN, and its
subnormal results are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from planish.compiler.dtypes import F64, DType

from . import coefficients as c
from .coefficients import FORMATS, LOG2E, SINGLE, Format
from .nodes import Call, Const, Expr, any_of, cast, const, eq, le, lt, ne, select

INF: Final = math.inf
NAN: Final = math.nan


# -------------------------------------------------------------------------------------- notation


def fma(a: Expr, b: Expr | float, d: Expr | float) -> Expr:
    """a * b + d, rounded once."""
    t = a.dtype
    return Call("fma", (a, _expr(b, t), _expr(d, t)), t)


def _expr(x: Expr | float, dtype: DType) -> Expr:
    return x if isinstance(x, Expr) else const(x, dtype)


def unary(name: str, x: Expr) -> Expr:
    """A function that keeps the dtype."""
    return Call(name, (x,), x.dtype)


def neg(x: Expr) -> Expr:
    """-x."""
    return unary("neg", x)


def at_least(bound: float, x: Expr) -> Expr:
    """The greater of the two; NaN for NaN."""
    return Call("max_second", (const(bound, x.dtype), x), x.dtype)


def at_most(bound: float, x: Expr) -> Expr:
    """The lesser of the two; NaN for NaN."""
    return Call("min_second", (const(bound, x.dtype), x), x.dtype)


def copysign(x: Expr, sign: Expr | float) -> Expr:
    """|x| with that sign."""
    return Call("copysign", (x, _expr(sign, x.dtype)), x.dtype)


def bits(x: Expr, dtype: DType) -> Expr:
    """The bits of ``x`` as another dtype of the same width."""
    return x if x.dtype is dtype else Call("bitcast", (x,), dtype)


def bit(name: str, x: Expr, y: Expr | int) -> Expr:
    """``bit_and``, ``bit_or``, ``shift_left`` ... of two integers."""
    return Call(name, (x, _expr(y, x.dtype)), x.dtype)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial with these coefficients, lowest first."""
    out: Expr = const(coefficients[-1], x.dtype)
    for k in reversed(coefficients[:-1]):
        out = fma(out, x, k)
    return out


def split(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The same polynomial as two in x^2: half as long a chain. For where x^2 is there anyway."""
    z = x * x
    return fma(horner(z, coefficients[1::2]), x, horner(z, coefficients[::2]))


def format_of(x: Expr) -> Format:
    """What is known of the expression's dtype."""
    return FORMATS[x.dtype]


# ----------------------------------------------------------------------------------- exponentials


def _reduced(x: Expr, magic: float, sign: float = 1.0) -> tuple[Expr, Expr]:
    """For sign * x = k ln 2 + r: r, and ``magic`` + k as an integer in the low bits."""
    f = format_of(x)
    high, low = f.ln2
    t = fma(x, sign * LOG2E, magic)
    k = t - magic
    r = fma(k, -high, x if sign > 0 else neg(x))
    return fma(k, -low, r), bits(t, f.unsigned)


def _exp(r: Expr) -> Expr:
    """e^r for a reduced r."""
    return horner(r, (1.0, 1.0, *format_of(r).exp))


def _power(i: Expr, f: Format) -> Expr:
    """The float whose exponent, with the bias, is in the low bits of ``i``."""
    return bits(bit("shift_left", i, f.mantissa), f.dtype)


def _halves(i: Expr, f: Format) -> tuple[Expr, Expr]:
    """Two floats of product 2^k, for ``i`` = magic + 2 bias + k: for k beyond the exponents too."""
    half = bit("shift_right", i, 1)
    return _power(half, f), _power(i - half, f)


def exp(x: Expr) -> Expr:
    """2^k e^r, with 2^k in two factors: right through subnormals to 0 and inf."""
    f = format_of(x)
    r, i = _reduced(at_most(f.overflow, at_least(f.underflow, x)), f.magic + 2 * f.bias)
    a, b = _halves(i, f)
    return _exp(r) * a * b


def exp_nonpositive(x: Expr) -> Expr:
    """e^x for x <= 0; its factor 2^k is 0 for k = -bias, so below -87.68 (f64: -708.74) it is 0."""
    f = format_of(x)
    r, i = _reduced(at_least(-f.bias * 0.6931, x), f.magic + f.bias)
    return _exp(r) * _power(i, f)


def exp2(x: Expr) -> Expr:
    """2^k 2^r; 2^k itself for an integer k."""
    f = format_of(x)
    magic = f.magic + 2 * f.bias
    x = at_most(f.bias + 2.0, at_least(-f.bias - f.mantissa - 2.0, x))
    t = x + magic
    r = x - (t - magic)
    a, b = _halves(bits(t, f.unsigned), f)
    return horner(r, (1.0, *f.exp2)) * a * b


def _expm1(x: Expr, scale: int) -> Expr:
    """2^scale (e^x - 1) without cancellation, for x with 2^(k + scale) a normal number."""
    f = format_of(x)
    r, i = _reduced(x, f.magic + f.bias + scale)
    a = _power(i, f)
    return fma(fma(r * r, split(r, f.exp), r), a, a - 2.0**scale)


def expm1(x: Expr) -> Expr:
    """Of half the size, and doubled: e^x may have an exponent beyond the largest."""
    f = format_of(x)
    clamped = at_most(f.overflow, at_least(-f.mantissa - 3.0, x))
    return copysign(_expm1(clamped, -1) * 2.0, x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), where e^-x is 0 for x > 87.68 and inf for x < -88.37."""
    f = format_of(x)
    bound = f.bias * 0.6931
    r, i = _reduced(at_most(bound, at_least(-bound - 0.7, x)), f.magic + f.bias, -1.0)
    return const(1.0, f.dtype) / fma(_exp(r), _power(i, f), 1.0)


def softplus(x: Expr) -> Expr:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)."""
    e = exp_nonpositive(copysign(x, -1.0))
    return at_least(0.0, x) + _log1p(e)


def tanh(x: Expr) -> Expr:
    """f32: x / 8 + x p(x^2) / q(x^2); f64: e / (e + 2) for e = e^2x - 1."""
    if x.dtype is F64:
        size = at_most(22.0, unary("abs", x))
        e = _expm1(size + size, 0)
        return copysign(e / (e + 2.0), x)
    a = at_most(9.02, at_least(-9.02, x))
    z = a * a
    return fma(a, horner(z, c.TANH_P) / horner(z, c.TANH_Q), a * 0.125)


def sinh(x: Expr) -> Expr:
    """With h = (e^|x| - 1) / 4: 2 (h + h / (4 h + 1))."""
    f = format_of(x)
    h = _expm1(at_most(f.overflow + 0.5, unary("abs", x)), -2)
    h = h + h / fma(h, 4.0, 1.0)
    return copysign(h + h, x)


def cosh(x: Expr) -> Expr:
    """With p = e^|x| / 4: 2 p + 1 / (8 p)."""
    f = format_of(x)
    r, i = _reduced(at_most(f.overflow + 0.5, unary("abs", x)), f.magic + f.bias - 2)
    p = _exp(r) * _power(i, f)
    return fma(p, 2.0, const(0.125, f.dtype) / p)


def erf(x: Expr) -> Expr:
    """f32: a polynomial below 47/32 and one above; f64: one below 1, and 1 - erfc above."""
    if x.dtype is F64:
        return _erf_double(x)
    a = unary("abs", x)
    near = fma(x, horner(x * x, c.ERF_NEAR), x)
    far = horner(at_most(3.925, a) - 3.25, c.ERF_FAR)
    return select(lt(a, 1.46875), near, copysign(far, x))


def _erf_double(x: Expr) -> Expr:
    a = unary("abs", x)
    near = fma(x, horner(x * x, c.ERF_NEAR_DOUBLE), x)
    a = at_most(5.95, a)
    erfcx = horner((a - 3.0) / (a + 3.0), c.ERFCX_DOUBLE)
    far = fma(neg(exp_nonpositive(neg(a * a))), erfcx, 1.0)
    return select(lt(a, 1.0), near, copysign(far, x))


# ------------------------------------------------------------------------------------- logarithms


def _exponent(x: Expr, least: int, more: Expr) -> tuple[Expr, Expr]:
    """For x = 2^k m, m from the float of bits ``least`` on: k + ``more``, and k << 23 (52)."""
    f = format_of(x)
    if f is SINGLE:
        e = bit("bit_and", bits(x, f.signed) - least, -1 << f.mantissa)
        return fma(cast(e, f.dtype), 2.0**-f.mantissa, more), e
    biased = bit("shift_right", bits(x, f.unsigned) + ((1024 << 52) - least), 52)
    k = bits(bit("bit_or", biased, 0x433 << 52), f.dtype) - (2.0**52 + 1024)
    return k + more, bit("shift_left", biased - 1024, 52)


def _split(x: Expr, least: int) -> tuple[Expr, Expr]:
    """x = 2^k (1 + f), 1 + f from ``least`` on: k as a float, and f. For finite x > 0."""
    f = format_of(x)
    small = lt(x, f.tiny)
    normal = select(small, x * 2.0**f.mantissa, x)
    more = select(small, const(-f.mantissa, f.dtype), const(0.0, f.dtype))
    k, e = _exponent(normal, least, more)
    return k, bits(bits(normal, e.dtype) - e, f.dtype) - 1.0


def _log(k: Expr, y: Expr) -> Expr:
    """k ln 2 + log(1 + y)."""
    f = format_of(y)
    if f is SINGLE:
        z = y * y
        return fma(k, f.ln2[0], fma(z, fma(y, split(y, c.LOG), -0.5), y))
    s = y / (y + 2.0)
    z = s * s
    half = y * y * 0.5
    tail = fma(s, fma(z, horner(z, c.LOG_DOUBLE), half), k * f.ln2[1])
    return fma(k, f.ln2[0], y - (half - tail))


def _log_ends(x: Expr, pole: float, y: Expr) -> Expr:
    """``y``, right for finite x > pole, completed: -inf at the pole, NaN below, inf at inf."""
    t = x.dtype
    y = select(lt(x, INF), y, x)
    outside = select(eq(x, pole), const(-INF, t), const(NAN, t))
    return select(le(x, pole), outside, y)


def log(x: Expr) -> Expr:
    """For x = 2^k (1 + f): the sum of k ln 2 and that of 1 + f."""
    return _log_ends(x, 0.0, _log(*_split(x, format_of(x).log_from)))


def log2(x: Expr) -> Expr:
    """Exact for powers of two."""
    k, f = _split(x, format_of(x).log_from)
    return _log_ends(x, 0.0, fma(_log(const(0.0, x.dtype), f), LOG2E, k))


def _log1p(x: Expr, more: Expr | float = 0.0) -> Expr:
    """log(1 + x) for finite x > -1, plus ``more`` ln 2."""
    f = format_of(x)
    k, e = _exponent(x + 1.0, f.log_from, _expr(more, f.dtype))
    shrunk = bits(bits(x, e.dtype) - e, f.dtype)  # x 2^-k
    four = bits(const((f.bias + 2) << f.mantissa, e.dtype) - e, f.dtype)  # 4 * 2^-k
    return _log(k, shrunk + fma(four, 0.25, -1.0))


def log1p(x: Expr) -> Expr:
    """As log, with 1 + x = 2^k (1 + f) and f from x itself, not from the rounded 1 + x."""
    return copysign(_log_ends(x, -1.0, _log1p(x)), x)


def asinh(x: Expr) -> Expr:
    """log(1 + a + a^2 / (1 + sqrt(1 + a^2))) for a = |x|; log(2 a) where a^2 is large."""
    t = x.dtype
    a = unary("abs", x)
    square = a * a
    large = lt(2.0**30, a)
    near = a + square / (unary("sqrt", square + 1.0) + 1.0)
    y = _log1p(select(large, a - 1.0, near), select(large, const(1.0, t), const(0.0, t)))
    return copysign(select(lt(a, INF), y, a), x)


def acosh(x: Expr) -> Expr:
    """log(1 + u + sqrt(u^2 + 2 u)) for u = x - 1; log(2 x) where u^2 is large; NaN below 1."""
    t = x.dtype
    u = x - 1.0
    large = lt(2.0**30, x)
    near = u + unary("sqrt", fma(u, u, u + u))
    y = _log1p(select(large, u, near), select(large, const(1.0, t), const(0.0, t)))
    return select(lt(x, 1.0), const(NAN, t), select(lt(x, INF), y, x))


def atanh(x: Expr) -> Expr:
    """log(1 + 2 a / (1 - a)) / 2 for a = |x|."""
    a = unary("abs", x)
    u = (a + a) / (const(1.0, x.dtype) - a)
    y = select(lt(u, INF), _log1p(u), u)
    return copysign(select(le(a, 1.0), y * 0.5, const(NAN, x.dtype)), x)


# ----------------------------------------------------------------------------------------- powers


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x)."""
    return const(1.0, x.dtype) / unary("sqrt", x)


def _log2_sum(x: Expr) -> tuple[Expr, Expr]:
    """log2 x as a sum of two, for finite x > 0.

    With s = f / (2 + f) it is k + 2 s / ln 2 + ...: that term is kept to twice the bits.
    """
    form = format_of(x)
    k, f = _split(x, form.root_half)
    high, low = form.two_over_ln2
    d = f + 2.0
    inverse = const(1.0, form.dtype) / d
    s = f * inverse
    rest = fma(neg(s), d, f)
    rest = fma(neg(s), f - (d - 2.0), rest) * inverse  # f / (2 + f) - s
    z = s * s
    p = s * high
    q = fma(s, high, neg(p))
    q = fma(s, low, fma(rest, fma(z, high, high), q))  # 2 / ln 2 / (1 - z) is the slope
    cube = s * z
    if form is SINGLE:
        term = cube * horner(z, form.log2_tail)
    else:
        term, low_term = _cubic(s, z, cube)
        q = q + low_term
    p, lost = _sum(p, term)
    q = q + lost
    total, lost = _sum(k, p)
    return total, lost + q


def _sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b, and what rounding lost of it; for |a| >= |b|, or a = 0."""
    total = a + b
    return total, (a - total) + b


def _cubic(s: Expr, z: Expr, cube: Expr) -> tuple[Expr, Expr]:
    """The terms from s^3 on as a sum of two."""
    form = format_of(s)
    high, low = form.two_thirds_over_ln2
    cube_low = fma(s, fma(s, s, neg(z)), fma(s, z, neg(cube)))
    term = cube * high
    term_low = fma(cube, low, fma(cube_low, high, fma(cube, high, neg(term))))
    return _sum(term, fma(cube * z, horner(z, form.log2_tail), term_low))


def pow(x: Expr, y: Expr) -> Expr:
    """2^(y log2 |x|), the logarithm to twice the bits; then the sign and the cases of IEEE 754.

    A constant y of 1, 2, 3, 4, -1, -2 or 1/2 becomes products, a quotient or a root.
    """
    if isinstance(y, Const) and (simple := _pow_constant(x, float(y.value))) is not None:
        return simple
    f = format_of(x)
    t = f.dtype
    size = unary("abs", x)
    high, low = _log2_sum(size)
    high = select(lt(size, INF), high, size)  # inf, and NaN for NaN
    high = select(eq(x, 0.0), const(-INF, t), high)
    limit = 4.0 * f.bias
    y = at_most(f.overflow * 2.0**100, at_least(-f.overflow * 2.0**100, y))  # finite: 0 * y is 0
    p = y * high
    rest = fma(y, low, fma(y, high, neg(p)))
    rest = select(lt(unary("abs", p), limit), rest, const(0.0, t))
    p = at_most(limit / 2, at_least(-limit / 2, p))
    magic = f.magic + 2 * f.bias
    u = p + magic
    r = (p - (u - magic)) + rest
    i = bits(u, f.unsigned)
    a, b = _halves(i, f)
    return _pow_ends(x, y, horner(r, (1.0, *f.exp2)) * a * b)


def _pow_ends(x: Expr, y: Expr, power: Expr) -> Expr:
    """``power`` = |x|^y with the sign of x for odd y, NaN for x < 0 and broken y; x^0 = 1^y = 1."""
    f = format_of(x)
    t = f.dtype
    half = y * 0.5
    whole = eq(unary("trunc", y), y)
    odd = whole & ne(unary("trunc", half), half)
    sign = bit("bit_and", bits(x, f.unsigned), 1 << (t.bits - 1))
    sign = select(odd, sign, const(0, f.unsigned))
    out = bits(bit("bit_or", bits(power, f.unsigned), sign), t)
    broken = lt(x, 0.0) & lt(-INF, x) & ne(unary("trunc", y), y)
    out = select(broken, const(NAN, t), out)
    return select(any_of(eq(x, 1.0), eq(y, 0.0)), const(1.0, t), out)


def _pow_constant(x: Expr, y: float) -> Expr | None:
    one = const(1.0, x.dtype)
    if y == 0.5:  # -0 gives 0, -inf gives inf
        return select(eq(x, -INF), const(INF, x.dtype), unary("sqrt", x) + 0.0)
    match y:
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 4.0:
            return (x * x) * (x * x)
        case -1.0:
            return one / x
        case -2.0:
            return (one / x) * (one / x)
        case _:
            return None
