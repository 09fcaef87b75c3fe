"""The loop IR: functions over buffers, as nests of loops around blocks.

Meaning
-------
A function has buffer parameters (inputs first, then outputs), integer symbols, and temporary
buffers. Its body runs in order. ``Loop(var, extent, kind, body)`` runs the body for var = 0 ..
extent - 1. The kind says how, never what: the result is that of the serial loop. An extent may load
from buffers: it is what it is when the loop begins.

A *block* is one statement with iterators of its own. An iterator is *spatial* (different values
write different elements) or *reduce* (all its values update the same element); its ``binding`` says
which value it has in the present iteration of the loops around. Inside the block only its
iterators, the function's symbols and buffers are visible. The loops around must run through the
iterators' domain, each point once, except that a *spatial* point may be repeated (recomputed) and
that iterations in which ``where`` does not hold are left out.

- a spatial block stores: ``buffer[indices] = value``
- a reduction block updates: ``buffer[indices] = combine(buffer[indices], value)``, the element
  being ``init`` before the first update (the one with all reduce iterators 0), and if there is
  none: because a symbolic extent is 0, or conditions of ``where`` on the reduction's loops leave it
  out. A block with ``init`` None continues what is in the buffer.

A block *without iterators* is a plain statement in terms of the loops around it, which may be of
any number: it may store to an element that another iteration stored to or read, also where indices
are loads, and what it leaves is what the next iteration finds. Nothing is said of the order of its
instances but by their accesses: of those whose indices are not known, any may be of one element.
So operators say what goes on step by step: a scan, a scatter, a heap.

A ``nontemporal`` block writes what nobody will read soon: its stores may go past the caches.

The order of a reduction's updates is not fixed: floats may be summed in any order.

Scopes of buffers: ``param`` (given by the caller), ``global`` (scratch of the call, in its arena),
``local`` (scratch of one chunk of a parallel loop, or of the call), ``register`` (elements that
live in registers: after unrolling every index is a constant, but for one vector axis). A buffer is
defined before it is read within one iteration of the innermost loop that contains all its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from planish.compiler.dtypes import DType
from planish.compiler.expr.nodes import TRUE, Const, Expr, Load, Var, maximum, product
from planish.compiler.expr.sizes import at_least

Scope: TypeAlias = Literal["param", "global", "local", "register"]
Combiner: TypeAlias = Literal["sum", "prod", "max", "min"]

# serial, parallel (chunks claimed by threads), vector (lanes), unrolled; the rest are GPU thread
# axes.
LOOP_KINDS: Final = (
    "serial", "parallel", "vector", "unrolled",
    "block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: Scope = "param"

    @property
    def elements(self) -> Expr:
        """How many there are: none if an extent is negative, as that of a window's room may be."""
        return product(d if at_least(d, 0) else maximum(d, 0) for d in self.shape)

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each dimension."""
        return tuple(product(self.shape[k + 1 :]) for k in range(len(self.shape)))

    @property
    def bytes(self) -> Expr:
        return self.elements * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Iter:
    """A block's iterator: its variable, extent and kind, and its value in the loops around."""

    var: Var
    extent: Expr
    kind: Literal["spatial", "reduce"]
    binding: Expr


@dataclass(frozen=True, slots=True)
class Block:
    """One statement; see the module's text."""

    name: str
    iters: tuple[Iter, ...]
    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    combiner: Combiner | None = None
    init: Expr | None = None
    where: Expr = TRUE
    nontemporal: bool = False
    origin: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def bindings(self) -> dict[Var, Expr]:
        return {i.var: i.binding for i in self.iters}

    @property
    def spatial(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "spatial")

    @property
    def reduce(self) -> tuple[Iter, ...]:
        return tuple(i for i in self.iters if i.kind == "reduce")

    def with_(self, **changes: Any) -> Block:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Loop:
    """``for var in kind(extent): body``.

    ``hint`` tells targets what they may do with the loop ("pipeline(2)", the name of an
    intrinsic); the meaning is the loop's all the same. What it says is true: see ``hints``.
    """

    var: Var
    extent: Expr
    body: Stmt
    kind: str = "serial"
    hint: str = ""

    def with_(self, **changes: Any) -> Loop:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Seq:
    """Statements, one after the other."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    """A body that runs where ``condition`` holds, and one that runs elsewhere."""

    condition: Expr
    then: Stmt
    other: Stmt | None = None


Stmt: TypeAlias = Block | Loop | Seq | If


@dataclass(frozen=True, slots=True)
class Function:
    """A function; ``params`` are the inputs, then ``outputs`` results."""

    name: str
    params: tuple[Buffer, ...]
    outputs: int
    symbols: tuple[Var, ...]
    temps: tuple[Buffer, ...]
    body: Stmt

    def __repr__(self) -> str:
        from .text import show

        return show(self)

    @property
    def buffers(self) -> dict[str, Buffer]:
        return {b.name: b for b in (*self.params, *self.temps)}

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return self.params[: len(self.params) - self.outputs]

    @property
    def results(self) -> tuple[Buffer, ...]:
        return self.params[len(self.params) - self.outputs :]

    def with_(self, **changes: Any) -> Function:
        return replace(self, **changes)

    def with_buffer(self, buffer: Buffer) -> Function:
        """The function with the buffer of that name replaced, or a temporary one added."""
        if any(b.name == buffer.name for b in self.params):
            params = tuple(buffer if b.name == buffer.name else b for b in self.params)
            return replace(self, params=params)
        rest = tuple(buffer if b.name == buffer.name else b for b in self.temps)
        if buffer.name not in {b.name for b in rest}:
            rest = (*rest, buffer)
        return replace(self, temps=rest)


# ----------------------------------------------------------------------------------- traversals


def seq(*stmts: Stmt) -> Stmt:
    """The statements as one, nested sequences flattened."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.body if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def children(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside, in order."""
    if isinstance(s, Block):
        return ()
    if isinstance(s, Loop):
        return (s.body,)
    if isinstance(s, Seq):
        return s.body
    return (s.then,) if s.other is None else (s.then, s.other)


