"""Inputs that ``bench`` and ``verify`` make up: of sizes that test something, and that work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from errors.cases import floats, ints, layer, model, node

import planish
from planish import arrays
from planish.arrays import usable_inputs
from planish.cli import OK, UNUSABLE, main


def places() -> onnx.ModelProto:
    """Where x is not 0: the size is known from the data alone."""
    return model(node("NonZero"), [floats("n", "m")])


def largest() -> onnx.ModelProto:
    """The k largest, and k is given."""
    return model(node("TopK", "x k", "y z"), [floats("n", "m"), ints(1)], outputs="y z")


def ranged() -> onnx.ModelProto:
    """As many numbers as an input says, as well as a size of another output."""
    nodes = [node("Range", "zero k one"), node("Relu", "x", "z")]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    return model(nodes, [ints(), floats("n")], outputs="y z", constants=constants)


def reshaped(*sizes: int | str) -> onnx.ModelProto:
    """x in a shape that is given."""
    return model(node("Reshape", "x k"), [floats(*sizes), ints(2)])


def run(words: str, folder: Path, proto: onnx.ModelProto) -> int:
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return main([str(folder / "m.onnx") if w == "m" else w for w in words.split()])


@pytest.mark.parametrize(
    "words", ["verify m", "bench m --seconds 0.01", "bench m --profile --seconds 0.01"]
)
@pytest.mark.parametrize("make", [places, largest, ranged])
def test_sizes_that_data_tells(make: Any, words: str, tmp_path: Path) -> None:
    if words == "bench m --profile --seconds 0.01" and make is not places:
        pytest.skip("one profile will do")
    assert run(words, tmp_path, make()) == OK


def test_what_cannot_be_made_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("verify m", "bench m --seconds 0.01"):
        assert run(words, tmp_path, reshaped(5)) == UNUSABLE
        assert "the inputs were made up; --inputs IN.npz gives others" in capsys.readouterr().err
    out = f"compile m -o {tmp_path / 'm.planish'} --report"
    assert run(out, tmp_path, reshaped(5)) == OK
    assert "schedule" in capsys.readouterr().out


def test_sizes_of_1_where_others_fail() -> None:
    """The shape is made up, too, of zeros and ones: only one element can have it."""
    sizes, inputs = usable_inputs(planish.compile(reshaped("n")), {})
    assert sizes in ({"n": 1}, {"n": 21})
    assert inputs["x"].shape == (sizes["n"],)


def test_sizes_are_a_few_dozen_and_differ() -> None:
    module = planish.compile(model(node("Add", "x z"), [floats("n", "m"), floats("m", name="z")]))
    sizes, inputs = usable_inputs(module, {})
    assert sizes == {"n": 21, "m": 22}
    assert inputs["x"].shape == (21, 22)
    assert usable_inputs(module, {"n": 3})[0] == {"n": 3, "m": 21}


def test_sizes_are_small_where_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    module = planish.compile(layer())
    work = 2 * 16 * 8
    for most, rows in ((work * 8 + 100, range(4, 9)), (work, range(1, 2))):
        monkeypatch.setattr(arrays, "_MOST_FLOPS", most)
        sizes, _ = usable_inputs(module, {})
        assert sizes["batch"] in rows


def test_the_smallest_sizes_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_MOST_FLOPS", 0)
    pool = model(node("MaxPool", "x", kernel_shape=[3, 5]), [floats("n", 1, "h", "w")])
    sizes, _ = usable_inputs(planish.compile(pool), {})
    assert sizes == {"n": 1, "h": 3, "w": 5}


def test_what_was_made_up_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify m", tmp_path, layer()) == OK
    assert re.search(r"sizes made up: batch=21 \(--dim", capsys.readouterr().err)
