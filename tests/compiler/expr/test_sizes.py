"""Normal forms of sizes and what is known of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.errors import TypeCheckError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var
from planish.compiler.expr.sizes import (
    at_least,
    bounds,
    ceildiv,
    divide,
    evaluate,
    normal,
    same,
    volume,
)
from planish.compiler.expr.text import parse


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n * 12 // 3", "n * 4"),
        ("(n + 1) * 2 - 2 * n", "2"),
        ("(n * 4 + 3) // 4", "n"),
        ("(n * 4 + 5) // 4", "n + 1"),
        ("(n * 64 + 70) % 64", "6"),
        ("(n * 64 + m) % 64", "m % 64"),
        ("n // 2 // 3", "n // 6"),
        ("((n + 1) // 2 + 1) // 2", "(n + 3) // 4"),
        ("n * m * 8 // (m * n)", "8"),
        ("(n + m) * 12 // (m + n)", "12"),
        ("min(n, n + m)", "n"),
        ("max(0, n)", "n"),
        ("max(n, n - 1)", "n"),
        ("max(0, n - 1)", "max(0, n - 1)"),
        ("max(0, (4 - n) // 5)", "0"),
        ("select(n == (-1), 1, n)", "n"),
        ("select(n < 0, n + m, n)", "n"),
        ("3 - n + m", "m + 3 - n"),
        ("m * n", "m * n"),
        ("n * m", "m * n"),
        ("0 <= n", "True"),
        ("n < 0", "False"),
        ("3 <= n + 2", "1 <= n"),
        ("0 < n", "1 <= n"),
        ("1 <= n * 8", "1 <= n"),
        ("n * 3 <= 10", "n <= 3"),
        ("2 <= (n + 1) // 2 * 2 - 2", "3 <= n"),
        ("n <= m + 2", "n <= m + 2"),
        ("min(512, n) == n", "n <= 512"),
        ("max(n, m) == n", "m <= n"),
        ("n * 8 == m * 4", "n * 2 == m"),
        ("3 == n", "n == 3"),
        ("m == n", "n == m"),
        ("n == n + 1", "False"),
        ("n + 1 != 0", "True"),
    ],
)
def test_normal_forms(before: str, after: str) -> None:
    assert str(normal(parse(before))) == after
    assert normal(parse(after)) is normal(parse(before))


def sizes(depth: int = 3) -> st.SearchStrategy[Expr]:
    leaves = st.one_of(
        st.sampled_from([Var("n"), Var("m"), Var("k")]),
        st.integers(-4, 9).map(lambda v: n.as_expr(v)),
    )
    positive = st.integers(1, 6)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(
                st.sampled_from([n.add, n.sub, n.mul, n.minimum, n.maximum]), inner, inner
            ).map(lambda t: t[0](t[1], t[2])),
            st.tuples(st.sampled_from([n.floordiv, n.floormod]), inner, positive).map(
                lambda t: t[0](t[1], t[2])
            ),
            st.tuples(st.sampled_from([n.lt, n.le, n.eq, n.ne]), inner, inner, inner, inner).map(
                lambda t: n.select(t[0](t[1], t[2]), t[3], t[4])
            ),
        ),
        max_leaves=8,
    )


VALUES = st.fixed_dictionaries({name: st.integers(0, 12) for name in ("n", "m", "k")})


def at(e: Expr, values: dict[str, int]) -> int | bool | None:
    return evaluate(e, {Var(name): n.as_expr(v) for name, v in values.items()})


@given(sizes(), VALUES)
def test_the_normal_form_has_the_same_value(e: Expr, values: dict[str, int]) -> None:
    assert at(normal(e), values) == at(e, values)


@given(sizes(), sizes(), VALUES, st.sampled_from([n.lt, n.le, n.eq, n.ne]))
def test_normal_conditions_have_the_same_value(
    a: Expr, b: Expr, values: dict[str, int], compare: type
) -> None:
    condition = compare(a, b)
    assert at(normal(condition), values) == at(condition, values)


@given(
    st.sampled_from([-(1 << 63), 2 - (1 << 63), -(1 << 62), 1 << 62, (1 << 63) - 99]),
    VALUES,
    st.sampled_from([n.lt, n.le, n.eq, n.ne, n.minimum, n.maximum]),
    st.booleans(),
)
def test_numbers_that_are_no_sizes_do_not_overflow(
    number: int, values: dict[str, int], choose: Callable[[Expr, Expr], Expr], swap: bool
) -> None:
    far, size = n.add(Var("n"), number), Var("m") * 3
    for a, b in ((far, size), (far, Var("n")), (n.as_expr(number), size)):
        e = choose(b, a) if swap else choose(a, b)
        assert at(normal(e), values) == at(e, values)


@given(sizes())
def test_the_normal_form_is_normal(e: Expr) -> None:
    assert normal(normal(e)) is normal(e)


@given(sizes(), VALUES)
def test_bounds_hold(e: Expr, values: dict[str, int]) -> None:
    low, high = bounds(e)
    value = at(e, values)
    assert value is not None
    assert (low is None or low <= value) and (high is None or value <= high)


@given(sizes(), sizes(), VALUES)
def test_answers_hold(a: Expr, b: Expr, values: dict[str, int]) -> None:
    x, y = at(a, values), at(b, values)
    assert x is not None and y is not None
    if same(a, b):
        assert x == y
    if at_least(a, b):
        assert x >= y
    if y and (quotient := divide(normal(a), normal(b))) is not None:
        assert at(quotient, values) == x // y and x % y == 0


def test_volumes() -> None:
    assert str(volume([Var("n"), 2, Var("m"), 3])) == "m * n * 6"
    assert volume([]) is Const(1)
    assert volume([Var("n"), 0]) is Const(0)
    with pytest.raises(TypeCheckError, match="too large"):
        volume([1 << 40, 1 << 40])


def test_rounding_up() -> None:
    assert str(ceildiv(Var("n"), 4)) == "(n + 3) // 4"
    assert ceildiv(9, 4) is Const(3)