def with_children(s: Stmt, new: tuple[Stmt, ...]) -> Stmt:
    """The statement over other children; the same object if they are the same."""
    if all(a is b for a, b in zip(children(s), new, strict=True)):
        return s
    match s:
        case Loop():
            return replace(s, body=new[0])
        case Seq():
            return seq(*new)
        case If():
            return replace(s, then=new[0], other=new[1] if len(new) > 1 else None)
        case Block():
            return s


def walk(s: Stmt) -> Iterator[Stmt]:
    """Every statement, outer ones first, in order."""
    left = [s]
    while left:
        s = left.pop()
        yield s
        if not isinstance(s, Block):
            left.extend(reversed(children(s)))


def blocks(s: Stmt) -> Iterator[Block]:
    """The blocks inside, in order."""
    return (b for b in walk(s) if isinstance(b, Block))


def nests(s: Stmt, outer: tuple[Loop, ...] = ()) -> Iterator[tuple[tuple[Loop, ...], Block]]:
    """Each block in order, with the loops around it, outermost first."""
    left = [(outer, s)]
    while left:
        outer, s = left.pop()
        if isinstance(s, Block):
            yield outer, s
        elif isinstance(s, Loop):
            left.append(((*outer, s), s.body))
        else:
            left.extend((outer, c) for c in reversed(children(s)))


def map_statements(s: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """Rebuild bottom-up; ``change`` sees each statement over its new children. None deletes it."""
    kept = [c for c in (map_statements(c, change) for c in children(s)) if c is not None]
    if children(s) and not kept:
        return None
    if isinstance(s, If) and len(kept) != len(children(s)):
        return change(s)
    if isinstance(s, Seq):
        new: Stmt = (
            s
            if len(kept) == len(s.body) and all(a is b for a, b in zip(kept, s.body, strict=True))
            else seq(*kept)
        )
    else:
        new = with_children(s, tuple(kept))
    return change(new)


def map_blocks(s: Stmt, change: Callable[[Block], Block]) -> Stmt:
    """The statement with each block replaced."""
    out = map_statements(s, lambda x: change(x) if isinstance(x, Block) else x)
    assert out is not None
    return out


def map_expressions(s: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """The statement with each expression that speaks of its loops replaced.

    Blocks are bound ones that start no reduction.
    """

    def one(x: Stmt) -> Stmt:
        match x:
            case Block():
                indices = tuple(map(change, x.indices))
                return x.with_(indices=indices, value=change(x.value), where=change(x.where))
            case Loop():
                return x.with_(extent=change(x.extent))
            case If(condition, then, other):
                return If(change(condition), then, other)
            case Seq():
                return x

    out = map_statements(s, one)
    assert out is not None
    return out


def reads(b: Block) -> tuple[Load, ...]:
    """The loads of a block's value and indices, which speak of its iterators.

    Not the update's own, nor those of ``where`` and ``init``: ``loaded`` has all.
    """
    from planish.compiler.expr.nodes import loads

    return loads(b.value, *b.indices)


def loaded(s: Stmt) -> tuple[Load, ...]:
    """The loads of a statement itself: of a block all, of what holds others extent or condition."""
    from planish.compiler.expr.nodes import loads

    match s:
        case Block():
            return loads(s.value, *s.indices, s.where, *(() if s.init is None else (s.init,)))
        case Loop(extent=e) | If(condition=e):
            return loads(e)
        case Seq():
            return ()


def buffers_used(root: Stmt) -> set[str]:
    """The names of all buffers that a statement, or what is in it, loads from or stores to."""
    out: set[str] = set()
    for s in walk(root):
        out.update(x.buffer for x in loaded(s))
        if isinstance(s, Block):
            out.add(s.buffer)
    return out


def constant(e: Expr) -> int | None:
    """The value of a constant integer expression."""
    return int(e.value) if isinstance(e, Const) else None
