"""Small programs for kinds of accesses, scopes and dtypes, as text."""

from __future__ import annotations

from planish.compiler.dtypes import ALL, BOOL, I8, U8

from .programs import PROGRAMS, program

# --------------------------------------------------------------------------------------- accesses

program(
    "gather",
    """
def f(x: f32[5, 8], k: i64[16], *, y: f32[16, 8], z: f32[16]):
    for i in serial(16):
        for j in vector(8):
            with block("y", i0=spatial(16, i), i1=spatial(8, j)):
                y[i0, i1] = x[k[i0], i1]
    for i in serial(2):
        for j in vector(8):
            with block("z", i0=spatial(16, i * 8 + j)):
                z[i0] = x[k[i0], 3]
""",
)
program(
    "scatter",
    """
def f(x: f32[24], *, y: f32[3, 8]):
    for i in serial(3):
        for j in vector(8):
            with block("y", i0=spatial(3, i), i1=spatial(8, j)):
                y[i0, 7 - i1] = x[i1 * 3 + i0]
""",
)
program(
    "masked_scatter",
    """
def f(x: f32[n], *, y: f32[n]):
    for i in serial((n + 7) // 8):
        for j in vector(8):
            with block("y", i0=spatial(n, i * 8 + j), where=i * 8 + j < n):
                y[n - 1 - i0] = x[i0]
""",
    {"n": 8},
    {"n": 11},
)
program(
    "in_place",
    """
def f(x: f32[16], *, y: f32[16]):
    for i in serial(2):
        for j in vector(8):
            with block("a", i0=spatial(16, i * 8 + j)):
                y[i0] = x[i0]
    for i in serial(2):
        for j in vector(8):
            with block("b", i0=spatial(16, i * 8 + j)):
                y[i0] = y[i0] * y[i0]
    for i in serial(2):
        for j in vector(8):
            with block("c", i0=spatial(16, i * 8 + j)):
                y[i0] = y[i0] + x[i0]
""",
)
program(
    "guarded_loads",
    """
def f(x: f32[6, 16], *, y: f32[8, 18]):
    for i in serial(8):
        for j in serial(18):
            with block("y", i0=spatial(8, i), i1=spatial(18, j)):
                y[i0, i1] = select(1 <= i0 and i0 < 7 and 1 <= i1 and i1 < 17,
                                   x[i0 - 1, i1 - 1], f32(9.0))
""",
)
program(
    "guarded_vectors",
    """
def f(x: f32[n, 14], c: bool[n, 16], *, y: f32[n + 2, 16], z: f32[n, 16]):
    for i in serial(n + 2):
        for j in vector(16):
            with block("y", i0=spatial(n + 2, i), i1=spatial(16, j)):
                y[i0, i1] = select(1 <= i0 and i0 <= n and 1 <= i1 and i1 < 15,
                                   x[i0 - 1, i1 - 1], x[0, 0])
    for i in serial(n):
        for j in vector(16):
            with block("z", i0=spatial(n, i), i1=spatial(16, j)):
                z[i0, i1] = select(c[i0, i1] and i1 < 14, x[i0, i1],
                                   select(i1 < 3, x[0, 0], f32(-1.0)))
""",
    {"n": 3},
    {"n": 1},
)
program(
    "guarded_scalar_in_lanes",
    """
def f(x: f32[4], *, y: f32[4, 8]):
    for i in serial(4):
        for j in vector(8):
            with block("y", i0=spatial(4, i), i1=spatial(8, j)):
                y[i0, i1] = select(4 <= i0 + i1 and i0 < 3 and i1 < 7, x[i0 + 1], f32(0.0))
""",
)
program(
    "long_select_chain",
    """
def f(x: f32[16], *, y: f32[16]):
    for j in vector(16):
        with block("y", i0=spatial(16, j)):
            y[i0] = """
    + "".join(f"select(i0 == {k}, x[{(k * 5) % 16}], " for k in range(15))
    + "x[0]"
    + ")" * 15
    + "\n",
)
program(
    "division_by_what_may_be_zero",
    """
def f(x: i32[16], y: i32[16], *, q: i32[16], m: i32[16], d: i32[16]):
    for j in vector(16):
        with block("q", i0=spatial(16, j)):
            q[i0] = select(y[i0] == i32(0), i32(7), x[i0] / y[i0])
    for j in serial(16):
        with block("m", i0=spatial(16, j)):
            m[i0] = select(y[i0] == i32(0), i32(7), (x[i0] - i32(3)) % y[i0])
    for j in vector(16):
        with block("d", i0=spatial(16, j)):
            d[i0] = select(y[i0] == i32(0), i32(7), (x[i0] - i32(3)) // (i32(0) - y[i0]))
""",
)
program(
    "division_of_sizes",
    """
def f(x: f32[m * n], *, y: f32[m, n]):
    symbols(m, n)
    for k in serial(m * n):
        with block("y", i=spatial(m, k // n), j=spatial(n, k % n)):
            y[i, j] = x[i * n + j]
""",
    {"m": 3, "n": 4},
    {"m": 3, "n": 0},
    {"m": 0, "n": 4},
)
program(
    "negative_remainders",
    """
def f(x: f32[12], *, y: f32[12]):
    for k in serial(12):
        with block("y", i=spatial(12, k)):
            y[i] = x[(i - 7) % 12] + cast((i - 7) // 5, f32)
""",
)

