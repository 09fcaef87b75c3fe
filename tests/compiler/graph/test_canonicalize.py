from __future__ import annotations

import pytest

from planish.compiler.graph.canonicalize import canonicalize

from .tables import check, unchanged

SAME = """
    def f(x: f32[n, 4]) -> (x,):
        pass
    """

TABLE = {
    "add minus zero": (
        """
    def f(x: f32[n, 4]) -> (y,):
        c: f32[4] = constant([-0.0, -0.0, -0.0, -0.0])
        y: f32[n, 4] = add(c, x)
    """,
        SAME,
    ),
    "subtract zero": (
        """
    def f(x: f32[n, 4]) -> (y,):
        c: f32[()] = constant(0.0)
        y: f32[n, 4] = sub(x, c)
    """,
        SAME,
    ),
    "times one": (
        """
    def f(x: f32[n, 4]) -> (y,):
        c: f32[1, 1] = constant([1.0])
        y: f32[n, 4] = mul(c, x)
    """,
        SAME,
    ),
    "times one, broadcast": (
        """
    def f(x: f32[n, 1]) -> (y,):
        c: f32[3] = constant([1.0, 1.0, 1.0])
        y: f32[n, 3] = mul(x, c)
    """,
        """
    def f(x: f32[n, 1]) -> (y,):
        y: f32[n, 3] = expand(x, shape=(n, 3))
    """,
    ),
    "over a power of two": (
        """
    def f(x: f32[n, 4]) -> (y,):
        c: f32[()] = constant(8.0)
        y: f32[n, 4] = div(x, c)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        c: f32[()] = constant(0.125)
        y: f32[n, 4] = mul(x, c)
    """,
    ),
    "first power": (
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = pow_scalar(x, exponent=1.0)
    """,
        SAME,
    ),
    "two negatives": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n, 4] = neg(x)
        y: f32[n, 4] = neg(a)
    """,
        SAME,
    ),
    "and true": (
        """
    def f(x: bool[n, 4]) -> (y,):
        c: bool[()] = constant(True)
        y: bool[n, 4] = logical_and(x, c)
    """,
        """
    def f(x: bool[n, 4]) -> (x,):
        pass
    """,
    ),
    "where true": (
        """
    def f(x: f32[n, 4], y: f32[n, 4]) -> (z,):
        c: bool[4] = constant([True, True, True, True])
        z: f32[n, 4] = where(c, x, y)
    """,
        """
    def f(x: f32[n, 4], y: f32[n, 4]) -> (x,):
        pass
    """,
    ),
    "where the same": (
        """
    def f(c: bool[n, 4], x: f32[4]) -> (y,):
        y: f32[n, 4] = where(c, x, x)
    """,
        """
    def f(c: bool[n, 4], x: f32[4]) -> (y,):
        y: f32[n, 4] = expand(x, shape=(n, 4))
    """,
    ),
    "cast to its own dtype": (
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = cast(x, dtype=f32)
    """,
        SAME,
    ),
    "cast there and back": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f64[n, 4] = cast(x, dtype=f64)
        y: f32[n, 4] = cast(a, dtype=f32)
    """,
        SAME,
    ),
    "cast through": (
        """
    def f(x: bool[n]) -> (y,):
        a: i64[n] = cast(x, dtype=i64)
        y: f32[n] = cast(a, dtype=f32)
    """,
        """
    def f(x: bool[n]) -> (y,):
        y: f32[n] = cast(x, dtype=f32)
    """,
    ),
    "clip": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[()] = constant(-1.0)
        b: f32[1] = constant([6.0])
        c: f32[n, 4] = max(x, a)
        y: f32[n, 4] = min(b, c)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = clip(x, low=-1.0, high=6.0)
    """,
    ),
    "clip of relu": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n, 4] = relu(x)
        y: f32[n, 4] = clip(a, low=-1, high=6)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = clip(x, low=0, high=6)
    """,
    ),
    "clip by infinity": (
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = clip(x, low=-inf, high=inf)
    """,
        SAME,
    ),
    "max with 0": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[()] = constant(0.0)
        y: f32[n, 4] = max(a, x)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = relu(x)
    """,
    ),
    "reduction of one": (
        """
    def f(x: f32[n, 1]) -> (y,):
        y: f32[n] = reduce_mean(x, axes=(1,), keepdims=False)
    """,
        """
    def f(x: f32[n, 1]) -> (y,):
        y: f32[n] = reshape(x, shape=(n,))
    """,
    ),
    "dimensions kept": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n] = reduce_sum(x, axes=(1,), keepdims=False)
        b: f32[n, 1] = reshape(a, shape=(n, 1))
        y: f32[n, 4] = sub(x, b)
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        b: f32[n, 1] = reduce_sum(x, axes=(1,))
        y: f32[n, 4] = sub(x, b)
    """,
    ),
    "global pool": (
        """
    def f(x: f32[n, 4, h, w]) -> (y,):
        y: f32[n, 4, 1, 1] = global_average_pool(x)
    """,
        """
    def f(x: f32[n, 4, h, w]) -> (y,):
        y: f32[n, 4, 1, 1] = reduce_mean(x, axes=(2, 3))
    """,
    ),
    "reshape again": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n, 2, 2] = reshape(x, shape=(n, 2, 2))
        y: f32[n * 2, 2] = reshape(a, shape=(n * 2, 2))
    """,
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n * 2, 2] = reshape(x, shape=(n * 2, 2))
    """,
    ),
    "reshape there and back": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n * 4] = reshape(x, shape=(n * 4,))
        y: f32[n, 4] = reshape(a, shape=(n, 4))
    """,
        SAME,
    ),
    "transpose again": (
        """
    def f(x: f32[2, 3, n]) -> (y,):
        a: f32[3, 2, n] = transpose(x, perm=(1, 0, 2))
        y: f32[n, 2, 3] = transpose(a, perm=(2, 1, 0))
    """,
        """
    def f(x: f32[2, 3, n]) -> (y,):
        y: f32[n, 2, 3] = transpose(x, perm=(2, 0, 1))
    """,
    ),
    "transpose of ones": (
        """
    def f(x: f32[n, 1, 4]) -> (y,):
        y: f32[n, 4, 1] = transpose(x, perm=(0, 2, 1))
    """,
        """
    def f(x: f32[n, 1, 4]) -> (y,):
        y: f32[n, 4, 1] = reshape(x, shape=(n, 4, 1))
    """,
    ),
    "split": (
        """
    def f(x: f32[n, 5]) -> (a, b):
        a, b = split[f32[n, 2], f32[n, 3]](x, sizes=(2, 3), axis=-1)
    """,
        """
    def f(x: f32[n, 5]) -> (a, b):
        a: f32[n, 2] = slice(x, starts=(0, 0), steps=(1, 1), shape=(n, 2))
        b: f32[n, 3] = slice(x, starts=(0, 2), steps=(1, 1), shape=(n, 3))
    """,
    ),
    "split of one": (
        """
    def f(x: f32[n, 4]) -> (a,):
        a = split[f32[n, 4]](x, sizes=(4,), axis=1)
    """,
        SAME,
    ),
    "slice again": (
        """
    def f(x: f32[n, 9]) -> (y,):
        a: f32[n, 4] = slice(x, starts=(0, 1), steps=(1, 2), shape=(n, 4))
        y: f32[n, 2] = slice(a, starts=(0, 3), steps=(1, -2), shape=(n, 2))
    """,
        """
    def f(x: f32[n, 9]) -> (y,):
        y: f32[n, 2] = slice(x, starts=(0, 7), steps=(1, -4), shape=(n, 2))
    """,
    ),
    "slice of concat": (
        """
    def f(x: f32[n, 4], y: f32[n, 6]) -> (z,):
        a: f32[n, 10] = concat(x, y, axis=1)
        z: f32[n, 2] = slice(a, starts=(0, 5), steps=(1, 1), shape=(n, 2))
    """,
        """
    def f(x: f32[n, 4], y: f32[n, 6]) -> (z,):
        z: f32[n, 2] = slice(y, starts=(0, 1), steps=(1, 1), shape=(n, 2))
    """,
    ),
    "view of slice": (
        """
    def f(x: f32[n, 24]) -> (y,):
        a: f32[n, 8] = slice(x, starts=(0, 16), steps=(1, 1), shape=(n, 8))
        y: f32[n, 2, 4] = reshape(a, shape=(n, 2, 4))
    """,
        """
    def f(x: f32[n, 24]) -> (y,):
        a: f32[n, 6, 4] = reshape(x, shape=(n, 6, 4))
        y: f32[n, 2, 4] = slice(a, starts=(0, 4, 0), steps=(1, 1, 1), shape=(n, 2, 4))
    """,
    ),
    "gather of a place": (
        """
    def f(x: f32[n, 3, 4]) -> (y,):
        c: i64[()] = constant(-1)
        y: f32[n, 4] = gather(x, c, axis=1)
    """,
        """
    def f(x: f32[n, 3, 4]) -> (y,):
        a: f32[n, 1, 4] = slice(x, starts=(0, 2, 0), steps=(1, 1, 1), shape=(n, 1, 4))
        y: f32[n, 4] = reshape(a, shape=(n, 4))
    """,
    ),
    "gather of a run": (
        """
    def f(x: f32[n, 9]) -> (y,):
        c: i64[3] = constant([6, 4, 2])
        y: f32[n, 3] = gather(x, c, axis=1)
    """,
        """
    def f(x: f32[n, 9]) -> (y,):
        y: f32[n, 3] = slice(x, starts=(0, 6), steps=(1, -2), shape=(n, 3))
    """,
    ),
    "gather of everything": (
        """
    def f(x: f32[2, 2]) -> (y,):
        c: i64[4, 2] = constant([0, 0, 0, 1, 1, 0, 1, 1])
        y: f32[4] = gather_nd(x, c)
    """,
        """
    def f(x: f32[2, 2]) -> (y,):
        y: f32[4] = reshape(x, shape=(4,))
    """,
    ),
    "concat of one": (
        """
    def f(x: f32[n, 4], e: f32[n, 0]) -> (y,):
        y: f32[n, 4] = concat(x, e, axis=1)
    """,
        """
    def f(x: f32[n, 4], e: f32[n, 0]) -> (x,):
        pass
    """,
    ),
    "concat of concat": (
        """
    def f(x: f32[n, 4]) -> (z,):
        a: f32[n, 8] = concat(x, x, axis=1)
        z: f32[n, 12] = concat(a, x, axis=-1)
    """,
        """
    def f(x: f32[n, 4]) -> (z,):
        z: f32[n, 12] = concat(x, x, x, axis=-1)
    """,
    ),
    "concat of parts": (
        """
    def f(x: f32[n, 4]) -> (y,):
        a, b = split[f32[n, 1], f32[n, 3]](x, sizes=(1, 3), axis=1)
        y: f32[n, 4] = concat(a, b, axis=1)
    """,
        SAME,
    ),
    "pad of nothing": (
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = pad(x, before=(0, 0), after=(0, 0))
    """,
        SAME,
    ),
    "pad in front of a convolution": (
        """
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[3, 2, 3, 3] = constant("c")
        a: f32[n, 2, h + 2, w + 3] = pad(x, before=(0, 0, 1, 2), after=(0, 0, 1, 1))
        y: f32[n, 3, h, w + 1] = conv(a, c, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0))
    """,
        """
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[3, 2, 3, 3] = constant("c")
        y: f32[n, 3, h, w + 1] = conv(x, c, strides=(1, 1), dilations=(1, 1), pads=(1, 2, 1, 1))
    """,
    ),
    "expand to its own shape": (
        """
    def f(x: f32[n, 4]) -> (y,):
        y: f32[n, 4] = expand(x, shape=(1, 4))
    """,
        SAME,
    ),
    "expand for an operator": (
        """
    def f(x: f32[n, 4], y: f32[4]) -> (z,):
        a: f32[n, 4] = expand(y, shape=(n, 4))
        z: f32[n, 4] = add(x, a)
    """,
        """
    def f(x: f32[n, 4], y: f32[4]) -> (z,):
        z: f32[n, 4] = add(x, y)
    """,
    ),
    "tile of ones": (
        """
    def f(x: f32[n, 1]) -> (y,):
        y: f32[n, 5] = tile(x, repeats=(1, 5))
    """,
        """
    def f(x: f32[n, 1]) -> (y,):
        y: f32[n, 5] = expand(x, shape=(n, 5))
    """,
    ),
    "product of a transposed operand": (
        """
    def f(x: f32[n, 4, 5], y: f32[n, 3, 5]) -> (z,):
        a: f32[n, 5, 3] = transpose(y, perm=(0, 2, 1))
        z: f32[n, 4, 3] = matmul(x, a)
    """,
        """
    def f(x: f32[n, 4, 5], y: f32[n, 3, 5]) -> (z,):
        z: f32[n, 4, 3] = matmul(x, y, transpose_b=True)
    """,
    ),
    "product of a repeated operand": (
        """
    def f(q: f32[n, 4, 5, 8], k: f32[n, 2, 7, 8]) -> (z,):
        a: f32[n, 2, 1, 7, 8] = reshape(k, shape=(n, 2, 1, 7, 8))
        b: f32[n, 2, 2, 7, 8] = expand(a, shape=(n, 2, 2, 7, 8))
        c: f32[n, 4, 7, 8] = reshape(b, shape=(n, 4, 7, 8))
        z: f32[n, 4, 5, 7] = matmul(q, c, transpose_b=True)
    """,
        """
    def f(q: f32[n, 4, 5, 8], k: f32[n, 2, 7, 8]) -> (z,):
        a: f32[n, 2, 1, 7, 8] = reshape(k, shape=(n, 2, 1, 7, 8))
        b: f32[n, 2, 2, 5, 8] = reshape(q, shape=(n, 2, 2, 5, 8))
        c: f32[n, 2, 2, 5, 7] = matmul(b, a, transpose_b=True)
        z: f32[n, 4, 5, 7] = reshape(c, shape=(n, 4, 5, 7))
    """,
    ),
    "view behind the softmax of scores": (
        """
    def f(q: f32[n, 2, 3, 5, 8], k: f32[n, 2, 1, 7, 8]) -> (y,):
        a: f32[n, 2, 3, 5, 7] = matmul(q, k, transpose_b=True)
        b: f32[n, 6, 5, 7] = reshape(a, shape=(n, 6, 5, 7))
        y: f32[n, 6, 5, 7] = softmax(b, axes=(3,))
    """,
        """
    def f(q: f32[n, 2, 3, 5, 8], k: f32[n, 2, 1, 7, 8]) -> (y,):
        a: f32[n, 2, 3, 5, 7] = matmul(q, k, transpose_b=True)
        b: f32[n, 2, 3, 5, 7] = softmax(a)
        y: f32[n, 6, 5, 7] = reshape(b, shape=(n, 6, 5, 7))
    """,
    ),
    "view behind the epilogue": (
        """
    def f(x: f32[6, 4], r: f32[2, 3, 8]) -> (y,):
        w: f32[4, 8] = constant("w")
        b: f32[8] = constant("b")
        a: f32[6, 8] = matmul(x, w)
        c: f32[2, 3, 8] = reshape(a, shape=(2, 3, 8))
        d: f32[2, 3, 8] = add(c, b)
        e: f32[2, 3, 8] = relu(d)
        y: f32[2, 3, 8] = add(e, r)
    """,
        """
    def f(x: f32[6, 4], r: f32[2, 3, 8]) -> (y,):
        w: f32[4, 8] = constant("w")
        b: f32[8] = constant("b")
        a: f32[6, 8] = matmul(x, w)
        d: f32[6, 8] = add(a, b)
        e: f32[6, 8] = relu(d)
        s: f32[6, 8] = reshape(r, shape=(6, 8))
        z: f32[6, 8] = add(e, s)
        y: f32[2, 3, 8] = reshape(z, shape=(2, 3, 8))
    """,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_rule(name: str) -> None:
    before, after = TABLE[name]
    new = check(canonicalize, before, after, exact=name != "global pool")
    assert canonicalize(new) is new


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[n, 4] = add(x, c)",  # -0.0 + 0.0 is 0.0
        "y: f32[n, 4] = sub(c, x)",
        "y: f32[n, 4] = div(x, d)",  # a third is not a number
        "y: f32[n, 4] = mul(x, d)",
    ],
)
def test_left_alone(line: str) -> None:
    unchanged(
        canonicalize,
        f"""
    def f(x: f32[n, 4]) -> (y,):
        c: f32[()] = constant(0.0)
        d: f32[()] = constant(3.0)
        {line}
    """,
    )


def test_bounds_out_of_order_stay() -> None:
    unchanged(
        canonicalize,
        """
    def f(x: f32[n, 4]) -> (y,):
        a: f32[n, 4] = clip(x, low=2.0, high=3.0)
        y: f32[n, 4] = clip(a, low=4.0, high=5.0)
    """,
    )
