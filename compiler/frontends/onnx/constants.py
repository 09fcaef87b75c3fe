"""ONNX's Constant."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx

from planish.compiler.graph.ir import Value
from planish.compiler.texts import array_of

from .reader import NodeReader, handles
from .shape import LATE
from .tensors import dense

_KINDS: Final = (
    "value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints",
    "value_string", "value_strings",
)  # fmt: skip


@handles("Constant", 1, 9, 11, 12, 13, 19, *LATE)
def constant(r: NodeReader) -> Value:
    """Numbers and strings since version 12, sparse tensors since 11."""
    kinds = [k for k in _KINDS if r.has(k)]
    if len(kinds) != 1:
        raise r.fail(f"exactly one kind of number must be given, not {kinds}")
    (kind,) = kinds
    name = r.output_names[0] if r.output_names else r.label
    if kind == "value":
        array = r.tensor("value")
    elif kind == "sparse_value":
        sparse = r.attribute("sparse_value")
        if not isinstance(sparse, onnx.SparseTensorProto):
            raise r.fail("attribute sparse_value is no sparse tensor")
        array = dense(sparse, f"the constant {r.label}", r.folder)
    elif "string" in kind:
        strings = r.strings(kind)
        array = array_of(strings, () if kind == "value_string" else (len(strings),))
    else:
        dtype = np.float32 if "float" in kind else np.int64
        array = np.array(r.attribute(kind), dtype)
    return r.constant(array, name)