# ------------------------------------------------------------------------------- local and global

program(
    "local",
    """
def f(x: f32[20, 9], *, y: f32[20, 9]):
    t = buffer(f32[20, 9], "local")
    for i in parallel(20):
        for j in serial(9):
            with block("t", i0=spatial(20, i), i1=spatial(9, j)):
                t[i0, i1] = x[i0, i1] * f32(2.0)
        for j in serial(9):
            with block("y", i0=spatial(20, i), i1=spatial(9, j)):
                y[i0, i1] = t[i0, 8 - i1]
""",
)
program(
    "local_of_unknown_size",
    """
def f(x: f32[m, n], *, y: f32[m, n]):
    t = buffer(f32[m, n], "local")
    for i in parallel(m):
        for j in serial(n):
            with block("t", i0=spatial(m, i), i1=spatial(n, j)):
                t[i0, i1] = x[i0, i1] * f32(2.0)
        for j in serial(n):
            with block("y", i0=spatial(m, i), i1=spatial(n, j)):
                y[i0, i1] = t[i0, n - 1 - i1]
""",
    {"m": 20, "n": 9},
    {"m": 3, "n": 0},
    {"m": 1, "n": 100},
    {"m": 0, "n": 3},
)
program(
    "local_too_large_for_a_stack",
    """
def f(x: f32[3, 90000], *, y: f32[3, 90000]):
    t = buffer(f32[3, 90000], "local")
    for i in parallel(3):
        for j in serial(90000):
            with block("t", i0=spatial(3, i), i1=spatial(90000, j)):
                t[i0, i1] = x[i0, i1] * f32(2.0)
        for j in serial(90000):
            with block("y", i0=spatial(3, i), i1=spatial(90000, j)):
                y[i0, i1] = t[i0, 89999 - i1]
""",
)
program(
    "local_of_the_call",
    """
def f(x: f32[40], *, y: f32[40]):
    t = buffer(f32[40], "local")
    for i in parallel(40):
        with block("t", i0=spatial(40, i)):
            t[i0] = x[i0] * f32(2.0)
    for i in parallel(40):
        with block("y", i0=spatial(40, i)):
            y[i0] = t[39 - i0]
""",
)
program(
    "several_globals",
    """
def f(x: f32[n], *, y: f32[n]):
    a = buffer(f32[n], "global")
    b = buffer(i8[n + 3], "global")
    c = buffer(f64[n], "global")
    for i in serial(n):
        with block("a", k=spatial(n, i)):
            a[k] = x[k]
    for i in serial(n + 3):
        with block("b", k=spatial(n + 3, i)):
            b[k] = cast(k, i8)
    for i in serial(n):
        with block("c", k=spatial(n, i)):
            c[k] = cast(a[k], f64)
    for i in serial(n):
        with block("y", k=spatial(n, i)):
            y[k] = cast(c[k], f32) + a[k] + cast(b[k + 3], f32)
""",
    {"n": 5},
    {"n": 17},
    {"n": 0},
)
program(
    "nontemporal",
    """
def f(x: f32[64], *, y: f32[64]):
    for i in serial(4):
        for j in vector(16):
            with block("y", i0=spatial(64, i * 16 + j), nontemporal=True):
                y[i0] = x[i0] + f32(1.0)
""",
)

