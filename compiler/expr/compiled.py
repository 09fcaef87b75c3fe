"""Sizes as Python functions of symbols, compiled once, evaluated for each new shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from planish.compiler.errors import CodegenError

from . import nodes as n
from .nodes import Const, Expr, Var, walk

_INFIX: Final[dict[type[Expr], str]] = {
    n.Add: "+", n.Sub: "-", n.Mul: "*", n.And: "and", n.Or: "or",
    n.Eq: "==", n.Ne: "!=", n.Lt: "<", n.Le: "<=",
}  # fmt: skip
_CALLS: Final[dict[type[Expr], str]] = {
    n.Min: "min", n.Max: "max", n.FloorDiv: "floordiv", n.FloorMod: "floormod", n.Div: "truncdiv",
}  # fmt: skip


def compile_sizes(
    symbols: tuple[str, ...], sizes: tuple[int | Expr, ...]
) -> Callable[..., tuple[int, ...]]:
    """A function of the symbols' values, in order, that gives all sizes as a tuple.

    Errors: CodegenError for what is no integer arithmetic over the symbols.
    """
    names = {symbol: f"s{k}" for k, symbol in enumerate(symbols)}
    done: dict[Expr, str] = {}
    lines: list[str] = []
    for e in walk(*(s for s in sizes if isinstance(s, Expr))):
        if isinstance(e, Const | Var):
            done[e] = _leaf(e, names)
            continue
        done[e] = f"t{len(lines)}"
        lines.append(f"{done[e]} = {_operation(e, [done[c] for c in e.children])}")
    values = "".join(f"{done[s] if isinstance(s, Expr) else s}, " for s in sizes)
    body = "".join(f"    {line}\n" for line in lines)
    source = f"def sizes({', '.join(names.values())}):\n{body}    return ({values})\n"
    scope: dict[str, object] = {
        "__builtins__": {},
        "min": min,
        "max": max,
        "int": int,
        "bool": bool,
        "floordiv": _floordiv,
        "floormod": _floormod,
        "truncdiv": _truncdiv,
    }
    exec(compile(source, "<sizes>", "exec"), scope)  # made above, of names and numbers alone
    return scope["sizes"]  # type: ignore[return-value]


def _leaf(e: Const | Var, names: dict[str, str]) -> str:
    if isinstance(e, Const) and not isinstance(e.value, float):
        return repr(e.value) if e.value is True or e.value is False else f"({int(e.value)})"
    if isinstance(e, Var) and e.name in names:
        return names[e.name]
    raise CodegenError("a size is not integer arithmetic over the symbols", node=str(e))


def _operation(e: Expr, kids: list[str]) -> str:
    kind = type(e)
    if kind in _INFIX:
        return f"{kids[0]} {_INFIX[kind]} {kids[1]}"
    if kind in _CALLS:
        return f"{_CALLS[kind]}({kids[0]}, {kids[1]})"
    if isinstance(e, n.Not):
        return f"not {kids[0]}"
    if isinstance(e, n.Select):
        return f"{kids[1]} if {kids[0]} else {kids[2]}"
    if isinstance(e, n.Cast) and not e.type.is_float:
        return f"{'int' if e.type.is_int else 'bool'}({kids[0]})"
    raise CodegenError("a size is not integer arithmetic over the symbols", node=str(e))


def _floordiv(x: int, y: int) -> int:
    return x // y if y else 0


def _floormod(x: int, y: int) -> int:
    return x % y if y else 0


def _truncdiv(x: int, y: int) -> int:
    if not y:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient
