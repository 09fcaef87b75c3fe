"""The expansions against the mathematical functions: errors in ULP, and special values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from planish.compiler.dtypes import BF16, F16, F32, F64, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.coefficients import TWO_OVER_PI_FAR
from planish.compiler.expr.evaluate import evaluate_array
from planish.compiler.expr.functions import FUNCTIONS, expand
from planish.compiler.expr.nodes import Call, Var

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan

# Where a function is looked at closely, in f32; for f64 with the larger exponents.
RANGES = {
    "exp": (-105, 90),
    "exp_nonpositive": (-87.3, 0),
    "exp2": (-151, 129),
    "expm1": (-20, 90),
    "sigmoid": (-87.3, 90),
    "softplus": (-87.3, 90),
    "tanh": (-10, 10),
    "sinh": (-90, 90),
    "cosh": (-90, 90),
    "erf": (-4.2, 4.2),
    "log": (0, 3),
    "log2": (0, 3),
    "log1p": (-1, 3),
    "asinh": (-10, 10),
    "acosh": (1, 10),
    "atanh": (-1, 1),
    "rsqrt": (0, 8),
    "sin": (-1000, 1000),
    "cos": (-1000, 1000),
    "tan": (-1000, 1000),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-10, 10),
}
OF_EXPONENTS = ("exp", "exp2", "expm1", "sinh", "cosh")
# Below these, results are flushed to 0.
FLUSHED = {"exp_nonpositive": 0, "sigmoid": 0, "softplus": 0}
UNARY = [f.name for f in FUNCTIONS.values() if f.expansion is not None and f.arity == 1]


def compute(name: str, dtype: DType, *args: Array) -> Array:
    names = [f"x{i}" for i in range(len(args))]
    e = expand(Call(name, tuple(Var(v, dtype) for v in names), dtype))
    return evaluate_array(e, dict(zip(names, args, strict=True)))


def samples(name: str, dtype: DType, count: int) -> Array:
    """Floats of all exponents, and those of the range."""
    integer = np.uint32 if dtype is F32 else np.uint64
    step = 2**dtype.bits // count | 1
    everywhere = (np.arange(count, dtype=integer) * integer(step)).view(dtype.numpy)
    everywhere = np.append(everywhere[~np.isnan(everywhere)], dtype.numpy.type(NAN))
    low, high = RANGES[name]
    if dtype is F64 and name in OF_EXPONENTS:
        low, high = low * 8, high * 8
    x = np.concatenate([everywhere, np.linspace(low, high, 3 * count).astype(dtype.numpy)])
    limit = np.finfo(dtype.numpy).tiny
    if name == "exp_nonpositive":
        x = x[x <= 0]
    if name in FLUSHED:
        x = x[~(x < math.log(limit))]
    return x


def errors(got: Array, want: Array, dtype: DType) -> Array:
    """In units of the last place of ``want``, which is of a wider type (or as wide)."""
    info = np.finfo(dtype.numpy)
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype.numpy)
        exponent = np.maximum(np.frexp(want)[1] - 1, info.minexp)
        out = np.abs(got.astype(want.dtype) - want) / np.ldexp(1.0, exponent - info.nmant)
    ends = (np.isnan(got) & np.isnan(rounded)) | (~np.isfinite(rounded) & (got == rounded))
    return np.where(ends, 0.0, np.nan_to_num(out, nan=np.inf)).astype(np.float64)


@pytest.mark.parametrize("name", UNARY)
def test_f32(name: str) -> None:
    x = samples(name, F32, 40_000)
    f = FUNCTIONS[name]
    e = errors(compute(name, F32, x), f.reference(x.astype(np.float64)), F32)
    worst = int(e.argmax())
    assert e[worst] <= f.ulp, x[worst]


@pytest.mark.parametrize("name", UNARY)
def test_f64(name: str) -> None:
    """Against references that are themselves rounded: half a unit is added."""
    x = samples(name, F64, 3_000)
    f = FUNCTIONS[name]
    e = errors(compute(name, F64, x), f.reference(x), F64)
    worst = int(e.argmax())
    assert e[worst] <= f.ulp_f64 + 0.5, x[worst]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_half_precision(name: str, dtype: DType) -> None:
    """All values: nearly all correctly rounded, the others to the other neighbour."""
    x = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(invalid="ignore"):  # signaling NaN
        wide = x.astype(np.float64)
        x, wide = x[~np.isnan(wide)], wide[~np.isnan(wide)]
    if name in FLUSHED:
        x = x[~(wide < -87.3) & ~((wide > 0) & (name == "exp_nonpositive"))]
    got, want = compute(name, dtype, x), FUNCTIONS[name].reference(x)
    a, b = (v.view(np.int16).astype(int) for v in (got, want))
    a, b = (np.where(v < 0, -(v & 0x7FFF), v) for v in (a, b))
    nan = np.isnan(want.astype(np.float32))
    assert np.array_equal(nan, np.isnan(got.astype(np.float32)))
    apart = np.where(nan, 0, abs(a - b))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.003


# ------------------------------------------------------------------------------- special values

SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (NAN, NAN), (1e4, INF), (-1e4, 0)],
    "exp_nonpositive": [(0.0, 1), (-0.0, 1), (-INF, 0), (NAN, NAN), (-1e4, 0)],
    "exp2": [
        (0.0, 1),
        (INF, INF),
        (-INF, 0),
        (NAN, NAN),
        (10.0, 1024),
        (-3.0, 0.125),
        (1e5, INF),
        (-1e5, 0),
    ],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (1e4, INF), (-1e4, -1)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (NAN, NAN), (1e4, 1), (-1e4, 0)],
    "softplus": [(INF, INF), (-INF, 0), (NAN, NAN), (1e4, 1e4), (-1e4, 0)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (30.0, 1), (-30.0, -1)],
    "sinh": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (INF, INF),
        (-INF, -INF),
        (NAN, NAN),
        (1e4, INF),
        (-1e4, -INF),
    ],
    "cosh": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (NAN, NAN), (1e4, INF), (-1e4, INF)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (6.0, 1), (-6.0, -1)],
    "log": [
        (0.0, -INF),
        (-0.0, -INF),
        (1.0, 0.0),
        (INF, INF),
        (-INF, NAN),
        (-1.0, NAN),
        (NAN, NAN),
    ],
    "log2": [
        (0.0, -INF),
        (-0.0, -INF),
        (1.0, 0.0),
        (8.0, 3),
        (INF, INF),
        (-INF, NAN),
        (-1.0, NAN),
        (NAN, NAN),
    ],
    "log1p": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (-1.0, -INF),
        (-2.0, NAN),
        (INF, INF),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [
        (1.0, 0.0),
        (0.5, NAN),
        (0.0, NAN),
        (-1e30, NAN),
        (-INF, NAN),
        (INF, INF),
        (NAN, NAN),
    ],
    "atanh": [
        (0.0, 0.0),
        (-0.0, -0.0),
        (1.0, INF),
        (-1.0, -INF),
        (2.0, NAN),
        (INF, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "rsqrt": [
        (0.0, INF),
        (-0.0, -INF),
        (INF, 0.0),
        (4.0, 0.5),
        (-1.0, NAN),
        (-INF, NAN),
        (NAN, NAN),
    ],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)],
}


def test_all_functions_have_special_values() -> None:
    assert list(SPECIAL) == UNARY


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, dtype: DType) -> None:
    x, want = np.array(SPECIAL[name], dtype.numpy).T
    got = compute(name, dtype, x)
    assert np.array_equal(got, want, equal_nan=True), dict(zip(x, got, strict=True))
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "cos"])
def test_bounds_are_kept(name: str, dtype: DType) -> None:
    x = np.concatenate([np.linspace(-12, 12, 50_001), np.logspace(2, 38, 10_001)])
    assert 0.999 < np.abs(compute(name, dtype, x.astype(dtype.numpy))).max() <= 1


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_powers_of_two_are_exact(dtype: DType) -> None:
    info = np.finfo(dtype.numpy)
    k = np.arange(info.minexp - info.nmant, info.maxexp)
    powers = np.ldexp(1.0, k).astype(dtype.numpy)
    exponents = k.astype(dtype.numpy)
    assert np.array_equal(compute("exp2", dtype, exponents), powers)
    assert np.array_equal(compute("log2", dtype, powers), exponents)
    assert np.array_equal(compute("pow", dtype, np.full_like(powers, 2), exponents), powers)


# ----------------------------------------------------------------------------------------- pow


def power_samples(seed: int, count: int, dtype: DType) -> tuple[Array, Array, Array]:
    """x, y and x^y, spread over all exponents of the result."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype.numpy)
    span = info.maxexp - 1
    bases = [2.0 ** rng.uniform(-span, span, count), 2.0 ** rng.uniform(-0.51, 0.51, 2 * count)]
    x = np.concatenate(bases).astype(dtype.numpy)
    t = rng.uniform(info.minexp - info.nmant, info.maxexp, x.size)
    y = (t / np.log2(x.astype(np.float64))).astype(dtype.numpy)
    return x, y, np.power(x.astype(np.longdouble), y.astype(np.longdouble))


