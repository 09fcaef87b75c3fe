"""The program among others: pipes, full disks, what it prints and where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors.cases import layer

import planish
from planish.arrays import read_npz, write_npz
from planish.cli import FAULT, OK, UNUSABLE, main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(planish.__file__).parent.parent)}
X, K = np.ones((2, 16), np.float32), np.zeros(2, np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its module and inputs."""
    out = tmp_path_factory.mktemp("program")
    model = layer()
    for node in model.graph.node:
        node.ClearField("name")  # ONNX Runtime wants no name twice
    (out / "layer.onnx").write_bytes(model.SerializeToString())
    planish.compile(model).save(out / "layer.planish")
    np.savez(out / "in.npz", x=X, k=K)
    return out


@pytest.fixture(scope="module")
def loaded(folder: Path) -> planish.Module:
    return planish.load(folder / "layer.planish")


def call(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "planish", *words]
    return subprocess.run(command, env=ENVIRONMENT, check=False, timeout=120, **options)


def pipe(path: Path, data: bytes) -> str:
    """A pipe that gives these bytes once."""
    os.mkfifo(path)
    threading.Thread(target=lambda: path.write_bytes(data), daemon=True).start()
    return str(path)


# --------------------------------------------------------------------------------- what it prints


@pytest.mark.parametrize("words", ["target", "env --json", "compile --help"])
def test_a_full_disk_is_no_fault_of_ours(words: str, full_device: Path) -> None:
    with full_device.open("wb", buffering=0) as full:
        done = call(*words.split(), stdout=full, stderr=subprocess.PIPE)
    text = b"planish: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (UNUSABLE, text)


def test_with_no_place_to_print(folder: Path, full_device: Path) -> None:
    """What it has to say goes nowhere, but the exit code is right."""
    for stdout in (None, subprocess.DEVNULL):
        bench = ["bench", str(folder / "layer.planish"), "--seconds", "0.01"]
        for words, code in ((bench, OK), (["show", "none.onnx"], UNUSABLE)):
            with full_device.open("wb", buffering=0) as full:
                close = (lambda: os.close(1)) if stdout is None else None
                done = call(*words, stdout=stdout, stderr=full, preexec_fn=close)
            assert done.returncode == code


def test_a_reader_that_goes_away(folder: Path) -> None:
    command = [sys.executable, "-m", "planish", "ops"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == OK


def test_names_that_the_terminal_has_no_letters_for(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    (tmp_path / "größe.onnx").write_bytes(layer("größe").SerializeToString())
    command = [sys.executable, "-m", "planish", "show", str(tmp_path / "größe.onnx")]
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert b"batch" not in done.stdout and b"matmul" in done.stdout


def test_errors_as_json(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.savez(tmp_path / "wide.npz", x=np.ones((2, 17), np.float32), k=K)
    words = ["run", str(folder / "layer.planish"), "--inputs", str(tmp_path / "wide.npz")]
    assert main([*words, "-o", str(tmp_path / "out.npz"), "--json"]) == UNUSABLE
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert captured.err == f"planish: {error['text']}\n"
    assert error == {
        "class": "TypeCheckError",
        "message": "the input x is f32[2, 17]: dimension 1 must be 16",
        "op": "net",
        "node": None,
        "span": None,
        "hint": "the model declares x: f32[batch, 16]",
        "text": error["text"],
    }
    from planish import commands

    def fail(*_: object) -> int:
        raise KeyError("nothing")

    monkeypatch.setattr(commands, "target", fail)
    assert main(["target", "--json"]) == FAULT
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "KeyError"


# ------------------------------------------------------------------------------- pipes and devices


@pytest.mark.parametrize(
    "words", ["compile - -o OUT", "ops -", "show -", "run - --inputs IN -o OUT", "verify -",
              "verify - --against onnxruntime", "bench - --seconds 0.01 --against onnxruntime"]
)  # fmt: skip
def test_models_from_pipes(
    words: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "onnxruntime" in words:
        pytest.importorskip("onnxruntime")
    model = pipe(tmp_path / "pipe", (folder / "layer.onnx").read_bytes())
    places = {"-": model, "IN": str(folder / "in.npz"), "OUT": str(tmp_path / "out")}
    assert main([places.get(w, w) for w in words.split()]) == OK
    if "OUT" in words:
        assert (tmp_path / "out").stat().st_size > 100


def test_a_model_from_standard_input(folder: Path, tmp_path: Path) -> None:
    model = (folder / "layer.onnx").read_bytes()
    done = call("compile", "/dev/stdin", "-o", str(tmp_path / "m"), input=model)
    assert done.returncode == OK
    assert (tmp_path / "m").read_bytes() == (folder / "layer.planish").read_bytes()


def test_inputs_from_a_pipe_and_outputs_to_one(folder: Path, tmp_path: Path) -> None:
    given = pipe(tmp_path / "in", (folder / "in.npz").read_bytes())
    os.mkfifo(tmp_path / "out")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "out").read_bytes()))
    reader.start()
    words = ["run", str(folder / "layer.planish"), "--inputs", given, "-o", str(tmp_path / "out")]
    assert main(words) == OK
    reader.join()
    (tmp_path / "copy.npz").write_bytes(got[0])
    assert read_npz(tmp_path / "copy.npz")["z"].tolist() == [1, 1]


def test_modules_from_pipes_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are mapped, which a pipe cannot be."""
    model = pipe(tmp_path / "pipe", (folder / "layer.planish").read_bytes())
    assert main(["bench", model, "--seconds", "0.01"]) == UNUSABLE
    assert "is a compiled module, which a pipe cannot give" in capsys.readouterr().err


def test_outputs_to_a_full_disk(
    folder: Path, full_device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = ["--inputs", str(folder / "in.npz")]
    for words in (
        ["compile", str(folder / "layer.onnx")],
        ["run", str(folder / "layer.planish"), *inputs],
    ):
        assert main([*words, "-o", str(full_device)]) == UNUSABLE
        said = capsys.readouterr().err
        assert said == f"planish: {full_device} cannot be written: No space left on device\n"
    assert os.listdir(full_device.parent) == [full_device.name]


def test_folders_that_are_shut(
    loaded: planish.Module, shut_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (shut_folder / "m.planish", shut_folder / "deeper" / "m.planish"):
        with pytest.raises(planish.ParseError, match="cannot be written: Permission denied"):
            loaded.save(place)
        with pytest.raises(planish.ParseError, match="cannot be read: Permission denied"):
            planish.load(place)
        with pytest.raises(planish.ParseError, match="cannot be read: Permission denied"):
            planish.compile(place)
        with pytest.raises(planish.ParseError, match="cannot be read: Permission denied"):
            read_npz(place)
        for words in (["show", str(place)], ["ops", str(place)], ["bench", str(place)]):
            assert main(words) == UNUSABLE
            assert "Permission denied" in capsys.readouterr().err


# ------------------------------------------------------------------------------------- names


def test_outputs_may_have_any_name(tmp_path: Path) -> None:
    """Those of parameters of numpy.savez among them."""
    names = ["file", "allow_pickle", "self", "args", "kwds", "a/b", "../c", "é", "x.npy", "arr_0"]
    arrays = {name: np.full(3, k, np.float32) for k, name in enumerate(names)}
    write_npz(tmp_path / "out.npz", arrays)
    for found in (read_npz(tmp_path / "out.npz"), dict(np.load(tmp_path / "out.npz"))):
        assert list(found) == names
        for name, array in arrays.items():
            assert found[name].tolist() == array.tolist(), name
