"""Random expressions, ranges, and points inside them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from hypothesis import strategies as st

from planish.compiler.dtypes import BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from planish.compiler.expr import nodes as n
from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Call, Cast, Const, Expr, Load, Var

DEPTH = 50_000
ITERATORS = tuple(Var(name) for name in "ijkn")
SYMBOLS = tuple(Var(name) for name in ("h", "w"))
SIZE = 7
DTYPES = (F16, F32, F64, I8, U8, I32, I64)
BUFFERS = {f"x_{t}": t for t in (*DTYPES, BOOL)}

divisors = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 56))
small = st.integers(-20, 20)


def _index_parts(inner: st.SearchStrategy[Expr], symbols: bool) -> st.SearchStrategy[Expr]:
    by = st.builds(Const, divisors)
    divisor = st.one_of(by, st.sampled_from(SYMBOLS)) if symbols else by
    pair = (inner, inner)
    return st.one_of(
        st.builds(n.add, *pair),
        st.builds(n.sub, *pair),
        st.builds(n.mul, inner, st.builds(Const, st.sampled_from((-3, -1, 2, 3, 4, 6, 8, 12, 16)))),
        st.builds(n.mul, inner, st.sampled_from(SYMBOLS)) if symbols else st.nothing(),
        st.builds(n.floordiv, inner, divisor),
        st.builds(n.floormod, inner, divisor),
        st.builds(n.minimum, *pair),
        st.builds(n.maximum, *pair),
        st.builds(n.select, _comparisons(inner), inner, inner),
    )


def _comparisons(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(*(st.builds(f, inner, inner) for f in (n.lt, n.le, n.eq, n.ne)))


@lru_cache
def indices(symbols: bool = False, leaves: int = 8) -> st.SearchStrategy[Expr]:
    """Index arithmetic; with ``symbols``, divisors and strides may be symbolic."""
    variables = st.sampled_from(ITERATORS + (SYMBOLS if symbols else ()))
    leaf = st.one_of(variables, variables, st.builds(Const, small))
    return st.recursive(leaf, lambda inner: _index_parts(inner, symbols), max_leaves=leaves)


@lru_cache
def conditions(symbols: bool = False) -> st.SearchStrategy[Expr]:
    """Comparisons of indices, combined."""
    return st.recursive(
        _comparisons(indices(symbols, 4)),
        lambda inner: st.one_of(
            st.builds(n.all_of, inner, inner),
            st.builds(n.any_of, inner, inner),
            st.builds(n.not_, inner),
        ),
        max_leaves=4,
    )


@st.composite
def ranges(draw: st.DrawFn) -> dict[Var, Interval]:
    """A bounded range for every iterator; symbols are at least 1."""
    out = {v: Interval(1, 9) for v in SYMBOLS}
    for v in ITERATORS:
        lo = draw(st.one_of(st.just(0), st.integers(-9, 9)))
        size = draw(st.one_of(st.sampled_from((0, 3, 5, 7)), st.integers(0, 20)))
        out[v] = Interval(lo, lo + size)
    return out


@st.composite
def points(draw: st.DrawFn, where: dict[Var, Interval]) -> dict[str, int]:
    """A value for every variable, inside its range."""
    out = {}
    for v, (lo, hi) in where.items():
        assert lo is not None and hi is not None
        out[v.name] = draw(st.one_of(st.just(lo), st.just(hi), st.integers(lo, hi)))
    return out


@lru_cache
def constants(dtype: DType) -> st.SearchStrategy[Expr]:
    if dtype is BOOL:
        return st.sampled_from((n.TRUE, n.FALSE))
    if dtype.is_float:
        special = st.sampled_from((0.0, -0.0, 1.0, -1.0, 2.0, 0.25, float("inf"), float("nan")))
        plain = st.floats(-100, 100, width=16)
        return st.builds(n.const, st.one_of(special, plain), st.just(dtype))
    ends = st.sampled_from((0, 1, 2, 3, dtype.min, dtype.max))
    return st.builds(n.const, ends, st.just(dtype))


@lru_cache
def values(dtype: DType, depth: int = 3) -> st.SearchStrategy[Expr]:
    """Any expression of the dtype: loads, arithmetic, casts, choices."""
    index = st.builds(n.floormod, indices(leaves=3), st.just(Const(SIZE)))
    leaf = st.one_of(
        constants(dtype),
        st.builds(lambda i: Load(f"x_{dtype}", (i,), dtype), index),
    )
    if depth == 0:
        return leaf
    if dtype is BOOL:
        return st.one_of(leaf, conditions(), _bools(depth - 1))
    return st.one_of(leaf, _numbers(dtype, depth - 1))


@lru_cache
def _bools(depth: int) -> st.SearchStrategy[Expr]:
    inner = values(BOOL, depth)
    compared = [
        st.builds(f, values(t, depth), values(t, depth))
        for f in (n.lt, n.le, n.eq, n.ne)
        for t in (F32, I32, I64)
    ]
    return st.one_of(
        st.builds(n.all_of, inner, inner),
        st.builds(n.any_of, inner, inner),
        st.builds(n.not_, inner),
        st.builds(n.select, inner, inner, inner),
        *compared,
    )


@lru_cache
def _numbers(dtype: DType, depth: int) -> st.SearchStrategy[Expr]:
    inner = st.deferred(lambda: values(dtype, depth))
    condition = st.deferred(lambda: values(BOOL, depth))
    binary = [n.add, n.sub, n.mul, n.minimum, n.maximum]
    out = [st.builds(f, inner, inner) for f in binary]
    out.append(st.builds(n.select, condition, inner, inner))
    sources = (BOOL, I8, U8, I32, I64) if not dtype.is_float else (*DTYPES, BOOL)
    for t in sources:
        out.append(st.builds(Cast, st.deferred(lambda t=t: values(t, depth)), st.just(dtype)))
    if dtype.is_float:
        out.append(st.builds(n.div, inner, inner))
        out.append(st.builds(lambda x: Call("neg", (x,), dtype), inner))
    else:
        by = st.builds(n.const, st.sampled_from((1, 2, 3, 8)), st.just(dtype))
        out += [st.builds(f, inner, by) for f in (n.floordiv, n.floormod, n.div)]
    return st.one_of(*out)


@st.composite
def buffers(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """``SIZE`` elements of every dtype."""
    out = {}
    for name, t in BUFFERS.items():
        elements = draw(st.lists(constants(t), min_size=SIZE, max_size=SIZE))
        out[name] = np.array([c.value for c in elements], t.numpy)
    return out


@lru_cache
def deep() -> Expr:
    """A tree ``DEPTH`` deep on its left."""
    e: Expr = Var("i")
    one, seven = Const(1), Const(7)
    for k in range(DEPTH // 2):
        e = n.Min(n.Add(e, one), seven) if k % 2 else n.Max(n.Add(e, one), one)
    return e