@pytest.mark.parametrize(("dtype", "count"), [(F32, 60_000), (F64, 2_000)], ids=str)
def test_pow(dtype: DType, count: int) -> None:
    if np.finfo(np.longdouble).nmant < 60 and dtype is F64:
        pytest.skip("needs a long double with more bits")
    x, y, want = power_samples(3, count, dtype)
    e = errors(compute("pow", dtype, x, y), want, dtype)
    worst = int(e.argmax())
    f = FUNCTIONS["pow"]
    assert e[worst] <= (f.ulp if dtype is F32 else f.ulp_f64), (x[worst], y[worst])


def power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(INF, x) if y % 2 == 1 else INF
    except ValueError:  # a pole, or a negative number to a broken power
        if x:
            return NAN
        return math.copysign(INF, x) if y % 2 == 1 else INF


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_special_powers(dtype: DType) -> None:
    positive = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, INF, 1e-45, 3e38, 16777215.0, 16777216.0, 1e30]
    values = np.array([*positive, *(-v for v in positive), NAN], dtype.numpy)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(over="ignore"):
        want = np.array([power(*p) for p in zip(map(float, x), map(float, y), strict=True)])
        want = want.astype(dtype.numpy)
    got = compute("pow", dtype, x, y)
    same = (got == want) | (np.isnan(got) & np.isnan(want)) | (errors(got, want, dtype) <= 3)
    assert same.all(), (x[~same], y[~same], got[~same])
    assert np.array_equal(np.signbit(got)[want == want], np.signbit(want)[want == want])


