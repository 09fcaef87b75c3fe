"""Calls with sizes for which there is nothing to compute, or no answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import planish
from planish.build import compile_imported, resolve_target
from planish.compiler.dtypes import F32
from planish.compiler.errors import ImportModelError, RuntimeFault, TypeCheckError
from planish.compiler.expr.nodes import Expr, Var, as_expr, maximum
from planish.compiler.graph.ir import GraphBuilder, Value, tensor
from planish.compiler.ops.activations import Relu
from planish.compiler.ops.base import Op
from planish.compiler.ops.indexing import Slice
from planish.compiler.ops.padding import Pad
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.resize import Resize
from planish.compiler.ops.shape import Reshape, sizes
from planish.runtime.module import Module

N, M = Var("n"), Var("m")
CUT = Pad(sizes(-1, -2), sizes(-2, -1))  # [n, m] -> [n - 3, m - 3]


def module(*ops: Op, optimize: bool = True, shape: tuple[Expr, ...] = (N, M)) -> Module:
    """One operator after the other."""
    b = GraphBuilder("g")
    x: Value = b.input("x", tensor(F32, *shape))
    for op in ops:
        x = b.one(op, x)
    return compile_imported(b.finish([x]), resolve_target("llvm"), 2, optimize)


def ones(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    "ops",
    [
        (CUT,),
        (CUT, Relu()),
        (CUT, ReduceSum()),  # the result's extents are never negative, the intermediate's are
        (Relu(), CUT, Reshape(((N - 3) * (M - 3),)), ReduceSum(keepdims=False)),
    ],
    ids=repr,
)
def test_two_negative_extents_are_not_many_elements(ops: tuple[Op, ...], optimize: bool):
    f = module(*ops, optimize=optimize)
    for n, m in ((2, 2), (0, 0), (2, 5), (5, 2), (0, 1)):
        with pytest.raises(TypeCheckError, match=r"3 <= [nm] does not hold"):
            f(ones(n, m))
    for n, m in ((3, 3), (3, 5), (5, 4)):
        assert f(ones(n, m))[0].sum() == (n - 3) * (m - 3)


def test_an_extent_that_is_certainly_negative():
    b = GraphBuilder("g")
    x = b.input("x", tensor(F32, 4, N))
    shape = Slice(sizes(0, 0), (1, 1), (as_expr(4), as_expr(-1)))
    with pytest.raises(TypeCheckError, match=r"would be f32\[4, \(-1\)\]: a dimension is negative"):
        b.one(shape, x)


@pytest.mark.parametrize(
    ("op", "least"),
    [
        (Pad(sizes(1), sizes(0), "edge"), 1),
        (Pad(sizes(1), sizes(2), "wrap"), 1),
        (Pad(sizes(2), sizes(1), "reflect"), 1),
        (Pad(sizes(2), sizes(-2), "edge"), 1),  # from n = 0 on its extent is n
        (Resize((0,), (4,), (2.0,)), 1),
        (Resize((0,), (4,), (2.0,), "linear"), 1),
        (Slice(sizes(1), (2,), sizes(2)), 4),
        (Slice((N - 1,), (-2,), sizes(3)), 5),
    ],
    ids=repr,
)
def test_what_there_must_be_to_read(op: Op, least: int):
    f = module(op, shape=(N,))
    for n in range(6):
        if n < least and not (n == 0 and isinstance(op, Pad) and op.after == sizes(-2)):
            with pytest.raises(TypeCheckError, match="does not hold"):
                f(ones(n))
        else:
            assert (f(ones(n))[0] == 1).all()


@pytest.mark.parametrize(
    "op",
    [
        Resize((0,), (N * 2,), (2.0,)),
        Resize((0,), (N * 2,), (2.0,), "cubic"),
        Pad(sizes(-1), sizes(1), "constant"),
        Slice(sizes(0), (1,), (N,)),
        Slice(sizes(1), (1,), (maximum(0, N - 1),)),
        Slice((N - 1,), (-1,), (N,)),
    ],
    ids=repr,
)
def test_nothing_of_nothing(op: Op):
    f = module(op, shape=(N,))
    assert f(ones(0))[0].shape == (0,)
    assert not f.interface.constraints


def test_loops_are_not_entered():
    """Sums over no elements, of rows that are there."""
    f = module(ReduceSum((1,), keepdims=False))
    for n, m in ((3, 0), (0, 3), (0, 0), (2, 1)):
        assert f(ones(n, m))[0].tolist() == [m] * n


# ------------------------------------------------------------------------------ sizes in the data


def read(text: str, target: str = "llvm", **dims: int) -> Module:
    """The module of a graph in ONNX's text form."""
    head = '<ir_version: 8, opset_import: ["": 17]>\n'
    return planish.compile(onnx.parser.parse_model(head + text), target, dims, logs=[])


@pytest.mark.parametrize(
    "node", ["Reshape(x, s)", "Expand(x, s)", "Slice(x, s, s)", "Tile(x, s)", "Pad(x, s)"]
)
def test_an_open_number_of_integers(node: str):
    """It is not taken to be none."""
    text = f"n (float[A, B] x, int64[R] s) => (float[C, D] y) {{ y = {node} }}"
    with pytest.raises(ImportModelError, match=r"s: i64\[R\](?s:.*)--dim R=2"):
        read(text)
    assert read(text, R=4 if "Pad" in node else 2).inputs[1].shape != (0,)


