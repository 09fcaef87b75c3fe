from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.dtypes import F32, I64
from planish.compiler.errors import RuntimeFault, TypeCheckError
from planish.compiler.expr.nodes import Expr, Var, as_expr, le
from planish.runtime.interface import Constraint, Interface, Port
from planish.runtime.memory import LARGE
from planish.runtime.plan import Planner, fetch

N, M, N1 = Var("n"), Var("m"), Var("n_1")


def planner(
    inputs: list[tuple[int | Expr, ...]],
    outputs: list[tuple[int | Expr, ...]],
    symbols: str,
    arena: int | Expr = 0,
    constraints: tuple[Expr, ...] = (),
) -> Planner:
    return Planner(
        Interface(
            "f",
            tuple(Port(f"x{k}", F32, shape) for k, shape in enumerate(inputs)),
            tuple(Port(f"y{k}", F32, shape) for k, shape in enumerate(outputs)),
            tuple(symbols.split()),
            tuple(map(Constraint, constraints)),
            arena,
            0,
            (),
        )
    )


def test_symbols_are_read_off_where_they_stand_alone() -> None:
    p = planner([(N * 2, 3), (N, M)], [(N + M,), (M, 2)], "n m", N * 64)
    plan = p.plan(((8, 3), (4, 5)))
    assert plan.symbols == (4, 5)
    assert plan.arena_bytes == 256
    assert [(shape, size) for shape, _, size in plan.outputs] == [((9,), 36), ((5, 2), 40)]


def test_plans_are_kept_but_not_for_ever() -> None:
    p = planner([(N,)], [(N,)], "n")
    assert p.plan(((3,),)) is p.plan(((3,),))
    for size in range(3000):
        assert p.plan(((size,),)).symbols == (size,)
        assert len(p) <= 1024


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((8,), (4, 5)), r"x0 is f32\[8\]: 2 dimensions are wanted"),
        (((8, 4), (4, 5)), r"x0 is f32\[8, 4\]: dimension 1 must be 3$"),
        (((9, 3), (4, 5)), "dimension 0 must be 8, which is n \\* 2 with the n of the input x1$"),
    ],
)
def test_sizes_that_differ(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(TypeCheckError, match=f"(?m){message}"):
        planner([(N * 2, 3), (N, M)], [], "n m").plan(shapes)


def test_only_the_symbols_of_a_size_are_named() -> None:
    p = planner([(N,), (N1,), (N1 + 1, N)], [], "n n_1")
    with pytest.raises(TypeCheckError, match="which is .*n_1.* with the n_1 of the input x1$|hint"):
        p.plan(((2,), (3,), (5, 2)))
    with pytest.raises(TypeCheckError) as caught:
        p.plan(((2,), (3,), (5, 2)))
    assert caught.value.message.endswith("with the n_1 of the input x1")
    with pytest.raises(TypeCheckError) as caught:
        p.plan(((2,), (3,), (4, 3)))
    assert caught.value.message.endswith("dimension 1 must be 2, the n of the input x0")


def test_conditions() -> None:
    p = planner([(N,)], [], "n", constraints=(le(2, N), le(N, 8)))
    assert p.plan(((2,),)).symbols == (2,)
    with pytest.raises(TypeCheckError, match="n <= 8 does not hold") as caught:
        p.plan(((9,),))
    assert caught.value.node == "n = 9"
    assert caught.value.hint == "n is dimension 0 of the input x0"


def test_inputs_too_small_for_the_output() -> None:
    p = planner([(N,)], [(N - 3,)], "n")
    assert p.plan(((3,),)).nothing
    with pytest.raises(TypeCheckError, match=r"would be \[-1\]: the inputs are too small"):
        p.plan(((2,),))


def test_nothing_to_do() -> None:
    p = planner([(N, M)], [(N, 4), (M,)], "n m")
    assert p.plan(((0, 0),)).nothing
    assert not p.plan(((0, 1),)).nothing
    assert not planner([(N,)], [], "n").plan(((0,),)).nothing


def test_more_than_any_memory() -> None:
    p = planner([(N,)], [(N, N, N)], "n", N * N)
    assert p.plan(((100,),)).large_bytes == 4 * 100**3 > LARGE
    for size in (1 << 16, 1 << 40, (1 << 62) - 1):
        with pytest.raises(RuntimeFault, match="would take .* bytes of memory"):
            p.plan(((size,),))


def test_fetch() -> None:
    port = Port("x", F32, (3,))
    x = np.ones(3, np.float32)
    assert fetch(x, port, "f") is x
    assert fetch(np.float32(2), Port("x", F32, ()), "f").shape == ()
    for wrong in (x.astype(np.float64), np.ma.masked_array([1, 2, 3]), [1.0], None, "x"):
        with pytest.raises(TypeCheckError, match="the input x is"):
            fetch(wrong, port, "f")
    with pytest.raises(TypeCheckError, match="must be of i64"):
        fetch(np.int32(4), Port("x", I64, (as_expr(1),)), "f")
