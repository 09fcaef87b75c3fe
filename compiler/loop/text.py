"""Loop functions as text: a subset of Python that parses back to an equal function.

``parse(show(f)) == f``. Results stand after the star. A function's symbols are the free names of
its parameters' shapes, in order of first use, unless a line ``symbols(...)`` says otherwise::

    def matmul(A: f32[64, 32], B: f32[32, n], *, C: f32[64, n]):
        T = buffer(f32[64, n], "global")
        for i in parallel(64):
            for j in vector(n):
                for k in serial(32):
                    with block("C", i0=spatial(64, i), i1=spatial(n, j), r0=reduce(32, k),
                               init=f32(0.0), where=j < n):
                        C[i0, i1] += A[i0, r0] * B[r0, i1]

A block's bindings and ``where`` speak of the loops around, its update of its iterators. Updates are
``+=``, ``*=``, ``x[i] = max(x[i], v)`` and ``min``; a store that only looks like the last two says
``combiner=None`` in its block. GPU axes are ``bind(64, "block.x")``, hints for targets
``serial(64, hint="pipeline(2)")``. A loop variable or an iterator has the dtype of its extent.
Expressions are those of ``expr.text``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from planish.compiler.dtypes import ALL
from planish.compiler.errors import ParseError, PlanishError
from planish.compiler.expr.nodes import (
    TRUE,
    Expr,
    Load,
    Max,
    Min,
    Var,
    free_vars,
)
from planish.compiler.expr.text import Scope, from_ast
from planish.compiler.expr.text import show as _show_expr
from planish.compiler.remembering import remembered

from .canonical import canonical as canonical
from .ir import (
    LOOP_KINDS,
    Block,
    Buffer,
    Combiner,
    Function,
    If,
    Iter,
    Loop,
    Seq,
    Stmt,
    seq,
)
from .ir import Scope as BufferScope

_INDENT: Final = "    "

# The same few extents and indices are shown again and again.
show_expr: Final = remembered(1 << 14)(_show_expr)

# --------------------------------------------------------------------------------------- to text


def show(func: Function) -> str:
    """The function as text, without a newline at the end."""
    params = [f"{b.name}: {_type(b)}" for b in func.inputs]
    if func.outputs:
        params += ["*", *(f"{b.name}: {_type(b)}" for b in func.results)]
    lines = [f"def {func.name}({', '.join(params)}):"]
    if func.symbols != _implied_symbols(func.params):
        lines.append(f"{_INDENT}symbols({', '.join(s.name for s in func.symbols)})")
    lines += [f'{_INDENT}{b.name} = buffer({_type(b)}, "{b.scope}")' for b in func.temps]
    _show(func.body, _INDENT, lines)
    return "\n".join(lines)


def show_statement(stmt: Stmt) -> str:
    """A statement as text, without a newline at the end."""
    lines: list[str] = []
    _show(stmt, "", lines)
    return "\n".join(lines)


def show_head(stmt: Stmt) -> str:
    """The first line of a statement's text."""
    match stmt:
        case Loop(var, extent, _, kind, hint):
            args = [show_expr(extent)]
            name = kind if kind.isidentifier() else "bind"
            if name != kind:
                args.append(f'"{kind}"')
            if hint:
                args.append(f'hint="{hint}"')
            return f"for {var.name} in {name}({', '.join(args)}):"
        case If(condition):
            return f"if {show_expr(condition)}:"
        case Block():
            return _head(stmt)
        case Seq(body):
            return show_head(body[0]) if body else "pass"


def _type(b: Buffer) -> str:
    return f"{b.dtype.name}[{', '.join(map(show_expr, b.shape)) or '()'}]"


def _implied_symbols(params: tuple[Buffer, ...]) -> tuple[Var, ...]:
    return free_vars(*(d for b in params for d in b.shape))


def _show(stmt: Stmt, indent: str, lines: list[str]) -> None:
    match stmt:
        case Seq(body):
            for s in body:
                _show(s, indent, lines)
            if not body:
                lines.append(f"{indent}pass")
        case Loop(body=body):
            lines.append(indent + show_head(stmt))
            _show(body, indent + _INDENT, lines)
        case If(_, then, other):
            lines.append(indent + show_head(stmt))
            _show(then, indent + _INDENT, lines)
            if other is not None:
                lines.append(f"{indent}else:")
                _show(other, indent + _INDENT, lines)
        case Block():
            lines.append(indent + _head(stmt))
            lines.append(indent + _INDENT + _update(stmt))


