"""Checks of loop functions: what every pass and move must leave true.

``verify(func)`` raises InternalError that shows the statement at fault. What a reader of the IR may
rely on afterwards:

- names are declared, distinct, and identifiers; expressions use only what is in view, with the
  right dtypes and ranks; symbols are ``i64``
- inputs are not written
- extents are symbolic or positive; vector loops have constant extents and hold no parallel,
  vector or GPU loop; no GPU axis is bound within itself
- a block's bindings and ``where`` use the loops around it; its update uses its iterators (or, if it
  has none, those loops); an update is of the same element for all values of the reduce iterators,
  and combines
- no iteration gives an iterator a value outside its extent, so far as that can be decided
- what loops are marked as for targets, they are

``verify_stored`` is for functions whose buffers have been cut down to what is stored of them:
``register`` buffers then have a constant shape.
"""

from __future__ import annotations

import keyword
from typing import Final

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Expr, Load, Var, walk

from .hints import stale
from .ir import LOOP_KINDS, Block, Buffer, Function, If, Loop, Seq, Stmt, constant
from .polyhedral import outside
from .sites import sites
from .te import COMBINERS
from .text import show_head

_NOT_ITERATORS: Final = frozenset({"init", "where", "combiner", "nontemporal"})
_SCOPES: Final = frozenset({"global", "local", "register"})


def verify(func: Function) -> Function:
    """The function itself, if it is well formed.

    Errors: InternalError naming the statement that is not.
    """
    _Check(func).run()
    return func


def verify_stored(func: Function) -> Function:
    """The function itself, if it is well formed and its registers can be allotted.

    Errors: InternalError naming the statement or buffer that is at fault.
    """
    for b in func.temps:
        if b.scope == "register" and any(constant(d) is None for d in b.shape):
            message = "a register buffer's shape is not constant"
            raise InternalError(message, op="verify", node=_shown(b))
    return verify(func)


