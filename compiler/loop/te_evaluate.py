"""Tensor expressions evaluated by numpy: each stage over its whole index grid.

An oracle for the operators' ``compute``: simple, and generous with memory (each index of each load
is an array).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planish.compiler.dtypes import DType
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Call, Cast, Const, Expr, Load, Not, Select, Var

from . import te

Array = npt.NDArray[Any]


def evaluate(
    outputs: tuple[te.Tensor, ...],
    inputs: Mapping[te.Tensor, Array],
    symbols: Mapping[Var, int] | None = None,
) -> tuple[Array, ...]:
    """The values of ``outputs`` for those of the placeholders and of the symbolic dimensions.

    Errors: InternalError for a load out of bounds, or a stage whose type is not what it says.
    """
    sizes = {v: np.asarray(k, np.int64) for v, k in (symbols or {}).items()}
    values: dict[str, Array] = {}
    for tensor in te.stages(*outputs):
        if tensor.body is None:
            values[tensor.name] = inputs[tensor]
        else:
            with np.errstate(all="ignore"):
                values[tensor.name] = _stage(tensor, values, sizes)
    return tuple(values[t.name] for t in outputs)


def _stage(tensor: te.Tensor, values: Mapping[str, Array], sizes: Mapping[Var, Array]) -> Array:
    assert tensor.body is not None
    shape = tuple(_extent(e, sizes) for e in tensor.shape)
    over = tuple(_extent(e, sizes) for _, e in tensor.reduce_axes)
    variables = (*tensor.axes, *(v for v, _ in tensor.reduce_axes))
    grid = np.ix_(*(np.arange(k, dtype=np.int64) for k in (*shape, *over)))
    env = {**sizes, **dict(zip(variables, grid, strict=True))}
    if 0 in (*shape, *over):
        body = np.zeros((*shape, *over), tensor.dtype.numpy)
    else:
        found = _Evaluator(env, values).evaluate(tensor.body)
        body = np.broadcast_to(found, (*shape, *over)).copy()
    if body.dtype != tensor.dtype.numpy:
        raise InternalError(f"{tensor.name} is {body.dtype}, not {tensor.dtype}", op="te")
    if not tensor.reduce_axes:
        return body
    assert tensor.combiner is not None
    return _reduced(tensor.combiner, body, len(shape), tensor.dtype)


def _extent(e: Expr, sizes: Mapping[Var, Array]) -> int:
    return int(_Evaluator(sizes, {}).evaluate(e))


def _reduced(combiner: str, body: Array, rank: int, dtype: DType) -> Array:
    axes = tuple(range(rank, body.ndim))
    functions: dict[str, Any] = {
        "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum
    }  # fmt: skip
    start = np.asarray(te.COMBINERS[combiner](dtype).value).astype(body.dtype)
    out = functions[combiner].reduce(body, axis=axes, initial=start, dtype=body.dtype)
    return np.asarray(out).astype(body.dtype)


class _Evaluator:
    """Expressions over arrays of indices, each distinct node once."""

    def __init__(self, env: Mapping[Var, Array], buffers: Mapping[str, Array]) -> None:
        self.env, self.buffers = env, buffers

    def evaluate(self, root: Expr, mask: Array | None = None) -> Array:
        """The value; loads out of bounds are allowed where ``mask`` is false."""
        match root:
            case Const(value, dtype):
                return np.asarray(value).astype(dtype.numpy)
            case Var():
                return self.env[root]
            case Select(condition, then, other):
                c = self.evaluate(condition, mask)
                yes = c if mask is None else c & mask
                no = ~c if mask is None else ~c & mask
                return np.where(c, self.evaluate(then, yes), self.evaluate(other, no))
            case Load(buffer, indices):
                return self._load(self.buffers[buffer], indices, mask)
            case Cast(x, dtype):
                return self.evaluate(x, mask).astype(dtype.numpy)
            case Not(x):
                return np.asarray(~self.evaluate(x, mask))
            case Call(name, args, dtype):
                values = [self.evaluate(a, mask) for a in args]
                return np.asarray(_function(name)(*values)).astype(dtype.numpy)
            case n.Binary(lhs=lhs, rhs=rhs):
                a, b = self.evaluate(lhs, mask), self.evaluate(rhs, mask)
                out = np.asarray(_BINARY[type(root)](a, b))
                return out.astype(root.dtype.numpy)
            case _:
                raise InternalError(f"{type(root).__name__} is no expression", op="te")

    def _load(self, array: Array, indices: tuple[Expr, ...], mask: Array | None) -> Array:
        if not indices:
            return np.asarray(array[()])
        places = [np.asarray(self.evaluate(i, mask)) for i in indices]
        safe = []
        for place, extent in zip(places, array.shape, strict=True):
            outside = (place < 0) | (place >= extent)
            if np.any(outside if mask is None else outside & mask):
                raise InternalError("a load is out of bounds", op="te", node=str(indices))
            safe.append(np.clip(place, 0, max(extent - 1, 0)))
        if 0 in array.shape:
            return np.zeros(np.broadcast_shapes(*(p.shape for p in places)), array.dtype)
        return np.asarray(array[tuple(np.broadcast_arrays(*safe))])


def _divide(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.asarray(x / y)
    floor = x // y
    return np.asarray(floor + ((floor * y != x) & ((x < 0) != (y < 0)) & (y != 0)))


_BINARY: Final[dict[type[Expr], Callable[[Any, Any], Any]]] = {
    n.Add: np.add, n.Sub: np.subtract, n.Mul: np.multiply, n.Div: _divide,
    n.FloorDiv: np.floor_divide, n.FloorMod: np.mod, n.Min: np.minimum, n.Max: np.maximum,
    n.Eq: np.equal, n.Ne: np.not_equal, n.Lt: np.less, n.Le: np.less_equal,
    n.And: np.logical_and, n.Or: np.logical_or,
}  # fmt: skip


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*(a.astype(np.float64) for a in args))


_erf: Final = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round_even": np.rint, "copysign": np.copysign, "is_nan": np.isnan,
    "is_inf": np.isinf, "shift_left": np.left_shift, "shift_right": np.right_shift,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor,
    "bit_not": np.invert, "exp": _wide(np.exp), "exp_nonpositive": _wide(np.exp),
    "exp2": _wide(np.exp2), "expm1": _wide(np.expm1), "log": _wide(np.log), "log2": _wide(np.log2),
    "log1p": _wide(np.log1p), "tanh": _wide(np.tanh), "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh), "sigmoid": _wide(lambda x: 1 / (1 + np.exp(-x))), "erf": _wide(_erf),
    "sin": _wide(np.sin), "cos": _wide(np.cos), "tan": _wide(np.tan), "pow": _wide(np.power),
    "rsqrt": _wide(lambda x: 1 / np.sqrt(x)), "asin": _wide(np.arcsin), "acos": _wide(np.arccos),
    "atan": _wide(np.arctan), "asinh": _wide(np.arcsinh), "acosh": _wide(np.arccosh),
    "atanh": _wide(np.arctanh), "softplus": _wide(lambda x: np.logaddexp(0.0, x)),
    "fma": lambda a, b, c: _fma(a, b, c),
}  # fmt: skip


def _fma(a: Array, b: Array, c: Array) -> Any:
    if a.dtype == np.float64:
        from fractions import Fraction

        def exact(x: float, y: float, z: float) -> float:
            if not all(map(math.isfinite, (x, y, z))):
                return x * y + z
            return float(Fraction(x) * Fraction(y) + Fraction(z))

        return np.vectorize(exact, otypes=[np.float64])(a, b, c)
    return a.astype(np.float64) * b + c


def _function(name: str) -> Callable[..., Any]:
    return _FUNCTIONS[name]
