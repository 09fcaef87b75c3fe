"""Routines: functions of plain statements."""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import FALSE, TRUE, Var, as_expr
from planish.compiler.graph.ir import TensorType, tensor
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Seq, seq
from planish.compiler.loop.text import parse, show
from planish.compiler.loop.verify import verify
from planish.compiler.ops.selection import NonZero
from planish.compiler.ops.steps import Routine, below, is_nothing, when
from planish.compiler.ops.topk import TopK


def counted(extent: n.Expr) -> Routine:
    return Routine("f", {"x": tensor(F32, extent)})


def test_a_routine_is_what_its_statements_say() -> None:
    size = Var("n")
    r = counted(size)
    out, last = r.output("y", TensorType(F32, (size,))), r.cell("last", F32)

    def step(i: n.Expr) -> Seq:
        kept = when(r.inputs["x"][(i,)] < last.now, last.be(r.inputs["x"][(i,)]))
        body = seq(kept, out.put((i,), last.now))
        assert isinstance(body, Seq)
        return body

    func = verify(r.function(last.be(9.0), r.loop(size, step)))
    assert (
        show(func)
        == """\
def f(x: f32[n], *, y: f32[n]):
    last = buffer(f32[()], "register")
    with block("last"):
        last[()] = f32(9.0)
    for i1 in serial(n):
        if x[i1] < last[()]:
            with block("last_0"):
                last[()] = x[i1]
        with block("y"):
            y[i1] = last[()]"""
    )
    x = np.array([5, 7, 3, 4, 1], np.float32)
    np.testing.assert_array_equal(interpret(func, [x])[0], np.minimum.accumulate(x))


def test_names_stay_clear_of_symbols() -> None:
    """A user may call a size what a buffer or a loop would be called."""
    sizes = [Var(name) for name in ("x", "i1", "i2", "place", "y", "values", "hole")]
    for op in (NonZero(Var("count")), TopK(Var("indices"))):
        func = op.build(tensor(F32, *sizes))
        verify(func)
        assert parse(show(func)) == func


def test_what_does_nothing_is_left_out() -> None:
    r = counted(as_expr(4))
    out, unused = r.output("y", tensor(I64, 0)), r.cell("unused")
    nothing = r.loop(0, lambda i: out.put((i,), i))
    assert is_nothing(nothing)
    assert is_nothing(r.loop(4, lambda _: nothing))
    assert is_nothing(when(FALSE, unused.be(1)))
    assert is_nothing(when(n.lt(0, Var("n")), nothing))
    assert is_nothing(out.fill(lambda i: i))
    assert when(TRUE, kept := unused.be(1)) is kept
    assert r.function(nothing).temps == ()


def test_nan_is_above_all_numbers() -> None:
    for x, y, less in ((1.0, 2.0, True), (2.0, 1.0, False), (1.0, 1.0, False)):
        e = below(n.const(x, F32), n.const(y, F32))
        assert bool(_value(e)) is less
    nan = float("nan")
    for x, y, less in ((np.inf, nan, True), (nan, np.inf, False), (nan, nan, False)):
        assert bool(_value(below(n.const(x, F32), n.const(y, F32)))) is less


def _value(e: n.Expr) -> object:
    from planish.compiler.expr.evaluate import evaluate

    return evaluate(e, {})
