"""Powers: of two tensors, and to a known exponent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import F64, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr
from planish.compiler.graph.ir import Array, TensorType
from planish.compiler.loop import te

from .base import Op, broadcast, broadcast_indices
from .elementwise import Unary, call, wide
from .sampling import extremes, f32, ints, special

_BITS = 6  # of an integer exponent: from 2^6 on, every power but those of 0, 1 and -1 overflows i64


@dataclass(frozen=True)
class Pow(Op):
    """x to the power y, in the dtype of x.

    Floats: IEEE 754's ``pow``. Integers to an integer: wrapping around, where of an exponent from
    64 on only the last six bits count if the base is odd (exact where it fits); a negative one
    truncates (0 for all but 1 and -1). Integers to a float: truncated from float64.

    Shape: x [...], y [...] of any two number dtypes -> their broadcast, of x's dtype.
    Source: ONNX Pow-15.
    """

    name = "pow"

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        for t in (x, y):
            if t.dtype.kind not in "fiu":
                raise self.fail(f"is not defined for {t.dtype}")
        return TensorType(x.dtype, broadcast(x.shape, y.shape))

    def compute(self, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def element(*i: Expr) -> Expr:
            a, b = x[broadcast_indices(i, x.shape)], y[broadcast_indices(i, y.shape)]
            if not a.dtype.is_float and not b.dtype.is_float:
                return _integer_power(a, b)
            t = wide(a.dtype) if a.dtype.is_float else F64
            return n.cast(call("pow", n.cast(a, t), n.cast(b, t)), x.dtype)

        return te.compute(broadcast(x.shape, y.shape), element, self.name)

    def reference(self, x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu" or y.dtype.kind not in "iu":
            power = np.power(x.astype(np.float64), y.astype(np.float64))
            return converted(power, from_numpy(x.dtype))
        modulus = 1 << 8 * x.dtype.itemsize
        whole = np.frompyfunc(lambda a, b: _whole_power(a, b, modulus), 2, 1)
        wrapped = np.asarray(whole(x.astype(object), y.astype(object)), dtype=object)
        return wrapped.astype(np.uint64).astype(x.dtype)

    @classmethod
    def samples(cls) -> Iterator[tuple[Op, list[Array | None]]]:
        yield cls(), [f32(3, 5, low=0.1), f32(5)]
        yield cls(), [special()[:, None], special()]
        yield cls(), [f32(2, 1, 4), ints(3, 1)]
        yield cls(), [ints(11, 1, dtype="int64"), ints(20, low=-3, high=9)]
        yield cls(), [np.array([[-4], [-1], [0], [1], [2]]), np.array([0, 63, 64, 129])]
        for dtype in ("int32", "int64", "uint64"):
            yield cls(), [extremes(dtype)[:, None], extremes(dtype)]
        yield cls(), [ints(4, dtype="int32"), ints(4, low=0, high=4, dtype="uint8")]
        yield cls(), [extremes("int32")[:, None], special("float64")]
        yield cls(), [ints(3, low=1, high=9, dtype="int32"), f32(3)]
        yield cls(), [f32(4, low=0.1).astype(np.float16), f32(4)]


def _whole_power(x: int, y: int, modulus: int) -> int:
    """Modulo a power of two: the power itself can have more digits than there is memory."""
    if y < 0:
        return (1 if x == 1 else (-1 if y % 2 else 1) if x == -1 else 0) % modulus
    if y >> _BITS:
        return 0 if x % 2 == 0 else pow(x, y % (1 << _BITS), modulus)
    return pow(x, y, modulus)


def _integer_power(x: Expr, y: Expr) -> Expr:
    """By squaring, in wrapping arithmetic.

    Exponents of 64 and more give 0 for even bases; of odd ones only 1 and -1 do not overflow then,
    and for them the exponent's last bits decide.
    """
    zero, one = n.const(0, x.dtype), n.const(1, x.dtype)
    out: Expr = one
    square = x
    for k in range(_BITS):
        bit = call("bit_and", y, n.const(1 << k, y.dtype))
        out = n.select(n.ne(bit, 0), n.mul(out, square), out)
        square = n.mul(square, square)
    even = n.eq(call("bit_and", x, one), zero)
    if y.dtype.bits > _BITS:
        out = n.select(n.all_of(n.le(1 << _BITS, y), even), zero, out)
    if y.dtype.kind == "u":
        return out
    odd = n.ne(call("bit_and", y, n.const(1, y.dtype)), 0)
    unit = n.eq(x, one)
    if x.dtype.kind == "i":
        minus = n.const(-1, x.dtype)
        unit = n.any_of(unit, n.eq(x, minus))
        fraction = n.select(unit, n.select(odd, x, one), zero)
    else:
        fraction = n.select(unit, one, zero)
    return n.select(n.lt(y, 0), fraction, out)


@dataclass(frozen=True)
class PowScalar(Unary):
    """x to a power that is known; small whole powers and halves take no logarithm.

    Shape: x [...] -> the same.
    Source: ONNX Pow-15 with a constant exponent.
    """

    name = "pow_scalar"

    exponent: float = 2.0

    def element(self, x: Expr) -> Expr:
        return power(x, self.exponent)

    def values(self, x: Array) -> Array:
        wide = x.astype(np.float64)  # an array of exponents, since numpy takes 0.5 for sqrt
        return np.asarray(np.power(wide, np.full_like(wide, self.exponent)))

    @classmethod
    def instances(cls) -> Iterator[Unary]:
        for e in (2.0, 3.0, 4.0, 0.5, -0.5, 0.0, 1.0, -1.0, -2.0, 1.7, 0.75, 25.0):
            yield cls(e)

    @classmethod
    def arrays(cls) -> Iterator[Array]:
        yield f32(3, 5, low=0.0)
        yield special()
        yield from super().arrays()


def power(x: Expr, exponent: float) -> Expr:
    """x to a constant power, by multiplications and square roots where that is exact enough."""
    one = n.const(1.0, x.dtype)
    if exponent < 0 and exponent in (-0.5, -1.0, -2.0):
        return n.div(one, power(x, -exponent))
    if exponent == 0.0:
        return one
    if exponent == 0.5:  # other than sqrt, pow gives +0 for -0 and infinity for minus infinity
        root = call("sqrt", x + n.const(0.0, x.dtype))
        infinity = float("inf")
        return n.select(n.eq(x, -infinity), infinity, root)
    if exponent in (1.0, 2.0, 3.0, 4.0):
        square = x * x
        return (x, square, square * x, square * square)[int(exponent) - 1]
    return call("pow", x, n.const(exponent, x.dtype))
