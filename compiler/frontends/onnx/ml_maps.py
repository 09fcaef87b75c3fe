"""Operators of ai.onnx.ml that take maps, or give them."""

from __future__ import annotations

import numpy as np

from planish.compiler.dtypes import F32, I64, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Array, Value, unify
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.strings import FromString, ToString
from planish.compiler.ops.trees import Lookup
from planish.compiler.texts import array_of

from .elementwise import step
from .items import Maps
from .reader import NodeReader, handles
from .scores import ML

_CASTS = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": STRING}


@handles("ZipMap", 1, domain=ML)
def zip_map(r: NodeReader) -> Maps:
    """A map from the classes to the scores for each row; of a vector as for one row."""
    scores = r.input(0)
    keys = _keys(r, "classlabels")
    if scores.type.dtype is not F32 or scores.type.rank not in (1, 2):
        raise r.fail(f"the scores {scores!r} are no matrix of f32")
    if scores.type.rank == 1:
        scores = step(r, Reshape((as_expr(1), *scores.type.shape)), scores)
    unify(scores.type.shape[1], as_expr(len(keys)), "there must be a score for each class")
    return Maps(r.constant(keys, "keys"), scores)


def _keys(r: NodeReader, what: str, *kinds: str) -> Array:
    """Keys that are attributes: strings or integers."""
    texts, whole = kinds or (f"{what}_strings", f"{what}_int64s")
    names, numbers = r.strings(texts), r.attribute(whole) or []
    if bool(names) is bool(numbers):
        raise r.fail(f"either {texts} or {whole} must be given")
    return array_of(names, (len(names),)) if names else np.asarray(numbers, np.int64)


def _map(r: NodeReader) -> Maps:
    found = r.item(0)
    if not isinstance(found, Maps) or found.has_many:
        raise r.fail(f"input 0 is {found!r}, not a map")
    return found


def _looked_up(r: NodeReader, keys: Array, given: Maps) -> Value:
    """The values of keys; 0 or the empty string for one that is not there."""
    wanted, dtype = r.constant(keys, "keys"), given.values.type.dtype
    if wanted.type.dtype is not given.keys.type.dtype:
        raise r.fail(f"the keys are {given.keys.type.dtype}, those of the node {wanted.type.dtype}")
    if dtype is STRING:
        other = r.constant(np.array("", object), "nothing")
        return step(r, Lookup(), wanted, given.keys, given.values, other)
    return step(r, Lookup(n.const(0, dtype)), wanted, given.keys, given.values)


@handles("DictVectorizer", 1, domain=ML)
def dict_vectorizer(r: NodeReader) -> Value:
    """The values of a vocabulary's keys, in its order; other keys have no part in it."""
    return _looked_up(r, _keys(r, "", "string_vocabulary", "int64_vocabulary"), _map(r))


@handles("CastMap", 1, domain=ML)
def cast_map(r: NodeReader) -> Value:
    """A row of all values in the order of their keys, or of those of the keys from 0 on."""
    given = _map(r)
    form, to = r.attribute("map_form", "DENSE"), r.attribute("cast_to", "TO_FLOAT")
    most = int(r.attribute("max_map", 1))
    if form not in ("DENSE", "SPARSE") or to not in _CASTS or most < 0:
        raise r.fail(f"there is no map {form} of {most} values {to}")
    found = given.values
    if form == "SPARSE":
        found = _looked_up(r, np.arange(most), given)
    source, dtype = found.type.dtype, _CASTS[to]
    if dtype is not source:
        if source is STRING and form == "SPARSE":
            raise r.fail("there is no number where there is no string", hint="use the form DENSE")
        op = (
            FromString(dtype)
            if source is STRING
            else ToString()
            if dtype is STRING
            else Cast(dtype)
        )
        found = step(r, op, found)
    return r.one(Reshape((as_expr(1), *found.type.shape)), found)
