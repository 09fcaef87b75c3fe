"""Products of narrow integers, two at a time: exact for all sizes, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planish
from planish.compiler.graph.ir import Array
from planish.targets.target import parse_target

TARGETS = ("llvm", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64")
CODES = {"i": TensorProto.INT8, "u": TensorProto.UINT8}
RNG = np.random.default_rng(0)


def some(kind: str, *shape: int) -> Array:
    low = -128 if kind == "i" else 0
    x = RNG.integers(low, low + 256, shape)
    x.reshape(-1)[:2] = low, low + 255  # both ends are there
    return x.astype("int8" if kind == "i" else "uint8")


def module(
    op: str, x: Array, w: Array, zeros: tuple[Array, Array] | None, target: str
) -> planish.Module:
    """One product, all dimensions of x but the second open."""
    constants = {"w": w} if zeros is None else {"w": w, "xz": zeros[0], "wz": zeros[1]}
    dims = [f"d{k}" if k != 1 else n for k, n in enumerate(x.shape)]
    info = helper.make_tensor_value_info("x", CODES["i" if x.dtype == np.int8 else "u"], dims)
    node = helper.make_node(
        op, ["x", *constants], ["y"], **({"pads": [1] * 4} if op == "ConvInteger" else {})
    )
    graph = helper.make_graph(
        [node], "g", [info], [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    return planish.compile(model, target=target, threads=1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kinds", "n", "k", "zeros"),
    [("ui", 33, 10, True), ("ii", 16, 8, False), ("uu", 5, 7, True), ("iu", 70, 64, True)],
)
def test_products_of_matrices(kinds: str, n: int, k: int, zeros: bool, target: str) -> None:
    if parse_target(target).missing:
        pytest.skip("not of this machine")
    w = some(kinds[1], k, n)
    points = (np.array(some(kinds[0], 2)[1]), np.array(some(kinds[1], 2)[0])) if zeros else None
    made = None
    for m in (1, 3, 20):
        x = some(kinds[0], m, k)
        made = made or module("MatMulInteger", x, w, points, target)
        a, b = x.astype(np.int32), w.astype(np.int32)
        if points is not None:
            a, b = a - points[0].astype(np.int32), b - points[1].astype(np.int32)
        np.testing.assert_array_equal(made(x)[0], a @ b)


@pytest.mark.parametrize("target", TARGETS[:3])
@pytest.mark.parametrize("channels", [(4, 24), (3, 8), (16, 7)])
def test_convolutions(channels: tuple[int, int], target: str) -> None:
    if parse_target(target).missing:
        pytest.skip("not of this machine")
    c, f = channels
    w = some("i", f, c, 3, 3)
    points = np.array(130, "uint8"), np.array(0, "int8")
    made = None
    for size in (3, 9):
        x = some("u", 1, c, size, size)
        made = made or module("ConvInteger", x, w, points, target)
        padded = np.pad(x.astype(np.int32) - 130, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        want = np.einsum("bchwij,fcij->bfhw", windows, w.astype(np.int32))
        np.testing.assert_array_equal(made(x)[0], want)


def test_the_largest_products() -> None:
    """Sums of two of them fill 31 bits: of 255 * 255, and of what wraps around."""
    x, w = np.full((2, 64), 0, "uint8"), np.full((64, 16), 0, "uint8")
    points = np.array(255, "uint8"), np.array(255, "uint8")
    (y,) = module("MatMulInteger", x, w, points, "llvm")(x)
    assert (y == 64 * 255 * 255).all()


def test_code_multiplies_pairs() -> None:
    """Not the values alone: on AVX2 and AVX-512 there are such instructions in it."""
    from planish.show import stage_text

    x, w = some("u", 4, 32), some("i", 32, 64)
    info = helper.make_tensor_value_info("x", TensorProto.UINT8, list(x.shape))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "z"], ["y"])], "g", [info],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(3, "uint8"), "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    for name, pairs in (("v4", "pmaddw.d.512"), ("v3", "pmadd.wd")):
        target = parse_target(f"llvm -mcpu=x86-64-{name}")
        text = stage_text(model.SerializeToString(), "llvm", target, threads=1)
        assert pairs in text
