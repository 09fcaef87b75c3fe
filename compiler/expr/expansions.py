"""Scalar functions written as arithmetic: the f32 expansions behind ``functions.FUNCTIONS``.

All are branch-free and made for vectors: fused multiply-add, integer steps on the bits, no tables.
``fma`` is explicit, and nothing may be contracted or reassociated. The tricks that recur:

- Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits: ``k`` is read off with a
  subtraction, and the bits shifted left by 23 are 2^k once the bias is in the constant (`ROUND`).
- ``max_second(bound, x)`` gives ``x`` for NaN: the order of operands keeps NaN through a clamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..dtypes import F32, F64, I32, I64, DType
from .nodes import Call, Expr, any_of, cast, const, eq, lt, ne, select

LOG2E: Final = 1.4426950408889634
LN2_HI, LN2_LO = 0.693359375, -2.12194440e-4
MAGIC: Final = 12582912.0
ROUND: Final = MAGIC + 127


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    """a * b + c, rounded once."""
    t = a.dtype
    b = b if isinstance(b, Expr) else const(b, t)
    return Call("fma", (a, b, c if isinstance(c, Expr) else const(c, t)), t)


def unary(name: str, x: Expr) -> Expr:
    return Call(name, (x,), x.dtype)


def at_least(bound: float, x: Expr) -> Expr:
    """The greater of the two; NaN for NaN."""
    return Call("max_second", (const(bound, x.dtype), x), x.dtype)


def at_most(bound: float, x: Expr) -> Expr:
    """The lesser of the two; NaN for NaN."""
    return Call("min_second", (const(bound, x.dtype), x), x.dtype)


def copysign(x: Expr, sign: Expr) -> Expr:
    return Call("copysign", (x, sign), x.dtype)


def bits(x: Expr, dtype: DType) -> Expr:
    """The bits of ``x`` as another dtype of the same width."""
    return Call("bitcast", (x,), dtype)


def shift_left(x: Expr, n: int) -> Expr:
    return Call("shift_left", (x, const(n, x.dtype)), x.dtype)


def shift_right(x: Expr, n: int) -> Expr:
    return Call("shift_right", (x, const(n, x.dtype)), x.dtype)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial with these coefficients, lowest first."""
    out: Expr = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        out = fma(out, x, c)
    return out


# ----------------------------------------------------------------------------------- exponentials

# e^r = 1 + r + r^2 p(r) on |r| <= ln 2 / 2, to 2^-28
EXP: Final = (
    0.4999999403953552, 0.1666652113199234, 0.04166826233267784, 0.00836867280304432,
    0.0013821012107655406,
)  # fmt: skip


def _reduced(x: Expr, magic: float, sign: float = 1.0) -> tuple[Expr, Expr]:
    """For +-x = k ln 2 + r: e^r - 1, and a float whose low bits are those of ``magic`` plus k."""
    t = fma(x, sign * LOG2E, magic)
    k = t - magic
    r = fma(k, -LN2_HI, x if sign > 0 else unary("neg", x))
    r = fma(k, -LN2_LO, r)
    return fma(r * r, horner(r, EXP), r), t


def exp(x: Expr) -> Expr:
    """2^k e^r with 2^k in two factors: right through subnormals to 0 and inf."""
    y, t = _reduced(at_most(89.0, at_least(-104.0, x)), MAGIC + 254)
    i = bits(t, I32)
    half = shift_right(i, 1)
    a, b = (bits(shift_left(e, 23), F32) for e in (half, i - half))
    return fma(y, a, a) * b


