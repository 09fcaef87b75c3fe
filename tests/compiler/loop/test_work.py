from __future__ import annotations

from planish.compiler.dtypes import F32, I64
from planish.compiler.expr.nodes import Call, Const, Expr, Load, Var, mul
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, seq
from planish.compiler.loop.work import argument_bytes, flops

N, J, K = Var("n"), Var("j"), Var("k")


def spatial(var: Var, extent: Expr | int) -> Iter:
    return Iter(var, extent if isinstance(extent, Expr) else Const(extent, I64), "spatial", var)


def test_a_product_and_a_chain() -> None:
    x, w, y, z = (
        Buffer("x", F32, (N, Const(16, I64))),
        Buffer("w", F32, (Const(16, I64),)),
        Buffer("y", F32, (N,), "global"),
        Buffer("z", F32, (N,)),
    )
    product = Block(
        "product",
        (spatial(J, N), Iter(K, Const(16, I64), "reduce", K)),
        "y",
        (J,),
        mul(Load("x", (J, K), F32), Load("w", (K,), F32)),
        "sum",
        Const(0.0, F32),
    )
    chain = Block("chain", (spatial(J, N),), "z", (J,), Call("exp", (Load("y", (J,), F32),), F32))
    func = Function("f", (x, w, z), 1, (N,), (y,), seq(product, chain))
    assert str(flops(func)) == "n * 16 * 2 + n"
    assert str(argument_bytes(func)) == "n * 16 * 4 + 64 + n * 4"
