"""Handlers of shape operators over versions and attributes, against other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_harness import check, compare, expected, model_of, node

from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.ops.sampling import bools, f32, ints

i64 = lambda *x: np.array(x, np.int64)  # noqa: E731

# Opsets in which the operators' forms begin, from 7 on; every test takes those that apply.
ALL_OPSETS = (7, 9, 11, 12, 13, 14, 18, 19, 21, 23)


def since(first: int) -> list[int]:
    return [v for v in ALL_OPSETS if v >= first]


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_transpose(opset: int) -> None:
    check(node("Transpose", "x"), {"x": f32(2, 3, 4)}, opset=opset)
    check(node("Transpose", "x", perm=[1, 2, 0]), {"x": f32(2, 3, 4)}, opset=opset)


@pytest.mark.parametrize("opset", ALL_OPSETS)
@pytest.mark.parametrize("shape", [(6, 4), (-1, 4), (0, -1), (2, 0, -1), (24,), (2, 12, 1), (4, 6)])
def test_reshape(opset: int, shape: tuple[int, ...]) -> None:
    check(node("Reshape", "x s"), {"x": f32(2, 3, 4)}, constants={"s": i64(*shape)}, opset=opset)


def test_reshape_allowzero() -> None:
    for shape in ((0, 4), (3, 0), (0,)):
        check(
            node("Reshape", "x s", allowzero=1),
            {"x": f32(0, 3)},
            constants={"s": i64(*shape)},
            opset=18,
            symbolic=False,
        )


def test_reshape_refuses() -> None:
    x = {"x": f32(2, 3)}
    for shape, message in (
        ((-1, -1), "two dimensions"),
        ((4, -1), "does not fit"),
        ((4,), "has 6 elements, the new shape has 4"),
        ((2, 3, 0), "dimension 2 is copied"),
        ((-2, 3), "a dimension of the shape is -2"),
        ((3, 2, 2), "has 6 elements"),
    ):
        model = model_of(node("Reshape", "x s"), x, constants={"s": i64(*shape)})
        with pytest.raises(ImportModelError, match=message):
            import_model(model)


@pytest.mark.parametrize("opset", ALL_OPSETS)
@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3, -1, -3])
def test_flatten(opset: int, axis: int | None) -> None:
    given = {} if axis is None else {"axis": axis}
    if axis is not None and axis < 0 and opset < 11:
        with pytest.raises(ImportModelError, match="out of range"):
            import_model(model_of(node("Flatten", "x", **given), {"x": f32(2, 3, 4)}, opset=opset))
        return
    check(node("Flatten", "x", **given), {"x": f32(2, 3, 4)}, opset=opset)


@pytest.mark.parametrize("opset", ALL_OPSETS)
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (-1,), None])
def test_squeeze(opset: int, axes: tuple[int, ...] | None) -> None:
    if axes is not None and min(axes) < 0 and opset < 11:
        axes = tuple(a % 4 for a in axes)
    x = {"x": f32(1, 3, 1, 1)}
    static_only = {"symbolic": axes is not None}
    if axes is None:
        check(node("Squeeze", "x"), x, opset=opset, **static_only)
    elif opset < 13:
        check(node("Squeeze", "x", axes=axes), x, opset=opset)
    else:
        check(node("Squeeze", "x a"), x, constants={"a": i64(*axes)}, opset=opset)


@pytest.mark.parametrize("opset", ALL_OPSETS)
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 3), (3, 1), (-1,)])
def test_unsqueeze(opset: int, axes: tuple[int, ...]) -> None:
    if min(axes) < 0 and opset < 11:
        axes = tuple(a % 3 for a in axes)
    x = {"x": f32(2, 3)}
    if opset < 13:
        check(node("Unsqueeze", "x", axes=axes), x, opset=opset)
    else:
        check(node("Unsqueeze", "x a"), x, constants={"a": i64(*axes)}, opset=opset)


@pytest.mark.parametrize("opset", ALL_OPSETS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(opset: int, axis: int) -> None:
    if axis < 0 and opset < 11:
        axis %= 2
    x = {"x": f32(2, 3), "y": f32(2, 3, low=0), "z": f32(2, 3, low=1)}
    check(node("Concat", "x y z", axis=axis), x, opset=opset)
    check(node("Concat", "x", axis=axis), {"x": f32(2, 3)}, opset=opset)


def test_concat_refuses() -> None:
    for inputs, axis, message in (
        ({"x": f32(2, 3), "y": f32(3, 3)}, 1, "dimension 0 differs"),
        ({"x": f32(2, 3), "y": f32(3)}, 0, "inputs are"),
        ({"x": f32(2), "y": ints(2)}, 0, "must be f32 like input 0"),
        ({"x": f32(2), "y": f32(2)}, 1, "axis 1 is out of range"),
    ):
        with pytest.raises(ImportModelError, match=message):
            import_model(model_of(node("Concat", "x y", axis=axis), inputs))


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_split(opset: int) -> None:
    x = {"x": f32(6, 4)}
    equal = {"num_outputs": 2} if opset >= 18 else {}
    check(node("Split", "x", "a b", axis=1, **equal), x, opset=opset)
    if opset < 13:
        check(node("Split", "x", "a b c", split=[1, 2, 3]), x, opset=opset)
    else:
        sizes = {"s": i64(1, 2, 3)}
        check(node("Split", "x s", "a b c", axis=-2), x, constants=sizes, opset=opset)
    if opset >= 18:
        check(node("Split", "x", "a b c d", num_outputs=4), x, opset=opset)


def test_split_refuses() -> None:
    for attributes, sizes, message in (
        ({"num_outputs": 3}, None, "2 outputs and 3 parts"),
        ({}, i64(1, 2), "sum up"),
        ({}, i64(-1, 7), "a part has size -1"),
        ({"num_outputs": 2}, i64(3, 3), "both"),
        ({}, i64(6), "2 outputs and 1 parts"),
    ):
        names = "x" if sizes is None else "x s"
        model = model_of(
            node("Split", names, "a b", **attributes),
            {"x": f32(6, 4)},
            constants={} if sizes is None else {"s": sizes},
        )
        with pytest.raises(ImportModelError, match=message):
            import_model(model)


@pytest.mark.parametrize("opset", since(9))
@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1), (1,), (5, 1, 1, 1)])
def test_expand(opset: int, shape: tuple[int, ...]) -> None:
    check(
        node("Expand", "x s"),
        {"x": f32(3, 1)},
        constants={"s": i64(*shape)},
        opset=opset,
        symbolic=False,
    )


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_tile(opset: int) -> None:
    for repeats in ((1, 1), (2, 3), (0, 2), (4, 1)):
        check(node("Tile", "x r"), {"x": f32(2, 3)}, constants={"r": i64(*repeats)}, opset=opset)


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_shape_and_size(opset: int) -> None:
    check(node("Shape", "x"), {"x": f32(2, 3, 4)}, opset=opset)
    check(node("Shape", "x"), {"x": f32()}, opset=opset)
    check(node("Size", "x"), {"x": f32(2, 3, 4)}, opset=opset)


@pytest.mark.parametrize("start", [None, 0, 1, -1, -9, 5])
@pytest.mark.parametrize("end", [None, 0, 2, -1, -9, 7])
def test_part_of_shape(start: int | None, end: int | None) -> None:
    given = {k: v for k, v in (("start", start), ("end", end)) if v is not None}
    check(node("Shape", "x", **given), {"x": f32(2, 3, 4)}, opset=15)


@pytest.mark.parametrize("opset", since(9))
def test_where(opset: int) -> None:
    check(node("Where", "c x y"), {"c": bools(2, 3), "x": f32(2, 3), "y": f32(2, 3)}, opset=opset)
    x = {"c": bools(2, 1, 1), "x": f32(3, 1), "y": f32(4)}
    check(node("Where", "c x y"), x, opset=opset, symbolic=False)


KINDS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}


@pytest.mark.parametrize("opset", [7, 9, 13, 19, 23])
@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("to", KINDS)
def test_cast(opset: int, source: str, to: str) -> None:
    x = f32(3, 5, low=0, high=100).astype(source)
    check(node("Cast", "x", to=KINDS[to]), {"x": x}, opset=opset)


def test_cast_wraps_integers() -> None:
    x = {"x": np.array([-1, 300, 2**31, -(2**40) + 7], np.int64)}
    for to, kind in (("uint8", TensorProto.UINT8), ("int32", TensorProto.INT32)):
        check(node("Cast", "x", to=kind), x, want=[x["x"].astype(to)])


@pytest.mark.parametrize("opset", [15, 19, 21])
def test_cast_like(opset: int) -> None:
    check(node("CastLike", "x y"), {"x": f32(3), "y": ints(2)}, opset=opset)


def test_cast_of_numbers_is_known() -> None:
    nodes = [
        node("CastLike", "zero like", "start"),
        node("CastLike", "one like", "step"),
        node("Range", "start like step", "y"),
    ]
    graph = check(
        nodes,
        {},
        constants={
            "zero": np.array(0, np.float32),
            "one": np.array(1, np.float32),
            "like": np.array(4),
        },
        want=[np.arange(4)],
    )
    assert [n.op.name for n in graph.nodes] == ["range"]


@pytest.mark.parametrize("opset", since(9))
def test_constant_of_shape(opset: int) -> None:
    shape = {"s": i64(2, 3)}
    check(node("ConstantOfShape", "s"), {}, constants=shape, opset=opset)
    for value in (np.array([7], np.int64), np.array([0.5], np.float16), np.array([True])):
        proto = numpy_helper.from_array(value)
        check(node("ConstantOfShape", "s", value=proto), {}, constants=shape, opset=opset)


@pytest.mark.parametrize(
    "limits",
    [(0, 5, 1), (2, 11, 3), (10, 0, -3), (0, 0, 1), (5, 0, 1), (0.0, 1.0, 0.25), (3.0, -1.0, -0.7)],
)
def test_range(limits: tuple[float, float, float]) -> None:
    dtypes = ("float32", "float64") if isinstance(limits[0], float) else ("int32", "int64", "int16")
    for dtype in dtypes:
        constants = {k: np.array(v, dtype) for k, v in zip("abc", limits, strict=True)}
        check(node("Range", "a b c"), {}, constants=constants, opset=11)


LEAST, MOST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize("is_data", [True, False])
@pytest.mark.parametrize(
    "limits",
    [(LEAST, MOST, -5), (LEAST, MOST, MOST), (0, MOST, MOST), (MOST, LEAST, LEAST),
     (LEAST, 0, MOST), (MOST, LEAST, 1), (10, 0, -3), (-2, MOST, 1 << 62), (7, 7, LEAST)],
)  # fmt: skip
def test_range_between_far_integers(limits: tuple[int, int, int], is_data: bool) -> None:
    """What lies between two of them does not fit."""
    arrays = {k: np.array(v) for k, v in zip("abc", limits, strict=True)}
    given, constants = (arrays, {}) if is_data else ({}, arrays)
    want = [np.array(range(*limits), np.int64)]
    check(node("Range", "a b c"), given, constants=constants, opset=11, want=want)


def test_range_over_a_shape() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "n"),
        node("Range", "zero n two", "y"),
    ]
    constants = {k: np.array(v) for k, v in (("zero", 0), ("one", 1), ("two", 2))}
    check(nodes, {"x": f32(2, 7)}, constants=constants, opset=13)


@pytest.mark.parametrize("opset", [7, 11, 13, 28])
@pytest.mark.parametrize("mode", [None, "DCR", "CRD"])
def test_depth_to_space(opset: int, mode: str | None) -> None:
    if mode is not None and opset < 11:
        return
    given = {} if mode is None else {"mode": mode}
    check(node("DepthToSpace", "x", blocksize=2, **given), {"x": f32(2, 12, 3, 5)}, opset=opset)


@pytest.mark.parametrize("opset", [7, 13, 28])
def test_space_to_depth(opset: int) -> None:
    check(
        node("SpaceToDepth", "x", blocksize=2), {"x": f32(2, 3, 4, 6)}, opset=opset, symbolic=False
    )


@pytest.mark.parametrize("opset", [9, 22])
def test_eye_like(opset: int) -> None:
    for k in (0, 1, -2, 9):
        check(node("EyeLike", "x", k=k), {"x": f32(3, 4)}, opset=opset, symbolic=False)
        given: dict[str, Any] = {"k": k, "dtype": TensorProto.INT64}
        check(node("EyeLike", "x", **given), {"x": f32(3, 4)}, opset=opset, symbolic=False)


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_identity_is_no_node(opset: int) -> None:
    graph = check(node("Identity", "x"), {"x": f32(2)}, opset=opset)
    assert not graph.nodes and graph.outputs == graph.inputs


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 19, 23])
def test_constant(opset: int) -> None:
    value = numpy_helper.from_array(f32(2, 3))
    check([node("Constant", "", "c", value=value), node("Add", "x c")], {"x": f32(3)}, opset=opset)
    if opset < 12:
        return
    for kind, given in (("value_float", 1.5), ("value_floats", [1.0, 2.0, 3.0])):
        nodes = [node("Constant", "", "c", **{kind: given}), node("Add", "x c")]
        check(nodes, {"x": f32(3)}, opset=opset)
    for kind, whole in (("value_int", 3), ("value_ints", [1, 2, 3])):
        nodes = [node("Constant", "", "c", **{kind: whole}), node("Add", "x c")]
        check(nodes, {"x": ints(3)}, opset=opset)


def test_sparse_constant() -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, 2.5])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    want = np.array([[0, 1.5, 0], [0, 0, 2.5]], np.float32)
    check(node("Constant", "", sparse_value=sparse), {}, want=[want], opset=13)


def sequence_nodes() -> list[onnx.NodeProto]:
    return [
        node("SplitToSequence", "x two", "seq", axis=1),
        node("SequenceAt", "seq minus", "last"),
        node("SequenceInsert", "seq last zero", "longer"),
        node("SequenceErase", "longer one", "shorter"),
        node("SequenceLength", "shorter", "count"),
        node("ConcatFromSequence", "shorter", "y", axis=1),
    ]


def test_sequences_of_known_length() -> None:
    constants = {
        "two": np.array([1, 2, 2]), "minus": np.array(-1), "zero": np.array(0), "one": np.array(1)
    }  # fmt: skip
    x = {"x": f32(3, 5)}
    graph = check(sequence_nodes(), x, constants=constants, symbolic=False)
    assert {n.op.name for n in graph.nodes} == {"split", "concat"}


def test_sequences_stacked() -> None:
    for keep in (0, 1):
        nodes = [
            node("SplitToSequence", "x", "seq", axis=0, keepdims=keep),
            node("ConcatFromSequence", "seq", "y", axis=-1, new_axis=1),
        ]
        check(nodes, {"x": f32(3, 2)}, symbolic=False)
    nodes = [node("SequenceConstruct", "x y", "seq"), node("SequenceAt", "seq one", "z")]
    check(nodes, {"x": f32(2), "y": f32(3)}, constants={"one": np.array(1)})


def test_sequence_faults() -> None:
    nodes = [node("SequenceConstruct", "x x", "seq"), node("SequenceAt", "seq p", "z")]
    with pytest.raises(ImportModelError, match="outside of a sequence of 2"):
        import_model(model_of(nodes, {"x": f32(2)}, constants={"p": np.array(2)}))
    check(nodes, {"x": f32(2), "p": np.array(1)})
    with pytest.raises(ImportModelError, match="is a sequence of 1, not a tensor"):
        import_model(
            model_of([node("SequenceConstruct", "x", "s"), node("Relu", "s")], {"x": f32(2)})
        )


def test_chain_of_shapes_resolves() -> None:
    """What exporters write to flatten all but the first dimension."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axis", "n1"),
        node("Concat", "n1 minus", "new", axis=0),
        node("Reshape", "x new", "y"),
    ]
    constants = {"zero": np.array(0), "axis": i64(0), "minus": i64(-1)}
    model = model_of(nodes, {"x": f32(2, 3, 4)}, constants=constants, opset=13, symbolic=True)
    graph = import_model(model)
    assert str(graph.outputs[0].type) == "f32[x_d0, x_d1 * x_d2]"
    assert not graph.constraints
    compare(expected(model, {"x": f32(2, 3, 4)}), [f32(2, 3, 4).reshape(2, 12)])


def test_where_of_shapes_resolves() -> None:
    """Expand with -1 for "keep", as one exporter writes it."""
    nodes = [
        node("Shape", "x", "s"),
        node("ConstantOfShape", "two", "ones", value=numpy_helper.from_array(i64(1))),
        node("Mul", "ones minus", "wild"),
        node("Equal", "target wild", "is"),
        node("Where", "is s target", "shape"),
        node("Expand", "x shape", "y"),
    ]
    constants = {"two": i64(2), "minus": np.array(-1), "target": i64(-1, 5)}
    check(nodes, {"x": f32(3, 1)}, constants=constants, opset=13, symbolic=False)