@pytest.mark.parametrize("y", [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5])
def test_constant_powers(y: float) -> None:
    x = np.concatenate([np.logspace(-44, 38, 5001), [0.0, INF, NAN]]).astype(np.float32)
    x = np.concatenate([x, -x])
    want = FUNCTIONS["pow"].reference(x.astype(np.float64), np.float64(y))
    e = expand(Call("pow", (Var("x", F32), n.const(y, F32)), F32))
    got = evaluate_array(e, {"x": x})
    assert not any(isinstance(v, n.Select) for v in n.walk(e)) or y == 0.5
    assert errors(got, want, F32).max() <= FUNCTIONS["pow"].ulp
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got)[number], np.signbit(want)[number])


# --------------------------------------------------------------------------------- other claims


def test_sine_of_large_arguments() -> None:
    """Right up to the largest, where neighbours are far more than a period apart."""
    x = np.logspace(5, 38.5, 40_001).astype(np.float32)
    x = np.append(
        np.concatenate([x, -x]), np.float32([3.4028235e38, 1.5926863e37, 2.0**49, 2.0**75])
    )
    for name in ("sin", "cos"):
        want = FUNCTIONS[name].reference(x.astype(np.float64))
        assert errors(compute(name, F32, x), want, F32).max() <= 2.0


