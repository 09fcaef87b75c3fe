"""Operators of ai.onnx.ml on features: scaling, encoding, choosing, filling in."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from planish.compiler.dtypes import F32, F64, I32, I64, STRING, DType, from_numpy
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, as_expr
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.compare import And, Equal, Greater, IsNaN
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Div, Mul, Sub
from planish.compiler.ops.indexing import Gather, Slice
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.reduction import ReduceL1, ReduceMax, ReduceSumSquare
from planish.compiler.ops.shape import Concat, Reshape, sizes
from planish.compiler.ops.trees import Lookup
from planish.compiler.ops.unary import Sqrt
from planish.compiler.texts import array_of

from .elementwise import step
from .reader import NodeReader, handles
from .scores import ML, number

Default: TypeAlias = "float | str"


def _numbers(r: NodeReader, x: Value) -> Value:
    if x.type.dtype not in (F32, F64, I32, I64):
        raise r.fail(f"is not defined for {x!r}")
    return x


@handles("Binarizer", 1, domain=ML)
def binarizer(r: NodeReader) -> Value:
    """1 above the threshold, else 0."""
    x = _numbers(r, r.input(0))
    dtype = x.type.dtype
    threshold = float(r.attribute("threshold", 0.0))
    wide = x if dtype.is_float else step(r, Cast(F64), x)
    above = step(r, Greater(), wide, number(r, threshold, wide))
    return r.one(Cast(dtype), above)


@handles("Scaler", 1, domain=ML)
def scaler(r: NodeReader) -> Value:
    """(x - offset) * scale, of one number or one for each feature."""
    x = step(r, Cast(F32), _numbers(r, r.input(0)))
    parts = []
    for name, default in (("offset", 0.0), ("scale", 1.0)):
        given = np.asarray(r.attribute(name) or [default], np.float32)
        if len(given) > 1 and (x.type.rank == 0 or n.eq(x.type.shape[-1], len(given)) is n.FALSE):
            raise r.fail(f"{len(given)} numbers of {name} for {x!r}")
        parts.append(r.constant(given if len(given) > 1 else given.reshape(()), name))
    offset, scale = parts
    return r.one(Mul(), step(r, Sub(), x, offset), scale)


@handles("Normalizer", 1, domain=ML)
def normalizer(r: NodeReader) -> Value:
    """Rows over their greatest number, the sum of sizes or the root of the sum of squares."""
    x = step(r, Cast(F32), _numbers(r, r.input(0)))
    if x.type.rank not in (1, 2):
        raise r.fail(f"{x!r} is neither a row nor a matrix")
    norm = r.attribute("norm", "MAX")
    axes = (x.type.rank - 1,)
    match norm:
        case "MAX":
            size = step(r, ReduceMax(axes), x)
        case "L1":
            size = step(r, ReduceL1(axes), x)
        case "L2":
            size = step(r, Sqrt(), step(r, ReduceSumSquare(axes), x))
        case _:
            raise r.fail(f"there is no norm {norm}", hint="one of MAX L1 L2")
    none = step(r, Equal(), size, number(r, 0.0, size))
    return r.one(Div(), x, step(r, Where(), none, number(r, 1.0, size), size))


@handles("Imputer", 1, domain=ML)
def imputer(r: NodeReader) -> Value:
    """A value, or NaN, replaced by one of each feature."""
    x = _numbers(r, r.input(0))
    dtype = x.type.dtype
    kind = "float" if dtype.is_float else "int64"
    values = np.asarray(r.attribute(f"imputed_value_{kind}s") or [], dtype.numpy)
    old = r.attribute(f"replaced_value_{kind}", 0)
    if not len(values) or (len(values) > 1 and x.type.rank not in (1, 2)):
        raise r.fail(f"{len(values)} values for {x!r}")
    if len(values) > 1 and n.eq(x.type.shape[-1], len(values)) is n.FALSE:
        raise r.fail(f"{len(values)} values for {x!r}")
    new = r.constant(values if len(values) > 1 else values.reshape(()), "imputed")
    if dtype.is_float and np.isnan(old):
        missing = step(r, IsNaN(), x)
    else:
        missing = step(r, Equal(), x, number(r, old, x))
    return r.one(Where(), missing, new, x)


@handles("ArrayFeatureExtractor", 1, domain=ML)
def array_feature_extractor(r: NodeReader) -> Value:
    """Elements along the last axis; of a vector, as a row."""
    x, index = r.input(0), r.input(1)
    if x.type.rank == 0:
        raise r.fail(f"{x!r} has no axis")
    count = n.product(index.type.shape)
    found = step(r, Gather(x.type.rank - 1), x, step(r, Reshape((count,)), index))
    outer = x.type.shape[:-1] or (as_expr(1),)
    return r.one(Reshape((*outer, count)), found)


@handles("FeatureVectorizer", 1, domain=ML)
def feature_vectorizer(r: NodeReader) -> Value:
    """Inputs side by side, each cut or padded to its number of columns."""
    widths = [int(k) for k in r.attribute("inputdimensions") or []]
    parts = []
    values = r.inputs()
    if len(widths) not in (0, len(values)):
        raise r.fail(f"{len(widths)} inputdimensions for {len(values)} inputs")
    for k, value in enumerate(values):
        x = step(r, Cast(F32), _numbers(r, value))
        if x.type.rank == 1:
            x = step(r, Reshape((as_expr(1), *x.type.shape)), x)
        if x.type.rank != 2:
            raise r.fail(f"{value!r} is neither a row nor a matrix")
        parts.append(_of_width(r, x, widths[k]) if widths else x)
    return r.one(Concat(1), *parts)


def _of_width(r: NodeReader, x: Value, width: int) -> Value:
    rows, columns = x.type.shape
    if n.eq(columns, width) is n.TRUE:
        return x
    if not isinstance(columns, Const) or width < 0:
        raise r.fail(f"{x!r} must have {width} columns")
    if columns.value > width:
        return step(r, Slice(sizes(0, 0), (1, 1), (rows, as_expr(width))), x)
    return step(r, Pad(sizes(0, 0), sizes(0, width - int(columns.value))), x)


@handles("OneHotEncoder", 1, domain=ML)
def one_hot_encoder(r: NodeReader) -> Value:
    """A row for each element, with 1 for its category."""
    x = r.input(0)
    if not r.attribute("zeros", 1):
        raise r.fail("zeros is 0: an unknown category would have to be an error")
    names, numbers = r.strings("cats_strings"), r.attribute("cats_int64s") or []
    if x.type.dtype is STRING:
        whole, categories = x, array_of(names, (len(names),))
    else:
        whole, categories = step(r, Cast(I64), _numbers(r, x)), np.asarray(numbers, np.int64)
    if not len(categories):
        raise r.fail(f"there are no categories for {x!r}")
    column = step(r, Reshape((*x.type.shape, as_expr(1))), whole)
    table = r.constant(categories, "categories")
    same = step(r, Equal(), column, table)
    places = {c: k for k, c in enumerate(categories.tolist())}
    if len(places) < len(categories):  # the last place of a category counts
        last = np.array([places[c] == k for k, c in enumerate(categories.tolist())])
        same = step(r, And(), same, r.constant(last, "last"))
    return r.one(Cast(F32), same)


def _side(r: NodeReader, what: str) -> Array:
    """The keys, or the values, of an encoder."""
    if r.has(f"{what}_tensor"):
        found = r.tensor(f"{what}_tensor")
        if found is None or found.ndim != 1:
            raise r.fail(f"attribute {what}_tensor is no vector")
        return found
    kinds: tuple[tuple[str, Any], ...] = (("int64s", np.int64), ("floats", np.float32))
    for name, dtype in kinds:
        if r.has(f"{what}_{name}"):
            return np.asarray(r.attribute(f"{what}_{name}"), dtype)
    if r.has(f"{what}_strings"):
        names = r.strings(f"{what}_strings")
        return array_of(names, (len(names),))
    raise r.fail(f"there are no {what}")


@handles("LabelEncoder", 1, 2, 4, domain=ML)
def label_encoder(r: NodeReader) -> Value:
    """Tensors since version 4; version 1 is strings from their places, or places from strings."""
    x = r.input(0)
    if r.version == 1:
        classes = r.strings("classes_strings")
        return _looked_up(r, x, array_of(classes, (len(classes),)), np.arange(len(classes)))
    keys, values = _side(r, "keys"), _side(r, "values")
    if len(keys) != len(values):
        raise r.fail(f"{len(keys)} keys and {len(values)} values")
    default = _default(r, from_numpy(values.dtype))
    if r.version >= 4 and (given := r.tensor("default_tensor")) is not None:
        if given.size != 1:
            raise r.fail("default_tensor is not one element")
        default = given.reshape(()).item()
    if r.version >= 4:  # a repeated key: the last one counts; before, the first
        keys, values = keys[::-1].copy(), values[::-1].copy()
    return _lookup(r, x, keys, values, default)


@handles("CategoryMapper", 1, domain=ML)
def category_mapper(r: NodeReader) -> Value:
    """Strings to integers, or integers to strings."""
    names = r.strings("cats_strings")
    numbers = np.asarray(r.attribute("cats_int64s") or [], np.int64)
    if len(names) != len(numbers):
        raise r.fail(f"{len(names)} strings and {len(numbers)} integers")
    return _looked_up(r, r.input(0), array_of(names, (len(names),)), numbers)


def _looked_up(r: NodeReader, x: Value, names: Array, numbers: Array) -> Value:
    """The numbers of names, or the names of numbers: the last of what is there twice."""
    names, numbers = names[::-1].copy(), numbers[::-1].copy()
    keys, values = (names, numbers) if x.type.dtype is STRING else (numbers, names)
    return _lookup(r, x, keys, values, _default(r, from_numpy(values.dtype)))


def _default(r: NodeReader, dtype: DType) -> Default:
    """What stands for a key that is not known."""
    whole, real = int(r.attribute("default_int64", -1)), float(r.attribute("default_float", -0.0))
    text = (r.strings("default_string") or ["_Unused"])[0]
    return text if dtype is STRING else real if dtype.is_float else whole


def _lookup(r: NodeReader, x: Value, keys: Array, values: Array, default: Default) -> Value:
    tables = r.constant(keys, "keys"), r.constant(values, "values")
    if isinstance(default, str):
        other = r.constant(np.array(default, object), "default")
        return r.one(Lookup(), x, *tables, other)
    return r.one(Lookup(n.const(default, from_numpy(values.dtype))), x, *tables)
