"""Tensor expressions to a loop function: one plain nest of serial loops for each stage, in order.

The nest of a stage loops over its axes, outermost first, then over its reduction axes; the block's
iterators bear the names of the axes and are bound to loops of the same names. Schedules start here.

Inputs and results are ``param`` buffers, other stages ``global`` ones. Buffers and blocks are named
after the tensors, without the number that made those unique. Of a stage without elements no loop is
made; a reduction over a constant extent of zero stores its starting value.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Final, cast

from planish.compiler.errors import InternalError
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars, transform

from . import te
from .ir import Block, Buffer, Combiner, Function, Iter, Loop, Stmt, constant, seq

_NUMBER: Final = re.compile(r"_\d+$")
_NOT_NAME: Final = re.compile(r"\W", re.ASCII)
# Names that the text of functions gives a meaning to, or that axes bear.
_TAKEN: Final = re.compile(r"[ir]\d+|buffer|block|bind|symbols|cast|select|min|max")


def lower(name: str, inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> Function:
    """The function that computes ``outputs`` from ``inputs``, as naive loop nests.

    A tensor among the inputs is given from outside, even if it is a stage. An output that is an
    input, or that stands there twice, is a copy.
    """
    if len(set(inputs)) != len(inputs):
        raise InternalError("an input is given twice", op="lower", node=name)
    stages = _stages(inputs, outputs)
    symbols = _symbols(inputs, outputs, stages)
    for t in stages:
        if {*t.axes, *(v for v, _ in t.reduce_axes)} & set(symbols):
            raise InternalError(f"a symbol bears the name of an axis: {symbols}", op="lower")
    taken = {s.name for s in symbols}
    names = {t: _unique(t.name, taken) for t in (*inputs, *stages)}

    results: list[Buffer] = []
    copies: list[Stmt] = []
    stored: set[te.Tensor] = set()
    for out in outputs:
        if out in stored or out not in stages:
            result = Buffer(_unique(out.name, taken), out.dtype, out.shape)
            copies.append(_copy(names[out], result))
        else:
            result = Buffer(names[out], out.dtype, out.shape)
            stored.add(out)
        results.append(result)

    return Function(
        name,
        (*(Buffer(names[t], t.dtype, t.shape) for t in inputs), *results),
        len(outputs),
        symbols,
        tuple(Buffer(names[t], t.dtype, t.shape, "global") for t in stages if t not in stored),
        seq(*(_nest(t, names) for t in stages), *copies),
    )


def _stages(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> dict[te.Tensor, None]:
    """The stages to compute, sources first; a dictionary for its order and its quick ``in``."""
    given = set(inputs)
    order: dict[te.Tensor, None] = {}
    stack = list(reversed(outputs))
    while stack:
        tensor = stack[-1]
        if tensor in given or tensor in order:
            stack.pop()
        elif tensor.body is None:
            raise InternalError(f"{tensor.name} is not among the inputs", op="lower")
        elif todo := [s for s in tensor.sources if s not in given and s not in order]:
            stack.extend(reversed(todo))
        else:
            order[stack.pop()] = None
    return order


def _symbols(
    inputs: Iterable[te.Tensor], outputs: Iterable[te.Tensor], stages: Iterable[te.Tensor]
) -> tuple[Var, ...]:
    """The free variables: of the parameters' shapes first, then of the stages, in order of use."""
    found: dict[Var, None] = {}
    for tensor in (*inputs, *outputs):
        found |= dict.fromkeys(free_vars(*tensor.shape))
    for tensor in stages:
        own = {*tensor.axes, *(v for v, _ in tensor.reduce_axes)}
        extents = (*tensor.shape, *(e for _, e in tensor.reduce_axes))
        roots = extents if tensor.body is None else (*extents, tensor.body)
        found |= {v: None for v in free_vars(*roots) if v not in own}
    return tuple(found)


def _unique(name: str, taken: set[str]) -> str:
    """A name that is not taken (and is from now on), as close to ``name`` as can be."""
    base = _NOT_NAME.sub("_", _NUMBER.sub("", name)) or "t"
    if base[0].isdigit() or keyword.iskeyword(base) or _TAKEN.fullmatch(base):
        base = f"t_{base}"
    out, k = base, 1
    while out in taken:
        out, k = f"{base}_{k}", k + 1
    taken.add(out)
    return out


def _nest(tensor: te.Tensor, names: dict[te.Tensor, str]) -> Stmt:
    assert tensor.body is not None
    buffers = {s.name: names[s] for s in tensor.sources}

    def rename(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        if e.buffer not in buffers:
            raise InternalError(f"{tensor.name} loads an unknown {e.buffer}", op="lower")
        return Load(buffers[e.buffer], e.indices, e.type)

    spatial = [Iter(v, e, "spatial", v) for v, e in zip(tensor.axes, tensor.shape, strict=True)]
    reduce = [Iter(v, e, "reduce", v) for v, e in tensor.reduce_axes]
    combiner, init = None, None
    value = transform(tensor.body, rename)
    if reduce:
        assert tensor.combiner is not None
        init = te.COMBINERS[tensor.combiner](tensor.dtype)
        if any(constant(i.extent) == 0 for i in reduce):
            value, reduce, init = init, [], None
        else:
            combiner = cast(Combiner, tensor.combiner)
    name = names[tensor]
    iters = (*spatial, *reduce)
    return _loops(Block(name, iters, name, tensor.axes, value, combiner, init))


def _copy(source: str, result: Buffer) -> Stmt:
    axes = tuple(Var(f"i{k}") for k in range(len(result.shape)))
    iters = tuple(Iter(v, e, "spatial", v) for v, e in zip(axes, result.shape, strict=True))
    value = Load(source, axes, result.dtype)
    return _loops(Block(result.name, iters, result.name, axes, value))


def _loops(block: Block) -> Stmt:
    """The block in serial loops, one for each iterator; nothing if it has no point."""
    if any(constant(i.extent) == 0 for i in block.iters):
        return seq()
    body: Stmt = block
    for i in reversed(block.iters):
        body = Loop(i.var, i.extent, body)
    return body
