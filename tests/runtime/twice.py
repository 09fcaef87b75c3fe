"""A small program with kernels written by hand: the runtime's tests need no compiler."""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, I64
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, le
from planish.compiler.graph.ir import tensor
from planish.compiler.program import Place, Port, Program, Step

# y[i] = a[0] * x[i] + b[i % 2] for i < n; in chunks of one row of 4 when there are threads.
KERNELS = """
declare void @planish_parallel(ptr, ptr, ptr, i64, i64)

define internal void @affine_chunk(ptr %ctx, i64 %chunk) nounwind {
entry:
  %a.at = getelementptr ptr, ptr %ctx, i64 0
  %b.at = getelementptr ptr, ptr %ctx, i64 1
  %x.at = getelementptr ptr, ptr %ctx, i64 2
  %y.at = getelementptr ptr, ptr %ctx, i64 3
  %a.p = load ptr, ptr %a.at
  %b.p = load ptr, ptr %b.at
  %x.p = load ptr, ptr %x.at
  %y.p = load ptr, ptr %y.at
  %a = load float, ptr %a.p
  %first = mul i64 %chunk, 4
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]
  %i = add i64 %first, %k
  %odd = and i64 %i, 1
  %x.i = getelementptr float, ptr %x.p, i64 %i
  %y.i = getelementptr float, ptr %y.p, i64 %i
  %b.i = getelementptr float, ptr %b.p, i64 %odd
  %x = load float, ptr %x.i
  %b = load float, ptr %b.i
  %ax = fmul float %a, %x
  %y = fadd float %ax, %b
  store float %y, ptr %y.i
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, 4
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal void @affine(ptr %a, ptr %b, ptr %x, ptr %y, i64 %rows,
                             ptr %scratch, ptr %pool, i64 %threads) nounwind {
  %ctx = alloca [4 x ptr]
  %ctx.1 = getelementptr ptr, ptr %ctx, i64 1
  %ctx.2 = getelementptr ptr, ptr %ctx, i64 2
  %ctx.3 = getelementptr ptr, ptr %ctx, i64 3
  store ptr %a, ptr %ctx
  store ptr %b, ptr %ctx.1
  store ptr %x, ptr %ctx.2
  store ptr %y, ptr %ctx.3
  call void @planish_parallel(ptr %pool, ptr @affine_chunk, ptr %ctx, i64 %rows, i64 %threads)
  ret void
}
"""

N = Var("n")


def twice(rows: Expr | int = N, arena: Expr | int | None = None) -> Program:
    """x [rows, 4], shift [2] = (0, 0) -> y = 3 * (2 * x + shift) + (1, -1), by way of the arena."""
    n = as_expr(rows)
    between = Place("arena", 0, Const(64, I64))
    constants = (
        np.array([2], np.float32),
        np.array([3], np.float32),
        np.array([1, -1], np.float32),
    )
    steps = (
        Step("affine", (Place("constant", 0), Place("input", 1), Place("input", 0), between), (n,),
             Place("arena"), origin=("first",), flops=n * 8, bytes=n * 32),
        Step("affine", (Place("constant", 1), Place("constant", 2), between, Place("output", 0)),
             (n,), Place("arena"), origin=("second", "third"), flops=n * 8, bytes=n * 32),
    )  # fmt: skip
    return Program(
        "twice",
        (Port("x", tensor(F32, n, 4)), Port("shift", tensor(F32, 2))),
        (Port("y", tensor(F32, n, 4)),),
        (n,) if isinstance(n, Var) else (),
        {},
        steps,
        constants,
        as_expr(arena) if arena is not None else n * 16 + 64,
        constraints={} if isinstance(n, Const) else {le(n, 100_000): ""},
        defaults={"shift": np.zeros(2, np.float32)},
    )


def expected(x: np.ndarray, shift: tuple[float, float] = (0, 0)) -> np.ndarray:
    return 3 * (2 * x + np.tile(np.float32(shift), 2)) + np.tile(np.float32([1, -1]), 2)
