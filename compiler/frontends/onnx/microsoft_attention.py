"""Attention with as many heads of keys as of queries, in ONNX Runtime's own domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import F32, I32
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Expr, as_expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.ir import Value, unify
from planish.compiler.ops.compare import And, Greater, GreaterOrEqual, Less
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.shape import Concat, Reshape, Split

from .attending import (
    ONE,
    Scoring,
    attended,
    causal,
    counted,
    counting,
    front,
    heads_first,
    joined,
    part_of,
    parted,
)
from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .quantization import operands_of, vector
from .reader import NodeReader, handles


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values [batch, heads, rows, size], all keys there are among them."""

    q: Value
    k: Value
    v: Value
    past: Expr = as_expr(0)  # how many of the keys were there before

    def scoring(self, r: NodeReader, mask: Value | None, added: Value | None) -> Scoring:
        """What the attributes and inputs of a node say of scores."""
        rows, keys = self.q.type.shape[2], self.k.type.shape[2]
        masks = [] if mask is None else [self.filtered(r, mask)]
        if added is not None:
            masks.append(added)
        kept = (causal(r, rows, keys, self.past),) if r.attribute("unidirectional", 0) else ()
        return Scoring(float(r.attribute("scale", 0.0)), 0.0, tuple(masks), kept)

    def filtered(self, r: NodeReader, mask: Value) -> Value:
        """A number to add to scores for what is masked, which broadcasts to them.

        The mask says of each key (for each query, or for all) whether it counts; or how many count;
        or, in one row, before which they end and then from which on they begin.
        """
        batch, keys = self.q.type.shape[0], self.k.type.shape[2]
        if mask.type.dtype is not I32:
            raise r.fail(f"the mask is {mask!r}, not integers of 32 bits")
        shape = mask.type.shape
        zero = r.constant(np.array(0, np.int32))
        if mask.type.rank == 1:
            keep = self._between(r, mask)
        elif mask.type.rank in (2, 3):
            wanted = (batch, *([self.q.type.shape[2]] if mask.type.rank == 3 else []), keys)
            for d, e in zip(shape, wanted, strict=True):
                unify(d, e, f"the mask {mask!r} is not {list(map(str, wanted))}")
            ones = (ONE,) * (4 - mask.type.rank)
            keep = step(r, Reshape((batch, *ones, *shape[1:])), mask)
            keep = step(r, Greater(), keep, zero)
        else:
            raise r.fail(f"the mask {mask!r} has rank {mask.type.rank}, and may have 1 to 3")
        number = np.array(r.attribute("mask_filter_value", -10000.0), np.float32)
        nothing = r.constant(np.array(0, np.float32))
        return step(r, Where(), keep, nothing, r.constant(number))

    def _between(self, r: NodeReader, mask: Value) -> Value:
        batch, count = self.q.type.shape[0], mask.type.shape[0]
        keys = step(r, Cast(I32), counting(r, self.k.type.shape[2]))
        both = n.eq(count, normal(batch * 2)) is n.TRUE and n.eq(count, batch) is not n.TRUE
        if n.eq(count, normal(batch * 3 + 2)) is n.TRUE:  # what is behind follows from the lengths
            mask = front(r, mask, (batch,))
        elif not both:
            unify(count, batch, f"the mask {mask!r} has no number for each batch")
        column = (batch, ONE, ONE, ONE)
        if not both:
            return step(r, Less(), keys, step(r, Reshape(column), mask))
        ends, starts = (
            step(r, Reshape(column), v)
            for v in r.builder.apply(Split((batch, batch)), mask, origin=r.label)
        )
        return step(r, And(), step(r, Less(), keys, ends), step(r, GreaterOrEqual(), keys, starts))


def _unused(r: NodeReader, *names: str) -> None:
    """Attributes for which there is nothing here."""
    for name in names:
        if r.attribute(name, 0):
            raise r.fail(f"attribute {name} is {r.attribute(name)}, and only 0 is supported")


# ------------------------------------------------------------------------- queries, keys, values


