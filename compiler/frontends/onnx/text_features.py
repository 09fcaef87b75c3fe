"""ONNX's TfIdfVectorizer, of words that are strings or integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from planish.compiler.dtypes import F32, STRING, DType
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.compare import Greater
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Mul
from planish.compiler.ops.ngrams import NgramCounts
from planish.compiler.ops.shape import Reshape

from .elementwise import step
from .reader import NodeReader, handles

_MODES = ("TF", "IDF", "TFIDF")


@handles("TfIdfVectorizer", 9)
def tfidf_vectorizer(r: NodeReader) -> Value:
    """Counts, whether there is one, or counts by weight."""
    x = r.input(0)
    mode = r.required("mode")
    if mode not in _MODES:
        raise r.fail(f"there is no mode {mode}", hint="one of " + " ".join(_MODES))
    grams, lengths, weights = _tables(r, x.type.dtype)
    rows = x if x.type.rank == 2 else step(r, Reshape((as_expr(1), *x.type.shape)), x)
    if rows.type.rank != 2:
        raise r.fail(f"{x!r} is neither a row nor a matrix of words")
    op = NgramCounts(int(r.required("max_skip_count")))
    counts = step(r, op, rows, r.constant(grams, "grams"), r.constant(lengths))
    if mode == "IDF":
        zero = r.constant(np.array(0))
        found = step(r, Cast(F32), step(r, Greater(), counts, zero))
    else:
        found = step(r, Cast(F32), counts)
    if mode != "TF":
        found = step(r, Mul(), found, r.constant(weights, "weights"))
    return found if x.type.rank == 2 else r.one(Reshape(found.type.shape[1:]), found)


def _tables(r: NodeReader, dtype: DType) -> tuple[Array, Array, Array]:
    """For each output its n-gram, the length of that (0 for none) and its weight."""
    pool: list[Any] = (
        r.strings("pool_strings")
        if dtype is STRING
        else [int(w) for w in r.attribute("pool_int64s") or []]
    )
    starts = [*(int(c) for c in r.required("ngram_counts")), len(pool)]
    places = [int(p) for p in r.required("ngram_indexes")]
    shortest, longest = int(r.required("min_gram_length")), int(r.required("max_gram_length"))
    known = r.attribute("weights")
    found: list[tuple[Any, ...]] = []
    for size, (start, end) in enumerate(zip(starts, starts[1:], strict=False), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % size:
            raise r.fail(f"ngram_counts {starts[:-1]} do not divide {len(pool)} words")
        found += [tuple(pool[k : k + size]) for k in range(start, end, size)]
    if len(found) != len(places) or not places or not 0 <= min(places) <= max(places) < 1 << 24:
        raise r.fail(f"{len(places)} ngram_indexes for {len(found)} n-grams")
    if len(set(places)) != len(places):
        raise r.fail("ngram_indexes name a place twice")
    if known is not None and len(known) != len(places):
        raise r.fail(f"{len(known)} weights for {len(places)} n-grams")
    count = max(places) + 1
    nothing: Any = "" if dtype is STRING else 0
    grams = np.full((count, max(map(len, found))), nothing, dtype.numpy)
    lengths, weights = np.zeros(count, np.int64), np.ones(count, np.float32)
    for k, (gram, place) in enumerate(zip(found, places, strict=True)):
        weights[place] = 1.0 if known is None else known[k]
        if shortest <= len(gram) <= longest:
            grams[place, : len(gram)], lengths[place] = gram, len(gram)
    return grams, lengths, weights
