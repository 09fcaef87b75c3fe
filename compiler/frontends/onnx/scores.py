"""What the models of ai.onnx.ml do with their scores: transforms of them, and labels of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import Sigmoid
from planish.compiler.ops.compare import Greater
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Div, Mul, Sub
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.reduction import ArgMax, ReduceMax, ReduceSum
from planish.compiler.ops.shape import Concat
from planish.compiler.ops.softmax import Softmax
from planish.compiler.ops.unary import Abs, Exp, Neg, Probit

from .elementwise import step
from .reader import NodeReader

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transform_of(r: NodeReader) -> str:
    """The attribute post_transform, by name or by number."""
    given = r.attribute("post_transform", "NONE")
    if isinstance(given, int) and 0 <= given < len(TRANSFORMS):
        return TRANSFORMS[given]
    if given not in TRANSFORMS:
        raise r.fail(f"there is no post_transform {given}", hint="one of " + " ".join(TRANSFORMS))
    return str(given)


def transformed(r: NodeReader, scores: Value, name: str) -> Value:
    """Scores [n, classes] after a transform."""
    match name:
        case "SOFTMAX":
            return step(r, Softmax((1,)), scores)
        case "LOGISTIC":
            return step(r, Sigmoid(), scores)
        case "PROBIT":
            return step(r, Probit(), scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(r, scores)
        case _:
            return scores


def _softmax_zero(r: NodeReader, scores: Value) -> Value:
    """A softmax in which what is next to 0 stays there."""
    most = step(r, ReduceMax((1,)), scores)
    some = step(r, Greater(), step(r, Abs(), scores), number(r, 1e-7, scores))
    large = step(r, Exp(), step(r, Sub(), scores, most))
    small = step(r, Mul(), scores, step(r, Exp(), step(r, Neg(), most)))
    powers = step(r, Where(), some, large, small)
    total = step(r, ReduceSum((1,)), powers)
    none = step(r, Greater(), step(r, Abs(), total), number(r, 0, scores))
    return step(r, Where(), none, step(r, Div(), powers, total), number(r, 0.5, scores))


Labels: TypeAlias = "Sequence[int] | Sequence[str] | None"


def labels_of(r: NodeReader, integers: str, strings: str) -> tuple[Labels, int]:
    """The classes' numbers or names (None for places among them), and how many there are."""
    numbers, names = r.attribute(integers), r.strings(strings)
    if numbers:
        return [int(k) for k in numbers], len(numbers)
    return names or None, len(names)


def chosen(r: NodeReader, place: Value, labels: Labels) -> Value:
    """The label at each place."""
    if labels is None:
        return place
    kind = object if isinstance(labels[0], str) else np.int64
    table = r.constant(np.array(labels, kind), "labels")
    return step(r, Gather(0), table, place)


def best(r: NodeReader, scores: Value, labels: Labels) -> Value:
    """The label of the greatest score in each row."""
    return chosen(r, step(r, ArgMax(1, False), scores), labels)


def beside(r: NodeReader, *columns: Value) -> Value:
    """Columns [n, 1] as one matrix."""
    return step(r, Concat(1), *columns)


def number(r: NodeReader, value: float, like: Value) -> Value:
    """A constant of the dtype of another value."""
    return r.constant(np.array(value, like.type.dtype.numpy))


__all__ = [
    "ML", "Labels", "beside", "best", "chosen", "labels_of", "number", "transform_of",
    "transformed",
]  # fmt: skip
