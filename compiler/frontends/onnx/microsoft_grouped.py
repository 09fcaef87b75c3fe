"""Attention with fewer heads of keys than of queries, and rotary positions, of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planish.compiler.dtypes import I64
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import normal, same
from planish.compiler.graph.ir import Value, unify
from planish.compiler.ops.compare import And, Equal, Greater, LessOrEqual
from planish.compiler.ops.creation import ConstantOfShape, Where
from planish.compiler.ops.elementwise import Add, Max, Sub
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.normalization import RMSNorm
from planish.compiler.ops.sequences import TensorScatter
from planish.compiler.ops.shape import Concat, Reshape, Split, Transpose

from .attending import (
    ONE,
    Scoring,
    attended,
    counted,
    counting,
    front,
    heads_first,
    parted,
    rotated,
    tables,
)
from .dynamic import Integers
from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .reader import NodeReader, handles


@handles("RotaryEmbedding", 1, domain=MICROSOFT)
def rotary_embedding(r: NodeReader) -> Value:
    """Of [batch, rows, hidden] or [batch, heads, rows, size]; one position is that of row 0."""
    x, at = r.input(0), r.input(1)
    cos, sin = tables(r, 2, 3)
    count, pairs = int(r.attribute("num_heads", 0)), int(r.attribute("rotary_embedding_dim", 0))
    for name, plain in (("is_packed_batching", 0), ("scale", 1.0)):
        if r.attribute(name, plain) != plain:
            raise r.fail(f"attribute {name} is {r.attribute(name)}, and only {plain} is supported")
    if x.type.rank == 4:
        rows = heads_first(r, x)
    elif pairs:
        if count < 1:
            raise r.fail("rotary_embedding_dim is given, and num_heads is not")
        rows = parted(r, x, count)
    elif x.type.rank == 3:
        size = normal(cos.type.shape[1] * 2)
        heads = normal(n.floordiv(x.type.shape[2], size))
        rows = step(r, Reshape((*x.type.shape[:2], heads, size)), x)
    else:
        raise r.fail(f"{x!r} must have three or four axes")
    if pairs:
        what = f"rotary_embedding_dim is {pairs}, of {cos!r}"
        unify(cos.type.shape[1], as_expr(pairs // 2), what)
    i = Integers(r)
    at = i.wide(at)
    if at.type.rank == 1:
        at = i(Add(), counting(r, rows.type.shape[1]), i(Reshape((ONE,)), at))
    elif at.type.rank != 2:
        raise r.fail(f"the positions {at!r} are neither one nor [batch, sequence]")
    y = rotated(r, rows, cos, sin, at, bool(r.attribute("interleaved", 0)))
    if x.type.rank == 4:
        return r.one(Transpose((0, 2, 1, 3)), y)
    return r.one(Reshape(x.type.shape), y)


@dataclass(frozen=True)
class Cache:
    """Where a call's rows are among all keys: what is cached, then they.

    ``total`` is how many keys there are at most, ``lengths`` of each batch how many there are less
    one, and ``first`` [batch] which of them are the call's first ones.
    """

    batch: Expr
    rows: Expr
    total: Expr
    lengths: Value
    first: Value
    prompt: Value  # whether nothing is cached

    def positions(self, i: Integers) -> Value:
        """Of the call's rows, [batch, rows]."""
        column = i(Reshape((self.batch, ONE)), self.first)
        return i(Add(), column, counting(i.r, self.rows))

    def kept(self, i: Integers, causal: bool, window: int) -> Value:
        """[batch, 1, 1, rows, total]: whether a key counts for a query.

        Keys behind the last one of a batch are behind all queries too.
        """
        keys = counting(i.r, self.total)
        column = self.batch, ONE, ONE
        if not causal:
            keep = i(LessOrEqual(), keys, i(Reshape(column), self.lengths))
            return i(Reshape((self.batch, ONE, ONE, ONE, self.total)), keep)
        at = i(Reshape((self.batch, self.rows, ONE)), self.positions(i))
        keep = i(LessOrEqual(), keys, at)
        if window > 0:
            keep = i(And(), keep, i(Greater(), keys, i(Sub(), at, window)))
        return i(Reshape((self.batch, ONE, ONE, self.rows, self.total)), keep)

    def joined(self, i: Integers, old: Value | None, new: Value) -> Value:
        """Keys or values [batch, heads, rows, size] with what is cached in front."""
        if old is None:
            return new
        batch, heads, held, size = old.type.shape
        more = normal(n.sub(n.maximum(held, self.total), held))
        if not (isinstance(more, Const) and more.value == 0):
            zero = n.const(0, old.type.dtype)
            old = i(Concat(2), old, i(ConstantOfShape((batch, heads, more, size), zero)))
        return i(TensorScatter(), old, new, self.first)