def exp_nonpositive(x: Expr) -> Expr:
    """For x <= 0 or NaN; the factor 2^k is 0 for k = -127, so all below -87.68 gives 0."""
    y, t = _reduced(at_least(-88.0, x), ROUND)
    a = bits(shift_left(bits(t, I32), 23), F32)
    return fma(y, a, a)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x); e^-x is inf above 88.37, where the result would be below 2^-127."""
    y, t = _reduced(at_most(88.0, at_least(-89.0, x)), ROUND, -1.0)
    a = bits(shift_left(bits(t, I32), 23), F32)
    return const(1.0, F32) / fma(y + 1.0, a, 1.0)


TANH_P: Final = (
    1.0, 0.13379718363285065, 0.00349403521977365, 2.058349309663754e-05, 1.331908716650787e-08,
)  # fmt: skip
TANH_Q: Final = (
    1.0, 0.4671303331851959, 0.025871075689792633, 0.00032830939744599164, 7.762025688862195e-07,
)  # fmt: skip


def tanh(x: Expr) -> Expr:
    """x p(x^2) / q(x^2), clamped where it is 1."""
    a = at_most(9.02, at_least(-9.02, x))
    z = a * a
    return a * horner(z, TANH_P) / horner(z, TANH_Q)


ERF_P: Final = (
    0.8783791661262512, 0.06503385305404663, 0.02422364614903927, 2.676887197594624e-05,
    -6.122066224634182e-06, -7.4659315032477025e-06,
)  # fmt: skip
ERF_Q: Final = (
    1.0, 0.5022427439689636, 0.11418305337429047, 0.01498326938599348, 0.0011638673022389412,
    3.8047834095777944e-05,
)  # fmt: skip


def erf(x: Expr) -> Expr:
    """x / 4 + x p(x^2) / q(x^2): what is left for the quotient is small where rounding would show."""
    a = at_most(3.925, at_least(-3.925, x))
    z = a * a
    return fma(a, horner(z, ERF_P) / horner(z, ERF_Q), a * 0.25)


# ------------------------------------------------------------------------------------- logarithms

# log(1 + f) = f - f^2 / 2 + f^3 p(f) on |f| <= 1/3
LOG: Final = (
    0.3333321511745453, -0.2499980479478836, 0.20010444521903992, -0.1668018102645874,
    0.1400534063577652, -0.12188343703746796, 0.13986706733703613, -0.12874488532543182,
)  # fmt: skip
INF: Final = float("inf")
NAN: Final = float("nan")


def _split(x: Expr) -> tuple[Expr, Expr]:
    """x = 2^k (1 + f) with |f| <= 1/3: k as a float, and f. For x > 0, subnormals included."""
    small = lt(x, 2.0**-126)
    i = bits(select(small, x * 2.0**23, x), I32)
    e = shift_right(i - 0x3F2AAAAB, 23)
    f = bits(i - shift_left(e, 23), F32) - 1.0
    return cast(e, F32) + select(small, const(-23.0, F32), const(0.0, F32)), f


def log(x: Expr) -> Expr:
    """k ln 2 + log(1 + f)."""
    k, f = _split(x)
    z = f * f
    y = fma(z, fma(f, horner(f, LOG), -0.5), f)
    y = fma(k, 0.6931471805599453, y)
    return _log_ends(x, y)


def _log_ends(x: Expr, y: Expr) -> Expr:
    """The logarithm's value ``y`` for finite x > 0, and its own elsewhere."""
    y = select(eq(x, INF), x, y)
    return select(lt(0.0, x), y, select(eq(x, 0.0), const(-INF, x.dtype), const(NAN, x.dtype)))


# -------------------------------------------------------------------------------------- powers

# log2(1 + f) = f p(f), to 2^-38
LOG2_F64: Final = (
    1.4426950408865742, -0.7213475203275465, 0.48089834880304166, -0.3606737931381127,
    0.28853879571086677, -0.2404464335326106, 0.20610712367892778, -0.18043675174736834,
    0.1602166567829101, -0.1424986234851732, 0.130275706045942, -0.1346294152836384,
    0.1325117037761752, -0.06973865696168251,
)  # fmt: skip
EXP2: Final = (
    1.0, 0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618503041565418,
    0.0013390997191891074, 0.00015327802975662053,
)  # fmt: skip
MAGIC64: Final = 6755399441055744.0


