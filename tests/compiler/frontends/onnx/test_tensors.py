"""Tensors of every element type: packed bytes, typed fields, and files beside the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from planish.compiler.dtypes import BOOL, EVERY, STRING, DType
from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.tensors import DTYPES, decode
from planish.compiler.graph.ir import Array

SHAPES = [(), (1,), (2,), (3,), (5,), (2, 3), (7,), (0, 2)]


def bits(dtype: DType, *shape: int) -> Array:
    """Any values but NaN and infinities."""
    rng = np.random.default_rng(sum(shape))
    wide = rng.integers(0, 1 << min(dtype.bits, 16), shape)
    if dtype is BOOL:
        return np.asarray(wide != 0)
    if dtype.is_packed:
        return np.asarray(wide).astype(np.uint8).view(dtype.numpy)
    return np.asarray(np.asarray(wide % 8).astype(np.float32).astype(dtype.numpy))


@pytest.mark.parametrize("code", [c for c, t in DTYPES.items() if t is not STRING])
def test_every_element_type(code: int, tmp_path: Path) -> None:
    dtype = DTYPES[code]
    for shape in SHAPES:
        array = bits(dtype, *shape)
        tensor = numpy_helper.from_array(array, "x")
        assert tensor.data_type == code
        assert decode(tensor, "x").tobytes() == array.tobytes()
        if dtype.bits == 6:  # helper.make_tensor does not know their field
            typed = TensorProto(data_type=code, dims=shape, name="x")
            typed.int32_data.extend(array.view(np.uint8).ravel().tolist())
        else:
            typed = helper.make_tensor("x", code, shape, array.ravel())
        assert not typed.HasField("raw_data")
        assert decode(typed, "x").tobytes() == array.tobytes()
        if array.size:
            external_data_helper.set_external_data(tensor, "data.bin")
            (tmp_path / "data.bin").write_bytes(tensor.raw_data)
            tensor.ClearField("raw_data")
            assert decode(tensor, "x", tmp_path).tobytes() == array.tobytes()


def test_every_dtype_has_an_element_type() -> None:
    assert set(DTYPES.values()) == set(EVERY.values())


def test_packed_data_of_another_size() -> None:
    for name, size, wanted in (("INT4", 4, 3), ("UINT2", 1, 2), ("FLOAT6E2M3", 6, 4)):
        tensor = TensorProto(data_type=TensorProto.DataType.Value(name), dims=[5], name="x")
        tensor.raw_data = bytes(size)
        with pytest.raises(ImportModelError, match=f"has {size} bytes of data, .* takes {wanted}"):
            decode(tensor, "x")
    tensor = TensorProto(data_type=TensorProto.INT4, dims=[5], name="x", int32_data=[1] * 5)
    with pytest.raises(ImportModelError, match="has 5 numbers in int32_data, .* takes 3"):
        decode(tensor, "x")
    tensor = TensorProto(data_type=TensorProto.COMPLEX64, dims=[2], name="x", float_data=[1] * 2)
    with pytest.raises(ImportModelError, match="has 2 numbers in float_data, .* takes 4"):
        decode(tensor, "x")
