"""The simplifier as a whole: values stay, rules say what they do, deep and wide trees pass."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.dtypes import BOOL, F32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.intervals import Interval
from planish.compiler.expr.nodes import Const, Expr, Load, Var
from planish.compiler.expr.rewrite import STATEMENT, statement
from planish.compiler.expr.simplify import SIMPLIFY, prove, simplify
from planish.compiler.expr.text import parse, show

from . import strategies

RANGES = {
    Var("i"): Interval(0, 99),
    Var("j"): Interval(0, 7),
    Var("k"): Interval(0, 5),
    Var("n"): Interval(1, None),
}


@pytest.mark.parametrize("rule", SIMPLIFY.stated, ids=lambda r: r.__name__)
def test_rule_is_what_it_says(rule):
    left, right = statement(rule)
    assert rule(left) is right


@given(st.data(), st.booleans())
def test_indices_keep_their_value(data, symbols):
    where = data.draw(strategies.ranges())
    e: Expr = data.draw(strategies.indices(symbols))
    out = simplify(e, where)
    point = data.draw(strategies.points(where))
    assert evaluate(out, point) == evaluate(e, point) == evaluate(simplify(e), point)
    assert simplify(out, where) is out


@given(st.data(), st.booleans())
def test_conditions_keep_their_value(data, symbols):
    where = data.draw(strategies.ranges())
    e: Expr = data.draw(strategies.conditions(symbols))
    out = simplify(e, where)
    point = data.draw(strategies.points(where))
    assert evaluate(out, point) == evaluate(e, point) == evaluate(simplify(e), point)
    assert simplify(out, where) is out


@given(st.data(), st.sampled_from((*strategies.DTYPES, BOOL)))
def test_bodies_keep_their_value(data, dtype):
    where = data.draw(strategies.ranges())
    e: Expr = data.draw(strategies.values(dtype))
    buffers = data.draw(strategies.buffers())
    point = data.draw(strategies.points(where))
    before, after = evaluate(e, point, buffers), evaluate(simplify(e, where), point, buffers)
    assert before.dtype == after.dtype
    assert before == after or (before != before and after != after)


@given(st.data())
def test_given_conditions(data):
    """What follows from a condition is right wherever it holds."""
    where = data.draw(strategies.ranges())
    condition = data.draw(strategies.conditions())
    e: Expr = data.draw(strategies.conditions())
    point = data.draw(strategies.points(where))
    if evaluate(condition, point):
        assert evaluate(simplify(e, where, (condition,)), point) == evaluate(e, point)


PROVED = [
    "0 <= i",
    "i * 8 + j < 800",
    "i * 6 + k < i * 6 + 6",
    "(n + 3) // 4 * 4 - n >= 0",
    "n // 4 * 4 <= n",
    "n // 4 * 4 + 4 > n",
    "min(i, n) <= n",
    "max(i, n) >= n",
    "m % n < n",
    "(m % n) * 3 + j < n * 3 + 8",
    "select(p, i, n) >= 0",
    "(i * 4 + 3) // 4 == i",
    "i != i + 1",
    "i < 3 or 3 <= i",
    "i // 8 * 8 + i % 8 == i",
]
NOT_PROVED = ["0 < i", "i < n", "m % n < m", "i * 8 + j < 799", "i != 5", "n // 4 * 4 == n"]


@pytest.mark.parametrize("text", PROVED)
def test_proved(text):
    assert prove(parse(text, STATEMENT), RANGES)


@pytest.mark.parametrize("text", NOT_PROVED)
def test_not_proved(text):
    assert not prove(parse(text, STATEMENT), RANGES)


SYMBOLIC = [
    ("(x * w + y) // w", "x"),
    ("(x * w + y) % w", "y"),
    ("(x * h * w + z * w + y) // (h * w)", "x"),
    ("(x * h * w + z * w + y) // w % h", "z"),
    ("(x * h * w + z * w + y) % w", "y"),
    ("y < w + 1", "True"),
]


@pytest.mark.parametrize(("text", "expected"), SYMBOLIC)
def test_given_symbolic_extents(text, expected):
    where = {v: Interval(0, None) for v in map(Var, "xyz")}
    where |= {v: Interval(1, None) for v in map(Var, "hw")}
    assert show(simplify(parse(text), where, (parse("y < w"), parse("z < h")))) == expected


def test_elements_of_tensors_may_overflow():
    """``i64`` arithmetic on data wraps around, so only laws of the ring hold for it."""
    x, i = Load("x", (Const(0),), n.I64), Var("i")
    greatest = {"x": np.array([2**63 - 1])}
    compared = [
        n.lt(x, x + 1),
        n.lt(x * 2, x + x + 2),
        n.maximum(x, x + 1),
        x < i - 3,
        x < 2**63 - 1,
    ]
    compared += [n.le(x, -(2**63)), n.eq(n.minimum(x - 3, x), x)]
    for e in (*compared, (x * 2) // 2, (x * 3) % 3, (x % 6 + i) % 3, (x // 4 + 2) // 3):
        out = simplify(e)
        for where in (greatest, {"x": -1 - greatest["x"]}):
            assert evaluate(out, {"i": 8}, where) == evaluate(e, {"i": 8}, where), str(e)
    assert simplify(x + x) is simplify(x * 2)


def test_loads_stay_under_their_guard():
    guarded = n.select(parse("i < 3"), n.lt(Load("x", (Var("i"),), F32), 1.0), n.FALSE)
    assert simplify(guarded) is guarded
    assert show(simplify(n.select(parse("i < 3"), parse("j < 3"), n.FALSE))) == "i < 3 and j < 3"


def _deep(kind: str) -> Expr:
    e: Expr = Var("i") if kind not in ("and", "float") else n.TRUE
    if kind == "float":
        e = Load("x", (Var("i"),), F32)
    step = {
        "double": lambda e, k: e + e,
        "sum": lambda e, k: e + Var(f"v{k % 50}"),
        "min": lambda e, k: n.minimum(e + 1, Var(f"v{k % 50}")),
        "floor": lambda e, k: (e + Var("n")) // 3,
        "mod": lambda e, k: (e * 5 + Var("n")) % 7,
        "select": lambda e, k: n.select(n.lt(e, Const(k)), e + 1, Var("n")),
        "shared": lambda e, k: n.maximum(e + e, Var("n")),
        "and": lambda e, k: n.all_of(e, n.lt(Var(f"v{k}"), Const(k))),
        "float": lambda e, k: e * 1.5 - e,
    }[kind]
    for k in range(strategies.DEPTH):
        e = step(e, k)
    return e


@pytest.mark.parametrize("kind", ["float", "double"])
def test_deep_trees(kind):
    assert simplify(_deep(kind)).dtype is not None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sum", "min", "floor", "mod", "select", "shared", "and"])
def test_deeper_trees(kind):
    assert simplify(_deep(kind)).dtype is not None


def test_threads():
    texts = [f"(i * {k + 2} + j) // {k % 7 + 1} % {k % 5 + 2}" for k in range(200)]
    results: list[list[str]] = []

    def work() -> None:
        results.append([show(simplify(parse(t), RANGES)) for t in texts])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4
    assert all(r == results[0] for r in results)


def test_remembered_results_are_free():
    e = parse("(i * 3136 + j * 56 + k) % 3136 // 56")
    simplify(e, RANGES)
    start = time.perf_counter()
    for _ in range(1000):
        simplify(e, RANGES)
    assert time.perf_counter() - start < 1.0  # seconds; about 2 us each
