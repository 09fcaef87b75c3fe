"""Small programs for each kind of statement and buffer, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planish.compiler.expr.evaluate import evaluate
from planish.compiler.graph.ir import Array
from planish.compiler.loop.ir import Buffer, Function
from planish.compiler.loop.text import parse


@dataclass(frozen=True)
class Program:
    """A function as text, and values of its symbols to run it with."""

    text: str
    sizes: tuple[Mapping[str, int], ...] = field(default=({},))

    @property
    def function(self) -> Function:
        return parse(self.text)

    def inputs(self, sizes: Mapping[str, int]) -> list[Array]:
        """Arrays to run it with."""
        return [
            _array(b, tuple(int(evaluate(d, sizes)) for d in b.shape), k)
            for k, b in enumerate(self.function.inputs)
        ]


def _array(b: Buffer, shape: tuple[int, ...], seed: int) -> Array:
    """Values that every operation is at home with; indices for integers."""
    rng = np.random.default_rng(seed)
    if b.dtype.is_float:
        return rng.uniform(-3, 3, shape).astype(b.dtype.numpy)
    return rng.integers(0, 2 if b.dtype.name == "bool" else 5, shape).astype(b.dtype.numpy)


PROGRAMS: dict[str, Program] = {}


def program(name: str, text: str, *sizes: Mapping[str, int]) -> None:
    PROGRAMS[name] = Program(text, sizes or ({},))


# ------------------------------------------------------------------------------------------ loops

program(
    "serial",
    """
def f(x: f32[5, 7], *, y: f32[5, 7]):
    for i in serial(5):
        for j in serial(7):
            with block("y", i0=spatial(5, i), i1=spatial(7, j)):
                y[i0, i1] = x[i0, i1] * f32(2.0) + f32(1.0)
""",
)
program(
    "symbolic",
    """
def f(x: f32[m, n], *, y: f32[m, n]):
    for i in serial(m):
        for j in serial(n):
            with block("y", i0=spatial(m, i), i1=spatial(n, j)):
                y[i0, i1] = x[i0, i1] - f32(1.0)
""",
    {"m": 3, "n": 5},
    {"m": 0, "n": 5},
    {"m": 3, "n": 0},
    {"m": 1, "n": 1},
)
program(
    "unrolled",
    """
def f(x: f32[6], *, y: f32[6]):
    for i in unrolled(6):
        with block("y", i0=spatial(6, i)):
            y[i0] = x[5 - i0]
""",
)
program(
    "vector",
    """
def f(x: f32[32], z: f32[4], *, y: f32[32]):
    for i in serial(4):
        for j in vector(8):
            with block("y", i0=spatial(4, i), i1=spatial(8, j)):
                y[i0 * 8 + i1] = x[i0 * 8 + i1] * z[i0] + cast(i1, f32)
""",
)
program(
    "parallel",
    """
def f(x: f32[n, 7], *, y: f32[n, 7]):
    for i in parallel(n):
        for j in serial(7):
            with block("y", i0=spatial(n, i), i1=spatial(7, j)):
                y[i0, i1] = x[i0, i1] + f32(1.0)
""",
    {"n": 40},
    {"n": 1},
    {"n": 0},
)
program(
    "parallel_twice",
    """
def f(x: f32[40, 6], *, y: f32[40, 6]):
    t = buffer(f32[40, 6], "global")
    for a in serial(2):
        for i in parallel(20):
            for j in parallel(6):
                with block("t", i0=spatial(40, a * 20 + i), i1=spatial(6, j)):
                    t[i0, i1] = x[i0, i1] * f32(3.0)
    for i in parallel(40):
        for j in vector(2):
            with block("y", i0=spatial(40, i), i1=spatial(6, j)):
                y[i0, i1] = t[i0, i1]
            with block("z", i0=spatial(40, i), i1=spatial(6, j * 2 + 2 - j)):
                y[i0, i1] = t[i0, i1]
            with block("w", i0=spatial(40, i), i1=spatial(6, j + 4)):
                y[i0, i1] = t[i0, i1] + f32(1.0)
""",
)
program(
    "if_else",
    """
def f(x: f32[9], *, y: f32[9]):
    for i in serial(9):
        if i < 4:
            with block("a", i0=spatial(9, i)):
                y[i0] = x[i0]
        else:
            if i % 2 == 0:
                with block("b", i0=spatial(9, i)):
                    y[i0] = x[i0] * f32(2.0)
            else:
                with block("c", i0=spatial(9, i)):
                    y[i0] = f32(0.0)
