"""Handlers of slices, gathers, padding and the like, against ONNX Runtime and onnx.reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx_harness import check, compare, model_of, node

from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32, ints

i64 = lambda *x: np.array(x, np.int64)  # noqa: E731
FAR = 2**63 - 1


@pytest.mark.parametrize("step", [1, 2, -1, -3, FAR, -FAR - 1])
def test_slice_is_numpys(step: int) -> None:
    """A symbolic dimension may have any size, none too."""
    x = np.arange(7, dtype=np.float32)
    places = (0, 1, 3, 6, 7, 9, -1, -3, -7, -8, -20, FAR, -FAR - 1)
    for start, end in itertools.product(places, places):
        constants = {"s": i64(start), "e": i64(end), "a": i64(0), "t": i64(step)}
        for symbolic in (False, True):
            model = model_of(
                node("Slice", "x s e a t"),
                {"x": x},
                constants=constants,
                opset=13,
                symbolic=symbolic,
            )
            graph = import_model(model)
            for size in (0, 1, 2, 7) if symbolic else (7,):
                # For numpy a start that ONNX holds inside is before the beginning.
                first = max(start, -size) if step < 0 else start
                want = x[:size][slice(first, end, max(-FAR, step))]
                compare(run_reference(graph, {"x": x[:size]}), [want])


@pytest.mark.parametrize("opset", [7, 9])
def test_slice_by_attributes(opset: int) -> None:
    x = {"x": f32(4, 5, 6)}
    check(node("Slice", "x", starts=[1, 0], ends=[3, -1], axes=[0, 2]), x, opset=opset)
    check(node("Slice", "x", starts=[1, 0, 0], ends=[3, 2, 1000]), x, opset=opset)


@pytest.mark.parametrize("opset", [10, 11, 13, 21])
def test_slice_by_inputs(opset: int) -> None:
    x = {"x": f32(4, 5, 6)}
    constants = {"s": i64(3, 1), "e": i64(0, 5), "a": i64(0, 2), "t": i64(-2, 3)}
    check(node("Slice", "x s e a t"), x, constants=constants, opset=opset)
    check(node("Slice", "x s e"), x, constants={"s": i64(1, 0), "e": i64(9, 2)}, opset=opset)
    constants = {"s": i64(1), "e": i64(2), "t": i64(1)}
    check(node("Slice", "x s e - t"), x, constants=constants, opset=opset)


def test_slice_up_to_a_dimension() -> None:
    """The end is the size of another input, as in a table of positions."""
    nodes = [
        node("Shape", "x", "s", start=1, end=2),
        node("Slice", "table zero s axis", "y"),
    ]
    constants = {"table": f32(1, 16), "zero": i64(0), "axis": i64(1)}
    check(nodes, {"x": f32(2, 5)}, constants=constants, opset=15)
    model = model_of(nodes, {"x": f32(2, 5)}, constants=constants, opset=15, symbolic=True)
    graph = import_model(model)
    assert str(graph.outputs[0].type) == "f32[1, min(16, x_d1)]"


@pytest.mark.parametrize(
    ("start", "end", "step", "size"),
    [
        (0, 1, 1, "min(1, x_d0)"),
        (-1, FAR, 1, "min(1, x_d0)"),
        (-1, -2, -1, "min(1, x_d0)"),
        (0, 3, 1, "min(3, x_d0)"),
        (-3, FAR, 1, "min(3, x_d0)"),
        (1, FAR, 1, "max(0, x_d0 - 1)"),
        (0, -1, 1, "max(0, x_d0 - 1)"),
        (1, -1, 1, "max(0, x_d0 - 2)"),
        (0, FAR, 2, "(x_d0 + 1) // 2"),
        (1, FAR, 2, "x_d0 // 2"),
        (FAR, -FAR, -1, "x_d0"),
        (-1, -FAR, -1, "x_d0"),
        (-1, 0, 1, "0"),
    ],
)
def test_slice_of_a_symbolic_dimension(start: int, end: int, step: int, size: str) -> None:
    """The size is written simply, and no call need be refused."""
    constants = {"s": i64(start), "e": i64(end), "a": i64(0), "t": i64(step)}
    model = model_of(node("Slice", "x s e a t"), {"x": f32(3)}, constants=constants, symbolic=True)
    graph = import_model(model)
    assert str(graph.outputs[0].type) == f"f32[{size}]"
    assert not graph.constraints


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(opset: int, axis: int) -> None:
    x = f32(4, 5, 4)
    for indices in (ints(2, 3, low=0, high=4), np.array(1), i64(), i64(0, 2), i64(2, 2, 1)):
        check(node("Gather", "x i", axis=axis), {"x": x, "i": indices}, opset=opset, symbolic=False)
        check(node("Gather", "x i", axis=axis), {"x": x}, constants={"i": indices}, opset=opset)


def test_gather_from_the_end() -> None:
    x = {"x": f32(4, 5)}
    for indices in (np.array(-1), i64(-1, -2, -3), i64(-4, 3), i64(-1)):
        check(node("Gather", "x i", axis=1), x, constants={"i": indices}, opset=13)


def test_gather_of_even_steps_is_a_slice() -> None:
    for indices, names in (
        (np.array(2), ["slice", "reshape"]),
        (i64(1, 3, 5), ["slice"]),
        (i64(5, 4, 3), ["slice"]),
        (i64(1, 2, 4), ["gather"]),
    ):
        model = model_of(node("Gather", "x i"), {"x": f32(6, 2)}, constants={"i": indices})
        assert [n.op.name for n in import_model(model).nodes] == names


def test_gather_out_of_range_is_refused() -> None:
    for index in (3, -4):
        model = model_of(node("Gather", "x i"), {"x": f32(3)}, constants={"i": np.array(index)})
        with pytest.raises(ImportModelError, match="out of range"):
            import_model(model)


@pytest.mark.parametrize("opset", [11, 13])
def test_gather_elements(opset: int) -> None:
    for axis in (0, 1, -1):
        inputs = {"x": f32(3, 4), "i": ints(3, 4, low=-3, high=3)}
        check(node("GatherElements", "x i", axis=axis), inputs, opset=opset)
    inputs = {"x": f32(3, 4), "i": ints(2, 6, low=0, high=4)}
    check(node("GatherElements", "x i", axis=1), inputs, opset=opset)


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_gather_nd(opset: int) -> None:
    inputs = {"x": f32(3, 4, 5), "i": ints(2, 2, low=-3, high=3)}
    check(node("GatherND", "x i"), inputs, opset=opset, symbolic=False)
    if opset >= 12:
        inputs = {"x": f32(3, 4, 5), "i": ints(3, 2, 1, low=-4, high=4)}
        check(node("GatherND", "x i", batch_dims=1), inputs, opset=opset, symbolic=False)


MODES = ["constant", "reflect", "edge"]


@pytest.mark.parametrize("mode", MODES)
def test_pad_by_attributes(mode: str) -> None:
    given = {"value": 1.5} if mode == "constant" else {}
    x = {"x": f32(3, 5)}
    check(node("Pad", "x", mode=mode, pads=[0, 2, 1, 3], **given), x, opset=7)
    check(node("Pad", "x", pads=[0, 2, 1, 3]), x, opset=7)


@pytest.mark.parametrize("opset", [11, 13, 18, 19, 21, 23])
@pytest.mark.parametrize("mode", [*MODES, "wrap"])
def test_pad_by_inputs(opset: int, mode: str) -> None:
    x = {"x": f32(4, 5)}
    if mode == "wrap" and opset < 19:
        model = model_of(
            node("Pad", "x p", mode=mode), x, constants={"p": i64(1, 1, 1, 1)}, opset=opset
        )
        with pytest.raises(ImportModelError, match="no mode wrap"):
            import_model(model)
        return
    for pads in ((0, 2, 1, 3), (1, 0, 0, 0), (0, 0, 0, 0), (2, 3, 3, 2)):
        constants = {"p": i64(*pads)}
        check(node("Pad", "x p", mode=mode), x, constants=constants, opset=opset)
        if opset >= 18:
            axes = {"p": i64(*pads[:2]), "a": i64(-1)}
            check(node("Pad", "x p - a", mode=mode), x, constants=axes, opset=opset)
    constants = {"p": i64(1, 1, 1, 1), "v": np.array(-2.5, np.float32)}
    check(node("Pad", "x p v", mode=mode), x, constants=constants, opset=opset)


def test_pad_takes_away() -> None:
    for pads in ((-1, 2, 0, -2), (-1, -1, -1, -1), (0, 0, -4, 0)):
        check(
            node("Pad", "x p"),
            {"x": f32(4, 5)},
            constants={"p": i64(*pads)},
            opset=13,
            symbolic=False,
        )


def test_pad_by_a_value_of_the_data() -> None:
    inputs = {"x": f32(3), "v": np.array(4.0, np.float32)}
    check(node("Pad", "x p v"), inputs, constants={"p": i64(1, 2)}, opset=13)


def test_pad_of_other_dtypes() -> None:
    check(node("Pad", "x p"), {"x": ints(3)}, constants={"p": i64(1, 2)}, opset=13)
    constants = {"p": i64(1, 2), "v": np.array(7)}
    check(node("Pad", "x p v"), {"x": ints(3)}, constants=constants, opset=13)


@pytest.mark.parametrize("opset", [11, 14])
def test_cumsum(opset: int) -> None:
    for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, -1)):
        made = node("CumSum", "x a", exclusive=exclusive, reverse=reverse)
        check(made, {"x": f32(3, 5)}, constants={"a": np.array(axis)}, opset=opset)
        check(made, {"x": ints(3, 5)}, constants={"a": i64(axis)}, opset=opset)


def test_trilu() -> None:
    for k, upper in itertools.product((None, 0, 2, -1, 99, -99, FAR), (0, 1)):
        constants = {} if k is None else {"k": np.array(k)}
        names = "x" if k is None else "x k"
        check(
            node("Trilu", names, upper=upper),
            {"x": f32(2, 3, 4)},
            constants=constants,
            opset=14,
            want=[(np.triu if upper else np.tril)(f32(2, 3, 4), max(-9, min(9, k or 0)))],
        )


@pytest.mark.parametrize("opset", [9, 11, 28])
def test_one_hot(opset: int) -> None:
    constants = {"d": np.array(4), "v": np.array([0.5, 2.0], np.float32)}
    inputs = {"i": ints(2, 3, low=-5, high=6)}
    for axis in (-1, 0, 1):
        check(node("OneHot", "i d v", axis=axis), inputs, constants=constants, opset=opset)
    want = np.where((inputs["i"][..., None] % 3) == np.arange(3), *ints(2)[::-1])
    want = np.where(np.abs(inputs["i"][..., None] + 0.5) < 3, want, ints(2)[0])
    for depth in (i64(3), np.array([3.0], np.float32)):
        constants = {"d": depth, "v": ints(2)}
        check(node("OneHot", "i d v"), inputs, constants=constants, opset=opset, want=[want])
