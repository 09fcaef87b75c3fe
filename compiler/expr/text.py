"""Expressions as text: a subset of Python that parses back to the same object.

``parse(show(e), env) is e``. Integers without a suffix are ``i64``; other constants carry their
dtype as a call, ``f32(0.5)``; variables of another dtype than ``i64`` are declared in ``env``,
buffers too: a load is written ``x[i, j]``.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Mapping
from typing import Final

from planish.compiler.dtypes import ALL, BOOL, I64, DType
from planish.compiler.errors import ParseError

from . import nodes as n
from .nodes import Binary, Call, Cast, Const, Expr, Load, Max, Min, Not, Select, Var

_PRECEDENCE: Final = {
    "or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4,
    "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
_ATOM: Final = 9


def show(root: Expr, limit: int | None = None) -> str:
    """The expression as text; of a very large one, about ``limit`` characters."""
    out: list[str] = []
    left = limit if limit is not None else sys.maxsize
    stack: list[str | Expr] = [root]
    while stack and left > 0:
        x = stack.pop()
        if isinstance(x, str):
            out.append(x)
            left -= len(x)
        else:
            stack.extend(reversed(_pieces(x)))
    return "".join(out) + (" ..." if stack else "")


def _pieces(e: Expr) -> list[str | Expr]:
    """The text of a node, with the operands in their places."""
    match e:
        case Const(value, dtype):
            return [_show_const(value, dtype)]
        case Var(name):
            return [name]
        case Load(buffer, indices):
            return [buffer, "[", *(_listed(indices) or ["()"]), "]"]
        case Call(name, args, dtype) if args and args[0].dtype is dtype:
            return [name, "(", *_listed(args), ")"]
        case Call(name, args, dtype):
            return [name, "(", *_listed(args), ", dtype=" if args else "dtype=", dtype.name, ")"]
        case Cast(x, dtype):
            return ["cast(", x, f", {dtype})"]
        case Select(c, x, y):
            return ["select(", *_listed((c, x, y)), ")"]
        case Not(x):
            return ["not ", *_within(x, _level(x) > 3)]
        case Min(x, y) | Max(x, y):
            return [e.symbol, "(", *_listed((x, y)), ")"]
        case Binary(lhs=x, rhs=y):
            level = _PRECEDENCE[e.symbol]
            # Comparisons do not associate.
            left = _within(x, _level(x) > level or (_level(x) == level and level != 4))
            return [*left, f" {e.symbol} ", *_within(y, _level(y) > level)]
        case _:
            raise TypeError(type(e))


def _level(e: Expr) -> int:
    if isinstance(e, Binary):
        return _PRECEDENCE.get(e.symbol, _ATOM)
    return 3 if isinstance(e, Not) else _ATOM


def _within(e: Expr, plain: bool) -> list[str | Expr]:
    return [e] if plain else ["(", e, ")"]


def _listed(items: tuple[Expr, ...]) -> list[str | Expr]:
    out: list[str | Expr] = []
    for x in items:
        out += [", ", x] if out else [x]
    return out


def _show_const(value: n.Scalar, dtype: DType) -> str:
    if dtype is BOOL:
        return str(value)
    if dtype is I64:
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float) and not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return f"{dtype}('{text}')"
    return f"{dtype}({value!r})"


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


_BINARY: Final[dict[type[ast.AST], type[Binary]]] = {
    ast.Add: n.Add, ast.Sub: n.Sub, ast.Mult: n.Mul, ast.Div: n.Div, ast.FloorDiv: n.FloorDiv,
    ast.Mod: n.FloorMod, ast.Eq: n.Eq, ast.NotEq: n.Ne, ast.Lt: n.Lt, ast.LtE: n.Le,
}  # fmt: skip
_SWAPPED: Final[dict[type[ast.AST], type[Binary]]] = {ast.Gt: n.Lt, ast.GtE: n.Le}


def from_ast(tree: ast.expr, scope: Scope) -> Expr:
    """The expression of a Python syntax tree, node by node as it is written."""
    try:
        return _from_ast(tree, scope)
    except RecursionError as error:
        raise ParseError("the expression is nested too deeply") from error


def _binary(cls: type[Binary], x: Expr, y: Expr) -> Expr:
    if x.dtype is not y.dtype:
        raise ParseError(f"operands are {x.dtype} and {y.dtype}", node=f"{x!r}  and  {y!r}")
    return cls(x, y)


def _from_ast(tree: ast.expr, scope: Scope) -> Expr:
    def sub(t: ast.expr) -> Expr:
        return _from_ast(t, scope)

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
        return Cast(_from_ast(args[0], scope), _dtype(args[1].id, tree))
    values = tuple(_from_ast(a, scope) for a in args)
    if name in ("min", "max") and len(values) == 2:
        return _binary(n.Min if name == "min" else n.Max, *values)
    if name == "select" and len(values) == 3:
        return Select(*values)
    for k in keywords:
        if k.arg == "dtype" and isinstance(k.value, ast.Name):
            return Call(name, values, _dtype(k.value.id, tree))
    if not values or keywords:
        raise ParseError(f"the dtype of {name} is not known", node=ast.unparse(tree))
    return Call(name, values, values[0].dtype)


def _dtype(name: str, tree: ast.expr) -> DType:
    if name not in ALL:
        raise ParseError(f"there is no dtype {name}", node=ast.unparse(tree))
    return ALL[name]


def _typed_const(dtype: DType, args: list[ast.expr], tree: ast.expr) -> Const:
    try:
        value = ast.literal_eval(args[0])
        return n.const(int(value) if dtype.is_discrete else float(value), dtype)
    except (ValueError, TypeError, IndexError) as error:
        raise ParseError(f"not a constant of {dtype}", node=ast.unparse(tree)) from error
