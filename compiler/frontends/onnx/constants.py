"""ONNX's Constant."""

from __future__ import annotations

import numpy as np
import onnx

from planish.compiler.graph.ir import Value

from .reader import NodeReader, handles
from .shape import LATE
from .tensors import dense


@handles("Constant", 1, 9, 11, 12, 13, 19, *LATE)
def constant(r: NodeReader) -> Value:
    """Numbers since version 12, sparse tensors since 11; no text."""
    kinds = [
        k
        for k in ("value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints")
        if r.has(k)
    ]
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
    else:
        dtype = np.float32 if "float" in kind else np.int64
        array = np.array(r.attribute(kind), dtype)
    return r.constant(array, name)