""",
)

# ---------------------------------------------------------------------------------------- masks

for isa_tail, count in (("one", 33), ("three", 35), ("thirteen", 45)):
    program(
        f"tail_{isa_tail}",
        f"""
def f(x: f32[{count}], *, y: f32[{count}]):
    for i in serial(3):
        for j in vector(16):
            with block("y", i0=spatial({count}, i * 16 + j), where=i * 16 + j < {count}):
                y[i0] = x[i0] * f32(2.0)
""",
    )
for dtype in ("bf16", "i8", "f64", "bool", "i64"):
    program(
        f"tail_of_{dtype}",
        f"""
def f(x: {dtype}[2, 33], *, y: {dtype}[2, 33]):
    for r in serial(2):
        for i in serial(3):
            for j in vector(16):
                with block("y", k=spatial(2, r), i0=spatial(33, i * 16 + j), where=i * 16 + j < 33):
                    y[k, i0] = x[k, i0]
""",
    )
program(
    "tail_of_unknown_length",
    """
def f(x: f32[n], z: i8[n], *, y: f32[n]):
    for i in serial((n + 15) // 16):
        for j in vector(16):
            with block("y", i0=spatial(n, i * 16 + j), where=i * 16 + j < n):
                y[i0] = x[i0] + cast(z[i0], f32)
""",
    {"n": 1},
    {"n": 16},
    {"n": 50},
    {"n": 0},
)
program(
    "all_lanes_off",
    """
def f(x: f32[n], z: f32[n], *, y: f32[4, n]):
    for i in serial(4):
        for k in serial(n):
            with block("y_0", i0=spatial(4, i), i1=spatial(n, k)):
                y[i0, i1] = f32(0.0)
        for j in vector(4):
            with block("y", i0=spatial(4, i), i1=spatial(n, i * 4 + j), where=i * 4 + j < n):
                y[i0, i1] = x[i1] * z[i0 * 4]
""",
    {"n": 5},
    {"n": 16},
    {"n": 2},
)

# -------------------------------------------------------------------------------- register buffers

program(
    "accumulators",
    """
def f(A: f32[5, 9], B: f32[9, 16], *, C: f32[5, 16]):
    T = buffer(f32[5, 16], "register")
    for i in unrolled(5):
        for j in vector(16):
            with block("t0", i0=spatial(5, i), i1=spatial(16, j)):
                T[i0, i1] = f32(0.0)
    for k in serial(9):
        for i in unrolled(5):
            for j in vector(16):
                with block("t", i0=spatial(5, i), i1=spatial(16, j), r=reduce(9, k)):
                    T[i0, i1] += A[i0, r] * B[r, i1]
    for i in unrolled(5):
        for j in vector(16):
            with block("c", i0=spatial(5, i), i1=spatial(16, j)):
                C[i0, i1] = max(T[i0, i1], f32(0.0))
""",
)
program(
    "registers_through_branches",
    """
def f(x: f32[6], *, y: f32[6]):
    T = buffer(f32[2], "register")
    for i in serial(6):
        for u in unrolled(2):
            with block("t0", k=spatial(2, u)):
                T[k] = f32(1.0)
        if i < 3:
            for u in unrolled(2):
                with block("t1", i0=spatial(6, i), k=spatial(2, u)):
                    T[k] = x[i0] + cast(k, f32)
        else:
            with block("t2", i0=spatial(6, i), k=spatial(2, 1)):
                T[k] = x[i0] * f32(2.0)
        with block("y", i0=spatial(6, i)):
            y[i0] = T[0] + T[1] * f32(10.0)
""",
)
program(
    "registers_of_one_side",
    """
def f(x: f32[n], *, y: f32[n]):
    T = buffer(f32[3], "register")
    for i in serial((n + 2) // 3):
        for u in unrolled(3):
            with block("t0", k=spatial(3, u), where=i * 3 + u < n):
                T[k] = f32(1.0)
        for r in serial(4):
            for u in unrolled(3):
                with block("t", j=spatial(n, i * 3 + u), k=spatial(3, u), q=reduce(4, r),
                           where=i * 3 + u < n):
                    T[k] += x[j] * cast(q, f32)
        for u in unrolled(3):
            with block("y", i0=spatial(n, i * 3 + u), k=spatial(3, u), where=i * 3 + u < n):
                y[i0] = T[k]
""",
    {"n": 7},
    {"n": 1},
    {"n": 3},
)
program(
    "masked_registers",
    """
def f(x: f32[37], *, y: f32[1]):
    T = buffer(f32[16], "register")
    for j in vector(16):
        with block("t0", k=spatial(16, j)):
            T[k] = f32("-inf")
    for i in serial(3):
        for j in vector(16):
            with block("t", k=spatial(16, j), r=reduce(3, i), where=i * 16 + j < 37):
                T[k] = max(T[k], x[r * 16 + k] - f32(10.0))
    with block("y0", i0=spatial(1, 0)):
        y[i0] = f32("-inf")
    for j in vector(16):
        with block("y", i0=spatial(1, 0), r=reduce(16, j)):
            y[i0] = max(y[i0], T[r])
""",
)
program(
    "registers_of_several_widths",
    """
def f(x: f32[8], *, y: f32[8]):
    T = buffer(f32[8], "register")
    for j in vector(8):
        with block("t", k=spatial(8, j)):
            T[k] = x[k]
    with block("u", k=spatial(8, 3)):
        T[k] = f32(100.0)
    for h in unrolled(2):
        for j in vector(4):
            with block("y", i0=spatial(8, h * 4 + j)):
                y[i0] = T[i0]
""",
)
program(
    "registers_backwards",
    """
def f(x: f32[8], *, y: f32[8]):
    T = buffer(f32[8], "register")
    for j in vector(8):
        with block("t", k=spatial(8, j)):
            T[k] = x[k]
    for j in vector(8):
        with block("y", i0=spatial(8, j)):
            y[i0] = T[7 - i0]
""",
)
program(
    "registers_that_must_be_memory",
    """
def f(x: f32[8], *, y: f32[8]):
    T = buffer(f32[8], "register")
    for j in serial(8):
        with block("t", k=spatial(8, j)):
            T[k] = x[k]
    for j in serial(8):
        with block("y", i0=spatial(8, j)):
            y[i0] = T[(i0 * 3) % 8]
""",
)
program(
    "registers_across_threads",
    """
def f(x: f32[40], *, y: f32[40]):
    T = buffer(f32[2], "register")
    for u in unrolled(2):
        with block("t", k=spatial(2, u)):
            T[k] = x[k] * f32(5.0)
    for i in parallel(40):
        with block("y", i0=spatial(40, i)):
            y[i0] = x[i0] + T[1]
""",
)

# ------------------------------------------------------------------------------------ reductions

for combiner in ("+", "*"):
    program(
        f"fold_{'sum' if combiner == '+' else 'product'}",
        f"""
def f(x: f32[3, 8], *, y: f32[3]):
    for i in serial(3):
        with block("y0", i0=spatial(3, i)):
            y[i0] = f32({0.0 if combiner == "+" else 1.0})
        for j in vector(8):
            with block("y", i0=spatial(3, i), r=reduce(8, j)):
                y[i0] {combiner}= x[i0, r]
""",
    )
program(
    "fold_of_what_does_not_vary",
    """
def f(x: f32[3], *, y: f32[3]):
    for i in serial(3):
        with block("y0", i0=spatial(3, i)):
            y[i0] = f32(0.0)
        for j in vector(8):
            with block("y", i0=spatial(3, i), r=reduce(8, j), where=j < 5):
                y[i0] += x[i0]
""",
)
program(
    "integers_and_bools_folded",
    """
def f(x: i32[16], b: bool[16], *, y: i32[1], z: bool[1]):
    with block("y0", i0=spatial(1, 0)):
        y[i0] = i32(100)
    with block("z0", i0=spatial(1, 0)):
        z[i0] = False
    for j in vector(16):
        with block("y", i0=spatial(1, 0), r=reduce(16, j)):
            y[i0] = min(y[i0], x[r])
    for j in vector(16):
        with block("z", i0=spatial(1, 0), r=reduce(16, j)):
            z[i0] = max(z[i0], b[r])
""",
)
program(
    "histogram",
    """
def f(x: i64[16], *, y: i32[5]):
    for i in serial(5):
        with block("y0", i0=spatial(5, i)):
            y[i0] = 0
    for j in vector(16):
        with block("y", r=reduce(16, j)):
            y[x[r]] += i32(1)
""".replace("y[i0] = 0", "y[i0] = i32(0)"),
)
program(
    "pairs",
    """
def f(x: f32[16], *, y: f32[8]):
    for i in serial(8):
        with block("y0", i0=spatial(8, i)):
            y[i0] = f32(0.0)
    for j in vector(16):
        with block("y", i0=spatial(8, j // 2), r=reduce(2, j % 2), where=j < 15):
            y[i0] += x[i0 * 2 + r]
""",
)
