"""Expressions as text: a subset of Python that parses back to the same object.

``parse(show(e), env) is e``. Integers without a suffix are ``i64``; other constants carry their
dtype as a call, ``f32(0.5)``; variables of another dtype than ``i64`` are declared in ``env``, buffers
too: a load is written ``x[i, j]``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Final

from planish.compiler.dtypes import ALL, BOOL, I64, DType
from planish.compiler.errors import ParseError
from . import nodes as n
from .nodes import Binary, Call, Cast, Const, Expr, Load, Not, Select, Var, walk

_PRECEDENCE: Final = {
    "or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7,
    "%": 7,
}  # fmt: skip
_ATOM: Final = 9


def show(root: Expr) -> str:
    """The expression as text."""
    done: dict[Expr, tuple[str, int]] = {}
    for e in walk(root):
        done[e] = _show(e, done)
    return done[root][0]


def _show(e: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    match e:
        case Const(value, dtype):
            return _show_const(value, dtype)
        case Var(name):
            return name, _ATOM
        case Load(buffer, indices):
            return f"{buffer}[{', '.join(done[i][0] for i in indices) or '()'}]", _ATOM
        case Call(name, args, dtype):
            text = ", ".join(done[a][0] for a in args)
            if args and args[0].dtype is dtype:
                return f"{name}({text})", _ATOM
            return f"{name}({text}, dtype={dtype})" if text else f"{name}(dtype={dtype})", _ATOM
        case Cast(x, dtype):
            return f"cast({done[x][0]}, {dtype})", _ATOM
        case Select(c, x, y):
            return f"select({done[c][0]}, {done[x][0]}, {done[y][0]})", _ATOM
        case Not(x):
            text, level = done[x]
            return f"not {text if level > 3 else f'({text})'}", 3
        case Binary(lhs=x, rhs=y):
            symbol = e.symbol
            if symbol in ("min", "max"):
                return f"{symbol}({done[x][0]}, {done[y][0]})", _ATOM
            level = _PRECEDENCE[symbol]
            (a, la), (b, lb) = done[x], done[y]
            chain = level == 4  # comparisons do not associate
            a = a if la > level or (la == level and not chain) else f"({a})"
            b = b if lb > level else f"({b})"
            return f"{a} {symbol} {b}", level
        case _:
            raise TypeError(type(e))


def _show_const(value: n.Scalar, dtype: DType) -> tuple[str, int]:
    if dtype is BOOL:
        return str(value), _ATOM
    if dtype is I64:
        return (str(value), _ATOM) if value >= 0 else (f"({value})", _ATOM)
    if isinstance(value, float) and not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return f"{dtype}('{text}')", _ATOM
    return f"{dtype}({value!r})", _ATOM


class Scope:
    """What names mean while parsing: variables that are not ``i64``, and buffers' dtypes."""

    def __init__(
        self,
        variables: Mapping[str, DType] | None = None,
        buffers: Mapping[str, DType] | None = None,
    ) -> None:
        self.variables = dict(variables or {})
        self.buffers = dict(buffers or {})


def parse(text: str, scope: Scope | None = None) -> Expr:
    """The expression that ``text`` says.

    Errors: ParseError naming what is not understood.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not an expression: {error}", node=text[:200]) from error
    return from_ast(tree, scope or Scope())


_BINARY: Final = {
    ast.Add: n.Add, ast.Sub: n.Sub, ast.Mult: n.Mul, ast.Div: n.Div, ast.FloorDiv: n.FloorDiv,
    ast.Mod: n.FloorMod, ast.Eq: n.Eq, ast.NotEq: n.Ne, ast.Lt: n.Lt, ast.LtE: n.Le,
}  # fmt: skip
_SWAPPED: Final = {ast.Gt: n.Lt, ast.GtE: n.Le}


def from_ast(tree: ast.expr, scope: Scope) -> Expr:
    """The expression of a Python syntax tree, node by node as it is written."""
    try:
        return _from_ast(tree, scope)
    except RecursionError as error:
        raise ParseError("the expression is nested too deeply") from error


def _binary(cls: type[Expr], x: Expr, y: Expr) -> Expr:
    if x.dtype is not y.dtype:
        raise ParseError(f"operands are {x.dtype} and {y.dtype}", node=f"{x!r}  and  {y!r}")
    return cls(x, y)


def _from_ast(tree: ast.expr, scope: Scope) -> Expr:
    sub = lambda t: _from_ast(t, scope)  # noqa: E731
    match tree:
        case ast.Constant(bool(value)):
            return Const(value, BOOL)
        case ast.Constant(int(value)):
            return Const(value, I64)
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return Const(-value, I64)
        case ast.UnaryOp(ast.Not(), x):
            return Not(sub(x))
        case ast.Name(name):
            return Var(name, scope.variables.get(name, I64))
        case ast.BinOp(x, op, y) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], sub(x), sub(y))
        case ast.Compare(x, [op], [y]) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], sub(x), sub(y))
        case ast.Compare(x, [op], [y]) if type(op) in _SWAPPED:
            return _binary(_SWAPPED[type(op)], sub(y), sub(x))
        case ast.BoolOp(op, values):
            cls = n.And if isinstance(op, ast.And) else n.Or
            out = sub(values[0])
            for v in values[1:]:
                out = cls(out, sub(v))
            return out
        case ast.Subscript(ast.Name(buffer), index):
            if buffer not in scope.buffers:
                raise ParseError(f"there is no buffer {buffer}", node=ast.unparse(tree))
            items = index.elts if isinstance(index, ast.Tuple) else [index]
            return Load(buffer, tuple(sub(i) for i in items), scope.buffers[buffer])
        case ast.Call(ast.Name(name), args, keywords):
            return _call(name, args, keywords, scope, tree)
        case _:
            raise ParseError("not an expression of planish", node=ast.unparse(tree))


def _call(
    name: str, args: list[ast.expr], keywords: list[ast.keyword], scope: Scope, tree: ast.expr
) -> Expr:
    if name in ALL:
        return _typed_const(ALL[name], args, tree)
    if name == "cast" and len(args) == 2 and isinstance(args[1], ast.Name):
        return Cast(_from_ast(args[0], scope), n.dtype_named(args[1].id))
    values = tuple(_from_ast(a, scope) for a in args)
    if name in ("min", "max") and len(values) == 2:
        return _binary(n.Min if name == "min" else n.Max, *values)
    if name == "select" and len(values) == 3:
        return Select(*values)
    for k in keywords:
        if k.arg == "dtype" and isinstance(k.value, ast.Name):
            return Call(name, values, n.dtype_named(k.value.id))
    if not values or keywords:
        raise ParseError(f"the dtype of {name} is not known", node=ast.unparse(tree))
    return Call(name, values, values[0].dtype)


def _typed_const(dtype: DType, args: list[ast.expr], tree: ast.expr) -> Const:
    try:
        value = ast.literal_eval(args[0])
        return n.const(float(value) if dtype.is_float else int(value), dtype)
    except (ValueError, TypeError, IndexError) as error:
        raise ParseError(f"not a constant of {dtype}", node=ast.unparse(tree)) from error
