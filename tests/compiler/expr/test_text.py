"""Text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import BOOL, F32, I64
from planish.compiler.errors import ParseError
from planish.compiler.expr.nodes import Add, Call, Const, Expr, Load, Mul, Not, Sub, Var
from planish.compiler.expr.text import Scope, parse, show

from . import strategies

SCOPE = Scope(variables={"a": F32, "p": BOOL, "q": BOOL}, buffers={**strategies.BUFFERS, "s": F32})


@given(st.one_of(strategies.indices(symbols=True), strategies.conditions(), strategies.values(F32)))
def test_round_trip(e: Expr):
    assert parse(show(e), SCOPE) is e


@pytest.mark.parametrize("dtype", strategies.DTYPES, ids=str)
@given(st.data())
def test_constants(dtype, data):
    e = data.draw(strategies.constants(dtype))
    assert parse(show(e)) is e


SAME = """\
i + j * 2 - k
i - (j - k)
(i + j) * 2
i // 4 % 3
i * (j // 2)
(-3)
i < j and (p or not q)
not (p and q)
(i < j) == p
select(i < 0, (-1), min(i, 7))
s[()]
x_f32[i, j + 1]
cast(i, f32) * f32(0.5)
f32('nan') + f32('-inf') - f32(-0.0)
True and p
iota(dtype=f32)
is_nan(a, dtype=bool)
fma(a, a, a)""".splitlines()


@pytest.mark.parametrize("text", SAME)
def test_text_stays(text):
    assert show(parse(text, SCOPE)) == text


def test_comparisons_turn_around():
    assert show(parse("i > j")) == "j < i"
    assert show(parse("i >= j")) == "j <= i"


def test_operands_are_kept_as_built():
    i = Var("i")
    for e in (Add(i, Const(0)), Mul(i, Const(-1)), Sub(i, i), Not(Not(Var("p", BOOL)))):
        assert parse(show(e), SCOPE) is e


@pytest.mark.parametrize(
    "text",
    ["i +", "y[3]", "i if p else j", "lambda: 3", "f()", "i + a", "i8('x')", "'text'", "i < j < k",
     "cast(i, f31)", "i" * 10 + "(" * 300, "-" * 100_000 + "i", "f32()", "i @ j"],
)  # fmt: skip
def test_errors(text):
    with pytest.raises(ParseError):
        parse(text, SCOPE)


def test_deep_trees():
    text = show(strategies.deep())
    assert text.startswith("min(max(min(")
    assert text.endswith(" + 1, 7)")


def test_limit():
    e: Expr = Var("i")
    for _ in range(100):
        e = Call("f", (e, e), I64)  # 2^100 letters
    text = show(e, 100)
    assert text.startswith("f(f(")
    assert text.endswith(" ...")
    assert len(text) < 200
    assert show(Load("x", (Var("i"),), F32), 100) == "x[i]"