def _cache(r: NodeReader, i: Integers, x: Value, has_past: bool) -> Cache:
    batch, rows, _ = x.type.shape
    lengths = i(Reshape((batch,)), i.wide(r.input(5)))
    whole = i(Reshape(()), i.wide(r.input(6)))
    total = r.symbol(whole, "the total sequence length")
    if not has_past:
        unify(total, rows, f"nothing is cached, so the total length {total} must be {rows}")
        total = rows
    now = i.pick(i.shape(x), 1)
    prompt = i(Equal(), whole, now)
    first = i(Max(), i(Add(), i(Sub(), lengths, now), 1), 0)
    return Cache(batch, rows, total, lengths, i(Where(), prompt, 0, first), prompt)


_NOT_THERE = {
    12: "k_scale, of quantised keys",
    13: "v_scale, of quantised values",
    16: "query_seqlens, of padded queries",
}


def _refused(r: NodeReader) -> None:
    for k, what in _NOT_THERE.items():
        if r.optional(k) is not None:
            raise r.fail(f"input {k} ({what}) is not supported")
    for name in ("qk_output", "sliding_window_cache", "kv_cache_bit_width"):
        if r.attribute(name, 0):
            raise r.fail(f"attribute {name} is {r.attribute(name)}, and only 0 is supported")
    for name in ("k_quant_type", "v_quant_type"):
        if (kind := r.attribute(name, "NONE")) != "NONE":
            raise r.fail(f"attribute {name} is {kind}, and only NONE is supported")


