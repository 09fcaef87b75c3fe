"""Expressions evaluated by numpy, with exactly the meaning that ``nodes`` gives them.

``evaluate`` is for one value of every variable, ``evaluate_array`` for whole arrays of values at
once.

A ``select`` evaluates both sides, and a load outside its buffer gives some element; but it leaves a
mark where that happened, which ``select`` removes where the other side is chosen. A mark that
reaches the root is an error. So a load on the side not chosen may have any index, and nothing is
evaluated twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from planish.compiler.conversion import converted
from planish.compiler.dtypes import BOOL, DType, from_numpy
from planish.compiler.errors import InternalError
from planish.compiler.remembering import remembered

from .nodes import (
    Add,
    And,
    Binary,
    Call,
    Cast,
    Const,
    Div,
    Eq,
    Expr,
    FloorDiv,
    FloorMod,
    Le,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Not,
    Or,
    Scalar,
    Select,
    Sub,
    Var,
    walk,
)

Array: TypeAlias = np.ndarray[Any, Any]


class _Mark(NamedTuple):
    """Where a load left its buffer, and how."""

    where: Array
    load: Load
    indices: tuple[Array, ...]
    shape: tuple[int, ...]


class _Value(NamedTuple):
    data: Any
    marks: tuple[_Mark, ...] = ()


def evaluate(
    e: Expr,
    env: Mapping[str, Scalar | np.generic],
    buffers: Mapping[str, Array] | None = None,
) -> Any:
    """The value as a numpy scalar of the expression's dtype.

    Errors: InternalError for a load outside its buffer, or a name without a value.
    """
    return np.asarray(evaluate_array(e, env, buffers))[()]


def evaluate_array(
    e: Expr,
    env: Mapping[str, Any],
    buffers: Mapping[str, Array] | None = None,
) -> Array:
    """The values for variables that are arrays (or scalars), broadcast together.

    Errors: InternalError for a load outside its buffer, or a name without a value.
    """
    done: dict[Expr, _Value] = {}
    with np.errstate(all="ignore"):
        for x in _order(e):
            done[x] = _value(x, done, env, buffers or {})
        out = done[e]
        for mark in out.marks:
            if np.any(mark.where):
                raise _outside(mark)
    return np.asarray(out.data)


@remembered(4096)
def _order(e: Expr) -> tuple[Expr, ...]:
    return tuple(walk(e))


def _value(
    e: Expr, done: dict[Expr, _Value], env: Mapping[str, Any], buffers: Mapping[str, Array]
) -> _Value:
    match e:
        case Const(value, dtype):
            return _Value(_typed(value, dtype))
        case Var(name, dtype):
            return _Value(_typed(_named(name, env, "variable"), dtype))
        case Binary(lhs=x, rhs=y):
            (a, p), (b, q) = done[x], done[y]
            return _Value(_binary(type(e), a, b, x.dtype), _join(p, q))
        case Not(x):
            return _Value(np.logical_not(done[x].data), done[x].marks)
        case Cast(x, dtype):
            return _Value(converted(done[x].data, dtype)[()], done[x].marks)
        case Select(c, x, y):
            return _select(done[c], done[x], done[y])
        case Load(buffer, indices):
            array = _named(buffer, buffers, "buffer")
            return _load(e, array, [done[i] for i in indices])
        case Call(name, args, dtype):
            values = [done[a] for a in args]
            marks = _join(*(v.marks for v in values))
            return _Value(_call(name, [v.data for v in values], dtype), marks)
        case _:
            raise InternalError("not an expression", op="evaluate", node=type(e).__name__)


def _typed(value: Any, dtype: DType) -> Any:
    out = np.asarray(value)
    if out.dtype != dtype.numpy:
        plain = out.dtype.kind in "iubf" and not dtype.is_float
        out = out.astype(dtype.numpy) if plain else converted(out, dtype)
    return out if out.ndim else out[()]


def _named(name: str, env: Mapping[str, Any], kind: str) -> Any:
    if name not in env:
        raise InternalError(f"{kind} {name} has no value", op="evaluate")
    return env[name]


def _join(*marks: tuple[_Mark, ...]) -> tuple[_Mark, ...]:
    if not any(marks):
        return ()
    return tuple({id(m): m for each in marks for m in each}.values())


def _select(c: _Value, x: _Value, y: _Value) -> _Value:
    marks = c.marks
    if x.marks or y.marks:
        chosen = [m._replace(where=m.where & c.data) for m in x.marks]
        chosen += [m._replace(where=m.where & np.logical_not(c.data)) for m in y.marks]
        marks = (*marks, *(m for m in chosen if np.any(m.where)))
    return _Value(np.where(c.data, x.data, y.data), marks)


def _load(e: Load, array: Array, indices: list[_Value]) -> _Value:
    if array.ndim != len(indices):
        raise InternalError(f"{e.buffer} has {array.ndim} dimensions", op="evaluate", node=str(e))
    marks = _join(*(i.marks for i in indices))
    at = [np.asarray(i.data) for i in indices]
    wrong = [(i < 0) | (i >= n) for i, n in zip(at, array.shape, strict=True)]
    if any(w.any() for w in wrong):
        where = np.logical_or.reduce(np.broadcast_arrays(*wrong))
        marks = (*marks, _Mark(where, e, tuple(at), array.shape))
        if array.size == 0:
            shape = np.broadcast_shapes(*(i.shape for i in at))
            return _Value(np.zeros(shape, e.type.numpy), marks)
        at = [np.clip(i, 0, n - 1) for i, n in zip(at, array.shape, strict=True)]
    data = array[tuple(at)]
    return _Value(data if data.dtype == e.type.numpy else converted(data, e.type), marks)


def _outside(mark: _Mark) -> InternalError:
    place = tuple(np.argwhere(np.broadcast_to(mark.where, _shape(mark)))[0])
    index = [int(np.broadcast_to(i, _shape(mark))[place]) for i in mark.indices]
    buffer = mark.load.buffer
    return InternalError(
        f"{buffer}[{', '.join(map(str, index))}] is outside {buffer}{list(mark.shape)}",
        op="evaluate",
        node=str(mark.load),
    )


def _shape(mark: _Mark) -> tuple[int, ...]:
    return np.broadcast_shapes(mark.where.shape, *(i.shape for i in mark.indices))


def _binary(kind: type[Expr], x: Any, y: Any, dtype: DType) -> Any:
    if not _narrow(dtype):
        return _BINARY[kind](x, y)
    out = _BINARY[kind](converted(x, dtype.computed), converted(y, dtype.computed))
    return out if np.asarray(out).dtype == np.bool_ else converted(out, dtype)[()]


def _narrow(dtype: DType) -> bool:
    """Whether numpy's own arithmetic is not what is meant."""
    return dtype.bits < 16 and dtype.computed is not dtype


