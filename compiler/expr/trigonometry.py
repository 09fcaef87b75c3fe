"""Scalar functions written as arithmetic, for f32 and f64: circular functions and their inverses.

As in ``expansions``: branch-free, and with the values of IEEE 754 at infinities, zeros and NaN.
"""

from __future__ import annotations

import math

from planish.compiler.dtypes import F32, F64, U32, U64

from .coefficients import DOUBLE, TWO_OVER_PI, TWO_OVER_PI_FAR, TWO_OVER_PI_WINDOWS
from .expansions import at_least, at_most, bit, bits, copysign, fma, format_of, horner, neg, unary
from .nodes import Expr, cast, const, le, lt, ne, select


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x = k pi / 2 + r: k in the low bits of an integer, and r."""
    return _quadrant_single(x) if x.dtype is F32 else _quadrant_double(x)


def _quadrant_single(x: Expr) -> tuple[Expr, Expr]:
    """In f64, with 2 / pi to 106 bits; of a large x by what is left of 2^n * 2 / pi modulo 4."""
    a = unary("abs", x)
    (_, _, high, low), *windows = TWO_OVER_PI_WINDOWS
    scale: Expr = const(1.0, F32)
    c: Expr = const(high, F64)
    d: Expr = const(low, F64)
    for first, shift, high, low in windows:
        beyond = le(2.0**first, a)
        scale = select(beyond, const(2.0**-shift, F32), scale)
        c = select(beyond, const(high, F64), c)
        d = select(beyond, const(low, F64), d)
    y = cast(x * scale, F64)
    t = fma(y, c, DOUBLE.magic)
    rest = fma(y, c, neg(t - DOUBLE.magic))
    r = cast(fma(y, d, rest) * (math.pi / 2), F32)
    return cast(bit("bit_and", bits(t, U64), 3), U32), r


def _quadrant_double(x: Expr) -> tuple[Expr, Expr]:
    """With pi / 2 in three parts, as long as that is enough."""
    t = fma(x, TWO_OVER_PI, DOUBLE.magic)
    k = t - DOUBLE.magic
    r = x
    for part in DOUBLE.half_pi:
        r = fma(k, -part, r)
    far_t, far_r = _far_quadrant(x)
    far = le(2.0**30, unary("abs", x))
    return bit("bit_and", bits(select(far, far_t, t), U64), 3), select(far, far_r, r)


def _far_quadrant(x: Expr) -> tuple[Expr, Expr]:
    """x = k pi / 2 + r, of any x: k added to the magic number, and r.

    What is left of x 2 / pi modulo 4 is a sum of products, each with its error; of the large ones,
    multiples of 4 are taken away. The sum is nowhere rounded before k has been taken away too: what
    is left may be as little as 2^-62.
    """
    a = unary("abs", x)
    (_, _, *first), *windows = TWO_OVER_PI_FAR
    scale: Expr = const(1.0, F64)
    words: list[Expr] = [const(w, F64) for w in first]
    for start, shift, *others in windows:
        beyond = le(2.0**start, a)
        scale = select(beyond, const(2.0**-shift, F64), scale)
        words = [select(beyond, const(w, F64), v) for w, v in zip(others, words, strict=True)]
    y = x * scale
    products = [y * w for w in words]
    errors = [fma(y, w, neg(p)) for w, p in zip(words[:5], products[:5], strict=True)]
    large = [v for pair in zip(products[:3], errors[:3], strict=True) for v in pair]
    terms = [*map(_modulo_4, (*large, products[3])), errors[3], products[4]]
    total, parts = _sum(terms)
    t = total + DOUBLE.magic
    rest, parts = _sum([total - (t - DOUBLE.magic), *parts])
    low = errors[4] + products[5]
    for part in reversed(parts):
        low = low + part
    high, lower, _ = DOUBLE.half_pi
    r = rest * high
    return t, r + (fma(rest, high, neg(r)) + fma(rest, lower, low * high))


def _modulo_4(x: Expr) -> Expr:
    """x without the nearest multiple of 4, exactly."""
    return fma(unary("round_even", x * 0.25), -4.0, x)


def _sum(terms: list[Expr]) -> tuple[Expr, list[Expr]]:
    """The sum, rounded after each term, and the errors of that.

    Source: D. E. Knuth, The Art of Computer Programming 2, section 4.2.2.
    """
    total, *others = terms
    lost = []
    for x in others:
        new = total + x
        part = new - total
        lost.append((total - (new - part)) + (x - part))
        total = new
    return total, lost


def _sin_cos(r: Expr) -> tuple[Expr, Expr]:
    f = format_of(r)
    z = r * r
    sine = copysign(fma(r * z, horner(z, f.sin), r), r)  # -0 for -0
    return sine, fma(z * z, horner(z, f.cos), fma(z, -0.5, 1.0))


def _is_odd(i: Expr) -> Expr:
    return ne(bit("bit_and", i, 1), 0)


def _circular(i: Expr, r: Expr) -> Expr:
    """sin(r + i pi / 2)."""
    f = format_of(r)
    s, k = _sin_cos(r)
    sign = bit("shift_left", bit("bit_and", i, 2), f.dtype.bits - 2)
    y = bits(select(_is_odd(i), k, s), f.unsigned)
    return bits(bit("bit_xor", y, sign), f.dtype)


def sin(x: Expr) -> Expr:
    """Of x = r + k pi / 2."""
    return _circular(*_quadrant(x))


def cos(x: Expr) -> Expr:
    """The sine of r + (k + 1) pi / 2."""
    i, r = _quadrant(x)
    return _circular(i + 1, r)


def tan(x: Expr) -> Expr:
    """sin / cos, or -cos / sin."""
    i, r = _quadrant(x)
    s, k = _sin_cos(r)
    odd = _is_odd(i)
    return select(odd, neg(k), s) / select(odd, s, k)


def _asin_parts(x: Expr) -> tuple[Expr, Expr]:
    """|x| <= 1/2: true and asin |x|; else false and asin(sqrt((1 - |x|) / 2)) = acos(|x|) / 2."""
    f = format_of(x)
    a = unary("abs", x)
    near = le(a, 0.5)
    z = select(near, a * a, fma(a, -0.5, 0.5))
    s = select(near, a, unary("sqrt", z))
    return near, fma(s * z, horner(z, f.asin), s)


def asin(x: Expr) -> Expr:
    """By a polynomial up to 1/2; above, by that of sqrt((1 - x) / 2)."""
    near, y = _asin_parts(x)
    high, low, _ = format_of(x).half_pi
    return copysign(select(near, y, fma(y, -2.0, low) + high), x)


def acos(x: Expr) -> Expr:
    """pi / 2 - asin x; near 1 and -1 by the root: 2 y, pi - 2 y."""
    t = x.dtype
    near, y = _asin_parts(x)
    high, low, _ = format_of(x).half_pi
    y = copysign(select(near, y, y + y), x)
    middle = const(high, t) - (y - low)
    negative = lt(x, 0.0)
    end = select(negative, (y + 2 * low) + 2 * high, y)
    return select(near, middle, end)


def atan(x: Expr) -> Expr:
    """For r = |x| or 1 / |x|, the lesser: atan r, or pi / 2 - atan r."""
    f = format_of(x)
    high, low, _ = f.half_pi
    a = unary("abs", x)
    r = at_most(1.0, a) / at_least(1.0, a)
    z = r * r
    y = fma(r * z, horner(z, f.atan), r)
    return copysign(select(lt(1.0, a), (const(low, f.dtype) - y) + high, y), x)