@handles("MultiHeadAttention", 1, domain=MICROSOFT)
def multi_head_attention(r: NodeReader) -> list[Value | None]:
    """The keys there were before are inputs 6 and 7; the scores are output 3."""
    for at, what in ((8, "the length of what is in a shared buffer"), (9, "beams")):
        if r.optional(at) is not None:
            raise r.fail(f"input {at}, {what}, is not supported")
    count = counted(r, "num_heads")
    q, k, v, *bias = _separate(r, count)
    q = parted(r, q if not bias else step(r, Add(), q, bias[0]), count)
    return _of_heads(r, q, k, v, bias[1:], count, (r.optional(4), r.optional(5)), (6, 7))


def _of_heads(
    r: NodeReader,
    q: Value,
    k: Value,
    v: Value,
    bias: list[Value],
    count: int,
    masks: tuple[Value | None, Value | None],
    past: tuple[int, int],
) -> list[Value | None]:
    """Attention and its further outputs; keys and values that have heads already stand as given."""
    old = [r.optional(at) for at in past]
    if (old[0] is None) != (old[1] is None):
        raise r.fail(f"inputs {past[0]} and {past[1]}, past keys and values, belong together")
    before = as_expr(0)
    made = []
    for x, last, b in zip((k, v), old, bias or (None, None), strict=True):
        if x.type.rank == 4:
            if last is not None:
                raise r.fail(f"there are past keys besides {x!r}, which has heads already")
        else:
            x = heads_first(r, parted(r, x if b is None else step(r, Add(), x, b), count))
        if last is not None:
            if last.type.rank != 4:
                raise r.fail(f"{last!r} must have four axes: batch, heads, sequence, size")
            before = last.type.shape[2]
            x = step(r, Concat(2), last, x)
        made.append(x)
    heads = Heads(heads_first(r, q), made[0], made[1], before)
    y, scores = attended(r, heads.q, heads.k, heads.v, heads.scoring(r, *masks))
    told = None
    if any(r.output_names[3:]):
        same = scores.type.dtype is q.type.dtype
        told = scores if same else step(r, Cast(q.type.dtype), scores)
    return [joined(r, y), *made, told]


def _separate(r: NodeReader, count: int) -> list[Value]:
    """Queries, keys and values [batch, rows, hidden], or with heads in front; then their biases.

    Queries may hold all three, and keys the values too: [batch, rows, heads, 3 or 2, size].
    """
    q, k, v, bias = r.input(0), r.optional(1), r.optional(2), r.optional(3)
    if q.type.rank == 5:
        if k is not None or v is not None:
            raise r.fail(f"there are keys and values besides {q!r}, which holds them")
        parts = _unpacked(r, q, 3)
    elif k is None:
        raise r.fail(f"the keys are missing, and {q!r} does not hold them")
    elif k.type.rank == 5:
        if v is not None:
            raise r.fail(f"there are values besides {k!r}, which holds them")
        parts = [q, *_unpacked(r, k, 2)]
    else:
        parts = [q, k, r.input(2)]
    if (
        any(p.type.rank not in (3, 4) for p in parts[1:])
        or parts[1].type.rank != parts[2].type.rank
    ):
        raise r.fail(f"keys {parts[1]!r} and values {parts[2]!r} must have three or four axes")
    if bias is None:
        return parts
    wide = parts[0].type.shape[-1]
    last = normal(bias.type.shape[0] - wide * 2) if bias.type.rank == 1 else wide
    return [*parts, *r.builder.apply(Split((wide, wide, last)), bias, origin=r.label)]


def _unpacked(r: NodeReader, x: Value, count: int) -> list[Value]:
    batch, rows, heads, _, size = x.type.shape
    parts = r.builder.apply(Split((ONE,) * count, 3), x, origin=r.label)
    return [step(r, Reshape((batch, rows, normal(heads * size))), p) for p in parts]


