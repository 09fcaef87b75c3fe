from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import CodegenError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.compiled import compile_sizes
from planish.compiler.expr.nodes import Const, Expr, Load, Var, as_expr, const
from planish.compiler.expr.sizes import evaluate
from planish.runtime.interface import evaluator

A, B = Var("a"), Var("b_1")


def parts(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    compared = st.one_of(*(st.builds(f, inner, inner) for f in (n.lt, n.le, n.eq, n.ne)))
    both = st.builds(n.all_of, compared, compared)
    return st.one_of(
        *(st.builds(f, inner, inner) for f in (n.add, n.sub, n.mul, n.minimum, n.maximum)),
        *(st.builds(f, inner, st.integers(1, 9)) for f in (n.floordiv, n.floormod)),
        st.builds(n.select, st.one_of(compared, both), inner, inner),
        st.builds(lambda c: n.cast(c, I64), compared),
    )


LEAVES = st.one_of(st.sampled_from([A, B]), st.integers(-9, 9).map(as_expr))
SIZES = st.recursive(LEAVES, parts, max_leaves=12)


@given(st.lists(SIZES, max_size=4), st.integers(0, 50), st.integers(0, 50))
def test_sizes_are_what_the_expressions_are(sizes: list[Expr], a: int, b: int) -> None:
    found = compile_sizes(("a", "b_1"), tuple(sizes))(a, b)
    assert list(found) == [evaluate(s, {A: const(a, I64), B: const(b, I64)}) for s in sizes]


def test_plain_numbers_and_conditions() -> None:
    found = compile_sizes(("a",), (3, A, n.le(A, 4), A * 2))
    assert found(4) == (3, 4, True, 8)
    assert found(5) == (3, 5, False, 10)


@pytest.mark.parametrize("make", [n.floordiv, n.floormod])
def test_a_division_by_zero_gives_zero(make: object) -> None:
    """As in native code, where anything else would be a trap."""
    size = make(A, B)  # type: ignore[operator]
    found = compile_sizes(("a", "b_1"), (size,))
    assert found(7, 0) == (0,)
    assert found(7, 2) == (7 // 2 if isinstance(size, n.FloorDiv) else 7 % 2,)


@pytest.mark.parametrize(
    "size",
    [
        Var("other"),
        Load("x", (A,), I64),
        Const(1.5, F32),
        n.Call("exp", (Const(1.5, F32),), F32),
    ],
    ids=str,
)
def test_what_is_no_arithmetic_over_the_symbols(size: Expr) -> None:
    with pytest.raises(CodegenError, match="a size is not integer arithmetic"):
        compile_sizes(("a",), (size,))


def test_names_of_symbols_cannot_do_harm() -> None:
    """They come from files; the code that is made has none of them in it."""
    name = "__import__('os')"
    assert compile_sizes((name,), (Var(name) + 1,))(4) == (5,)


def test_known_sizes_need_no_expressions() -> None:
    assert evaluator((), [3, 4])() == (3, 4)
    assert evaluator(("n",), [3, 4])(9) == (3, 4)
    assert evaluator(("a",), [3, A + 1])(9) == (3, 10)
