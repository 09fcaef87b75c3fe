"""LSTM, GRU and RNN of all versions against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx_harness import check, expected, model_of, node

from planish.compiler.errors import ImportModelError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.ops.sampling import f32

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
NAMES = ("x", "w", "r", "b", "lens", "h", "c", "p")


def layer(
    kind: str, given: str = "b", layout: int = 0, **attributes: Any
) -> tuple[Any, dict[str, Array], dict[str, Array]]:
    """A node with its inputs and weights; ``given`` names the optional inputs."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    columns = GATES[kind] * HIDDEN
    state = (BATCH, directions, HIDDEN) if layout else (directions, BATCH, HIDDEN)
    made = {
        "x": f32(BATCH, STEPS, INPUTS) if layout else f32(STEPS, BATCH, INPUTS),
        "w": f32(directions, columns, INPUTS, low=-1.0, high=1.0),
        "r": f32(directions, columns, HIDDEN, low=-1.0, high=1.0),
        "b": f32(directions, 2 * columns, low=-1.0, high=1.0),
        "lens": np.array([2, 4], np.int32),
        "h": f32(*state, low=-1.0, high=1.0),
        "c": f32(*state, low=-2.0, high=1.0),
        "p": f32(directions, 3 * HIDDEN, low=-1.0, high=1.0),
    }
    wanted = {"x", "w", "r", *given.split()}
    names = [name if name in wanted else "-" for name in NAMES[: 8 if kind == "LSTM" else 6]]
    while names[-1] == "-":
        names.pop()
    outputs = "y yh yc" if kind == "LSTM" else "y yh"
    if layout:
        attributes["layout"] = layout
    step = node(kind, " ".join(names), outputs, hidden_size=HIDDEN, **attributes)
    inputs = {name: made[name] for name in ("x", "lens", "h", "c") if name in wanted}
    weights = {name: made[name] for name in ("w", "r", "b", "p") if name in wanted}
    return step, inputs, weights


def run(kind: str, given: str = "b", opset: int = 14, **attributes: Any) -> None:
    step, inputs, weights = layer(kind, given, **attributes)
    check(step, inputs, constants=weights, opset=opset, tolerance=2e-5)


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_directions(kind: str, direction: str, opset: int) -> None:
    for given in ("", "b", "b lens", "b h", "b lens h c" if kind == "LSTM" else "lens h"):
        run(kind, given, opset, direction=direction)


@pytest.mark.parametrize("given", ["b p", "p lens c", "b p h c"])
@pytest.mark.parametrize("forget", [0, 1])
def test_peepholes_and_coupled_gates(given: str, forget: int) -> None:
    for direction in ("reverse", "bidirectional"):
        run("LSTM", given, direction=direction, input_forget=forget)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "b lens h"])
def test_linear_before_reset(direction: str, given: str) -> None:
    run("GRU", given, direction=direction, linear_before_reset=1)


@pytest.mark.parametrize("kind", GATES)
def test_clip(kind: str) -> None:
    run(kind, "b h", clip=0.4, direction="bidirectional")
    if kind == "LSTM":
        run(kind, "b h c p", clip=0.4)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    "names",
    [
        ["Relu", "HardSigmoid", "LeakyRelu"], ["ScaledTanh", "Softsign", "ThresholdedRelu"],
        ["Elu", "Affine", "Softplus"],
    ],
)  # fmt: skip
def test_activations(kind: str, names: list[str]) -> None:
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    for k in range(3 if count < 3 else 1):
        used = [names[(k + j) % 3] for j in range(count)]
        if kind == "GRU":
            used[0] = "Sigmoid"  # a gate beyond 1 lets the state grow without bound
        alphas = {"HardSigmoid": 0.3, "LeakyRelu": 0.2, "ScaledTanh": 1.2, "ThresholdedRelu": 0.1,
                  "Elu": 0.7, "Affine": 0.6}  # fmt: skip
        betas = {"HardSigmoid": 0.4, "ScaledTanh": 0.8, "Affine": 0.1}
        attributes = {
            "activation_alpha": [alphas[name] for name in used if name in alphas],
            "activation_beta": [betas[name] for name in used if name in betas],
        }
        run(kind, "b", activations=used, **{k: v for k, v in attributes.items() if v})


def test_activations_of_both_directions() -> None:
    names = ["Tanh", "LeakyRelu", "HardSigmoid", "LeakyRelu"]
    run(
        "GRU", "b", direction="bidirectional", activations=names,
        activation_alpha=[0.1, 0.3, 0.2], activation_beta=[0.45],
    )  # fmt: skip


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_batch_first(kind: str, direction: str) -> None:
    """Layout 1 is layout 0 with axes exchanged, which ONNX Runtime does not have."""
    given = "b lens h c p" if kind == "LSTM" else "b lens h"
    step, inputs, weights = layer(kind, given, direction=direction)
    want = expected(model_of(step, inputs, constants=weights, opset=14), inputs)
    moved = [want[0].transpose(2, 0, 1, 3), *(w.transpose(1, 0, 2) for w in want[1:])]
    inputs = {k: np.swapaxes(v, 0, 1) if k != "lens" else v for k, v in inputs.items()}
    step, _, _ = layer(kind, given, 1, direction=direction)
    check(step, inputs, constants=weights, opset=14, want=moved, tolerance=2e-5)


@pytest.mark.parametrize("outputs", ["y", "- yh", "- - yc", "y - yc"])
def test_outputs_that_are_left_out(outputs: str) -> None:
    step, inputs, weights = layer("LSTM")
    del step.output[:]
    step.output.extend("" if name == "-" else name for name in outputs.split())
    check(step, inputs, constants=weights, opset=14, tolerance=2e-5)


def test_weights_may_come_from_outside() -> None:
    step, inputs, weights = layer("GRU", "b h", direction="bidirectional")
    check(step, {**inputs, **weights}, opset=14, tolerance=2e-5, symbolic=False)


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"activations": ["Tanh", "Sine", "Tanh"]}, "no activation Sine"),
        ({"activations": ["Tanh"]}, "must be 3"),
        ({"direction": "sideways"}, "direction sideways"),
        ({"layout": 2}, "layout 2"),
        ({"hidden_size": 7}, "hidden_size 7 does not fit"),
        ({"output_sequence": 1}, "output_sequence"),
    ],
)
def test_what_does_not_fit_is_an_error(attributes: dict[str, Any], match: str) -> None:
    step, inputs, weights = layer("LSTM")
    step.name = "culprit"
    kept = [a for a in step.attribute if a.name not in attributes]
    del step.attribute[:]
    step.attribute.extend([*kept, *node("LSTM", "x", **attributes).attribute])
    with pytest.raises(ImportModelError, match=match) as error:
        import_model(model_of(step, inputs, constants=weights, opset=14))
    assert "culprit" in str(error.value)


def test_each_direction_is_one_product_and_one_recurrence() -> None:
    for kind, direction in itertools.product(GATES, ("forward", "bidirectional")):
        step, inputs, weights = layer(kind, direction=direction)
        graph = import_model(model_of(step, inputs, constants=weights, opset=14))
        names = [n.op.name for n in graph.nodes]
        count = 2 if direction == "bidirectional" else 1
        assert names.count("matmul") == names.count(kind.lower()) == count