# ----------------------------------------------------------------------------------- step by step

program(
    "scatter_with_duplicates",
    """
def f(k: i64[n], u: f32[n, m], *, y: f32[5, m]):
    for i in serial(5):
        for j in serial(m):
            with block("y", i0=spatial(5, i), i1=spatial(m, j)):
                y[i0, i1] = f32(0.0)
    for i in serial(n):
        for j_0 in serial((m + 3) // 4):
            for j_1 in vector(4):
                with block("add", where=j_0 * 4 + j_1 < m):
                    y[k[i], j_0 * 4 + j_1] = y[k[i], j_0 * 4 + j_1] + u[i, j_0 * 4 + j_1]
""",
    {"n": 9, "m": 6},
    {"n": 20, "m": 4},
    {"n": 0, "m": 3},
)
program(
    "scatter_into_nothing",
    """
def f(k: i64[7], u: i64[7], *, y: i64[n]):
    for i in serial(n):
        with block("y", i0=spatial(n, i)):
            y[i0] = 0
    for i in serial(7):
        with block("set", where=k[i] < n):
            y[max(0, min(k[i], n - 1))] = u[i]
""",
    {"n": 3},
    {"n": 6},
    {"n": 0},
)
program(
    "extents_that_are_read",
    """
def f(k: i64[n], *, y: i64[n], z: i64[()]):
    c = buffer(i64[2], "register")
    for i in parallel(n):
        with block("start"):
            c[0] = 0
        for j in serial(k[i]):
            with block("c"):
                c[0] = c[0] + j + 1
        for j in serial(c[0]):
            with block("twice"):
                c[0] = c[0] + 1
        with block("y"):
            y[i] = c[0]
    with block("first"):
        c[1] = 1
    for i in serial(c[1] * 2):
        with block("last"):
            c[1] = c[1] * 3
    with block("z"):
        z[()] = c[1]
""",
    {"n": 11},
    {"n": 1},
    {"n": 0},
)
program(
    "used_by_conditions_alone",
    """
def f(x: f32[n], *, y: f32[n + 1], count: i64[()]):
    best = buffer(f32[()], "register")
    at = buffer(i64[()], "register")
    for i in serial(n + 1):
        with block("y", i0=spatial(n + 1, i)):
            y[i0] = f32(-1.0)
    with block("best"):
        best[()] = f32(-9.0)
    with block("at"):
        at[()] = 0
    for i in serial(n):
        if best[()] < x[i]:
            with block("keep"):
                y[at[()]] = x[i]
            with block("next"):
                at[()] = at[()] + 1
            with block("better"):
                best[()] = x[i]
        with block("mark", where=best[()] < f32(0.0)):
            y[n] = x[i]
    with block("count"):
        count[()] = at[()]
""",
    {"n": 30},
    {"n": 3},
    {"n": 0},
)
program(
    "sorted_rows",
    """
def f(x: f32[m, n], *, y: f32[m, n]):
    t = buffer(f32[n], "local")
    for i in parallel(m):
        for j in serial(n):
            with block("t", i0=spatial(m, i), i1=spatial(n, j)):
                t[i1] = x[i0, i1]
        for j in serial(n):
            for k in serial(j):
                if t[j] < t[k]:
                    with block("sum"):
                        t[j] = t[j] + t[k]
                    with block("less"):
                        t[k] = t[j] - t[k]
                    with block("rest"):
                        t[j] = t[j] - t[k]
        for j in serial(n):
            with block("y", i0=spatial(m, i), i1=spatial(n, j)):
                y[i0, i1] = t[i1]
""",
    {"m": 4, "n": 9},
    {"m": 1, "n": 100},
    {"m": 3, "n": 0},
)

