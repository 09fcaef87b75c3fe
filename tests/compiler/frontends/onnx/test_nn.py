"""Convolutions, pooling and matrix products of all versions against other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_harness import Inputs, check, compare, model_of, node

from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.expr.nodes import Const
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.matmul import Einsum, MatMul
from planish.compiler.ops.sampling import f32, ints

SAME = ["SAME_UPPER", "SAME_LOWER"]


def imported(model: Any, inputs: Inputs) -> list[Any]:
    return list(run_reference(import_model(model), inputs))


# --------------------------------------------------------------------------------- convolution

# x, w, attributes
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 7), (4, 3, 3, 3), {}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((1, 3, 7, 8), (2, 3, 3, 3), {"dilations": [2, 1], "kernel_shape": [3, 3]}),
    ((1, 3, 7, 8), (2, 3, 2, 3), {"auto_pad": "VALID", "strides": [3, 2]}),
    ((1, 4, 6, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 3, 6, 6), (3, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((1, 3, 6, 6), (6, 1, 3, 3), {"group": 3}),
    ((2, 3, 9), (4, 3, 4), {"pads": [2, 1], "dilations": [2]}),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"strides": [1, 2, 1], "pads": [0, 1, 0, 1, 0, 0]}),
    ((1, 2, 5, 5), (3, 2, 1, 1), {"strides": [2, 2]}),
    *(
        ((1, 2, *size), (3, 2, *kernel), {"auto_pad": pad, "strides": [2, 3]})
        for pad in SAME
        for size, kernel in (((7, 9), (3, 2)), ((6, 8), (4, 3)), ((5, 5), (1, 1)))
    ),
]


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv(case: tuple[Any, ...], opset: int) -> None:
    x, w, attributes = case
    constants = {"w": f32(*w), "b": f32(w[0])}
    check(node("Conv", "x w b", **attributes), {"x": f32(*x)}, constants=constants, opset=opset)


def test_conv_without_bias_and_with_weights_from_outside() -> None:
    inputs = {"x": f32(1, 3, 5, 5), "w": f32(2, 3, 3, 3)}
    check(node("Conv", "x w"), inputs, opset=22, symbolic=False)


def test_stride_one_and_same_pads_are_constant() -> None:
    model = model_of(
        node("Conv", "x w", auto_pad="SAME_UPPER"),
        {"x": f32(1, 2, 5, 5)},
        constants={"w": f32(3, 2, 3, 4)},
        symbolic=True,
    )
    graph = import_model(model)
    (conv,) = (n for n in graph.nodes if n.op.name == "conv")
    assert getattr(conv.op, "pads", None) == (1, 1, 1, 2)
    assert graph.outputs[0].type.shape[2:] == graph.inputs[0].type.shape[2:]


# x, w, attributes
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 5), (3, 2, 2, 2), {"strides": [2, 2]}),
    ((1, 2, 4, 5), (2, 3, 3, 3), {}),
    ((1, 2, 4, 5), (2, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 4, 5), (2, 3, 3, 3), {"strides": [2, 3], "output_padding": [1, 2]}),
    ((1, 2, 4, 5), (2, 3, 4, 4), {"strides": [2, 2], "pads": [1, 0, 2, 1]}),
    ((1, 4, 4, 4), (4, 1, 3, 2), {"group": 4, "strides": [3, 1], "dilations": [2, 3]}),
    ((1, 4, 4, 4), (4, 3, 2, 2), {"group": 2, "strides": [2, 2], "dilations": [2, 2]}),
    ((2, 2, 5), (2, 3, 4), {"strides": [3], "dilations": [2], "pads": [1, 2]}),
    ((1, 2, 3, 2, 3), (2, 1, 2, 3, 1), {"strides": [2, 1, 2]}),
    *(
        ((1, 2, 4, 5), (2, 3, 3, 4), {"auto_pad": pad, "strides": strides})
        for pad in [*SAME, "VALID"]
        for strides in ([2, 2], [1, 3])
    ),
    ((1, 1, 3, 3), (1, 1, 3, 3), {"auto_pad": "SAME_UPPER", "output_padding": [0, 0]}),
    (
        (1, 1, 3, 3),
        (1, 1, 3, 3),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 1]},
    ),
]


@pytest.mark.parametrize("opset", [7, 11])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose(case: tuple[Any, ...], opset: int) -> None:
    x, w, attributes = case
    constants = {"w": f32(*w), "b": f32(w[1] * attributes.get("group", 1))}
    step = node("ConvTranspose", "x w b", **attributes)
    check(step, {"x": f32(*x)}, constants=constants, opset=opset)


@pytest.mark.parametrize("auto_pad", ["NOTSET", *SAME])
@pytest.mark.parametrize("shape", [[8, 9], [7, 7], [10, 12]])
def test_conv_transpose_to_a_wanted_shape(auto_pad: str, shape: list[int]) -> None:
    step = node(
        "ConvTranspose", "x w", auto_pad=auto_pad, strides=[2, 2], output_shape=shape,
        output_padding=[1, 1] if shape == [10, 12] else [0, 0],
    )  # fmt: skip
    inputs, constants = {"x": f32(1, 2, 4, 5)}, {"w": f32(2, 3, 3, 3)}
    check(step, inputs, constants=constants, opset=11, symbolic=False)


def test_conv_transpose_reaches_its_size_where_kernels_leave_gaps() -> None:
    """SAME asks for size * stride; beyond the last kernel there is the bias alone."""
    step = node("ConvTranspose", "x w b", auto_pad="SAME_UPPER", strides=[3])
    constants = {"w": f32(1, 1, 1), "b": np.array([7], np.float32)}
    x = np.array([[[1, 2]]], np.float32)
    want = np.full((1, 1, 6), 7, np.float32)
    want[0, 0, [0, 3]] += x[0, 0] * constants["w"][0, 0, 0]
    check(step, {"x": x}, constants=constants, want=[want])


# ------------------------------------------------------------------------------------- pooling

# x, attributes
POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 7), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 6, 7), {"kernel_shape": [3, 2]}),
    ((1, 2, 6, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 2, 1]}),
    ((1, 2, 6, 7), {"kernel_shape": [3, 3], "strides": [1, 2], "auto_pad": "VALID"}),
    ((1, 2, 9), {"kernel_shape": [4], "strides": [3], "pads": [0, 2]}),
    ((1, 2, 3, 4, 5), {"kernel_shape": [2, 3, 1], "strides": [1, 1, 2]}),
    *(
        ((1, 2, *size), {"kernel_shape": kernel, "strides": [2, 3], "auto_pad": pad})
        for pad in SAME
        for size, kernel in (((7, 8), [3, 3]), ((6, 8), [4, 3]), ((9, 9), [2, 4]))
    ),
]
CEIL: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 6, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 6, 6), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}),
    (
        (1, 2, 5, 8),
        {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 1, 0, 1], "ceil_mode": 1},
    ),
    ((1, 2, 4), {"kernel_shape": [2], "strides": [3], "pads": [1, 1], "ceil_mode": 1}),
]
DILATED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 7, 8), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 0, 1]}),
    ((1, 2, 9), {"kernel_shape": [3], "dilations": [2], "strides": [3], "ceil_mode": 1}),
]


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool_of_old_versions(case: tuple[Any, ...], opset: int) -> None:
    check(node("MaxPool", "x", **case[1]), {"x": f32(*case[0])}, opset=opset)


@pytest.mark.parametrize("opset", [10, 12])
@pytest.mark.parametrize("case", [*POOLS[:5], *CEIL, *DILATED], ids=str)
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_and_indices(case: tuple[Any, ...], opset: int, order: int) -> None:
    step = node("MaxPool", "x", "y i", storage_order=order, **case[1])
    check(step, {"x": f32(*case[0])}, opset=opset)


def test_max_pool_takes_the_first_of_equals() -> None:
    step = node("MaxPool", "x", "y i", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    check(step, {"x": ints(1, 2, 5, 5, low=0, high=3, dtype="float32")}, opset=12)


def test_max_pool_of_integers_does_not_see_pads() -> None:
    x = ints(1, 1, 4, low=-9, high=-1, dtype="int8")
    check(node("MaxPool", "x", kernel_shape=[2], pads=[1, 1]), {"x": x}, opset=12)


def test_max_pool_with_same_lower_and_stride() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    step = node("MaxPool", "x", auto_pad="SAME_LOWER", kernel_shape=[3], strides=[3])
    check(step, {"x": x}, want=[np.array([[[1, 4, 7]]], np.float32)])


@pytest.mark.parametrize(("upper", "want"), [(True, [1, 4]), (False, [0, 3])])
def test_pools_cut_where_windows_leave_gaps(upper: bool, want: list[int]) -> None:
    """Of 1 + 3 - 6 pads a half, towards 0, is in front; if lower, of one more."""
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    auto_pad = "SAME_UPPER" if upper else "SAME_LOWER"
    step = node("MaxPool", "x", auto_pad=auto_pad, kernel_shape=[1], strides=[3])
    check(step, {"x": x}, want=[np.array([[want]], np.float32)])


def test_same_pads_reach_over_dilated_windows() -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    step = node("MaxPool", "x", auto_pad="SAME_UPPER", kernel_shape=[2], dilations=[3])
    check(step, {"x": x}, want=[np.array([[[2, 3, 4, 2, 3]]], np.float32)])
    weights = {"w": np.ones((1, 1, 2), np.float32)}
    step = node("Conv", "x w", auto_pad="SAME_UPPER", dilations=[3])
    check(step, {"x": x}, constants=weights, want=[np.array([[[2, 3, 5, 2, 3]]], np.float32)])


def test_max_pool_of_nan_is_nan() -> None:
    x = np.array([[[1, np.nan, 0, -1]]], np.float32)
    want = [np.array([[[np.nan, np.nan, 0]]], np.float32), np.array([[[1, 1, 2]]])]
    check(node("MaxPool", "x", "y i", kernel_shape=[2]), {"x": x}, want=want)


@pytest.mark.parametrize("opset", [7, 10, 19])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("case", [*POOLS, *CEIL, *DILATED], ids=str)
def test_average_pool(case: tuple[Any, ...], include: int, opset: int) -> None:
    if opset < 19 and "dilations" in case[1] or opset < 10 and "ceil_mode" in case[1]:
        pytest.skip("not in this version")
    step = node("AveragePool", "x", count_include_pad=include, **case[1])
    check(step, {"x": f32(*case[0])}, opset=opset)


def test_average_pool_counts_pads_only_within_the_padded_input() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    step = node(
        "AveragePool", "x", kernel_shape=[3], strides=[2], pads=[0, 1], ceil_mode=1,
        count_include_pad=1,
    )  # fmt: skip
    want = np.array([[[2, 7 / 3]]], np.float32)
    check(step, {"x": x}, want=[want])


@pytest.mark.parametrize("opset", [7, 18])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("case", [*POOLS[:4], *CEIL[:2], *DILATED[:1]], ids=str)
def test_lp_pool(case: tuple[Any, ...], p: int, opset: int) -> None:
    if opset < 18 and ("dilations" in case[1] or "ceil_mode" in case[1]):
        pytest.skip("not in this version")
    check(node("LpPool", "x", p=p, **case[1]), {"x": f32(*case[0])}, opset=opset)


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 2, 2)])
def test_global_pools(shape: tuple[int, ...], opset: int) -> None:
    inputs = {"x": f32(*shape)}
    check(node("GlobalAveragePool", "x"), inputs, opset=opset)
    check(node("GlobalMaxPool", "x"), inputs, opset=opset)
    norm = (np.abs(inputs["x"]) ** 3).sum(tuple(range(2, len(shape))), keepdims=True) ** (1 / 3)
    check(node("GlobalLpPool", "x", p=3), inputs, opset=opset, want=[norm])


# ----------------------------------------------------------------------------- matrix products


@pytest.mark.parametrize("opset", [7, 9, 13])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((3, 0), (0, 2)),
        ((1, 3, 4), (2, 4, 5)),
    ],
)  # fmt: skip
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], opset: int) -> None:
    inputs = {"a": f32(*a), "b": f32(*b)}
    check(node("MatMul", "a b"), inputs, opset=opset, symbolic=not {0, 1} & {*a, *b})


def test_matmul_of_integers_wraps_around() -> None:
    inputs = {"a": np.full((1, 2), 1 << 30, np.int32), "b": np.full((2, 1), 3, np.int32)}
    check(node("MatMul", "a b"), inputs, want=[np.array([[-(1 << 31)]], np.int32)], symbolic=False)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("c", [None, (), (1,), (5,), (3, 5), (1, 5), (3, 1)])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.3, 0.7)])
def test_gemm(c: tuple[int, ...] | None, factors: tuple[float, float], opset: int) -> None:
    if c is None and opset < 11:
        pytest.skip("C is needed")
    given = {"alpha": factors[0], "beta": factors[1]}
    for trans_a, trans_b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        inputs = {"a": f32(4, 3) if trans_a else f32(3, 4)}
        constants = {"b": f32(5, 4) if trans_b else f32(4, 5)}
        if c is not None:
            (inputs if trans_a and trans_b else constants)["c"] = f32(*c)
        names = "a b" if c is None else "a b c"
        step = node("Gemm", names, transA=trans_a, transB=trans_b, **given)
        check(
            step, inputs, constants=constants, opset=opset, symbolic=c not in ((1, 5), (3, 1), (1,))
        )


def test_gemm_of_constant_bias_scales_it_at_import() -> None:
    model = model_of(
        node("Gemm", "a b c", beta=0.5),
        {"a": f32(3, 4)},
        constants={"b": f32(4, 5), "c": f32(5)},
    )
    assert [n.op.name for n in import_model(model).nodes] == ["matmul", "add"]


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba,ca", [(2, 3), (4, 3)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bji,bjk->bik", [(2, 4, 3), (2, 4, 5)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i", [(3,), (3,)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,jk", [(2, 3, 4), (4, 5)]),
    ("...i->...", [(2, 3, 4)]),
    ("i..., j -> j...", [(2, 3), (4,)]),
    ("ij, jk , kl -> il", [(2, 3), (3, 4), (4, 5)]),
    ("abc,cd,def->abef", [(2, 3, 4), (4, 5), (5, 2, 3)]),
    ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]),
    ("i,i,i->", [(3,), (3,), (3,)]),
    ("Ab,bA->A", [(2, 3), (3, 2)]),
    ("ij,j->ij", [(2, 3), (3,)]),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: str(c[0]))
def test_einsum(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    inputs = {f"x{k}": f32(*shape) for k, shape in enumerate(shapes)}
    check(node("Einsum", " ".join(inputs), equation=equation), inputs, opset=12, tolerance=2e-5)


def test_einsum_broadcasts_an_ellipsis() -> None:
    a, b = f32(5, 1, 3, 4), f32(2, 4, 6)
    step = node("Einsum", "a b", equation="...ij,...jk")
    check(step, {"a": a, "b": b}, want=[np.matmul(a, b)], symbolic=False)


@pytest.mark.parametrize(
    ("equation", "op"),
    [
        ("bij,bkj->bik", MatMul(False, True)),
        ("bji,bjk->bik", MatMul(True, False)),
        ("bij,bjk->bki", Einsum("bij,bjk->bki")),
    ],
)
def test_einsum_is_a_matrix_product_where_it_can_be(equation: str, op: Any) -> None:
    sizes = {"b": 2, "i": 3, "j": 4, "k": 5}
    terms = equation.split("->")[0].split(",")
    inputs = {f"x{k}": f32(*(sizes[c] for c in term)) for k, term in enumerate(terms)}
    graph = check(node("Einsum", "x0 x1", equation=equation), inputs, opset=12)
    assert [n.op for n in graph.nodes] == [op]


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("step", "shapes", "match"),
    [
        (node("Conv", "x w"), [(1, 3, 5, 5), (2, 4, 3, 3)], "3 channels, the weights take 4"),
        (node("Conv", "x w", group=2), [(1, 4, 5, 5), (3, 2, 3, 3)], "do not divide into 2 groups"),
        (node("Conv", "x w"), [(1, 3, 5, 5), (2, 3, 6, 3)], "window of 6 does not fit into 5"),
        (node("Conv", "x w"), [(1, 3), (2, 3)], "no spatial axes"),
        (node("Conv", "x w", pads=[1, 1]), [(1, 3, 5, 5), (2, 3, 3, 3)], "has 2 numbers, not 4"),
        (node("Conv", "x w", pads=[-1] * 4), [(1, 3, 5, 5), (2, 3, 3, 3)], "must not be negative"),
        (node("Conv", "x w", strides=[0, 1]), [(1, 3, 5, 5), (2, 3, 3, 3)], "must be at least 1"),
        (
            node("Conv", "x w", kernel_shape=[2, 3]),
            [(1, 3, 5, 5), (2, 3, 3, 3)],
            "does not fit the weights",
        ),
        (node("Conv", "x w", auto_pad="SOME"), [(1, 3, 5), (2, 3, 3)], "auto_pad SOME"),
        (node("Conv", "x w b"), [(1, 3, 5), (2, 3, 3), (3,)], "bias is f32.3., for 2 output"),
        (node("ConvTranspose", "x w", pads=[9, 9]), [(1, 2, 3), (2, 1, 3)], "nothing is left"),
        (node("MaxPool", "x", kernel_shape=[0]), [(1, 2, 3)], "must be at least 1"),
        (node("MaxPool", "x", kernel_shape=[2, 2]), [(1, 2, 3)], "has 2 axes, the input 1"),
        (node("LpPool", "x", kernel_shape=[2], p=0), [(1, 2, 3)], "p must be at least 1"),
        (node("MatMul", "x w"), [(2, 3), (4, 5)], "2 x 3 and 4 x 5 matrices do not multiply"),
        (node("MatMul", "x w"), [(), (4, 5)], "must have axes"),
        (node("Gemm", "x w b"), [(2, 3), (3, 5), (4, 2, 5)], "must broadcast"),
        (node("Gemm", "x w b"), [(1, 3), (3, 5), (2, 5)], "must broadcast"),
        (node("Einsum", "x w", equation="ij->i"), [(2, 3), (3, 4)], "does not fit 2 operands"),
        (node("Einsum", "x", equation="ij->k"), [(2, 3)], "k of the result"),
        (node("Einsum", "x", equation="i1->i"), [(2, 3)], "malformed"),
        (node("Einsum", "x", equation="ijk->i"), [(2, 3)], "does not fit"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_an_error(step: Any, shapes: list[Any], match: str) -> None:
    step.name = "culprit"
    inputs = {name: f32(*s) for name, s in zip(step.input, shapes, strict=True)}
    with pytest.raises(PlanishError, match=match) as error:
        import_model(model_of(step, inputs))
    assert isinstance(error.value, ImportModelError)
    assert "culprit" in str(error.value)


def test_a_window_that_does_not_fit_symbols_is_a_condition() -> None:
    model = model_of(
        node("Conv", "x w"), {"x": f32(1, 2, 5)}, constants={"w": f32(3, 2, 4)}, symbolic=True
    )
    graph = import_model(model)
    compare(
        run_reference(graph, {"x": np.ones((1, 2, 4), np.float32)}),
        [graph_constant(graph).sum((1, 2)).reshape(1, 3, 1)],
    )
    with pytest.raises(PlanishError, match="does not hold"):
        run_reference(graph, {"x": np.ones((1, 2, 3), np.float32)})


def graph_constant(graph: Any) -> Any:
    (array,) = graph.constants.values()
    return array


def test_sizes_stay_symbols() -> None:
    step = node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    graph = import_model(model_of(step, {"x": f32(1, 2, 6, 6)}, symbolic=True))
    assert not any(isinstance(d, Const) for d in graph.outputs[0].type.shape)
    for size in (6, 7):
        x = f32(1, 2, size, size)
        assert run_reference(graph, {"x": x})[0].shape == (1, 2, 3, 3)


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("opset", [7, 8, 10, 11, 12, 18, 19, 22])
def test_every_version(op_type: str, opset: int) -> None:
    inputs, constants = {"x": f32(1, 2, 5, 5)}, {"w": f32(2, 2, 2, 2)}
    if op_type.startswith("Conv"):
        check(node(op_type, "x w"), inputs, constants=constants, opset=opset)
    else:
        check(node(op_type, "x", kernel_shape=[2, 2]), inputs, opset=opset)