SLICE = """n (float[A, B] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[C, D] y) {
  y = Slice(x, s, e, a, t)
}"""
FAR = 2**63 - 1


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((0, FAR, 1, FAR), np.s_[:, :1]),
        ((FAR, -FAR - 1, 1, -FAR - 1), np.s_[:, 2:]),
        ((FAR, -FAR - 1, 0, -1), np.s_[::-1]),
        ((-FAR, FAR, -1, 2), np.s_[:, ::2]),
        ((0, 5, 2, 1), "an axis is out of range for rank 2"),
        ((0, 5, -3, 1), "an axis is out of range for rank 2"),
        ((0, 5, 1, 0), "a step is 0"),
    ],
)
def test_slices_that_only_the_data_tells(given: tuple[int, ...], wanted: Any):
    module, x = read(SLICE), np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = [np.array([v]) for v in given]
    if isinstance(wanted, str):
        with pytest.raises(RuntimeFault, match=wanted):
            module(x, *arrays)
    else:
        np.testing.assert_array_equal(module(x, *arrays)[0], x[wanted])


RANGE = "n (int64 a, int64 b, int64 c) => (int64[N] y) { y = Range(a, b, c) }"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((-FAR - 1, FAR, FAR), [-FAR - 1, -1, FAR - 1]),
        ((FAR, -FAR - 1, -FAR - 1), [FAR, -1]),
        ((0, FAR, 1 << 62), [0, 1 << 62]),
        ((5, 5, -1), []),
        ((5, 4, 1), []),
        ((5, 7, 1), [5, 6]),
        ((5, 3, -3), [5]),
        ((-FAR - 1, FAR, 1), "the number of elements of y is negative or too large"),
        ((0, 5, 0), "a step is 0"),
    ],
)
def test_ranges_that_only_the_data_tells(given: tuple[int, ...], wanted: Any):
    """Distances that 64 bits hold without a sign only are none that wrapped around."""
    module, arrays = read(RANGE), [np.array(v) for v in given]
    if isinstance(wanted, str):
        with pytest.raises(RuntimeFault, match=wanted):
            module(*arrays)
    else:
        assert module(*arrays)[0].tolist() == wanted


def test_open_dimensions_that_meet_are_equal():
    """Or fixed at 1; the error says so."""
    text = "n (float[N, H] x, float[N, M] z) => (float[N, K] y) { y = Add(x, z) }"
    with pytest.raises(TypeCheckError, match="where M is always 1, compile with --dim M=1"):
        read(text)(ones(2, 3), ones(2, 1))
    assert read(text, M=1)(ones(2, 3), ones(2, 1))[0].tolist() == [[2, 2, 2]] * 2


WRAPPED = ((1 << 24) + 16, (1 << 40) - (1 << 20) + 1)  # 2 to the 64th and 16 more: in 64 bits 16
UNFIT = r"shape\[0\] \* shape\[1\] == N does not hold"
RESHAPED = "Reshape <allowzero = 1> (x, s)"


@pytest.mark.parametrize(
    ("nodes", "count", "sizes", "wanted"),
    [
        (f"y = {RESHAPED}", 0, (1 << 32, 1 << 32), UNFIT),
        (f"y = {RESHAPED}", 16, WRAPPED, UNFIT),
        (f"r = {RESHAPED} y = Gather(r, i)", 16, WRAPPED, UNFIT),
        ("y = Expand(x, s)", 1, (1 << 46, 0), None),
        ("y = ConstantOfShape(s)", 1, (0, 1 << 46), None),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_products_of_sizes_that_do_not_fit(
    nodes: str, count: int, sizes: tuple[int, int], wanted: str | None, target: str
) -> None:
    text = f"n (float[N] x, int64[2] s, int64[1] i) => (float[C, D] y) {{ {nodes} }}"
    built, x = read(text, target=target), np.ones(count, np.float32)
    if wanted is None:
        assert built(x, np.array(sizes), np.array([99]))[0].shape == sizes
        return
    with pytest.raises(RuntimeFault, match=wanted):
        built(x, np.array(sizes), np.array([99]))


def test_shapes_that_no_array_has() -> None:
    """numpy has none whose dimensions other than 0 have too large a product."""
    far = 1 << 34
    text = f"n (float[N] x, int64[3] s) => (float[C, D, E] y) {{ y = {RESHAPED} }}"
    with pytest.raises(RuntimeFault, match="that is larger than any array"):
        read(text)(ones(0), np.array([0, far, far]))
    text = "n (float[N, 0, 1] x, float[1, 0, M] z) => (float[N, K, M] y) { y = Add(x, z) }"
    with pytest.raises(TypeCheckError, match="that is larger than any array"):
        read(text)(np.empty((far, 0, 1), np.float32), np.empty((1, 0, far), np.float32))


@pytest.mark.parametrize("size", [5, 1 << 50, FAR])
def test_a_part_as_large_as_one_likes(size: int) -> None:
    text = f"""n (float[N] x, int64 s) => (float[C] y) {{
      zero = Constant <value_int = 0> () big = Constant <value_int = {size}> ()
      a = SplitToSequence(x, s) b = SplitToSequence(x, big)
      p = SequenceAt(a, zero) q = SequenceAt(b, zero) y = Concat <axis = 0> (p, q)
    }}"""
    assert read(text)(ones(3), np.array(size))[0].shape == (6,)
