"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from planish.compiler.dtypes import F32, F64, I64
from planish.compiler.expr.nodes import as_expr
from planish.compiler.graph.ir import Array, Value
from planish.compiler.ops.activations import Clip, Sigmoid, Tanh
from planish.compiler.ops.compare import Greater, GreaterOrEqual
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, FullLike, Mul, Sub
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.power import Pow
from planish.compiler.ops.reduction import ArgMax, ReduceMax, ReduceSumSquare
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.unary import Exp, Neg

from .elementwise import step
from .reader import NodeReader, handles
from .scores import (
    ML,
    Labels,
    beside,
    best,
    chosen,
    labels_of,
    number,
    transform_of,
    transformed,
)


def _input(r: NodeReader) -> Value:
    """The observations [n, features], as floats; a vector is one of them."""
    x = r.input(0)
    if x.type.rank == 1:
        x = step(r, Reshape((as_expr(1), *x.type.shape)), x)
    if x.type.rank != 2:
        raise r.fail(f"the observations {x!r} are no matrix")
    return x if x.type.dtype in (F32, F64) else step(r, Cast(F32), x)


def _floats(r: NodeReader, name: str, like: Value) -> Array:
    return np.asarray(r.attribute(name) or [], like.type.dtype.numpy)


def _rows(r: NodeReader, values: Array, rows: int, what: str) -> Array:
    """A list as a matrix of so many rows."""
    if rows < 1 or not len(values) or len(values) % rows:
        raise r.fail(f"{len(values)} {what} are no {rows} rows")
    return values.reshape(rows, -1)


def _product(r: NodeReader, x: Value, rows: Array) -> Value:
    """x times the transposed rows."""
    return step(r, MatMul(), x, r.constant(np.ascontiguousarray(rows.T), "weights"))


def _linear(r: NodeReader, x: Value, count: int) -> Value:
    """x times coefficients, plus intercepts: [n, count]."""
    y = _product(r, x, _rows(r, _floats(r, "coefficients", x), count, "coefficients"))
    intercepts = _floats(r, "intercepts", x)
    if not len(intercepts):
        return y
    if len(intercepts) != count:
        raise r.fail(f"{len(intercepts)} intercepts for {count} results")
    return step(r, Add(), y, r.constant(intercepts, "intercepts"))


@handles("LinearRegressor", 1, domain=ML)
def linear_regressor(r: NodeReader) -> Value:
    """A row of coefficients for each target."""
    y = _linear(r, _input(r), int(r.attribute("targets", 1)))
    return r.one(Cast(F32), transformed(r, y, transform_of(r)))


@handles("LinearClassifier", 1, domain=ML)
def linear_classifier(r: NodeReader) -> list[Value]:
    """A row of coefficients for each class, or one for two classes."""
    r.attribute("multi_class")  # has no part in the scores
    x = _input(r)
    labels, count = labels_of(r, "classlabels_ints", "classlabels_strings")
    rows = max(1, len(_floats(r, "intercepts", x)) or count)
    scores = _linear(r, x, rows)
    transform = transform_of(r)
    if rows == 1 and count == 2:
        scores = beside(r, step(r, Neg(), scores), scores)
        rows = 2
    shown = step(r, Cast(F32), transformed(r, scores, transform))
    if rows > 1:
        return [best(r, scores, labels), shown]
    threshold = 0.0 if transform == "NONE" else 0.5
    over = step(r, GreaterOrEqual(), shown, number(r, threshold, shown))
    if labels is not None and isinstance(labels[0], str):
        raise r.fail("one class is called by a string, and nothing says what the other one is")
    label = r.constant(np.array(1 if labels is None else labels[0], np.int64))
    other = r.constant(np.array(0, np.int64))
    place = step(r, Where(), over, label, other)
    return [step(r, Reshape(x.type.shape[:1]), place), shown]


# ---------------------------------------------------------------------------- support vectors


def _kernel(r: NodeReader, x: Value, vectors: Array, kind: str) -> Value:
    """The kernel of each row with each vector: [n, vectors]."""
    gamma, coef0, degree = (*(float(v) for v in r.attribute("kernel_params") or ()), 0, 0, 0)[:3]
    if kind == "RBF":
        rows, width = x.type.shape
        column = step(r, Reshape((rows, as_expr(1), width)), x)
        apart = step(r, Sub(), column, r.constant(vectors, "vectors"))
        distance = step(r, ReduceSumSquare((2,), False), apart)
        return step(r, Exp(), step(r, Mul(), distance, number(r, -gamma, x)))
    y = _product(r, x, vectors)
    if kind == "LINEAR":
        return y
    y = step(r, Add(), step(r, Mul(), y, number(r, gamma, x)), number(r, coef0, x))
    if kind == "POLY":
        return step(r, Pow(), y, number(r, degree, x))
    if kind == "SIGMOID":
        return step(r, Tanh(), y)
    raise r.fail(f"there is no kernel {kind}", hint="one of LINEAR POLY RBF SIGMOID")


@handles("SVMRegressor", 1, domain=ML)
def svm_regressor(r: NodeReader) -> Value:
    """Of support vectors, or of one row of coefficients; an outlier test if one_class is set."""
    x = _input(r)
    count = int(r.attribute("n_supports", 0))
    kind = r.attribute("kernel_type", "LINEAR")
    vectors, weights = _floats(r, "support_vectors", x), _floats(r, "coefficients", x)
    if count > 0:
        x_kernel = _kernel(r, x, _rows(r, vectors, count, "support vectors"), kind)
    else:
        r.attribute("kernel_params")
        x_kernel = x
    rho = _floats(r, "rho", x)
    if len(rho) < 1:
        raise r.fail("there is no rho")
    y = _product(r, x_kernel, _rows(r, weights, 1, "coefficients"))
    y = step(r, Add(), y, number(r, float(rho[0]), y))
    if r.attribute("one_class", 0):
        inside = step(r, Greater(), y, number(r, 0.0, y))
        y = step(r, Where(), inside, number(r, 1.0, y), number(r, -1.0, y))
    return r.one(Cast(F32), transformed(r, y, transform_of(r)))


