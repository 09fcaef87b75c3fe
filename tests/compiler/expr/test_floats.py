"""Laws of floats hold for every value, checked on all that are special."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planish.compiler.dtypes import BF16, F16, F32, F64, I32
from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.floats import FLOATS
from planish.compiler.expr.nodes import Const, Var
from planish.compiler.expr.rewrite import STATEMENT, statement
from planish.compiler.expr.simplify import simplify
from planish.compiler.expr.text import Scope, parse, show

SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, 0.1, 1e-40, 5e-324, 3e38, 65504.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("rule", FLOATS.stated, ids=lambda r: r.__name__)
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_law(rule, dtype):
    left, right = (_retyped(side, dtype) for side in statement(rule))
    for x, y in product(SPECIAL, SPECIAL):
        env = {"a": x, "b": y, "u": 7}
        p, q = evaluate(left, env), evaluate(right, env)
        assert p.tobytes() == q.tobytes() or (p != p and q != q), (x, y)


def _retyped(e, dtype):
    """The statement, which is of f32, in another float type."""
    return parse(show(e).replace("f32(", f"{dtype}("), Scope({"a": dtype, "b": dtype, "u": I32}))


KEPT = ["a + f32(0.0)", "a * f32(0.0)", "a - a", "a / a", "a + b - b", "a == a", "a / f32(3.0)"]
CHANGED = [
    ("a + f32(-0.0)", "a"),
    ("a / f32(1.0)", "a"),
    ("a / f32(-0.5)", "a * f32(-2.0)"),
    ("neg(a) + b", "b - a"),
    ("a - neg(b) * f32(1.0)", "a + b"),
    ("neg(a) * f32(3.0)", "a * f32(-3.0)"),
    ("i32(3) + u - i32(1)", "u + i32(2)"),
    ("i32(65536) * u * i32(65536)", "i32(0)"),
]


@pytest.mark.parametrize("text", KEPT)
def test_kept(text):
    e = parse(text, STATEMENT)
    assert simplify(e) is e


@pytest.mark.parametrize(("text", "expected"), CHANGED)
def test_changed(text, expected):
    assert show(simplify(parse(text, STATEMENT))) == expected


def test_a_tiny_divisor_has_no_inverse():
    e = Var("a", F32) / Const(2.0**-149, F32)
    assert simplify(e) is e