def pi_of(bits: int) -> Fraction:
    """pi to so many bits. Source: J. Machin, 1706."""

    def arctan_inverse(k: int) -> int:
        term, total, n = (1 << bits) // k, 0, 1
        while term:
            total += (-1) ** (n // 2) * (term // n)
            term //= k * k
            n += 2
        return total

    return Fraction(4 * (4 * arctan_inverse(5) - arctan_inverse(239)), 1 << bits)


def sine(x: Fraction) -> Fraction:
    """sin x for |x| < 1, to some 2^-200."""
    total, term, k = Fraction(0), x, 1
    while abs(term) > Fraction(1, 1 << 260):
        total += term
        term = Fraction(int(-term * x * x / ((k + 1) * (k + 2)) * (1 << 400)), 1 << 400)
        k += 2
    return total


def test_windows_of_two_over_pi() -> None:
    exact = 2 / pi_of(1700)
    ends = [first for first, *_ in TWO_OVER_PI_FAR] + [1024]
    for (first, shift, *words), end in zip(TWO_OVER_PI_FAR, ends[1:], strict=True):
        assert shift == 0 or first - shift == 52  # an integer
        assert end - shift <= 180
        left = (sum(map(Fraction, words)) - exact * 2**shift) % 4
        assert min(left, 4 - left) < Fraction(1, 1 << 296)


def test_circular_functions_of_large_doubles() -> None:
    """Also of what comes nearest to a multiple of pi / 2."""
    rng = np.random.default_rng(0)
    ends = [2.0**k for k in (30, 52, 179, 180, 308, 948, 1023)]
    near = [6381956970095103 * 2.0**797, 5.319372648326541e15, 1.7976931348623157e308]
    x = np.array(
        [*np.ldexp(1 + rng.random(300), rng.integers(29, 1024, 300)), *ends,
         *np.nextafter(ends, 0), *near]
    )  # fmt: skip
    pi = pi_of(1700)

    def shifted(a: float, quarters: int) -> Fraction:
        """sin(a + quarters * pi / 2); the cosine of what is left by a sine, too."""
        half = round(Fraction(a) / (pi / 2))
        rest, half = Fraction(a) - half * (pi / 2), half + quarters
        found = 1 - 2 * sine(rest / 2) ** 2 if half % 2 else sine(rest)
        return -found if half % 4 > 1 else found

    wanted = [(shifted(a, 0), shifted(a, 1)) for a in x]
    for name, units in (("sin", 1.5), ("cos", 1.5), ("tan", 3.0)):
        for a, (s, c), got in zip(x, wanted, compute(name, F64, x), strict=True):
            want = {"sin": s, "cos": c, "tan": s / c}[name]
            error = abs(Fraction(float(got)) - want) / Fraction(math.ulp(float(want)))
            assert error <= units, (name, a)


def test_flushed_results_are_zero() -> None:
    assert (
        compute("exp_nonpositive", F32, np.float32([-87.6, -87.7, -88.0, -200.0])).tolist()[1:]
        == [0] * 3
    )
    assert compute("sigmoid", F32, np.float32([-88.4, -100.0, -1e30])).tolist() == [0] * 3
    assert compute("sigmoid", F32, np.float32([-88.3]))[0] > 0


def test_subnormal_arguments_and_results() -> None:
    assert compute("exp", F32, np.float32([-103.0]))[0] == np.float32(np.exp(-103.0))
    tiny = np.float32([1e-45, 3e-42, 1e-38])
    for name in ("tanh", "erf", "sin", "asin", "atan", "asinh", "log1p"):
        assert (
            errors(
                compute(name, F32, tiny), FUNCTIONS[name].reference(tiny.astype(float)), F32
            ).max()
            <= 1
        )
    assert errors(compute("log", F32, tiny), np.log(tiny.astype(float)), F32).max() <= 1