@handles("SVMClassifier", 1, domain=ML)
def svm_classifier(r: NodeReader) -> list[Value]:
    """Of support vectors by pairs of classes, or of a row of coefficients for each class."""
    x = _input(r)
    labels, count = labels_of(r, "classlabels_ints", "classlabels_strings")
    count = max(1, count)
    kind = r.attribute("kernel_type", "LINEAR")
    sizes = [int(k) for k in r.attribute("vectors_per_class") or []]
    rho, weights = _floats(r, "rho", x), _floats(r, "coefficients", x)
    chances = [_floats(r, name, x) for name in ("prob_a", "prob_b")]
    vectors = _floats(r, "support_vectors", x)
    transform = transform_of(r)
    if sum(sizes) == 0:
        r.attribute("kernel_params")
        return _by_class(r, x, _rows(r, weights, count, "coefficients"), rho, labels, transform)
    pairs = list(combinations(range(count), 2))
    total = sum(sizes)
    if len(sizes) != count or len(rho) != len(pairs) or not pairs:
        raise r.fail(f"{len(sizes)} classes of vectors and {len(rho)} rho for {count} classes")
    table = _rows(r, weights, count - 1, "coefficients")
    if table.shape[1] != total:
        raise r.fail(f"{len(weights)} coefficients for {total} vectors")
    values = _kernel(r, x, _rows(r, vectors, total, "support vectors"), kind)
    margins = step(r, Add(), _product(r, values, _pairs(table, sizes)), r.constant(rho, "rho"))
    won = step(r, Cast(x.type.dtype), step(r, Greater(), margins, number(r, 0.0, x)))
    # A pair is a vote for its first class if the margin is positive, else for its second.
    first, second = (
        np.array([[float(p[k] == c) for p in pairs] for c in range(count)], x.type.dtype.numpy)
        for k in (0, 1)
    )
    votes = step(r, Add(), _product(r, won, first - second), r.constant(second.sum(1), "votes"))
    place = step(r, ArgMax(1, False), votes)
    if len(chances[0]):
        scores = _probabilities(r, margins, chances, count)
        return [chosen(r, place, labels), step(r, Cast(F32), transformed(r, scores, transform))]
    if count == 2:
        if (weights >= 0).all():  # ONNX Runtime's way with them
            place = step(r, FullLike(1, I64), place)
        scores = beside(r, step(r, Neg(), margins), margins)
        return [chosen(r, place, labels), step(r, Cast(F32), transformed(r, scores, transform))]
    return [chosen(r, place, labels), step(r, Cast(F32), transformed(r, margins, transform))]


def _pairs(table: Array, sizes: Sequence[int]) -> Array:
    """For each pair of classes, what the kernel of each vector counts: [pairs, vectors]."""
    ends = np.cumsum(sizes)
    starts = ends - np.asarray(sizes)
    out = []
    for a, b in combinations(range(len(sizes)), 2):
        row = np.zeros(table.shape[1], table.dtype)
        row[starts[a] : ends[a]] = table[b - 1, starts[a] : ends[a]]
        row[starts[b] : ends[b]] = table[a, starts[b] : ends[b]]
        out.append(row)
    return np.array(out)


def _by_class(
    r: NodeReader,
    x: Value,
    rows: Array,
    rho: Array,
    labels: Labels,
    transform: str,
) -> list[Value]:
    """Scores of a row of coefficients for each class, and the label of the greatest."""
    if len(rho) < 1:
        raise r.fail("there is no rho")
    scores = _product(r, x, rows)
    scores = step(r, Add(), scores, number(r, float(rho[0]), scores))
    if len(rows) == 1:
        over = step(r, Cast(I64), step(r, Greater(), scores, number(r, 0.0, scores)))
        shown = transformed(r, scores, transform) if transform == "PROBIT" else scores
        return [step(r, Reshape(x.type.shape[:1]), over), step(r, Cast(F32), shown)]
    place = step(r, ArgMax(1, False), scores)
    if len(rows) == 2 and (rows >= 0).all():  # ONNX Runtime's way with them
        most = step(r, ReduceMax((1,), False), scores)
        sure = step(r, GreaterOrEqual(), most, number(r, 0.5, scores))
        place = step(r, Where(), sure, r.constant(np.array(1, np.int64)), place)
    return [chosen(r, place, labels), step(r, Cast(F32), transformed(r, scores, transform))]


def _probabilities(r: NodeReader, margins: Value, chances: Sequence[Array], count: int) -> Value:
    """The probabilities of classes by those of pairs: 1 / (1 + e^(a margin + b))."""
    a, b = chances
    pairs = count * (count - 1) // 2
    if len(a) != pairs or len(b) != pairs:
        raise r.fail(f"{len(a)} prob_a and {len(b)} prob_b for {count} classes")
    slope, shift = r.constant(-a, "prob_a"), r.constant(-b, "prob_b")
    pair = step(r, Sigmoid(), step(r, Add(), step(r, Mul(), margins, slope), shift))
    pair = step(r, Clip(1e-7, 1 - 1e-7), pair)
    if count > 2:
        raise r.fail("probabilities (prob_a, prob_b) of more than two classes are not supported")
    return beside(r, pair, step(r, Sub(), number(r, 1.0, pair), pair))
