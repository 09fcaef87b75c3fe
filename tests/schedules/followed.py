"""Which instance of which block of a function an instance of a scheduled block is.

Moves rename blocks and change their iterators. ``followed`` gives the scheduled function with each
block as an instance of what it comes from, so that ``legal_order`` compares them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from planish.compiler.expr.nodes import Const, Expr, Var, substitute
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Function, Iter, Loop, Stmt
from planish.schedules.schedule import MOVES, Schedule
from planish.schedules.trace import Step, Trace

ANY = Const(1 << 40)  # of iterators that are loops, whose extents may be anything


@dataclass(frozen=True)
class Origin:
    """A block of the function, and the values of its iterators in terms of the present block's.

    ``within`` are loops over the iterations that the present block does at once.
    """

    name: str
    iters: tuple[Iter, ...]
    values: tuple[Expr, ...]
    within: tuple[Loop, ...] = ()

    def rebound(self, values: Mapping[Var, Expr]) -> Origin:
        return replace(self, values=tuple(substitute(v, values) for v in self.values))


def numbered(func: Function) -> Function:
    """The function with the loops as iterators of the blocks that have none."""
    named = {b.name: _iterators(loops, b) for loops, b in ir.nests(func.body)}
    return func.with_(body=ir.map_blocks(func.body, lambda b: b.with_(iters=named[b.name])))


def _iterators(loops: tuple[Loop, ...], b: Block) -> tuple[Iter, ...]:
    return b.iters or tuple(Iter(Var(f"at_{x.var.name}"), ANY, "spatial", x.var) for x in loops)


def followed(func: Function, trace: Trace) -> Function:
    """The scheduled function, its blocks with the names and iterators of those they come from.

    Blocks that moves made have names that no block of the function has.
    """
    found: dict[str, Origin] = {}
    for loops, b in ir.nests(func.body):
        iters = _iterators(loops, b)
        values = tuple(i.var if b.iters else i.binding for i in iters)
        found[b.name] = Origin(b.name, iters, values)
    s = Schedule(func)
    for step in trace:
        after = MOVES[step.move](s, *step.arguments)
        _follow(found, step, s, after)
        s = after

    def change(x: Stmt) -> Stmt:
        if not isinstance(x, Block):
            return x
        origin = found.get(x.name)
        if origin is None:
            return x.with_(name=f"new {x.name}")
        pairs = zip(origin.iters, origin.values, strict=True)
        iters = tuple(replace(i, binding=substitute(v, x.bindings)) for i, v in pairs)
        out: Stmt = x.with_(name=origin.name, iters=iters)
        for loop in origin.within:
            out = loop.with_(body=out)
        return out

    body = ir.map_statements(s.func.body, change)
    assert body is not None
    return s.func.with_(body=body)


def _follow(found: dict[str, Origin], step: Step, s: Schedule, after: Schedule) -> None:
    """What becomes of the origins in a move."""
    match step.move, step.arguments:
        case "split", (str(path), int(factor)):
            v = s.loop(path).var
            value = Var(f"{v.name}_0") * factor + Var(f"{v.name}_1")
            _loops_became(found, ir.blocks(s.loop(path)), {v: value})
        case "fuse", (str(path), str(inner)):
            loop = s.loop(path)
            assert isinstance(loop.body, Loop)
            both, extent = Var(f"{loop.var.name}_{inner}"), loop.body.extent
            values = {loop.var: both // extent, loop.body.var: both % extent}
            _loops_became(found, ir.blocks(loop), values)
        case "divide", (str(name), str(i), int(factor)):
            if name in found:
                value = Var(f"{i}_0") * factor + Var(f"{i}_1")
                found[name] = found[name].rebound({Var(i): value})
        case "merge", (str(name), str(i), str(j)):
            if name in found:
                extent = next(x.extent for x in s.block(name).iters if x.var.name == j)
                both = Var(f"{i}_{j}")
                found[name] = found[name].rebound({Var(i): both // extent, Var(j): both % extent})
        case "group", (str(name), str(i), int(count)):
            if name in found:
                one = Loop(Var(f"{name}_{i}_one"), Const(count), s.block(name))
                new = found[name].rebound({Var(i): Var(i) * count + one.var})
                found[name] = replace(new, within=(*new.within, one))
        case "cache_write", (str(name), _):
            if name in found:
                found[f"{name}_cache"] = found.pop(name)
        case "rfactor", (str(path), *_):
            name = path.partition(".")[0]
            if name in found:
                new_iters = after.block(f"{name}_rf").iters
                loops = {i.binding: i.var for i in new_iters if isinstance(i.binding, Var)}
                values = {i.var: substitute(i.binding, loops) for i in s.block(name).reduce}
                found[f"{name}_rf"] = found.pop(name).rebound(values)
        case "inline", (str(name),):
            found.pop(name, None)
        case _:
            pass


def _loops_became(
    found: dict[str, Origin], inside: Iterable[Block], values: Mapping[Var, Expr]
) -> None:
    """Blocks without iterators speak of loops."""
    for b in inside:
        if not b.iters and b.name in found:
            found[b.name] = found[b.name].rebound(values)
