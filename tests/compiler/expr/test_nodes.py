"""Building nodes: types, folding, neutral elements; walking and rebuilding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from planish.compiler.errors import TypeCheckError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Call, Const, Expr, Load, Var

from . import strategies

i, j = Var("i"), Var("j")
p = Var("p", BOOL)
a = Var("a", F32)
u = Var("u", I32)

BUILT = [
    (i + 0, i),
    (0 + i, i),
    (i - 0, i),
    (i - i, Const(0)),
    (i * 1, i),
    (i * 0, Const(0)),
    (i // 1, i),
    (i % 1, Const(0)),
    (Const(-7) // 2, Const(-4)),
    (Const(-7) % 2, Const(1)),
    (n.div(-7, 2), Const(-3)),
    (n.const(100, I8) + n.const(100, I8), Const(-56, I8)),
    (n.const(200, U8) + n.const(100, U8), Const(44, U8)),
    (n.const(0.1, F16) + n.const(0.2, F16), n.const(float(np.float16(0.1) + np.float16(0.2)), F16)),
    (n.const(0.1, BF16), Const(0.10009765625, BF16)),
    (i < i, n.FALSE),
    (i <= i, n.TRUE),
    (n.eq(i, i), n.TRUE),
    (n.lt(1, 2), n.TRUE),
    (n.ne(float("nan"), float("nan")), n.TRUE),
    (n.all_of(), n.TRUE),
    (n.all_of(p, True), p),
    (n.all_of(p, False), n.FALSE),
    (n.any_of(), n.FALSE),
    (n.any_of(p, True), n.TRUE),
    (~(i < j), n.le(j, i)),
    (~~p, p),
    (n.select(True, i, j), i),
    (n.select(p, i, i), i),
    (n.cast(i, I64), i),
    (n.cast(Const(300), U8), Const(44, U8)),
    (n.cast(n.const(-2.5, F64), I32), Const(-2, I32)),
    (n.cast(n.const(0.5, F32), BOOL), n.TRUE),
    (n.minimum(i, i), i),
    (n.maximum(n.const(float("nan"), F32), 1.0), Const(float("nan"), F32)),
    (-i, i * -1),
    (-a, Call("neg", (a,), F32)),
    (n.product([2, i, 1]), 2 * i),
    (n.product([]), Const(1)),
]


@pytest.mark.parametrize(("built", "expected"), BUILT, ids=str)
def test_built(built, expected):
    assert built is expected


def test_floats_keep_what_is_no_identity():
    assert str(a + 0.0) == "a + f32(0.0)"
    assert str(a * 0.0) == "a * f32(0.0)"
    assert str(a - a) == "a - a"
    assert str(n.eq(a, a)) == "a == a"
    assert str(~(a < 1.0)) == "not a < f32(1.0)"


@pytest.mark.parametrize(("f", "x", "y"), [(n.add, i, a), (n.lt, i, u), (n.add, p, p)])
def test_types_must_fit(f, x, y):
    with pytest.raises(TypeCheckError):
        f(x, y)
    with pytest.raises(TypeCheckError):
        n.select(p, i, a)


def test_truth_is_not_known():
    with pytest.raises(TypeCheckError):
        bool(i < j)
    assert bool(Const(3))
    assert not n.FALSE


FOLDED = {n.add: n.Add, n.sub: n.Sub, n.mul: n.Mul, n.div: n.Div, n.minimum: n.Min}


@given(st.sampled_from(strategies.DTYPES), st.data())
def test_folding_is_evaluation(dtype: DType, data: st.DataObject):
    """A folded constant has the bits that the computed one has."""
    x, y = data.draw(strategies.constants(dtype)), data.draw(strategies.constants(dtype))
    for make, cls in FOLDED.items():
        if not (cls is n.Div and dtype.is_int and y.value == 0):
            value = evaluate(cls(x, y), {})
            folded = make(x, y)
            assert isinstance(folded, Const)
            expected = float(value) if dtype.is_float else int(value)
            zeros = cls is n.Min and expected == 0 == folded.value  # either zero
            assert folded is Const(expected, dtype) or zeros


def test_walk_gives_children_first_and_nodes_once():
    e = (i + j) * (i + j) - i
    square = "(i + j) * (i + j)"
    assert list(map(str, n.walk(e))) == ["i", "j", "i + j", square, f"{square} - i"]
    assert n.free_vars(j + i * j) == (j, i)
    inner = Load("x", (i,), I64)
    assert n.loads(Load("y", (inner,), F32)) == (inner, Load("y", (inner,), F32))


def test_substitute_is_simultaneous():
    assert n.substitute(i - j, {i: j, j: i}) is j - i
    assert n.substitute(i + j, {i: Const(2), j: Const(3)}) is Const(5)
    e = i + j
    assert n.substitute(e, {}) is e


@given(strategies.values(F32))
def test_rebuild_over_the_same_children_is_the_same(e: Expr):
    assert n.transform(e, lambda x: None) is e


def test_deep_trees():
    e = strategies.deep()
    assert sum(1 for _ in n.walk(e)) > strategies.DEPTH
    assert e.dtype is I64
    replaced = n.transform(e, lambda x: j if x is i else None)
    assert n.free_vars(replaced) == (j,)


@pytest.mark.parametrize("dtype", [F64, F32, I32])
def test_dtype_of_a_deep_tree_without_constructors(dtype):
    e: Expr = Var("x", dtype)
    for _ in range(20_000):
        e = n.Select(p, n.Add(e, e), e)
    assert e.dtype is dtype