def _head(b: Block) -> str:
    items = [f'"{b.name}"']
    for i in b.iters:
        items.append(f"{i.var.name}={i.kind}({show_expr(i.extent)}, {show_expr(i.binding)})")
    if b.init is not None:
        items.append(f"init={show_expr(b.init)}")
    if b.where is not TRUE:
        items.append(f"where={show_expr(b.where)}")
    if b.combiner is None and _looks_like_update(b):
        items.append("combiner=None")
    if b.nontemporal:
        items.append("nontemporal=True")
    return f"with block({', '.join(items)}):"


def _update(b: Block) -> str:
    target = f"{b.buffer}[{', '.join(map(show_expr, b.indices)) or '()'}]"
    value = show_expr(b.value)
    match b.combiner:
        case None:
            return f"{target} = {value}"
        case "sum":
            return f"{target} += {value}"
        case "prod":
            return f"{target} *= {value}"
        case "max" | "min":
            return f"{target} = {b.combiner}({target}, {value})"


def _looks_like_update(b: Block) -> bool:
    match b.value:
        case Max(Load(buffer, indices), _) | Min(Load(buffer, indices), _):
            return buffer == b.buffer and indices == b.indices
        case _:
            return False


# ------------------------------------------------------------------------------------- from text


def parse(text: str) -> Function:
    """The function that ``text`` says.

    Errors: ParseError naming the line.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise _bad(text, error.lineno or 1, error.msg) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"not a function: {error}", node=text[:200]) from error
    match tree.body:
        case [ast.FunctionDef() as definition]:
            return _Parser(text).function(definition)
        case _:
            raise _bad(text, 1, "not one function")


def _bad(text: str, line: int, message: str) -> ParseError:
    lines = text.splitlines()
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else None
    return ParseError(f"line {line}: {message}", node=shown)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.scope = Scope()

    @contextmanager
    def at(self, tree: ast.stmt | ast.arg) -> Iterator[None]:
        """Errors inside say the line of ``tree``, the innermost one."""
        try:
            yield
        except PlanishError as error:
            if isinstance(error, ParseError) and error.message.startswith("line "):
                raise
            raise _bad(self.text, tree.lineno, error.message) from error
        except RecursionError as error:
            raise _bad(self.text, tree.lineno, "nested too deeply") from error

    @contextmanager
    def defining(self, *variables: Var) -> Iterator[None]:
        """Variables that are known inside."""
        before = self.scope.variables
        self.scope.variables = before | {v.name: v.dtype for v in variables}
        yield
        self.scope.variables = before

    def expr(self, tree: ast.expr) -> Expr:
        return from_ast(tree, self.scope)

    def function(self, tree: ast.FunctionDef) -> Function:
        a = tree.args
        with self.at(tree):
            if a.posonlyargs or a.vararg or a.kwarg or a.defaults or any(a.kw_defaults):
                raise ParseError("parameters are names with types, results after a star")
        params = tuple(self.param(p) for p in (*a.args, *a.kwonlyargs))
        symbols = _implied_symbols(params)
        body = tree.body
        match body[0]:
            case ast.Expr(ast.Call(ast.Name("symbols"), names, [])):
                with self.at(body[0]):
                    symbols = tuple(v for v in map(self.expr, names) if isinstance(v, Var))
                    if len(symbols) != len(names):
                        raise ParseError("symbols are names")
                body = body[1:]
            case _:
                pass
        temps: list[Buffer] = []
        while body and (temp := self.temp(body[0])) is not None:
            temps.append(temp)
            body = body[1:]
        return Function(
            tree.name, params, len(a.kwonlyargs), symbols, tuple(temps), self.body(body)
        )

    def param(self, tree: ast.arg) -> Buffer:
        with self.at(tree):
            if tree.annotation is None:
                raise ParseError(f"{tree.arg} has no type")
            return self.declare(tree.arg, tree.annotation, "param")

    def temp(self, tree: ast.stmt) -> Buffer | None:
        match tree:
            case ast.Assign(
                [ast.Name(name)],
                ast.Call(ast.Name("buffer"), [typed, ast.Constant(str(scope))], []),
            ):
                with self.at(tree):
                    return self.declare(name, typed, scope)
            case _:
                return None

    def declare(self, name: str, tree: ast.expr, scope: str) -> Buffer:
        match tree:
            case ast.Subscript(ast.Name(dtype), shape) if dtype in ALL:
                found = Buffer(name, ALL[dtype], self.items(shape), _scope(scope))
            case _:
                raise ParseError(f"not a type: {ast.unparse(tree)}")
        if name in self.scope.buffers:
            raise ParseError(f"there are two buffers {name}")
        self.scope.buffers[name] = found.dtype
        return found

    def items(self, tree: ast.expr) -> tuple[Expr, ...]:
        """The expressions between brackets."""
        return tuple(map(self.expr, tree.elts if isinstance(tree, ast.Tuple) else [tree]))

    def body(self, trees: list[ast.stmt]) -> Stmt:
        return seq(*(self.statement(t) for t in trees if not isinstance(t, ast.Pass)))

    def statement(self, tree: ast.stmt) -> Stmt:
        with self.at(tree):
            match tree:
                case ast.For(ast.Name(name), ast.Call(ast.Name(kind), args, keywords), body, []):
                    return self.loop(name, kind, args, self.hint(keywords), body)
                case ast.If(test, then, other):
                    condition, first = self.expr(test), self.body(then)
                    return If(condition, first, self.body(other) if other else None)
                case ast.With(
                    [
                        ast.withitem(
                            ast.Call(ast.Name("block"), [ast.Constant(str(name))], keywords), None
                        )
                    ],
                    [update],
                ):
                    return self.block(name, keywords, update)
                case _:
                    raise ParseError("not a statement of a loop function")

    def hint(self, keywords: list[ast.keyword]) -> str:
        match keywords:
            case []:
                return ""
            case [ast.keyword("hint", ast.Constant(str(hint)))] if '"' not in hint:
                return hint
            case _:
                raise ParseError("not a loop over an extent")

    def loop(
        self, name: str, kind: str, args: list[ast.expr], hint: str, body: list[ast.stmt]
    ) -> Loop:
        match kind, args:
            case "bind", [extent, ast.Constant(str(axis))]:
                kind = axis
            case _, [extent]:
                pass
            case _:
                raise ParseError("not a loop over an extent")
        if kind not in LOOP_KINDS:
            raise ParseError(f"there is no kind of loop {kind}")
        count = self.expr(extent)
        var = Var(name, count.dtype)
        with self.defining(var):
            return Loop(var, count, self.body(body), kind, hint)

    def block(self, name: str, keywords: list[ast.keyword], update: ast.stmt) -> Block:
        iters: list[Iter] = []
        other: dict[str | None, Expr] = {}
        plain = nontemporal = False
        for k in keywords:
            match k.arg, k.value:
                case str(var), ast.Call(
                    ast.Name("spatial" | "reduce" as kind), [extent, binding], []
                ):
                    count = self.expr(extent)
                    iters.append(
                        Iter(
                            Var(var, count.dtype),
                            count,
                            "spatial" if kind == "spatial" else "reduce",
                            self.expr(binding),
                        )
                    )
                case "combiner", ast.Constant(None):
                    plain = True
                case "nontemporal", ast.Constant(True):
                    nontemporal = True
                case "init" | "where", tree:
                    other[k.arg] = self.expr(tree)
                case _:
                    raise ParseError(f"a block has no {k.arg}={ast.unparse(k.value)}")
        init, where = other.get("init"), other.get("where", TRUE)
        with self.at(update), self.defining(*(i.var for i in iters)):
            target, value, combiner = self.update(update, plain)
        return Block(
            name,
            tuple(iters),
            target.buffer,
            target.indices,
            value,
            combiner,
            init,
            where,
            nontemporal,
        )

    def update(self, tree: ast.stmt, plain: bool) -> tuple[Load, Expr, Combiner | None]:
        combiner: Combiner | None = None
        match tree:
            case ast.Assign([ast.Subscript() as to], value):
                pass
            case ast.AugAssign(ast.Subscript() as to, ast.Add(), value):
                combiner = "sum"
            case ast.AugAssign(ast.Subscript() as to, ast.Mult(), value):
                combiner = "prod"
            case _:
                raise ParseError("a block holds one store or update")
        target = self.expr(to)
        assert isinstance(target, Load)
        match value:
            case ast.Call(
                ast.Name("max" | "min" as name), [ast.Subscript() as first, second], []
            ) if combiner is None and not plain and self.expr(first) is target:
                return target, self.expr(second), "max" if name == "max" else "min"
            case _:
                return target, self.expr(value), combiner


def _scope(name: str) -> BufferScope:
    match name:
        case "param" | "global" | "local" | "register":
            return name
        case _:
            raise ParseError(f"there is no scope {name}")