@handles("DecoderMaskedMultiHeadAttention", 1, domain=MICROSOFT)
def decoder_masked_multi_head_attention(r: NodeReader) -> list[Value | None]:
    """As MultiHeadAttention, of one query and in another order."""
    _unused(r, "past_present_share_buffer")
    r.attribute("output_qk")  # output 3 is asked for by its name
    for at, what in ((7, "the length of what is in a shared buffer"), (8, "beams"), (9, "beams")):
        if r.optional(at) is not None:
            raise r.fail(f"input {at}, {what}, is not supported")
    count, q, bias = counted(r, "num_heads"), r.input(0), r.optional(10)
    if r.optional(1) is None:
        third = part_of(r, q.type.shape[-1], 3, f"{q!r} is not queries, keys and values")
        q, k, v = r.builder.apply(Split((third,) * 3, -1), q, origin=r.label)
    else:
        k, v = r.input(1), r.input(2)
    biases: list[Value] = []
    if bias is not None:
        wide = q.type.shape[-1]
        sizes = wide, wide, normal(bias.type.shape[0] - wide * 2)
        first, *biases = r.builder.apply(Split(sizes), bias, origin=r.label)
        q = step(r, Add(), q, first)
    masks = r.optional(3), r.optional(4)
    return _of_heads(r, parted(r, q, count), k, v, biases, count, masks, (5, 6))


# ------------------------------------------------------------------------------ with projection


@handles("Attention", 1, domain=MICROSOFT)
def attention(r: NodeReader) -> list[Value | None]:
    """Queries, keys and values are made of the input by one product."""
    if r.optional(6) is not None:
        raise r.fail("input 6, the length of what is in a shared buffer, is not supported")
    _unused(r, "past_present_share_buffer", "do_rotary")
    r.attribute("rotary_embedding_dim")  # of rotary embeddings, which are refused
    y, bias = step(r, MatMul(), r.input(0), r.input(1)), r.optional(2)
    if bias is not None:
        y = step(r, Add(), y, bias)
    return _projected(r, y, r.optional(3), r.optional(4), r.optional(5))


@handles("QAttention", 1, domain=MICROSOFT)
def quantized_attention(r: NodeReader) -> list[Value | None]:
    """As Attention, of integers: their product is numbers again by both scales."""
    _unused(r, "past_present_share_buffer", "do_rotary")
    a, b = operands_of(r, r.input(0), r.input(1), r.optional(6), r.optional(7), (1, 0))
    factor = step(r, Mul(), vector(r, r.input(3), 1), vector(r, r.input(4), 0))
    dtype = factor.type.dtype
    product = step(r, Cast(F32), step(r, MatMul(result=I32), a, b))
    wide = factor if dtype is F32 else step(r, Cast(F32), factor)
    y = step(r, Mul(), product, wide)
    y = y if dtype is F32 else step(r, Cast(dtype), y)
    y = step(r, Add(), y, r.input(2))
    return _projected(r, y, r.optional(5), r.optional(8), None)


def _projected(
    r: NodeReader, y: Value, mask: Value | None, past: Value | None, added: Value | None
) -> list[Value | None]:
    """Attention within [batch, rows, queries + keys + values]; past keys and values are one."""
    count = counted(r, "num_heads")
    if y.type.rank != 3:
        raise r.fail(f"the input {r.input(0)!r} must have three axes: batch, sequence and hidden")
    given = r.attribute("qkv_hidden_sizes") if r.op_type == "Attention" else None
    if given:
        if len(given) != 3 or given[0] != given[1] or min(given) < 0:
            raise r.fail(f"qkv_hidden_sizes {list(given)} are not three sizes, the first two alike")
        sizes = tuple(as_expr(int(d)) for d in given)
    else:
        sizes = (part_of(r, y.type.shape[2], 3, f"{y!r} is not queries, keys and values"),) * 3
    parts = r.builder.apply(Split(sizes, -1), y, origin=r.label)
    q, k, v = (heads_first(r, parted(r, p, count)) for p in parts)
    before = as_expr(0)
    if past is not None:
        if past.type.rank != 5:
            raise r.fail(f"{past!r} must have five axes: 2, batch, heads, sequence, size")
        before = past.type.shape[3]
        olds = r.builder.apply(Split((ONE, ONE)), past, origin=r.label)
        k, v = (
            step(r, Concat(2), step(r, Reshape(past.type.shape[1:]), old), new)
            for old, new in zip(olds, (k, v), strict=True)
        )
    heads = Heads(q, k, v, before)
    out, _ = attended(r, q, k, v, heads.scoring(r, mask, added))
    present = None
    if any(r.output_names[1:]):
        both = [step(r, Reshape((ONE, *x.type.shape)), x) for x in (k, v)]
        present = step(r, Concat(0), *both)
    return [joined(r, out), present]
