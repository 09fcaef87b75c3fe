"""Known contents of elementwise results: what shape computations come to, with symbols."""

from __future__ import annotations

import pytest

from planish.compiler.dtypes import I8, I64
from planish.compiler.expr.nodes import FALSE, Const, Expr, Var, floordiv, floormod
from planish.compiler.graph.ir import TensorType, tensor
from planish.compiler.ops.activations import Clip
from planish.compiler.ops.base import Op
from planish.compiler.ops.compare import Equal
from planish.compiler.ops.content import nonnegative
from planish.compiler.ops.elementwise import Add, Div, Max, Mod, Mul, Sub
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.unary import Abs, Neg

N, M = Var("n"), Var("m")


def known(op: Op, *contents: tuple[Expr | int, ...], type: TensorType | None = None) -> object:
    exprs = tuple(tuple(Const(e) if isinstance(e, int) else e for e in c) for c in contents)
    types = [type or tensor(I64, len(c)) for c in exprs]
    found = op.infer(*types)
    assert isinstance(found, TensorType)
    (out,) = op.content(exprs, (found,))
    return out


@pytest.mark.parametrize(
    ("op", "inputs", "wanted"),
    [
        (Add(), ((N, 2), (3,)), (N + 3, Const(5))),
        (Sub(), ((N,), (N,)), (Const(0),)),
        (Mul(), ((N, M), (M, 2)), (N * M, M * 2)),
        (Div(), ((N, -7), (2,)), (floordiv(N, 2), Const(-3))),
        (Mod(), ((N, -7), (4,)), (floormod(N, 4), Const(1))),
        (Max(), ((N, 3), (N, 5)), (N, Const(5))),
        (Equal(), ((N, N * M + 1), (-1,)), (FALSE, FALSE)),
        (Abs(), ((N, -2),), (N, Const(2))),
        (Neg(), ((N, -2),), (N * -1, Const(2))),
        (Clip(0, 4), ((-3, 9),), (Const(0), Const(4))),
    ],
)
def test_content(op: Op, inputs: tuple[tuple[Expr | int, ...], ...], wanted: object) -> None:
    assert known(op, *inputs) == wanted


@pytest.mark.parametrize(("place", "wanted"), [(1, (M,)), (-2, (N,)), (2, None)])
def test_one_element_of_a_row(place: int, wanted: object) -> None:
    """Where there is none of the place, nothing is known."""
    types = tensor(I64, 2), TensorType(I64, ())
    out = Gather().infer(*types)
    assert Gather().known(types, ((N, M), (Const(place),)), (out,)) == (wanted,)


@pytest.mark.parametrize("op", [Div(), Mod()])
def test_a_divisor_of_0_is_not_known(op: Op) -> None:
    assert known(op, (N,), (0,)) is None


def test_narrow_integers_wrap_around_and_are_not_known() -> None:
    assert known(Add(), (100,), (100,), type=tensor(I8, 1)) is None


def test_contents_that_broadcast_in_two_directions_are_not_known() -> None:
    a, b = tensor(I64, 2, 1), tensor(I64, 1, 2)
    out = Add().infer(a, b)
    two = (Const(1), Const(2))
    assert Add().content((two, two), (out,)) == (None,)


def test_nonnegative() -> None:
    assert nonnegative(N * M + floordiv(N, 2))
    assert not nonnegative(N - M)
