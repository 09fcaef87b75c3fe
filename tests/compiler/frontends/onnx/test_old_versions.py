"""Forms of operators that only old opsets have, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx_harness import compare, model_of, node

from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import import_model, load_handlers
from planish.compiler.frontends.onnx.reader import HANDLERS
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import bools, f32, ints

# Versions of operators that their handlers do not have, and why.
UNHANDLED: dict[str, dict[int, str]] = {}
# What ONNX Runtime writes into models of opsets in which ONNX has none yet.
EARLIER = {("", "LayerNormalization"): frozenset(range(1, 17))}


def test_handlers_have_all_versions() -> None:
    load_handlers()
    lacking: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        entry = HANDLERS.get((schema.domain, schema.name))
        if entry is not None and schema.since_version not in entry.versions:
            lacking.setdefault(schema.name, set()).add(schema.since_version)
    assert lacking == {name: set(versions) for name, versions in UNHANDLED.items()}


def test_handlers_have_no_versions_that_do_not_exist() -> None:
    load_handlers()
    known = {(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()}
    names = {(domain, name) for domain, name, _ in known}
    assert not [
        (name, version)
        for (domain, name), entry in HANDLERS.items()
        if (domain, name) in names  # ONNX Runtime adds some to ONNX's own
        for version in entry.versions - EARLIER.get((domain, name), frozenset())
        if (domain, name, version) not in known
    ]


def run(
    op_type: str,
    inputs: list[Array],
    opset: int,
    constants: tuple[int, ...] = (),
    outputs: int = 1,
    **attributes: Any,
) -> list[Array]:
    arrays = {f"x{k}": a for k, a in enumerate(inputs)}
    known = {f"x{k}": arrays.pop(f"x{k}") for k in constants}
    names = " ".join(f"x{k}" for k in range(len(inputs)))
    made = node(op_type, names, " ".join(f"y{k}" for k in range(outputs)), **attributes)
    model = model_of(made, arrays, opset=opset, constants=known)
    return list(run_reference(import_model(model), arrays))


def check(op_type: str, inputs: list[Array], opset: int, want: Any, **options: Any) -> None:
    compare(run(op_type, inputs, opset, **options), [np.asarray(want)])


X = f32(2, 3, 4, 5)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("shape", "axis", "at"),
    [
        ((), None, ()),
        ((1, 1), None, ()),
        ((5,), None, (5,)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((4, 5), 2, (4, 5)),
    ],
)
def test_arithmetic_broadcasts_where_asked(
    opset: int, shape: tuple[int, ...], axis: int | None, at: tuple[int, ...]
) -> None:
    y = f32(*shape, low=1.0, high=2.0)
    given = {} if axis is None else {"axis": axis}
    for op_type, f in (
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
    ):
        want = f(X, y.reshape(at))
        check(op_type, [X, y], opset, want, broadcast=1, **given)


def test_comparisons_and_logic_broadcast_where_asked() -> None:
    y, (a, b) = f32(3), (bools(2, 3, 4), bools(3))
    check("Greater", [X, y], 1, y[:, None, None] < X, broadcast=1, axis=1)
    check("Less", [X, y], 1, y[:, None, None] > X, broadcast=1, axis=1)
    i, j = ints(2, 3), ints(3)
    check("Equal", [i, j], 1, i == j, broadcast=1)
    for op_type, f in (
        ("And", np.logical_and),
        ("Or", np.logical_or),
        ("Xor", np.logical_xor),
    ):
        check(op_type, [a, b], 1, f(a, b[:, None]), broadcast=1, axis=1)
    base = f32(2, 3, low=0.5, high=2.0)
    check("Pow", [base, f32(2)], 1, base ** f32(2)[:, None], broadcast=1, axis=0)
    check("Pow", [base, np.float32([2.0])], 1, base**2, broadcast=1, constants=(1,))


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ((5,), {}, "broadcast is 0"),
        ((2, 3, 4, 1), {"broadcast": 1, "axis": 1}, "from axis 1"),
        ((3,), {"broadcast": 1}, "does not broadcast"),
        ((2,), {"broadcast": 1, "axis": 9}, "from axis 9"),
        ((2,), {"broadcast": 1, "axis": -1}, "from axis -1"),
    ],
)
def test_what_does_not_broadcast_is_an_error(
    shape: tuple[int, ...], attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(ImportModelError, match=message):
        run("Add", [X, f32(*shape)], 6, **attributes)


UNARY: dict[str, Any] = {
    "Abs": np.abs, "Neg": np.negative, "Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt,
    "Ceil": np.ceil, "Floor": np.floor, "Reciprocal": np.reciprocal, "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "LeakyRelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "HardSigmoid": lambda x: np.clip(np.float32(0.2) * x + np.float32(0.5), 0, 1),
    "Selu": lambda x: np.where(
        x > 0, np.float32(1.0507) * x, np.float32(1.0507) * np.float32(1.6732) * np.expm1(x)
    ),
}  # fmt: skip


@pytest.mark.parametrize("op_type", UNARY)
def test_hints_about_memory_mean_nothing(op_type: str) -> None:
    x = f32(3, 4, low=0.1, high=4.0) if op_type in ("Log", "Sqrt") else f32(3, 4)
    check(op_type, [x], 1, UNARY[op_type](x), consumed_inputs=[0])


def test_hints_about_memory_are_of_first_versions_only() -> None:
    with pytest.raises(ImportModelError, match="consumed_inputs"):
        run("Abs", [f32(3)], 6, consumed_inputs=[0])


@pytest.mark.parametrize("opset", [1, 6])
def test_variadic(opset: int) -> None:
    x, y, z = f32(3, 4), f32(3, 4)[::-1].copy(), np.ones((3, 4), np.float32)
    check("Sum", [x, y, z], opset, x + y + z)
    check("Mean", [x, y, z], opset, (x + y + z) / 3)
    check("Max", [x, y, z], opset, np.maximum(np.maximum(x, y), z))
    check("Min", [x, y, z], opset, np.minimum(np.minimum(x, y), z))


def test_clip() -> None:
    x = f32(3, 4)
    check("Clip", [x], 1, np.clip(x, -0.5, 0.5), min=-0.5, max=0.5, consumed_inputs=[0])


@pytest.mark.parametrize("opset", [1, 6])
def test_prelu_has_slopes_of_channels(opset: int) -> None:
    x, slope = f32(2, 3, 4, 3), np.float32([0.1, 0.2, 0.3])
    check("PRelu", [x, slope], opset, np.where(x < 0, x * slope[:, None, None], x))
    check("PRelu", [x, slope[:1]], opset, np.where(x < 0, x * slope[0], x))


@pytest.mark.parametrize("opset", [1, 6])
def test_gemm(opset: int) -> None:
    a, b, c = f32(3, 4), f32(4, 5), f32(5)
    full = f32(3, 5)
    check("Gemm", [a, b, full], opset, 2 * (a @ b) + 3 * full, alpha=2.0, beta=3.0)
    check("Gemm", [a.T.copy(), b, c], opset, a @ b + c, broadcast=1, transA=1)
    with pytest.raises(ImportModelError, match="broadcast is 0"):
        run("Gemm", [a, b, c], opset)


@pytest.mark.parametrize("opset", [1, 6])
def test_batch_normalization(opset: int) -> None:
    scale, bias, mean = f32(3), f32(3), f32(3)
    variance = np.float32([0.5, 1.0, 2.0])
    inputs = [X, scale, bias, mean, variance]
    s, b, m, v = (p[:, None, None] for p in inputs[1:])
    old = {"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {}
    want = (X - m) / np.sqrt(v + 1e-5) * s + b
    check("BatchNormalization", inputs, opset, want, is_test=1, **old)


@pytest.mark.parametrize("opset", [1, 6])
def test_dropout(opset: int) -> None:
    check("Dropout", [X], opset, X, is_test=1)
    check("Dropout", [X], opset, X, ratio=0.0)


def test_instance_normalization() -> None:
    scale, bias = f32(3), f32(3)
    mean, var = X.mean((2, 3), keepdims=True), X.var((2, 3), keepdims=True)
    want = (X - mean) / np.sqrt(var + 1e-5) * scale[:, None, None] + bias[:, None, None]
    check("InstanceNormalization", [X, scale, bias], 1, want, consumed_inputs=[0])


def test_pooling() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3))
    check("AveragePool", [X], 1, windows.mean((4, 5)), kernel_shape=[2, 2])
    with pytest.raises(ImportModelError, match="count_include_pad"):
        run("AveragePool", [X], 1, kernel_shape=[2, 2], count_include_pad=1)
    # Pads do not count, as the specification has it; ONNX Runtime counts them.
    padded = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=np.nan)
    with_pads = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))
    want = np.nanmean(with_pads, (4, 5))
    check("AveragePool", [X], 1, want, kernel_shape=[2, 2], pads=[1, 0, 0, 0])
    norm = np.sqrt((windows**2).sum((4, 5)))
    check("LpPool", [X], 1, norm, kernel_shape=[2, 2], p=2.0)
    check("GlobalLpPool", [X], 1, np.abs(X).sum((2, 3), keepdims=True), p=1.0)
    with pytest.raises(ImportModelError, match="only integers"):
        run("GlobalLpPool", [X], 1, p=1.5)


def test_shapes() -> None:
    check("Reshape", [X], 1, X.reshape(2, 12, 5), shape=[0, -1, 5], consumed_inputs=[0])
    check("Concat", [X, X], 1, np.concatenate([X, X], 1))
    check("Pad", [f32(3, 2)], 1, np.pad(f32(3, 2), ((0, 0), (2, 0))), paddings=[0, 2, 0, 0])
    check(
        "Tile",
        [f32(2, 3), np.float32([3]), np.float32([1])],
        1,
        np.tile(f32(2, 3), (1, 3)),
        constants=(1, 2),
    )
    with pytest.raises(ImportModelError, match="must be constant"):
        run("Tile", [f32(2, 3), np.float32([3]), np.float32([1])], 1)
    with pytest.raises(ImportModelError, match="integers"):
        run("Tile", [f32(2, 3), np.float32([1.5]), np.float32([1])], 1, constants=(1, 2))


def test_split() -> None:
    x = f32(6, 2)
    want = [x[:2], x[2:]]
    compare(run("Split", [x], 1, outputs=2, split=[2, 4]), want)
    compare(run("Split", [x, np.float32([2, 4])], 1, constants=(1,), outputs=2), want)
    compare(run("Split", [x], 1, outputs=2), [x[:3], x[3:]])


def test_cast_names_the_dtype() -> None:
    check("Cast", [X], 1, X.astype(np.int32), to="INT32")
    with pytest.raises(ImportModelError, match="no element type"):
        run("Cast", [X], 1, to="INT33")


def test_upsample_of_images() -> None:
    want = X.repeat(2, 2).repeat(3, 3)
    check("Upsample", [X], 1, want, height_scale=2.0, width_scale=3.0)
    run("Upsample", [X], 1, height_scale=2.0, width_scale=3.0, mode="bilinear")


@pytest.mark.parametrize(("op_type", "opset"), [("GRU", 1), ("GRU", 3), ("LSTM", 1), ("RNN", 1)])
def test_recurrent_layers(op_type: str, opset: int) -> None:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type]
    inputs = [f32(4, 2, 3), f32(1, gates * 5, 3), f32(1, gates * 5, 5)]
    options: dict[str, Any] = {"outputs": 2, "hidden_size": 5}
    old = run(op_type, inputs, opset, output_sequence=1, **options)
    compare(old, run(op_type, inputs, 7, **options))
