"""The registry of scalar functions: what it says, and the references of its primitives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from planish.compiler.dtypes import BF16, F16, F32, F64, I32, DType
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate_array
from planish.compiler.expr.functions import FUNCTIONS, Function, expand, expand_all
from planish.compiler.expr.nodes import Call, Const, Var, walk

EXPANDED = [f for f in FUNCTIONS.values() if f.expansion is not None]


def call(name: str, dtype: DType) -> Call:
    arity = FUNCTIONS[name].arity
    return Call(name, tuple(Var(f"x{i}", dtype) for i in range(arity)), dtype)


def primitive_only(e: n.Expr) -> bool:
    return all(FUNCTIONS[x.name].expansion is None for x in walk(e) if isinstance(x, Call))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("f", EXPANDED, ids=lambda f: f.name)
def test_expansions_are_of_primitives(f: Function, dtype: DType) -> None:
    e = expand(call(f.name, dtype))
    assert e.dtype is dtype
    assert primitive_only(e)


@pytest.mark.parametrize("f", EXPANDED, ids=lambda f: f.name)
def test_operations_are_counted(f: Function) -> None:
    inner = [x for x in walk(expand(call(f.name, F32))) if not isinstance(x, Const | Var)]
    assert len([x for x in inner if getattr(x, "name", "") != "bitcast"]) == f.operations


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=lambda f: f.name)
def test_functions_are_described(f: Function) -> None:
    assert FUNCTIONS[f.name] is f
    assert f.doc.endswith(".")
    assert min(f.ulp, f.ulp_f64) >= 0.5


def test_expand_keeps_primitives() -> None:
    e = call("sqrt", F32)
    assert expand(e) is e


def test_expand_all_expands_inner_calls() -> None:
    x = Var("x", F32)
    e = n.add(Call("exp", (Call("tanh", (x,), F32),), F32), x)
    out = expand_all(e)
    assert primitive_only(out)
    at = np.linspace(-3, 3, 101, dtype=np.float32)
    assert np.allclose(evaluate_array(out, {"x": at}), np.exp(np.tanh(at)) + at, atol=1e-6)


def test_unknown_function() -> None:
    with pytest.raises(TypeCheckError, match="there is no function wave"):
        expand(Call("wave", (Var("x", F32),), F32))


@pytest.mark.parametrize(
    "e",
    [
        Call("exp", (Var("i", I32),), I32),
        Call("exp", (Var("x", F32), Var("x", F32)), F32),
        Call("pow", (Var("x", F32), Var("y", F64)), F32),
    ],
    ids=["integer", "arity", "mixed"],
)
def test_arguments_are_checked(e: Call) -> None:
    with pytest.raises(TypeCheckError, match="of one float dtype, not"):
        expand(e)


# ---------------------------------------------------------------------------------------- fma


def exact(a: float, b: float, c: float, dtype: np.dtype) -> float:  # type: ignore[type-arg]
    """a * b + c rounded once, by fractions: a multiple of the unit in the last place."""
    value = Fraction(a) * Fraction(b) + Fraction(c)
    info = np.finfo(dtype)
    if value == 0:
        return a * b + c
    exponent = max(
        abs(value.numerator).bit_length() - value.denominator.bit_length() - 1, info.minexp
    )
    unit = Fraction(2) ** (exponent - info.nmant)
    if abs(value) / unit >= 2 ** (info.nmant + 1):
        unit *= 2
    out = round(value / unit) * unit
    return float(out) if abs(out) <= Fraction(float(info.max)) else np.inf * np.sign(float(value))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=str)
def test_fma_is_rounded_once(dtype: type) -> None:
    rng = np.random.default_rng(7)
    info = np.finfo(dtype)
    fma = FUNCTIONS["fma"].reference
    span = min(-info.minexp, 300)
    with np.errstate(all="ignore"):
        a, b, c = (
            (rng.uniform(-1, 1, 600) * 2.0 ** rng.uniform(-span, span, 600)).astype(dtype)
            for _ in range(3)
        )
        near = rng.uniform(-2, 2, (2, 600)).astype(dtype)
        a, b = np.concatenate([a, near[0], a]), np.concatenate([b, near[1], b])
        c = np.concatenate(
            [c, -(near[0] * near[1]), (a[:600] * b[:600] * 2.0**-info.nmant).astype(dtype)]
        )
    keep = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = a[keep], b[keep], c[keep]
    want = [
        exact(float(x), float(y), float(z), np.dtype(dtype))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert np.array_equal(fma(a, b, c).astype(np.float64), np.array(want))


def test_fma_of_doubles_at_the_ends() -> None:
    fma = FUNCTIONS["fma"].reference
    a = np.array([1e200, 1e-200, 5e-324, 1.7e308, 1e308, 2.0**-537, 3.0, 0.0, np.inf, np.inf, -0.0])
    b = np.array([1e108, 1e-110, 0.5, 1.0, 10.0, 2.0**-538, 5e-324, 4.0, 2.0, 0.0, 2.0])
    c = np.array([-1e308, 1e-310, 5e-324, 1.7e308, -1e308, 5e-324, 1.0, -0.0, -np.inf, 1.0, -0.0])
    want = [float(Fraction(1e200) * Fraction(1e108) - Fraction(1e308))]
    want += [float(Fraction(1e-200) * Fraction(1e-110) + Fraction(1e-310)), 1e-323, np.inf, np.inf]
    want += [1e-323, 1.0, 0.0, np.nan, np.nan, -0.0]
    got = fma(a, b, c)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.signbit(got[-1])


def test_fma_broadcasts() -> None:
    out = FUNCTIONS["fma"].reference(np.float32(2), np.arange(3, dtype=np.float32), np.float32(1))
    assert out.tolist() == [1.0, 3.0, 5.0]
    assert FUNCTIONS["fma"].reference(*np.float64([2, 3, 4])).shape == ()


# ------------------------------------------------------------------------------ other primitives


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("max_second", (1.0, 2.0), 2.0),
        ("max_second", (3.0, 2.0), 3.0),
        ("max_second", (np.nan, 2.0), 2.0),
        ("max_second", (2.0, np.nan), np.nan),
        ("min_second", (np.nan, 2.0), 2.0),
        ("min_second", (2.0, np.nan), np.nan),
        ("min_second", (1.0, 2.0), 1.0),
        ("round_even", (2.5,), 2.0),
        ("round_even", (-0.5,), -0.0),
        ("trunc", (-2.7,), -2.0),
        ("floor", (-2.1,), -3.0),
        ("ceil", (-2.7,), -2.0),
        ("copysign", (3.0, -0.0), -3.0),
        ("neg", (0.0,), -0.0),
    ],
)
def test_floats(name: str, args: tuple[float, ...], want: float) -> None:
    for dtype in (F16, BF16, F32, F64):
        got = FUNCTIONS[name].reference(*(np.asarray(a, dtype.numpy) for a in args))
        assert np.array_equal(got.astype(np.float64), want, equal_nan=True)
        assert np.signbit(got) == np.signbit(want)


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("shift_left", (3, 30), -(2**30)),
        ("shift_right", (-8, 1), -4),
        ("bit_and", (12, 10), 8),
        ("bit_or", (12, 10), 14),
        ("bit_xor", (12, 10), 6),
        ("bit_not", (0,), -1),
    ],
)
def test_bits(name: str, args: tuple[int, ...], want: int) -> None:
    assert FUNCTIONS[name].reference(*(np.int32(a) for a in args)) == want


def test_bits_of_floats() -> None:
    bits = FUNCTIONS["bitcast"].reference(np.float32(1.0), np.int32)
    assert bits == 0x3F800000
    assert bits.dtype == np.int32
    assert FUNCTIONS["shift_right"].reference(np.uint32(2**31), np.uint32(31)) == 1
    assert FUNCTIONS["is_nan"].reference(np.float32([np.nan, 1])).tolist() == [True, False]
    assert FUNCTIONS["is_inf"].reference(np.float32([np.nan, -np.inf])).tolist() == [False, True]
