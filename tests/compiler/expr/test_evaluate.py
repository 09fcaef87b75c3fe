"""Values, exactly as ``nodes`` defines them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import ALL, BF16, F16, F32, F64, I8, I32, I64, U8
from planish.compiler.errors import InternalError
from planish.compiler.expr.evaluate import evaluate, evaluate_array
from planish.compiler.expr.nodes import Cast, Const, Load, Var, const
from planish.compiler.expr.text import Scope, parse

from . import strategies

NAN, INF = float("nan"), float("inf")
TYPES = {"a": F32, "b": F32, "h": BF16, "g": BF16, "u": I32, "v": I32, "c": I8, "d": U8}
SCOPE = Scope(variables=TYPES, buffers={"x": F32, "k": I64})

TABLE = [
    ("i // j", {"i": -7, "j": 2}, -4),
    ("i % j", {"i": -7, "j": 2}, 1),
    ("i / j", {"i": -7, "j": 2}, -3),
    ("i / j", {"i": 7, "j": -2}, -3),
    ("i / j", {"i": -8, "j": 2}, -4),
    ("u + v", {"u": 2**31 - 1, "v": 1}, -(2**31)),
    ("u * v", {"u": 2**31 - 1, "v": 2}, -2),
    ("u / v", {"u": -(2**31), "v": -1}, -(2**31)),
    ("u / v", {"u": -7, "v": 0}, 0),
    ("c - c - c", {"c": -128}, -128),
    ("d - u8(1)", {"d": 0}, 255),
    ("min(a, b)", {"a": NAN, "b": 1.0}, NAN),
    ("max(a, b)", {"a": 1.0, "b": NAN}, NAN),
    ("max(h, g)", {"h": 1.0, "g": NAN}, NAN),
    ("a < b", {"a": NAN, "b": 1.0}, False),
    ("a <= a", {"a": NAN}, False),
    ("a == a", {"a": NAN}, False),
    ("a != a", {"a": NAN}, True),
    ("a / b", {"a": 1.0, "b": 0.0}, INF),
    ("a / b", {"a": 1.0, "b": -0.0}, -INF),
    ("neg(a)", {"a": 0.0}, -0.0),
    ("a + b", {"a": 1.0, "b": 2.0**-24}, 1.0),
    ("h + g", {"h": 1.0, "g": 2.0**-8}, 1.0),
    ("select(a < b, i, j)", {"a": 1.0, "b": 2.0, "i": 3, "j": 4}, 3),
    ("cast(a, i32)", {"a": -2.75}, -2),
    ("cast(u, u8)", {"u": -1}, 255),
    ("cast(a, bool)", {"a": NAN}, True),
    ("cast(a, bool)", {"a": -0.0}, False),
    ("cast(i < 3, i64) + 1", {"i": 1}, 2),
    ("cast(i, f16)", {"i": 2049}, 2048.0),
    ("not (i < 3 and j < 3)", {"i": 1, "j": 5}, True),
    ("i < 3 or j < 3", {"i": 1, "j": 5}, True),
    ("bitcast(a, dtype=i32)", {"a": 1.0}, 0x3F800000),
]


@pytest.mark.parametrize(("text", "env", "expected"), TABLE, ids=[f"{t[0]} {t[1]}" for t in TABLE])
def test_value(text, env, expected):
    e = parse(text, SCOPE)
    found = evaluate(e, env)
    assert found.dtype == e.dtype.numpy
    assert found == expected or (expected != expected and found != found)
    assert np.signbit(np.float64(found)) == np.signbit(np.float64(expected)) or expected != expected


def test_arrays_are_broadcast():
    e = parse("i * 10 + j")
    i, j = np.arange(2)[:, None], np.arange(3)
    assert evaluate_array(e, {"i": i, "j": j}).tolist() == [[0, 1, 2], [10, 11, 12]]
    assert evaluate_array(Const(3), {"i": i}).shape == ()


def test_loads():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    e = parse("x[i, j + 1]", SCOPE)
    assert evaluate(e, {"i": 1, "j": 0}, {"x": x}) == 4.0
    assert evaluate_array(e, {"i": np.array([0, 1]), "j": 1}, {"x": x}).tolist() == [2.0, 5.0]
    assert evaluate(Load("s", (), F32), {}, {"s": np.float32(3).reshape(())}) == 3.0
    nested = parse("x[k[i], 0]", SCOPE)
    assert evaluate(nested, {"i": 1}, {"x": x, "k": np.array([0, 1])}) == 3.0


PADDED = parse("select(0 <= i - 1 and i - 1 < 4, x[i - 1], f32(9.0))", SCOPE)


def test_a_load_that_is_not_chosen_is_not_performed():
    x = np.arange(4, dtype=np.float32)
    found = evaluate_array(PADDED, {"i": np.arange(-3, 8)}, {"x": x})
    assert found.tolist() == [9, 9, 9, 9, 0, 1, 2, 3, 9, 9, 9]
    assert evaluate(PADDED, {"i": 0}, {"x": x}) == 9.0
    nested = parse("select(i < 4, select(0 <= i, x[i], f32(1.0)), f32(2.0)) * f32(2.0)", SCOPE)
    assert evaluate_array(nested, {"i": np.array([-1, 0, 3, 4])}, {"x": x}).tolist() == [2, 0, 6, 4]
    shared = parse("select(i < 4, x[i], f32(0.0)) + select(4 <= i, f32(1.0), x[i])", SCOPE)
    assert evaluate_array(shared, {"i": np.array([3, 4])}, {"x": x}).tolist() == [6, 1]
    assert evaluate(PADDED, {"i": 0}, {"x": np.zeros(0, np.float32)}) == 9.0


@pytest.mark.parametrize(
    ("text", "index"),
    [("x[i]", "4"), ("x[i] + x[0]", "4"), ("select(x[i] < f32(1.0), i, 0)", "4"),
     ("select(i < 5, x[i], f32(0.0))", "4"), ("x[0 - i]", "-1"), ("x[cast(x[i], i64)]", "4")],
)  # fmt: skip
def test_a_load_outside_is_an_error(text, index):
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(InternalError) as error:
        evaluate_array(parse(text, SCOPE), {"i": np.arange(5)}, {"x": x})
    assert error.value.message == f"x[{index}] is outside x[4]"


def test_names_must_have_values():
    with pytest.raises(InternalError, match="variable i has no value"):
        evaluate(Var("i"), {})
    with pytest.raises(InternalError, match="buffer x has no value"):
        evaluate(parse("x[0]", SCOPE), {})
    with pytest.raises(InternalError, match="there is no function nonsense"):
        evaluate(parse("nonsense(i)"), {"i": 1})
    with pytest.raises(InternalError, match="x has 2 dimensions"):
        evaluate(parse("x[0]", SCOPE), {}, {"x": np.zeros((2, 2), np.float32)})


@pytest.mark.parametrize("dtype", ALL.values(), ids=str)
def test_dtypes(dtype):
    assert evaluate(const(1, dtype), {}).dtype == dtype.numpy
    for target in ALL.values():
        if "c" in (dtype.kind, target.kind):
            continue
        assert evaluate(Cast(const(1, dtype), target), {}) == 1


@given(st.data(), st.sampled_from((F16, F32, F64, I8, I64)))
def test_one_by_one_is_all_at_once(data, dtype):
    e = data.draw(strategies.values(dtype))
    where = data.draw(strategies.ranges())
    points = [data.draw(strategies.points(where)) for _ in range(3)]
    buffers = data.draw(strategies.buffers())
    env = {k: np.array([p[k] for p in points]) for k in points[0]}
    together = np.broadcast_to(evaluate_array(e, env, buffers), 3)
    for p, value in zip(points, together, strict=True):
        alone = evaluate(e, p, buffers)
        assert alone.dtype == value.dtype == dtype.numpy
        assert alone == value or (alone != alone and value != value)