def rsqrt(x: Expr) -> Expr:
    return const(1.0, x.dtype) / unary("sqrt", x)


def pow(x: Expr, y: Expr) -> Expr:
    """2^(y log2 |x|), the logarithm in f64; then the sign and the cases of IEEE 754."""
    magnitude = unary("abs", x)
    wide = cast(magnitude, F64)
    i = bits(wide, I64)
    biased = shift_right(i - 0x3FE6A09E667F3BCD + (1024 << 52), 52)  # k + 1024, positive
    k = bits(biased + 0x4338000000000000, F64) - (MAGIC64 + 1024)
    f = bits(i - shift_left(biased - 1024, 52), F64) - 1.0
    t = cast(y, F64) * fma(f, horner(f, LOG2_F64), k)
    t = Call("min_second", (const(200.0, F64), t), F64)
    t = Call("max_second", (const(-200.0, F64), t), F64)
    e = t + MAGIC64 - MAGIC64
    p = horner(cast(t - e, F32), EXP2)
    n = bits(cast(e, F32) + (MAGIC + 254), I32)
    half = shift_right(n, 1)
    a, b = (bits(shift_left(v, 23), F32) for v in (half, n - half))
    return _pow_ends(x, y, magnitude, p * a * b)


def _pow_ends(x: Expr, y: Expr, magnitude: Expr, power: Expr) -> Expr:
    """``power`` for finite |x| > 0 and finite y, completed for all x and y."""
    t = x.dtype
    zero, one, inf = const(0.0, t), const(1.0, t), const(INF, t)
    size = unary("abs", y)
    whole = eq(unary("trunc", y), y)
    half = y * 0.5
    odd = whole & ne(unary("trunc", half), half)
    # |x| is 0 or inf: 0, inf; y is infinite: by |x| < 1
    up = select(lt(0.0, y), inf, zero)
    down = select(lt(0.0, y), zero, inf)
    out = select(eq(magnitude, INF), up, select(eq(x, 0.0), down, power))
    infinite = select(eq(magnitude, 1.0), one, select(lt(magnitude, 1.0), down, up))
    out = select(eq(size, INF), infinite, out)
    negative = lt(bits(x, I32 if t is F32 else I64), 0)
    out = select(negative & odd, unary("neg", out), out)
    out = select(lt(x, 0.0) & ~whole & lt(magnitude, INF), const(NAN, t), out)
    out = select(any_of(ne(x, x), ne(y, y)), x + y, out)
    return select(any_of(eq(y, 0.0), eq(x, 1.0)), one, out)


# ----------------------------------------------------------------------------------- trigonometry

SIN: Final = (-0.16666655242443085, 0.008332189172506332, -0.00019518285989761353)
COS: Final = (0.04166664555668831, -0.0013887310633435845, 2.4432563805021346e-05)
PI_2 = (1.5707964, -4.371139e-08, -1.7151245e-15)


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x = k pi / 2 + r: k in the low bits of an integer, and r."""
    t = fma(x, 0.6366197723675814, MAGIC)
    k = t - MAGIC
    r = x
    for part in PI_2:
        r = fma(k, -part, r)
    return bits(t, I32), r


def _circular(i: Expr, r: Expr) -> Expr:
    """sin(r + i pi / 2)."""
    z = r * r
    s = fma(r * z, horner(z, SIN), r)
    c = fma(z * z, horner(z, COS), fma(z, -0.5, 1.0))
    y = select(eq(Call("bit_and", (i, const(1, I32)), I32), 0), s, c)
    sign = shift_left(Call("bit_and", (i, const(2, I32)), I32), 30)
    return bits(Call("bit_xor", (bits(y, I32), sign), I32), F32)


def sin(x: Expr) -> Expr:
    return _circular(*_quadrant(x))


def cos(x: Expr) -> Expr:
    i, r = _quadrant(x)
    return _circular(i + 1, r)