def _call(name: str, args: list[Any], dtype: DType) -> Any:
    from .functions import FUNCTIONS

    if name == "bitcast":
        data = np.ascontiguousarray(args[0])
        bits = data != 0 if dtype is BOOL else data.view(dtype.numpy)
        return bits.reshape(np.shape(args[0]))[()]
    if name not in FUNCTIONS:
        raise InternalError(f"there is no function {name}", op="evaluate")
    given = [np.asarray(a) for a in args]
    if _narrow(source := from_numpy(given[0].dtype)):
        given = [converted(a, source.computed) for a in given]
    return converted(FUNCTIONS[name].reference(*given), dtype)[()]


def _divide(x: Any, y: Any) -> Any:
    """Towards zero for integers: floor division, and one more where that went away from zero.

    A division by zero gives zero.
    """
    if np.asarray(x).dtype.kind not in "iu":
        return np.divide(x, y)
    floor = np.floor_divide(x, y)
    inexact = (floor * y != x) & (y != 0)
    return (floor + (inexact & ((x < 0) != (y < 0)))).astype(np.asarray(x).dtype)


_BINARY: Final[dict[type[Expr], Callable[[Any, Any], Any]]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    Div: _divide,
    FloorDiv: np.floor_divide,
    FloorMod: np.remainder,
    Min: np.minimum,
    Max: np.maximum,
    Eq: np.equal,
    Ne: np.not_equal,
    Lt: np.less,
    Le: np.less_equal,
    And: np.logical_and,
    Or: np.logical_or,
}
