"""How much a function has to do at the least: arithmetic on floats, and bytes of its arguments.

A function named in an expression (``exp``, say) counts as one operation, a multiply-add as two.
"""

from __future__ import annotations

from typing import Final

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr

from .ir import Block, Function, blocks

_OPERATIONS: Final = (n.Add, n.Sub, n.Mul, n.Div, n.Min, n.Max, n.Call)
_ZERO: Final = Const(0, I64)


def flops(func: Function) -> Expr:
    """Operations on floats of all blocks, over the function's symbols."""
    total: Expr = _ZERO
    for block in blocks(func.body):
        count = _per_point(block)
        if count:
            total = n.add(total, n.mul(n.product(i.extent for i in block.iters), count))
    return total


def _per_point(block: Block) -> int:
    found: int = sum(isinstance(e, _OPERATIONS) and e.dtype.is_float for e in n.walk(block.value))
    return found + int(block.combiner is not None and block.value.dtype.is_float)


def argument_bytes(func: Function) -> Expr:
    """Bytes of all parameters, each moved once."""
    total: Expr = _ZERO
    for p in func.params:
        total = n.add(total, p.bytes)
    return total