class _Check:
    def __init__(self, func: Function) -> None:
        self.func = func
        self.buffers = func.buffers
        self.inputs = {b.name for b in func.inputs}
        self.symbols = frozenset(func.symbols)

    def run(self) -> None:
        func = self.func
        head = f"def {func.name}"
        self.require(_is_name(func.name), "the function's name is not an identifier", head)
        self.require(0 <= func.outputs <= len(func.params), "more results than parameters", head)
        names = [s.name for s in func.symbols] + [b.name for b in (*func.params, *func.temps)]
        for name in names:
            self.require(_is_name(name), f"{name!r} is not an identifier", head)
            self.require(names.count(name) == 1, f"{name} is declared twice", head)
        for s in func.symbols:
            self.require(s.type is I64, f"the symbol {s.name} is {s.type}, not i64", head)
        for b in func.params:
            self.require(b.scope == "param", "a parameter's scope is not param", b)
            self.shape(b)
        for b in func.temps:
            self.require(b.scope in _SCOPES, f"{b.scope} is no scope of a temporary buffer", b)
            self.shape(b)
        self.statement(func.body, self.symbols, ())
        for site in sites(func.body):
            if (left := outside(site, func.symbols)) is not None:
                self.require(False, f"{left.name} leaves its extent", site.block)
        if (marked := stale(func)) is not None:
            loop, reason = marked
            self.require(False, f"the hint {loop.hint} does not hold: {reason}", loop)

    def require(self, holds: bool, message: str, at: Stmt | Buffer | str) -> None:
        if not holds:
            shown = at if isinstance(at, str) else _shown(at)
            raise InternalError(message, op="verify", node=shown)

    def shape(self, b: Buffer) -> None:
        for d in b.shape:
            self.require(d.dtype is I64, f"an extent of {b.name} is {d.dtype}, not i64", b)
            self.expr(d, self.symbols, b, load=False)

    def expr(self, root: Expr, known: frozenset[Var], at: Stmt | Buffer, load: bool = True) -> None:
        """Everything in an expression is in view and of the right dtype and rank."""
        for e in walk(root):
            match e:
                case Var(name):
                    self.require(e in known, f"{name} is not known here", at)
                case Load(name, indices, dtype):
                    self.require(load, "a load stands where none may", at)
                    self.access(name, indices, at)
                    found = self.buffers[name].dtype
                    self.require(found is dtype, f"{name} is {found}, not {dtype}", at)
                case _:
                    pass

    def access(self, name: str, indices: tuple[Expr, ...], at: Stmt | Buffer) -> None:
        self.require(name in self.buffers, f"there is no buffer {name}", at)
        rank = len(self.buffers[name].shape)
        self.require(len(indices) == rank, f"{name} has rank {rank}, not {len(indices)}", at)
        for i in indices:
            self.require(i.dtype.is_int, f"an index of {name} is {i.dtype}", at)

    def extent(self, e: Expr, at: Stmt) -> None:
        value = constant(e)
        self.require(e.dtype.is_int, f"an extent is {e.dtype}", at)
        self.require(value is None or value > 0, f"the extent {value} is not positive", at)

    def statement(self, s: Stmt, known: frozenset[Var], around: tuple[Loop, ...]) -> None:
        """``known``: the symbols and the variables of the loops ``around``."""
        match s:
            case Seq(body):
                for c in body:
                    self.require(not isinstance(c, Seq), "a sequence in a sequence", c)
                    self.statement(c, known, around)
                self.require(len(body) != 1, "a sequence of one", s)
            case If(condition, then, other):
                self.require(condition.dtype is BOOL, "the condition is not bool", s)
                self.expr(condition, known, s)
                self.statement(then, known, around)
                if other is not None:
                    self.statement(other, known, around)
            case Loop():
                self.loop(s, known, around)
            case Block():
                self.block(s, known)

    def loop(self, s: Loop, known: frozenset[Var], around: tuple[Loop, ...]) -> None:
        self.extent(s.extent, s)
        self.expr(s.extent, known, s)
        self.require(_is_name(s.var.name), f"{s.var.name!r} is not an identifier", s)
        self.require(
            all(s.var.name != v.name for v in known), f"{s.var.name} has a meaning already", s
        )
        self.require(s.var.type is s.extent.dtype, "the variable's dtype is not the extent's", s)
        self.require(s.kind in LOOP_KINDS, f"there is no kind of loop {s.kind}", s)
        if s.kind == "vector":
            self.require(constant(s.extent) is not None, "a vector loop of symbolic extent", s)
        if s.kind not in ("serial", "unrolled"):
            for outer in around:
                self.require(outer.kind != "vector", f"a {s.kind} loop in a vector loop", s)
                self.require(
                    "." not in s.kind or outer.kind != s.kind, f"{s.kind} is bound already", s
                )
        self.statement(s.body, known | {s.var}, (*around, s))

    def block(self, b: Block, known: frozenset[Var]) -> None:
        self.require(bool(b.name) and '"' not in b.name, "a block without a proper name", b)
        names = [i.var.name for i in b.iters]
        for i in b.iters:
            name = i.var.name
            self.require(
                _is_name(name) and name not in _NOT_ITERATORS, f"{name!r} cannot be an iterator", b
            )
            self.require(names.count(name) == 1, f"there are two iterators {name}", b)
            self.require(i.var not in self.symbols, f"{name} is a symbol", b)
            self.require(i.kind in ("spatial", "reduce"), f"{name} is {i.kind}", b)
            self.extent(i.extent, b)
            self.expr(i.extent, self.symbols, b, load=False)
            self.require(
                i.var.type is i.extent.dtype is i.binding.dtype,
                f"{name} is {i.var.type}, its extent {i.extent.dtype}, its value {i.binding.dtype}",
                b,
            )
            self.expr(i.binding, known, b, load=False)
        self.require(b.where.dtype is BOOL, "where is not bool", b)
        self.expr(b.where, known, b)
        self.update(b, known)

    def update(self, b: Block, known: frozenset[Var]) -> None:
        spatial = (self.symbols if b.iters else known) | {i.var for i in b.spatial}
        inside = spatial | {i.var for i in b.reduce}
        self.access(b.buffer, b.indices, b)
        self.require(b.buffer not in self.inputs, f"the input {b.buffer} is written", b)
        for i in b.indices:
            self.expr(i, spatial if b.combiner is not None else inside, b)
        self.expr(b.value, inside, b)
        dtype = self.buffers[b.buffer].dtype
        self.require(b.value.dtype is dtype, f"{b.value.dtype} goes into {b.buffer}, {dtype}", b)
        if b.combiner is None:
            self.require(not b.reduce, "reduce iterators, and no combiner", b)
            self.require(b.init is None, "a starting value, and no combiner", b)
        else:
            self.require(b.combiner in COMBINERS, f"there is no combiner {b.combiner}", b)
        if b.init is not None:
            self.expr(b.init, spatial, b)
            self.require(b.init.dtype is dtype, f"init is {b.init.dtype}, not {dtype}", b)


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _shown(at: Stmt | Buffer) -> str:
    return f"{at.name}: {at.dtype}{list(at.shape)}" if isinstance(at, Buffer) else show_head(at)
