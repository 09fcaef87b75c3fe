"""What a rule must know about a function: which block it is about, and what its iterators do."""

from __future__ import annotations

from dataclasses import dataclass

from planish.compiler.dtypes import I8, I16, I32, U8
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import (
    Cast,
    Const,
    Expr,
    FloorDiv,
    Load,
    Mul,
    Var,
    free_vars,
    walk,
)
from planish.compiler.expr.sizes import bounds
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Iter, constant
from planish.compiler.remembering import remembered
from planish.schedules.legality import is_identity


@dataclass(frozen=True)
class Contraction:
    """A sum of products of two buffers.

    ``m`` are the spatial iterators that only the first operand has, ``n`` those that only the
    second has, ``batch`` those that both have (or neither), ``k`` the reduction's. ``right`` is the
    operand whose ``n`` is contiguous.
    """

    block: Block
    left: Load
    right: Load
    batch: tuple[Iter, ...]
    m: tuple[Iter, ...]
    n: tuple[Iter, ...]
    k: tuple[Iter, ...]


def operands(value: Expr) -> tuple[Load, Load] | None:
    """The two loads of a product, through casts."""
    if isinstance(value, Cast):
        return None
    if not isinstance(value, Mul):
        return None
    parts = []
    for side in (value.lhs, value.rhs):
        while isinstance(side, Cast):
            side = side.operand
        if not isinstance(side, Load):
            return None
        parts.append(side)
    return parts[0], parts[1]


def as_contraction(block: Block) -> Contraction | None:
    """The block as a contraction whose innermost spatial iterator is one of ``n``, or None."""
    if block.combiner != "sum" or not block.reduce:
        return None
    pair = operands(block.value)
    if pair is None or not block.spatial:
        return None
    uses = [set(free_vars(*load.indices)) for load in pair]
    innermost = block.spatial[-1].var
    if innermost in uses[0] and innermost not in uses[1]:
        pair, uses = (pair[1], pair[0]), [uses[1], uses[0]]
    groups: dict[str, list[Iter]] = {"batch": [], "m": [], "n": []}
    for i in block.spatial:
        a, b = i.var in uses[0], i.var in uses[1]
        # One element along an axis is no axis: consumers read it at 0. Nor is one or none.
        kind = "batch" if a == b or bounds(i.extent)[1] == 1 else "m" if a else "n"
        groups[kind].append(i)
    if not any(i.var in uses[0] and i.var in uses[1] for i in block.reduce):
        return None
    return Contraction(
        block,
        pair[0],
        pair[1],
        tuple(groups["batch"]),
        tuple(groups["m"]),
        tuple(groups["n"]),
        block.reduce,
    )


def grouped(c: Contraction, i: Iter) -> int | None:
    """How many neighbours along an iterator share what one operand has: its group; or None.

    That operand reads the iterator divided by a constant, the other the iterator itself.
    """
    for load in (c.left, c.right):
        quotients = [e for e in walk(*load.indices) if isinstance(e, FloorDiv) and e.lhs is i.var]
        extent = constant(i.extent)
        if len(quotients) != 1 or not isinstance(quotients[0].rhs, Const) or extent is None:
            continue
        rest = [_without(index, quotients[0]) for index in load.indices]
        size = int(quotients[0].rhs.value)
        if size > 1 and extent % size == 0 and i.var not in free_vars(*rest):
            return size
    return None


def _without(e: Expr, part: Expr) -> Expr:
    """The expression with 0 in place of a part of it."""
    return n.transform(e, lambda x: n.const(0, x.dtype) if x is part else None)


def paired_step(c: Contraction) -> int | None:
    """The right operand's dimension in which two neighbours can be multiplied at once, or None.

    The last iterator of the reduction runs along it through an even number of elements of up to 16
    bits, and through neighbours of the left operand.
    """
    last = c.k[-1]
    extent = constant(last.extent)
    if extent is None or extent % 2 or c.block.value.dtype is not I32:
        return None
    if any(x.type not in (I8, U8, I16) for x in (c.left, c.right)):
        return None
    at = [k for k, i in enumerate(c.right.indices) if last.var in free_vars(i)]
    if len(at) != 1 or c.right.indices[at[0]] is not last.var:
        return None
    return at[0] if lanes_of(last.var, c.left) == 1 else None


def is_tileable(c: Contraction, constants: frozenset[str]) -> bool:
    """Whether there are columns to tile, at least within groups."""
    if not c.n:
        return any(grouped(c, i) for i in c.batch)
    return not reads_along_rows(c, constants)


def reads_along_rows(c: Contraction, constants: frozenset[str]) -> bool:
    """Whether the contraction is better seen as sums along rows.

    One row on the left, and a right operand that is contiguous along the reduction.
    """
    if c.m or c.right.buffer in constants or not c.right.indices:
        return False
    return c.right.indices[-1] is c.k[-1].var


def volume(iters: tuple[Iter, ...]) -> int | None:
    """The product of the extents, if they are known."""
    out = 1
    for i in iters:
        extent = constant(i.extent)
        if extent is None:
            return None
        out *= extent
    return out


def reductions(func: Function) -> list[Block]:
    """The blocks that reduce, in order."""
    return [b for b in ir.blocks(func.body) if b.combiner is not None]


def is_stages(func: Function) -> bool:
    """Whether the function is a sequence of stages, each with loops and a buffer of its own."""
    parts = func.body.body if isinstance(func.body, ir.Seq) else (func.body,)
    written = [b.buffer for b in ir.blocks(func.body)]
    if len(set(written)) != len(written) or has_steps(func.body):
        return False
    if not all(map(is_identity, ir.blocks(func.body))):
        return False
    return all(len(list(ir.blocks(p))) == 1 and not isinstance(p, ir.If) for p in parts)


def has_steps(root: ir.Stmt) -> bool:
    """Whether blocks are plain statements of loops, of which an iteration may need those before."""
    return any(loops and not b.iters for loops, b in ir.nests(root))


@remembered(1 << 12)
def operations(value: Expr) -> int:
    """Arithmetic operations of one evaluation; a function counts as its expansion, roughly."""
    count = 0
    for e in n.walk(value):
        if isinstance(e, n.Call):
            count += 12
        elif isinstance(e, n.Binary | n.Select):
            count += 1
    return count


def lanes_of(var: Var, load: Load) -> int | None:
    """How far apart in the last dimension neighbours along ``var`` are.

    0, 1, or None for anything else.
    """
    if not any(var in free_vars(i) for i in load.indices):
        return 0
    if any(var in free_vars(i) for i in load.indices[:-1]):
        return None
    from planish.compiler.expr.linear import linear

    form = linear(load.indices[-1])
    if form.coefficient(var) != 1 or any(var in free_vars(a) for a in form.terms if a is not var):
        return None
    return 1