@handles("GroupQueryAttention", 1, domain=MICROSOFT)
def group_query_attention(r: NodeReader) -> list[Value | None]:
    """Some heads of queries share one of keys; the cache may be longer than what is in it."""
    _refused(r)
    i = Integers(r)
    heads, shared = counted(r, "num_heads"), counted(r, "kv_num_heads")
    if heads % shared:
        raise r.fail(f"{heads} heads cannot share {shared}")
    q, k, v = _separate(r, heads, shared)
    old = r.optional(3), r.optional(4)
    if (old[0] is None) != (old[1] is None):
        raise r.fail("inputs 3 and 4, past keys and values, belong together")
    for x in old:
        if x is not None and (x.type.rank != 4 or x.type.dtype is not q.type.dtype):
            raise r.fail(f"{x!r} must be {q.type.dtype} [batch, kv_num_heads, sequence, size]")
    cache = _cache(r, i, r.input(0), old[0] is not None)
    q, k = _normalised(r, q, 14), _normalised(r, k, 15)
    q, k = _turned(r, i, cache, q, k)
    size = q.type.shape[3]
    group = as_expr(heads // shared)
    q = step(r, Reshape((cache.batch, cache.rows, as_expr(shared), group, size)), q)
    q = step(r, Transpose((0, 2, 3, 1, 4)), q)
    present = [
        cache.joined(i, past, heads_first(r, x)) for past, x in zip(old, (k, v), strict=True)
    ]
    keys, values = (_of_group(r, cache, x) for x in present)
    y, _ = attended(r, q, keys, values, _scoring(r, i, cache, shared, heads // shared))
    y = step(r, Transpose((0, 3, 1, 2, 4)), y)
    y = r.one(Reshape((cache.batch, cache.rows, normal(size * heads))), y)
    return [y, *present]


def _separate(r: NodeReader, heads: int, shared: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values [batch, rows, heads, size]; the queries may hold all three."""
    q, k, v = r.input(0), r.optional(1), r.optional(2)
    if (k is None) != (v is None):
        raise r.fail("inputs 1 and 2, keys and values, belong together")
    if k is None or v is None:
        whole = parted(r, q, heads + 2 * shared)
        parts = tuple(as_expr(c) for c in (heads, shared, shared))
        q, k, v = r.builder.apply(Split(parts, 2), whole, origin=r.label)
        return q, k, v
    return parted(r, q, heads), parted(r, k, shared), parted(r, v, shared)


def _normalised(r: NodeReader, x: Value, at: int) -> Value:
    """Each head by its root mean square, where there is a weight for that."""
    common = float(r.attribute("qk_norm_epsilon", 1e-6))
    name = "q_norm_epsilon" if at == 14 else "k_norm_epsilon"
    epsilon = float(r.attribute(name, common))
    weight = r.optional(at)
    return x if weight is None else step(r, RMSNorm(-1, epsilon), x, weight)


def _turned(r: NodeReader, i: Integers, cache: Cache, q: Value, k: Value) -> tuple[Value, Value]:
    """Queries and keys by their positions, if the node wants that.

    Of given positions only the first counts where nothing is cached.
    """
    interleaved, given = bool(r.attribute("rotary_interleaved", 0)), r.optional(9)
    if not r.attribute("do_rotary", 0):
        for k_ in (7, 8):
            r.optional(k_)  # tables that nobody asks
        return q, k
    cos, sin = tables(r, 7, 8)
    at = cache.positions(i)
    if given is not None:
        given = i.wide(given)
        if given.type.rank != 2:
            raise r.fail(f"the positions {given!r} are not [batch, sequence]")
        zeros = [i(ConstantOfShape((d,), n.const(0, I64))) for d in (cache.batch, cache.rows)]
        start = i(Gather(1), i(Gather(0), given, zeros[0]), zeros[1])
        at = i(Where(), cache.prompt, i(Add(), start, counting(r, cache.rows)), given)
    turn = [rotated(r, x, cos, sin, at, interleaved) for x in (q, k)]
    return turn[0], turn[1]


def _of_group(r: NodeReader, cache: Cache, x: Value) -> Value:
    """What there is of keys or values, [batch, heads, 1, total, size]."""
    batch, heads, held, size = x.type.shape
    if not same(held, cache.total):
        x = front(r, x, (batch, heads, cache.total, size))
    return step(r, Reshape((batch, heads, ONE, cache.total, size)), x)


def _scoring(r: NodeReader, i: Integers, cache: Cache, shared: int, group: int) -> Scoring:
    bias, sink = r.optional(10), r.optional(11)
    is_causal, window = bool(r.attribute("causal", 1)), int(r.attribute("local_window_size", -1))
    if not is_causal and window > 0:
        raise r.fail(f"local_window_size is {window}, and causal is 0")
    if bias is not None:
        bias = _by_group(r, bias, shared, group)
    if r.attribute("smooth_softmax", 0) and sink is None:
        sink = r.constant(np.zeros(shared * group, np.float32))
    if sink is not None:
        sink = step(r, Reshape((as_expr(shared), as_expr(group), ONE, ONE)), sink)
    return Scoring(
        float(r.attribute("scale", 0.0)),
        float(r.attribute("softcap", 0.0)),
        () if bias is None else (bias,),
        (cache.kept(i, is_causal, window),),
        sink,
    )


def _by_group(r: NodeReader, bias: Value, shared: int, group: int) -> Value:
    """What is added to scores [batch or 1, heads or 1, rows, total] with heads by groups."""
    if bias.type.rank != 4:
        raise r.fail(f"attention_bias {bias!r} must have four axes")
    batch, heads, rows, total = bias.type.shape
    alone = isinstance(heads, Const) and heads.value == 1
    parts = (ONE, ONE) if alone else (as_expr(shared), as_expr(group))
    return step(r, Reshape((batch, *parts, rows, total)), bias)
