"""Instructions of machines, as what they mean: a function of one nest over the tiles they work on.

A loop whose ``hint`` is an intrinsic's name may be emitted as that instruction, or else as what
it stands for, which is the loop itself. ``matches`` says whether a nest is an intrinsic's meaning
up to names and to where its tiles lie in their buffers: what the last index of a tile tells apart
lies side by side in memory, rows of it may be any distance apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Interval, bounds
from planish.compiler.expr.linear import linear
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.expr.simplify import simplify

from .canonical import canonical
from .ir import Block, Buffer, Function, Loop, Stmt, constant
from .text import parse


@dataclass(frozen=True)
class Intrinsic:
    """An instruction: its name, and what it does to its operands."""

    name: str
    meaning: Function


def _intrinsic(text: str) -> Intrinsic:
    meaning = parse(text)
    return Intrinsic(meaning.name, meaning)


# Dot products of four bytes, for each lane (AVX-VNNI, NEON): the block has no start, so it
# continues.
_DOT4 = """\
def {name}(x: {x}[4], w: {w}[{lanes}, 4], *, y: i32[{lanes}]):
    for i in serial({lanes}):
        for k in serial(4):
            with block("y", i=spatial({lanes}, i), k=reduce(4, k)):
                y[i] += cast(x[k], i32) * cast(w[i, k], i32)"""

INTRINSICS: Final[dict[str, Intrinsic]] = {
    i.name: i
    for i in (
        _intrinsic(_DOT4.format(name="vpdpbusd_256", x="u8", w="i8", lanes=8)),
        _intrinsic(_DOT4.format(name="vpdpbusd_512", x="u8", w="i8", lanes=16)),
        _intrinsic(_DOT4.format(name="sdot_128", x="i8", w="i8", lanes=4)),
    )
}


def matches(
    nest: Loop, intrinsic: Intrinsic, known: Mapping[Var, Interval], start: bool = True
) -> bool:
    """Whether a nest means what an intrinsic does.

    ``known``: where the variables around lie. Without ``start``, the starting value of a reduction
    is stored elsewhere.
    """
    found = _tiles(nest, dict(known), start)
    body = intrinsic.meaning.body
    assert isinstance(body, Loop)
    wanted = _tiles(body, {}, True)
    return found is not None and wanted is not None and canonical(found) == canonical(wanted)


def _tiles(nest: Loop, known: dict[Var, Interval], start: bool) -> Function | None:
    """The nest as a function of the tiles that it touches, each from its own corner."""
    loops: list[Loop] = []
    s: Stmt = nest
    while isinstance(s, Loop):
        extent = constant(s.extent)
        if extent is None:
            return None
        known[s.var] = Interval(0, extent - 1)
        loops.append(s)
        s = s.body
    if not isinstance(s, Block) or s.where is not n.TRUE:
        return None
    inner = {x.var for x in loops}
    tiles = _Tiles(s, inner, known)
    value = tiles.value(s.value)
    init = None if s.init is None or not start else tiles.value(s.init)
    target = tiles.operand(Load(s.buffer, s.indices, s.value.dtype))
    if value is None or target is None or (s.init is not None and start and init is None):
        return None
    result = tiles.buffers.pop(target.buffer)
    body: Stmt = Block("block", (), target.buffer, target.indices, value, s.combiner, init)
    for x in reversed(loops):
        body = Loop(x.var, x.extent, body, x.kind)
    return Function("f", (*tiles.buffers.values(), result), 1, (), (), body)


class _Tiles:
    """The operands of a block: one for each of its accesses."""

    def __init__(self, block: Block, inner: set[Var], known: dict[Var, Interval]) -> None:
        self.block, self.inner, self.known = block, inner, known
        self.buffers: dict[str, Buffer] = {}

    def value(self, root: Expr) -> Expr | None:
        """An expression over tiles; None if it uses anything but tiles and the nest's loops."""
        found: dict[Load, Load] = {}
        for load in n.loads(root):
            tile = self.operand(load)
            if tile is None:
                return None
            found[load] = tile

        def change(e: Expr) -> Expr | None:
            return found.get(e) if isinstance(e, Load) else None

        out = n.substitute(n.transform(root, change), self.block.bindings)
        outside = n.transform(out, lambda e: n.const(0, e.dtype) if isinstance(e, Load) else None)
        return out if set(free_vars(outside)) <= self.inner else None

    def operand(self, load: Load) -> Load | None:
        """A load from the tile that an access touches, without dimensions where it stands still."""
        indices: list[Expr] = []
        shape: list[Expr] = []
        last: Expr | None = None
        for i in load.indices:
            index = simplify(n.substitute(i, self.block.bindings), self.known)
            if index.dtype is not I64:
                return None
            moving = n.as_expr(0)
            for atom, c in linear(index).terms.items():
                if atom in self.inner:
                    moving = moving + atom * c
                elif n.loads(atom) or not self.inner.isdisjoint(free_vars(atom)):
                    return None
            low, high = bounds(moving, self.known)
            if moving is n.as_expr(0):
                continue
            if low != 0 or high is None:
                return None
            indices.append(moving)
            shape.append(n.as_expr(high + 1))
            last = i
        if indices and last is not load.indices[-1]:
            return None  # neighbours in the tile are none in memory
        name = f"tile{len(self.buffers)}"
        self.buffers[name] = Buffer(name, load.type, tuple(shape))
        return Load(name, tuple(indices), load.type)