# ----------------------------------------------------------------------------------------- dtypes

REAL = [name for name, t in ALL.items() if t.kind != "c"]
# test_conversions has all pairs.
COMMON = [name for name in REAL if ALL[name].bits >= 16 or ALL[name] in (BOOL, I8, U8)]

for dtype in REAL:
    if dtype == "bool":
        continue
    program(
        f"arithmetic_of_{dtype}",
        f"""
def f(x: {dtype}[37], y: {dtype}[37], *, z: {dtype}[37], c: bool[37]):
    for i in serial(3):
        for j in vector(16):
            with block("z", i0=spatial(37, i * 16 + j), where=i * 16 + j < 37):
                z[i0] = max(x[i0] * y[i0] + x[i0], min(y[i0], x[i0] - y[i0]))
    for i in serial(37):
        with block("c", i0=spatial(37, i)):
            c[i0] = x[i0] < y[i0] or x[i0] == y[i0] and not (x[i0] <= y[i0])
""",
    )
    for other in COMMON if dtype in COMMON else ():
        text = f"cast(x[i0], {other})"
        if ALL[dtype].is_float and ALL[other].kind == "u":
            text = f"cast(abs(x[i0]), {other})"
        program(
            f"{dtype}_to_{other}",
            f"""
def f(x: {dtype}[21], *, y: {other}[21], z: {other}[21]):
    for i in serial(2):
        for j in vector(16):
            with block("y", i0=spatial(21, i * 16 + j), where=i * 16 + j < 21):
                y[i0] = {text}
    for i in serial(21):
        with block("z", i0=spatial(21, i)):
            z[i0] = {text}
""",
        )
for dtype in ("f16", "bf16", "f32", "f64"):
    program(
        f"functions_of_{dtype}",
        f"""
def f(x: {dtype}[32], *, y: {dtype}[32], z: {dtype}[32]):
    for j in vector(32):
        with block("y", i0=spatial(32, j)):
            y[i0] = floor(x[i0]) + ceil(x[i0]) * trunc(x[i0]) + round_even(x[i0] * {dtype}(2.0))
    for j in vector(32):
        with block("z", i0=spatial(32, j)):
            z[i0] = fma(x[i0], sqrt(abs(x[i0])), copysign(x[31 - i0], neg(x[i0])))
""",
    )

# One lane of a vector, cut to fewer bits right before: what is beside it stays.
for dtype, other in (("i64", "i32"), ("i64", "i16"), ("i64", "u8"), ("i32", "i16"), ("i32", "i8"),
                     ("i16", "i8"), ("f64", "i32"), ("f64", "f32")):  # fmt: skip
    one, two = (f"{other}({k}.0)" if other == "f32" else f"{other}({k})" for k in (1, 2))
    half = "(x[i0] + x[0]) / " + (f"{dtype}(2.0)" if dtype == "f64" else f"{dtype}(2)")
    for lanes, lane in ((4, 0), (4, 2), (8, 7), (16, 5), (2, 1)):
        program(
            f"lane_{lane}_of_{lanes}_{dtype}_to_{other}",
            f"""
def f(x: {dtype}[{lanes}], *, y: {other}[{lanes}], z: {other}[{lane + 1}]):
    for j in vector({lanes}):
        with block("y", i0=spatial({lanes}, j)):
            y[i0] = {one}
    for j in vector({lanes}):
        with block("y_1", i0=spatial({lanes}, j), where=j == {lane}):
            y[i0] = cast({half}, {other})
    for i in serial({lane + 1}):
        with block("z", i0=spatial({lane + 1}, i)):
            z[i0] = {two}
    for j in vector({lanes}):
        with block("z_1", i0=spatial({lane + 1}, j), where={lane} <= j and j < {lane + 1}):
            z[i0] = cast({half}, {other})
""",
        )

__all__ = ["PROGRAMS"]
